"""Functions with a wide gap or an end, records that grow denser, and the methods that predict them.

Locations lie in [−2, 2]. Functions have a standard deviation of about 1; lengths of the Gaussian processes are
log-uniform between 1/40 and 1/2 of the range.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.data.broad_prior import draw_functions
from fillin.data.curves import parse_function
from fillin.data.functions import GaussianProcessPrior, uniform
from fillin.data.task import make_generator
from fillin.inference.sheets import SheetContext
from fillin.metrics import crps
from fillin.models.sheet import Sheet
from fillin.predictive import GaussianMixture
from fillin.runtime import require
from fillin_studies.base import ShareDone
from fillin_studies.fill.interpolation import make_normal
from fillin_studies.fill.methods import METHODS, load_once

FUNCTIONS = ("rbf", "matern-5/2", "prior")  # the last: the prior that the weights were trained on
NOISES = (0.0, 0.1)
GAPS = {"1/5": 0.2, "1/2": 0.5, "4/5": 0.8, "beyond": None}  # share of the range; half a range after the end
SIDE_POINTS, TARGETS = 20, 20  # observed on each side, and in the gap
DENSE_POINTS, DENSE_NOISE = 50, 0.1  # targets anywhere in records that grow denser, and the noise
LOW, HIGH = -2.0, 2.0
HYPER = {"length": (0.1, 2.0), "scale": (1.0, 1.0), "logarithmic": True}
EXACT = "exact"  # a Gaussian process with the true hyperparameters
DRAWS = 200


class Case(NamedTuple):
    """Points of one function. `exact` is the prediction at the targets with the true hyperparameters, if any."""

    x: Float[ndarray, "n"]
    y: Float[ndarray, "n"]
    observed: Bool[ndarray, "n"]
    exact: GaussianMixture | None

    @property
    def query(self) -> tuple[Float[ndarray, "nc 1"], Float[ndarray, "nc"], Float[ndarray, "nt 1"]]:
        return self.x[self.observed, None], self.y[self.observed], self.x[~self.observed, None]

    @property
    def truth(self) -> Float[ndarray, "nt"]:
        return self.y[~self.observed]


def draw_gap(function: str, noise: float, gap: str, number: int) -> Case:
    """Draw a function with a gap in the middle of the range, or one that is observed up to the end of it."""
    random = make_generator(number, FUNCTIONS.index(function), NOISES.index(noise), list(GAPS).index(gap))
    share, width = GAPS[gap], HIGH - LOW
    if share is None:
        parts = [(LOW, HIGH, 2 * SIDE_POINTS), (HIGH, HIGH + width / 2, TARGETS)]
    else:
        half = share * width / 2
        parts = [(LOW, -half, SIDE_POINTS), (half, HIGH, SIDE_POINTS), (-half, half, TARGETS)]
    x = torch.cat([low + (high - low) * uniform(random, n).sort()[0] for low, high, n in parts])
    return draw_case(function, noise, x, np.arange(len(x)) < 2 * SIDE_POINTS, random)


def draw_record(function: str, rows: int, largest: int, number: int) -> Case:
    """Draw a function with `rows` observed locations anywhere. With more rows the same function keeps those that it
    has, up to `largest`."""
    random = make_generator(number, FUNCTIONS.index(function))
    x = LOW + (HIGH - LOW) * uniform(random, DENSE_POINTS + largest)
    used = np.arange(DENSE_POINTS + rows)
    return draw_case(function, DENSE_NOISE, x, used >= DENSE_POINTS, random, used)


def draw_case(
    function: str, noise: float, x: Float[torch.Tensor, "n"], observed: ndarray, random: torch.Generator,
    used: ndarray | None = None,
) -> Case:  # fmt: skip
    """Draw a function at x and keep the points `used` (default: all)."""
    every = x[None, :, None]
    used = np.arange(len(x)) if used is None else used
    if function == "prior":
        f = draw_functions(every, random)
        y = (f + noise * torch.randn(f.shape, generator=random, dtype=f.dtype))[0, :, 0].numpy()[used]
        return Case(x.numpy()[used], y, observed, None)
    prior = parse_function(function, {**HYPER, "noise": noise})
    assert isinstance(prior, GaussianProcessPrior)
    drawn, theta = prior.draw(every, random)
    inside, outside = used[observed], used[~observed]
    posterior = prior.posterior(every[:, inside], drawn[:, inside], every[:, outside], theta)
    exact = make_normal(posterior.mean[0].numpy(), posterior.stddev[0].numpy())
    return Case(x.numpy()[used], drawn[0, used, 0].numpy(), observed, exact)


def predict(case: Case, method: str) -> GaussianMixture:
    if method == EXACT:
        assert case.exact is not None
        return case.exact
    return METHODS[method].predict(*case.query)


def score(prediction: GaussianMixture, case: Case) -> dict[str, float]:
    """Return means over the targets of a function."""
    cdf = prediction.cdf(case.truth)
    return {
        "crps": float(crps(prediction, case.truth).mean()),
        "log_likelihood": float(prediction.log_prob(case.truth).mean()),
        "covered": float(((cdf >= 0.025) & (cdf <= 0.975)).mean()),
    }


def compare_draws(case: Case, prediction: GaussianMixture, seed: int) -> dict[str, float]:
    """Draw sample paths by the weights `sheet`. Return the ratio of their standard deviations to those of the
    predictions, over targets, and whether the mean of the truth over the targets is in the 95 % interval of theirs."""
    xc, yc, xt = case.query
    model = load_once("sheet")
    assert isinstance(model, Sheet)
    values = np.concatenate([yc, np.full(len(xt), np.nan)])[:, None]
    context = SheetContext(model, np.concatenate([xc, xt])[:, 0], values)
    [scores] = context.draw_scores(np.isnan(values), DRAWS, seed)
    assert scores is not None
    paths = prediction.draw_at(scores)
    low, high = np.quantile(paths.mean(1), [0.025, 0.975])
    ratio = np.sqrt(np.square(paths.std(0)).mean() / np.square(prediction.std).mean())
    return {"sample_ratio": float(ratio), "mean_covered": float(low <= case.truth.mean() <= high)}


def measure_cases(cases: Sequence[Any], method: str, paths: bool, progress: ShareDone) -> dict[str, Any]:
    """Measure a method on cases that are drawn one by one: means and standard errors over functions, on one thread."""
    if method != EXACT and (weights := METHODS[method].weights):
        load_once(weights)  # beforehand: the time of loading is not counted
    rows = []
    with require("threadpoolctl").threadpool_limits(1):
        for number, draw in enumerate(cases):
            case, start = draw(), time.process_time()
            prediction = predict(case, method)
            row = {"seconds": time.process_time() - start, **score(prediction, case)}
            rows.append(row | (compare_draws(case, prediction, number) if paths else {}))
            progress((number + 1) / len(cases))
    result: dict[str, Any] = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    for key in ("crps", "covered"):
        std = np.std([row[key] for row in rows], ddof=1) if len(rows) > 1 else 0.0
        result[f"{key}_error"] = float(std) / len(rows) ** 0.5
    return {**result, "functions": len(rows), "by_function": [row["log_likelihood"] for row in rows]}
