"""Values that have a range: they are bent to the whole line, filled there, and bent back, so that no band leaves it.

Between two bounds by the logarithm of the odds; above one by the inverse of softplus, which leaves values far from the
bound as they are (300 K stay 300 K) and is a logarithm near it. A value on the bound is allowed for: the range is taken
a little wider than it is, and what lies beyond it is the bound itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import expit, logit

from fillin.errors import InputError, UnknownName
from fillin.predictive import Answer

Bounds = tuple[float | None, float | None]
_ALLOWANCE = 0.02  # of the spread of what is known
_FAR = 40.0  # spreads
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def parse_bounds(text: str) -> tuple[str, Bounds]:
    """(column or "", (low, high)) of what was written on a command line.

    >>> parse_bounds("0:"), parse_bounds("share=0:1")
    (('', (0.0, None)), ('share', (0.0, 1.0)))
    """
    name, _, limits = text.rpartition("=")
    low, colon, high = limits.partition(":")
    try:
        found = float(low) if low.strip() else None, float(high) if high.strip() else None
    except ValueError:
        colon, found = "", (None, None)
    if not colon or found == (None, None) or any(limit != limit for limit in found):
        raise InputError(f"--bounds: {text!r} is no range; write 0: or 0:1 or :100, for one column NAME=0:1")
    return name.strip(), found


def bounds_of(columns: list[str], bounds: Bounds | Mapping[str, Bounds] | None) -> dict[str, Bounds]:
    """Of each column, from one pair for all or a pair a name ("": all others)."""
    if bounds is None:
        return {}
    named = bounds if isinstance(bounds, Mapping) else {"": bounds}
    for name, pair in named.items():
        if name and name not in columns:
            raise UnknownName("column to fill, in bounds,", name, columns)
        low, high = _pair(pair)
        if low is not None and high is not None and not low < high:
            raise InputError(f"bounds: the lower must be below the upper, got {low:g}:{high:g}")
    found = {column: named.get(column, named.get("")) for column in columns}
    return {column: _pair(pair) for column, pair in found.items() if pair is not None}


def _pair(pair: Bounds) -> Bounds:
    try:
        low, high = (None if limit is None or np.isinf(limit) else float(limit) for limit in pair)
        if low != low or high != high:  # NaN is no bound, and no lack of one
            raise ValueError
    except (TypeError, ValueError):
        raise InputError(f"bounds must be a pair such as (0, None) or (0, 1), got {pair!r}") from None
    return low, high


@dataclass(frozen=True)
class Bend:
    """y ↔ z on the whole line; `low` and `high` are the bounds that bend it, `least` and `most` those that hold."""

    low: float | None = None
    high: float | None = None
    scale: float = 1.0
    allowance: float = 0.0
    least: float = -np.inf
    most: float = np.inf

    @classmethod
    def of(cls, known: Float[ndarray, "n"], bounds: Bounds) -> "Bend":
        """A bound that lies very far from all that is known holds, and bends nothing."""
        spread = float(known.std())
        far = _FAR * spread or np.inf
        low = None if bounds[0] is None or known.min() - bounds[0] > far else bounds[0]
        high = None if bounds[1] is None or bounds[1] - known.max() > far else bounds[1]
        hold = -np.inf if bounds[0] is None else bounds[0], np.inf if bounds[1] is None else bounds[1]
        if low is not None and high is not None:
            allowance = _ALLOWANCE * (spread or 0.5 * (high - low))
            return cls(low, high, high - low + 2 * allowance, allowance, *hold)
        if low is None and high is None:
            return cls(None, None, 1.0, 0.0, *hold)
        off = float(np.median(np.abs(known - (low if low is not None else high))))
        scale = min(spread or off, off or spread) or 1.0
        return cls(low, high, scale, _ALLOWANCE * scale, *hold)

    @property
    def straight(self) -> bool:
        """No bound at all: y is z."""
        return self.least == -np.inf and self.most == np.inf

    def to(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        u, sign = self._unit(y)
        if self.low is not None and self.high is not None:
            return logit(u)
        return y if not sign else sign * self.scale * (u + np.log(-np.expm1(-u)))

    def back(self, z: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        y = z
        if self.low is not None and self.high is not None:
            y = self.low - self.allowance + self.scale * expit(z)
        elif self.low is not None:
            y = self.low - self.allowance + self.scale * np.logaddexp(0, z / self.scale)
        elif self.high is not None:
            y = self.high + self.allowance - self.scale * np.logaddexp(0, -z / self.scale)
        return np.clip(y, self.least, self.most)

    def slope(self, y: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
        """dz/dy."""
        u, sign = self._unit(y)
        if self.low is not None and self.high is not None:
            return 1 / (self.scale * u * (1 - u))
        return np.ones_like(y) if not sign else -1 / np.expm1(-u)

    def _unit(self, y: ndarray) -> tuple[ndarray, int]:
        """The distance from the bound in scales, and 1 above it, −1 below it, 0 without."""
        if self.low is not None:
            return (y - self.low + self.allowance) / self.scale, 1
        if self.high is not None:
            return (self.high - y + self.allowance) / self.scale, -1
        return y, 0


@dataclass(frozen=True)
class Belief:
    """What is believed of y where z, its bent value, has the distribution `given`; one output."""

    given: Answer
    bend: Bend

    def quantile(self, q: float) -> Float[ndarray, "n"]:
        return self.bend.back(self.given.quantile(q)[:, 0])

    def quantiles(self, levels: Float[ndarray, "q"]) -> Float[ndarray, "q n"]:
        n = len(self.given.means)
        each = self.given[np.tile(np.arange(n), len(levels))]
        return self.bend.back(each.quantile(np.repeat(levels, n)[:, None])[:, 0]).reshape(len(levels), n)

    def moments(self) -> tuple[Float[ndarray, "n"], Float[ndarray, "n"]]:
        """Mean and standard deviation of what is likely: exact, or of bent values by quadrature over each normal."""
        if self.bend.straight:
            return self.given.mean[:, 0], self.given.std[:, 0]
        given = self.given
        weights, means, deviations = (part[:, 0] for part in (given.likely, given.means, given.deviations))
        y = self.bend.back(means[..., None] + deviations[..., None] * _NODES)  # [n k nodes]
        share = weights[..., None] * _WEIGHTS
        mean = (share * y).sum((-1, -2))
        return mean, np.sqrt((share * (y - mean[:, None, None]) ** 2).sum((-1, -2)))
