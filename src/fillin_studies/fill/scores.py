"""Scores of the study `fill`, in standard deviations of the series, pooled over masks; and gaps to exact Bayes."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fillin.data import Curves, TaskLayout, bayes_limit, curves
from fillin.data.broad_prior import gaussian_part
from fillin.evaluate import evaluate
from fillin.metrics import crps
from fillin.predictive import GaussianMixture
from fillin.runtime import require
from fillin_studies.base import ShareDone
from fillin_studies.fill.data import GapCase, GapDataset, PriorSeries
from fillin_studies.fill.methods import METHODS, load_once

DISTANCES = (1.5, 3.5, 7.5, 15.5)  # median steps: the bounds of the classes of distance to observed locations
BAYES = "exact Bayes"  # knows the prior: the highest likelihood possible
NARROW_PRIORS = ("rbf", "matern-5/2")
BROAD_PRIOR = "the broad prior"
_HYPOTHESES, _MAX_CHANGE = 512, 0.05  # averaged over; nats by which half as many may differ
_BATCH = 4  # tasks
# batches for each mask, and settings of hyperparameters: a mixture of many kernels needs more of the latter to converge
_NARROW, _OWN = (5, 256), (1, 1024)


def score_prediction(prediction: GaussianMixture, case: GapCase) -> dict[str, float]:
    """Return means over held-out points. `point` is the CRPS of the mean as a point prediction: |mean − truth|."""
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


def count_by_distance(prediction: GaussianMixture, case: GapCase) -> list[list[int]]:
    """Return the number of held-out points, and of those inside their 95 % interval, in each class of distance to the
    nearest observed location: in median steps between points, up to each of DISTANCES and beyond the last."""
    x = np.unique(case.x[:, 0])
    observed = np.sort(case.x[case.mask.observed, 0])
    at = case.x[case.mask.held_out, 0]
    after = np.clip(np.searchsorted(observed, at), 1, len(observed) - 1)
    distance = np.minimum(np.abs(at - observed[after - 1]), np.abs(at - observed[after])) / np.median(np.diff(x))
    number = np.searchsorted(DISTANCES, distance)
    cdf = prediction.cdf(case.truth)
    inside = (cdf >= 0.025) & (cdf <= 0.975)
    return [[int((number == i).sum()), int(inside[number == i].sum())] for i in range(len(DISTANCES) + 1)]


def measure(data: GapDataset, kind: str, method: str, masks: int, progress: ShareDone) -> dict[str, Any]:
    """Measure a method on one data set with one kind of gap: pooled over masks, on one thread."""
    count = int(min(masks, data.max_masks))
    scores, distances = [], []
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
                if data.dim_x == 1:
                    distances.append(count_by_distance(prediction, case))
            progress((number + 1) / count)
    result = {"data": data.name, "group": data.group, "kind": kind, "method": method, **pool_masks(scores)}
    return {**result, "distances": np.sum(distances, 0).tolist()} if distances else result


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
    """Return means over masks, standard errors of CRPS and coverage, and the RMSE.

    A limit that has not converged is left out.
    """
    mean = {key: float(np.mean([score[key] for score in scores])) for key in scores[0]}
    result: dict[str, Any] = {"masks": len(scores), **mean}
    if result.get("moved", 0) > _MAX_CHANGE:  # the posterior is narrower than the hypotheses resolve
        del result["log_likelihood"]
    if "crps" in mean:
        result["rmse"] = math.sqrt(result.pop("squared"))
        std = np.std([score["crps"] for score in scores], ddof=1) if len(scores) > 1 else 0.0
        result["crps_error"] = float(std) / math.sqrt(len(scores))
        covered = np.std([score["covered"] for score in scores], ddof=1) if len(scores) > 1 else 0.0
        result["covered_error"] = float(covered) / math.sqrt(len(scores))
        result["crps_by_mask"] = [score["crps"] for score in scores]  # the same masks for all: differences are paired
    return result


def measure_gap(name: str, weights: str, masks: int, progress: ShareDone) -> dict[str, Any]:
    """Measure the log-likelihood per target of pretrained weights and of exact Bayes on the same tasks.

    They are tasks of a narrow prior, or of that part of the broad prior which has a Bayes limit.
    """
    batches_a_mask, limit_samples = _OWN if name == BROAD_PRIOR else _NARROW
    batches = batches_a_mask * masks
    done = iter(range(1, batches + 1))
    stream = replace(Curves(gaussian_part(), TaskLayout()) if name == BROAD_PRIOR else curves(name), batch=_BATCH)
    scores = evaluate(
        load_once(weights), stream, batches, limit_samples=limit_samples, tick=lambda: progress(next(done) / batches)
    )
    keys = ("log_likelihood", "limit", "gap", "gap_error", "tasks")
    return {"data": name, "group": "limit", "method": weights, **{key: getattr(scores, key) for key in keys}}
