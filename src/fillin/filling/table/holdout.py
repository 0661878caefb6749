"""How well a table is filled where the truth is known: some known cells are hidden, the rest is learnt."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from fillin.filling.table import impute as learn
from fillin.filling.table.plan import TablePlan
from fillin.predictive import Categorical
from fillin.tabular.table import TypedColumn

SHARE = 0.1  # of the known cells of a column, hidden all at once
FEWEST = 10  # known cells of a column of which some are hidden


@dataclass(frozen=True)
class NumberVerdict:
    """Errors in deviations of the column; `plain` is that of the mean of what is left."""

    column: str
    cells: int
    rmse: float
    plain: float
    inside: float  # the share inside bands of 95 %


@dataclass(frozen=True)
class ClassVerdict:
    """The share that is right; `plain` is that of the commonest class; the mean of ln p of the truth."""

    column: str
    cells: int
    right: float
    plain: float
    log_prob: float


def judge(plan: TablePlan) -> list[NumberVerdict | ClassVerdict]:
    """Of each column that is filled and has enough known cells; trained anew, for a shorter time than to fill."""
    random = np.random.default_rng(plan.seed)
    hidden = {column.name: _hide(column, random) for column in plan.fills if (~column.missing).sum() >= FEWEST}
    hidden = {name: cells for name, cells in hidden.items() if _enough(plan, name, cells)}
    if not hidden:
        return []
    frame = plan.frame.copy()
    for name, cells in hidden.items():
        frame[name] = frame[name].mask(cells)
    told = learn.tell(plan, frame, hidden, learn.TEST)
    return [_verdict(plan, name, cells, told[name]) for name, cells in hidden.items()]


def _hide(column: TypedColumn, random: np.random.Generator) -> Bool[ndarray, "n"]:
    known = np.flatnonzero(~column.missing)
    hidden = np.zeros(len(column.missing), dtype=bool)
    hidden[random.permutation(known)[: max(1, round(SHARE * len(known)))]] = True
    return hidden


def _enough(plan: TablePlan, name: str, hidden: Bool[ndarray, "n"]) -> bool:
    """What is left must still vary."""
    return plan.frame[name][~hidden].nunique() > 1


def _verdict(plan: TablePlan, name: str, hidden: Bool[ndarray, "n"], told) -> NumberVerdict | ClassVerdict:
    truth, rest = plan.frame[name][hidden].to_numpy(), plan.frame[name][~hidden].dropna().to_numpy()
    count = int(hidden.sum())
    if isinstance(told, Categorical):
        words = np.array(told.labels, dtype=object)[told.mode]
        values, often = np.unique(rest.astype(str), return_counts=True)
        common, log = values[often.argmax()], np.log(np.maximum(told.probability_of(truth), 1e-9))
        return ClassVerdict(name, count, float((words == truth).mean()), float((truth == common).mean()), log.mean())
    spread = float(plan.frame[name].std(ddof=0))
    error, plain = told.mean - truth, rest.mean() - truth
    inside = (told.quantile(0.025) <= truth) & (truth <= told.quantile(0.975))
    rmse, rmse_plain = (float(np.sqrt(np.mean(e**2))) / spread for e in (error, plain))
    return NumberVerdict(name, count, rmse, rmse_plain, float(inside.mean()))
