"""What is measured of a forecast."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.metrics import calibration_error
from fillin.predictive import Categorical
from fillin.runtime import require
from fillin_studies.tables.data import Case, Set
from fillin_studies.tables.forecasts import LEVELS, Forecast, chances
from fillin_studies.tables.methods import Method

_LEAST = 1e-6  # a probability, so that one miss that was thought impossible is not all that counts


def of_numbers(told: Forecast, truth: Float[ndarray, "m"]) -> dict[str, float]:
    """Means over rows. CRPS = 2 ∫ (1[y < q_a] − a)(q_a − y) da over levels a, at the middles of a hundred."""
    above = told.quantiles - truth
    crps = 2 * np.mean(((above > 0) - LEVELS[:, None]) * above)
    low, high = (int(np.argmin(np.abs(LEVELS - level))) for level in (0.025, 0.975))
    inside = (told.quantiles[low] <= truth) & (truth <= told.quantiles[high])
    return {
        "rmse": float(np.sqrt(np.mean((told.mean - truth) ** 2))),
        "log_likelihood": float(told.log_prob.mean()),
        "crps": float(crps),
        "covered": float(inside.mean()),
    }


def of_classes(told: Float[ndarray, "m k"], truth: Float[ndarray, "m"]) -> dict[str, float]:
    """AUROC is the mean over classes of each against the rest; of two it is the same for both."""
    from sklearn.metrics import roc_auc_score

    codes = truth.astype(int)
    each = [roc_auc_score(codes == k, told[:, k]) for k in np.unique(codes)]
    return {
        "accuracy": float((told.argmax(1) == codes).mean()),
        "auroc": float(np.mean(each)),
        "log_likelihood": float(np.log(np.clip(told[np.arange(len(codes)), codes], _LEAST, 1)).mean()),
        "calibration": calibration(told, codes),
    }


def calibration(told: Float[ndarray, "m k"], codes: ndarray) -> float:
    """Σ_b n_b/n |share that is right − mean probability| of the likeliest class, over bins b of that probability."""
    return calibration_error(Categorical(told), codes)


def ask(method: Method, case: Case, seed: int) -> dict[str, float]:
    """The scores of a method on a case, on one thread."""
    case = case if method.unlabelled else case.labelled
    with require("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an optimiser is at its last step, or a hyperparameter at its bound
        if case.classes:
            told, seconds = chances(method.classifier(seed), case)
            return {**of_classes(told, case.truth), "seconds": seconds}
        forecast = method.forecast(method.regressor(seed), case)
        return {**of_numbers(forecast, case.truth), "seconds": forecast.seconds}


def measure(data: Set, method: str, split: int, methods: dict[str, Method]) -> dict[str, Any]:
    """The result of one cell."""
    found = ask(methods[method], data.case(split), split)
    return {"data": data.title, "group": data.group, "method": method, "split": split, **found}
