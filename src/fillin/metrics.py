"""Scores of predictive distributions, each written once: CRPS, coverage, calibration, means with standard errors."""

import math

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from fillin.predictive import Categorical, GaussianMixture

COVERAGE_LEVELS = tuple(range(5, 100, 5))  # of central intervals, in percent
PIT_BINS = 10
CALIBRATION_BINS = 15
_CRPS_LEVELS = (np.arange(100) + 0.5) / 100
_MAX_PAIRS_AT_ONCE = 1 << 22


def crps(prediction: GaussianMixture, y: Float[ndarray, "*b"]) -> Float[ndarray, "*b"]:
    """∫ (P(Y ≤ z) − 1[y ≤ z])² dz, the continuous ranked probability score in units of y; |y − mean| at certainty.

    Closed form of Gaussian mixtures (Gneiting & Raftery 2007). Through a warp it is 2 ∫ (1[y < q_a] − a)(q_a − y) da,
    the mean quantile loss at a hundred levels a.
    """
    if prediction.warp is not None and prediction.warp.is_affine:
        prediction = prediction.unwarped()
    if prediction.warp is not None:
        above = prediction.quantiles(_CRPS_LEVELS) - y
        levels = _CRPS_LEVELS.reshape(-1, *[1] * y.ndim)
        return 2 * (((above > 0) - levels) * above).mean(0)
    import scoringrules  # slow to import

    components = prediction.means.shape[-1]
    if components == 1:
        return scoringrules.crps_normal(y, prediction.means[..., 0], prediction.stds[..., 0])
    # every pair of components is compared: rows are taken a few at a time
    flat = [part.reshape(-1, components) for part in (prediction.means, prediction.stds, prediction.weights)]
    rows, values = max(1, _MAX_PAIRS_AT_ONCE // components**2), y.reshape(-1)
    parts = [
        scoringrules.crps_mixnorm(values[i : i + rows], *(part[i : i + rows] for part in flat))
        for i in range(0, len(values), rows)
    ]
    return np.concatenate(parts).reshape(y.shape) if parts else np.zeros(y.shape)


def pit(prediction: GaussianMixture, y: Float[ndarray, "*b"]) -> Float[ndarray, "*b"]:
    """P(Y ≤ y), the probability integral transform: uniform where predictions are calibrated."""
    return prediction.cdf(y).clip(0, 1)


def coverage(u: Float[ndarray, "n"]) -> dict[str, float]:
    """The share of values inside each central interval, by its level in percent: {"50": 0.49, …}, from their PIT."""
    distance = np.abs(2 * u - 1)
    return {str(level): float((distance <= level / 100).mean()) for level in COVERAGE_LEVELS}


def pit_histogram(u: Float[ndarray, "n"]) -> list[float]:
    """The share of PIT values in each of ten bins; 0.1 everywhere where they are uniform."""
    return (np.histogram(u, PIT_BINS, (0, 1))[0] / len(u)).tolist()


def kolmogorov_smirnov(u: Float[ndarray, "n"]) -> float:
    """max_z |share of values ≤ z − z|, the distance of PIT values from uniform."""
    from scipy.stats import kstest

    return float(kstest(u, "uniform").statistic)


def calibration_error(prediction: Categorical, codes: Int[ndarray, "n"]) -> float:
    """Σ_b n_b/n |accuracy − mean confidence| over bins b of the confidence (expected calibration error, Guo et al.
    2017)."""
    confidence, correct = prediction.confidence, prediction.mode == codes
    bin_number = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = np.bincount(bin_number, correct - confidence, CALIBRATION_BINS)
    return float(np.abs(gaps).sum() / len(codes))


def average(values: Float[Tensor, "s b"]) -> tuple[float, float]:
    """The mean over tasks, and its standard error. Tasks of a batch have the same number of points, so they are alike:
    a batch counts as one draw, √(Var_s/s). A single batch counts as b draws."""
    draws = values.mean(1) if len(values) > 1 else values[0]
    error = float(draws.std()) / math.sqrt(len(draws)) if len(draws) > 1 else 0.0
    return float(values.mean()), error
