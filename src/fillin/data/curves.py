"""Curves with a known answer: draws of a Gaussian process, and its exact posterior."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal

from fillin.data.task import Task
from fillin.errors import InputError


def rbf(
    xa: Float[Tensor, "b n dx"], xb: Float[Tensor, "b m dx"], length: Tensor, scale: Tensor
) -> Float[Tensor, "b n m"]:
    """scale² · exp(−½‖xa − xb‖²/length²), length and scale [b 1 1]."""
    return scale**2 * torch.exp(-0.5 * (torch.cdist(xa, xb) / length).square())


@dataclass(frozen=True)
class GaussianProcess:
    """RBF curves whose length and output scales are drawn anew each task: the 1-D protocol of TNP and its kin.

    `length` and `scale` are the ranges they are drawn from, uniformly; places are uniform in [low, high]^dim_x; context
    and targets together are at most `points`. Batch s is a function of (seed, s) alone.
    """

    batch: int = 16
    low: float = -2.0
    high: float = 2.0
    length: tuple[float, float] = (0.1, 0.6)
    scale: tuple[float, float] = (0.1, 1.0)
    noise: float = 0.02
    points: int = 50
    dim_x: int = 1
    seed: int = 0

    def __post_init__(self):
        for name in ("length", "scale"):
            value = getattr(self, name)
            if not (isinstance(value, tuple) and len(value) == 2 and 0 < value[0] <= value[1]):
                raise InputError(f"GaussianProcess: {name} must be a range (low, high), 0 < low ≤ high, got {value!r}")
        if self.batch < 1 or self.points < 7 or self.dim_x < 1 or not self.low < self.high or self.noise < 0:
            raise InputError(f"GaussianProcess: needs batch, dim_x ≥ 1, points ≥ 7, low < high, noise ≥ 0; got {self}")

    def task(self, step: int) -> Task:
        """Batch `step`: Nc ~ U[3, 47), Nt ~ U[3, 50 − Nc), alike for the tasks of a batch."""
        # torch keeps 32 bits of a seed: both numbers are mixed into them
        random = torch.Generator().manual_seed(int(np.random.SeedSequence([self.seed, step]).generate_state(1)[0]))
        nc = int(torch.randint(3, self.points - 3, (), generator=random))
        nt = int(torch.randint(3, max(4, self.points - nc), (), generator=random))

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(*shape, generator=random, dtype=torch.float64)

        x = uniform(self.low, self.high, self.batch, nc + nt, self.dim_x)
        length, scale = uniform(*self.length, self.batch, 1, 1), uniform(*self.scale, self.batch, 1, 1)
        covariance = rbf(x, x, length, scale) + self.noise**2 * torch.eye(nc + nt, dtype=x.dtype)
        noise = torch.randn(self.batch, nc + nt, 1, generator=random, dtype=x.dtype)
        y = torch.linalg.cholesky(covariance) @ noise
        x, y = x.float(), y.float()
        return Task(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:])


def posterior(
    xc: Float[Tensor, "b nc dx"],
    yc: Float[Tensor, "b nc 1"],
    xt: Float[Tensor, "b nt dx"],
    length: float,
    scale: float,
    noise: float,
) -> MultivariateNormal:
    """The exact answer, observation noise included: batch [b], event [nt] (Rasmussen & Williams, 2.22–2.24)."""
    xc, yc, xt = xc.double(), yc.double(), xt.double()
    ell, amplitude = torch.tensor(length).double(), torch.tensor(scale).double()
    gram = rbf(xc, xc, ell, amplitude) + noise**2 * torch.eye(xc.shape[1], dtype=xc.dtype)
    factor = torch.linalg.cholesky(gram)
    cross = torch.linalg.solve_triangular(factor, rbf(xc, xt, ell, amplitude), upper=False)
    mean = (cross.mT @ torch.linalg.solve_triangular(factor, yc, upper=False))[..., 0]
    jitter = max(noise**2, 1e-10 * math.pow(scale, 2))
    covariance = rbf(xt, xt, ell, amplitude) - cross.mT @ cross + jitter * torch.eye(xt.shape[1], dtype=xc.dtype)
    return MultivariateNormal(mean, covariance, validate_args=False)
