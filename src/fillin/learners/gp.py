"""A Gaussian process on the rows of a table: a smooth guess at a target, beside what networks say of it. Of classes
there is one for each, of which rows are one or zero.

    k(x, x') = s² exp(−½ Σ_d (x_d − x'_d)² / ℓ_d²) + a² x·x'        y = f(x) + noise

Hyperparameters are found by the marginal likelihood of some rows. What it guesses of a row that it was given is guessed
as if that row were not there, in closed form (Sundararajan & Keerthi 2001): with C = K + σ²I,

    μ_i = y_i − [C⁻¹y]_i / [C⁻¹]_ii        σ_i² = 1 / [C⁻¹]_ii

so how good its guesses are of new rows is known without asking twice.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor

_FITTED, _GIVEN = 500, 2_000  # rows that hyperparameters are found by, and rows that are given
_FEWEST, _COLUMNS = 20, 256  # rows from which on it guesses, and columns (of each class one) up to which
_STEPS = 60
_NOISE = 1e-4  # variance that there is at least


@dataclass(frozen=True)
class Settings:
    """Logarithms of ℓ [d], s, a and σ."""

    length: Float[Tensor, "d"]
    rest: Float[Tensor, "3"]

    def kernel(self, one: Float[Tensor, "n d"], two: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        signal, slope, _ = self.rest.exp()
        a, b = one / self.length.exp(), two / self.length.exp()
        far = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp_min(0)
        return signal**2 * torch.exp(-0.5 * far) + slope**2 * one @ two.T

    @property
    def noise(self) -> Tensor:
        return (2 * self.rest[2]).exp() + _NOISE


@dataclass(frozen=True)
class Target:
    """What a column holds, of deviation one, about: a number, or one of k; and in which rows."""

    y: Float[Tensor, "n k"]
    known: Bool[Tensor, "n"]


@dataclass(frozen=True)
class Smooth:
    """Smooth.learn(x, target), then `guess` of other rows: means, and after them a deviation; columns of x are of
    deviation one, about."""

    settings: Settings
    given: Int64[Tensor, "g"]  # the numbers of the rows it was given
    x: Float[Tensor, "g d"]
    y: Float[Tensor, "g k"]
    factor: Float[Tensor, "g g"]

    @classmethod
    def learn(cls, x: Float[Tensor, "n d"], target: Target, steps: int = _STEPS) -> "Smooth | None":
        """None where rows are too few, or columns too many. The same rows, the same result."""
        rows = _drawn(target.known, _FITTED)
        if len(rows) < _FEWEST or not 0 < x.shape[1] <= _COLUMNS:
            return None
        return cls.given_all(x, target, _settings(x[rows].double(), target.y[rows].double(), min(steps, _STEPS)))

    @classmethod
    @torch.no_grad()
    def given_all(cls, x: Float[Tensor, "n d"], target: Target, settings: Settings) -> "Smooth":
        """All known rows, or as many as it takes."""
        given = _drawn(target.known, _GIVEN).sort().values
        own = x[given].double()
        return cls(settings, given, own, target.y[given].double(), _factor(settings, own))

    @torch.no_grad()
    def left_out(self, x: Float[Tensor, "n d"]) -> Float[ndarray, "n _"]:
        """Of each row that it was given, from all others; of the others among x, from those."""
        guess = self.guess(x)
        inverse = torch.cholesky_inverse(self.factor)
        own = inverse.diagonal()[:, None]
        guess[self.given.numpy()] = torch.cat([self.y - (inverse @ self.y) / own, own.rsqrt()], 1).numpy()
        return guess

    @torch.no_grad()
    def guess(self, x: Float[Tensor, "n d"]) -> Float[ndarray, "n _"]:
        signal, slope, _ = self.settings.rest.exp()
        weights, found = torch.cholesky_solve(self.y, self.factor), []
        for some in x.double().split(2_048):
            cross = self.settings.kernel(self.x, some)
            half = torch.linalg.solve_triangular(self.factor, cross, upper=False)
            own = signal**2 + slope**2 * some.square().sum(1) + self.settings.noise
            deviation = (own - half.square().sum(0)).clamp_min(_NOISE).sqrt()
            found.append(torch.cat([cross.T @ weights, deviation[:, None]], 1))
        return torch.cat(found).numpy()


def _drawn(known: Bool[Tensor, "n"], most: int) -> Int64[Tensor, "g"]:
    """At most so many of those rows, always the same."""
    rows = known.nonzero()[:, 0]
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:most]]


def _factor(settings: Settings, x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    return torch.linalg.cholesky(settings.kernel(x, x) + settings.noise * torch.eye(len(x), dtype=x.dtype))


def _settings(x: Float[Tensor, "n d"], y: Float[Tensor, "n k"], steps: int) -> Settings:
    """By ascent of ln p(y | x) + ln p(settings): lengths are about the root of the number of columns."""
    middle = math.log(max(1.0, x.shape[1]) ** 0.5 * 1.5)
    length = torch.full((x.shape[1],), middle, dtype=x.dtype, requires_grad=True)
    rest = torch.tensor([0.0, math.log(0.3), math.log(0.3)], dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.Adam([length, rest], 0.1)
    with torch.enable_grad():
        for _ in range(steps):
            settings = Settings(length, rest)
            factor = _factor(settings, x)
            half = torch.linalg.solve_triangular(factor, y, upper=False)
            loss = 0.5 * half.square().sum() / y.shape[1] + factor.diagonal().log().sum()
            loss = loss + 0.5 * (length - middle).square().sum() + 0.5 * rest.square().sum() / 4
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return Settings(length.detach(), rest.detach())
