"""Notes on how a table was read. In Python, doubtful readings are warnings."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from fillin.errors import InputError, Message, option, render, warn
from fillin.tabular.table import CLASS, DATE, NUMBER, TypedColumn, TypedTable

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


def note_sentinels(column: TypedColumn) -> list[Note]:
    """Report a number that often encodes a missing value, such as −999, if it lies far from all others."""
    for sentinel in _SENTINELS:
        matches = column.values == sentinel
        others = column.values[~matches & ~column.missing]
        if not matches.any() or len(others) < 2:
            continue
        if min(abs(sentinel - others.min()), abs(sentinel - others.max())) > 3 * (np.ptp(others) or 1.0):
            number = int(sentinel) if sentinel.is_integer() else sentinel
            text = "{name} is {number} in {count} rows; if that encodes a missing value, pass {na}"
            fields = {"name": column.name, "number": number, "count": int(matches.sum())}
            return [Note(render(text, **fields, na=option("na", [number])), doubtful=True)]
    return []


def note_missing_words(column: TypedColumn) -> list[Note]:
    """Report words in a column that were read as missing values without being declared."""
    words, among = list(column.missing_words), " among its numbers"
    if column.kind == CLASS and not column.missing.all():
        cells, among = column.cells(), ""
        words = sorted({str(cells[row]).strip() for row in np.flatnonzero(column.missing).tolist()} - {""})
    if not words:
        return []
    listed = list_names([repr(word) for word in words])
    return [Note(f"{column.name} has {listed}{among}: read as missing", doubtful=True)]


def note_codes(columns: Collection[TypedColumn], declared: Collection[str], target: TypedColumn | None) -> list[Note]:
    """Report columns filled as numbers that may be codes of classes; doubtful for a target, whose result differs."""
    names = [column.name for column in columns if column.name not in declared and _may_be_codes(column)]
    if not names:
        return []
    text = (
        "{names} {have} few distinct values, all integers: filled as {numbers}; if these are codes of classes, pass "
        "{classes}"
    )
    has, number = ("has", "a number") if len(names) == 1 else ("have", "numbers")
    fields = {"names": list_names(names), "have": has, "numbers": number, "classes": option("classes", names[:1])}
    return [Note(render(text, **fields), doubtful=target is not None)]


def _may_be_codes(column: TypedColumn) -> bool:
    if column.kind != NUMBER:
        return False
    values, counts = np.unique(column.values[~column.missing], return_counts=True)
    few = 1 < len(values) <= _MAX_CODES and int(counts.sum()) >= _MIN_ROWS_PER_CODE * _MAX_CODES
    return few and bool((values % 1 == 0).all())


def note_formatted_numbers(columns: Collection[TypedColumn], declared: Collection[str]) -> list[Note]:
    """Report class columns whose cells are all numbers in a format that is not read: 12 %, 1,234.50, $5."""
    notes = []
    for column in columns:
        if column.kind != CLASS or column.name in declared or column.missing.all():
            continue
        words = [word for word in column.labels if word is not None]
        # plain numbers among classes are categories of a frame: they were declared there
        if all(map(_FORMATTED_NUMBER.fullmatch, words)) and not all(map(_PLAIN_NUMBER.fullmatch, words)):
            text = (
                "{name} has {word!r}, which is read as a class; if it is a number, write it as 1234.5, without %, "
                "units and thousands separators; if not, pass {classes}"
            )
            fields = {"name": column.name, "word": words[0], "classes": option("classes", [column.name])}
            notes.append(Note(render(text, **fields), doubtful=True))
    return notes


def find_number_like(table: TypedTable, skip: Collection[str]) -> InputError | None:
    """The error of the first cell of a class column that begins like a number, such as 5% or <0.5."""
    for column in table.columns.values():
        if column.kind != CLASS or column.name in skip:
            continue
        for row, cell in enumerate(column.cells()):
            if not column.missing[row] and _NUMBER_LIKE.match(cell.strip()):
                message = "{cell!r} cannot be read as a number; write it as 1234.5, without %, units and thousands "
                return table.error_at(row, column.name, message + "separators", cell=cell.strip())
    return None


def check_no_units_row(table: TypedTable) -> None:
    """Refuse a row of units below the header: words above numbers and dates, and nothing else in it."""
    columns = [column for column in table.columns.values() if column.kind in (NUMBER, DATE)]
    units = [column for column in columns if _only_first_invalid(column)]
    if not units or table.n_rows < 3 or any(not column.missing[0] for column in columns if column not in units):
        return
    words = ", ".join(repr(str(column.cells()[0]).strip()) for column in units)
    line = f"{table.name}, {table.row_label(0)}"
    raise InputError(f"{line}: {words} look like units, and all rows below are numbers; remove that line")


def _only_first_invalid(column: TypedColumn) -> bool:
    if column.invalid is None or column.invalid.row != 0 or re.search(r"\d", str(column.cells()[0])):
        return False
    unread = np.isnan(column.values) if column.kind == NUMBER else column.values == np.iinfo(np.int64).min  # NaT
    return int((unread & ~column.missing).sum()) == 1


def list_names(names: list[str]) -> str:
    """The first few, separated by commas."""
    return ", ".join(names[:_MAX_NAMES]) + (" …" if len(names) > _MAX_NAMES else "")


def warn_doubtful(notes: Iterable[Note]) -> None:
    """Warn of each doubtful note."""
    for note in notes:
        if note.doubtful:
            warn(str(note))
