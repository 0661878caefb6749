"""Predictive distributions of numbers (a Gaussian mixture) and classes, float64 arrays over any batch `*b`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.special import ndtr, ndtri

from fillin.errors import InputError, InputTypeError
from fillin.warp import Warp

MAX_MAGNITUDE = 1e300  # beyond it a value overflows float64 arithmetic
HALF_WIDTH_95 = 1.96  # of a central 95 % interval of a normal distribution, in standard deviations
MAX_CLASSES = 100  # of a column of a table; rarer ones share one code
_RARE_WEIGHT = 0.01  # components below it do not count towards mean and standard deviation
_SMALL_WEIGHT, _FAR_STDS = 0.1, 4.0  # below and beyond which `trimmed` leaves a component out
_QUARTILES_APART = 1.349  # of a normal distribution, in standard deviations
_QUANTILE_ROUNDS = 100  # of the search for a quantile, at the most
_SEARCH_STDS = 40  # a quantile lies within so many standard deviations of a component
_PRECISION, _ROUNDING = 1e-9, 4e-16  # of a quantile, in the smallest standard deviation and relative to its size
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
_MAX_NODES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class GaussianMixture:
    """z ~ Σ_k weight_k Normal(mean_k, std_k), and y = warp⁻¹(z) where there is a monotone transform.

    Mean and standard deviation are taken with `moment_weights`. By default these are the weights without components
    below 1 %: a component of weight 1/2000 that is a hundred times as wide would double the standard deviation by
    itself, while it belongs in the tails of the density.

    >>> mixture = GaussianMixture(np.array([[0.5, 0.5]]), np.array([[-1.0, 1.0]]), np.array([[1.0, 1.0]]))
    >>> mixture.mean.tolist(), mixture.cdf(np.array([0.0])).tolist()
    ([0.0], [0.5])
    """

    weights: Float[ndarray, "*b k"]
    means: Float[ndarray, "*b k"]
    stds: Float[ndarray, "*b k"]
    moment_weights: Float[ndarray, "*b k"] | None = None
    warp: Warp | None = None

    @property
    def _moment_weights(self) -> Float[ndarray, "*b k"]:
        if self.moment_weights is not None:
            return self.moment_weights
        kept = np.where(self.weights < _RARE_WEIGHT, 0, self.weights)
        return kept / kept.sum(-1, keepdims=True)

    @property
    def mean(self) -> Float[ndarray, "*b"]:
        if self.warp is not None and not self.warp.is_affine:
            return self.moments()[0]
        mean = (self._moment_weights * self.means).sum(-1)
        return mean if self.warp is None else self.warp.inverse(mean)

    @property
    def std(self) -> Float[ndarray, "*b"]:
        if self.warp is not None and not self.warp.is_affine:
            return self.moments()[1]
        weights = self._moment_weights
        offset = self.means - (weights * self.means).sum(-1)[..., None]
        size = np.maximum(self.stds, np.abs(offset)).max(-1, keepdims=True)  # squares of 1e-200 would underflow
        size = np.where(size > 0, size, 1)
        std = size[..., 0] * np.sqrt((weights * ((self.stds / size) ** 2 + (offset / size) ** 2)).sum(-1))
        return std if self.warp is None else std * self.warp.unit

    def moments(self) -> tuple[Float[ndarray, "*b"], Float[ndarray, "*b"]]:
        """Mean and standard deviation: exact, or through a warp by Gauss–Hermite quadrature of each component."""
        warp = self.warp
        if warp is None or warp.is_affine:
            return self.mean, self.std
        weights, means, stds = (
            part.reshape(-1, part.shape[-1]) for part in (self._moment_weights, self.means, self.stds)
        )
        rows_at_once = max(1, _MAX_NODES_AT_ONCE // (means.shape[1] * len(_NODES)))
        mean, std = np.empty(len(means)), np.empty(len(means))
        for start in range(0, len(means), rows_at_once):
            rows = slice(start, start + rows_at_once)
            y = warp.inverse(means[rows, :, None] + stds[rows, :, None] * _NODES)  # [n k nodes]
            share = weights[rows, :, None] * _NODE_WEIGHTS
            mean[rows] = (share * y).sum((-1, -2))
            std[rows] = np.sqrt((share * (y - mean[rows, None, None]) ** 2).sum((-1, -2)))
        return mean.reshape(self.means.shape[:-1]), std.reshape(self.means.shape[:-1])

    def cdf(self, y: Float[ndarray, "*b"]) -> Float[ndarray, "*b"]:
        z = y if self.warp is None else self.warp.forward(y)
        return (self.weights * ndtr((z[..., None] - self.means) / self.stds)).sum(-1)

    def log_prob(self, y: Float[ndarray, "*b"]) -> Float[ndarray, "*b"]:
        """ln Σ_k weight_k Normal(z; mean_k, std_k) + ln dz/dy."""
        z = y if self.warp is None else self.warp.forward(y)
        u = (z[..., None] - self.means) / self.stds
        log = np.log(np.maximum(self.weights, 1e-300)) - 0.5 * (u**2 + np.log(2 * np.pi)) - np.log(self.stds)
        largest = log.max(-1, keepdims=True)
        density = largest[..., 0] + np.log(np.exp(log - largest).sum(-1))
        return density if self.warp is None else density + self.warp.log_slope(y)

    def quantile(self, level: float | Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """The value at which the cdf is `level` [q 1 … 1], [q *b]: a mixture has no closed form."""
        batch, size = self.means.shape[:-1], self.means.shape[-1]
        shape = np.broadcast_shapes(np.shape(level), batch)
        target = np.broadcast_to(level, shape).ravel()
        rows = np.broadcast_to(np.arange(int(np.prod(batch))).reshape(batch), shape).ravel()
        weights, means, stds = (part.reshape(-1, size) for part in (self.weights, self.means, self.stds))
        z, at_once = np.empty(len(target)), max(1, _MAX_NODES_AT_ONCE // max(1, size))
        for start in range(0, len(target), at_once):
            part = slice(start, start + at_once)
            z[part] = _find_quantiles(weights[rows[part]], means[rows[part]], stds[rows[part]], target[part])
        z = z.reshape(shape)
        return z if self.warp is None else self.warp.inverse(z)

    def quantiles(self, levels: Float[ndarray, "q"]) -> Float[ndarray, "q *b"]:
        """Several quantiles of every location."""
        return self.quantile(levels.reshape(-1, *[1] * (self.means.ndim - 1)))

    def sample(self, n_samples: int, random: np.random.Generator) -> Float[ndarray, "*b s"]:
        """Independent draws for each location."""
        component = _draw_index(self.weights, n_samples, random)
        means, stds = (np.take_along_axis(part, component, -1) for part in (self.means, self.stds))
        z = means + stds * random.normal(size=component.shape)
        return z if self.warp is None else self.warp.inverse(z)

    def draw_at(self, scores: Float[ndarray, "s *b"]) -> Float[ndarray, "s *b"]:
        """The quantiles at Φ(score): draws as correlated as the scores, whose moments are those of the distribution."""
        weights = self._moment_weights
        return replace(self, weights=weights, moment_weights=None).quantile(ndtr(scores))

    def transformed(self, warp: Warp) -> "GaussianMixture":
        """The distribution of y = warp⁻¹(z), where this one is of z."""
        return replace(self, warp=warp)

    def unwarped(self) -> "GaussianMixture":
        """The same distribution without its warp, which must be affine."""
        if self.warp is None:
            return self
        assert self.warp.is_affine
        return replace(self, means=self.warp.inverse(self.means), stds=self.stds * self.warp.unit, warp=None)

    def rescaled(self, offset: Any, scale: Any) -> "GaussianMixture":
        """The distribution of offset + scale · z."""
        return replace(self, means=offset + scale * self.means, stds=scale * self.stds)

    def widened(self, factor: Any) -> "GaussianMixture":
        """The same means with standard deviations that are `factor` times as large."""
        return replace(self, stds=self.stds * factor)

    def trimmed(self) -> "GaussianMixture":
        """The same distribution, with moments that leave out components of little weight far from the others: with a
        mean or a standard deviation beyond four times the standard deviation that the quartiles show."""
        lower, middle, upper = self.quantiles(np.array([0.25, 0.5, 0.75]))[..., None]
        limit = _FAR_STDS * (upper - lower) / _QUARTILES_APART
        far = (np.abs(self.means - middle) > limit) | (self.stds > limit)
        kept = np.where((self.weights < _SMALL_WEIGHT) & far, 0, self._moment_weights)
        return replace(self, moment_weights=kept / kept.sum(-1, keepdims=True))

    def __getitem__(self, rows: Any) -> "GaussianMixture":
        moment_weights = None if self.moment_weights is None else self.moment_weights[rows]
        return GaussianMixture(self.weights[rows], self.means[rows], self.stds[rows], moment_weights, self.warp)

    @classmethod
    def concatenate(cls, parts: Sequence["GaussianMixture"], axis: int = 0) -> "GaussianMixture":
        """Mixtures of successive rows as one; all have the same warp."""
        weights, means, stds = (
            np.concatenate([getattr(part, name) for part in parts], axis) for name in ("weights", "means", "stds")
        )
        trimmed = [part.moment_weights for part in parts]
        kept = None if any(w is None for w in trimmed) else np.concatenate([w for w in trimmed if w is not None], axis)
        return cls(weights, means, stds, kept, parts[0].warp)

    @classmethod
    def blend(cls, parts: Sequence["GaussianMixture"], shares: Float[ndarray, "p *b"]) -> "GaussianMixture":
        """Σ_p share_p mixture_p of the same locations: where the parts disagree, the standard deviation has that in it.
        Rare components are left out of the moments part by part, or a falling share would drop one after another."""
        weights, kept = (
            np.concatenate([share[..., None] * weight for share, weight in zip(shares, column, strict=True)], -1)
            for column in ([part.weights for part in parts], [part._moment_weights for part in parts])
        )
        means, stds = (np.concatenate([getattr(part, name) for part in parts], -1) for name in ("means", "stds"))
        return cls(weights, means, stds, kept, parts[0].warp)


@dataclass(frozen=True)
class Categorical:
    """Probabilities of k classes; `labels` are their names, in the same order.

    >>> Categorical(np.array([[0.2, 0.8]]), ("no", "yes")).mode.tolist()
    [1]
    """

    probabilities: Float[ndarray, "*b k"]
    labels: tuple[Any, ...] = ()

    @property
    def mode(self) -> Int[ndarray, "*b"]:
        """The code of the most probable class."""
        return self.probabilities.argmax(-1)

    @property
    def confidence(self) -> Float[ndarray, "*b"]:
        """The probability of the most probable class."""
        return self.probabilities.max(-1)

    def probability_of(self, labels: Sequence[Any]) -> Float[ndarray, "n"]:
        """The probability of one label for each row; 0 for a label that has no class."""
        code = {label: i for i, label in enumerate(self.labels)}
        rows = [self.probabilities[i, code[label]] if label in code else 0.0 for i, label in enumerate(labels)]
        return np.array(rows, dtype=float)

    def sample(self, n_samples: int, random: np.random.Generator) -> Int[ndarray, "*b s"]:
        """Codes of independent draws."""
        return _draw_index(self.probabilities, n_samples, random)

    def __getitem__(self, rows: Any) -> "Categorical":
        return replace(self, probabilities=self.probabilities[rows])

    @classmethod
    def concatenate(cls, parts: Sequence["Categorical"], axis: int = 0) -> "Categorical":
        """Probabilities of successive rows as one."""
        return cls(np.concatenate([part.probabilities for part in parts], axis), parts[0].labels)


Predictive = GaussianMixture | Categorical


def _find_quantiles(
    weights: Float[ndarray, "n k"],
    means: Float[ndarray, "n k"],
    stds: Float[ndarray, "n k"],
    level: Float[ndarray, "n"],
) -> Float[ndarray, "n"]:
    """Find where the cdf of each mixture is `level`: by Newton's method inside a bracket, which is halved where a step
    leaves it or steps do not become half as long."""
    low, high = (means - _SEARCH_STDS * stds).min(-1), (means + _SEARCH_STDS * stds).max(-1)
    middle = (weights * means).sum(-1)
    width = (weights * (stds + np.abs(means - middle[:, None]))).sum(-1)
    z = np.clip(middle + width * ndtri(level).clip(-_SEARCH_STDS, _SEARCH_STDS), low, high)
    precision = _PRECISION * stds.min(-1)
    found, pending, change = z.copy(), np.arange(len(z)), np.full_like(z, np.inf)
    done = np.zeros(len(z), dtype=bool)
    for _ in range(_QUANTILE_ROUNDS):
        u = (z[:, None] - means) / stds
        excess = (weights * ndtr(u)).sum(-1) - level
        low, high = np.where(excess < 0, z, low), np.where(excess < 0, high, z)
        slope = (weights * np.exp(-0.5 * u**2) / stds).sum(-1) / np.sqrt(2 * np.pi)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            step = z - excess / slope
        halved = ~((step >= low) & (step <= high) & (np.abs(step - z) <= change / 2))
        step = np.where(halved, low + (high - low) / 2, step)
        change = np.where(halved, high - low, np.abs(step - z))
        z = np.where(done, z, step)  # a result does not depend on the rows beside it
        done |= change <= np.maximum(precision, _ROUNDING * np.maximum(np.abs(low), np.abs(high)))
        found[pending] = z
        if done.all():
            break
        if 2 * done.sum() > len(done):
            rest = ~done
            pending, done = pending[rest], done[rest]
            z, low, high, level, change, precision, weights, means, stds = (
                part[rest] for part in (z, low, high, level, change, precision, weights, means, stds)
            )
    return found


def _draw_index(weights: Float[ndarray, "*b k"], n_samples: int, random: np.random.Generator) -> Int[ndarray, "*b s"]:
    uniform = random.random((*weights.shape[:-1], n_samples))
    return (uniform[..., None] > weights.cumsum(-1)[..., None, :-1]).sum(-1)


def check_levels(quantiles: Any) -> list[float]:
    """One probability or several as a list; None gives an empty one."""
    if quantiles is None:
        return []
    try:
        levels = np.atleast_1d(np.asarray(quantiles, dtype=float))
    except (TypeError, ValueError):
        raise InputTypeError(f"quantiles must be probabilities such as [0.025, 0.975], got {quantiles!r}") from None
    if levels.ndim > 1 or not len(levels) or not ((levels > 0) & (levels < 1)).all():
        raise InputError(f"quantiles must lie strictly between 0 and 1, such as [0.025, 0.975]; got {quantiles!r}")
    return levels.tolist()
