"""All columns of numbers as one Gaussian: what the cells of a row that are there say of those that are not.

    x_o seen:   E[x | x_o] = μ + Σ_·o Σ_oo⁻¹ (x_o − μ_o)        Var = diag(Σ − Σ_·o Σ_oo⁻¹ Σ_o·)

A linear guess, for nothing: networks begin with it and learn what is not straight. μ and Σ are found by expectation
maximisation over rows with cells missing anywhere (Dempster et al. 1977), Σ drawn towards its diagonal where rows are
few.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_ROUNDS = 30
_ROWS = 5_000  # that are learnt from
_COLUMNS = 64  # more are left to themselves: the time of a row grows with their cube
_TOGETHER = 4_096  # rows at a time


@dataclass(frozen=True)
class Joint:
    """joint.guess(x, seen) → mean and deviation of every cell given those that are seen."""

    mean: Float[Tensor, "d"]
    covariance: Float[Tensor, "d d"]

    @classmethod
    @torch.no_grad()
    def learn(cls, x: Float[Tensor, "n d"], seen: Bool[Tensor, "n d"]) -> "Joint":
        step = max(1, len(x) // _ROWS)
        x, seen = x[::step].double(), seen[::step]
        n, d = x.shape
        count = seen.sum(0).clamp_min(1)
        mean = torch.where(seen, x, 0).sum(0) / count
        spread = (torch.where(seen, x - mean, 0).square().sum(0) / count).clamp_min(1e-6)
        joint = cls(mean, torch.diag(spread))
        if d > _COLUMNS:
            return joint
        for _ in range(_ROUNDS if not seen.all() else 1):
            parts = [joint._given(*two) for two in zip(x.split(_TOGETHER), seen.split(_TOGETHER), strict=True)]
            full = torch.cat([found for found, _ in parts])
            mean = full.mean(0)
            rest = sum(unsure.sum(0) for _, unsure in parts)
            scatter = ((full - mean).mT @ (full - mean) + rest) / n
            diagonal = torch.diag(scatter.diagonal())
            joint = cls(mean, (n * scatter + d * diagonal) / (n + d) + 1e-6 * torch.eye(d, dtype=x.dtype))
        return joint

    def guess(
        self, x: Float[Tensor, "*b d"], seen: Bool[Tensor, "*b d"]
    ) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b d"]]:
        """Where a cell is seen it is as it is, and sure."""
        if seen.all():  # also where there is no column of numbers
            return x, torch.zeros_like(x)
        flat, known = x.reshape(-1, x.shape[-1]), seen.reshape(-1, x.shape[-1])
        mean, deviation = flat.clone(), torch.zeros_like(flat)
        some = (~known).any(-1).nonzero()[:, 0]
        for rows in some.split(_TOGETHER):
            found, unsure = self._given(flat[rows].double(), known[rows])
            mean[rows] = found.to(x.dtype)
            deviation[rows] = unsure.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt().to(x.dtype)
        return mean.view_as(x), deviation.view_as(x)

    def _given(
        self, x: Float[Tensor, "n d"], seen: Bool[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d d"]]:
        """Rows with every cell, and the covariance of those that were missing. Cells that are not seen are made
        independent of all, with variance 1, so that one batched factorisation does for every pattern."""
        there = seen.to(x.dtype)
        both = there[:, :, None] * there[:, None]
        factor = torch.linalg.cholesky(self.covariance * both + torch.diag_embed(1 - there))
        to_seen = self.covariance * there[:, :, None]  # Σ_o·, rows that are not seen zero
        half = torch.linalg.solve_triangular(factor, to_seen, upper=False)  # L⁻¹ Σ_o·
        away = torch.linalg.solve_triangular(factor, ((x - self.mean) * there)[..., None], upper=False)
        found = self.mean + (half.mT @ away)[..., 0]
        gone = (1 - there)[:, :, None] * (1 - there)[:, None]
        return torch.where(seen, x, found), (self.covariance - half.mT @ half) * gone
