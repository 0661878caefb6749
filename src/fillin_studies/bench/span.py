"""What a learned window saves: the kernel beside torch without a window, torch with one as a bias, and the reference.

Forward + backward of attention of points to one another, batch 1, 4 heads of 16, in float32, with gradients to q, k, v
and the window. Points fill the unit interval, square or cube; "5 %" is a window whose ball is 5 % of that. The order of
the points is found once, as every layer and step on the same set shares it; `Growth.sorting` is what it takes.
"""

from dataclasses import dataclass

import torch

from fillin.attention import MLP, DotProduct, attend
from fillin.attention.kernel import library
from fillin.attention.kernel.ops import order
from fillin.evaluate.span_cost import (
    BIAS,
    CANDIDATES,
    FUSED,
    HARD,
    HEAD_DIM,
    HEADS,
    NATIVE,
    REFERENCE,
    AttentionInputs,
    ball_radius,
    fraction_inside,
    neighbour_radius,
    sample_locations,
    span_of_radius,
)
from fillin.measure import Cost, Tick, costs, ticks
from fillin_studies.bench.models import megabytes
from fillin_studies.bench.plan import Case, Plan


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


def candidates(case: Case, plan: Plan) -> list[str]:
    """Who takes part: nobody who would need gigabytes or minutes."""
    fits = {FUSED: plan.fused, BIAS: plan.slow, REFERENCE: plan.exact}
    return [name for name in CANDIDATES if case.points <= fits.get(name, case.points)]


def measure_table(plan: Plan, seed: int = 0, tick: Tick = lambda: None) -> list[SpanRow]:
    return [_row(case, plan, seed, tick) for case in plan.cases]


def _row(case: Case, plan: Plan, seed: int, tick: Tick) -> SpanRow:
    x, r = sample_locations(case.layout, case.dim, case.points, seed), ball_radius(case.span, case.dim)
    data, learned = AttentionInputs(x, seed), span_of_radius(r, case.dim)
    runs = {
        NATIVE: data.attend("native", learned),
        HARD: data.attend("native", span_of_radius(r, case.dim, "hard")),
        FUSED: data.fused(),
        BIAS: data.bias(learned),
        REFERENCE: data.attend("reference", learned),
    }
    found = costs({name: runs[name] for name in candidates(case, plan)}, plan.rounds, tick, plan.turn)
    share, took = fraction_inside(x, r), found[NATIVE].seconds
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
    runs, sets = {}, {n: sample_locations("scattered", dim, n, seed) for n in plan.growth}
    for n, x in sets.items():
        runs[f"{n}"] = AttentionInputs(x, seed).attend(
            "native", span_of_radius(neighbour_radius(x, plan.neighbours), dim)
        )
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
    return 4 * HEADS * HEAD_DIM * 4 * points / 1e6


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
    data, learned = (
        AttentionInputs(sample_locations("scattered", 2, plan.function, seed), seed),
        span_of_radius(ball_radius(share, 2), 2),
    )
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
