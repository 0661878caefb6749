"""What a column may hold at rows that were asked for, in its own units."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.predictive import Answer
from fillin.tabular.scaling import Scale

_LEVELS = (np.arange(200) + 0.5) / 200  # where a mean is taken of what is not straight


@dataclass(frozen=True)
class Numbers:
    """A mixture of normals in the units of a `Scale`, told in those of the column."""

    answer: Answer  # [n 1 k]
    scale: Scale

    @cached_property
    def _across(self) -> Float[ndarray, "q n"]:
        """Values at even probabilities, for means over a scale that is bent."""
        return np.stack([self.quantile(float(level)) for level in _LEVELS])

    @property
    def _straight(self) -> bool:
        return len(self.scale.knots) == 1

    @property
    def mean(self) -> Float[ndarray, "n"]:
        return self.scale.inverse(self.answer.mean[:, 0]) if self._straight else self._across.mean(0)

    @property
    def std(self) -> Float[ndarray, "n"]:
        return self.answer.std[:, 0] * self.scale.widths[0] if self._straight else self._across.std(0)

    def quantile(self, q: float) -> Float[ndarray, "n"]:
        return self.scale.inverse(self.answer.quantile(q)[:, 0])

    def cdf(self, y: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
        return self.answer.cdf(self.scale.forward(y)[:, None])[:, 0]

    def log_prob(self, y: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
        return self.answer.log_prob(self.scale.forward(y)[:, None])[:, 0] + self.scale.log_slope(y)

    def sample(self, count: int, random: np.random.Generator) -> Float[ndarray, "n s"]:
        weights, means, deviations = (
            part[:, 0] for part in (self.answer.weights, self.answer.means, self.answer.deviations)
        )
        below = random.random((len(weights), count))[..., None] > weights.cumsum(-1)[:, None, :-1]
        part = below.sum(-1)
        z = np.take_along_axis(means, part, 1) + np.take_along_axis(deviations, part, 1) * random.normal(
            size=part.shape
        )
        return self.scale.inverse(z)


@dataclass(frozen=True)
class Classes:
    """The probability of each code."""

    chances: Float[ndarray, "n k"]

    @property
    def likeliest(self) -> Int[ndarray, "n"]:
        return self.chances.argmax(-1)

    def sample(self, count: int, random: np.random.Generator) -> Int[ndarray, "n s"]:
        below = random.random((len(self.chances), count))[..., None] > self.chances.cumsum(-1)[:, None, :-1]
        return below.sum(-1)


Told = Numbers | Classes
