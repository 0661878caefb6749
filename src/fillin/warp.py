"""Monotone transforms z = forward(y) between the values y of a column and the units z in which a model predicts.

`log_slope` is ln dz/dy, which is added to ln p(z) to give ln p(y); `unit` is dy/dz where the transform is affine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import expit, logit, ndtri

from fillin.errors import InputError, choose

MAX_KNOTS = 64
_MIN_KNOT_GAP = 1e-12  # relative to the values; closer knots are one
_MIN_GAP_OF_MEDIAN = 1e-9  # relative to the median gap between knots
_MIN_STD = 1e-150  # a narrower column is constant
_ALLOWANCE = 0.02  # by which bounds are widened, in standard deviations of the observed values
_FAR = 40.0  # standard deviations beyond which a bound only clips

Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class PiecewiseLinearWarp:
    """z = s_j + (y − k_j) / w_j between the knots k_j and k_{j+1}: increasing, with an exact inverse.

    w_0 and w_K are the widths of the tails, below the first knot and above the last. One knot at the mean, with the
    standard deviation as both widths, standardises.

    >>> warp = PiecewiseLinearWarp.fit(np.array([1.0, 3.0, np.nan]))
    >>> warp.forward(np.array([1.0, 5.0])).tolist(), warp.inverse(np.array([3.0])).tolist()
    ([-1.0, 3.0], [5.0])
    """

    knots: tuple[float, ...]  # k_1 … k_K, increasing
    scores: tuple[float, ...]  # s_1 … s_K, increasing
    widths: tuple[float, ...]  # dy/dz: w_0 … w_K

    @classmethod
    def fit(cls, values: Float[ndarray, "n"], method: str = "standard") -> "PiecewiseLinearWarp":
        """Fit to the values that are not NaN: "standard" uses mean and standard deviation, "quantile" (for heavy
        tails) maps quantiles to those of a normal distribution."""
        choose("scale", method, ("standard", "quantile"))
        observed = values[~np.isnan(values)]
        warp = _fit_quantiles(observed) if method == "quantile" else None
        return warp or _fit_standard(observed)

    @property
    def is_affine(self) -> bool:
        return len(self.knots) == 1

    @property
    def unit(self) -> float:
        return self.widths[0]

    def forward(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        return self._interpolate(y, self.knots, self.scores, 1 / np.array(self.widths))

    def inverse(self, z: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        return self._interpolate(z, self.scores, self.knots, np.array(self.widths))

    def log_slope(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        """Return ln dz/dy; NaN where y is NaN."""
        segment = np.searchsorted(self.knots, y, side="right")
        return np.where(np.isnan(y), np.nan, -np.log(self.widths)[segment])

    def _interpolate(self, at: ndarray, start: tuple[float, ...], end: tuple[float, ...], slope: ndarray) -> ndarray:
        segment = np.searchsorted(start, at, side="right")
        knot = np.maximum(segment - 1, 0)
        result = np.array(end)[knot] + (at - np.array(start)[knot]) * slope[segment]
        return np.minimum(result, np.array([*end, np.inf])[segment])  # rounding must not reach the next segment

    def to_dict(self) -> dict[str, list[float]]:
        """Return a JSON-serialisable dict."""
        return {"knots": [*self.knots], "scores": [*self.scores], "widths": [*self.widths]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PiecewiseLinearWarp":
        try:
            return cls(*(tuple(float(v) for v in data[name]) for name in ("knots", "scores", "widths")))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the scale of a column cannot be read ({error!r}); save the estimator again") from error


def _fit_standard(observed: Float[ndarray, "n"]) -> PiecewiseLinearWarp:
    """Mean and standard deviation. The unit of a constant column is its value, or 1 where that is 0."""
    if not len(observed):
        return PiecewiseLinearWarp((0.0,), (0.0,), (1.0, 1.0))
    largest = float(np.abs(observed).max()) or 1.0  # squares neither overflow nor underflow
    mean, std = float((observed / largest).mean()) * largest, float((observed / largest).std()) * largest
    if np.ptp(observed) <= _MIN_KNOT_GAP * largest or std < _MIN_STD:
        mean, std = float(observed[0]), max(abs(float(observed[0])), _MIN_STD) if observed[0] else 1.0
    return PiecewiseLinearWarp((mean,), (0.0,), (std, std))


def _fit_quantiles(observed: Float[ndarray, "n"]) -> PiecewiseLinearWarp | None:
    """Knots at up to 64 quantiles, about √n, so that each segment holds enough points for its slope; denser towards
    the ends, at p = sin²(πt/2). Ties are one knot, at the middle of their ranks. The tails are as steep as the segments
    beside them, and never steeper than the whole, or values a little outside would go far away."""
    if not len(observed):
        return None
    values, counts = np.unique(observed, return_counts=True)
    middle_rank = (np.cumsum(counts) - counts / 2) / len(observed)
    levels = np.sin(np.linspace(0, np.pi / 2, min(MAX_KNOTS, 2 + round(len(observed) ** 0.5)))) ** 2
    levels = np.clip(levels, middle_rank[0], middle_rank[-1])
    knots = _separate_knots(np.unique(np.searchsorted(middle_rank, levels)), values)
    if len(knots) < 2:
        return None
    y, z = values[knots], ndtri(middle_rank[knots])
    inner = np.diff(y) / np.diff(z)
    overall = (y[-1] - y[0]) / (z[-1] - z[0])
    widths = (max(inner[0], overall), *inner, max(inner[-1], overall))
    return PiecewiseLinearWarp(tuple(y.tolist()), tuple(z.tolist()), tuple(map(float, widths)))


def _separate_knots(knots: ndarray, values: Float[ndarray, "n"]) -> list[int]:
    """The knots that float64 can distinguish."""
    least = _MIN_GAP_OF_MEDIAN * np.median(np.diff(values[knots])) if len(knots) > 1 else 0.0
    kept = [int(knots[0])]
    for knot in knots[1:].tolist():
        low, high = values[kept[-1]], values[knot]
        if high - low > max(least, _MIN_KNOT_GAP * max(abs(low), abs(high)), _MIN_STD):
            kept.append(knot)
    return kept


@dataclass(frozen=True)
class BoundsWarp:
    """Values with a range: mapped to the real line, predicted there and mapped back, so that no interval leaves it.

    Two bounds use the logit; one bound the inverse of softplus, which leaves values far from the bound as they are
    (300 K stay 300 K) and is a logarithm near it. The range is widened by `allowance`, so that observed values on the
    bound stay finite; results are clipped to [`minimum`, `maximum`].
    """

    low: float | None = None  # bounds of the nonlinear transform
    high: float | None = None
    scale: float = 1.0
    allowance: float = 0.0
    minimum: float = -np.inf  # the bounds that hold
    maximum: float = np.inf

    @classmethod
    def fit(cls, observed: Float[ndarray, "n"], bounds: Bounds) -> "BoundsWarp":
        """Fit to the observed values. A bound that is very far from all of them only clips."""
        std = float(observed.std())
        far = _FAR * std or np.inf
        low = None if bounds[0] is None or observed.min() - bounds[0] > far else bounds[0]
        high = None if bounds[1] is None or bounds[1] - observed.max() > far else bounds[1]
        limits = -np.inf if bounds[0] is None else bounds[0], np.inf if bounds[1] is None else bounds[1]
        if low is not None and high is not None:
            allowance = _ALLOWANCE * (std or 0.5 * (high - low))
            return cls(low, high, high - low + 2 * allowance, allowance, *limits)
        if low is None and high is None:
            return cls(None, None, 1.0, 0.0, *limits)
        distance = float(np.median(np.abs(observed - (low if low is not None else high))))
        scale = min(std or distance, distance or std) or 1.0
        return cls(low, high, scale, _ALLOWANCE * scale, *limits)

    @property
    def is_affine(self) -> bool:
        """Whether there is no bound, so that y = z."""
        return self.minimum == -np.inf and self.maximum == np.inf

    @property
    def unit(self) -> float:
        return 1.0

    def forward(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        u, sign = self._distance(y)
        if self.low is not None and self.high is not None:
            return logit(u)
        return y if not sign else sign * self.scale * (u + np.log(-np.expm1(-u)))

    def inverse(self, z: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        y = z
        if self.low is not None and self.high is not None:
            y = self.low - self.allowance + self.scale * expit(z)
        elif self.low is not None:
            y = self.low - self.allowance + self.scale * np.logaddexp(0, z / self.scale)
        elif self.high is not None:
            y = self.high + self.allowance - self.scale * np.logaddexp(0, -z / self.scale)
        return np.clip(y, self.minimum, self.maximum)

    def slope(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        """dz/dy."""
        u, sign = self._distance(y)
        if self.low is not None and self.high is not None:
            return 1 / (self.scale * u * (1 - u))
        return np.ones_like(y) if not sign else -1 / np.expm1(-u)

    def log_slope(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        return np.log(self.slope(y))

    def _distance(self, y: ndarray) -> tuple[ndarray, int]:
        """The distance from the bound in units of `scale`; and 1 above a bound, −1 below it, 0 without one."""
        if self.low is not None:
            return (y - self.low + self.allowance) / self.scale, 1
        if self.high is not None:
            return (self.high - y + self.allowance) / self.scale, -1
        return y, 0


Warp = PiecewiseLinearWarp | BoundsWarp
