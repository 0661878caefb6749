"""Processes in space: locations of stations, correlations by distance, and kriging of rows and of fields."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

EARTH_RADIUS = 6371.0088  # km
_NEIGHBOURS = 16  # stations that another is predicted from
_MIN_COMMON = 5.0  # rows of two stations, from which on their correlation counts
_PAIR_SPREAD = 0.05  # variance of correlations around a function of distance, in the weights of its fit
_MAX_CORRELATION = 0.999
_LENGTHS = 20  # on the grid that ℓ is chosen from
_LAGS = (1, 2, 4, 8, 16, 32, 64)
MAX_NOISE = 0.9  # variance of an interpolated value, in that of the series, up to which it informs others
_BATCH_ROWS = 4_096


@dataclass(frozen=True)
class Stations:
    """Locations of the columns of a sheet: Euclidean `points`, of longitude and latitude the points of a sphere in km,
    and a third coordinate `height` in another unit. Columns of one `variable` are stations of one process."""

    points: Float[ndarray, "d k"]
    variable: Int[ndarray, "d"]
    height: Float[ndarray, "d"] | None = None
    unit: str = ""

    @classmethod
    def on_sphere(
        cls, lon: Float[ndarray, "d"], lat: Float[ndarray, "d"], variable: Int[ndarray, "d"],
        height: Float[ndarray, "d"] | None = None,
    ) -> "Stations":  # fmt: skip
        """Return stations at longitudes and latitudes in degrees."""
        lon, lat = np.radians(lon), np.radians(lat)
        points = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)
        return cls(EARTH_RADIUS * points, variable, height, "km")

    def distances(self) -> Float[ndarray, "d d"]:
        """Return horizontal distances, of points of a sphere those along great circles."""
        straight = measure_distances(self.points)
        if self.unit != "km":
            return straight
        return 2 * EARTH_RADIUS * np.arcsin(np.minimum(straight / (2 * EARTH_RADIUS), 1))

    def format_distance(self, distance: float) -> str:
        """Return a distance with its unit, in three digits or whole.

        >>> stations = Stations.on_sphere(np.array([0.0, 20.0]), np.zeros(2), np.zeros(2, dtype=int))
        >>> stations.format_distance(stations.distances()[0, 1]), stations.format_distance(1.234)
        ('2,224 km', '1.23 km')
        """
        number = f"{distance:.3g}" if distance < 999.5 else f"{distance:,.0f}"
        return f"{number} {self.unit}".rstrip()

    def select(self, columns: ndarray) -> "Stations":
        height = None if self.height is None else self.height[columns]
        return Stations(self.points[columns], self.variable[columns], height, self.unit)


def measure_distances(points: Float[ndarray, "d k"]) -> Float[ndarray, "d d"]:
    return np.sqrt(np.square(points[:, None] - points[None]).sum(-1))


def complete_along(
    x: Float[ndarray, "n"], z: Float[ndarray, "n d"]
) -> tuple[Float[ndarray, "n d"], Float[ndarray, "n d"]]:
    """Interpolate each column of anomalies between its observations, and return the variances of that: 0 where
    observed, elsewhere by the variogram of all columns along x, at most 1."""
    n, d = z.shape
    seen, filled, size = ~np.isnan(z), np.where(np.isnan(z), 0, z), np.zeros((n, d))
    lags: list[list[tuple[float, float]]] = [[] for _ in _LAGS]
    for j in range(d):
        at = np.flatnonzero(seen[:, j])
        if not len(at):
            size[:, j] = np.inf
            continue
        filled[:, j] = np.interp(x, x[at], z[at, j])
        after = np.searchsorted(at, np.arange(n))
        right = x[at[np.minimum(after, len(at) - 1)]] - x
        before = x - x[at[np.maximum(after - 1, 0)]]
        within = (after > 0) & (after < len(at)) & (before + right > 0)
        both = before * right / np.where(within, before + right, 1)
        size[:, j] = np.where(seen[:, j], 0, np.where(within, both, 0))
        outside = (after == 0) | (after == len(at))
        size[outside, j] = np.where(seen[outside, j], 0, np.maximum(np.abs(before), np.abs(right))[outside])
        for lag, found in zip(_LAGS, lags, strict=True):
            if len(at) > lag:
                found.append(
                    (np.median(x[at[lag:]] - x[at[:-lag]]), np.mean(np.square(z[at[lag:], j] - z[at[:-lag], j])))
                )
    points = [(0.0, 0.0), *(tuple(np.mean(found, 0)) for found in lags if found)]
    lengths, squares = np.array(sorted(points)).T
    noise = np.interp(size, lengths, np.maximum.accumulate(squares)) if len(points) > 1 else np.ones((n, d))
    noise = np.where(seen, 0, np.clip(noise, 1e-3, 1))
    return filled, noise


def fit_correlation(
    stations: Stations, z: Float[ndarray, "n d"], noise: Float[ndarray, "n d"]
) -> Float[ndarray, "d d"]:
    """Return the correlations of stations by distance: c + b k(h / ℓ) of least squares to those of all pairs."""
    d = len(stations.points)
    weight = np.square(1 - noise)
    common = weight.T @ weight
    squares = (weight * np.square(z)).T @ weight
    correlation = (weight * z).T @ (weight * z) / np.sqrt(np.maximum(squares * squares.T, 1e-12))
    first, second = np.triu_indices(d, 1)
    pairs = common[first, second] >= _MIN_COMMON
    if not pairs.any():
        return np.eye(d)
    r, n = np.clip(correlation[first, second][pairs], -1, 1), common[first, second][pairs]
    precision = 1 / (_PAIR_SPREAD + 1 / n)
    horizontal = measure_distances(stations.points)
    best, chosen = np.inf, np.eye(d)
    for distance in _with_height(horizontal, stations.height):
        far = distance[first, second]
        farthest = float(far.max()) or 1.0
        smallest = max(float(np.quantile(far, 0.02)), 1e-3 * farthest)
        for length in np.geomspace(0.3 * smallest, 5 * farthest, _LENGTHS):
            for form in (_exponential, _matern):
                near = form(far[pairs] / length)
                share, constant = _fit_shares(near, r, precision)
                error = float((precision * np.square(constant + share * near - r)).sum())
                if error < best * (1 - 1e-9):
                    best, chosen = error, constant + share * form(distance / length)
    np.fill_diagonal(chosen, 1)
    return chosen


def _with_height(horizontal: Float[ndarray, "d d"], height: Float[ndarray, "d"] | None) -> list[Float[ndarray, "d d"]]:
    """Return distances for each of several scales of the third coordinate."""
    if height is None or not np.ptp(height):
        return [horizontal]
    vertical = np.abs(height[:, None] - height)
    scale = horizontal.max() / vertical.max() if horizontal.max() else 1.0
    return [np.hypot(horizontal, ratio * scale * vertical) for ratio in (0.0, 0.1, 0.3, 1.0, 3.0)]


def _exponential(r: ndarray) -> ndarray:
    return np.exp(-r)


def _matern(r: ndarray) -> ndarray:
    return (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)


def _fit_shares(near: Float[ndarray, "p"], r: Float[ndarray, "p"], weight: Float[ndarray, "p"]) -> tuple[float, float]:
    """Return b and c of least squares, both at least 0 and together less than 1."""
    mean_near, mean = np.average(near, weights=weight), np.average(r, weights=weight)
    spread = float((weight * np.square(near - mean_near)).sum())
    share = float((weight * (near - mean_near) * (r - mean)).sum()) / spread if spread > 1e-9 else 0.0
    constant = mean - share * mean_near
    if share < 0:
        share, constant = 0.0, mean
    if constant < 0:
        share, constant = float((weight * near * r).sum() / max((weight * near**2).sum(), 1e-12)), 0.0
    if share + constant > _MAX_CORRELATION:  # (r − most) = share (near − 1)
        below = near - 1
        share = float((weight * below * (r - _MAX_CORRELATION)).sum() / max((weight * below**2).sum(), 1e-12))
        share = float(np.clip(share, 0, _MAX_CORRELATION))
        constant = _MAX_CORRELATION - share
    return max(share, 0.0), float(np.clip(constant, 0, _MAX_CORRELATION))


def predict_rows(
    z: Float[ndarray, "n d"], noise: Float[ndarray, "n d"], correlation: Float[ndarray, "d d"]
) -> tuple[Float[ndarray, "n d"], Float[ndarray, "n d"]]:
    """Predict each column of anomalies from the others of its row: mean and variance, in the variance of a column."""
    n, d = z.shape
    mean, variance = np.zeros((n, d)), np.ones((n, d))
    useful = noise < MAX_NOISE
    for j in range(d):
        others = np.flatnonzero(useful.any(0) & (np.arange(d) != j) & (correlation[j] > 1e-6))
        others = others[np.argsort(-correlation[j, others], kind="stable")[:_NEIGHBOURS]]
        if not len(others):
            continue
        errors = np.where(useful[:, others], noise[:, others], 1e6)
        patterns, which = np.unique(errors, axis=0, return_inverse=True)
        which, weights = which.ravel(), np.empty(patterns.shape)
        inner, cross = correlation[np.ix_(others, others)], correlation[j, others]
        for start in range(0, len(patterns), _BATCH_ROWS):
            part = patterns[start : start + _BATCH_ROWS]
            covariance = inner + part[:, :, None] * np.eye(len(others))
            weights[start : start + _BATCH_ROWS] = np.linalg.solve(
                covariance, np.tile(cross, (len(part), 1))[..., None]
            )[..., 0]
        mean[:, j] = (weights[which] * np.where(useful[:, others], z[:, others], 0)).sum(1)
        variance[:, j] = np.maximum(1 - weights @ cross, 1e-6)[which]
    return mean, variance


def krige_field(stations: Stations, values: Float[ndarray, "d"]) -> tuple[Float[ndarray, "d"], Float[ndarray, "d"]]:
    """Predict a value of each station, NaN where unknown, from those of the others: means and standard deviations.

    A plane through all of them and a process of the distance, whose length and noise leave the least error.
    """
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 2:
        return np.full(len(values), values[known].mean() if len(known) else 0.0), np.ones(len(values))
    points = stations.points if stations.height is None else np.column_stack([stations.points, stations.height])
    sizes = np.std(points, 0)
    plane = np.column_stack([np.full(len(points), 3.0), ((points - points.mean(0)) / np.where(sizes > 0, sizes, 1))])
    trend = 4 * plane @ plane.T
    size = np.std(values[known]) or 1e-12
    level = values[known].mean()
    y = (values[known] - level) / size
    best, result = np.inf, (np.zeros(len(values)), np.ones(len(values)))
    for distance in _with_height(measure_distances(stations.points), stations.height):
        for length in np.geomspace(0.02, 2, 6) * (distance.max() or 1.0):
            for noise in (0.02, 0.2, 1.0):
                prior = trend + _exponential(distance / length)
                covariance = prior[np.ix_(known, known)] + noise * np.eye(len(known))
                inverse = np.linalg.inv(covariance)
                error = inverse @ y / inverse.diagonal()
                if np.square(error).mean() < best * (1 - 1e-9):
                    best = np.square(error).mean()
                    cross = prior[:, known]
                    mean, variance = cross @ inverse @ y, prior.diagonal() + noise
                    variance = variance - np.einsum("ij,jk,ik->i", cross, inverse, cross)
                    mean[known], variance[known] = y - error, 1 / inverse.diagonal()
                    scale = np.mean(np.square(error) * inverse.diagonal())
                    result = mean, np.sqrt(np.maximum(scale * variance, 1e-12))
    return level + size * result[0], size * result[1]
