"""Frames to fill: of pandas, polars and Arrow, and Parquet files, typed through narwhals at the edge."""

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
from fillin.runtime import require
from fillin.tabular.csv import read_bytes
from fillin.tabular.dates import DAY, Clock
from fillin.tabular.parse import is_declared_missing, parse_text
from fillin.tabular.source import check_unique, from_series, null_mask
from fillin.tabular.table import CLASS, DATE, NUMBER, InvalidCell, TypedColumn, TypedTable, exceeds_float64


@dataclass(frozen=True)
class NativeFrame:
    """A frame to fill (narwhals' view of it), its typed table, and the columns that were a pandas index."""

    data: Any
    table: TypedTable
    index: list[str]
    unnamed_index: bool = False

    def restore(self, data: Any) -> Any:
        """A frame of the library that it came from, with the index that it had."""
        native = data.to_native()
        if self.index:
            native = native.set_index(self.index)
            native.index.names = [None] if self.unnamed_index else native.index.names
        return native


def read_frame(
    data: Any, name: str = "the frame", na: Collection[Any] = (), date_format: str | None = None
) -> NativeFrame:
    """Type a frame to fill. Unlike `read_columns`, an index is a column, and text is parsed leniently."""
    nw = require("narwhals")
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        raise InputTypeError(
            "fill takes a DataFrame (pandas, polars, Arrow), an array of NumPy, a Dataset or DataArray of xarray, got "
            f"{type(data).__name__}; numpy.asarray(data, dtype=float) makes an array of a list"
        ) from None
    except nw.exceptions.DuplicateError:
        check_unique(list(data.columns), name)
        raise
    index, unnamed = [], False
    if frame.implementation.is_pandas_like() and not _is_default_index(data.index):
        unnamed = data.index.nlevels == 1 and data.index.name is None
        index = ["index"] if unnamed else list(data.index.names)
        if any(level is None or level in data.columns for level in index):
            raise InputError(f"{name}: every level of the index needs a name that no column has; use reset_index()")
        frame = nw.from_native(data.reset_index(names=index), eager_only=True)
    if not all(isinstance(column, str) for column in frame.columns):
        raise InputError(f"{name}: columns must be named by text, got {list(frame.columns)!r}")
    if not len(frame):
        raise InputError(f"{name} has no rows, so nothing can be filled; give it some")
    columns = {column: _type_series(frame[column], na, date_format) for column in frame.columns}
    if unnamed:
        columns["index"] = replace(columns["index"], unnamed_index=frame.schema["index"].is_integer())
    table = TypedTable(name, columns, len(frame), lambda row: f"row {row}")
    return NativeFrame(frame, table, index, unnamed)


def _is_default_index(index: Any) -> bool:
    """Whether it is 0, 1, 2 … without a name. With another name or start it may be a location: years."""
    return type(index).__name__ == "RangeIndex" and index.name is None and (index.start, index.step) == (0, 1)


def read_parquet(path: Path, na: Collection[Any] = (), date_format: str | None = None) -> NativeFrame:
    raw = read_bytes(path)
    parquet, arrow = require("pyarrow.parquet"), require("pyarrow")
    try:
        check_unique(parquet.read_schema(arrow.BufferReader(raw)).names, path.name)
        table = parquet.read_table(arrow.BufferReader(raw))
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path.name} is not a readable Parquet file: {error}; write it again") from error
    return read_frame(table, path.name, na, date_format)


def _type_series(series: Any, na: Collection[Any], date_format: str | None) -> TypedColumn:
    """One column of a frame to fill. Columns of any other dtype, booleans among them, are classes."""
    nw = require("narwhals")
    if is_period(series):  # where it begins
        return _type_series(nw.from_native(series.to_native().dt.to_timestamp(), series_only=True), na, date_format)
    dtype, missing = series.dtype, null_mask(series)

    def words(null: ndarray = missing) -> list[str]:
        return ["" if gone else str(value) for value, gone in zip(series.to_list(), null, strict=True)]

    source = from_series(series.name, series)
    if source.kind == NUMBER and source.values is not None:
        values = source.values()
        missing = missing | np.isnan(values) | is_declared_missing(values, na)
        values[missing] = np.nan
        invalid, infinite = None, np.isinf(values)
        if infinite.any():
            row = int(infinite.argmax())
            invalid = InvalidCell(row, f"{values[row]} is not finite; correct it, or leave it missing", False)
        integers = np.asarray(series.to_numpy()) if dtype.is_integer() and not missing.any() else values
        exact = integers if exceeds_float64(integers) else None
        return TypedColumn(series.name, NUMBER, values, missing, words, invalid=invalid, exact=exact)
    if source.kind == DATE and source.values is not None:
        ticks = np.where(missing, 0, source.values().astype(np.int64))
        zone = getattr(dtype, "time_zone", None)
        sample = "2000-01-01" if (ticks % DAY == 0).all() else "2000-01-01 00:00:00"
        clock = Clock(sample=sample, zone=None if zone is None else _to_zone(zone))
        return TypedColumn(series.name, DATE, ticks, missing, words, clock)
    if dtype in (nw.String, nw.Object, nw.Categorical, nw.Enum):
        column = parse_text(series.name, require("pandas").Series(words(), dtype="str"), na, False, date_format)
        return replace(column, categorical=source.kind == CLASS)
    return TypedColumn(series.name, CLASS, np.empty(0), missing, words)


def is_period(series: Any) -> bool:
    """Whether these are periods (months, days …) of pandas, which narwhals does not know."""
    return type(getattr(series.to_native(), "dtype", None)).__name__ == "PeriodDtype"


def _to_zone(name: str) -> tzinfo:
    """The zone, for steps by the calendar; an offset without a name has no daylight saving time."""
    if re.fullmatch(r"(UTC)?[+-]\d\d:?\d\d", name):
        return datetime.strptime(name.removeprefix("UTC"), "%z").tzinfo or UTC
    return ZoneInfo(name)
