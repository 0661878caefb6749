"""Interpolation and the seasonal naive forecast, with prediction intervals.

Each observed point is left out in turn, and the RMSE s of the errors becomes the standard deviation of a normal
distribution: s at the usual distance from observed points, and s·√(d/usual) beyond, as a random walk drifts. Between
points at distances a and b, d = ab/(a + b), the variance of a Brownian bridge; elsewhere that of the nearest point.
"""

from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.predictive import GaussianMixture

Interpolant = Callable[[Float[ndarray, "n dx"], Float[ndarray, "n"], Float[ndarray, "m dx"]], Float[ndarray, "m"]]
MIN_STD = 1e-6  # in standard deviations of the observed values
_FIELD_FOLDS = 10  # leaving out each of thousands of cells would take hours
_MIN_PERIODOGRAM_POINTS = 8
_FREQUENCIES_PER_CYCLE = 5


def make_normal(mean: Float[ndarray, "m"], std: Float[ndarray, "m"]) -> GaussianMixture:
    """Return a normal distribution at each input."""
    return GaussianMixture(np.ones((len(mean), 1)), mean[:, None], std[:, None])


def robust_std(y: Float[ndarray, "n"]) -> float:
    """Return the standard deviation of the observed values; where it is 0, their magnitude, or one."""
    return float(y.std()) or float(np.abs(y).max(initial=0.0)) or 1.0


def predict_linear(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], xt: Float[ndarray, "m dx"]) -> GaussianMixture:
    return add_intervals(_interpolate_linear, x, y, xt)


def predict_seasonal(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"]) -> GaussianMixture:
    """Return the values k periods before or after, with √k times the standard deviation; linear interpolation where
    there is no period, or no observed value at that phase."""
    fallback = predict_linear(x, y, xt)
    period = find_period(x[:, 0], y)
    if period is None:
        return fallback
    order = np.argsort(x[:, 0], kind="stable")
    inputs, values = x[order, 0], y[order]
    predicted, _ = average_periods_away(inputs, values, inputs, period)  # no point is a period away from itself
    errors = (values - predicted)[np.isfinite(predicted)]
    if len(errors) < 3:
        return fallback
    mean, away = average_periods_away(inputs, values, xt[:, 0], period)
    std = max(float(np.sqrt((errors**2).mean())), MIN_STD * robust_std(y)) * np.sqrt(np.maximum(away, 1))
    missing = np.isnan(mean)
    return make_normal(np.where(missing, fallback.means[:, 0], mean), np.where(missing, fallback.stds[:, 0], std))


def add_intervals(
    interpolate: Interpolant, x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], xt: Float[ndarray, "m dx"]
) -> GaussianMixture:
    """Return the interpolant with a standard deviation from its leave-one-out errors."""
    x, inverse = np.unique(x, axis=0, return_inverse=True)
    y = np.bincount(inverse.ravel(), y) / np.bincount(inverse.ravel())  # the mean of values at the same input
    columns = [np.unique(column) for column in x.T]
    # in median steps of each column, so that rows and columns of a field are equally far apart
    unit = np.array([float(np.median(np.diff(column))) if len(column) > 1 else 1.0 for column in columns])
    x, xt = x / unit, xt / unit
    mean = interpolate(x, y, xt)
    errors, distances = [], []
    folds: Iterable[ndarray] = ()
    if x.shape[1] == 1:  # each point of a series but its ends, or a tenth of a field at a time
        folds = (np.arange(len(x)) == number for number in range(1, len(x) - 1))
    elif len(x) >= 2 * _FIELD_FOLDS:
        fold = np.random.default_rng(0).permutation(len(x)) % _FIELD_FOLDS
        folds = (fold == number for number in range(_FIELD_FOLDS))
    for out in folds:
        kept = ~out
        errors.append(y[out] - interpolate(x[kept], y[kept], x[out]))
        distances.append(distance_to_observed(x[kept], x[out]))
    if not errors:
        return make_normal(mean, np.full(len(xt), robust_std(y)))
    usual = float(np.median(np.concatenate(distances)))

    def growth(distance: ndarray) -> ndarray:
        return np.sqrt(np.maximum(1, distance / usual))

    scaled = np.concatenate(errors) / growth(np.concatenate(distances))
    std = max(float(np.sqrt((scaled**2).mean())), MIN_STD * robust_std(y))
    return make_normal(mean, std * growth(distance_to_observed(x, xt)))


def distance_to_observed(x: Float[ndarray, "n dx"], xt: Float[ndarray, "m dx"]) -> Float[ndarray, "m"]:
    """Return the distance d of each target from the observed inputs; those of a series are in order."""
    if x.shape[1] > 1:
        from scipy.spatial import KDTree

        return KDTree(x).query(xt)[0]
    after = np.searchsorted(x[:, 0], xt[:, 0])
    a = np.where(after > 0, xt[:, 0] - x[np.maximum(after - 1, 0), 0], np.inf)
    b = np.where(after < len(x), x[np.minimum(after, len(x) - 1), 0] - xt[:, 0], np.inf)
    near, far = np.minimum(a, b), np.maximum(a, b)
    return near / (1 + near / far)


def _interpolate_linear(x, y, xt):
    """Interpolate linearly; beyond the ends, and outside the hull of a field, take the nearest value."""
    if x.shape[1] == 1:
        return np.interp(xt[:, 0], x[:, 0], y)
    from scipy.interpolate import LinearNDInterpolator

    return _or_nearest(LinearNDInterpolator(x, y)(xt), x, y, xt)


def interpolate_cubic(x, y, xt):
    """Interpolate by a natural cubic spline, a field by Clough–Tocher; beyond the ends take the nearest value."""
    if x.shape[1] == 1:
        if len(x) < 3:
            return _interpolate_linear(x, y, xt)
        from scipy.interpolate import CubicSpline

        return CubicSpline(x[:, 0], y, bc_type="natural")(np.clip(xt[:, 0], x[0, 0], x[-1, 0]))
    from scipy.interpolate import CloughTocher2DInterpolator

    return _or_nearest(CloughTocher2DInterpolator(x, y)(xt), x, y, xt)


def _or_nearest(values, x, y, xt):
    from scipy.spatial import KDTree

    return np.where(np.isnan(values), y[KDTree(x).query(xt)[1]], values)


def find_period(x: Float[ndarray, "n"], y: Float[ndarray, "n"]) -> float | None:
    """Return the period of the strongest peak of the Lomb–Scargle periodogram after removal of a linear trend, from
    half the width to two typical steps; None where the series is constant or too short."""
    from scipy.signal import lombscargle

    width = float(np.ptp(x))
    if len(x) < _MIN_PERIODOGRAM_POINTS or width == 0:
        return None
    u = (x - x.mean()) / width
    residual = y - np.polyval(np.polyfit(u, y, 1), u)
    if residual.std() <= 1e-9 * max(1e-300, np.abs(y).max()):
        return None
    ordered = np.unique(u)
    nyquist = 1 / (2 * float(np.median(ordered[1:] - ordered[:-1])))
    cycles = np.arange(2, max(3.0, nyquist), 1 / _FREQUENCIES_PER_CYCLE)
    power = lombscargle(u, residual, 2 * np.pi * cycles)
    return width / float(cycles[int(np.argmax(power))])


def average_periods_away(
    x: Float[ndarray, "n"], y: Float[ndarray, "n"], xt: Float[ndarray, "m"], period: float
) -> tuple[Float[ndarray, "m"], Float[ndarray, "m"]]:
    """Return the mean of the values k periods before and after, and k: the smallest for which there is a value (within
    half a step or an eighth of a period); NaN and 0 where there is none."""
    step = float(np.median(np.diff(x))) if len(x) > 1 else 0.0
    tolerance = min(0.51 * step, period / 8)
    mean, away = np.full(len(xt), np.nan), np.zeros(len(xt))
    reach = max(np.ptp(x), xt.max() - x[0], x[-1] - xt.min())
    for k in range(1, int(reach / period) + 2):
        total, count = np.zeros(len(xt)), np.zeros(len(xt))
        for shifted in (xt - k * period, xt + k * period):
            after = np.clip(np.searchsorted(x, shifted), 1, len(x) - 1)
            nearest = np.where(shifted - x[after - 1] < x[after] - shifted, after - 1, after)
            present = np.abs(x[nearest] - shifted) <= tolerance
            total, count = total + np.where(present, y[nearest], 0), count + present
        new = np.isnan(mean) & (count > 0)
        mean[new], away[new] = total[new] / count[new], k
    return mean, away
