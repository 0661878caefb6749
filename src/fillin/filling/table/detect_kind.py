"""Whether rows have an order, which makes a series, or none, which makes a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fillin.errors import InputError, Words, choose, option
from fillin.filling.detect_index import hardly_orders, names_rows, nearly, no_order, ordered_by, ordering, says_place
from fillin.filling.diagnostics import Note
from fillin.filling.series.infer_roles import KINDS
from fillin.tabular.sheet import Column, Sheet

_FEW = 0.1  # of the steps of a column that orders rows almost
_YEARS = 1500, 2500


def is_table(
    sheet: Sheet,
    x: str | None,
    y: Sequence[str],
    by: Sequence[str],
    kind: str | None,
    told: Mapping[str, Any],
    new: bool,
) -> bool:
    """As it is said, or as it looks; places, groups and `new` places are wanted of series only, and what is `told` of
    the target and of kinds of columns of tables only."""
    told = {name: value for name, value in told.items() if value}
    if kind is not None:
        choose("kind of table", kind, KINDS)
        if kind != "table":
            for name, value in told.items():
                raise InputError(option(name, value) + " is said of a table; leave out " + option("kind", kind))
        return kind == "table"
    if told:
        return True
    return x is None and not by and not new and len(sheet.columns) > 1 and ordering(sheet, y) is None


def guessed(sheet: Sheet, y: Sequence[str]) -> Note:
    """Why it was taken for a table; doubtful where a column orders the rows almost, or is called as if it did, or where
    what seems to name them may be years."""
    near = nearly(sheet, y)
    near = near if near is not None and (says_place(near[0]) or _almost(near[0])) else None
    named = (column for column in sheet.columns.values() if names_rows(column) and _steps(column) == 0)
    names = next(named, None) or next((column for column in sheet.columns.values() if hardly_orders(column)), None)
    said = no_order(sheet, near, names) + ": taken as a table. If a column orders the rows, say which: "
    words: Words = said + ordered_by(near[0].name if near else names.name if names else "COLUMN")
    return Note(words, doubtful=near is not None or (names is not None and _years(names)))


def _almost(column: Column) -> bool:
    return _steps(column) <= _FEW


def _steps(column: Column) -> float:
    """The share of those that go the other way than most."""
    step = np.diff(column.places)
    return float(min((step <= 0).mean(), (step >= 0).mean())) if len(step) else 0.0


def _years(column: Column) -> bool:
    """An index without a name, of which a frame that was filtered would rarely have kept just these."""
    return column.unnamed and bool(((column.values >= _YEARS[0]) & (column.values < _YEARS[1])).all())
