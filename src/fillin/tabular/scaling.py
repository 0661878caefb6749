"""Numbers of a column in units that a network likes: learnt on what is known, undone exactly."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError, choose

KNOTS = 64  # at most
_RELATIVE, _OF_GAPS = 1e-12, 1e-9  # knots that are nearer to each other than this are one
_TINY = 1e-150  # what is narrower is nothing


@dataclass(frozen=True)
class Scale:
    """z = s_j + (y − k_j) / w_j between the knots k_j and k_{j+1}: straight, rising, with an inverse.

    w_0 and w_K are the widths of the tails, below the first knot and above the last. One knot, the mean, with the
    deviation as both widths standardises.

    >>> scale = Scale.learn(np.array([1.0, 3.0, np.nan]))
    >>> scale.forward(np.array([1.0, 5.0])).tolist(), scale.inverse(np.array([3.0])).tolist()
    ([-1.0, 3.0], [5.0])
    """

    knots: tuple[float, ...]  # k_1 … k_K, rising
    scores: tuple[float, ...]  # s_1 … s_K, rising
    widths: tuple[float, ...]  # dy/dz: w_0 … w_K

    @classmethod
    def learn(cls, values: Float[ndarray, "n"], how: str = "standard") -> "Scale":
        """Of the values that are not NaN. "standard" is mean and deviation; "quantile", for heavy tails, takes them to
        the scores that a normal sample would have."""
        choose("scale", how, ("standard", "quantile"))
        known = values[~np.isnan(values)]
        scale = _quantile(known) if how == "quantile" else None
        return scale or _standard(known)

    def forward(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        return self._along(y, self.knots, self.scores, 1 / np.array(self.widths))

    def inverse(self, z: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        return self._along(z, self.scores, self.knots, np.array(self.widths))

    def log_slope(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        """ln dz/dy: what is added to ln p(z) to give ln p(y). NaN where y is."""
        part = np.searchsorted(self.knots, y, side="right")
        return np.where(np.isnan(y), np.nan, -np.log(self.widths)[part])

    def _along(self, at: ndarray, start: tuple[float, ...], end: tuple[float, ...], slope: ndarray) -> ndarray:
        part = np.searchsorted(start, at, side="right")
        knot = np.maximum(part - 1, 0)
        found = np.array(end)[knot] + (at - np.array(start)[knot]) * slope[part]
        return np.minimum(found, np.array([*end, np.inf])[part])  # rounded, it may not reach the next part

    def to_dict(self) -> dict[str, list[float]]:
        """For JSON."""
        return {"knots": [*self.knots], "scores": [*self.scores], "widths": [*self.widths]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Scale":
        try:
            return cls(*(tuple(float(v) for v in data[name]) for name in ("knots", "scores", "widths")))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is not what Scale.to_dict gave ({error!r}); save it again") from error


def _standard(known: Float[ndarray, "n"]) -> Scale:
    """Where nothing varies the unit is the value itself, or 1."""
    if not len(known):
        return Scale((0.0,), (0.0,), (1.0, 1.0))
    largest = float(np.abs(known).max()) or 1.0  # squares neither overflow nor vanish
    mean, deviation = float((known / largest).mean()) * largest, float((known / largest).std()) * largest
    if np.ptp(known) <= _RELATIVE * largest or deviation < _TINY:
        mean, deviation = float(known[0]), max(abs(float(known[0])), _TINY) if known[0] else 1.0
    return Scale((mean,), (0.0,), (deviation, deviation))


def _quantile(known: Float[ndarray, "n"]) -> Scale | None:
    """Knots at up to 64 quantiles, at most about √n, so that a part holds points enough to tell its slope; closer
    towards the ends, at p = sin²(πt/2). Ties are one knot, at the middle of their ranks. The tails are as steep as
    the parts beside them, and never steeper than the whole, else what lies a little outside would go far away."""
    if not len(known):
        return None
    values, counts = np.unique(known, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / len(known)
    wanted = np.sin(np.linspace(0, np.pi / 2, min(KNOTS, 2 + round(len(known) ** 0.5)))) ** 2
    knots = _apart(np.unique(np.searchsorted(middle, np.clip(wanted, middle[0], middle[-1]))), values)
    if len(knots) < 2:
        return None
    y, z = values[knots], np.array([NormalDist().inv_cdf(p) for p in middle[knots].tolist()])
    inner = np.diff(y) / np.diff(z)
    whole = (y[-1] - y[0]) / (z[-1] - z[0])
    widths = (max(inner[0], whole), *inner, max(inner[-1], whole))
    return Scale(tuple(y.tolist()), tuple(z.tolist()), tuple(map(float, widths)))


def _apart(knots: ndarray, values: Float[ndarray, "n"]) -> list[int]:
    """Those that numbers can tell apart."""
    least = _OF_GAPS * np.median(np.diff(values[knots])) if len(knots) > 1 else 0.0
    kept = [int(knots[0])]
    for knot in knots[1:].tolist():
        low, high = values[kept[-1]], values[knot]
        if high - low > max(least, _RELATIVE * max(abs(low), abs(high)), _TINY):
            kept.append(knot)
    return kept
