"""Interpolation, with bands of its own making.

A line through points says nothing of how far it may be off, and to score it as if it were sure would be unfair. So each
known point is left out in turn, and the deviation s of what is missed there becomes that of a normal distribution: s
where known points are as near as usual, and s·√(d/usual) where they are further off, as a random walk goes astray; what
is missed is divided by the same root before. Between two known points at distances a and b, d = ab/(a + b), the
variance of a walk that is held at both; beyond an end, and in a field, it is the distance of the nearest.
"""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.predictive import GaussianMixture
from fillin_studies.fill.season import one_period_away, period

Line = Callable[[Float[ndarray, "n dx"], Float[ndarray, "n"], Float[ndarray, "m dx"]], Float[ndarray, "m"]]
FLOOR = 1e-6  # the least deviation, in deviations of what is known
_FOLDS = 10  # of a field: leaving out each of thousands of cells would take hours


def normal(mean: Float[ndarray, "m"], deviation: Float[ndarray, "m"]) -> GaussianMixture:
    """A normal distribution at each place as an answer."""
    return GaussianMixture(np.ones((len(mean), 1, 1)), mean[:, None, None], deviation[:, None, None])


def spread(y: Float[ndarray, "n"]) -> float:
    """The deviation of what is known; where that says nothing, its size, or one."""
    return float(y.std()) or float(np.abs(y).max(initial=0.0)) or 1.0


def steps(x: Float[ndarray, "n dx"]) -> Float[ndarray, "dx"]:
    """The typical step of each column, in which a field's rows and columns are equally far apart."""
    places = (np.unique(column) for column in x.T)
    return np.array([float(np.median(one[1:] - one[:-1])) if len(one) > 1 else 1.0 for one in places])


def linear(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], asked: Float[ndarray, "m dx"]) -> GaussianMixture:
    return banded(_linear, x, y, asked)


def cubic(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], asked: Float[ndarray, "m dx"]) -> GaussianMixture:
    return banded(_cubic, x, y, asked)


def seasonal(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], asked: Float[ndarray, "m 1"]) -> GaussianMixture:
    """What was one period ago, or will be; √k times the deviation where it is k periods away. Where there is no period,
    or nothing known at that phase, it is the straight line."""
    fallback = linear(x, y, asked)
    length = period(x[:, 0], y)
    if length is None:
        return fallback
    order = np.argsort(x[:, 0], kind="stable")
    row, value = x[order, 0], y[order]
    own, _ = one_period_away(row, value, row, length)  # no point is a period away from itself
    missed = (value - own)[np.isfinite(own)]
    if len(missed) < 3:
        return fallback
    mean, away = one_period_away(row, value, asked[:, 0], length)
    deviation = max(float(np.sqrt((missed**2).mean())), FLOOR * spread(y)) * np.sqrt(np.maximum(away, 1))
    gone = np.isnan(mean)
    return normal(np.where(gone, fallback.means[:, 0, 0], mean), np.where(gone, fallback.stds[:, 0, 0], deviation))


def banded(
    line: Line, x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], asked: Float[ndarray, "m dx"]
) -> GaussianMixture:
    """The line with the bands that its own misses give it."""
    x, y = _once(x, y)
    unit = steps(x)
    x, asked = x / unit, asked / unit
    mean = line(x, y, asked)
    misses, distances = [], []
    for out in _left_out(x):
        rest = ~out
        misses.append(y[out] - line(x[rest], y[rest], x[out]))
        distances.append(distance(x[rest], x[out]))
    if not misses:
        return normal(mean, np.full(len(asked), spread(y)))
    usual = float(np.median(np.concatenate(distances)))

    def growth(far: ndarray) -> ndarray:
        return np.sqrt(np.maximum(1, far / usual))

    missed = np.concatenate(misses) / growth(np.concatenate(distances))
    deviation = max(float(np.sqrt((missed**2).mean())), FLOOR * spread(y))
    return normal(mean, deviation * growth(distance(x, asked)))


def distance(x: Float[ndarray, "n dx"], asked: Float[ndarray, "m dx"]) -> Float[ndarray, "m"]:
    """How far what is known is from each place that is asked for; places of a series in order."""
    if x.shape[1] > 1:
        from scipy.spatial import KDTree

        return KDTree(x).query(asked)[0]
    after = np.searchsorted(x[:, 0], asked[:, 0])
    a = np.where(after > 0, asked[:, 0] - x[np.maximum(after - 1, 0), 0], np.inf)
    b = np.where(after < len(x), x[np.minimum(after, len(x) - 1), 0] - asked[:, 0], np.inf)
    near, other = np.minimum(a, b), np.maximum(a, b)
    return near / (1 + near / other)


def _left_out(x: Float[ndarray, "n dx"]) -> Iterator[ndarray]:
    """Each point of a series but its ends, or a tenth of a field at a time."""
    n = len(x)
    if x.shape[1] == 1:
        yield from (np.arange(n) == number for number in range(1, n - 1))
    elif n >= 2 * _FOLDS:
        fold = np.random.default_rng(0).permutation(n) % _FOLDS
        yield from (fold == number for number in range(_FOLDS))


def _once(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"]) -> tuple[Float[ndarray, "k dx"], Float[ndarray, "k"]]:
    """Places in order, each once, with the mean of its values."""
    places, back = np.unique(x, axis=0, return_inverse=True)
    return places, np.bincount(back.ravel(), y) / np.bincount(back.ravel())


def _linear(x, y, asked):
    """Beyond the ends, and outside the hull of a field, the nearest value."""
    if x.shape[1] == 1:
        return np.interp(asked[:, 0], x[:, 0], y)
    from scipy.interpolate import LinearNDInterpolator

    return _or_nearest(LinearNDInterpolator(x, y)(asked), x, y, asked)


def _cubic(x, y, asked):
    """A natural cubic spline; of a field Clough and Tocher's. Beyond the ends the nearest value: no spline knows."""
    if x.shape[1] == 1:
        if len(x) < 3:
            return _linear(x, y, asked)
        from scipy.interpolate import CubicSpline

        return CubicSpline(x[:, 0], y, bc_type="natural")(np.clip(asked[:, 0], x[0, 0], x[-1, 0]))
    from scipy.interpolate import CloughTocher2DInterpolator

    return _or_nearest(CloughTocher2DInterpolator(x, y)(asked), x, y, asked)


def _or_nearest(found, x, y, asked):
    from scipy.spatial import KDTree

    return np.where(np.isnan(found), y[KDTree(x).query(asked)[1]], found)
