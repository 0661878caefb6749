"""Savings of a learned window: the kernel against PyTorch without a window, in fixed independent blocks (the previous
work that Alfons 2022 improves on) and with the window as a bias, the reference, and the requirements that the kernel is
built to meet.

The points are sorted beforehand, as every layer and step on the same set shares the order. Rows are JSON objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from fillin import measure
from fillin.attention import BACKENDS, MLP, RBF, DotProduct, Score, attend
from fillin.attention.dispatch import tabulate_terms
from fillin.attention.kernel.ops import sort_points
from fillin.attention.problem import AttentionProblem
from fillin.measure import BIAS, BLOCKS, CANDIDATES, FUSED, HARD, HEADS, NATIVE, REFERENCE, AttentionInputs, Cost
from fillin.runtime import Tick
from fillin_studies.bench.models import SCORE_SIZE, StepSize, make_model, measure_scores, to_megabytes

PARTS = ("table", "growth", "models", "function", "large", "crossover")
_MAX_BYTES = 2e9  # of a candidate
_BYTES_A_PAIR = 4 * 4  # bytes a number, times the copies that a back end which stores pairs holds
# (dimensions, window, score) of every kind of problem on which the crossover is measured
PROBLEMS: tuple[tuple[int, float | None, str], ...] = tuple(
    (dim, share, score)
    for dim in (1, 2)
    for share, score in ((0.05, "dot product"), (0.2, "dot product"), (None, "rbf"), (None, "mlp"))
)


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
    min_seconds: float = 0.1  # that a candidate runs in each round

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
    """Measure the kernel against its competitors. `inside`: the share of pairs inside the window; `in_blocks`:
    inside fixed blocks of about the same volume; `faster`: time over that of the kernel; `of_limit`: (time / time of
    fused) / inside, 1 where only the pairs inside cost anything."""
    rows = []
    for case in plan.cases:
        x = measure.sample_locations(case.layout, case.dim, case.points, seed)
        radius = measure.ball_radius(case.span, case.dim)
        inputs, window = AttentionInputs(x, seed), measure.span_of_radius(radius, case.dim)
        workloads = {
            NATIVE: inputs.attend("native", window),
            HARD: inputs.attend("native", measure.span_of_radius(radius, case.dim, "hard")),
            FUSED: inputs.fused(),
            BLOCKS: inputs.blocks(case.span),
            BIAS: inputs.bias(window),
            REFERENCE: inputs.attend("reference", window),
        }
        candidates = {name: workloads[name] for name in select_candidates(case, plan)}
        costs = measure.measure_costs(candidates, plan.rounds, tick, plan.min_seconds)
        inside = measure.fraction_inside(x, radius)
        faster = {name: cost.seconds / costs[NATIVE].seconds for name, cost in costs.items() if name != NATIVE}
        rows.append({
            **case._asdict(), "inside": inside, "in_blocks": measure.block_side(case.span, case.dim) ** case.dim,
            "figures": {name: report_cost(cost) for name, cost in costs.items()},
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
        costs = measure.measure_costs(workloads, plan.rounds, tick, plan.min_seconds)
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
    costs = measure.measure_costs(workloads, plan.rounds, tick, plan.min_seconds)
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


def make_candidates(
    dim: int, share: float | None, score_name: str, points: int, seed: int = 0
) -> dict[str, measure.Workload]:
    """Return the kernel and every other back end whose pairs take no gigabytes."""
    inputs = AttentionInputs(measure.sample_locations("scattered", dim, points, seed), seed)
    score: Score = DotProduct()
    if displacement := {"rbf": RBF, "mlp": MLP}.get(score_name):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            score = score + displacement(HEADS, dim)
    window = None if share is None else measure.span_of_radius(measure.ball_radius(share, dim), dim)
    problem = AttentionProblem(inputs.q, inputs.k, inputs.v, inputs.x, inputs.x, score, window)
    learned = [score] if window is None else [score, window]
    workloads = {
        NATIVE: inputs.attend(NATIVE, window, score),
        "streamed": inputs.run(lambda: BACKENDS["streamed"].run(tabulate_terms(problem)).out, *learned),
    }
    if _BYTES_A_PAIR * tabulate_terms(problem).n_stored <= _MAX_BYTES:
        workloads["reference"] = inputs.run(lambda: BACKENDS["reference"].run(tabulate_terms(problem)).out, *learned)
    if _BYTES_A_PAIR * problem.n_stored <= _MAX_BYTES:
        workloads["fused"] = inputs.run(lambda: BACKENDS["fused"].run(problem).out, *learned)
    return workloads


def measure_crossover(plan: SpanPlan, seed: int = 0, tick: Tick = lambda: None) -> list[dict[str, Any]]:
    """Measure self-attention over n points with every back end that fits, for growing n; ticks once a size. `pairs` is
    the least number from which on the kernel is the fastest: the threshold of `backend="auto"`."""
    rows = []
    for dim, share, score in PROBLEMS:
        times = []
        for points in plan.crossover:
            workloads = make_candidates(dim, share, score, points, seed)
            for run in workloads.values():
                run()  # warm up
            seconds = measure.fastest_times(workloads, plan.rounds, min_seconds=plan.min_seconds)
            times.append({name: 1e3 * s for name, s in seconds.items()})
            tick()
        rows.append({
            "dim": dim, "span": share, "score": score, "points": list(plan.crossover), "milliseconds": times,
            "pairs": find_crossover(plan.crossover, times),
        })  # fmt: skip
    return rows


def find_crossover(points: Sequence[int], times: Sequence[dict[str, float]]) -> int | None:
    """Return the least h · n² from which on the kernel is the fastest at every size.

    >>> find_crossover([10, 20], [{"native": 2.0, "fused": 1.0}, {"native": 2.0, "fused": 3.0}])
    1600
    """
    least = None
    for n, milliseconds in zip(reversed(points), reversed(times), strict=True):
        if min(milliseconds, key=milliseconds.__getitem__) != NATIVE:
            break
        least = HEADS * n * n
    return least


def measure_span(
    plan: SpanPlan, parts: Sequence[str] = PARTS, seed: int = 0, tick: Tick = lambda: None
) -> dict[str, list[dict[str, Any]]]:
    """Return rows of the selected parts (none: all of them); those of other parts are empty."""

    def measure_models(plan: SpanPlan, seed: int, tick: Tick) -> list[dict[str, Any]]:
        return measure_scores(["mlp"], plan.models, seed=seed, tick=tick)

    measures = {
        "table": measure_table, "growth": measure_growth, "models": measure_models,
        "function": measure_function, "large": measure_large, "crossover": measure_crossover,
    }  # fmt: skip
    return {part: run(plan, seed, tick) if part in (parts or PARTS) else [] for part, run in measures.items()}


def count_span_ticks(plan: SpanPlan, parts: Sequence[str] = PARTS) -> int:
    """Return how often `measure_span` ticks."""
    ticks = {
        "table": sum(measure.count_ticks(len(select_candidates(case, plan)), plan.rounds) for case in plan.cases),
        "growth": 3 * measure.count_ticks(2 * len(plan.growth), plan.rounds),
        "models": measure.count_ticks(3, plan.models.rounds),
        "function": measure.count_ticks(2, plan.rounds),
        "large": 2 * measure.count_ticks(2, plan.rounds),
        "crossover": len(PROBLEMS) * len(plan.crossover),
    }
    return sum(ticks[part] for part in parts or PARTS)


def check_requirements(results: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Compare the results with the bounds, for two threads and the continuous cut unless stated: the
    worst of several figures is to be at least (with at_least=False, at most) what is required."""
    table = results.get("table", ())
    pixels = [row for row in table if (row["layout"], row["points"], row["span"]) == ("grid", 64 * 64, 0.05)]
    plane = [row for row in table if (row["dim"], row["points"]) == (2, 16384)]
    growth = [row for row in results.get("growth", ()) if row["points"][-1] == 65536]
    te_tnp = [row for row in results.get("models", ()) if row["score"] == "mlp"]
    mlp = [row for row in results.get("function", ()) if row["points"] == 2048]
    bounds: list[tuple[str, str, bool, float, list[float | None]]] = []
    for case, rows, required in (
        ("fused attention without a window, 64×64 pixels, 5 %", pixels, 8),
        ("the same, 16,384 points in 2-D, 5 %", [row for row in plane if row["span"] == 0.05], 10),
        ("the same, 16,384 points in 2-D, 1 %", [row for row in plane if row["span"] == 0.01], 30),
    ):
        fused = [row["faster"].get(FUSED) for row in rows]
        hard = [row["faster"][FUSED] / row["faster"][HARD] if FUSED in row["faster"] else None for row in rows]
        bounds.append((case, "× faster", True, required, fused))
        bounds.append((f"{case}, hard cut", "× faster", True, 4 / 3 * required, hard))  # by a third better
    bias, step = "the window as a bias, 64×64 pixels, 5 %", "te-tnp with an MLP score, batch 2, 256/512 points"
    function = "F(Δ) = MLP on each pair, 2,048 points in 2-D, 5 %"
    beyond = "memory beyond inputs, output and gradients, 64 k points in 2-D"
    memory = [[row["figures"].get(name, {}).get("megabytes") for name in (BIAS, NATIVE)] for row in pixels]
    bounds += [
        (bias, "× faster", True, 100, [row["faster"].get(BIAS) for row in pixels]),
        (bias, "× less memory", True, 100, [a / b if a and b else None for a, b in memory]),
        *(
            (f"growth from 1 k to 64 k points at 200 neighbours, {dim}-D", "exponent of N", False, 1.15,
             [row["exponent"] for row in growth if row["dim"] == dim])
            for dim in (1, 2, 3)
        ),
        (beyond, "MB", False, 80, [row["beyond"] for row in growth if row["dim"] == 2]),
        (step, "× time of tnp-d", False, 2.5, [row["to_reference"] for row in te_tnp]),
        (step, "× memory of tnp-d", False, 2, [row["memory_to_reference"] for row in te_tnp]),
        (function, "× faster", True, 150, [row["faster"] for row in mlp]),
        (function, "× less memory", True, 300, [row["less_memory"] for row in mlp]),
    ]  # fmt: skip
    lines = []
    for case, unit, at_least, required, values in bounds:
        worst = (min if at_least else max)((value for value in values if value is not None), default=None)
        holds = None if worst is None else worst >= required if at_least else worst <= required
        line = {"what": case, "unit": unit, "at_least": at_least, "asked": required, "measured": worst, "holds": holds}
        lines.append(line)
    return lines


def describe_parts(results: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Return all parts for span.json but the table itself, which is among its `rows`."""
    return {"asked": check_requirements(results), **{part: rows for part, rows in results.items() if part != "table"}}
