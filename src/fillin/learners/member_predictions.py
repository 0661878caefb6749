"""What several members say of one column: a mixture each, or a probability of each class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.predictive import Answer


@dataclass(frozen=True)
class Members:
    """Mixtures of each member for one column of numbers, in standard units."""

    weights: Float[ndarray, "m n k"]
    means: Float[ndarray, "m n k"]
    deviations: Float[ndarray, "m n k"]

    @property
    def mean(self) -> Float[ndarray, "m n"]:
        return (self.weights * self.means).sum(-1)

    @property
    def variance(self) -> Float[ndarray, "m n"]:
        return (self.weights * (self.deviations**2 + (self.means - self.mean[..., None]) ** 2)).sum(-1)

    def tailed(self, share: float, times: float) -> "Members":
        """With that share of each in a part about its mean that is so many times as wide as all of it."""
        if not share:
            return self
        mean, wide = self.mean[..., None], times * np.sqrt(self.variance)[..., None]
        rare = np.full_like(mean, share)
        parts = ((self.weights * (1 - share), rare), (self.means, mean), (self.deviations, wide))
        return Members(*(np.concatenate(two, -1) for two in parts))

    def scaled(self, factor: float | ndarray, to: Float[ndarray, "m n"]) -> "Members":
        """Narrower or wider about its own mean, which is moved; by one factor, or one for each row."""
        factor = np.asarray(factor)[..., None]
        return Members(
            self.weights, to[..., None] + factor * (self.means - self.mean[..., None]), factor * self.deviations
        )

    def around(self, centre: Float[ndarray, "n"], factor: float | ndarray) -> Answer:
        """All as one mixture, each moved there."""
        moved = self.scaled(factor, np.broadcast_to(centre, self.mean.shape))
        joined = [np.moveaxis(part, 0, 1).reshape(part.shape[1], 1, -1) for part in
                  (moved.weights / len(moved.weights), moved.means, moved.deviations)]  # fmt: skip
        return Joined(*joined)


class Joined(Answer):
    """Of many parts each is rare; all count."""

    @property
    def likely(self):
        return self.weights


Said = Members | ndarray  # the latter: of classes, [m n k]


def said_by(found) -> Said:
    """A distribution of batch [m n], as arrays."""
    if hasattr(found, "component_distribution"):
        parts = found.component_distribution
        return Members(*(t.double().numpy() for t in (found.mixture_distribution.probs, parts.mean, parts.stddev)))
    return found.probs.double().numpy()


def in_a_row(pieces: Sequence[Said]) -> Said:
    """Of some rows, then of others: of all."""
    mixtures = [piece for piece in pieces if isinstance(piece, Members)]
    if not mixtures:
        return np.concatenate([np.asarray(piece) for piece in pieces], 1)
    fields = ("weights", "means", "deviations")
    return Members(*(np.concatenate([getattr(piece, field) for piece in mixtures], 1) for field in fields))


def log_softmax(x: Float[ndarray, "*b k"]) -> Float[ndarray, "*b k"]:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def log_odds(chances: Float[ndarray, "*b k"]) -> Float[ndarray, "*b k"]:
    """Logarithms of probabilities, none of them endless."""
    return np.log(np.maximum(chances, 1e-12))
