"""Stations that inform each other by distance: simple kriging of every station from the others, row by row.

With level m_j and scale s_j of station j, its anomalies z = (y − m) / s are one spatial process at each time,

    E z_j z_k = c + b k(‖p_j − p_k‖ / ℓ),   k(r) = exp(−r) or (1 + √3 r) exp(−√3 r),

independent from row to row. b, c and ℓ are fitted to the correlations of all pairs of stations, weighted by their
common rows. A value is then predicted from those of the other stations in its row (Cressie 1993), where missing ones
enter as interpolated along their own series, with the variance of that. Level and scale of a station with few
observations are those of the stations around it, by kriging too, corrected by its own.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.inference.spatial import (
    MAX_NOISE,
    Stations,
    complete_along,
    fit_correlation,
    krige_field,
    predict_rows,
)

FEW = 3  # observations below which a station is predicted by kriging alone
MAX_STATIONS = 500
_OWN = 10.0  # observations of a station, from which on it shows level and scale of those around it
_MISSED = 0.25, 16.0  # range of the factor of their variances
_MIN_STD = 1e-3  # of a prediction, in the range of all values
_MIN_SPREAD = 0.01  # variance of the logarithms of scales
_PRIOR_ROWS = 24.0  # observations of a station that outweigh the errors of all of them
_ROUNDS = 3  # of level, scale and correlation
_MAX_FIT_ROWS = 4_000


@dataclass(frozen=True)
class Kriging:
    """Prediction of every cell from the other stations of its row, and what it is made with.

    `correlation` is that of the columns by distance, 0 between variables. `level` and `scale` are those of each column.
    """

    mean: Float[ndarray, "n d"]
    std: Float[ndarray, "n d"]
    correlation: Float[ndarray, "d d"]
    level: Float[ndarray, "d"]
    scale: Float[ndarray, "d"]
    few: Bool[ndarray, "d"]  # columns with less than `FEW` observations
    level_share: Float[ndarray, "d"]  # of the variance of their errors that is due to the level


def krige(x: Float[ndarray, "n"], y: Float[ndarray, "n d"], stations: Stations) -> Kriging:
    """Predict every cell, NaN where missing, from the other stations of its variable. Rows x are in order."""
    n, d = y.shape
    mean, std = np.zeros((n, d)), np.ones((n, d))
    correlation, level, scale, level_share = np.eye(d), np.zeros(d), np.ones(d), np.zeros(d)
    for variable in np.unique(stations.variable):
        columns = np.flatnonzero(stations.variable == variable)
        origin, size = _measure_range(y[:, columns])
        part = _krige_variable(x, (y[:, columns] - origin) / size, stations.select(columns))
        part = replace(part, level=origin + size * part.level, scale=size * part.scale)
        mean[:, columns], std[:, columns] = origin + size * part.mean, size * np.maximum(part.std, _MIN_STD)
        correlation[np.ix_(columns, columns)] = part.correlation
        level[columns], scale[columns], level_share[columns] = part.level, part.scale, part.level_share
    return Kriging(mean, std, correlation, level, scale, (~np.isnan(y)).sum(0) < FEW, level_share)


def _measure_range(y: Float[ndarray, "n d"]) -> tuple[float, float]:
    """Return the mean of all values, NaN where missing, and their largest distance from it; of equal values a hundredth
    of them."""
    values = y[~np.isnan(y)]
    if not len(values):
        return 0.0, 1.0
    least = float(values.min())
    origin = least + float((values - least).mean())
    size = float(np.abs(values - origin).max())
    return origin, size if size > 1e-12 * abs(origin) else 0.01 * abs(origin) or 1.0


def _krige_variable(x: Float[ndarray, "n"], y: Float[ndarray, "n d"], stations: Stations) -> Kriging:
    rows = np.unique(np.linspace(0, len(x) - 1, _MAX_FIT_ROWS).astype(int))
    part = y[rows]
    number = (~np.isnan(part)).sum(0)
    many = number >= min(_OWN, number.max())
    ones = np.ones(y.shape[1])
    around, variance, z, noise = np.zeros(part.shape), np.ones(part.shape), np.zeros(part.shape), np.ones(part.shape)
    units, dependence, correlation = None, ones, np.eye(y.shape[1])
    for _ in range(_ROUNDS):
        if units is not None:
            around, variance = predict_rows(z, noise, correlation)
            dependence = measure_dependence(np.where(np.isnan(part), np.nan, z - around), many)
        size = ones if units is None else _typical_squares(part, z, noise, correlation)
        units = StationUnits.fit(stations, part, many, around, variance, size, dependence, units)
        z, noise = complete_along(x[rows], (part - units.level) / units.scale)
        correlation = fit_correlation(stations, z, noise)
    assert units is not None
    return _predict(x, y, units, correlation)


def _predict(
    x: Float[ndarray, "n"], y: Float[ndarray, "n d"], units: "StationUnits", correlation: Float[ndarray, "d d"]
) -> Kriging:
    """Predict all rows, with the errors of level and scale, and errors as large as at observed cells."""
    observed = ~np.isnan(y)
    count = observed.sum(0)
    z, noise = complete_along(x, (y - units.level) / units.scale)
    around, variance = predict_rows(z, noise, correlation)
    squares = np.where(observed, np.square(z - around) / variance, 0).sum(0)
    growth = (squares + _PRIOR_ROWS * squares.sum() / max(1, observed.sum())) / (count + _PRIOR_ROWS)
    mean = units.level + units.scale * around
    square = np.square(units.scale) * growth * variance
    square += units.level_variance + np.square(units.scale * around) * units.scale_variance
    new = count < FEW
    if new.any() and not new.all():  # by how much other stations are missed that are treated as new ones
        width = units.near_level_std**2 + np.square(units.near_scale) * (
            variance + np.square(around * units.near_scale_std)
        )
        error = np.where(observed, y - units.near_level - units.near_scale * around, 0)
        missed = (np.square(error) / width)[:, ~new].sum() / observed[:, ~new].sum()
        square[:, new] *= np.clip(missed, *_MISSED)
    share = np.minimum(units.level_variance / square.mean(0), 1)
    return Kriging(mean, np.sqrt(square), correlation, units.level, units.scale, new, share)


def _typical_squares(
    y: Float[ndarray, "n d"], z: Float[ndarray, "n d"], noise: Float[ndarray, "n d"], correlation: Float[ndarray, "d d"]
) -> Float[ndarray, "d"]:
    """Return the mean square of the anomalies around each station in the rows where it is observed: not 1 where these
    are of one season."""
    seen, useful = ~np.isnan(y), noise < MAX_NOISE
    weights = correlation.clip(0)
    total = np.where(useful, np.square(z), 0) @ weights / np.maximum(useful @ weights, 1e-12)
    return np.where(seen.any(0), np.where(seen, total, 0).sum(0) / np.maximum(seen.sum(0), 1), 1).clip(0.05)


@dataclass(frozen=True)
class StationUnits:
    """Level and scale of each station, the variances of the level and of the logarithm of the scale, and the same
    as the other stations predict them."""

    level: Float[ndarray, "d"]
    level_variance: Float[ndarray, "d"]
    scale: Float[ndarray, "d"]
    scale_variance: Float[ndarray, "d"]
    near_level: Float[ndarray, "d"]
    near_level_std: Float[ndarray, "d"]
    near_scale: Float[ndarray, "d"]
    near_scale_std: Float[ndarray, "d"]

    @classmethod
    def fit(
        cls, stations: Stations, y: Float[ndarray, "n d"], many: Bool[ndarray, "d"], around: Float[ndarray, "n d"],
        variance: Float[ndarray, "n d"], size: Float[ndarray, "d"], dependence: Float[ndarray, "d"],
        before: "StationUnits | None" = None,
    ) -> "StationUnits":  # fmt: skip
        """Fit to values y, given what the other stations say of their anomalies: `around`, with the variance that is
        left; `size` are mean squares of anomalies in the observed rows, and `dependence` observations that are worth an
        independent one. The field of levels and scales is that of stations with `many` observations."""
        seen = ~np.isnan(y)
        number = seen.sum(0)
        total = np.maximum(number, 1)
        own = np.where(seen, y, 0).sum(0) / total
        squares = np.where(seen, np.square(y - own), 0).sum(0)
        spread = np.sqrt(squares / total)
        typical = np.sqrt(np.mean(np.square(spread[many]))) or 1.0
        varies = many & (spread > 1e-6 * typical)
        level, scale = (own, spread) if before is None else (before.level, before.scale)
        near_level, near_level_std = krige_field(stations, np.where(many, level, np.nan))
        logarithm = np.log(np.where(varies, scale, typical))
        near_scale, near_scale_std = krige_field(stations, np.where(varies, logarithm, np.nan if varies.any() else 0))
        near_scale = np.exp(near_scale)
        prior = dependence / (2 * np.square(near_scale_std).clip(_MIN_SPREAD))  # in observations
        scale = np.sqrt((squares + prior * near_scale**2) / (number * size + prior))
        scale_variance = np.square(near_scale_std) * prior / (number * size + prior)
        left = np.where(number > 0, np.where(seen, variance, 0).sum(0) / total, 1)
        prior = dependence * left * scale**2 / np.maximum(near_level_std**2, 1e-12 * typical**2)
        level = (np.where(seen, y - scale * around, 0).sum(0) + prior * near_level) / (number + prior)
        level_variance = near_level_std**2 * prior / (number + prior)
        return cls(level, level_variance, scale, scale_variance, near_level, near_level_std, near_scale, near_scale_std)


def measure_dependence(rest: Float[ndarray, "n d"], many: Bool[ndarray, "d"]) -> Float[ndarray, "d"]:
    """Return how many observations of each station are worth one independent of them, for the mean of its residuals,
    NaN where missing: by the means of windows, as long as its record, of the stations with `many` observations."""
    n, seen = len(rest), ~np.isnan(rest)
    sums = np.concatenate([np.zeros((1, rest.shape[1])), np.where(seen, rest, 0).cumsum(0)])[:, many]
    counts = np.concatenate([np.zeros((1, rest.shape[1])), seen.cumsum(0)])[:, many]
    variance = np.nanmean(np.square(rest)) if seen.any() else 1.0
    lengths, shares = [1], [1.0]
    while 4 * lengths[-1] <= n:
        length = 2 * lengths[-1]
        total, count = sums[length:] - sums[:-length], counts[length:] - counts[:-length]
        full = count >= length / 2
        if not full.any():
            break
        square = np.square(total[full] / count[full]).mean() / max(variance, 1e-300)
        lengths.append(length)
        shares.append(min(square, shares[-1]))
    lengths, shares = [*lengths, n], [*shares, 1e-6]  # the level is that of all rows
    first, last = seen.argmax(0), n - 1 - seen[::-1].argmax(0)
    share = np.exp(np.interp(np.log(last - first + 1), np.log(lengths), np.log(np.maximum(shares, 1e-6))))
    return 1 + seen.sum(0) * share
