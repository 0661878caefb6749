"""Rows that share a place: dates beside times of day are one time, a few rows may be several measurements of one place,
but where most rows share theirs something that tells them apart was lost."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from fillin.errors import InputError, option
from fillin.filling.diagnostics import Note
from fillin.tabular.dates import SECOND
from fillin.tabular.sheet import TIME, Column, Sheet

_DAY = 86400 * SECOND
Rows = list[Int[ndarray, "_"]]  # of each group


def distinct(x: Column, groups: Rows) -> int:
    """How many places there are; those of two groups are two."""
    return sum(len(np.unique(x.places[rows])) for rows in groups)


def hours_beside(sheet: Sheet, x: Column, groups: Rows, taken: Collection[str]) -> Column | None:
    """The column of times of day that tells rows of one date apart: a date is not the whole time of most of them."""
    if x.kind != TIME or x.blank.any() or x.wrong is not None or (x.values % _DAY).any():
        return None
    if distinct(x, groups) == sheet.rows:
        return None
    for column in sheet.columns.values():
        hours = column.clock is not None and column.clock.hours and column.name not in taken
        usable = hours and column is not x and not column.blank.any() and column.wrong is None
        if usable and 2 * distinct(joined(x, column), groups) > sheet.rows:
            return column
    return None


def joined(date: Column, hours: Column) -> Column:
    """The column of dates with the time of day of the other."""
    return replace(date, values=date.values + hours.values % _DAY)


def join(sheet: Sheet, x: Column, hours: Column, new: bool) -> tuple[Column, list[Note]]:
    """The two as one time, and a note that says so."""
    if new:
        raise InputError(
            f"{sheet.name}: '{x.name}' and '{hours.name}' are one time in two columns, and new places can be written "
            "to one only; join them into one column, such as 2027-01-31 12:00"
        )
    return joined(x, hours), [Note(f"{x.name} and {hours.name} are taken together, as one time")]


def check_shared(sheet: Sheet, x: Column, groups: Rows) -> list[Note]:
    """A note where a few rows share their place with others, an error where most do."""
    places = distinct(x, groups)
    if places == sheet.rows:
        return []
    sharing, again, before = 0, -1, -1
    for rows in groups:
        _, first, inverse, counts = np.unique(
            x.places[rows], return_index=True, return_inverse=True, return_counts=True
        )
        sharing += int(counts[counts > 1].sum())
        if again < 0 and (counts > 1).any():
            second = int((first[inverse] != np.arange(len(rows))).argmax())
            again, before = int(rows[second]), int(rows[first[inverse[second]]])
    if 2 * places > sheet.rows:
        said = f"{sharing:,} rows share their place with another row: taken as several measurements of one"
        return [Note(said, doubtful=True)]
    raise sheet.refuse(
        again, x.name,
        f"the same place as in {sheet.line(before)}: {sheet.rows:,} rows have only {places:,} place"
        f"{'s' * (places != 1)}. If a date and a time of day stand in two columns, join them into one; "
        "if they are several series, say what tells them apart: " + option("by", "COLUMN")
        + "; if another column orders the rows, name it with " + option("x")
        + "; of many measurements of one place keep the mean; if the rows have no order, say "
        + option("kind", "table"),
    )  # fmt: skip
