"""Which column says where each row belongs, if any does."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from fillin.errors import Words, option
from fillin.filling.series.duplicate_index import distinct
from fillin.tabular.sheet import NUMBER, TEXT, TIME, Column, Sheet

_ID = re.compile(r"(?i:(^|[^a-z])id$)|[a-z]I[dD]$|^(Unnamed: \d+|__index_level_\d+__)?$")  # or as pandas saves an index
_AGAIN = 4  # times that a class is there, on average
_PLACES = ("time", "date", "year", "x", "t", "depth", "distance", "position", "day", "month", "hour", "lon", "lat")


@dataclass(frozen=True)
class Group:
    """Rows of one series, as they come in the table."""

    name: str
    rows: Int[ndarray, "n"]


def groups_of(sheet: Sheet, by: Sequence[str]) -> list[Group]:
    if not by:
        return [Group("", np.arange(sheet.rows))]
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*(sheet.column(name).cells() for name in by), strict=True)):
        rows.setdefault(key, []).append(row)
    return [Group(", ".join(key), np.array(own)) for key, own in rows.items()]


def ordering(
    sheet: Sheet, taken: Collection[str] = (), groups: list[Group] | None = None, ids: bool = False
) -> Column | None:
    """The column that says where each row belongs; None where the rows have no order: a table, not a series. What only
    names the rows counts where `ids` may, or where there is but one more column."""
    groups = groups_of(sheet, ()) if groups is None else groups
    free = [column for column in sheet.columns.values() if column.name not in taken]
    if not ids and any(_class_with_blanks(column) for column in free):  # which no series can fill
        free = [column for column in free if not hardly_orders(column)]
    times = [column for column in free if column.kind == TIME]
    if times:  # a date tells more than a time of day
        return min(times, key=lambda column: column.clock is not None and column.clock.hours)
    ids = ids or sum(not names_rows(column) for column in sheet.columns.values()) < 2
    complete = [column for column in _complete(free) if ids or not names_rows(column)]
    ordered = [column for column in complete if _disorder(column, groups) is None]
    best = min(ordered, key=_rank) if ordered else None
    return _gappy(free, groups, best) or best


def _class_with_blanks(column: Column) -> bool:
    """Words of which there are few, again and again, and not in every row; remarks differ, or are mostly blank."""
    known = [cell for cell, blank in zip(column.cells(), column.blank, strict=True) if not blank]
    return column.kind == TEXT and len(column.blank) > len(known) >= max(
        _AGAIN * len(set(known)), len(column.blank) / 2
    )


def hardly_orders(column: Column) -> bool:
    """A time that rows lack or share, or what numbers them, by whatever name."""
    if column.kind == TIME:
        return bool(column.blank.any()) or len(np.unique(column.places)) < len(column.places)
    return column.counts and not says_place(column)


def _complete(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if column.kind == NUMBER and not column.blank.any() and column.wrong is None]


def names_rows(column: Column) -> bool:
    """It tells rows apart and no more: an index of whole numbers that has no name, as of a frame that was filtered, or
    a column whose name says so: id, PassengerId, row_id."""
    return (column.unnamed or _ID.search(column.name) is not None) and column.labels


def _rank(column: Column) -> tuple[bool, bool]:
    """First a name that says that it is a place, then anything that does more than number the rows."""
    return not says_place(column), column.counts


def says_place(column: Column) -> bool:
    """By its name."""
    words = column.name.lower().replace("_", " ").replace("(", " ").split()
    return any(word in _PLACES for word in words)


def _gappy(free: list[Column], groups: list[Group], best: Column | None) -> Column | None:
    """A column that would order the rows but for blank cells or such as cannot be read, of which an error tells."""
    for column in free:
        known = ~np.isnan(column.values) if column.kind == NUMBER else np.zeros(1, dtype=bool)
        if known.all() or 2 * known.sum() <= len(known) or _disorder(column, groups) is not None:
            continue
        first, named = column is free[0], not _rank(column)[0]
        if (first and named and (best is None or _rank(best)[0])) or (best is None and (first or named)):
            return column
    return None


def nearly(sheet: Sheet, taken: Collection[str], groups: list[Group] | None = None) -> tuple[Column, int] | None:
    """The column that comes nearest to ordering the rows, and the row where it fails."""
    groups = groups_of(sheet, ()) if groups is None else groups
    free = [column for column in _complete(sheet.columns.values()) if column.name not in taken]
    enough = [column for column in free if 2 * distinct(column, [group.rows for group in groups]) > sheet.rows]
    broken = [(column, row) for column in enough if (row := _disorder(column, groups)) is not None]
    return min(broken, key=lambda pair: _rank(pair[0])) if broken else None


def no_order(sheet: Sheet, near: tuple[Column, int] | None, names: Column | None = None) -> str:
    """What is said of a table; of `names` that they only tell its rows apart."""
    but = "no column"
    if names is not None:
        does = "is not there in every row, or the same in some" if names.kind == TIME else "only names the rows"
        but = f"'{names.name}' {does}, and no other column"
    breaks = f" (the order of '{near[0].name}' breaks in {sheet.line(near[1])})" if near else ""
    return f"{but} has times, or numbers that only rise or only fall{breaks}"


def ordered_by(name: str) -> Words:
    return option("kind", "series") + Words(" ", ", ") + option("x", name)


def _disorder(column: Column, groups: list[Group]) -> int | None:
    """The first row whose value is not strictly between those that a monotone column may have; None if it is one."""
    for group in groups:
        rows = group.rows[~np.isnan(column.values[group.rows])]
        step = np.diff(column.places[rows])
        if not len(step):
            continue
        wrong = step <= 0 if (step > 0).sum() >= (step < 0).sum() else step >= 0
        if wrong.any():
            return int(rows[1 + wrong.argmax()])
    return None
