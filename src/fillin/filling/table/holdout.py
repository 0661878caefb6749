"""Hold-out scores of tables: some observed cells are held out, and networks are trained on the rest."""

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from fillin.filling.holdout import ClassScore, NumericScore
from fillin.filling.table import impute
from fillin.filling.table.plan import TablePlan
from fillin.predictive import Categorical
from fillin.tabular.table import TypedColumn

HELD_OUT_SHARE = 0.1  # of the observed cells of each column, all at once
MIN_OBSERVED = 10  # cells of a column that is scored


def score_table(plan: TablePlan) -> list[NumericScore | ClassScore]:
    """Return the score of each filled column with enough observed cells; networks train for a shorter time for it."""
    random = np.random.default_rng(plan.seed)
    held_out = {c.name: _choose_cells(c, random) for c in plan.fills if (~c.missing).sum() >= MIN_OBSERVED}
    hidden = plan.table.hide(held_out)
    varying = {name: cells for name, cells in held_out.items() if hidden.column(name).n_distinct > 1}
    if not varying:
        return []
    predictions = impute.tell(plan, plan.table.hide(varying), varying, impute.TEST)
    return [_score(plan, name, cells, predictions[name]) for name, cells in varying.items()]


def _choose_cells(column: TypedColumn, random: np.random.Generator) -> Bool[ndarray, "n"]:
    observed = np.flatnonzero(~column.missing)
    held_out = np.zeros(len(column.missing), dtype=bool)
    held_out[random.permutation(observed)[: max(1, round(HELD_OUT_SHARE * len(observed)))]] = True
    return held_out


def _score(plan: TablePlan, name: str, held_out: Bool[ndarray, "n"], prediction) -> NumericScore | ClassScore:
    column = plan.table.column(name)
    truth, rest = column.features[held_out], column.features[~held_out & ~column.missing]
    n = int(held_out.sum())
    if isinstance(prediction, Categorical):
        labels = np.array(prediction.labels, dtype=object)[prediction.mode]
        values, counts = np.unique(rest.astype(str), return_counts=True)
        log_prob = np.log(np.maximum(prediction.probability_of(truth.tolist()), 1e-9)).mean()
        baseline = float((truth == values[counts.argmax()]).mean())
        return ClassScore(name, n, float((labels == truth).mean()), baseline, log_prob)
    std = float(np.nanstd(column.features))
    inside = (prediction.quantile(0.025) <= truth) & (truth <= prediction.quantile(0.975))
    errors = prediction.mean - truth, rest.mean() - truth
    rmse, baseline = (float(np.sqrt(np.mean(error**2))) / std for error in errors)
    return NumericScore(name, n, rmse, baseline, float(inside.mean()))
