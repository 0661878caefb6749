"""All that `fillin bench span` measures, and beside it what was asked of the kernel."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fillin.evaluate.span_cost import BIAS, FUSED, HARD, NATIVE
from fillin.measure import Tick, ticks
from fillin_studies.bench import crossover, large, span
from fillin_studies.bench.crossover import Crossing
from fillin_studies.bench.large import Large
from fillin_studies.bench.plan import PARTS, Plan
from fillin_studies.bench.scores import ScoreRow, measure_scores
from fillin_studies.bench.span import Function, Growth, SpanRow

_THIRD = 4 / 3  # the hard cut is to be a third better


@dataclass(frozen=True)
class Found:
    """The figures of each part; empty where it was not asked for."""

    table: list[SpanRow] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    models: list[ScoreRow] = field(default_factory=list)
    function: list[Function] = field(default_factory=list)
    large: list[Large] = field(default_factory=list)
    crossover: list[Crossing] = field(default_factory=list)


@dataclass(frozen=True)
class Asked:
    """`measured` is to be at least (or, with at_least=False, at most) `asked`; None where it was not measured."""

    what: str
    unit: str
    at_least: bool
    asked: float
    measured: float | None
    holds: bool | None


def measure_span(plan: Plan, parts: Sequence[str] = PARTS, seed: int = 0, tick: Tick = lambda: None) -> Found:
    wanted = parts or PARTS
    return Found(
        table=span.measure_table(plan, seed, tick) if "table" in wanted else [],
        growth=span.measure_growth(plan, seed, tick) if "growth" in wanted else [],
        models=measure_scores(["mlp"], plan.models, seed=seed, tick=tick) if "models" in wanted else [],
        function=[span.measure_function(plan, seed, tick)] if "function" in wanted else [],
        large=large.measure_large(plan, seed, tick) if "large" in wanted else [],
        crossover=crossover.measure_crossover(plan, seed, tick) if "crossover" in wanted else [],
    )


def total(plan: Plan, parts: Sequence[str] = PARTS) -> int:
    """How often `measure_span` ticks."""
    each = {**span.ticks_of(plan), "models": ticks(3, plan.models.rounds), "crossover": crossover.ticks_of(plan)}
    each["large"] = large.ticks_of(plan)
    return sum(each[part] for part in parts or PARTS)


def asked(found: Found) -> list[Asked]:
    """Forward + backward, 4 heads of 16, batch 1, two threads, continuous cut unless it says otherwise."""
    pixels = [row for row in found.table if (row.layout, row.points, row.span) == ("grid", 64 * 64, 0.05)]
    many = {s: [row for row in found.table if (row.dim, row.points, row.span) == (2, 16384, s)] for s in (0.01, 0.05)}
    growth = [g for g in found.growth if g.points[-1] == 65536]
    te = [row for row in found.models if row.score == "mlp"]
    mlp = [f for f in found.function if f.points == 2048]
    lines = []
    for what, rows, wanted in (
        ("fused attention without a window, 64×64 pixels, 5 %", pixels, 8),
        ("the same, 16,384 points in 2-D, 5 %", many[0.05], 10),
        ("the same, 16,384 points in 2-D, 1 %", many[0.01], 30),
    ):
        lines.append(_at_least(wanted, what, "× faster", [row.faster.get(FUSED) for row in rows]))
        hard = [row.faster[FUSED] / row.faster[HARD] if FUSED in row.faster else None for row in rows]
        lines.append(_at_least(_THIRD * wanted, f"{what}, hard cut", "× faster", hard))
    what = "the window as a bias, 64×64 pixels, 5 %"
    lines.append(_at_least(100, what, "× faster", [row.faster.get(BIAS) for row in pixels]))
    lines.append(_at_least(100, what, "× less memory", [_less(row) for row in pixels]))
    for dim in (1, 2, 3):
        what = f"growth from 1 k to 64 k points at 200 neighbours, {dim}-D"
        lines.append(_at_most(1.15, what, "exponent of N", [g.exponent for g in growth if g.dim == dim]))
    what = "memory beyond inputs, output and gradients, 64 k points in 2-D"
    lines.append(_at_most(80, what, "MB", [g.beyond for g in growth if g.dim == 2]))
    what = "te-tnp with an MLP score, batch 2, 256/512 points"
    lines.append(_at_most(2.5, what, "× time of tnp-d", [row.to_reference for row in te]))
    lines.append(_at_most(2, what, "× memory of tnp-d", [row.memory_to_reference for row in te]))
    what = "F(Δ) = MLP on each pair, 2,048 points in 2-D, 5 %"
    lines.append(_at_least(150, what, "× faster", [f.faster for f in mlp]))
    lines.append(_at_least(300, what, "× less memory", [f.less_memory for f in mlp]))
    return lines


def _at_least(wanted: float, what: str, unit: str, values: Sequence[float | None]) -> Asked:
    """Where several figures answer, the worst counts."""
    worst = min((v for v in values if v is not None), default=None)
    return Asked(what, unit, True, wanted, worst, None if worst is None else worst >= wanted)


def _at_most(wanted: float, what: str, unit: str, values: Sequence[float | None]) -> Asked:
    worst = max((v for v in values if v is not None), default=None)
    return Asked(what, unit, False, wanted, worst, None if worst is None else worst <= wanted)


def _less(row: SpanRow) -> float | None:
    """How many times the kernel's memory the bias takes."""
    if BIAS not in row.figures:
        return None
    ours, theirs = row.figures[NATIVE].megabytes, row.figures[BIAS].megabytes
    return theirs / ours if ours and theirs else None


def content(found: Found) -> dict[str, Any]:
    """Everything but the table itself, which a report has as its rows."""
    parts = {k: v for k, v in asdict(found).items() if k != "table"}
    return {"asked": [asdict(line) for line in asked(found)], **parts}
