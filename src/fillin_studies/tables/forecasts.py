"""From an estimator and a case to the distribution of every value that is asked for, and the time it took."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin_studies.tables.data import Case

LEVELS = (np.arange(100) + 0.5) / 100  # the third and the third from the end bound the middle 95 %
_FOLDS = 5


@dataclass(frozen=True)
class Forecast:
    """Of numbers: mean, quantiles at LEVELS, ln p of the truth; and the seconds of processor time of fit and predict,
    which a busy machine does not change."""

    mean: Float[ndarray, "m"]
    quantiles: Float[ndarray, "q m"]
    log_prob: Float[ndarray, "m"]
    seconds: float


def whole(model: Any, case: Case) -> Forecast:
    """Of an estimator that tells whole distributions: ours."""
    start = time.process_time()
    mean, quantiles = model.fit(case.X, case.y).predict(case.asked, quantiles=LEVELS)
    seconds = time.process_time() - start
    return Forecast(mean, quantiles, model.log_prob(case.asked, case.truth), seconds)


def deviations(model: Any, case: Case) -> Forecast:
    """Of one that has a deviation for each value: a Gaussian process."""
    start = time.process_time()
    mean, deviation = model.fit(case.X, case.y).predict(case.asked, return_std=True)
    return _normal(mean, deviation, case, time.process_time() - start)


def points(model: Any, case: Case) -> Forecast:
    """Of one that gives points: a normal with the deviation of what it misses on rows that it is cross-validated on,
    one for all; the time that this takes is not counted."""
    from sklearn.base import clone
    from sklearn.model_selection import KFold, cross_val_predict

    folds = KFold(_FOLDS, shuffle=True, random_state=0)
    missed = case.y - cross_val_predict(clone(model), case.X, case.y, cv=folds)
    start = time.process_time()
    mean = model.fit(case.X, case.y).predict(case.asked)
    seconds = time.process_time() - start
    return _normal(mean, np.full(len(mean), np.sqrt(np.mean(missed**2))), case, seconds)


def _normal(mean: Float[ndarray, "m"], deviation: Float[ndarray, "m"], case: Case, seconds: float) -> Forecast:
    from scipy.stats import norm

    deviation = np.maximum(deviation, 1e-6 * (case.y.std() or 1.0))
    quantiles = mean + norm.ppf(LEVELS)[:, None] * deviation
    return Forecast(mean, quantiles, norm.logpdf(case.truth, mean, deviation), seconds)


def chances(model: Any, case: Case) -> tuple[Float[ndarray, "m k"], float]:
    """The probability of each class, nothing for one that the rows at hand do not have; and the seconds."""
    start = time.process_time()
    found = model.fit(case.X, case.y).predict_proba(case.asked)
    seconds = time.process_time() - start
    every = np.zeros((len(found), case.classes))
    every[:, model.classes_.astype(int)] = found
    return every, seconds
