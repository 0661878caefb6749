"""Diagnostics of a table: which column orders its rows, if any does, and notes on doubtful readings.

The index of a series is a column of dates or of monotone numbers. A table without an index has rows without order.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from fillin.errors import InputError, Message, choose, option, render, warn
from fillin.tabular.table import CLASS, DATE, NUMBER, TypedColumn, TypedTable

TABLE_KINDS = ("series", "table")
# names of row identifiers, among them those under which pandas saves an index
_ROW_ID = re.compile(r"(?i:(^|[^a-z])id$)|[a-z]I[dD]$|^(Unnamed: \d+|__index_level_\d+__)?$")
_INDEX_WORDS = frozenset(
    ["time", "date", "year", "x", "t", "depth", "distance", "position", "day", "month", "hour", "lon", "lat"]
)
_COORDINATES = (("lon", "lat"), ("longitude", "latitude"), ("easting", "northing"), ("x", "y"))
_MIN_CLASS_REPEATS = 4  # mean number of rows per class of a class column
_MAX_BACKWARD_STEPS = 0.1  # share of the steps of a column that almost orders the rows
_FIRST_YEAR, _LAST_YEAR = 1500, 2500  # integers that may be years
_SENTINELS = (-99.0, -999.0, -9999.0, -99.99, -999.99, -9999.9, 9999.0, 99999.0)
_MAX_NAMES = 3  # names that a note lists
_MAX_CODES, _MIN_ROWS_PER_CODE = 10, 2
_FORMATTED_NUMBER = re.compile(r"[-+−$€£]*\s*\d[\d.,'\s]*\s*[%€$£]?")
_NUMBER_LIKE = re.compile(r"[-+−<>~≈$€£]*\s*\d")
_PLAIN_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?")


@dataclass(frozen=True)
class Note:
    """A remark for the user. `doubtful`: another reading is as likely, and gives other numbers."""

    words: str | Message
    doubtful: bool = False

    @property
    def shell(self) -> str:
        return render(self.words).shell

    def __str__(self) -> str:
        return str(self.words)


def make_note(text: str, doubtful: bool = False, **fields: object) -> Note:
    """Return a note from a format string and its fields, as for errors."""
    return Note(render(text, **fields), doubtful)


def note_sentinels(column: TypedColumn) -> list[Note]:
    """Report a number that often encodes a missing value, such as −999, if it lies far from all others."""
    text = "{name} is {number} in {count} rows; if that encodes a missing value, pass {na}"
    for sentinel in _SENTINELS:
        matches = column.values == sentinel
        others = column.values[~matches & ~column.missing]
        if not matches.any() or len(others) < 2:
            continue
        if min(abs(sentinel - others.min()), abs(sentinel - others.max())) > 3 * (np.ptp(others) or 1.0):
            number, count = int(sentinel) if sentinel.is_integer() else sentinel, int(matches.sum())
            return [make_note(text, True, name=column.name, number=number, count=count, na=option("na", [number]))]
    return []


def note_missing_words(column: TypedColumn) -> list[Note]:
    """Report words in a column that were read as missing values without being declared."""
    words, among = list(column.missing_words), " among its numbers"
    if column.kind == CLASS and not column.missing.all():
        cells, among = column.cells(), ""
        words = sorted({str(cells[row]).strip() for row in np.flatnonzero(column.missing).tolist()} - {""})
    listed = list_names([repr(word) for word in words])
    return [Note(f"{column.name} has {listed}{among}: read as missing", doubtful=True)] if words else []


def note_codes(columns: Collection[TypedColumn], declared: Collection[str], target: TypedColumn | None) -> list[Note]:
    """Report columns filled as numbers that may be codes of classes; doubtful for a target, whose result differs."""
    names = []
    for column in columns:
        if column.kind == NUMBER and column.name not in declared:
            values, counts = np.unique(column.values[~column.missing], return_counts=True)
            few = 1 < len(values) <= _MAX_CODES and int(counts.sum()) >= _MIN_ROWS_PER_CODE * _MAX_CODES
            names += [column.name] if few and (values % 1 == 0).all() else []
    if not names:
        return []
    has, number = ("has", "a number") if len(names) == 1 else ("have", "numbers")
    return [make_note(
        "{names} {has} few distinct values, all integers: filled as {number}; if these are codes of classes, pass "
        "{classes}",
        target is not None, names=list_names(names), has=has, number=number, classes=option("classes", names[:1]),
    )]  # fmt: skip


def note_formatted_numbers(columns: Collection[TypedColumn], declared: Collection[str]) -> Iterator[Note]:
    """Report class columns whose cells are all numbers in a format that is not read: 12 %, 1,234.50, $5."""
    for column in columns:
        if column.kind != CLASS or column.name in declared or column.missing.all():
            continue
        words = [word for word in column.labels if word is not None]
        # plain numbers among classes are categories of a frame: they were declared there
        if all(map(_FORMATTED_NUMBER.fullmatch, words)) and not all(map(_PLAIN_NUMBER.fullmatch, words)):
            yield make_note(
                "{name} has {word!r}, which is read as a class; if it is a number, write it as 1234.5, without %, "
                "units and thousands separators; if not, pass {classes}",
                True, name=column.name, word=words[0], classes=option("classes", [column.name]),
            )  # fmt: skip


def find_number_like(table: TypedTable, skip: Collection[str]) -> InputError | None:
    """Return the error of the first cell of a class column that begins like a number, such as 5% or <0.5."""
    for column in table.columns.values():
        for row, cell in enumerate(column.cells() if column.kind == CLASS and column.name not in skip else ()):
            if not column.missing[row] and _NUMBER_LIKE.match(cell.strip()):
                message = (
                    "{cell!r} cannot be read as a number; write it as 1234.5, without %, units and thousands separators"
                )
                return table.error_at(row, column.name, message, cell=cell.strip())
    return None


def check_no_units_row(table: TypedTable) -> None:
    """Refuse a row of units below the header: words above numbers and dates, and nothing else in it."""
    columns, units = [column for column in table.columns.values() if column.kind in (NUMBER, DATE)], []
    for column in columns:
        if column.invalid is None or column.invalid.row != 0 or re.search(r"\d", str(column.cells()[0])):
            continue
        unread = np.isnan(column.values) if column.kind == NUMBER else column.values == np.iinfo(np.int64).min  # NaT
        units += [column] if int((unread & ~column.missing).sum()) == 1 else []
    if not units or table.n_rows < 3 or any(not column.missing[0] for column in columns if column not in units):
        return
    words = ", ".join(repr(str(column.cells()[0]).strip()) for column in units)
    line = f"{table.name}, {table.row_label(0)}"
    raise InputError(f"{line}: {words} look like units, and all rows below are numbers; remove that line")


def list_names(names: list[str]) -> str:
    """Return the first few, separated by commas."""
    return ", ".join(names[:_MAX_NAMES]) + (" …" if len(names) > _MAX_NAMES else "")


def warn_doubtful(notes: Iterable[Note]) -> None:
    """Warn of each doubtful note."""
    for note in notes:
        if note.doubtful:
            warn(str(note))


@dataclass(frozen=True)
class RowGroup:
    """Rows of one series, in the order of the table."""

    name: str
    rows: Int[ndarray, "n"]


def split_groups(table: TypedTable, by: Sequence[str]) -> list[RowGroup]:
    """Split the rows by the values of the columns `by`; all rows are one group without them."""
    if not by:
        return [RowGroup("", np.arange(table.n_rows))]
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*(table.column(name).cells() for name in by), strict=True)):
        rows.setdefault(key, []).append(row)
    return [RowGroup(", ".join(key), np.array(members)) for key, members in rows.items()]


def find_index(
    table: TypedTable, taken: Collection[str] = (), groups: list[RowGroup] | None = None, allow_row_ids: bool = False
) -> TypedColumn | None:
    """Find the column that orders the rows; None for a table without order.

    A row identifier counts only where `allow_row_ids`, or where there is only one other column.
    """
    groups = split_groups(table, ()) if groups is None else groups
    free = [column for column in table.columns.values() if column.name not in taken]
    if not allow_row_ids and any(map(_is_incomplete_class, free)):  # a series cannot fill classes
        free = [column for column in free if not is_weak_index(column)]
    dates = [column for column in free if column.kind == DATE]
    if dates:  # a date comes before a time of day
        return min(dates, key=lambda column: column.clock is not None and column.clock.time_of_day)
    allow_row_ids = allow_row_ids or sum(not is_row_id(column) for column in table.columns.values()) < 2
    complete = [column for column in _complete_numbers(free) if allow_row_ids or not is_row_id(column)]
    monotone = [column for column in complete if _first_disorder(column, groups) is None]
    best = min(monotone, key=_rank) if monotone else None
    return _incomplete_index(free, groups, best) or best


def _is_incomplete_class(column: TypedColumn) -> bool:
    """Test for classes, missing in some rows. Remarks, which rarely repeat or are mostly missing, are not."""
    if column.kind != CLASS or not column.missing.any():
        return False
    observed = [cell for cell, missing in zip(column.cells(), column.missing, strict=True) if not missing]
    return len(observed) >= max(_MIN_CLASS_REPEATS * len(set(observed)), len(column.missing) / 2)


def is_weak_index(column: TypedColumn) -> bool:
    """Test for dates that some rows lack or share, or mere row numbers under a name that means nothing."""
    if column.kind == DATE:
        return bool(column.missing.any()) or len(np.unique(column.exact_values)) < len(column.exact_values)
    return column.numbers_rows and not has_index_name(column)


def _complete_numbers(columns: Iterable[TypedColumn]) -> list[TypedColumn]:
    numbers = (column for column in columns if column.kind == NUMBER)
    return [column for column in numbers if not column.missing.any() and column.invalid is None]


def is_row_id(column: TypedColumn) -> bool:
    """Test for an unnamed index of integers, as of a filtered frame, or unique integers under a name such as id."""
    return (column.unnamed_index or _ROW_ID.search(column.name) is not None) and column.has_unique_integers


def _rank(column: TypedColumn) -> tuple[bool, bool]:
    """Sort key: columns with a name of an index first, mere row numbers last."""
    return not has_index_name(column), column.numbers_rows


def has_index_name(column: TypedColumn) -> bool:
    """Test whether the name is that of an index: time, depth, lon …"""
    return not _INDEX_WORDS.isdisjoint(column.name.lower().replace("_", " ").replace("(", " ").split())


def _incomplete_index(free: list[TypedColumn], groups: list[RowGroup], best: TypedColumn | None) -> TypedColumn | None:
    """Return a column that would order the rows but for missing or unreadable cells, which a later error reports."""
    for column in free:
        observed = ~np.isnan(column.values) if column.kind == NUMBER else np.zeros(1, dtype=bool)
        if observed.all() or 2 * observed.sum() <= len(observed) or _first_disorder(column, groups) is not None:
            continue
        first, named = column is free[0], has_index_name(column)
        if (first and named and (best is None or not has_index_name(best))) or (best is None and (first or named)):
            return column
    return None


def find_nearest_index(
    table: TypedTable, taken: Collection[str], groups: list[RowGroup] | None = None
) -> tuple[TypedColumn, int] | None:
    """Find the column that almost orders the rows, and the first row where it fails."""
    groups = split_groups(table, ()) if groups is None else groups
    free = [column for column in _complete_numbers(table.columns.values()) if column.name not in taken]
    varied = [column for column in free if 2 * count_locations(column, [g.rows for g in groups]) > table.n_rows]
    broken = [(column, row) for column in varied if (row := _first_disorder(column, groups)) is not None]
    return min(broken, key=lambda pair: _rank(pair[0])) if broken else None


def count_locations(x: TypedColumn, groups: list[Int[ndarray, "_"]]) -> int:
    """Return the number of different locations, counted in each group of rows."""
    return sum(len(np.unique(x.exact_values[rows])) for rows in groups)


def explain_no_index(
    table: TypedTable, nearest: tuple[TypedColumn, int] | None, row_ids: TypedColumn | None = None
) -> str:
    """State that no column orders the rows; `row_ids` is a column that only identifies them."""
    subject = "no column"
    if row_ids is not None:
        flaw = "is missing in some rows, or repeats" if row_ids.kind == DATE else "only identifies the rows"
        subject = f"'{row_ids.name}' {flaw}, and no other column"
    where = f" (the order of '{nearest[0].name}' breaks in {table.row_label(nearest[1])})" if nearest else ""
    return f"{subject} contains dates, or numbers that only rise or only fall{where}"


def index_option(name: str) -> Message:
    """Return the options that declare the index: --as series --x NAME, or kind='series', x='NAME'."""
    return render("{kind}{comma} {x}", kind=option("kind", "series"), comma=Message("", ","), x=option("x", name))


def _first_disorder(column: TypedColumn, groups: list[RowGroup]) -> int | None:
    """Return the first row that breaks strict monotonicity within its group; None for a monotone column."""
    for group in groups:
        rows = group.rows[~np.isnan(column.values[group.rows])]
        step = np.diff(column.exact_values[rows])
        if not len(step):
            continue
        broken = step <= 0 if (step > 0).sum() >= (step < 0).sum() else step >= 0
        if broken.any():
            return int(rows[1 + broken.argmax()])
    return None


def is_table(table: TypedTable, options: Mapping[str, Any]) -> bool:
    """Test whether the rows have no order: as `kind` or options of tables or series declare, else as detected."""
    kind, y = options.get("kind"), options.get("y") or ()
    if kind is not None:
        return choose("kind of table", kind, TABLE_KINDS) == "table"
    if any(options.get(name) for name in ("target", "classes", "numbers")):
        return True
    if any(options.get(name) is not None for name in ("x", "at", "every")) or options.get("by"):
        return False
    return len(table.columns) > 1 and find_index(table, (y,) if isinstance(y, str) else y) is None


def note_no_index(table: TypedTable, y: Sequence[str]) -> Note:
    """Return the reason why rows are read without order. It is doubtful where a column almost orders them or is named
    as if it did, and where the integers that seem to identify them may be years."""
    nearest = find_nearest_index(table, y)
    if nearest is not None and not has_index_name(nearest[0]) and _backward_share(nearest[0]) > _MAX_BACKWARD_STEPS:
        nearest = None
    columns = table.columns.values()
    sorted_ids = (column for column in columns if is_row_id(column) and _backward_share(column) == 0)
    row_ids = next(sorted_ids, None) or next((column for column in columns if is_weak_index(column)), None)
    may_be_years = row_ids is not None and row_ids.unnamed_index and bool(  # the index of a filtered frame rarely has
        ((row_ids.values >= _FIRST_YEAR) & (row_ids.values < _LAST_YEAR)).all()
    )  # fmt: skip
    text = "{reason}: read as a table. If a column orders the rows, name it: {index}"
    index = index_option(nearest[0].name if nearest else row_ids.name if row_ids else "COLUMN")
    reason = explain_no_index(table, nearest, row_ids)
    return make_note(text, nearest is not None or may_be_years, reason=reason, index=index)


def note_coordinates(table: TypedTable) -> list[Note]:
    """Report two columns of numbers that are named as coordinates of points."""
    numbers = {column.name.lower(): column.name for column in table.columns.values() if column.kind == NUMBER}
    for pair in _COORDINATES:
        if all(name in numbers for name in pair):
            names = [numbers[name] for name in pair]
            text = "if the rows are points at {names}, pass {x}: missing values are then filled from points around them"
            return [make_note(text, names=" and ".join(names), x=option("x", names))]
    return []


def _backward_share(column: TypedColumn) -> float:
    """Return the share of the steps against the prevailing direction."""
    step = np.diff(column.exact_values)
    return float(min((step <= 0).mean(), (step >= 0).mean())) if len(step) else 0.0
