"""Results as columns and rows of a frame, in the library and the types that it came with."""

from typing import Any

import numpy as np
from numpy import ndarray

from fillin.errors import InputError
from fillin.filling.prediction import SUFFIXES, Prediction, complete_column
from fillin.filling.series.infer_roles import NewRows, SeriesRoles
from fillin.runtime import require
from fillin.tabular.dates import DAY
from fillin.tabular.readers import NativeFrame, is_period


def extend_frame(frame: NativeFrame, roles: SeriesRoles, new: NewRows, prediction: Prediction) -> Any:
    """The frame with the new rows, and the columns of the prediction."""
    nw, data = require("narwhals"), frame.data
    if len(new.x):
        data = nw.concat([_widen_x(data, roles, new), _new_rows(data, roles, new)], how="diagonal")
    data = data.with_columns(
        to_series(f"{column.name}_{suffix}", values, data)
        for column in roles.y
        for suffix, values in zip(
            SUFFIXES, complete_column(column, prediction.get(column.name), len(new.x)), strict=True
        )
    )
    data = data[new.order(frame.table.n_rows)] if len(new.x) else data
    native = frame.restore(data)
    # an index that only numbers the rows has no number for new ones
    numbered = not frame.index or (frame.unnamed_index and roles.x.name not in frame.index)
    if len(new.x) and numbered and data.implementation.is_pandas_like():
        native = native.reset_index(drop=True)
    return native


def to_series(name: str, values: ndarray, like: Any) -> Any:
    """A column of numbers, null where NaN, for a frame of the same library."""
    nw = require("narwhals")
    series = nw.new_series(name, values, nw.Float64, backend=like.implementation)
    if like.implementation.is_pandas_like() or not np.isnan(values).any():
        return series
    nulls = nw.new_series(name, [None] * len(values), nw.Float64, backend=like.implementation)
    return series.zip_with(~series.is_nan(), nulls)


def _widen_x(data: Any, roles: SeriesRoles, new: NewRows) -> Any:
    """The frame with an x column that can hold the new locations: halves among integers, hours among days."""
    nw, dtype = require("narwhals"), data.schema[roles.x.name]
    if dtype.is_integer() and (new.x % 1 != 0).any() and not roles.x.origin:
        return data.with_columns(nw.col(roles.x.name).cast(nw.Float64))
    if dtype == nw.Date and (new.x % DAY != 0).any():
        return data.with_columns(nw.col(roles.x.name).cast(nw.Datetime("us")))
    return data


def _new_rows(data: Any, roles: SeriesRoles, new: NewRows) -> Any:
    """The new rows: their location and group only."""
    nw, dtype = require("narwhals"), _widen_x(data, roles, new).schema[roles.x.name]
    clock, backend = roles.x.clock, data.implementation
    first = np.array([group.rows[0] for group in roles.groups])[new.group]
    if is_period(data[roles.x.name]):
        return _to_periods(data[roles.x.name], new.x).to_frame().with_columns(data[by][first] for by in roles.by)
    if clock is None or dtype not in (nw.Datetime, nw.Date):
        values = roles.format_x(new.x) if clock is not None else new.x
        if roles.x.origin:
            values = roles.x.origin + np.rint(new.x).astype(np.int64)
        x = nw.new_series(roles.x.name, values, backend=backend)
    else:
        x = to_dates(roles.x.name, new.x.astype("datetime64[us]"), dtype, data)
    return x.cast(dtype).to_frame().with_columns(data[by][first] for by in roles.by)


def to_dates(name: str, moments: ndarray, dtype: Any, like: Any) -> Any:
    """A column of dates of a dtype, for a frame of the same library; `moments` are UTC where it has a zone."""
    series = require("narwhals").new_series(name, moments, backend=like.implementation)
    zone = getattr(dtype, "time_zone", None)
    series = series if zone is None else series.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return series.cast(dtype)


def _to_periods(like: Any, ticks: ndarray) -> Any:
    """The periods of the column's dtype that begin at `ticks`."""
    pandas, dtype, begin = require("pandas"), like.to_native().dtype, ticks.astype("datetime64[us]")
    periods = pandas.PeriodIndex(begin, dtype=dtype)
    if (np.asarray(periods.to_timestamp(), dtype="datetime64[us]") != begin).any():
        raise InputError(f"column '{like.name}' has periods ({dtype}); new rows lie between them; choose whole steps")
    return require("narwhals").from_native(pandas.Series(periods, name=like.name), series_only=True)
