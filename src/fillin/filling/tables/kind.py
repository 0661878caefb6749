"""Whether rows have an order, which makes a series, or none, which makes a table."""

from collections.abc import Sequence

import numpy as np

from fillin.errors import InputError, Words, choose, option
from fillin.filling.notes import Note
from fillin.filling.sheet import Column, Sheet
from fillin.filling.understand import KINDS, nearly, no_order, ordered_by, ordering, says_place

_FEW = 0.1  # of the steps of a column that orders rows almost


def is_table(
    sheet: Sheet, x: str | None, y: Sequence[str], by: Sequence[str], kind: str | None, target: str | None, new: bool
) -> bool:
    """As it is said, or as it looks; places, groups and `new` places are wanted of series only."""
    if kind is not None:
        choose("kind of table", kind, KINDS)
        if kind != "table" and target is not None:
            raise InputError(option("target", target) + " is a column of a table; leave out " + option("kind", kind))
        return kind == "table"
    if target is not None:
        return True
    return x is None and not by and not new and len(sheet.columns) > 1 and ordering(sheet, y) is None


def guessed(sheet: Sheet, y: Sequence[str]) -> Note:
    """Why it was taken for a table; doubtful where a column orders the rows almost, or is called as if it did."""
    near = nearly(sheet, y)
    near = near if near is not None and (says_place(near[0]) or _almost(near[0])) else None
    said = no_order(sheet, near) + ": taken as a table. If a column orders the rows, say which: "
    words: Words = said + ordered_by(near[0].name if near else "COLUMN")
    return Note(words, doubtful=near is not None)


def _almost(column: Column) -> bool:
    step = np.diff(column.places)
    return bool(min((step <= 0).mean(), (step >= 0).mean()) <= _FEW)
