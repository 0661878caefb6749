"""Results as columns and rows of a frame, in the library and types of the input, and as cells of a CSV file."""

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from fillin.errors import InputError
from fillin.filling.prediction import (
    SUFFIXES,
    ClassPrediction,
    ColumnPrediction,
    ColumnPredictions,
    format_number,
    name_draws,
)
from fillin.runtime import require
from fillin.tabular.dates import DAY
from fillin.tabular.readers import CsvFile, NativeFrame, is_period
from fillin.tabular.table import DATE, TypedColumn

if TYPE_CHECKING:
    from fillin.filling.scattered.roles import ScatteredRoles
    from fillin.filling.series.infer_roles import NewRows, SeriesRoles

    LocatedRoles = SeriesRoles | ScatteredRoles


def extend_frame(
    frame: NativeFrame, roles: "LocatedRoles", new: "NewRows", prediction: ColumnPredictions, draws: int = 0
) -> Any:
    """Return the frame with the new rows, and the columns of the prediction and of its joint draws."""
    nw, data = require("narwhals"), frame.data
    if len(new.x):
        for column, values in zip(roles.locations, new.locations, strict=True):
            data = _widen_location(data, column, values)
        data = nw.concat([data, _new_rows(data, roles, new)], how="diagonal")
    added = (added_columns(data, column, prediction.get(column.name), len(new.x), draws) for column in roles.y)
    data = data.with_columns(series for columns in added for series in columns)
    data = data[new.order(frame.table.n_rows)] if len(new.x) else data
    native = frame.restore(data)
    # an index that only numbers the rows has no number for new ones
    located_by_index = any(column.name in frame.index for column in roles.locations)
    numbered = not frame.index or (frame.unnamed_index and not located_by_index)
    if len(new.x) and numbered and data.implementation.is_pandas_like():
        native = native.reset_index(drop=True)
    return native


def to_series(name: str, values: ndarray, like: Any) -> Any:
    """Return a column of numbers, null where NaN, for a frame of the same library."""
    nw = require("narwhals")
    series = nw.new_series(name, values, nw.Float64, backend=like.implementation)
    if like.implementation.is_pandas_like() or not np.isnan(values).any():
        return series
    nulls = nw.new_series(name, [None] * len(values), nw.Float64, backend=like.implementation)
    return series.zip_with(~series.is_nan(), nulls)


def _widen_location(data: Any, column: TypedColumn, values: ndarray) -> Any:
    """Return the frame with a column that can hold the new locations: halves among integers, hours among days."""
    nw, dtype = require("narwhals"), data.schema[column.name]
    if dtype.is_integer() and (values % 1 != 0).any() and not column.origin:
        return data.with_columns(nw.col(column.name).cast(nw.Float64))
    if dtype == nw.Date and (values % DAY != 0).any():
        return data.with_columns(nw.col(column.name).cast(nw.Datetime("us")))
    return data


def _new_rows(data: Any, roles: "LocatedRoles", new: "NewRows") -> Any:
    """Return the new rows: their location and the columns of their group only."""
    first = np.array([group.rows[0] for group in roles.groups])[new.group]
    series = [_new_locations(data, *pair) for pair in zip(roles.locations, new.locations, strict=True)]
    rows = series[0].to_frame()
    return rows.with_columns(*series[1:], *(data[name][first] for name in roles.group_columns))


def _new_locations(data: Any, column: TypedColumn, values: ndarray) -> Any:
    """Return new locations as a column of the type that it has in the frame."""
    nw, name, dtype = require("narwhals"), column.name, data.schema[column.name]
    if is_period(data[name]):
        pandas, dtype, begin = require("pandas"), data[name].to_native().dtype, values.astype("datetime64[us]")
        periods = pandas.PeriodIndex(begin, dtype=dtype)
        if (np.asarray(periods.to_timestamp(), dtype="datetime64[us]") != begin).any():
            raise InputError(f"column '{name}' has periods ({dtype}); new rows lie between them; choose whole steps")
        return nw.from_native(pandas.Series(periods, name=name), series_only=True)
    if column.clock is not None and dtype in (nw.Datetime, nw.Date):
        return to_dates(name, values.astype("datetime64[us]"), dtype, data).cast(dtype)
    cells = values if column.clock is None else format_locations(column, values)
    if column.origin:
        cells = column.origin + np.rint(values).astype(np.int64)
    return nw.new_series(name, cells, backend=data.implementation).cast(dtype)


def format_locations(column: TypedColumn, values: ndarray) -> list[str]:
    """Return locations as text, in the format of the file."""
    if column.clock is not None:
        return column.clock.to_text(values)
    if column.origin:
        return [f"{column.origin + Decimal(f'{value:.15g}'):f}" for value in values]
    texts = [f"{value:.15g}" for value in values]
    return [text.replace(".", ",") for text in texts] if column.decimal_comma else texts


def extended_rows(
    file: CsvFile, roles: "LocatedRoles", new: "NewRows", prediction: ColumnPredictions, draws: int = 0
) -> Iterator[str]:
    """Yield the rows of a CSV file with the added cells, and the new rows, of which all other cells are empty."""
    records, n_rows = list(file.records), roles.table.n_rows
    groups = {name: list(roles.table.column(name).cells()) for name in roles.group_columns}
    texts = [format_locations(*pair) for pair in zip(roles.locations, new.locations, strict=True)]
    for *cells, number in zip(*texts, new.group, strict=True):
        first = roles.groups[number].rows[0]
        named = {column.name: cell for column, cell in zip(roles.locations, cells, strict=True)}
        named |= {name: values[first] for name, values in groups.items()}
        records.append(file.separator.join(file.quoted(named.get(name, "")) for name in roles.table.columns))
    added = [added_cells(c, prediction.get(c.name), c.decimal_comma, len(new.x), draws) for c in roles.y]
    for row in new.order(n_rows):
        yield file.row(records[row], [cell for column in added for cell in column[row]])


def to_dates(name: str, moments: ndarray, dtype: Any, like: Any) -> Any:
    """Return a column of dates of a dtype, for a frame of the same library; `moments` are UTC where it has a zone."""
    series = require("narwhals").new_series(name, moments, backend=like.implementation)
    zone = getattr(dtype, "time_zone", None)
    series = series if zone is None else series.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return series.cast(dtype)


def added_cells(
    column: TypedColumn, prediction: ColumnPrediction | None, comma: bool = False, n_new: int = 0, draws: int = 0
) -> list[list[str]]:
    """Return the cells that are added to each row for a column, new rows last; observed values as they were written.
    Joint draws follow the prediction."""
    texts = [str(cell).strip() for cell in column.cells()]
    if isinstance(prediction, ClassPrediction):
        rows = [[text, "1"] for text in texts]
        for row, label, probability in zip(prediction.rows, prediction.labels, prediction.probability, strict=True):
            rows[row] = [str(label), format_number(float(probability), 0.0, comma)]
        return rows
    missing = [*column.missing, *[True] * n_new]
    rows = [
        [""] * (4 + draws) if missing[row] else [texts[row], "0", texts[row], texts[row], *[texts[row]] * draws]
        for row in range(len(missing))
    ]
    if prediction is None:
        return rows
    is_date, (mean, std, low, high) = column.kind == DATE, prediction.interval
    dates = [_format_dates(column, days) for days in (mean, low, high)] if is_date else []
    for i, row in enumerate(prediction.rows):
        constant = bool(np.isnan(std[i]))  # the only observed value of its column
        show = lambda part: format_number(float(part[i]), 0.0 if constant else float(std[i]), comma)  # noqa: B023, E731
        if is_date:
            rows[row] = [dates[0][i], show(std), dates[1][i], dates[2][i]]
        elif constant:
            text = texts[int((~column.missing).argmax())]
            rows[row] = [text, "", "", "", *[text] * draws]
        else:
            rows[row] = [show(part) for part in (*prediction.interval, *(prediction.samples.T if draws else ()))]
    return rows


def _to_ticks(column: TypedColumn, days: ndarray) -> ndarray:
    """Return days as ticks of the clock, whole days where all observed ones are, clipped to the calendar."""
    whole = not (column.values[~column.missing] % DAY).any()
    days = np.clip(np.rint(days) if whole else days, -719_162, 2_932_896)
    return np.rint(np.nan_to_num(days) * DAY / 1e6).astype(np.int64) * 1_000_000


def _format_dates(column: TypedColumn, days: ndarray) -> list[str]:
    assert column.clock is not None
    texts = column.clock.to_text(_to_ticks(column, days))
    return ["" if day != day else text for day, text in zip(days, texts, strict=True)]


def added_columns(
    data: Any, column: TypedColumn, prediction: ColumnPrediction | None, n_new: int = 0, draws: int = 0
) -> Iterator[Any]:
    """Yield the columns that are added for a column, the `n_new` new rows last.

    An observed value is its own interval, with standard deviation 0. All are NaN where nothing could be predicted.
    """
    if isinstance(prediction, ClassPrediction):
        probability = np.ones(len(column.missing))
        probability[prediction.rows] = prediction.probability
        yield _labels(data, column, prediction)
        yield to_series(f"{column.name}_probability", probability, data)
        return
    value = np.concatenate([column.values, np.full(n_new, np.nan)])
    parts = value, np.where(np.isnan(value), np.nan, 0.0), value.copy(), value.copy()
    for i, (suffix, part) in enumerate(zip(SUFFIXES, parts, strict=True)):
        if prediction is not None:
            part[prediction.rows] = prediction.interval[i]
        if column.kind == DATE and prediction is not None and suffix != "std":
            yield _dates(data, column, f"{column.name}_{suffix}", prediction.rows, prediction.interval[i])
        else:
            yield to_series(f"{column.name}_{suffix}", part, data)
    for i, suffix in enumerate(name_draws(draws)):
        part = value.copy()
        if prediction is not None:
            part[prediction.rows] = prediction.samples[:, i]
        yield to_series(f"{column.name}_{suffix}", part, data)


def _labels(data: Any, column: TypedColumn, prediction: ClassPrediction) -> Any:
    """Return the labels as values of the type of the column."""
    nw, source = require("narwhals"), data[column.name]
    values = source.to_list()
    cells = zip(column.cells(), values, column.missing, strict=True)
    native = {str(cell).strip(): value for cell, value, missing in cells if not missing}
    for row, label in zip(prediction.rows, prediction.labels, strict=True):
        values[row] = native[label]
    dtype = source.dtype if source.dtype in (nw.String, nw.Boolean) else None
    if dtype is None and all(isinstance(value, bool) for value in values):
        dtype = nw.Boolean
    return nw.new_series(f"{column.name}_filled", values, dtype, backend=data.implementation)


def _dates(data: Any, column: TypedColumn, name: str, rows: ndarray, days: ndarray) -> Any:
    """Return dates of the type of the column, which may be text."""
    nw, source = require("narwhals"), data[column.name]
    if source.dtype not in (nw.Datetime, nw.Date):
        texts: list[str | None] = [str(cell).strip() for cell in column.cells()]
        for row, text in zip(rows, _format_dates(column, days), strict=True):
            texts[row] = text or None
        return nw.new_series(name, texts, nw.String, backend=data.implementation)
    moments = column.values.copy()
    moments[rows] = _to_ticks(column, days)
    times = moments.astype("datetime64[us]")
    times[rows[np.isnan(days)]] = np.datetime64("nat")
    return to_dates(name, times, source.dtype, data)
