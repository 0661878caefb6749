"""Prediction of the missing cells of a table by networks that are trained on it, and hold-out scores of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from fillin.filling.holdout import ClassScore, NumericScore
from fillin.filling.prediction import ClassPrediction, ColumnPrediction, NumericPrediction
from fillin.filling.table.plan import TablePlan
from fillin.predictive import Categorical, GaussianMixture, Predictive
from fillin.runtime import require
from fillin.tabular.table import CLASS, TypedColumn, TypedTable
from fillin.warp import BoundsWarp

if TYPE_CHECKING:
    from fillin.estimators import TableImputer

HELD_OUT_SHARE = 0.1  # of the observed cells of each column, all at once
MIN_OBSERVED = 10  # cells of a column that is scored


@dataclass(frozen=True)
class EnsembleSize:
    """Number of networks, and of steps that each is trained for."""

    members: int
    steps: int | str  # "auto": by the number of rows


FULL, SCORING = EnsembleSize(8, "auto"), EnsembleSize(4, 200)


def fill_table(plan: TablePlan, model: "TableImputer | None" = None) -> dict[str, ColumnPrediction]:
    """Predict the missing cells of each column, by a `model` that `fit_imputer` returned or by one that is fitted."""
    filled = {column.name: _predict_constant(column) for column in plan.constant}
    if plan.filled:
        cells = {column.name: column.missing for column in plan.filled}
        predictions = predict_cells(plan, plan.table, cells, FULL, model)
        filled |= {column.name: _summarise(plan, column, predictions[column.name]) for column in plan.filled}
    return filled


def fit_imputer(plan: TablePlan, size: EnsembleSize, table: TypedTable | None = None) -> "TableImputer":
    """Train an imputer on the observed cells of the plan's table, or of another like it."""
    require("sklearn")
    from fillin.estimators import TableImputer

    features = (plan.table if table is None else table).select(column.name for column in plan.features)
    return TableImputer(**vars(size), random_state=plan.seed).fit(features)


def predict_cells(
    plan: TablePlan,
    table: TypedTable,
    cells: dict[str, Bool[ndarray, "n"]],
    size: EnsembleSize,
    model: "TableImputer | None" = None,
) -> dict[str, Predictive]:
    """Predict these cells of each column, by a fitted `model` or by one that is fitted to the table."""
    require("sklearn")
    rows = np.flatnonzero(np.any(list(cells.values()), axis=0))
    features = table.select(column.name for column in plan.features)
    if plan.target is not None:
        name = plan.target.name
        return {name: _clip(plan, name, _predict_target(plan, table.column(name), features, rows, size))}
    model = fit_imputer(plan, size, table) if model is None else model
    learned = model.learner_.predict(model.schema_.encode(features.take(rows)))
    by_column, predictions = dict(zip(features.columns, learned, strict=True)), {}
    for name, mask in cells.items():
        prediction = by_column[name][np.flatnonzero(mask[rows])]
        if isinstance(prediction, Categorical):  # the last code stands for any other value, which cannot be written
            classes = prediction.probabilities[:, :-1]
            prediction = Categorical(classes, model.schema_[name].levels[: classes.shape[1]])
        predictions[name] = _clip(plan, name, prediction)
    return predictions


def _predict_target(
    plan: TablePlan, target: TypedColumn, features: TypedTable, rows: ndarray, size: EnsembleSize
) -> Predictive:
    from fillin.estimators import TableClassifier, TableRegressor

    options: dict[str, Any] = {**vars(size), "random_state": plan.seed}
    queries = features.take(rows)
    if target.kind == CLASS:
        classifier = TableClassifier(**options).fit(features, target.features)
        return Categorical(classifier.predict_proba(queries), tuple(classifier.classes_.tolist()))
    model = TableRegressor(**options).fit(features, target.features)
    return model.learner_.predict(model.schema_.encode(queries))[0]


def _clip(plan: TablePlan, name: str, prediction: Any) -> Any:
    """Clip a prediction of numbers to the bounds of its column."""
    if name not in plan.bounds or not isinstance(prediction, GaussianMixture):
        return prediction
    low, high = plan.bounds[name]
    warp = BoundsWarp(minimum=-np.inf if low is None else float(low), maximum=np.inf if high is None else float(high))
    return prediction.unwarped().transformed(warp)


def _summarise(plan: TablePlan, column: TypedColumn, prediction: Any) -> ColumnPrediction:
    """Return the class and its probability, or mean, standard deviation, interval and quartiles, of missing cells."""
    rows = np.flatnonzero(column.missing)
    if isinstance(prediction, Categorical):
        labels = np.array(prediction.labels, dtype=object)[prediction.mode]
        return ClassPrediction(rows, labels, prediction.confidence)
    quantiles = (prediction.quantile(q) for q in (0.5 - plan.level / 2, 0.5 + plan.level / 2, 0.25, 0.75))
    return NumericPrediction(rows, prediction.mean, prediction.std, *quantiles)


def _predict_constant(column: TypedColumn) -> ColumnPrediction:
    """Return the only observed value, without an uncertainty."""
    rows, value = np.flatnonzero(column.missing), column.features[~column.missing][0]
    nans = np.full(len(rows), np.nan)
    if column.kind == CLASS:
        return ClassPrediction(rows, np.full(len(rows), value, dtype=object), nans)
    return NumericPrediction(rows, np.full(len(rows), float(value)), *[nans] * 5)


def score_table(plan: TablePlan) -> list[NumericScore | ClassScore]:
    """Return the score of each filled column with enough observed cells; networks train for a shorter time for it."""
    random = np.random.default_rng(plan.seed)
    held_out = {}
    for column in plan.filled:
        observed = np.flatnonzero(~column.missing)
        if len(observed) >= MIN_OBSERVED:
            chosen = random.permutation(observed)[: max(1, round(HELD_OUT_SHARE * len(observed)))]
            held_out[column.name] = np.isin(np.arange(len(column.missing)), chosen)
    masked = plan.table.mask(held_out)
    varying = {name: cells for name, cells in held_out.items() if masked.column(name).n_distinct > 1}
    if not varying:
        return []
    predictions = predict_cells(plan, plan.table.mask(varying), varying, SCORING)
    return [_score(plan.table.column(name), cells, predictions[name]) for name, cells in varying.items()]


def _score(column: TypedColumn, held_out: Bool[ndarray, "n"], prediction: Any) -> NumericScore | ClassScore:
    truth, rest = column.features[held_out], column.features[~held_out & ~column.missing]
    n = int(held_out.sum())
    if isinstance(prediction, Categorical):
        labels = np.array(prediction.labels, dtype=object)[prediction.mode]
        values, counts = np.unique(rest.astype(str), return_counts=True)
        log_prob = np.log(np.maximum(prediction.probability_of(truth.tolist()), 1e-9)).mean()
        baseline = float((truth == values[counts.argmax()]).mean())
        return ClassScore(column.name, n, float((labels == truth).mean()), baseline, log_prob)
    std = float(np.nanstd(column.features))
    inside = (prediction.quantile(0.025) <= truth) & (truth <= prediction.quantile(0.975))
    errors = prediction.mean - truth, rest.mean() - truth
    rmse, baseline = (float(np.sqrt(np.mean(error**2))) / std for error in errors)
    return NumericScore(column.name, n, rmse, baseline, float(inside.mean()))
