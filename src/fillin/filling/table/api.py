"""`fillin.fill` of a frame without an order."""

from typing import Any

from fillin.errors import InputError, option
from fillin.filling.detect_index import index_option
from fillin.filling.diagnostics import warn_doubtful
from fillin.filling.frames import Frame
from fillin.filling.table.impute import fill_table
from fillin.filling.table.plan import plan_table
from fillin.filling.table.write import filled_frame


def fill_frame(data: Any, frame: Frame, **options: Any) -> Any:
    """The frame with what was added; as it came where nothing can be filled. `options` are those of `plan_table`."""
    plan = plan_table(frame.table, index=frame.index, **options)
    warn_doubtful(plan.notes)
    if not plan.n_to_fill:
        return data
    filled = filled_frame(frame, plan, fill_table(plan))
    if hasattr(filled, "attrs"):
        filled.attrs = {**data.attrs, "fillin": [plan.summary, *map(str, plan.notes)]}
    return filled


def refuse_series(sheet_name: str, options: dict[str, Any]) -> None:
    """Options that mean nothing where rows have no order."""
    for name, value in options.items():
        if value not in (None, [], ()):
            raise InputError(
                f"{sheet_name} is filled as a table, and " + option(name) + " does not apply to one; leave it out, or "
                "say which column orders the rows: " + index_option("COLUMN")
            )  # fmt: skip
