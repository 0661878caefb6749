"""Exact Gaussian process regression: conditioning, marginal likelihood, leave-one-out predictions, and a fitted GP.

With y = f(x) + ε, f ~ GP(0, k) and C = K + σ²I = L Lᵀ (Rasmussen & Williams 2006, 2.22–2.24 and 2.30):

    E[f*] = k*ᵀ C⁻¹ y        Var[f*] = k** − k*ᵀ C⁻¹ k*        ln p(y) = −½ ‖L⁻¹y‖² − Σ_i ln L_ii − n/2 ln 2π
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor

_FIT_ROWS, _MAX_ROWS = 500, 2_000  # rows that hyperparameters are fitted to, and rows that are conditioned on
_MIN_ROWS, _MAX_COLUMNS = 20, 256  # outside which no process is fitted
_FIT_STEPS = 60
_MIN_NOISE_VARIANCE = 1e-4
_ROWS_AT_ONCE = 2_048


@dataclass(frozen=True)
class GPPosterior:
    """A Gaussian process given observations; the axes `*b` are a batch, k are outputs with the same covariance."""

    factor: Float[Tensor, "*b n n"]  # L
    white: Float[Tensor, "*b n k"]  # L⁻¹ y

    @classmethod
    def condition(
        cls, gram: Float[Tensor, "*b n n"], noise_variance: Tensor | float, y: Float[Tensor, "*b n k"]
    ) -> "GPPosterior":
        """Condition on y with prior covariance `gram` and independent noise."""
        return cls.from_covariance(add_noise(gram, noise_variance), y)

    @classmethod
    def from_covariance(cls, covariance: Float[Tensor, "*b n n"], y: Float[Tensor, "*b n k"]) -> "GPPosterior":
        """Condition on y with covariance C, noise included."""
        factor = torch.linalg.cholesky(covariance)
        return cls(factor, torch.linalg.solve_triangular(factor, y, upper=False))

    @property
    def log_likelihood(self) -> Float[Tensor, "*b n"]:
        """ln p(y_i | y_1 … y_{i−1}) of every observation, summed over outputs; the sum over i is ln p(y)."""
        outputs = self.white.shape[-1]
        log_diagonal = self.factor.diagonal(dim1=-2, dim2=-1).log()
        return -0.5 * self.white.square().sum(-1) - outputs * (log_diagonal + 0.5 * math.log(2 * math.pi))

    def predict(
        self, cross: Float[Tensor, "*b n m"], prior_variance: Float[Tensor, "*b m"]
    ) -> tuple[Float[Tensor, "*b m k"], Float[Tensor, "*b m"]]:
        """Mean and variance at m points, from their covariance with the observations and their prior variance."""
        half = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        return half.mT @ self.white, prior_variance - half.square().sum(-2)

    def predict_jointly(
        self, cross: Float[Tensor, "*b n m"], prior: Float[Tensor, "*b m m"]
    ) -> tuple[Float[Tensor, "*b m k"], Float[Tensor, "*b m m"]]:
        """Mean and covariance at m points."""
        half = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        return half.mT @ self.white, prior - half.mT @ half

    def weights(self, cross: Float[Tensor, "*b n m"]) -> Float[Tensor, "*b m n"]:
        """The weight of each observation in the mean at m points: k*ᵀ C⁻¹."""
        return torch.cholesky_solve(cross, self.factor).mT

    def leave_one_out(self) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n"]]:
        """Residual y_i − μ_i and standard deviation σ_i of each observation predicted from all others, in closed form:
        y_i − μ_i = [C⁻¹y]_i / [C⁻¹]_ii and σ_i² = 1 / [C⁻¹]_ii (Sundararajan & Keerthi 2001)."""
        precision = torch.cholesky_inverse(self.factor).diagonal()
        alpha = torch.linalg.solve_triangular(self.factor.mT, self.white, upper=True)
        return alpha / precision[:, None], precision.rsqrt()


def conditional(
    covariance: Float[Tensor, "*b n n"], y: Float[Tensor, "*b nc k"]
) -> tuple[Float[Tensor, "*b nt k"], Float[Tensor, "*b nt nt"]]:
    """Mean and Cholesky factor of the last variables of a zero-mean Gaussian given the first nc, both from one factor
    of the joint covariance: its first block whitens y, its last is the factor of the Schur complement."""
    factor, nc = torch.linalg.cholesky(covariance), y.shape[-2]
    white = torch.linalg.solve_triangular(factor[..., :nc, :nc], y, upper=False)
    return factor[..., nc:, :nc] @ white, factor[..., nc:, nc:]


def add_noise(gram: Float[Tensor, "*b n n"], variance: Tensor | float) -> Float[Tensor, "*b n n"]:
    """gram + variance · I."""
    gram = gram.clone()
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    diagonal.add_(variance[..., None] if isinstance(variance, Tensor) and variance.ndim else variance)
    return gram


@dataclass(frozen=True)
class GPHyperparameters:
    """k(x, x') = s² exp(−½ Σ_d (x_d − x'_d)² / ℓ_d²) + a² x·x', noise σ: logarithms of ℓ [d], and of s, a and σ."""

    length: Float[Tensor, "d"]
    rest: Float[Tensor, "3"]

    def kernel(self, x1: Float[Tensor, "n d"], x2: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        signal, slope, _ = self.rest.exp()
        a, b = x1 / self.length.exp(), x2 / self.length.exp()
        distance = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp_min(0)
        return signal**2 * torch.exp(-0.5 * distance) + slope**2 * x1 @ x2.T

    def variance(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """The prior variance of y, noise included."""
        signal, slope, _ = self.rest.exp()
        return signal**2 + slope**2 * x.square().sum(1) + self.noise_variance

    @property
    def noise_variance(self) -> Tensor:
        return (2 * self.rest[2]).exp() + _MIN_NOISE_VARIANCE

    @classmethod
    def fit(cls, x: Float[Tensor, "n d"], y: Float[Tensor, "n k"], steps: int) -> "GPHyperparameters":
        """Ascend ln p(y | x) + ln p(hyperparameters), with length scales about the root of the number of columns."""
        prior_length = math.log(max(1.0, x.shape[1]) ** 0.5 * 1.5)
        length = torch.full((x.shape[1],), prior_length, dtype=x.dtype, requires_grad=True)
        rest = torch.tensor([0.0, math.log(0.3), math.log(0.3)], dtype=x.dtype, requires_grad=True)
        optimiser = torch.optim.Adam([length, rest], 0.1)
        with torch.enable_grad():
            for _ in range(steps):
                current = cls(length, rest)
                posterior = GPPosterior.condition(current.kernel(x, x), current.noise_variance, y)
                log_determinant = posterior.factor.diagonal().log().sum()
                loss = 0.5 * posterior.white.square().sum() / y.shape[1] + log_determinant
                loss = loss + 0.5 * (length - prior_length).square().sum() + 0.5 * rest.square().sum() / 4
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        return cls(length.detach(), rest.detach())


@dataclass(frozen=True)
class GPTarget:
    """Values of about unit variance, one column per output (an indicator of each class), and the rows that have one."""

    y: Float[Tensor, "n k"]
    observed: Bool[Tensor, "n"]


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process on rows whose columns have about unit variance: `fit`, then `predict`.
    Predictions are [m k + 1]: the mean of each output, then the standard deviation of an observation."""

    hyperparameters: GPHyperparameters
    rows: Int64[Tensor, "g"]  # the rows of the table that are conditioned on
    x: Float[Tensor, "g d"]
    y: Float[Tensor, "g k"]
    posterior: GPPosterior

    @classmethod
    def fit(cls, x: Float[Tensor, "n d"], target: GPTarget, steps: int = _FIT_STEPS) -> "GaussianProcess | None":
        """Fit the hyperparameters; None where rows are too few or columns too many. The same rows give the same fit."""
        rows = _choose_rows(target.observed, _FIT_ROWS)
        if len(rows) < _MIN_ROWS or not 0 < x.shape[1] <= _MAX_COLUMNS:
            return None
        hyperparameters = GPHyperparameters.fit(x[rows].double(), target.y[rows].double(), min(steps, _FIT_STEPS))
        return cls.condition(x, target, hyperparameters)

    @classmethod
    @torch.no_grad()
    def condition(
        cls, x: Float[Tensor, "n d"], target: GPTarget, hyperparameters: GPHyperparameters
    ) -> "GaussianProcess":
        """Condition on the observed rows, at most 2,000 of them."""
        rows = _choose_rows(target.observed, _MAX_ROWS).sort().values
        x, y = x[rows].double(), target.y[rows].double()
        posterior = GPPosterior.condition(hyperparameters.kernel(x, x), hyperparameters.noise_variance, y)
        return cls(hyperparameters, rows, x, y, posterior)

    @torch.no_grad()
    def predict(self, x: Float[Tensor, "m d"]) -> Float[ndarray, "m _"]:
        parts = []
        for piece in x.double().split(_ROWS_AT_ONCE):
            cross = self.hyperparameters.kernel(self.x, piece)
            mean, variance = self.posterior.predict(cross, self.hyperparameters.variance(piece))
            parts.append(torch.cat([mean, variance.clamp_min(_MIN_NOISE_VARIANCE).sqrt()[:, None]], 1))
        return torch.cat(parts).numpy()

    @torch.no_grad()
    def predict_left_out(self, x: Float[Tensor, "n d"]) -> Float[ndarray, "n _"]:
        """Predictions of all rows of the table, each row that is conditioned on from the others alone."""
        predictions = self.predict(x)
        residual, std = self.posterior.leave_one_out()
        predictions[self.rows.numpy()] = torch.cat([self.y - residual, std[:, None]], 1).numpy()
        return predictions


def _choose_rows(observed: Bool[Tensor, "n"], count: int) -> Int64[Tensor, "g"]:
    """At most `count` of the observed rows, always the same."""
    rows = observed.nonzero()[:, 0]
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:count]]
