"""Tables tool: from a CSV with missing values to a filled table, with confidences and explanations."""

import hashlib
import io
import math
import threading
import warnings
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from fillin.errors import InputError
from fillin.filling.frames import added_cells
from fillin.filling.plan import Source
from fillin.filling.prediction import ClassPrediction, ColumnPrediction
from fillin.play import limits
from fillin.play.job_queue import Deadline
from fillin.play.limits import StrictRequest, describe_upload

if TYPE_CHECKING:
    from fillin.estimators import TableImputer
    from fillin.filling.table.plan import TablePlan

router = APIRouter(prefix="/api/tables", tags=["tables"])
_MEMBERS, _STEPS = 3, 60  # of the ensemble and of its training; `fillin fill` uses 8 and 500, and takes a minute
_FULL_STEPS_CELLS = 5_000  # larger tables are trained for fewer steps
_EXAMPLE_MISSING_FRACTION = 0.12
_MAX_EXPLAINING_ROWS = 20
_MAX_LINE_BYTES = 100_000


class FilledCell(BaseModel):
    """Predicted cell: `value` as text, with a 95 % prediction interval for numbers and dates. `confidence` is the
    probability of a class, or 1 − std / (std of the column) of a number; null if the column has a single value."""

    row: int
    column: int
    value: str
    low: str | None
    high: str | None
    confidence: float | None


class TableResponse(BaseModel):
    """Table as it was sent, and its predicted cells. `id` identifies the table in requests for explanations."""

    id: str
    columns: list[str]
    kinds: list[Literal["number", "class", "date"]]
    cells: list[list[str]]
    filled: list[FilledCell]
    notes: list[str]
    seconds: float


class ExplanationRequest(StrictRequest):
    """Filled cell of a table that was sent before."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    row: Annotated[int, Field(ge=0, lt=limits.MAX_TABLE_ROWS)]
    column: Annotated[int, Field(ge=0, lt=limits.MAX_TABLE_COLUMNS)]


class ExplanationResponse(BaseModel):
    """`rows`: those with the largest attention weights (mean over heads and ensemble members, among rows in which the
    cell is observed); `other_rows` is the weight of the rest. `columns`: change of the prediction if that cell of the
    row is hidden too, in standard deviations of a numeric column, or as the probability that moves between classes."""

    rows: list[tuple[int, float]]
    other_rows: float
    columns: list[float | None]
    description: str


class CachedTable(NamedTuple):
    """Filled table, with what its explanations need."""

    plan: "TablePlan"
    model: "TableImputer | None"
    predictions: dict[str, ColumnPrediction]


class TableCache:
    """The most recently used tables, in memory alone."""

    def __init__(self, size: int):
        self._size, self._lock = size, threading.Lock()
        self._tables: dict[str, CachedTable] = {}  # the least recently used first

    def put(self, name: str, table: CachedTable) -> None:
        with self._lock:
            others = [item for item in self._tables.items() if item[0] != name]
            self._tables = dict([*others, (name, table)][-self._size :])

    def get(self, name: str) -> CachedTable:
        table = self._tables.get(name)
        if table is None:
            raise InputError(f"id: the table {name} is no longer cached; send it again")
        self.put(name, table)
        return table


@router.get("/example", response_class=PlainTextResponse)
def example() -> str:
    """Return an example: Fisher's irises with missing cells."""
    from sklearn.datasets import load_iris

    iris: Any = load_iris(as_frame=True)
    frame = iris.data.rename(columns=lambda name: name.removesuffix(" (cm)").replace(" ", "_"))
    frame["species"] = [str(iris.target_names[code]) for code in iris.target]
    frame = frame.iloc[np.random.default_rng(3).permutation(len(frame))].astype(object)
    missing = np.random.default_rng(4).random(frame.shape) < _EXAMPLE_MISSING_FRACTION
    return frame.mask(missing, "").to_csv(index=False, lineterminator="\n")


@router.post("", openapi_extra=describe_upload({"maxLength": limits.Limits.upload_bytes}, "text/csv"))
async def fill(request: Request) -> TableResponse:
    """Fill the missing cells of a CSV. The table stays in memory; only the last few are kept."""
    body, state = await request.body(), request.app.state
    return await state.queues.background.run(
        lambda deadline: _fill(body, state.table_cache, deadline), request.is_disconnected
    )


@router.post("/cell")
async def explain(cell: ExplanationRequest, request: Request) -> ExplanationResponse:
    """Return the rows and columns that determine a filled cell."""
    state = request.app.state
    return await state.queues.interactive.run(lambda deadline: _explain(cell, state.table_cache.get(cell.id)))


def _fill(body: bytes, cache: TableCache, deadline: Deadline) -> TableResponse:
    from fillin.filling.table.impute import EnsembleSize, fit_imputer
    from fillin.filling.table.plan import TableOptions, TablePlan
    from fillin.runtime import progress_to

    start = perf_counter()
    max_rows, max_columns, max_cells = limits.MAX_TABLE_ROWS, limits.MAX_TABLE_COLUMNS, limits.MAX_TABLE_CELLS
    # before anything is parsed, so that a million short lines cost nothing
    lines = body.count(b"\n") + body.count(b"\r")
    if lines > 3 * max_rows + 100:
        raise InputError(f"the table has {lines:,} lines; the page fills at most {max_rows:,} rows")
    if max(map(len, io.BytesIO(body)), default=0) > _MAX_LINE_BYTES:
        raise InputError(f"the table has a line of more than {_MAX_LINE_BYTES:,} bytes; is it a CSV file?")
    source = Source(body, {})
    table = source.tabular.table
    rows, columns = table.n_rows, len(table.columns)
    if rows > max_rows or columns > max_columns or rows * columns > max_cells:
        raise InputError(
            f"the table has {rows:,} rows and {columns:,} columns; the limits are {max_rows:,} rows, {max_columns} "
            f"columns and {max_cells:,} cells; use fillin fill table.csv --as table instead"
        )
    size = EnsembleSize(_MEMBERS, round(_STEPS * min(1, _FULL_STEPS_CELLS / max(1, rows * columns))))
    with warnings.catch_warnings(action="ignore"), progress_to(deadline):
        plan = TablePlan.read(source, TableOptions(kind="table"))
        deadline()
        model = fit_imputer(plan, size) if plan.filled else None  # ticks after each step
        deadline()
        predictions = plan.run(model)
    deadline()
    table_id = hashlib.sha256(body).hexdigest()[:16]
    cache.put(table_id, CachedTable(plan, model, predictions))
    names = list(table.columns)
    filled = [cell for c in plan.all_filled for cell in _filled_cells(names.index(c.name), c, predictions[c.name])]
    texts = [[str(text).strip() for text in column.cells()] for column in table.columns.values()]
    return TableResponse(
        id=table_id, columns=names, kinds=[c.kind for c in table.columns.values()],  # type: ignore[misc]
        cells=[list(row) for row in zip(*texts, strict=True)], filled=filled,
        notes=[note.shell for note in plan.notes], seconds=round(perf_counter() - start, 2),
    )  # fmt: skip


def _filled_cells(j: int, column: Any, prediction: ColumnPrediction) -> list[FilledCell]:
    if isinstance(prediction, ClassPrediction):
        confidences = prediction.probability
    else:
        confidences = np.maximum(0.0, 1 - prediction.std / (float(np.nanstd(column.features)) or 1.0))
    cells, texts = [], added_cells(column, prediction)
    for row, confidence in zip(prediction.rows.tolist(), confidences.tolist(), strict=True):
        low, high = texts[row][2:] or (None, None)  # classes have no interval
        interval = {"low": low or None, "high": high or None}
        confidence = None if math.isnan(confidence) else round(confidence, 4)
        cells.append(FilledCell(row=row, column=j, value=texts[row][0], confidence=confidence, **interval))
    return cells


def _explain(cell: ExplanationRequest, table: CachedTable) -> ExplanationResponse:
    from fillin.attention import record_weights

    plan, model = table.plan, table.model
    names, inputs = list(plan.table.columns), [column.name for column in plan.features]
    name = names[cell.column] if cell.column < len(names) else ""
    if cell.row >= plan.table.n_rows or name not in table.predictions or cell.row not in table.predictions[name].rows:
        raise InputError(f"row {cell.row}, column {cell.column} is not a filled cell; choose one that was filled")
    if model is None or name not in inputs:
        return ExplanationResponse(
            rows=[], other_rows=0.0, columns=[None] * len(names), description="this column has a single observed value"
        )
    values = model.schema_.encode(plan.table)
    row, j = values[cell.row], inputs.index(name)
    with record_weights() as records:
        model.learner_.predict(row[None])
    weights = records[0].weights.mean((0, 1))[0].double().numpy()  # over ensemble members and heads
    weights = np.where(np.isnan(values[:, j]), 0, weights)
    weights /= max(weights.sum(), 1e-12)
    top = np.argsort(-weights)[:_MAX_EXPLAINING_ROWS]
    changes = _changes_when_hidden(model, row, j)
    return ExplanationResponse(
        rows=[(int(i), round(float(weights[i]), 5)) for i in top if weights[i] > 0],
        other_rows=round(float(max(0.0, 1 - weights[top].sum())), 5),
        columns=[changes.get(inputs.index(n)) if n in inputs else None for n in names],
        description="Rows: attention weights, averaged over heads and ensemble members. Columns: change of the "
        "prediction when that cell is hidden.",
    )


def _changes_when_hidden(model: "TableImputer", row: np.ndarray, j: int) -> dict[int, float]:
    """Change of the prediction of column j when each other observed cell of the row is hidden."""
    from fillin.predictive import GaussianMixture

    observed = [i for i in np.flatnonzero(~np.isnan(row)).tolist() if i != j]
    if not observed:
        return {}
    rows = np.repeat(row[None], len(observed) + 1, 0)
    rows[np.arange(len(observed)) + 1, observed] = np.nan
    prediction = model.learner_.predict(rows)[j]
    if isinstance(prediction, GaussianMixture):
        column_std = float(np.nanstd(model.learner_.inputs[:, j])) or 1.0
        changes = np.abs(prediction.mean[1:] - prediction.mean[0]) / column_std
    else:
        changes = 0.5 * np.abs(prediction.probabilities[1:] - prediction.probabilities[:1]).sum(1)
    return {i: round(float(change), 5) for i, change in zip(observed, changes, strict=True)}
