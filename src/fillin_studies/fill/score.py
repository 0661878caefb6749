"""Scores of predictions in standard deviations of the series, pooled over masks, and the gap to exact Bayes.

On a narrow prior `curve` loses for not knowing that prior and for what it has not learnt; on its own prior for the
latter alone.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fillin.data import Curves, TaskLayout, bayes_limit, curves
from fillin.data.function_prior import gaussian_part
from fillin.evaluate import evaluate
from fillin.metrics import crps
from fillin.predictive import GaussianMixture
from fillin.runtime import require
from fillin_studies.base import ShareDone
from fillin_studies.fill.data import GapCase, GapDataset, PriorSeries
from fillin_studies.fill.methods import METHODS, OURS, load_once

BAYES = "exact Bayes"  # knows the prior: the highest likelihood possible
NARROW_PRIORS = ("rbf", "matern-5/2")
OWN_PRIOR = "its own prior"
_HYPOTHESES, _MAX_CHANGE = 512, 0.05  # averaged over; nats by which half as many may differ
_BATCH = 4  # tasks
# batches for each mask, and settings of hyperparameters: a mixture of many kernels needs more of the latter to converge
_NARROW, _OWN = (5, 256), (1, 1024)


def score_prediction(prediction: GaussianMixture, case: GapCase) -> dict[str, float]:
    """Return means over hidden points. `point` is the CRPS of the mean as a point prediction: |mean − truth|."""
    truth, unit = case.truth, case.unit
    error = (prediction.mean - truth) / unit
    cdf = prediction.cdf(truth)
    return {
        "log_likelihood": float(prediction.log_prob(truth).mean()) + math.log(unit),
        "crps": float(crps(prediction, truth).mean()) / unit,
        "squared": float((error**2).mean()),
        "point": float(np.abs(error).mean()),
        "covered": float(((cdf >= 0.025) & (cdf <= 0.975)).mean()),
    }


def measure(data: GapDataset, kind: str, method: str, masks: int, progress: ShareDone) -> dict[str, Any]:
    """Measure a method on one data set with one kind of gap: pooled over masks, on one thread."""
    count = int(min(masks, data.max_masks))
    scores = []
    if method != BAYES and (weights := METHODS[method].weights):
        load_once(weights)  # beforehand: the time of loading is not counted
    with require("threadpoolctl").threadpool_limits(1):
        for number in range(count):
            case = data.case(kind, number)
            if method == BAYES:
                assert isinstance(data, PriorSeries)
                scores.append(score_bayes(data, kind, number, case))
            else:
                query, start = case.query, time.process_time()
                prediction = METHODS[method].predict(*query)
                seconds = time.process_time() - start
                scores.append({**score_prediction(prediction, case), "seconds": seconds})
            progress((number + 1) / count)
    return {"data": data.name, "group": data.group, "kind": kind, "method": method, **pool_masks(scores)}


def score_bayes(data: PriorSeries, kind: str, number: int, case: GapCase) -> dict[str, float]:
    """Return the likelihood of exact Bayes; other scores would need another quadrature."""
    start = time.process_time()
    fine, coarse = (
        bayes_limit(data.stream(kind, number), number, hypotheses) for hypotheses in (_HYPOTHESES, _HYPOTHESES // 2)
    )
    assert fine is not None
    assert coarse is not None
    return {
        "log_likelihood": float(fine.marginal.mean()) + math.log(case.unit),
        "moved": abs(float((fine.marginal - coarse.marginal).mean())),
        "seconds": time.process_time() - start,
    }


def pool_masks(scores: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return means over masks, the standard error of the CRPS, and the RMSE. A limit that has not converged is left
    out."""
    mean = {key: float(np.mean([score[key] for score in scores])) for key in scores[0]}
    result: dict[str, Any] = {"masks": len(scores), **mean}
    if result.get("moved", 0) > _MAX_CHANGE:  # the posterior is narrower than the hypotheses resolve
        del result["log_likelihood"]
    if "crps" in mean:
        result["rmse"] = math.sqrt(result.pop("squared"))
        std = np.std([score["crps"] for score in scores], ddof=1) if len(scores) > 1 else 0.0
        result["crps_error"] = float(std) / math.sqrt(len(scores))
    return result


def measure_gap(name: str, masks: int, progress: ShareDone) -> dict[str, Any]:
    """Measure the log-likelihood per target of `curve` and of exact Bayes on the same tasks, of a narrow prior or of
    that part of `curve`'s own prior which has a Bayes limit."""
    batches_a_mask, settings = _OWN if name == OWN_PRIOR else _NARROW
    batches = batches_a_mask * masks
    done = iter(range(1, batches + 1))
    stream = replace(Curves(gaussian_part(), TaskLayout()) if name == OWN_PRIOR else curves(name), batch=_BATCH)
    scores = evaluate(
        load_once(OURS[1]), stream, batches, settings=settings, tick=lambda: progress(next(done) / batches)
    )
    keys = ("log_likelihood", "limit", "gap", "gap_error", "tasks")
    return {"data": name, "group": "limit", **{key: getattr(scores, key) for key in keys}}
