"""What a learned window saves: the kernel beside torch without a window, torch with one as a bias, and the reference.

Forward + backward of attention of points to one another, batch 1, 4 heads of 16, in float32, with gradients to q, k, v
and the window. Points fill the unit interval, square or cube; "5 %" is a window whose ball is 5 % of that. The order of
the points is found once, as every layer and step on the same set shares it; `Growth.sorting` is what it takes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, threshold

from fillin.attention import MLP, DotProduct, Score, Span, attend
from fillin.attention.kernel import library
from fillin.attention.kernel.ops import order
from fillin.measure import Cost, Run, Tick, costs, ticks
from fillin_studies.bench.models import megabytes
from fillin_studies.bench.plan import Case, Plan

HEADS, WIDTH, THRESHOLD = 4, 16, 0.1
NATIVE, HARD, FUSED, BIAS, REFERENCE = CANDIDATES = (
    "native", "native, hard cut", "fused, no window", "window as a bias", "reference",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """Milliseconds of forward + backward, and the most memory beyond what was there before."""

    milliseconds: float
    megabytes: float | None


@dataclass(frozen=True)
class SpanRow:
    """One case. `inside` is the share of pairs inside the window, `faster` how many times as long as the kernel each
    of the others takes, `of_limit` (time / time of fused attention without a window) / inside: 1 would be no cost but
    that of the pairs inside."""

    layout: str
    dim: int
    points: int
    span: float
    inside: float
    figures: dict[str, Figure]
    faster: dict[str, float]
    of_limit: float | None


@dataclass(frozen=True)
class Growth:
    """The kernel on more and more points with equally many neighbours: time ∝ N^exponent. `beyond` is the memory at
    the largest N beyond inputs, output and gradients; `sorting` is the milliseconds of finding the order, once a set.
    """

    dim: int
    neighbours: int
    points: list[int]
    figures: list[Figure]
    sorting: list[float]
    exponent: float
    beyond: float | None


@dataclass(frozen=True)
class Function:
    """F(Δ), an MLP, from a table inside the kernel and on every pair; `error` is of the output, relative, norm-wise."""

    points: int
    span: float
    table: Figure
    pairs: Figure
    faster: float
    less_memory: float | None
    error: float


@dataclass
class Inputs:
    """q, k and v [1 h n d] as a layer's projections leave them, their places x, and the gradient that comes back."""

    x: Float[Tensor, "1 n dx"]
    seed: int = 0
    q: Tensor = field(init=False)
    k: Tensor = field(init=False)
    v: Tensor = field(init=False)
    back: Tensor = field(init=False)

    def __post_init__(self):
        random = torch.Generator().manual_seed(self.seed)
        shape = 1, self.x.shape[1], HEADS, WIDTH
        drawn = [torch.randn(shape, generator=random).transpose(1, 2) for _ in range(4)]
        self.q, self.k, self.v = (t.requires_grad_() for t in drawn[:3])
        self.back = drawn[3]

    def run(self, forward: Callable[[], Tensor], *learned: torch.nn.Module) -> Run:
        """Forward + backward; the gradients are dropped, so that every run makes them and its memory includes them."""
        wanted = [self.q, self.k, self.v, *(p for module in learned for p in module.parameters())]
        return lambda: torch.autograd.grad(forward(), wanted, self.back)

    def attend(self, backend: str, span: Span | None = None, score: Score | None = None, **options) -> Run:
        learned = [module for module in (span, score) if module is not None]

        def forward() -> Tensor:
            places = {"xq": self.x, "xk": self.x, "score": score, "span": span}
            return attend(self.q, self.k, self.v, backend=backend, **places, **options)

        return self.run(forward, *learned)

    def fused(self) -> Run:
        return self.run(lambda: scaled_dot_product_attention(self.q, self.k, self.v))

    def bias(self, span: Span) -> Run:
        """ln W as a bias, in as few passes over pairs as autograd allows.

        Keys outside keep a weight of nothing much: −∞ would need a mask, and one more pass.
        """

        def forward() -> Tensor:
            squares = (self.x.mT[0, :, :, None] - self.x.mT[0, :, None, :]).square()  # [dx n m]
            g = torch.einsum("hd,dnm->hnm", -0.5 * (-2 * span.log_sigma).exp(), squares).exp()
            bias = threshold(g - span.threshold, 1e-12, 1e-12, inplace=True).log()  # 1/(1 − t) cancels in the softmax
            return scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=bias)

        return self.run(forward, span)


def places(layout: str, dim: int, points: int, seed: int = 0) -> Float[Tensor, "1 n dx"]:
    """Pixel centres, or uniform random places, in the unit interval, square or cube."""
    if layout == "scattered":
        return torch.rand(1, points, dim, generator=torch.Generator().manual_seed(seed))
    side = round(points ** (1 / dim))
    axes = [(torch.arange(side) + 0.5) / side] * dim
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, dim)


def radius(share: float, dim: int) -> float:
    """r of the ball whose volume is `share`: V = π^(dim/2)/Γ(dim/2 + 1) · r^dim.

    >>> round(radius(0.2, 1), 3), round(radius(math.pi / 4, 2), 3)
    (0.1, 0.5)
    """
    unit = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1)
    return (share / unit) ** (1 / dim)


def radius_of(x: Float[Tensor, "1 n dx"], neighbours: int, sample: int = 512) -> float:
    """r within which there are, on average over points (edges and all), so many neighbours."""
    some = torch.cdist(_some(x, sample), x[0]).flatten()
    return float(some.kthvalue(min(len(some), neighbours * min(sample, x.shape[1]))).values)


def inside(x: Float[Tensor, "1 n dx"], r: float, sample: int = 4096) -> float:
    """The share of pairs closer than r; of `sample` points to all where there are more."""
    found = [(torch.cdist(some, x[0]) < r).float().mean(1) for some in _some(x, sample).split(256)]
    return float(torch.cat(found).mean())


def _some(x: Tensor, sample: int) -> Tensor:
    """So many points, from all over."""
    return x[0, torch.linspace(0, x.shape[1] - 1, min(sample, x.shape[1])).long()]


def window(r: float, dim: int, cut: str = "continuous") -> Span:
    """A window per head that ends at r: σ = r/√(−2 ln t)."""
    return Span(dim, HEADS, init=r / math.sqrt(-2 * math.log(THRESHOLD)), threshold=THRESHOLD, cut=cut)


def candidates(case: Case, plan: Plan) -> list[str]:
    """Who takes part: nobody who would need gigabytes or minutes."""
    fits = {FUSED: plan.fused, BIAS: plan.slow, REFERENCE: plan.exact}
    return [name for name in CANDIDATES if case.points <= fits.get(name, case.points)]


def measure_table(plan: Plan, seed: int = 0, tick: Tick = lambda: None) -> list[SpanRow]:
    return [_row(case, plan, seed, tick) for case in plan.cases]


def _row(case: Case, plan: Plan, seed: int, tick: Tick) -> SpanRow:
    x, r = places(case.layout, case.dim, case.points, seed), radius(case.span, case.dim)
    data, learned = Inputs(x, seed), window(r, case.dim)
    runs = {
        NATIVE: data.attend("native", learned),
        HARD: data.attend("native", window(r, case.dim, "hard")),
        FUSED: data.fused(),
        BIAS: data.bias(learned),
        REFERENCE: data.attend("reference", learned),
    }
    found = costs({name: runs[name] for name in candidates(case, plan)}, plan.rounds, tick, plan.turn)
    share, took = inside(x, r), found[NATIVE].seconds
    faster = {name: cost.seconds / took for name, cost in found.items() if name != NATIVE}
    limit = 1 / faster[FUSED] / share if FUSED in faster else None
    figures = {name: figure(cost) for name, cost in found.items()}
    return SpanRow(case.layout, case.dim, case.points, case.span, share, figures, faster, limit)


def figure(cost: Cost) -> Figure:
    return Figure(1e3 * cost.seconds, megabytes(cost.bytes))


def measure_growth(plan: Plan, seed: int = 0, tick: Tick = lambda: None) -> list[Growth]:
    """In one, two and three dimensions; all sizes of one dimension take turns."""
    return [_growth(dim, plan, seed, tick) for dim in (1, 2, 3)]


def _growth(dim: int, plan: Plan, seed: int, tick: Tick) -> Growth:
    runs, sets = {}, {n: places("scattered", dim, n, seed) for n in plan.growth}
    for n, x in sets.items():
        runs[f"{n}"] = Inputs(x, seed).attend("native", window(radius_of(x, plan.neighbours), dim))
        runs[f"sort {n}"] = lambda x=x: order(x)
    found = costs(runs, plan.rounds, tick, plan.turn)
    figures = [figure(found[f"{n}"]) for n in plan.growth]
    sorting = [1e3 * found[f"sort {n}"].seconds for n in plan.growth]
    rise = exponent(plan.growth, [f.milliseconds for f in figures])
    most, largest = figures[-1].megabytes, plan.growth[-1]
    beyond = None if most is None else max(0.0, most - unavoidable(largest))
    return Growth(dim, plan.neighbours, list(plan.growth), figures, sorting, rise, beyond)


def unavoidable(points: int) -> float:
    """Megabytes of the output and of the gradients to q, k and v, which a run has to make whatever it does."""
    return 4 * HEADS * WIDTH * 4 * points / 1e6


def exponent(sizes, values) -> float:
    """The slope of ln value against ln size, by least squares.

    >>> round(exponent([1, 10, 100], [3, 300, 30000]), 6)
    2.0
    """
    x, y = (torch.tensor(list(t), dtype=torch.float64).log() for t in (sizes, values))
    x = x - x.mean()
    return float((x @ y) / (x @ x))


def measure_function(plan: Plan, seed: int = 0, tick: Tick = lambda: None, share: float = 0.05) -> Function:
    """F(Δ) = MLP(2→32→32→4) added to q·k/√d, under a window of 5 % of a square."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        score = DotProduct() + MLP(HEADS, 2, hidden=(32, 32))
    data, learned = Inputs(places("scattered", 2, plan.function, seed), seed), window(radius(share, 2), 2)
    runs = {
        "table": data.attend("native", learned, score),
        "pairs": data.attend("reference", learned, score, tolerance=0.0),
    }
    found = costs(runs, plan.rounds, tick, plan.turn)
    table, pairs = found["table"], found["pairs"]
    less = None if pairs.bytes is None or not table.bytes else pairs.bytes / table.bytes
    with torch.no_grad():
        fast, exact = (
            attend(data.q, data.k, data.v, xq=data.x, xk=data.x, span=learned, score=score, backend=backend)
            for backend in ("native", "reference")
        )
    error = float((fast - exact).norm() / exact.norm())
    return Function(plan.function, share, figure(table), figure(pairs), pairs.seconds / table.seconds, less, error)


def lanes() -> int | None:
    """Numbers in a vector of the kernel that was measured."""
    found = library()
    return None if found is None else found.fillin_lanes()


def ticks_of(plan: Plan) -> dict[str, int]:
    """How often each of the parts here ticks."""
    return {
        "table": sum(ticks(len(candidates(case, plan)), plan.rounds) for case in plan.cases),
        "growth": 3 * ticks(2 * len(plan.growth), plan.rounds),
        "function": ticks(2, plan.rounds),
    }
