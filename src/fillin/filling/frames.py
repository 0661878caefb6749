"""DataFrames of pandas, polars and others, and Arrow's tables of Parquet files, through narwhals at the edge."""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy import ndarray

from fillin.errors import InputError, InputTypeError
from fillin.filling.prediction import SUFFIXES, NumericPrediction, complete_column
from fillin.filling.series.infer_roles import SeriesRoles
from fillin.filling.series.new_rows import NewRows
from fillin.runtime import require
from fillin.tabular.csv import read_bytes
from fillin.tabular.dates import SECOND, Clock
from fillin.tabular.parse import is_declared_missing, parse_text
from fillin.tabular.table import CLASS, DATE, NUMBER, InvalidCell, TypedColumn, TypedTable, exceeds_float64


@dataclass(frozen=True)
class Frame:
    """A frame (narwhals' view of it), what fill sees in it, and the columns that were a pandas index."""

    data: Any
    table: TypedTable
    index: list[str]
    unnamed_index: bool = False

    def filled(self, roles: SeriesRoles, new: NewRows, filled: dict[str, NumericPrediction]) -> Any:
        """The frame of the kind that came, with new rows and columns."""
        nw, data = require("narwhals"), self.data
        if len(new.x):
            data = nw.concat([_room(data, roles, new), _added(data, roles, new)], how="diagonal")
        data = data.with_columns(
            as_series(f"{column.name}_{ending}", values, data)
            for column in roles.y
            for ending, values in zip(
                SUFFIXES, complete_column(column, filled.get(column.name), len(new.x)), strict=True
            )
        )
        data = data[new.order(self.table.n_rows)] if len(new.x) else data
        native = back(self, data)
        numbered = not self.index or (
            self.unnamed_index and roles.x.name not in self.index
        )  # new rows have no such number
        if len(new.x) and numbered and data.implementation.is_pandas_like():
            native = native.reset_index(drop=True)
        return native


def back(frame: Frame, data: Any) -> Any:
    """The kind of frame that came, with the index that it had."""
    native = data.to_native()
    if frame.index:
        native = native.set_index(frame.index)
        native.index.names = [None] if frame.unnamed_index else native.index.names
    return native


def read_frame(data: Any, name: str = "the frame", na: Collection[Any] = (), date_format: str | None = None) -> Frame:
    nw = require("narwhals")
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        raise InputTypeError(
            "fill takes a DataFrame (pandas, polars, Arrow), an array of NumPy, a Dataset or DataArray of xarray, got "
            f"{type(data).__name__}; numpy.asarray(data, dtype=float) makes an array of a list"
        ) from None
    except nw.exceptions.DuplicateError:
        _check_names(list(data.columns), name)
        raise
    index, unnamed = [], False
    if frame.implementation.is_pandas_like() and not _default(data.index):
        unnamed = data.index.nlevels == 1 and data.index.name is None
        index = ["index"] if unnamed else list(data.index.names)
        if any(level is None or level in data.columns for level in index):
            raise InputError(f"{name}: every level of the index needs a name that no column has; use reset_index()")
        frame = nw.from_native(data.reset_index(names=index), eager_only=True)
    if not all(isinstance(column, str) for column in frame.columns):
        raise InputError(f"{name}: columns must be named by text, got {list(frame.columns)!r}")
    if not len(frame):
        raise InputError(f"{name} has no rows: nothing is known, so nothing can be filled")
    columns = {column: _column(frame[column], na, date_format) for column in frame.columns}
    if unnamed:
        columns["index"] = replace(columns["index"], unnamed_index=frame.schema["index"].is_integer())
    return Frame(frame, TypedTable(name, columns, len(frame), lambda row: f"row {row}"), index, unnamed)


def _check_names(names: list[Any], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: two columns are called {name!r}; give each a name of its own")


def _default(index: Any) -> bool:
    """0, 1, 2 … without a name: pandas' own. With another name or beginning it may be a place: years."""
    return type(index).__name__ == "RangeIndex" and index.name is None and (index.start, index.step) == (0, 1)


def read_parquet(path: Path, na: Collection[Any] = (), date_format: str | None = None) -> Frame:
    raw = read_bytes(path)
    parquet, arrow = require("pyarrow.parquet"), require("pyarrow")
    try:
        names = parquet.read_schema(arrow.BufferReader(raw)).names
        _check_names(names, path.name)
        table = parquet.read_table(arrow.BufferReader(raw))
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path.name} is not a readable Parquet file: {error}; write it again") from error
    return read_frame(table, path.name, na, date_format)


def _column(series: Any, na: Collection[Any], date_format: str | None) -> TypedColumn:
    nw = require("narwhals")
    if _is_period(series):  # where it begins
        return _column(nw.from_native(series.to_native().dt.to_timestamp(), series_only=True), na, date_format)
    dtype = series.dtype
    null = blank = np.asarray(series.is_null().to_numpy(), dtype=bool)
    words = lambda: ["" if none else str(v) for v, none in zip(series.to_list(), null, strict=True)]  # noqa: E731
    if dtype.is_numeric():
        values = np.array(series.cast(nw.Float64).to_numpy(), dtype=float)
        blank = blank | np.isnan(values) | is_declared_missing(values, na)
        values[blank] = np.nan
        infinite = np.isinf(values)
        why = "not finite; correct it, or leave it blank"
        wrong = InvalidCell(int(infinite.argmax()), f"{values[infinite.argmax()]} is {why}") if infinite.any() else None
        whole = np.asarray(series.to_numpy()) if dtype.is_integer() and not blank.any() else values
        exact = whole if exceeds_float64(whole) else None
        return TypedColumn(series.name, NUMBER, values, blank, words, invalid=wrong, exact=exact)
    if dtype in (nw.Datetime, nw.Date):
        zone = getattr(dtype, "time_zone", None)
        times = series.cast(nw.Datetime("us", zone)) if dtype != nw.Date else series.cast(nw.Datetime("us"))
        ticks = np.asarray(times.dt.timestamp("us").fill_null(0).to_numpy()).astype(np.int64)
        sample = "2000-01-01" if (ticks % (86400 * SECOND) == 0).all() else "2000-01-01 00:00:00"
        clock = Clock(sample=sample, zone=None if zone is None else _zone(zone))
        return TypedColumn(series.name, DATE, ticks, blank, words, clock)
    if dtype in (nw.String, nw.Object, nw.Categorical, nw.Enum):
        read = parse_text(series.name, require("pandas").Series(words(), dtype="str"), na, False, date_format)
        return replace(read, categorical=dtype in (nw.Categorical, nw.Enum))
    return TypedColumn(series.name, CLASS, np.empty(0), blank, words)


def _is_period(series: Any) -> bool:
    """Months, days … of pandas, which narwhals does not know."""
    return type(getattr(series.to_native(), "dtype", None)).__name__ == "PeriodDtype"


def _periods(like: Any, ticks: ndarray) -> Any:
    """The periods of the column's kind that begin then."""
    pandas, kind, begin = require("pandas"), like.to_native().dtype, ticks.astype("datetime64[us]")
    periods = pandas.PeriodIndex(begin, dtype=kind)
    if (np.asarray(periods.to_timestamp(), dtype="datetime64[us]") != begin).any():
        raise InputError(f"a column of periods ({kind}) has no room for places between them; ask for whole ones")
    return require("narwhals").from_native(pandas.Series(periods, name=like.name), series_only=True)


def _zone(name: str) -> tzinfo:
    """For steps by the calendar; an offset without a name has no summer time to mind."""
    if re.fullmatch(r"(UTC)?[+-]\d\d:?\d\d", name):
        return datetime.strptime(name.removeprefix("UTC"), "%z").tzinfo or UTC
    return ZoneInfo(name)


def as_series(name: str, values: ndarray, like: Any) -> Any:
    """A column of numbers, null where NaN, for a frame of the same kind."""
    nw = require("narwhals")
    series = nw.new_series(name, values, nw.Float64, backend=like.implementation)
    if like.implementation.is_pandas_like() or not np.isnan(values).any():
        return series
    nothing = nw.new_series(name, [None] * len(values), nw.Float64, backend=like.implementation)
    return series.zip_with(~series.is_nan(), nothing)


def _room(data: Any, roles: SeriesRoles, new: NewRows) -> Any:
    """The frame with an x column that can hold the new places: halves among whole numbers, hours among days."""
    nw, dtype = require("narwhals"), data.schema[roles.x.name]
    if dtype.is_integer() and (new.x % 1 != 0).any() and not roles.x.origin:
        return data.with_columns(nw.col(roles.x.name).cast(nw.Float64))
    if dtype == nw.Date and (new.x % (86400 * SECOND) != 0).any():
        return data.with_columns(nw.col(roles.x.name).cast(nw.Datetime("us")))
    return data


def _added(data: Any, roles: SeriesRoles, new: NewRows) -> Any:
    """The new rows: their place and group, nothing else."""
    nw, dtype = require("narwhals"), _room(data, roles, new).schema[roles.x.name]
    clock, backend = roles.x.clock, data.implementation
    first = np.array([group.rows[0] for group in roles.groups])[new.group]
    if _is_period(data[roles.x.name]):
        return _periods(data[roles.x.name], new.x).to_frame().with_columns(data[by][first] for by in roles.by)
    if clock is None or dtype not in (nw.Datetime, nw.Date):
        values = roles.format_x(new.x) if clock is not None else new.x
        if roles.x.origin:
            values = roles.x.origin + np.rint(new.x).astype(np.int64)
        places = nw.new_series(roles.x.name, values, backend=backend)
    else:
        places = nw.new_series(roles.x.name, new.x.astype("datetime64[us]"), backend=backend)
        zone = getattr(dtype, "time_zone", None)
        places = places if zone is None else places.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return places.cast(dtype).to_frame().with_columns(data[by][first] for by in roles.by)
