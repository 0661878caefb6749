"""Networks that are trained on the table itself, and what they say of its blanks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.filling.prediction import ClassPrediction, ColumnPrediction, NumericPrediction
from fillin.filling.table.plan import TablePlan, numbers_of
from fillin.runtime import require
from fillin.tabular.sheet import TEXT, Column

if TYPE_CHECKING:
    from fillin.estimators import TableImputer
    from fillin.filling.bounds import Belief, Bounds


@dataclass(frozen=True)
class Size:
    """How many networks are trained, and for how long."""

    members: int
    steps: int | str  # "auto": by the number of rows


FULL, TEST = Size(8, "auto"), Size(4, 200)  # to fill; to say how well that goes


@dataclass(frozen=True)
class Chances:
    """The probability of each word; those that are too rare to be told have none."""

    words: tuple[str, ...]
    chances: Float[ndarray, "n k"]

    def of(self, words: ndarray) -> Float[ndarray, "n"]:
        place = {word: i for i, word in enumerate(self.words)}
        return np.array([self.chances[i, place[w]] if w in place else 0.0 for i, w in enumerate(words)], dtype=float)


@dataclass(frozen=True)
class Within:
    """Of numbers in a range, as `Numbers` of all."""

    belief: "Belief"

    @property
    def mean(self) -> Float[ndarray, "n"]:
        return self.belief.moments()[0]

    @property
    def std(self) -> Float[ndarray, "n"]:
        return self.belief.moments()[1]

    def quantile(self, q: float) -> Float[ndarray, "n"]:
        return self.belief.quantile(q)


def fill_table(plan: TablePlan, model: "TableImputer | None" = None) -> dict[str, ColumnPrediction]:
    """What belongs in the blanks of each column that has some; by a `model` that `imputer` has fitted, where there is
    one."""
    found: dict[str, ColumnPrediction] = {column.name: _fixed(column) for column in plan.fixed}
    if plan.fills:
        asked = {column.name: column.blank for column in plan.fills}
        told = tell(plan, plan.frame, asked, FULL, model)
        found |= {column.name: _found(plan, column, told[column.name]) for column in plan.fills}
    return found


def imputer(plan: TablePlan, size: Size, frame: Any = None) -> "TableImputer":
    """Trained on all that is known in the frame: that of the plan, or another like it."""
    require("sklearn")
    from fillin.estimators import TableImputer

    return TableImputer(**_options(plan, size)).fit(_reads(plan, plan.frame if frame is None else frame))


def _options(plan: TablePlan, size: Size) -> dict[str, Any]:
    kinds = {column.name: "class" for column in plan.reads if column.kind == TEXT}
    return {**vars(size), "random_state": plan.seed, "kinds": kinds}


def _reads(plan: TablePlan, frame: Any) -> Any:
    return frame[[column.name for column in plan.reads]]


def tell(
    plan: TablePlan, frame: Any, asked: dict[str, Bool[ndarray, "n"]], size: Size, model: "TableImputer | None" = None
) -> dict[str, Any]:
    """Train on all that is known in the frame, unless a `model` has been; of each column what belongs where it is asked
    for, as `Numbers` or `Chances`."""
    require("sklearn")
    from fillin.learners.predictions import Numbers

    rows, reads = np.flatnonzero(np.any(list(asked.values()), axis=0)), _reads(plan, frame)
    if plan.target is not None:
        name, options = plan.target.name, _options(plan, size)
        return {name: _within(_tell_target(plan.target, frame, reads, rows, options), plan.bounds.get(name))}
    model = imputer(plan, size, frame) if model is None else model
    each = dict(zip(reads.columns, model.fitted_.tell(model.schema_.encode(reads.iloc[rows])), strict=True))
    found = {}
    for name, own in asked.items():
        told, here = each[name], np.flatnonzero(own[rows])
        if isinstance(told, Numbers):
            found[name] = _within(_part(told, here), plan.bounds.get(name))
        else:
            found[name] = _words(model.schema_[name], told.chances[here])
    return found


def _tell_target(goal: Column, frame: Any, reads: Any, rows: ndarray, options: dict[str, Any]) -> Any:
    from fillin.estimators import TableClassifier, TableRegressor

    y, asked = frame[goal.name].to_numpy(), reads.iloc[rows]
    if goal.kind == TEXT:
        classifier = TableClassifier(**options).fit(reads, y)
        return Chances(tuple(classifier.classes_.tolist()), classifier.predict_proba(asked))
    model = TableRegressor(**options).fit(reads, y)
    return model.fitted_.tell(model.schema_.encode(asked))[0]


def _part(told: Any, here: Int[ndarray, "n"]) -> Any:
    """Of some of the rows."""
    from fillin.learners.predictions import Numbers

    answer = told.answer
    parts = (part[here] for part in (answer.weights, answer.means, answer.deviations))
    return Numbers(type(answer)(*parts), told.scale)


def _within(told: Any, bounds: "Bounds | None") -> Any:
    """Numbers that have a range: what is told beyond it is the bound itself."""
    from fillin.learners.predictions import Numbers

    if bounds is None or not isinstance(told, Numbers):
        return told
    from fillin.filling.bounds import Belief, Bend

    answer, width = told.answer, told.scale.widths[0]
    own = type(answer)(answer.weights, told.scale.inverse(answer.means), answer.deviations * width)
    low, high = (None if bound is None else float(bound) for bound in bounds)
    return Within(Belief(own, Bend(least=-np.inf if low is None else low, most=np.inf if high is None else high)))


def _words(column: Any, chances: Float[ndarray, "n k"]) -> Chances:
    """The last code is any other value: no word that could be written."""
    return Chances(column.levels[: chances.shape[1] - 1], chances[:, :-1])


def _found(plan: TablePlan, column: Column, told: Any) -> ColumnPrediction:
    rows = np.flatnonzero(column.blank)
    if isinstance(told, Chances):
        best = told.chances.argmax(1)
        labels = np.array(told.words, dtype=object)[best]
        return ClassPrediction(rows, labels, told.chances[np.arange(len(rows)), best])
    low, high, quarter, other = (told.quantile(q) for q in (0.5 - plan.level / 2, 0.5 + plan.level / 2, 0.25, 0.75))
    return NumericPrediction(rows, told.mean, told.std, low, high, quarter, other)


def _fixed(column: Column) -> ColumnPrediction:
    """The one value that is known; nothing tells how surely."""
    rows, value = np.flatnonzero(column.blank), numbers_of(column)[~column.blank][0]
    nothing = np.full(len(rows), np.nan)
    if column.kind == TEXT:
        return ClassPrediction(rows, np.full(len(rows), value, dtype=object), nothing)
    return NumericPrediction(rows, np.full(len(rows), float(value)), *[nothing] * 5)
