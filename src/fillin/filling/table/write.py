"""Columns that are added to a table, as text of a CSV file and as columns of a frame."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from fillin.filling.frames import to_dates, to_series
from fillin.filling.prediction import (
    ClassPrediction,
    ColumnPrediction,
    NumericPrediction,
    Outputs,
    Prediction,
    format_number,
)
from fillin.filling.table.plan import TablePlan, endings
from fillin.runtime import require
from fillin.tabular.dates import DAY
from fillin.tabular.readers import CsvFile, NativeFrame
from fillin.tabular.table import DATE, TypedColumn


def write_table(outputs: Outputs, plan: TablePlan, prediction: Prediction) -> None:
    """Write the rows as they were, with the added columns, in the format of the input."""
    origin = plan.source.tabular
    if isinstance(origin, CsvFile):
        names = [f"{column.name}_{ending}" for column in plan.all_fills for ending in endings(column)]
        outputs.write(outputs.data, lambda path: origin.write(path, names, _csv_rows(origin, plan, prediction)))
    else:
        table = filled_frame(plan, prediction)
        outputs.write(outputs.data, lambda path: require("pyarrow.parquet").write_table(table, path))


def _csv_rows(file: CsvFile, plan: TablePlan, prediction: Prediction) -> Iterator[str]:
    comma = any(column.decimal_comma for column in plan.table.columns.values())
    added = [added_cells(column, prediction[column.name], comma) for column in plan.all_fills]
    for record, *parts in zip(file.records, *added, strict=True):
        yield file.row(record, [cell for part in parts for cell in part])


def added_cells(column: TypedColumn, prediction: ColumnPrediction, comma: bool = False) -> list[list[str]]:
    """Return the cells that are added to each row for a column; observed values as they were written."""
    texts = [str(cell).strip() for cell in column.cells()]
    if isinstance(prediction, ClassPrediction):
        rows = [[text, "1"] for text in texts]
        for row, label, probability in zip(prediction.rows, prediction.labels, prediction.probability, strict=True):
            rows[row] = [str(label), format_number(float(probability), 0.0, comma)]
        return rows
    rows = [[text, "0", text, text] for text in texts]
    dates = (
        [_format_dates(column, part) for part in (prediction.mean, prediction.low, prediction.high)]
        if column.kind == DATE
        else None
    )
    for i, row in enumerate(prediction.rows):
        std = float(prediction.std[i])
        show = lambda part: format_number(float(part[i]), std if std == std else 0.0, comma)  # noqa: B023, E731
        if dates is not None:
            rows[row] = [dates[0][i], show(prediction.std), dates[1][i], dates[2][i]]
        elif std != std:  # the only observed value
            rows[row] = [texts[int((~column.missing).argmax())], "", "", ""]
        else:
            rows[row] = [show(part) for part in prediction.interval]
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


def filled_frame(plan: TablePlan, prediction: Prediction) -> Any:
    """Return a frame of the same library, with the added columns."""
    frame = plan.source.tabular
    assert isinstance(frame, NativeFrame)
    data = frame.data.with_columns(
        series for column in plan.all_fills for series in _columns(frame.data, column, prediction[column.name])
    )
    return frame.restore(data)


def _columns(data: Any, column: TypedColumn, prediction: ColumnPrediction) -> Iterator[Any]:
    if isinstance(prediction, ClassPrediction):
        probability = np.ones(len(column.missing))
        probability[prediction.rows] = prediction.probability
        yield _labels(data, column, prediction)
        yield to_series(f"{column.name}_probability", probability, data)
        return
    value = column.features
    parts = {name: value.copy() for name in ("mean", "low", "high")} | {"std": np.zeros(len(value))}
    for name, part in parts.items():
        part[prediction.rows] = getattr(prediction, name)
    for ending, name in (("filled", "mean"), ("std", "std"), ("low", "low"), ("high", "high")):
        if column.kind == DATE and ending != "std":
            yield _dates(data, column, f"{column.name}_{ending}", prediction, getattr(prediction, name))
        else:
            yield to_series(f"{column.name}_{ending}", parts[name], data)


def _labels(data: Any, column: TypedColumn, prediction: ClassPrediction) -> Any:
    """Return the labels as values of the type of the column."""
    nw, source = require("narwhals"), data[column.name]
    values = source.to_list()
    cells = column.cells()
    native = {
        str(cell).strip(): v for cell, v, missing in zip(cells, values, column.missing, strict=True) if not missing
    }
    for row, label in zip(prediction.rows, prediction.labels, strict=True):
        values[row] = native[label]
    dtype = source.dtype if source.dtype in (nw.String, nw.Boolean) else None
    if dtype is None and all(isinstance(value, bool) for value in values):
        dtype = nw.Boolean
    return nw.new_series(f"{column.name}_filled", values, dtype, backend=data.implementation)


def _dates(data: Any, column: TypedColumn, name: str, prediction: NumericPrediction, days: ndarray) -> Any:
    """Return dates of the type of the column, which may be text."""
    nw, source = require("narwhals"), data[column.name]
    if source.dtype not in (nw.Datetime, nw.Date):
        texts: list[str | None] = [str(cell).strip() for cell in column.cells()]
        for row, text in zip(prediction.rows, _format_dates(column, days), strict=True):
            texts[row] = text or None
        return nw.new_series(name, texts, nw.String, backend=data.implementation)
    moments = column.values.copy()
    moments[prediction.rows] = _to_ticks(column, days)
    times = moments.astype("datetime64[us]")
    times[prediction.rows[np.isnan(days)]] = np.datetime64("nat")
    return to_dates(name, times, source.dtype, data)
