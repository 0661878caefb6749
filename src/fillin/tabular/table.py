"""Typed tables: columns of numbers, dates and classes that keep the original text and row numbers.

Filling types a column of text leniently (`parse_text`): its kind is that of most cells, and the first unreadable one is
reported with its location. Estimators are strict (`schema.Schema.infer`): all cells must be of one kind.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Int64
from numpy import ndarray

from fillin.errors import InputError, Message, UnknownName, argument, option, render
from fillin.runtime import require
from fillin.tabular.dates import DAY, DIGITS, FORMATS, SECOND, Clock, seconds_east

NUMBER, CLASS, BOOLEAN, DATE = COLUMN_KINDS = ("number", "class", "boolean", "date")
MISSING_WORDS = frozenset(["", "na", "n/a", "nan", "nat", "null", "none", "?", "-", "<na>"])
_LENIENT_MISSING_WORDS = MISSING_WORDS | {"nil", "--", ".", "#n/a", "missing"}
_MAX_UNREAD = 0.5  # share of the cells that may be unreadable in a column of a kind
_DATE_NAME = re.compile(r"date|time|day|month|datum|jahr", re.IGNORECASE)
_ZONED = r"(:\d\d(?:[.,]\d+)?)(\s*(?:Z|[+-]\d\d(?::?\d\d)?))$"


@dataclass(frozen=True)
class InvalidCell:
    """The first cell that cannot be read as the rest of its column, and the remedy."""

    row: int
    message: str | Message
    may_be_class: bool = True  # the cell is text, and could be read as a class


@dataclass(frozen=True, eq=False)
class TypedColumn:
    """One column of a table. `values` are float64 with NaN where missing; of dates, int64 in ticks of the `clock`;
    of classes, empty.

    `cells` gives the original text, to distinguish groups and to write observed values as they came.
    """

    name: str
    kind: str
    values: ndarray
    missing: Bool[ndarray, "n"]
    cells: Callable[[], Sequence[str]]
    clock: Clock | None = None
    invalid: InvalidCell | None = None
    decimal_comma: bool = False  # 3,14
    missing_words: tuple[str, ...] = ()  # words that were read as missing values
    exact: Int[ndarray, "n"] | None = None  # integers that float64 would round, such as nanoseconds since 1970
    origin: int = 0  # the offset subtracted from `values`
    categorical: bool = False  # categories of a frame: classes, whatever they look like
    unnamed_index: bool = False  # the index of a frame, without a name

    @property
    def numbers_rows(self) -> bool:
        """Whether the column only counts the rows: 1, 2, 3 …"""
        complete = self.kind == NUMBER and len(self.values) > 1 and not self.missing.any()
        return complete and self.values[0] in (0, 1) and bool((np.diff(self.values) == 1).all())

    @property
    def has_unique_integers(self) -> bool:
        """Whether the values may be names of rows: integers, each of them once."""
        complete = self.kind == NUMBER and self.invalid is None and not self.missing.any()
        return complete and bool((self.values % 1 == 0).all()) and len(np.unique(self.exact_values)) == len(self.values)

    @property
    def exact_values(self) -> ndarray:
        """Values that can be compared without rounding."""
        return self.values if self.exact is None else self.exact

    def shifted(self, origin: int | None = None) -> "TypedColumn":
        """Large integers minus the smallest (or `origin`), which keeps their differences exact."""
        if self.exact is None:
            return self if not origin else replace(self, values=self.values - origin, origin=origin)
        origin = int(self.exact.min()) if origin is None else origin
        return replace(self, values=(self.exact - origin).astype(float), origin=origin, exact=None)

    @cached_property
    def labels(self) -> ndarray:
        """The cells as class labels; None where missing."""
        pairs = zip(self.cells(), self.missing, strict=True)
        cells = [None if is_missing else str(cell).strip() for cell, is_missing in pairs]
        return np.array(cells, dtype=object)

    @cached_property
    def features(self) -> ndarray:
        """Numbers, dates as days since 1970-01-01, or class labels; NaN or None where missing."""
        if self.kind == CLASS:
            return self.labels
        return np.where(self.missing, np.nan, self.values / (DAY if self.kind == DATE else 1))

    @cached_property
    def n_distinct(self) -> int:
        return len(set(self.features[~self.missing].tolist()))

    def take(self, rows: Int[ndarray, "m"]) -> "TypedColumn":
        return replace(
            self,
            values=self.values[rows] if len(self.values) else self.values,
            missing=self.missing[rows],
            cells=lambda: np.asarray(self.cells(), dtype=object)[rows],
            exact=None if self.exact is None else self.exact[rows],
            invalid=None,
        )


def exceeds_float64(integers: ndarray) -> bool:
    """Whether these are integers, some of which float64 would round."""
    return integers.dtype.kind == "i" and len(integers) > 0 and int(np.abs(integers).max()) > 2**53


@dataclass(frozen=True)
class TypedTable:
    """The typed columns of one file or frame. `row_label(row)` locates a row in it: "line 7"."""

    name: str
    columns: dict[str, TypedColumn]
    n_rows: int
    row_label: Callable[[int], str]
    from_text: bool = False  # read from a delimited text file

    def column(self, name: str) -> TypedColumn:
        if name not in self.columns:
            raise UnknownName(f"column of {self.name}", name, self.columns)
        return self.columns[name]

    def select(self, names: Iterable[str]) -> "TypedTable":
        return replace(self, columns={name: self.column(name) for name in names})

    def take(self, rows: Int[ndarray, "m"]) -> "TypedTable":
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return replace(self, columns=columns, n_rows=len(rows), row_label=lambda row: self.row_label(int(rows[row])))

    def mask(self, cells: Mapping[str, Bool[ndarray, "n"]]) -> "TypedTable":
        """The table without the values of some cells, given as a mask for each column."""
        columns = dict(self.columns)
        for name, mask in cells.items():
            columns[name] = replace(columns[name], missing=columns[name].missing | mask)
        return replace(self, columns=columns)

    def location(self, row: int, column: str) -> str:
        return f"{self.name}, {self.row_label(int(row))}, column '{column}'"

    def error_at(self, row: int, column: str, message: str | Message, **fields: object) -> InputError:
        """An error about one cell, to be raised. `message` and `fields` are those of `FillinError`."""
        return InputError("{location}: {what}", location=self.location(row, column), what=render(message, **fields))


def check_unique(names: Sequence[Any], table: str) -> None:
    """Refuse two columns of one name."""
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{table}: two columns are called {name!r}; give each a name of its own")


def parse_number(text: str) -> float | None:
    """The number that a text spells, or None. 1_000, which Python reads, is none."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def parse_text(
    name: str, cells: Any, na: Collection[Any] = (), decimal_comma: bool = False, date_format: str | None = None
) -> TypedColumn:
    """Type a column of text, a pandas Series, by what most of its cells are: numbers, else dates, else classes. `na`
    are further words for a missing value; `decimal_comma` allows 3,14. The first unreadable cell is `invalid`."""
    text = cells.str.strip()
    declared = {str(word).strip().lower() for word in na}
    missing = np.asarray(text.str.lower().isin([*_LENIENT_MISSING_WORDS, *declared]), dtype=bool)
    observed = text[~missing]
    numbers = _parse_numbers(name, cells, observed, missing, na, decimal_comma)
    if numbers is not None:
        words = tuple(word for word in text[missing].unique() if word.lower() not in ("", *declared))
        numbers = replace(numbers, missing_words=words)
    if numbers is not None and numbers.invalid is None:
        return numbers
    dates = _parse_dates(name, cells, observed, missing, date_format)
    if dates is not None and (dates.invalid is None or numbers is None):
        return dates
    return numbers or TypedColumn(name, CLASS, np.empty(0), missing, lambda: cells)


def is_declared_missing(values: Float[ndarray, "n"], na: Collection[Any]) -> Bool[ndarray, "n"]:
    """Where a number is one of `na`, however written: −999.9 and −999.90 are the same."""
    return np.isin(values, _to_numbers(map(str, na)))


def _to_numbers(texts: Iterable[str]) -> Float[ndarray, "n"]:
    """The number that each text spells; NaN for anything else."""
    return np.array([np.nan if (number := parse_number(text)) is None else number for text in texts], dtype=float)


def _parse_numbers(
    name: str, cells, observed, missing: ndarray, na: Collection[Any], allow_comma: bool
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
    values = np.full(len(missing), np.nan)
    values[~missing] = floats
    invalid = None
    if not np.isfinite(floats).all():
        unread = np.isnan(floats) if np.isnan(floats).any() else np.isinf(floats)
        row, cell = int(np.flatnonzero(~missing)[unread.argmax()]), observed.iloc[int(unread.argmax())]
        message = "{cell!r} is not finite; correct it, or leave it empty"
        if np.isnan(floats).any():
            message = "{cell!r} is not a number; correct it, leave it empty, or declare it as missing: {na}"
        invalid = InvalidCell(row, render(message, cell=cell, na=option("na", [cell])), bool(np.isnan(floats).any()))
    declared = is_declared_missing(values, na)
    values[declared] = np.nan
    missing = missing | declared
    exact = None if missing.any() else _exact_integers(observed, floats)
    return TypedColumn(name, NUMBER, values, missing, lambda: cells, None, invalid, decimal_comma, exact=exact)


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
        if name in numbers and column.kind != NUMBER:
            columns[name] = _as_numbers(column)
        elif name not in numbers and (name in classes or column.categorical) and column.kind != CLASS:
            columns[name] = _as_classes(column, table.from_text)
    return replace(table, columns=columns)


def _as_classes(column: TypedColumn, from_text: bool) -> TypedColumn:
    """The cells as class labels. Numbers 1 and 1.0 become one class; numbers of a frame have no .0."""
    words = [str(cell).strip() for cell in column.cells()]
    if column.kind == NUMBER:
        first: dict[float, str] = {}
        values = column.exact_values.tolist()
        words = [word if from_text else word.removesuffix(".0") for word in words]
        words = [word if v != v else first.setdefault(v, word) for word, v in zip(words, values, strict=True)]
    return TypedColumn(column.name, CLASS, np.empty(0), column.missing, lambda: words)


def _as_numbers(column: TypedColumn) -> TypedColumn:
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
