"""What is measured of an answer, in deviations of the series, and how masks are pooled."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fillin.data import bayes_limit
from fillin.metrics import crps
from fillin.predictive import GaussianMixture
from fillin.runtime import require
from fillin_studies.base import Told
from fillin_studies.fill.data import Case, DataSet, Prior
from fillin_studies.fill.methods import METHODS, Fill

BAYES = "exact Bayes"  # of one who knows the prior: where that has a closed form, the most that can be
_SETTINGS, _MOVED = 512, 0.05  # hypotheses that it averages over; nats by which half as many may differ


def score(answer: GaussianMixture, case: Case) -> dict[str, float]:
    """Means over hidden points. `point` is the CRPS of the mean alone, given as if it were sure: |mean − truth|."""
    truth, unit = case.truth, case.unit
    off = (answer.mean[:, 0] - truth) / unit
    below = answer.cdf(truth[:, None])[:, 0]
    return {
        "log_likelihood": float(answer.log_prob(truth[:, None]).mean()) + math.log(unit),
        "crps": float(crps(answer, truth[:, None]).mean()) / unit,
        "squared": float((off**2).mean()),
        "point": float(np.abs(off).mean()),
        "covered": float(((below >= 0.025) & (below <= 0.975)).mean()),
    }


def ask(fill: Fill, case: Case) -> dict[str, float]:
    """The scores of a method on a case, and its seconds of processor time: a busy machine does not change those."""
    question = case.question
    start = time.process_time()
    answer = fill(*question)
    seconds = time.process_time() - start
    return {**score(answer, case), "seconds": seconds}


def measure(data: DataSet, kind: str, method: str, masks: int, told: Told) -> dict[str, Any]:
    """A method on one data set with one kind of mask: pooled over masks, on one thread."""
    number = int(min(masks, data.most))
    found = []
    if method != BAYES:
        METHODS[method].ready()
    with require("threadpoolctl").threadpool_limits(1):
        for one in range(number):
            case = data.case(kind, one)
            if method == BAYES:
                assert isinstance(data, Prior)
                found.append(limit(data, kind, one, case))
            else:
                found.append(ask(METHODS[method].fill, case))
            told((one + 1) / number)
    return {"data": data.name, "group": data.group, "kind": kind, "method": method, **pooled(found)}


def limit(data: Prior, kind: str, number: int, case: Case) -> dict[str, float]:
    """The likelihood alone: what an average over hypotheses says of anything else takes another quadrature."""
    start = time.process_time()
    fine, coarse = (
        bayes_limit(data.stream(kind, number), number, settings) for settings in (_SETTINGS, _SETTINGS // 2)
    )
    assert fine is not None
    assert coarse is not None
    return {
        "log_likelihood": float(fine.marginal.mean()) + math.log(case.unit),
        "moved": abs(float((fine.marginal - coarse.marginal).mean())),
        "seconds": time.process_time() - start,
    }


def pooled(found: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Means over masks, the standard error of that of the CRPS, and the root of the mean square. A limit that has not
    settled is left out."""
    mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    result: dict[str, Any] = {"masks": len(found), **mean}
    if result.get("moved", 0) > _MOVED:  # no limit: the posterior is narrower than what the hypotheses see
        del result["log_likelihood"]
    if "crps" in mean:
        result["rmse"] = math.sqrt(result.pop("squared"))
        spread = np.std([one["crps"] for one in found], ddof=1) if len(found) > 1 else 0.0
        result["crps_error"] = float(spread) / math.sqrt(len(found))
    return result
