"""Source columns: columns of frames (pandas, polars, Arrow) and arrays as they came, read when they are needed.

Their cells are parsed strictly, one value at a time; text that cannot be parsed is no number, boolean or date.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray

from fillin.errors import InputError, InputTypeError
from fillin.runtime import require
from fillin.tabular.dates import DAY
from fillin.tabular.table import BOOLEAN, CLASS, DATE, MISSING_WORDS, NUMBER, TypedTable, check_unique, parse_number

TRUTH = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_EPOCH = datetime(1970, 1, 1)
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d.*)?")
_ACCEPTED = "a table is a DataFrame (pandas, polars, Arrow) or an array of NumPy with two dimensions"


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


def to_number(value: Any) -> float | None:
    """The number that a Python value is or spells; NaN for a missing word, None for anything else.

    >>> [to_number(value) for value in (3, True, " 1e3 ", "n/a", "1_000", "three")]
    [3.0, 1.0, 1000.0, nan, None, None]
    """
    if isinstance(value, str):
        return np.nan if value.strip().lower() in MISSING_WORDS else parse_number(value)
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
        if text.lower() in MISSING_WORDS:
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


@dataclass(frozen=True)
class SourceColumn:
    """A column as it came. `kind` is that of its dtype, CLASS for categories, None where each cell must be parsed."""

    name: str
    kind: str | None
    cells: Callable[[], list[Any]] = field(repr=False)
    values: Callable[[], ndarray] | None = field(default=None, repr=False)  # float64 with NaN, datetime64[us] with NaT

    @cached_property
    def numbers(self) -> Float[ndarray, "n"]:
        """Numbers, booleans as 0 and 1, dates as days since 1970-01-01; NaN where missing."""
        assert self.values is not None
        values = self.values()
        if values.dtype.kind == "M":
            values = np.where(np.isnat(values), np.nan, values.astype(np.int64) / DAY)
        return self.check_finite(np.asarray(values, dtype=np.float64))

    @cached_property
    def distinct(self) -> "DistinctValues":
        cells = self.cells()
        try:
            index = {value: code for code, value in enumerate(dict.fromkeys(cells))}
        except TypeError:  # lists and the like
            row = next(row for row, cell in enumerate(cells) if type(cell).__hash__ is None)
            raise self._type_error(row, cells[row]) from None
        raw_codes = np.fromiter(map(index.__getitem__, cells), np.int64, len(cells))
        values: dict[Any, int] = {}
        codes = np.full(len(index), -1, dtype=np.int64)
        for value, code in index.items():
            if is_missing(value):
                continue
            try:
                codes[code] = values.setdefault(to_python(value), len(values))
            except TypeError:
                raise self._type_error(int((raw_codes == code).argmax()), value) from None
        distinct = DistinctValues(list(values), codes[raw_codes], cells)
        self.check_finite(distinct.spread([value if value in (np.inf, -np.inf) else 0.0 for value in values]))
        return distinct

    def check_finite(self, values: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
        for row in np.flatnonzero(np.isinf(values)):
            raise self.error_at(int(row), "is infinite (inf); correct it, or leave it missing (NaN)")
        return values

    def error_at(self, row: int, message: str) -> InputError:
        return InputError(f"column {self.name!r}, row {row} (counted from 0) {message}")

    def _type_error(self, row: int, cell: Any) -> InputError:
        kind = type(cell).__name__
        if kind.startswith("complex"):
            return self.error_at(row, "is a complex number. Complex data not supported: give both parts as columns")
        return self.error_at(row, f"is of type {kind}; write it as a number, as text (str) or as a date")


@dataclass(frozen=True, repr=False)
class DistinctValues:
    """The distinct values of a column, and the index of each cell's value among them (−1: missing)."""

    values: list[Any]
    codes: Int64[ndarray, "n"]
    cells: list[Any]

    @cached_property
    def types(self) -> set[str]:
        """Types of the values; of the cells, where True and 1 are one value of two types."""
        if {bool, np.bool} & set(map(type, self.cells)):
            return set(self.cell_types()) - {""}
        return {_type_of(value) for value in self.values}

    def cell_types(self) -> list[str]:
        """The type of each cell; "" where missing."""
        cells = zip(self.cells, self.codes.tolist(), strict=True)
        return [_type_of(to_python(cell)) if code >= 0 else "" for cell, code in cells]

    @property
    def counts(self) -> list[int]:
        return np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:].tolist()

    def spread(self, per_value: list[float]) -> Float[ndarray, "n"]:
        """The number of each cell's value; NaN where missing."""
        return np.array([*per_value, np.nan])[self.codes]

    def first_row(self, value: int) -> int:
        return int((self.codes == value).argmax())


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int | float):
        return NUMBER
    return "text" if isinstance(value, str) else DATE


def read_columns(data: Any) -> list[SourceColumn]:
    """The columns of a frame, an array, or a typed table, which is not parsed again."""
    if isinstance(data, TypedTable):
        columns = [
            SourceColumn(column.name, column.kind, column.features.tolist, lambda column=column: column.features)
            for column in data.columns.values()
        ]
        n_rows = data.n_rows
    else:
        columns, n_rows = _read_array(data) if isinstance(data, ndarray) else _read_native(data)
    if not columns:
        raise InputError("the table has no columns; give it at least one")
    if not n_rows:
        raise InputError("the table has no rows: 0 sample(s), at least 1 is needed")
    return columns


def default_names(n_columns: int) -> list[str]:
    """Names of the columns of an array."""
    return [f"x{j}" for j in range(n_columns)]


def _read_array(data: ndarray) -> tuple[list[SourceColumn], int]:
    if data.ndim != 2:
        shape = "a scalar" if data.ndim == 0 else f"a {data.ndim}D array"
        remedy = "data.reshape(-1, 1) is one column, data.reshape(1, -1) one row"
        raise InputError(f"Expected a 2D array [rows columns], got {shape} instead. Reshape your data: {remedy}")
    if isinstance(data, np.ma.MaskedArray):
        mask, data = np.ma.getmaskarray(data), np.array(data.data, dtype=object)
        data[mask] = None
    code = data.dtype.kind
    if code not in "iufbMOUT":
        return [_unreadable(name, data.dtype) for name in default_names(data.shape[1])], len(data)
    data = data.astype("datetime64[us]") if code == "M" else data
    kind = None if code in "OUT" else {"b": BOOLEAN, "M": DATE}.get(code, NUMBER)
    pairs = zip(default_names(data.shape[1]), data.T, strict=True)
    return [SourceColumn(name, kind, cells.tolist, lambda cells=cells: cells) for name, cells in pairs], len(data)


def _read_native(data: Any) -> tuple[list[SourceColumn], int]:
    if not hasattr(type(data), "columns") or hasattr(type(data), "collect"):  # or lazy
        raise InputTypeError(f"{_ACCEPTED}, got {type(data).__name__}; {_remedy(data)}")
    names = [str(name) for name in (data.column_names if hasattr(type(data), "column_names") else data.columns)]
    check_unique(names, "the table")
    try:
        frame = require("narwhals").from_native(data, eager_only=True)
    except TypeError:
        raise InputTypeError(f"{_ACCEPTED}, got {type(data).__name__}; {_remedy(data)}") from None
    columns = zip(names, frame.iter_columns(), strict=True)
    return [from_series(name, series) for name, series in columns], len(frame)


def _remedy(data: Any) -> str:
    for method, result in (("toarray", "one"), ("collect", "one"), ("to_frame", "one of a single column")):
        if hasattr(type(data), method):
            return f"data.{method}() is {result}"
    return "numpy.asarray(data, dtype=object) makes one of a list of rows"


def from_series(name: str, series: Any) -> SourceColumn:
    """A column of a frame, narwhals' view of it."""
    nw, dtype = require("narwhals"), series.dtype

    def numbers() -> ndarray:
        missing = null_mask(series)
        if missing.all():
            return np.full(len(missing), np.nan)
        return np.where(missing, np.nan, np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64))

    def dates() -> ndarray:
        ticks = series.cast(nw.Datetime("us", getattr(dtype, "time_zone", None))).dt.timestamp("us").fill_null(0)
        moments = np.asarray(ticks.to_numpy()).astype(np.int64).astype("datetime64[us]")
        return np.where(null_mask(series), np.datetime64("nat"), moments)

    if dtype.is_numeric() or dtype == nw.Boolean:
        return SourceColumn(name, NUMBER if dtype.is_numeric() else BOOLEAN, series.to_list, numbers)
    if dtype in (nw.Date, nw.Datetime):
        return SourceColumn(name, DATE, series.to_list, dates)
    if dtype in (nw.Categorical, nw.Enum):
        return SourceColumn(name, CLASS, series.to_list)
    if dtype in (nw.String, nw.Object) or series.is_null().all():
        return SourceColumn(name, None, series.to_list)
    return _unreadable(name, getattr(series.to_native(), "dtype", dtype))


def null_mask(series: Any) -> ndarray:
    return np.asarray(series.is_null().to_numpy(), dtype=bool)


def _unreadable(name: str, dtype: Any) -> SourceColumn:
    """A column that is an error only where it is used."""

    def cells() -> list[Any]:
        if str(dtype).startswith("complex"):
            raise InputError(f"column {name!r}: Complex data not supported; give real and imaginary parts as columns")
        raise InputError(f"column {name!r} is of type {dtype}; make it numbers, text (astype(str)) or dates")

    return SourceColumn(name, None, cells)


def quote_names(names: list[str]) -> str:
    """The first ten names of a list, quoted, for an error."""
    return ", ".join(map(repr, names[:10])) + (f" … ({len(names)} in all)" if len(names) > 10 else "")
