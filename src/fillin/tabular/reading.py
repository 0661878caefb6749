"""Frames and arrays at the edge: columns as they came, read when they are asked for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray

from fillin.errors import InputError, InputTypeError
from fillin.tabular.values import is_missing, plain, sort_of

_DAY = 86_400e6  # microseconds
_TAKES = "a table is a DataFrame (pandas, polars, Arrow) or an array of NumPy with two dimensions"


@dataclass(frozen=True)
class Raw:
    """A column as it came. `sort` is "number", "boolean" or "date" where its type says so, "class" where it was made of
    categories, and "cells" where each cell has to be looked at."""

    name: str
    sort: str
    listed: Callable[[], list[Any]] = field(repr=False)
    measured: Callable[[], ndarray] | None = field(default=None, repr=False)

    @cached_property
    def numbers(self) -> Float[ndarray, "n"]:
        """Of a column of numbers, booleans (0, 1) or dates (days since 1970-01-01); NaN where missing."""
        assert self.measured is not None
        return self.finite(np.asarray(self.measured(), dtype=np.float64))

    @cached_property
    def distinct(self) -> "Distinct":
        cells = self.listed()
        try:
            seen = {value: code for code, value in enumerate(dict.fromkeys(cells))}
        except TypeError:  # lists and the like
            row = next(row for row, cell in enumerate(cells) if type(cell).__hash__ is None)
            raise self._unread(row, cells[row]) from None
        first = np.fromiter(map(seen.__getitem__, cells), np.int64, len(cells))
        values: dict[Any, int] = {}
        codes = np.full(len(seen), -1, dtype=np.int64)
        for value, code in seen.items():
            if is_missing(value):
                continue
            try:
                own = plain(value)
            except TypeError:
                raise self._unread(int((first == code).argmax()), value) from None
            codes[code] = values.setdefault(own, len(values))
        found = Distinct(list(values), codes[first], cells)
        for infinity in (np.inf, -np.inf):
            if infinity in values:
                raise self._infinite(found.row(values[infinity]))
        return found

    def finite(self, values: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
        infinite = np.isinf(values)
        if infinite.any():
            raise self._infinite(int(infinite.argmax()))
        return values

    def _infinite(self, row: int) -> InputError:
        return self.wrong(row, "is infinite (inf); correct it, or leave it blank (NaN)")

    def wrong(self, row: int, why: str) -> InputError:
        return InputError(f"column {self.name!r}, row {row} (counted from 0) {why}")

    def _unread(self, row: int, cell: Any) -> InputError:
        kind = type(cell).__name__
        if kind.startswith("complex"):
            return self.wrong(row, "is a complex number. Complex data not supported: give both parts as columns")
        return self.wrong(row, f"is of type {kind}; write it as a number, as text (str) or as a date")


@dataclass(frozen=True, repr=False)
class Distinct:
    """The different values of a column, and which of them each cell is (−1: missing)."""

    values: list[Any]
    codes: Int64[ndarray, "n"]
    cells: list[Any]

    @cached_property
    def sorts(self) -> set[str]:
        """Of the values; of the cells, where True and 1 may be one value, which are two sorts."""
        truths = {bool, np.bool} & set(map(type, self.cells))
        return {sort for sort in self.each_sort() if sort} if truths else {sort_of(value) for value in self.values}

    def each_sort(self) -> list[str]:
        """Of each cell; "" where it is missing."""
        known = zip(self.cells, self.codes.tolist(), strict=True)
        return [sort_of(plain(cell)) if code >= 0 else "" for cell, code in known]

    @property
    def often(self) -> list[int]:
        """How many cells have each value."""
        return np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:].tolist()

    def spread(self, each: list[float]) -> Float[ndarray, "n"]:
        """What belongs to each value, cell by cell; NaN where missing."""
        return np.array([*each, np.nan])[self.codes]

    def row(self, value: int) -> int:
        """The first with that value."""
        return int((self.codes == value).argmax())


def read(data: Any) -> list[Raw]:
    """The columns of a frame or an array; it has rows, columns and a name for each."""
    columns, rows = _array(data) if isinstance(data, ndarray) else _frame(data)
    if not columns:
        raise InputError("the table has no columns; give it at least one")
    if not rows:
        raise InputError("the table has no rows: 0 sample(s), at least 1 is needed")
    return columns


def named(d: int) -> list[str]:
    """What the columns of an array are called."""
    return [f"x{j}" for j in range(d)]


def _array(data: ndarray) -> tuple[list[Raw], int]:
    if data.ndim != 2:
        made = "a scalar" if data.ndim == 0 else f"a {data.ndim}D array"
        remedy = "data.reshape(-1, 1) is one column, data.reshape(1, -1) one row"
        raise InputError(f"Expected a 2D array [rows columns], got {made} instead. Reshape your data: {remedy}")
    if isinstance(data, np.ma.MaskedArray):
        mask, data = np.ma.getmaskarray(data), np.array(data.data, dtype=object)
        data[mask] = None
    return [_of_array(name, data[:, j]) for j, name in enumerate(named(data.shape[1]))], len(data)


def _of_array(name: str, cells: ndarray) -> Raw:
    kind = cells.dtype.kind
    if kind in "iuf":
        return Raw(name, "number", cells.tolist, lambda: cells)
    if kind == "b":
        return Raw(name, "boolean", cells.tolist, lambda: cells)
    if kind == "M":
        return Raw(name, "date", lambda: cells.astype("datetime64[us]").tolist(), lambda: _days(cells))
    if kind in "OUT":
        return Raw(name, "cells", cells.tolist)
    return _unreadable(name, cells.dtype, kind == "c")


def _days(times: ndarray) -> ndarray:
    ticks = times.astype("datetime64[us]")
    return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64) / _DAY)


def _frame(data: Any) -> tuple[list[Raw], int]:
    if not hasattr(type(data), "columns") or hasattr(type(data), "collect"):  # or lazy
        raise InputTypeError(f"{_TAKES}, got {type(data).__name__}; {_remedy(data)}")
    try:
        import narwhals as nw
    except ModuleNotFoundError as error:
        raise InputError("a DataFrame needs narwhals, which is missing: pip install 'fillin[fill]'") from error
    names = [str(name) for name in (data.column_names if hasattr(type(data), "column_names") else data.columns)]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"columns with the same name: {listed(twice)}; rename or drop all but one of each")
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        raise InputTypeError(f"{_TAKES}, got {type(data).__name__}; {_remedy(data)}") from None
    return [_of_series(name, one) for name, one in zip(names, frame.iter_columns(), strict=True)], len(frame)


def _remedy(data: Any) -> str:
    if hasattr(type(data), "toarray"):
        return "data.toarray() is one"
    if hasattr(type(data), "collect"):
        return "data.collect() is one"
    if hasattr(type(data), "to_frame"):
        return "data.to_frame() is one of a single column"
    return "numpy.asarray(data, dtype=object) makes one of a list of rows"


def _of_series(name: str, series: Any) -> Raw:
    import narwhals as nw

    dtype = series.dtype

    def measured(to: Any = nw.Float64) -> ndarray:
        blank = np.asarray(series.is_null().to_numpy(), dtype=bool)
        if blank.all():
            return np.full(len(blank), np.nan)
        if to is nw.Float64:
            values = np.asarray(series.cast(to).to_numpy(), dtype=np.float64)
        else:
            values = np.asarray(series.cast(to).dt.timestamp("us").fill_null(0).to_numpy(), dtype=np.int64) / _DAY
        return np.where(blank, np.nan, values)

    if dtype.is_numeric():
        return Raw(name, "number", series.to_list, measured)
    if dtype == nw.Boolean:
        return Raw(name, "boolean", series.to_list, measured)
    if dtype in (nw.Date, nw.Datetime):
        to = nw.Datetime("us", getattr(dtype, "time_zone", None))
        return Raw(name, "date", series.to_list, lambda: measured(to))
    if dtype in (nw.Categorical, nw.Enum):
        return Raw(name, "class", series.to_list)
    if dtype in (nw.String, nw.Object) or series.is_null().all():
        return Raw(name, "cells", series.to_list)
    own = getattr(series.to_native(), "dtype", dtype)
    return _unreadable(name, own, str(own).startswith("complex"))


def _unreadable(name: str, dtype: Any, is_complex: bool) -> Raw:
    """It is an error only where the column is needed."""

    def listed() -> list[Any]:
        if is_complex:
            raise InputError(f"column {name!r}: Complex data not supported; give real and imaginary parts as columns")
        raise InputError(f"column {name!r} is of type {dtype}; make it numbers, text (astype(str)) or dates")

    return Raw(name, "cells", listed)


def listed(names: list[str], most: int = 10) -> str:
    """In an error: not all of a thousand.

    >>> listed(["a", "b", "c"], 2)
    "'a', 'b' … (3 in all)"
    """
    return ", ".join(map(repr, names[:most])) + (f" … ({len(names)} in all)" if len(names) > most else "")
