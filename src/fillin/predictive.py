"""What comes back from a model at places that were asked for: a mixture of normals each, with and without noise."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtr

from fillin.errors import InputError, InputTypeError

LARGEST = 1e300  # a value: what is larger leaves no room to reckon in
MOST_CLASSES = 100  # of a column of a table that are told apart; the rarer ones are one
_RARE = 0.01


@dataclass(frozen=True)
class Answer:
    """Σ_k weight_k Normal(mean_k, deviation_k) at n places for dy outputs, in float64."""

    weights: Float[ndarray, "n dy k"]
    means: Float[ndarray, "n dy k"]
    deviations: Float[ndarray, "n dy k"]

    @property
    def likely(self) -> Float[ndarray, "n dy k"]:
        """The weights without those below a hundredth. What is as rare as that, a spike or a slip, keeps its place in
        the tails; but one in two thousand, a hundred times as wide, would double a standard deviation all by itself."""
        kept = np.where(self.weights < _RARE, 0, self.weights)
        return kept / kept.sum(-1, keepdims=True)

    @property
    def mean(self) -> Float[ndarray, "n dy"]:
        """Of what is likely."""
        return (self.likely * self.means).sum(-1)

    @property
    def std(self) -> Float[ndarray, "n dy"]:
        """Of what is likely."""
        off = self.means - self.mean[..., None]
        size = np.maximum(self.deviations, np.abs(off)).max(-1, keepdims=True)  # squares of 1e-200 would be nothing
        size = np.where(size > 0, size, 1)
        return size[..., 0] * np.sqrt((self.likely * ((self.deviations / size) ** 2 + (off / size) ** 2)).sum(-1))

    def cdf(self, y: Float[ndarray, "n dy"]) -> Float[ndarray, "n dy"]:
        return (self.weights * ndtr((y[..., None] - self.means) / self.deviations)).sum(-1)

    def log_prob(self, y: Float[ndarray, "n dy"]) -> Float[ndarray, "n dy"]:
        z = (y[..., None] - self.means) / self.deviations
        log = np.log(np.maximum(self.weights, 1e-300)) - 0.5 * (z**2 + np.log(2 * np.pi)) - np.log(self.deviations)
        most = log.max(-1, keepdims=True)
        return most[..., 0] + np.log(np.exp(log - most).sum(-1))

    def quantile(self, q: float | Float[ndarray, "n dy"], rounds: int = 60) -> Float[ndarray, "n dy"]:
        """Where the cdf is q, by halving: a mixture has no closed form."""
        low = (self.means - 40 * self.deviations).min(-1)
        high = (self.means + 40 * self.deviations).max(-1)
        for _ in range(rounds):
            middle = (low + high) / 2
            below = self.cdf(middle) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def __getitem__(self, rows) -> "Answer":
        return Answer(self.weights[rows], self.means[rows], self.deviations[rows])


def join(parts: list[Answer], order: ndarray) -> Answer:
    """Answers to pieces of a question, put back: piece after piece they are to rows `order`."""
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return Answer(
        *(np.concatenate([getattr(p, name) for p in parts])[back] for name in ("weights", "means", "deviations"))
    )


def levels(quantiles) -> list[float]:
    """One probability or several as a list; None is none."""
    if quantiles is None:
        return []
    try:
        found = np.atleast_1d(np.asarray(quantiles, dtype=float))
    except (TypeError, ValueError):
        raise InputTypeError(f"quantiles must be probabilities such as [0.025, 0.975], got {quantiles!r}") from None
    if found.ndim > 1 or not len(found) or not ((found > 0) & (found < 1)).all():
        raise InputError(f"quantiles must lie between 0 and 1, without them, such as [0.025, 0.975]; got {quantiles!r}")
    return found.tolist()
