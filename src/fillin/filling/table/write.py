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
        outputs.write(outputs.data, lambda path: origin.write(path, names, _rows(origin, plan, prediction)))
    else:
        table = filled_frame(plan, prediction)
        outputs.write(outputs.data, lambda path: require("pyarrow.parquet").write_table(table, path))


def _rows(file: CsvFile, plan: TablePlan, found: Prediction) -> Iterator[str]:
    comma = any(column.decimal_comma for column in plan.table.columns.values())
    added = [added_cells(column, found[column.name], comma) for column in plan.all_fills]
    for record, *parts in zip(file.records, *added, strict=True):
        yield file.row(record, [cell for part in parts for cell in part])


def added_cells(column: TypedColumn, found: ColumnPrediction, comma: bool = False) -> list[list[str]]:
    """Cells that are added to each row for the column; observed values as they were written."""
    texts = [str(cell).strip() for cell in column.cells()]
    if isinstance(found, ClassPrediction):
        rows = [[text, "1"] for text in texts]
        for row, label, chance in zip(found.rows, found.labels, found.probability, strict=True):
            rows[row] = [str(label), format_number(float(chance), 0.0, comma)]
        return rows
    rows = [[text, "0", text, text] for text in texts]
    times = [_shown(column, part) for part in (found.mean, found.low, found.high)] if column.kind == DATE else None
    for i, row in enumerate(found.rows):
        std = float(found.std[i])
        of = lambda part: format_number(float(part[i]), std if std == std else 0.0, comma)  # noqa: B023, E731
        if times is not None:
            rows[row] = [times[0][i], of(found.std), times[1][i], times[2][i]]
        elif std != std:  # the one value that is known
            rows[row] = [texts[int((~column.missing).argmax())], "", "", ""]
        else:
            rows[row] = [of(found.mean), of(found.std), of(found.low), of(found.high)]
    return rows


def ticks(column: TypedColumn, days: ndarray) -> ndarray:
    """Days as ticks of the clock, whole days where all that is known are; a band ends with the calendar."""
    whole = not (column.values[~column.missing] % DAY).any()
    days = np.clip(np.rint(days) if whole else days, -719_162, 2_932_896)
    return np.rint(np.nan_to_num(days) * DAY / 1e6).astype(np.int64) * 1_000_000


def _shown(column: TypedColumn, days: ndarray) -> list[str]:
    assert column.clock is not None
    shown = column.clock.to_text(ticks(column, days))
    return ["" if day != day else text for day, text in zip(days, shown, strict=True)]


def filled_frame(plan: TablePlan, found: Prediction) -> Any:
    """The frame of the kind that came, with new columns."""
    frame = plan.source.tabular
    assert isinstance(frame, NativeFrame)
    data = frame.data.with_columns(
        series for column in plan.all_fills for series in _columns(frame.data, column, found[column.name])
    )
    return frame.restore(data)


def _columns(data: Any, column: TypedColumn, found: ColumnPrediction) -> Iterator[Any]:
    if isinstance(found, ClassPrediction):
        chance = np.ones(len(column.missing))
        chance[found.rows] = found.probability
        yield _labels(data, column, found)
        yield to_series(f"{column.name}_probability", chance, data)
        return
    value = column.features
    parts = {name: value.copy() for name in ("mean", "low", "high")} | {"std": np.zeros(len(value))}
    for name, part in parts.items():
        part[found.rows] = getattr(found, name)
    for ending, name in (("filled", "mean"), ("std", "std"), ("low", "low"), ("high", "high")):
        if column.kind == DATE and ending != "std":
            yield _times(data, column, f"{column.name}_{ending}", found, getattr(found, name))
        else:
            yield to_series(f"{column.name}_{ending}", parts[name], data)


def _labels(data: Any, column: TypedColumn, found: ClassPrediction) -> Any:
    """Values of the column's own type: a word is the value that is written so."""
    nw, own = require("narwhals"), data[column.name]
    values = own.to_list()
    cells = column.cells()
    native = {str(cell).strip(): v for cell, v, blank in zip(cells, values, column.missing, strict=True) if not blank}
    for row, label in zip(found.rows, found.labels, strict=True):
        values[row] = native[label]
    dtype = own.dtype if own.dtype in (nw.String, nw.Boolean) else None
    if dtype is None and all(isinstance(value, bool) for value in values):
        dtype = nw.Boolean
    return nw.new_series(f"{column.name}_filled", values, dtype, backend=data.implementation)


def _times(data: Any, column: TypedColumn, name: str, found: NumericPrediction, days: ndarray) -> Any:
    """Dates of the column's own type; text where it is text."""
    nw, own = require("narwhals"), data[column.name]
    if own.dtype not in (nw.Datetime, nw.Date):
        texts: list[str | None] = [str(cell).strip() for cell in column.cells()]
        for row, text in zip(found.rows, _shown(column, days), strict=True):
            texts[row] = text or None
        return nw.new_series(name, texts, nw.String, backend=data.implementation)
    moments = column.values.copy()
    moments[found.rows] = ticks(column, days)
    times = moments.astype("datetime64[us]")
    times[found.rows[np.isnan(days)]] = np.datetime64("nat")
    return to_dates(name, times, own.dtype, data)
