"""Tables: a CSV with blanks in, the blanks filled out, with how surely and what each was told from."""

import hashlib
import io
import warnings
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from fillin.errors import InputError
from fillin.play import limits
from fillin.play.job_queue import Deadline
from fillin.play.schema import Asked
from fillin.play.table_cache import Memory, Remembered

if TYPE_CHECKING:
    from fillin.estimators import TableImputer
    from fillin.filling.prediction import ColumnPrediction

router = APIRouter(prefix="/api/tables", tags=["tables"])
_MEMBERS, _STEPS = 3, 60  # networks and steps: `fillin fill` takes 8 and 500, and a minute
_USUAL = 5_000  # cells; of more, fewer steps
_SHARE = 0.12  # of the cells of the example that are left blank
_TOP = 20  # rows that a cell was told from


class Cell(BaseModel):
    """A blank that was filled: `value` as it is written; of numbers and dates a band that holds 95 %. `confidence` is
    the probability of a class, of a number 1 − its deviation / that of its column; null where nothing tells it."""

    row: int
    column: int
    value: str
    low: str | None
    high: str | None
    confidence: float | None


class Filled(BaseModel):
    """The table as it came, and what belongs in its blanks. `id` names it when cells are asked about."""

    id: str
    columns: list[str]
    kinds: list[Literal["number", "class", "date"]]
    cells: list[list[str]]
    filled: list[Cell]
    notes: list[str]
    seconds: float


class CellAsked(Asked):
    """A filled cell of a table that was sent before."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    row: Annotated[int, Field(ge=0, lt=limits.ROWS)]
    column: Annotated[int, Field(ge=0, lt=limits.COLUMNS)]


class Looked(BaseModel):
    """`rows`: those with the largest attention weights, the mean of all heads and networks among rows where the cell is
    known, and `others`, the weight of all that are not listed. `columns`: by how much the answer changes when that cell
    of the row is hidden too; of a number in deviations of its column, of a class as probability that moves."""

    rows: list[tuple[int, float]]
    others: float
    columns: list[float | None]
    what: str


@router.get("/example", response_class=PlainTextResponse)
async def example() -> str:
    """A table to try: Fisher's irises, with cells left blank."""
    return _example()


@router.post(
    "",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"text/csv": {"schema": {"type": "string", "maxLength": limits.UPLOAD}}},
        }
    },
)
async def fill(request: Request) -> Filled:
    """The blanks of a CSV, filled. It is read in memory and not kept beyond the last few."""
    body, state = await request.body(), request.app.state
    return await state.lanes.slow.run(lambda deadline: _fill(body, state.tables, deadline), request.is_disconnected)


@router.post("/cell")
async def look(asked: CellAsked, request: Request) -> Looked:
    """Which rows and columns one filled cell was told from."""
    state = request.app.state
    return await state.lanes.quick.run(lambda deadline: _look(asked, state.tables.get(asked.id)))


def _example() -> str:
    from sklearn.datasets import load_iris

    iris: Any = load_iris(as_frame=True)
    frame = iris.data.rename(columns=lambda name: name.removesuffix(" (cm)").replace(" ", "_"))
    frame["species"] = [str(iris.target_names[code]) for code in iris.target]
    frame = frame.iloc[np.random.default_rng(3).permutation(len(frame))].astype(object)
    blank = np.random.default_rng(4).random(frame.shape) < _SHARE
    return frame.mask(blank, "").to_csv(index=False, lineterminator="\n")


def _fill(body: bytes, memory: Memory, deadline: Deadline) -> Filled:
    from fillin.filling.table.impute import Size, fill_table, imputer
    from fillin.filling.table.plan import plan_table
    from fillin.filling.table.write import added_cells
    from fillin.runtime import progress_to
    from fillin.tabular.csv import parse_csv

    start = perf_counter()
    _check(body)
    file = parse_csv(body, "the table")
    rows, columns = file.sheet.rows, len(file.sheet.columns)
    if rows > limits.ROWS or columns > limits.COLUMNS or rows * columns > limits.CELLS:
        raise InputError(
            f"the table has {rows:,} rows and {columns:,} columns; here at most {limits.ROWS:,}, {limits.COLUMNS} and "
            f"{limits.CELLS:,} cells. For larger ones: fillin fill table.csv --as table"
        )
    size = Size(_MEMBERS, round(_STEPS * min(1, _USUAL / max(1, rows * columns))))
    with warnings.catch_warnings(action="ignore"), progress_to(deadline):
        plan = plan_table(file.sheet, kind="table")
        deadline()
        model = imputer(plan, size) if plan.fills else None  # which ticks after each step
        deadline()
        found = fill_table(plan, model) if plan.places else {}
    deadline()
    name = hashlib.sha256(body).hexdigest()[:16]
    memory.put(name, Remembered(plan, model, found))
    names = list(file.sheet.columns)
    cells = [
        cell
        for column in plan.all_fills
        for cell in _cells(
            names.index(column.name), column, found[column.name], added_cells(column, found[column.name])
        )
    ]
    words = {"number": "number", "time": "date", "text": "class"}
    texts = [[str(text).strip() for text in column.cells()] for column in file.sheet.columns.values()]
    return Filled(
        id=name, columns=names, kinds=[words[c.kind] for c in file.sheet.columns.values()],  # type: ignore[misc]
        cells=[list(row) for row in zip(*texts, strict=True)], filled=cells,
        notes=[*file.notes, *(note.shell for note in plan.notes)], seconds=round(perf_counter() - start, 2),
    )  # fmt: skip


def _check(body: bytes) -> None:
    """Before anything is parsed: lines are counted, so that a million short ones cost nothing."""
    lines = body.count(b"\n") + body.count(b"\r")
    if lines > 3 * limits.ROWS + 100:
        raise InputError(f"the table has {lines:,} lines; at most {limits.ROWS:,} rows can be filled here")
    if max(map(len, io.BytesIO(body)), default=0) > 100_000:
        raise InputError("the table has a line of more than 100,000 bytes; is it a CSV file?")


def _cells(j: int, column: Any, found: "ColumnPrediction", texts: list[list[str]]) -> list[Cell]:
    from fillin.filling.prediction import ClassPrediction
    from fillin.filling.table.plan import numbers_of

    made = []
    if isinstance(found, ClassPrediction):
        for row, chance in zip(found.rows.tolist(), found.probability.tolist(), strict=True):
            sure = None if chance != chance else round(chance, 4)
            made.append(Cell(row=row, column=j, value=texts[row][0], low=None, high=None, confidence=sure))
        return made
    wide = float(np.nanstd(numbers_of(column))) or 1.0
    for row, std in zip(found.rows.tolist(), found.std.tolist(), strict=True):
        value, _, low, high = texts[row]
        sure = None if std != std else round(max(0.0, 1 - std / wide), 4)
        made.append(Cell(row=row, column=j, value=value, low=low or None, high=high or None, confidence=sure))
    return made


def _look(asked: CellAsked, table: Remembered) -> Looked:
    from fillin.attention import record_weights

    plan, model = table.plan, table.model
    names = list(plan.sheet.columns)
    reads = [column.name for column in plan.reads]
    name = names[asked.column] if asked.column < len(names) else ""
    if asked.row >= plan.sheet.rows or name not in table.found or asked.row not in table.found[name].rows:
        raise InputError(f"row {asked.row}, column {asked.column} is no cell that was filled; choose a filled one")
    if model is None or name not in reads:
        return Looked(rows=[], others=0.0, columns=[None] * len(names), what="one value is known of this column")
    values = model.schema_.encode(plan.frame[reads])
    own, j = values[asked.row], reads.index(name)
    with record_weights() as seen:
        model.learner_.predict(own[None])
    weights = seen[0].weights.mean((0, 1))[0].double().numpy()  # over networks and heads
    weights = np.where(np.isnan(values[:, j]), 0, weights)
    weights /= max(weights.sum(), 1e-12)
    top = np.argsort(-weights)[:_TOP]
    changes = _hidden(model, own, j)
    return Looked(
        rows=[(int(row), round(float(weights[row]), 5)) for row in top if weights[row] > 0],
        others=round(float(max(0.0, 1 - weights[top].sum())), 5),
        columns=[changes.get(reads.index(n)) if n in reads else None for n in names],
        what="rows: attention weights, the mean of all heads and networks; columns: how the answer changes when that "
        "cell is hidden",
    )


def _hidden(model: "TableImputer", own: np.ndarray, j: int) -> dict[int, float]:
    """Of each known cell of a row: the change of what is told of column j, were it blank."""
    from fillin.predictive import GaussianMixture

    known = [i for i in np.flatnonzero(~np.isnan(own)).tolist() if i != j]
    if not known:
        return {}
    rows = np.repeat(own[None], len(known) + 1, 0)
    rows[np.arange(len(known)) + 1, known] = np.nan
    told = model.learner_.predict(rows)[j]
    if isinstance(told, GaussianMixture):
        change = np.abs(told.mean[1:] - told.mean[0]) / (float(np.nanstd(model.learner_.inputs[:, j])) or 1.0)
    else:
        change = 0.5 * np.abs(told.probabilities[1:] - told.probabilities[:1]).sum(1)
    return {i: round(float(c), 5) for i, c in zip(known, change, strict=True)}
