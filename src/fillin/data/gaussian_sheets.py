"""Sheets of Gaussian processes with known hyperparameters, whose exact predictions are the limit of every model."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from fillin.data.broad_prior import draw_locations
from fillin.data.functions import uniform
from fillin.data.kernels import Range, RBFKernel, check_range, within
from fillin.data.sheet_prior import draw_missing
from fillin.data.task import SheetBatch, check_counts, make_generator
from fillin.gp import GPPosterior

_JITTER = 1e-8


@dataclass(frozen=True)
class GaussianSheets:
    """Columns that mix `latent` Gaussian processes, with a process of their own and noise each:

    y_ij = Σ_l A_jl f_l(x_i) + ¼ g_j(x_i) + σ_j ε_ij,    A_jl ~ N(0, 1/latent),    RBF kernels
    """

    rows: int = 48
    columns: int = 3
    latent: int = 2
    batch: int = 4
    length: Range = (0.08, 0.5)
    noise: Range = (0.05, 0.3)
    seed: int = 0

    def __post_init__(self):
        check_counts(self, "gaussian sheets", rows=4, columns=1, latent=1, batch=1)
        for name in ("length", "noise"):
            check_range("gaussian sheets", name, getattr(self, name))

    def draw(self, step: int) -> tuple[SheetBatch, Float[Tensor, "b nd nd"]]:
        """Return batch `step` and the covariance of its cells, row by row, noise included."""
        random = make_generator(self.seed, step)
        b, n, d, sources = self.batch, self.rows, self.columns, self.latent + self.columns
        x = draw_locations(b, n, 1, random)
        theta = torch.stack([within(uniform(random, b, sources), self.length, logarithmic=True)], -1)
        theta = torch.cat([theta, torch.ones_like(theta)], -1)  # length and scale
        kernels = RBFKernel()(x[:, None], x[:, None], theta)  # [b s n n]
        shared = torch.randn(b, d, self.latent, generator=random, dtype=x.dtype) / math.sqrt(self.latent)
        mixing = torch.cat([shared, 0.25 * torch.eye(d, dtype=x.dtype).expand(b, -1, -1)], -1)  # [b d s]
        covariance = torch.einsum("bds,bsnm,bes->bndme", mixing, kernels, mixing).reshape(b, n * d, n * d)
        noise = within(uniform(random, b, 1, d), self.noise, logarithmic=True).expand(-1, n, -1).flatten(1)
        smooth = torch.linalg.cholesky(covariance + _JITTER * torch.eye(n * d, dtype=x.dtype))
        f = (smooth @ torch.randn(b, n * d, 1, generator=random, dtype=x.dtype)).view(b, n, d)
        y = f + (noise * torch.randn(b, n * d, generator=random, dtype=x.dtype)).view(b, n, d)
        missing = draw_missing(x, d, random)
        missing[:, 0] = True  # every sheet has queries,
        missing[:, 1] = False  # and every column an observation
        sheet = SheetBatch(x.float(), y.float(), ~missing, missing, None, f.float())
        return sheet, covariance + torch.diag_embed(noise.square())

    def task(self, step: int) -> SheetBatch:
        return self.draw(step)[0]

    def limits(self, step: int) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
        """Return the mean log density of the queried cells of batch `step` by exact inference with the true
        hyperparameters: each column by itself, and all together."""
        sheet, covariances = self.draw(step)
        parts = []
        for values, observed, covariance in zip(sheet.values.double(), sheet.observed, covariances, strict=True):
            column = torch.arange(self.columns).repeat(self.rows)
            alone = covariance * (column == column[:, None])
            parts.append(
                torch.stack([_score(part, values.flatten(), observed.flatten()) for part in (alone, covariance)])
            )
        alone, joint = torch.stack(parts, -1)
        return alone, joint


def _score(covariance: Float[Tensor, "c c"], values: Float[Tensor, "c"], observed: Tensor) -> Float[Tensor, ""]:
    """Return the mean log density of the cells that are not observed, given those that are."""
    posterior = GPPosterior.from_covariance(covariance[observed][:, observed], values[observed][:, None])
    mean, variance = posterior.predict(covariance[observed][:, ~observed], covariance.diagonal()[~observed])
    error = values[~observed] - mean[:, 0]
    return (-0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))).mean()
