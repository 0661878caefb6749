"""All parts of `fillin bench span`, and the requirements that the kernel is built to meet."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fillin import measure
from fillin.attention import BACKENDS, MLP, RBF, DotProduct, Score
from fillin.attention.dispatch import tabulate_terms
from fillin.attention.problem import AttentionProblem
from fillin.measure import BIAS, FUSED, HARD, HEADS, NATIVE, AttentionInputs, Workload, count_ticks
from fillin.runtime import Tick
from fillin_studies.bench import span
from fillin_studies.bench.models import measure_scores
from fillin_studies.bench.span import PARTS, SpanPlan

_MAX_BYTES = 2e9  # of a candidate
_BYTES_A_PAIR = 4 * 4  # bytes a number, times the copies that a back end which stores pairs holds
# (dimensions, window, score) of every kind of problem on which the crossover is measured
PROBLEMS: tuple[tuple[int, float | None, str], ...] = tuple(
    (dim, share, score)
    for dim in (1, 2)
    for share, score in ((0.05, "dot product"), (0.2, "dot product"), (None, "rbf"), (None, "mlp"))
)


def make_candidates(dim: int, share: float | None, score_name: str, points: int, seed: int = 0) -> dict[str, Workload]:
    """Return the kernel and every other back end whose pairs take no gigabytes."""
    inputs = AttentionInputs(measure.sample_locations("scattered", dim, points, seed), seed)
    score: Score = DotProduct()
    if displacement := {"rbf": RBF, "mlp": MLP}.get(score_name):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            score = score + displacement(HEADS, dim)
    span = None if share is None else measure.span_of_radius(measure.ball_radius(share, dim), dim)
    problem = AttentionProblem(inputs.q, inputs.k, inputs.v, inputs.x, inputs.x, score, span)
    learned = [score] if span is None else [score, span]
    workloads = {
        NATIVE: inputs.attend(NATIVE, span, score),
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
            seconds = measure.fastest_times(workloads, plan.rounds, turn=plan.turn)
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
        "table": span.measure_table, "growth": span.measure_growth, "models": measure_models,
        "function": span.measure_function, "large": span.measure_large, "crossover": measure_crossover,
    }  # fmt: skip
    return {part: run(plan, seed, tick) if part in (parts or PARTS) else [] for part, run in measures.items()}


def count_span_ticks(plan: SpanPlan, parts: Sequence[str] = PARTS) -> int:
    """Return how often `measure_span` ticks."""
    ticks = {
        "table": sum(count_ticks(len(span.select_candidates(case, plan)), plan.rounds) for case in plan.cases),
        "growth": 3 * count_ticks(2 * len(plan.growth), plan.rounds),
        "models": count_ticks(3, plan.models.rounds),
        "function": count_ticks(2, plan.rounds),
        "large": 2 * count_ticks(2, plan.rounds),
        "crossover": len(PROBLEMS) * len(plan.crossover),
    }
    return sum(ticks[part] for part in parts or PARTS)


def check_requirements(results: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Compare the results with the bounds, for two threads and the continuous cut unless stated: the
    worst of several figures is to be at least (with at_least=False, at most) `bound`."""
    table = results.get("table", ())
    pixels = [row for row in table if (row["layout"], row["points"], row["span"]) == ("grid", 64 * 64, 0.05)]
    plane = [row for row in table if (row["dim"], row["points"]) == (2, 16384)]
    growth = [row for row in results.get("growth", ()) if row["points"][-1] == 65536]
    te_tnp = [row for row in results.get("models", ()) if row["score"] == "mlp"]
    mlp = [row for row in results.get("function", ()) if row["points"] == 2048]
    bounds: list[tuple[str, str, bool, float, list[float | None]]] = []
    for what, rows, bound in (
        ("fused attention without a window, 64×64 pixels, 5 %", pixels, 8),
        ("the same, 16,384 points in 2-D, 5 %", [row for row in plane if row["span"] == 0.05], 10),
        ("the same, 16,384 points in 2-D, 1 %", [row for row in plane if row["span"] == 0.01], 30),
    ):
        fused = [row["faster"].get(FUSED) for row in rows]
        hard = [row["faster"][FUSED] / row["faster"][HARD] if FUSED in row["faster"] else None for row in rows]
        bounds.append((what, "× faster", True, bound, fused))
        bounds.append((f"{what}, hard cut", "× faster", True, 4 / 3 * bound, hard))  # by a third better
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
    for what, unit, at_least, bound, values in bounds:
        worst = (min if at_least else max)((value for value in values if value is not None), default=None)
        holds = None if worst is None else worst >= bound if at_least else worst <= bound
        line = {"what": what, "unit": unit, "at_least": at_least, "asked": bound, "measured": worst, "holds": holds}
        lines.append(line)
    return lines


def describe_parts(results: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Return all parts for span.json but the table itself, which is among its `rows`."""
    return {"asked": check_requirements(results), **{part: rows for part, rows in results.items() if part != "table"}}
