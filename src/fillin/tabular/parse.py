"""Parsing of cells: single values of an object column, and columns of text.

Two rules decide the kind of a column. Estimators are strict: all cells must be of one kind (`schema.Schema.infer`).
Filling is lenient: the kind is that of most cells, and the first unreadable one is reported with its location
(`parse_text`).
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64
from numpy import ndarray

from fillin.errors import InputError, Message, argument, option, render
from fillin.runtime import require
from fillin.tabular.dates import DIGITS, FORMATS, SECOND, Clock, seconds_east
from fillin.tabular.table import (
    BOOLEAN,
    CLASS,
    DATE,
    NUMBER,
    InvalidCell,
    TypedColumn,
    TypedTable,
    exceeds_float64,
)

STRICT_MISSING_WORDS = frozenset(["", "na", "n/a", "nan", "nat", "null", "none", "?", "-", "<na>"])
MISSING_WORDS = STRICT_MISSING_WORDS | {"nil", "--", ".", "#n/a", "missing"}
TRUTH = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_EPOCH = datetime(1970, 1, 1)
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d.*)?")
_MAX_UNREAD = 0.5  # share of the cells that may be unreadable in a column of a kind
_DATE_NAME = re.compile(r"date|time|day|month|datum|jahr", re.IGNORECASE)
_ZONED = r"(:\d\d(?:[.,]\d+)?)(\s*(?:Z|[+-]\d\d(?::?\d\d)?))$"


def is_missing(value: Any) -> bool:
    """Whether a cell is None, NaN, NaT, pandas' NA, or text of spaces only.

    >>> [is_missing(value) for value in (None, float("nan"), np.datetime64("nat"), " ", 0, "NA")]
    [True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return not value.strip()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.generic | Decimal) and bool(value != value)


def to_python(value: Any) -> Any:
    """Convert to Python's bool, int, float, str, date or datetime; TypeError for anything else."""
    if type(value) in (str, float, int, bool):
        return value
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item()
    if isinstance(value, np.generic):
        value = value.item()
    if hasattr(value, "to_pydatetime"):  # pandas' Timestamp
        return value.to_pydatetime(warn=False)
    if isinstance(value, bool | date):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral | Real | Decimal):
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(type(value).__name__)


def parse_number(text: str) -> float | None:
    """The number that a text spells, or None. 1_000, which Python reads, is none."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def to_number(value: Any) -> float | None:
    """The number that a Python value is or spells; NaN for a missing word, None for anything else.

    >>> [to_number(value) for value in (3, True, " 1e3 ", "n/a", "1_000", "three")]
    [3.0, 1.0, 1000.0, nan, None, None]
    """
    if isinstance(value, str):
        return np.nan if value.strip().lower() in STRICT_MISSING_WORDS else parse_number(value)
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # an integer of more than 308 digits
        return np.inf


def to_truth(value: Any) -> float | None:
    """0 or 1 for a boolean, number or word; NaN for a missing word, None for anything else.

    >>> [to_truth(value) for value in (True, 0, "Yes", "1", "?", "maybe", 2)]
    [1.0, 0.0, 1.0, 1.0, nan, None, None]
    """
    if isinstance(value, str) and value.strip().lower() in TRUTH:
        return TRUTH[value.strip().lower()]
    number = to_number(value)
    return number if number is None or number in (0, 1) or number != number else None


def to_days(value: Any) -> float | None:
    """Days since 1970-01-01 (in UTC, where a time zone is given); NaN for a missing word, None for anything else.

    >>> [to_days(value) for value in (date(1970, 1, 3), "1970-01-02 12:00", "1970-01-02T12:00+12:00", "n/a", 3)]
    [2.0, 1.5, 1.0, nan, None]
    """
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in STRICT_MISSING_WORDS:
            return np.nan
        try:
            value = datetime.fromisoformat(text) if _ISO_DATE.fullmatch(text) else None
        except ValueError:
            return None
    if isinstance(value, datetime):
        naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return (naive - _EPOCH) / timedelta(days=1)
    return float((value - _EPOCH.date()).days) if isinstance(value, date) else None


STRICT_PARSERS = {NUMBER: to_number, BOOLEAN: to_truth, DATE: to_days}


def parse_text(
    name: str, cells: Any, na: Collection[Any] = (), decimal_comma: bool = False, date_format: str | None = None
) -> TypedColumn:
    """Type a column of text, a pandas Series, by what most of its cells are: numbers, else dates, else classes.

    `na` are further words for a missing value; `decimal_comma` allows 3,14. The first unreadable cell is `invalid`.
    """
    text = cells.str.strip()
    missing = np.asarray(text.str.lower().isin([*MISSING_WORDS, *_lowered(na)]), dtype=bool)
    observed = text[~missing]
    numbers = _parse_numbers(name, cells, text, observed, missing, na, decimal_comma)
    if numbers is not None and numbers.invalid is None:
        return numbers
    dates = _parse_dates(name, cells, observed, missing, date_format)
    if dates is not None and (dates.invalid is None or numbers is None):
        return dates
    return numbers or TypedColumn(name, CLASS, np.empty(0), missing, lambda: cells)


def _lowered(na: Collection[Any]) -> list[str]:
    return [str(word).strip().lower() for word in na]


def is_declared_missing(values: Float[ndarray, "n"], na: Collection[Any]) -> Bool[ndarray, "n"]:
    """Where a number is one of `na`, however written: −999.9 and −999.90 are the same."""
    return np.isin(values, _to_numbers(map(str, na)))


def _to_numbers(texts: Iterable[str]) -> Float[ndarray, "n"]:
    """The number that each text spells; NaN for anything else."""
    return np.array([np.nan if (number := parse_number(text)) is None else number for text in texts], dtype=float)


def _parse_numbers(
    name: str, cells, text, observed, missing: ndarray, na: Collection[Any], allow_comma: bool
) -> TypedColumn | None:
    if _digit_format(name, observed) is not None:
        return None
    floats, decimal_comma = _to_numbers(observed), False
    if allow_comma and np.isnan(floats).any():
        other = _to_numbers("x" if "." in cell else cell.replace(",", ".") for cell in observed)
        decimal_comma = bool(np.isnan(other).sum() < np.isnan(floats).sum())
        floats = other if decimal_comma else floats
    if len(floats) and np.isnan(floats).mean() > _MAX_UNREAD:
        return None
    values = np.full(len(text), np.nan)
    values[~missing] = floats
    words = tuple(word for word in text[missing].unique() if word.lower() not in ("", *_lowered(na)))
    declared = is_declared_missing(values, na)
    invalid = None
    if np.isnan(floats).any():
        row = int(np.flatnonzero(~missing)[np.isnan(floats).argmax()])
        message = "{cell!r} is not a number; correct it, leave it empty, or declare it as missing: {na}"
        cell = text.iloc[row]
        invalid = InvalidCell(row, render(message, cell=cell, na=option("na", [cell])))
    elif np.isinf(floats).any():
        row = int(np.flatnonzero(~missing)[np.isinf(floats).argmax()])
        invalid = InvalidCell(row, f"{text.iloc[row]!r} is not finite; correct it, or leave it empty", False)
    values[declared] = np.nan
    missing = missing | declared
    exact = None if missing.any() else _exact_integers(observed, floats)
    return TypedColumn(
        name, NUMBER, values, missing, lambda: cells, invalid=invalid, decimal_comma=decimal_comma, exact=exact,
        missing_words=words,
    )  # fmt: skip


def _exact_integers(texts: Iterable[str], floats: Float[ndarray, "n"]) -> Int64[ndarray, "n"] | None:
    """The integers that float64 rounds, such as nanoseconds since 1970; None where there are none."""
    if np.isnan(floats).any() or not (np.abs(floats) > 2**53 - 1).any():
        return None
    try:
        integers = np.array([int(text) for text in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        return None
    return integers if exceeds_float64(integers) else None


def _parse_dates(name: str, cells, observed, missing: ndarray, date_format: str | None) -> TypedColumn | None:
    if not len(observed) or not observed.iloc[[0, len(observed) // 2, -1]].str.contains(r"\d").any():
        return None
    offsets = observed.str.extract(_ZONED)[1] if observed.str.contains(":", regex=False).any() else None
    zoned = None if offsets is None or offsets.isna().all() else offsets.fillna("")
    body = observed if zoned is None else observed.str.replace(_ZONED, r"\1", regex=True)
    form = date_format or _find_format(name, body)
    parsed = _to_datetime(body, form) if form else np.full(1, np.datetime64("nat"))
    if form is None or np.isnat(parsed).mean() > _MAX_UNREAD:
        return None
    ticks = np.zeros(len(missing), dtype=np.int64)
    ticks[~missing] = parsed.astype(np.int64)
    offset, mixed = "" if zoned is None else zoned.mode().iloc[0], False
    sample = int((~np.isnat(parsed)).argmax())
    at: int | None = None
    message, fields = "", {}
    if np.isnat(parsed).any():
        at, like = int(np.isnat(parsed).argmax()), observed.iloc[sample]
        message = (
            "{cell!r} is not written like {like!r}, as most of the column is; write all dates in one format, for "
            "example 2027-01-31 12:00"
        )
        fields = {"like": like}
    elif zoned is not None and (zoned == "").any():
        at, like = int(np.asarray(zoned == "").argmax()), observed[zoned != ""].iloc[0]
        message = "{cell!r} has no time zone, and {like!r} has one; write all dates with one, or all without"
        fields = {"like": like}
    elif zoned is not None and (zoned != offset).any():  # instants all the same, converted to UTC
        seconds = zoned.map({offset: seconds_east(offset) for offset in zoned.unique()})
        ticks[~missing] -= np.asarray(seconds, dtype=np.int64) * SECOND
        offset, mixed = offset[: len(offset) - len(offset.lstrip())] + "+00:00", True
    elif not date_format and (twin := _find_twin(form, body, parsed)) is not None:
        at, other = twin
        remedy = Message("declare it: --date-format ", "read it with pandas.to_datetime, format=")
        message = "{cell!r} may be day first or month first, and no date decides; {remedy}'{form}' or '{other}'"
        fields = {"remedy": remedy, "form": form, "other": other}
    invalid = None
    if at is not None:
        invalid = InvalidCell(int(np.flatnonzero(~missing)[at]), render(message, cell=observed.iloc[at], **fields))
    clock = Clock(form, offset, body.iloc[sample], mixed=mixed)
    return TypedColumn(name, DATE, ticks, missing, lambda: cells, clock, invalid)


def _digit_format(name: str, observed) -> str | None:
    """The format of dates such as 20240131 and 202401, where the name is that of a date and all cells can be dates."""
    if not len(observed) or not _DATE_NAME.search(name) or not observed.str.isdigit().all():
        return None
    for form, length in DIGITS.items():
        if (observed.str.len() == length).all() and not np.isnat(_to_datetime(observed, form)).any():
            return form
    return None


def _find_format(name: str, body) -> str | None:
    """The format that reads most of the cells."""
    form = _digit_format(name, body)
    if form is not None or not body.iloc[[0, len(body) // 2, -1]].str.contains(r"[-/.: ]").any():
        return form
    few = body.iloc[np.unique(np.linspace(0, len(body) - 1, 9).astype(int))]
    likely = sorted(FORMATS, key=lambda form: np.isnat(_to_datetime(few, form)).sum())[:4]
    return min(likely, key=lambda form: (np.isnat(_to_datetime(body, form)).sum(), FORMATS.index(form)))


def _find_twin(form: str, body, parsed: ndarray) -> tuple[int, str] | None:
    """A cell that is another date month first, where all cells could be read so; and that format."""
    for day_first, month_first in (("%d/%m", "%m/%d"), ("%d-%m", "%m-%d")):
        twin = form.replace(day_first, month_first)
        if twin != form:
            other = _to_datetime(body, twin)
            differs = other != parsed
            return (int(differs.argmax()), twin) if not np.isnat(other).any() and differs.any() else None
    return None


def _to_datetime(text, form: str) -> ndarray:
    return np.asarray(require("pandas").to_datetime(text, format=form, errors="coerce"), dtype="datetime64[us]")


def declare_kinds(table: TypedTable, classes: Sequence[str] = (), numbers: Sequence[str] = ()) -> TypedTable:
    """The table with columns of the declared kinds; categories of a frame are classes unless declared otherwise."""
    both = [name for name in classes if name in numbers]
    if both:
        raise InputError(
            "{table}: column '{column}' is in both {classes} and {numbers}; leave one out",
            table=table.name, column=both[0], classes=argument("classes"), numbers=argument("numbers"),
        )  # fmt: skip
    for name in (*classes, *numbers):
        table.column(name)
    columns = dict(table.columns)
    for name, column in table.columns.items():
        if name in numbers:
            columns[name] = _as_numbers(column)
        elif name in classes or column.categorical:
            columns[name] = _as_classes(column, table.from_text)
    return replace(table, columns=columns)


def _as_classes(column: TypedColumn, from_text: bool) -> TypedColumn:
    """The cells as class labels. Of numbers 1 and 1.0 are one class; numbers of a frame have no .0."""
    if column.kind == CLASS:
        return column
    words = [str(cell).strip() for cell in column.cells()]
    if column.kind == NUMBER:
        first: dict[float, str] = {}
        values = column.exact_values.tolist()
        words = [word if from_text else word.removesuffix(".0") for word in words]
        words = [word if v != v else first.setdefault(v, word) for word, v in zip(words, values, strict=True)]
    return TypedColumn(column.name, CLASS, np.empty(0), column.missing, lambda: words)


def _as_numbers(column: TypedColumn) -> TypedColumn:
    if column.kind == NUMBER:
        return column
    texts = [str(cell).strip() for cell in column.cells()]
    values = np.where(column.missing, np.nan, _to_numbers(texts))
    unread, invalid = ~np.isfinite(values) & ~column.missing, None
    if unread.any():
        row = int(unread.argmax())
        message = (
            "{cell!r} is not a number; correct it, leave it empty, declare it as missing: {na}, or leave out {numbers}"
        )
        fields = {"cell": texts[row], "na": option("na", [texts[row]]), "numbers": option("numbers", [column.name])}
        invalid = InvalidCell(row, render(message, **fields), False)
    return TypedColumn(column.name, NUMBER, values, column.missing, column.cells, invalid=invalid)
