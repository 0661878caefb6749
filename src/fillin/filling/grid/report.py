"""What the page says of a field."""

from fillin.filling.grid.plan import FieldPlan
from fillin.filling.report import Told, general, in_words


def of_field(plan: FieldPlan, model: str) -> Told:
    how = plan.how
    cells = ", ".join(f"{step:.3g} in {axis.name}" for axis, step in zip(how.axes, how.unit, strict=True))
    lines = [
        f"{' and '.join(plan.over)} say where each cell lies; as far apart counts {cells}, by how fast values change "
        "from cell to cell along each.",
        *([f"Each {' and '.join(plan.slices)} is filled from itself alone."] if plan.slices else []),
        f"Cells are filled in tiles of {' × '.join(map(str, how.tile))}, each from the {how.most} known cells nearest "
        "to its middle, or from all where there are fewer.",
        *general(model, how.level, "smooth, rough and noisy fields" if len(plan.over) > 1 else "curves"),
        *(f"{axis.name} goes round: {axis.length:g} further is the same place." for axis in how.axes if axis.length),
    ]
    bend = how.bend
    if not bend.is_affine:
        lines.append(f"{plan.variable.name or 'Values'} lie in {in_words(*_limits(bend.minimum, bend.maximum))}.")
    if plan.blocks is not None:
        halo = " × ".join(map(str, plan.blocks.halo))
        lines.append(f"It was filled in blocks that see {halo} cells around them, and a few cells of the whole field.")
    return Told(plan.variable.where, plan.line, plan.notes, lines, "field")


def _limits(low: float, high: float) -> tuple[float | None, float | None]:
    return None if low == float("-inf") else low, None if high == float("inf") else high
