"""Networks that are trained on the table itself, and what they say of its blanks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from fillin.filling.prediction import ClassPrediction, ColumnPrediction, NumericPrediction
from fillin.filling.table.plan import TablePlan
from fillin.predictive import Categorical, GaussianMixture
from fillin.runtime import require
from fillin.tabular.table import CLASS, TypedColumn, TypedTable
from fillin.warp import Bounds, BoundsWarp

if TYPE_CHECKING:
    from fillin.estimators import TableImputer


@dataclass(frozen=True)
class Size:
    """How many networks are trained, and for how long."""

    members: int
    steps: int | str  # "auto": by the number of rows


FULL, TEST = Size(8, "auto"), Size(4, 200)  # to fill; to say how well that goes


def fill_table(plan: TablePlan, model: "TableImputer | None" = None) -> dict[str, ColumnPrediction]:
    """Predict the missing cells of each column that has some; by a `model` that `imputer` has fitted, where there is
    one."""
    found: dict[str, ColumnPrediction] = {column.name: _fixed(column) for column in plan.fixed}
    if plan.fills:
        asked = {column.name: column.missing for column in plan.fills}
        told = tell(plan, plan.table, asked, FULL, model)
        found |= {column.name: _found(plan, column, told[column.name]) for column in plan.fills}
    return found


def imputer(plan: TablePlan, size: Size, table: TypedTable | None = None) -> "TableImputer":
    """Train an imputer on the observed cells of the plan's table, or of another like it."""
    require("sklearn")
    from fillin.estimators import TableImputer

    return TableImputer(**_options(plan, size)).fit(_features(plan, plan.table if table is None else table))


def _options(plan: TablePlan, size: Size) -> dict[str, Any]:
    return {**vars(size), "random_state": plan.seed}


def _features(plan: TablePlan, table: TypedTable) -> TypedTable:
    return table.select(column.name for column in plan.reads)


def tell(
    plan: TablePlan,
    table: TypedTable,
    asked: dict[str, Bool[ndarray, "n"]],
    size: Size,
    model: "TableImputer | None" = None,
) -> dict[str, Any]:
    """Predict the requested cells of each column, by a `model` that is fitted or one that is fitted to the table."""
    require("sklearn")
    rows, features = np.flatnonzero(np.any(list(asked.values()), axis=0)), _features(plan, table)
    if plan.target is not None:
        name, options = plan.target.name, _options(plan, size)
        return {name: _within(_tell_target(table.column(name), features, rows, options), plan.bounds.get(name))}
    model = imputer(plan, size, table) if model is None else model
    each = dict(zip(features.columns, model.learner_.predict(model.schema_.encode(features.take(rows))), strict=True))
    found = {}
    for name, own in asked.items():
        told = each[name][np.flatnonzero(own[rows])]
        if isinstance(told, Categorical):
            found[name] = _words(model.schema_[name], told)
        else:
            found[name] = _within(told, plan.bounds.get(name))
    return found


def _tell_target(target: TypedColumn, features: TypedTable, rows: ndarray, options: dict[str, Any]) -> Any:
    from fillin.estimators import TableClassifier, TableRegressor

    asked = features.take(rows)
    if target.kind == CLASS:
        classifier = TableClassifier(**options).fit(features, target.features)
        return Categorical(classifier.predict_proba(asked), tuple(classifier.classes_.tolist()))
    model = TableRegressor(**options).fit(features, target.features)
    return model.learner_.predict(model.schema_.encode(asked))[0]


def _within(told: Any, bounds: "Bounds | None") -> Any:
    """Clip a prediction of numbers to the bounds of its column."""
    if bounds is None or not isinstance(told, GaussianMixture):
        return told
    low, high = (None if bound is None else float(bound) for bound in bounds)
    return told.unwarped().transformed(
        BoundsWarp(minimum=-np.inf if low is None else low, maximum=np.inf if high is None else high)
    )


def _words(column: Any, told: Categorical) -> Categorical:
    """Without the last code, which is any other value: no word that could be written."""
    chances = told.probabilities
    return Categorical(chances[:, :-1], column.levels[: chances.shape[1] - 1])


def _found(plan: TablePlan, column: TypedColumn, told: Any) -> ColumnPrediction:
    rows = np.flatnonzero(column.missing)
    if isinstance(told, Categorical):
        return ClassPrediction(rows, np.array(told.labels, dtype=object)[told.mode], told.confidence)
    low, high, quarter, other = (told.quantile(q) for q in (0.5 - plan.level / 2, 0.5 + plan.level / 2, 0.25, 0.75))
    return NumericPrediction(rows, told.mean, told.std, low, high, quarter, other)


def _fixed(column: TypedColumn) -> ColumnPrediction:
    """The one value that is known; nothing tells how surely."""
    rows, value = np.flatnonzero(column.missing), column.features[~column.missing][0]
    nothing = np.full(len(rows), np.nan)
    if column.kind == CLASS:
        return ClassPrediction(rows, np.full(len(rows), value, dtype=object), nothing)
    return NumericPrediction(rows, np.full(len(rows), float(value)), *[nothing] * 5)
