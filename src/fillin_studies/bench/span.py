"""Savings of a learned window: the kernel against PyTorch without a window, PyTorch with it as a bias, the reference.

The points are sorted beforehand, as every layer and step on the same set shares the order. Rows are JSON objects.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from fillin import measure
from fillin.attention import MLP, DotProduct, attend
from fillin.attention.kernel.ops import sort_points
from fillin.measure import BIAS, CANDIDATES, FUSED, HARD, HEADS, NATIVE, REFERENCE, AttentionInputs, Cost
from fillin.runtime import Tick
from fillin_studies.bench.models import SCORE_SIZE, StepSize, make_model, to_megabytes

PARTS = ("table", "growth", "models", "function", "large", "crossover")


class WindowCase(NamedTuple):
    """Points in `dim` dimensions, on a "grid" or "scattered", and a window of a share of the unit volume."""

    layout: str
    dim: int
    points: int
    span: float


@dataclass(frozen=True)
class SpanPlan:
    """Sizes of all parts. Competitors are measured as far as they take neither gigabytes nor minutes."""

    grids: tuple[int, ...] = (32, 64, 128)
    scattered: tuple[int, ...] = (1024, 4096, 16384, 65536)
    spans: tuple[float, ...] = (0.01, 0.05, 0.2)
    growth: tuple[int, ...] = tuple(1024 << i for i in range(7))
    neighbours: int = 200
    function: int = 2048
    large: tuple[int, int] = (10_000, 100_000)  # context points, and targets to predict
    crossover: tuple[int, ...] = tuple(64 << i for i in range(7))
    models: StepSize = SCORE_SIZE
    max_bias_points: int = 4096  # it stores every pair
    max_reference_points: int = 1024  # it takes seconds beyond
    max_fused_points: int = 16384
    max_pairs_inside: float = 5e8  # up to which the kernel itself is measured
    rounds: int = 3
    turn: float = 0.1  # seconds that a candidate has in each round, if a run takes less

    @property
    def cases(self) -> list[WindowCase]:
        shapes = [("grid", 2, side * side) for side in self.grids]
        shapes += [("scattered", dim, n) for dim in (1, 2, 3) for n in self.scattered]
        cases = [WindowCase(*shape, span) for shape in shapes for span in self.spans]
        return [case for case in cases if case.span * case.points**2 <= self.max_pairs_inside]


FULL = SpanPlan()
QUICK = replace(
    FULL, grids=(32,), scattered=(1024, 4096), growth=FULL.growth[:4], function=512, large=(2_000, 10_000),
    crossover=FULL.crossover[:4], max_bias_points=1024, max_fused_points=4096,
)  # fmt: skip


def report_cost(cost: Cost) -> dict[str, float | None]:
    return {"milliseconds": 1e3 * cost.seconds, "megabytes": to_megabytes(cost.bytes)}


def select_candidates(case: WindowCase, plan: SpanPlan) -> list[str]:
    """Return the candidates that need neither gigabytes nor minutes."""
    limits = {FUSED: plan.max_fused_points, BIAS: plan.max_bias_points, REFERENCE: plan.max_reference_points}
    return [name for name in CANDIDATES if case.points <= limits.get(name, case.points)]


def measure_table(plan: SpanPlan, seed: int = 0, tick: Tick = lambda: None) -> list[dict[str, Any]]:
    """Measure the kernel against its competitors. `inside`: the share of pairs inside the window; `faster`: time over
    that of the kernel; `of_limit`: (time / time of fused) / inside, 1 where only the pairs inside cost anything."""
    rows = []
    for case in plan.cases:
        x = measure.sample_locations(case.layout, case.dim, case.points, seed)
        radius = measure.ball_radius(case.span, case.dim)
        inputs, window = AttentionInputs(x, seed), measure.span_of_radius(radius, case.dim)
        workloads = {
            NATIVE: inputs.attend("native", window),
            HARD: inputs.attend("native", measure.span_of_radius(radius, case.dim, "hard")),
            FUSED: inputs.fused(),
            BIAS: inputs.bias(window),
            REFERENCE: inputs.attend("reference", window),
        }
        candidates = {name: workloads[name] for name in select_candidates(case, plan)}
        costs = measure.measure_costs(candidates, plan.rounds, tick, plan.turn)
        inside = measure.fraction_inside(x, radius)
        faster = {name: cost.seconds / costs[NATIVE].seconds for name, cost in costs.items() if name != NATIVE}
        rows.append({
            **case._asdict(), "inside": inside, "figures": {name: report_cost(cost) for name, cost in costs.items()},
            "faster": faster, "of_limit": 1 / faster[FUSED] / inside if FUSED in faster else None,
        })  # fmt: skip
    return rows


def measure_growth(plan: SpanPlan, seed: int = 0, tick: Tick = lambda: None) -> list[dict[str, Any]]:
    """Measure growing numbers of points with the same number of neighbours: time ∝ N^exponent. `beyond`: memory at the
    largest N in excess of inputs, output and gradients; `sorting`: in milliseconds."""
    rows = []
    for dim in (1, 2, 3):
        workloads, locations = {}, {n: measure.sample_locations("scattered", dim, n, seed) for n in plan.growth}
        for n, x in locations.items():
            window = measure.span_of_radius(measure.neighbour_radius(x, plan.neighbours), dim)
            workloads[f"{n}"] = AttentionInputs(x, seed).attend("native", window)
            workloads[f"sort {n}"] = lambda x=x: sort_points(x)
        costs = measure.measure_costs(workloads, plan.rounds, tick, plan.turn)
        memory = to_megabytes(costs[f"{plan.growth[-1]}"].bytes)
        rows.append({
            "dim": dim, "neighbours": plan.neighbours, "points": list(plan.growth),
            "figures": [report_cost(costs[f"{n}"]) for n in plan.growth],
            "sorting": [1e3 * costs[f"sort {n}"].seconds for n in plan.growth],
            "exponent": fit_exponent(plan.growth, [costs[f"{n}"].seconds for n in plan.growth]),
            "beyond": None if memory is None else max(0.0, memory - least_megabytes(plan.growth[-1])),
        })  # fmt: skip
    return rows


def least_megabytes(points: int) -> float:
    """Return the size of the output and of the gradients to q, k and v, which every run allocates."""
    return 4 * HEADS * measure.HEAD_DIM * 4 * points / 1e6


def fit_exponent(sizes, values) -> float:
    """Return the slope of ln value against ln size, by least squares.

    >>> round(fit_exponent([1, 10, 100], [3, 300, 30000]), 6)
    2.0
    """
    x, y = (torch.tensor(list(t), dtype=torch.float64).log() for t in (sizes, values))
    x = x - x.mean()
    return float((x @ y) / (x @ x))


def measure_function(plan: SpanPlan, seed: int = 0, tick: Tick = lambda: None) -> list[dict[str, Any]]:
    """Measure F(Δ) = MLP(2→32→32→4) added to q·k/√d, with a window of 5 % of a square: read from a table inside the
    kernel, and evaluated on every pair; `error` is that of the output."""
    share = 0.05
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        score = DotProduct() + MLP(HEADS, 2, hidden=(32, 32))
    inputs = AttentionInputs(measure.sample_locations("scattered", 2, plan.function, seed), seed)
    window = measure.span_of_radius(measure.ball_radius(share, 2), 2)
    workloads = {
        "table": inputs.attend("native", window, score),
        "pairs": inputs.attend("reference", window, score, tolerance=0.0),
    }
    costs = measure.measure_costs(workloads, plan.rounds, tick, plan.turn)
    table, pairs = costs["table"], costs["pairs"]
    with torch.no_grad():
        fast, exact = (
            attend(inputs.q, inputs.k, inputs.v, xq=inputs.x, xk=inputs.x, span=window, score=score, backend=backend)
            for backend in ("native", "reference")
        )
    return [{
        "points": plan.function, "span": share, "table": report_cost(table), "pairs": report_cost(pairs),
        "faster": pairs.seconds / table.seconds,
        "less_memory": None if pairs.bytes is None or not table.bytes else pairs.bytes / table.bytes,
        "error": float((fast - exact).norm() / exact.norm()),
    }]  # fmt: skip


def measure_large(plan: SpanPlan, seed: int = 0, tick: Tick = lambda: None) -> list[dict[str, Any]]:
    """Measure te-tnp with a learned window on many points: forward + backward with a tenth as many targets (`step`),
    and a prediction at all targets (`fill`)."""
    rows, (context, targets) = [], plan.large
    for dim in (1, 2):
        random = torch.Generator().manual_seed(seed)
        xc = measure.sample_locations("scattered", dim, context, seed)
        xt = torch.rand(1, targets, dim, generator=random)
        yc = torch.sin(9 * xc.sum(-1, keepdim=True)) + 0.1 * torch.randn(1, context, 1, generator=random)
        window = measure.span_of_radius(measure.neighbour_radius(xc, plan.neighbours), dim)
        sigma = float(window.log_sigma.detach().exp().mean())
        model = make_model("te-tnp", seed, dim_x=dim, size="small", span=sigma)

        def step(model=model, xc=xc, yc=yc, few=xt[:, : context // 10]) -> object:
            loss = -model(xc, yc, few).log_prob(yc[:, : few.shape[1]]).mean()
            return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)

        @torch.no_grad()
        def fill(model=model, xc=xc, yc=yc, xt=xt) -> object:
            return model(xc, yc, xt).mean

        costs = measure.measure_costs({"step": step, "fill": fill}, plan.rounds, tick)
        about = {"dim": dim, "context": context, "targets": targets, "neighbours": plan.neighbours}
        rows.append({**about, **{name: report_cost(cost) for name, cost in costs.items()}})
    return rows
