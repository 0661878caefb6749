"""All parts of `fillin bench span`, and the requirements that the kernel is built to meet."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fillin.measure import BIAS, FUSED, HARD, NATIVE, count_ticks
from fillin.runtime import Tick
from fillin_studies.bench import crossover, span
from fillin_studies.bench.crossover import CrossoverRow
from fillin_studies.bench.models import ScoreRow, measure_scores
from fillin_studies.bench.span import PARTS, SpanPlan, SpanRow

_THIRD_BETTER = 4 / 3  # required of the hard cut


@dataclass(frozen=True)
class SpanResults:
    """Rows of each part; empty where it was not measured."""

    table: list[SpanRow] = field(default_factory=list)
    growth: list[span.GrowthRow] = field(default_factory=list)
    models: list[ScoreRow] = field(default_factory=list)
    function: list[span.FunctionRow] = field(default_factory=list)
    large: list[span.LargeRow] = field(default_factory=list)
    crossover: list[CrossoverRow] = field(default_factory=list)


@dataclass(frozen=True)
class Requirement:
    """A bound: `measured` is to be at least (with at_least=False, at most) `asked`; None where it was not measured.

    The names of the fields are the keys of span.json.
    """

    what: str
    unit: str
    at_least: bool
    asked: float
    measured: float | None
    holds: bool | None


def measure_span(plan: SpanPlan, parts: Sequence[str] = PARTS, seed: int = 0, tick: Tick = lambda: None) -> SpanResults:
    """Measure the selected parts (none: all of them)."""
    selected = parts or PARTS
    return SpanResults(
        table=span.measure_table(plan, seed, tick) if "table" in selected else [],
        growth=span.measure_growth(plan, seed, tick) if "growth" in selected else [],
        models=measure_scores(["mlp"], plan.models, seed=seed, tick=tick) if "models" in selected else [],
        function=[span.measure_function(plan, seed, tick)] if "function" in selected else [],
        large=span.measure_large(plan, seed, tick) if "large" in selected else [],
        crossover=crossover.measure_crossover(plan, seed, tick) if "crossover" in selected else [],
    )


def count_span_ticks(plan: SpanPlan, parts: Sequence[str] = PARTS) -> int:
    """Return how often `measure_span` ticks."""
    ticks = {**span.count_part_ticks(plan), "models": count_ticks(3, plan.models.rounds)}
    ticks["crossover"] = len(crossover.list_problems()) * len(plan.crossover)
    return sum(ticks[part] for part in parts or PARTS)


def check_requirements(results: SpanResults) -> list[Requirement]:
    """Compare the results with the bounds, for two threads and the continuous cut unless a line says otherwise."""
    pixels = [row for row in results.table if (row.layout, row.points, row.span) == ("grid", 64 * 64, 0.05)]
    many = {s: [row for row in results.table if (row.dim, row.points, row.span) == (2, 16384, s)] for s in (0.01, 0.05)}
    growth = [g for g in results.growth if g.points[-1] == 65536]
    te_tnp = [row for row in results.models if row.score == "mlp"]
    mlp = [f for f in results.function if f.points == 2048]
    lines = []
    for what, rows, bound in (
        ("fused attention without a window, 64×64 pixels, 5 %", pixels, 8),
        ("the same, 16,384 points in 2-D, 5 %", many[0.05], 10),
        ("the same, 16,384 points in 2-D, 1 %", many[0.01], 30),
    ):
        lines.append(_at_least(bound, what, "× faster", [row.faster.get(FUSED) for row in rows]))
        hard = [row.faster[FUSED] / row.faster[HARD] if FUSED in row.faster else None for row in rows]
        lines.append(_at_least(_THIRD_BETTER * bound, f"{what}, hard cut", "× faster", hard))
    what = "the window as a bias, 64×64 pixels, 5 %"
    lines.append(_at_least(100, what, "× faster", [row.faster.get(BIAS) for row in pixels]))
    lines.append(_at_least(100, what, "× less memory", [_memory_ratio(row) for row in pixels]))
    for dim in (1, 2, 3):
        what = f"growth from 1 k to 64 k points at 200 neighbours, {dim}-D"
        lines.append(_at_most(1.15, what, "exponent of N", [g.exponent for g in growth if g.dim == dim]))
    what = "memory beyond inputs, output and gradients, 64 k points in 2-D"
    lines.append(_at_most(80, what, "MB", [g.beyond for g in growth if g.dim == 2]))
    what = "te-tnp with an MLP score, batch 2, 256/512 points"
    lines.append(_at_most(2.5, what, "× time of tnp-d", [row.to_reference for row in te_tnp]))
    lines.append(_at_most(2, what, "× memory of tnp-d", [row.memory_to_reference for row in te_tnp]))
    what = "F(Δ) = MLP on each pair, 2,048 points in 2-D, 5 %"
    lines.append(_at_least(150, what, "× faster", [f.faster for f in mlp]))
    lines.append(_at_least(300, what, "× less memory", [f.less_memory for f in mlp]))
    return lines


def _at_least(bound: float, what: str, unit: str, values: Sequence[float | None]) -> Requirement:
    """Compare the worst of several figures."""
    worst = min((v for v in values if v is not None), default=None)
    return Requirement(what, unit, True, bound, worst, None if worst is None else worst >= bound)


def _at_most(bound: float, what: str, unit: str, values: Sequence[float | None]) -> Requirement:
    worst = max((v for v in values if v is not None), default=None)
    return Requirement(what, unit, False, bound, worst, None if worst is None else worst <= bound)


def _memory_ratio(row: SpanRow) -> float | None:
    """Return the memory of the window as a bias over that of the kernel."""
    if BIAS not in row.figures:
        return None
    kernel, bias = row.figures[NATIVE].megabytes, row.figures[BIAS].megabytes
    return bias / kernel if kernel and bias else None


def describe_parts(results: SpanResults) -> dict[str, Any]:
    """Return all parts for span.json but the table itself, which is among its `rows`."""
    parts = {name: rows for name, rows in asdict(results).items() if name != "table"}
    return {"asked": [asdict(line) for line in check_requirements(results)], **parts}
