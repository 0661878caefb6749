"""Predictive distributions of an estimator on the test rows of a split, and their scores."""

import time
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.metrics import calibration_error, crps
from fillin.predictive import Categorical, GaussianMixture
from fillin_studies.tables.data import TableSplit

MIN_PROBABILITY = 1e-6  # of a class, so that one confident mistake does not decide the mean
_FOLDS = 5

TimedPrediction = tuple[GaussianMixture, float]  # with the processor time of fit and predict in seconds


def predict_distribution(model: Any, split: TableSplit) -> TimedPrediction:
    """Fit and predict with an estimator of fillin, which predicts whole distributions."""
    start = time.process_time()
    [prediction] = model.fit(split.X, split.y)._predict_targets(split.X_test)
    return prediction, time.process_time() - start


def predict_std(model: Any, split: TableSplit) -> TimedPrediction:
    """Fit and predict with an estimator that predicts standard deviations: a Gaussian process."""
    start = time.process_time()
    mean, std = model.fit(split.X, split.y).predict(split.X_test, return_std=True)
    return _make_normal(mean, std, split), time.process_time() - start


def predict_points(model: Any, split: TableSplit) -> TimedPrediction:
    """Fit and predict with an estimator of points: normal distributions with the RMSE of its cross-validation.

    The time of the cross-validation is not counted.
    """
    from sklearn.base import clone
    from sklearn.model_selection import KFold, cross_val_predict

    folds = KFold(_FOLDS, shuffle=True, random_state=0)
    errors = split.y - cross_val_predict(clone(model), split.X, split.y, cv=folds)
    start = time.process_time()
    mean = model.fit(split.X, split.y).predict(split.X_test)
    seconds = time.process_time() - start
    return _make_normal(mean, np.full(len(mean), np.sqrt(np.mean(errors**2))), split), seconds


def _make_normal(mean: Float[ndarray, "m"], std: Float[ndarray, "m"], split: TableSplit) -> GaussianMixture:
    std = np.maximum(std, 1e-6 * (split.y.std() or 1.0))
    return GaussianMixture(np.ones((len(mean), 1)), mean[:, None], std[:, None])


def predict_classes(model: Any, split: TableSplit) -> tuple[Categorical, float]:
    """Fit and predict classes, with probability 0 for a class that the training rows lack; and the processor time."""
    start = time.process_time()
    predicted = model.fit(split.X, split.y).predict_proba(split.X_test)
    seconds = time.process_time() - start
    probabilities = np.zeros((len(predicted), split.n_classes))
    probabilities[:, model.classes_.astype(int)] = predicted
    return Categorical(probabilities), seconds


def score_numbers(prediction: GaussianMixture, truth: Float[ndarray, "m"]) -> dict[str, float]:
    """Return means over rows."""
    cdf = prediction.cdf(truth)
    return {
        "rmse": float(np.sqrt(np.mean((prediction.mean - truth) ** 2))),
        "log_likelihood": float(prediction.log_prob(truth).mean()),
        "crps": float(crps(prediction, truth).mean()),
        "covered": float(((cdf >= 0.025) & (cdf <= 0.975)).mean()),
    }


def score_classes(prediction: Categorical, truth: Float[ndarray, "m"]) -> dict[str, float]:
    """Return means over rows. AUROC is the mean over classes of each against the rest."""
    from sklearn.metrics import roc_auc_score

    codes, probabilities = truth.astype(int), prediction.probabilities
    of_truth = probabilities[np.arange(len(codes)), codes]
    return {
        "accuracy": float((prediction.mode == codes).mean()),
        "auroc": float(np.mean([roc_auc_score(codes == k, probabilities[:, k]) for k in np.unique(codes)])),
        "log_likelihood": float(np.log(np.clip(of_truth, MIN_PROBABILITY, 1)).mean()),
        "calibration": calibration_error(prediction, codes),
    }
