"""Units of the columns of x, in which values change equally fast along each of them."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import minimize
from scipy.spatial import KDTree

_MAX_POINTS = 2000  # of each thinning, whose pairs are compared
_NEIGHBOURS = 8  # of a point
_THINNINGS = (1, 8, 64)  # every k-th observation: pairs at several distances
_RIDGE = 4.0  # in pairs: pulls the logarithms of the weights together; chosen on synthetic fields of 60 to 1,000 points
_MAX_LOG_WEIGHT, _MAX_STEPS = 8.0, 60
_LEAST_VARIANCE = 1e-6  # of the mean squared difference


def fit_units(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"]) -> Float[ndarray, "dx"]:
    """Fit units ℓ of the columns of x by the pairwise likelihood of differences:

        y_i − y_j ~ Normal(0, m),   m = noise + sill (1 − exp(−‖(x_i − x_j) / ℓ‖)),

    which is the exponential variogram, over pairs of neighbours. Only the ratios of ℓ are determined; their geometric
    mean is that of the widths of the columns. With few observations, or equal values, ℓ are the widths.
    """
    width = np.ptp(x, 0)
    width = np.where(width > 0, width, 1.0)
    if x.shape[1] < 2 or len(x) < 4 * _NEIGHBOURS or np.ptp(y) == 0:
        return width
    unit = width
    for _ in range(2):  # neighbours in the first units, then in the fitted ones
        unit = _fit(x, y, unit)
        unit = unit * np.exp(np.log(width).mean() - np.log(unit).mean())
    return unit


def _fit(x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], unit: ndarray) -> Float[ndarray, "dx"]:
    """Return units that maximise the likelihood, from neighbours in the given ones."""
    square, gap = _pairs(x / unit, y)
    if not gap.mean() > 0:
        return unit
    gap, square = gap / gap.mean(), square / max(float(np.median(square.sum(1))), 1e-300)

    def loss(parameters: ndarray) -> tuple[float, ndarray]:
        """−ln p of a pair, and its gradient in ln noise, ln sill and ln ℓ⁻²."""
        noise, sill, weights = np.exp(parameters[0]), np.exp(parameters[1]), np.exp(parameters[2:])
        distance = np.sqrt(square @ weights)
        fall = np.exp(-distance)
        m = noise + sill * (1 - fall) + _LEAST_VARIANCE
        slope = 0.5 * (1 / m - gap / m**2) / len(gap)
        growth = np.divide(sill * fall, 2 * distance, out=np.zeros_like(distance), where=distance > 0)
        spread = parameters[2:] - parameters[2:].mean()
        value = 0.5 * (np.log(m) + gap / m).mean() + _RIDGE / len(gap) * (spread**2).sum()
        along = weights * ((slope * growth) @ square) + 2 * _RIDGE / len(gap) * spread
        return float(value), np.array([noise * slope.sum(), sill * (slope * (1 - fall)).sum(), *along])

    start = np.array([-2.0, 0.0, *np.zeros(x.shape[1])])
    limits = [(-12.0, 3.0), (-6.0, 6.0), *[(-_MAX_LOG_WEIGHT, _MAX_LOG_WEIGHT)] * x.shape[1]]
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": _MAX_STEPS})
    return unit * np.exp(-best.x[2:] / 2)


def _pairs(z: Float[ndarray, "n dx"], y: Float[ndarray, "n"]) -> tuple[Float[ndarray, "p dx"], Float[ndarray, "p"]]:
    """Return the squared differences of location and value of pairs of neighbours among all observations, and among
    thinned ones."""
    squares, gaps = [], []
    for step in _THINNINGS:
        rows = np.random.default_rng(step).permutation(len(z))[: len(z) // step]
        if len(rows) <= 2 * _NEIGHBOURS:
            break
        points, few = z[rows], rows[:_MAX_POINTS]
        near = rows[np.asarray(KDTree(points).query(z[few], _NEIGHBOURS + 1)[1])[:, 1:]]
        squares.append(((z[near] - z[few, None]) ** 2).reshape(-1, z.shape[1]))
        gaps.append(((y[near] - y[few, None]) ** 2).ravel())
    return np.concatenate(squares), np.concatenate(gaps)
