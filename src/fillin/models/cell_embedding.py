"""Cells of a table: column statistics, embedding as tokens, and predictive distributions."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

from fillin.data.task import TableBatch

CLASSES = 10  # largest number of classes of a column
_COLUMN_VECTORS = 1024  # columns with distinct random vectors


@dataclass(frozen=True)
class ColumnStatistics:
    """Mean, standard deviation and sorted values of each column over the context rows."""

    mean: Float[Tensor, "b 1 d"]
    scale: Float[Tensor, "b 1 d"]
    ordered: Float[Tensor, "b d m"]  # observed values in order, padded with ∞
    count: Float[Tensor, "b d 1"]

    @classmethod
    @torch.no_grad()
    def of(cls, cells: TableBatch) -> "ColumnStatistics":
        values, observed = cells.values[:, : cells.context], cells.observed[:, : cells.context]
        n = observed.sum(1, keepdim=True).clamp_min(1)
        mean = torch.where(observed, values, 0).sum(1, keepdim=True) / n
        rest = torch.where(observed, values - mean, 0)
        scale = (rest.square().sum(1, keepdim=True) / n).sqrt()
        scale = torch.where(scale > 1e-6 * (mean.abs() + 1e-30), scale, torch.where(mean == 0, 1, mean.abs()))
        ordered = torch.where(observed, values, torch.inf).mT.contiguous().sort(-1).values
        return cls(mean, scale, ordered, n.mT.to(values.dtype))

    def standard(self, values: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return (values - self.mean) / self.scale

    def columns(self, first: int) -> "ColumnStatistics":
        """Return the statistics of the columns from `first` on."""
        return ColumnStatistics(
            self.mean[..., first:], self.scale[..., first:], self.ordered[:, first:], self.count[:, first:]
        )

    @torch.no_grad()
    def rank(self, values: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Return the normal score of the share of observed values below, with ties counted half."""
        v = values.mT.contiguous()
        below = torch.searchsorted(self.ordered, v) + torch.searchsorted(self.ordered, v, right=True)
        share = (below.to(v.dtype) / 2 + 0.5) / (self.count + 1)
        return torch.special.ndtri(share.clamp(1e-4, 1 - 1e-4)).mT


class CellEmbedding(nn.Module):
    """Token of a cell: its number or class, whether it is masked, and a random vector of its column."""

    labels: Float[Tensor, "_ _"]

    def __init__(self, width: int, waves: int = 8):
        super().__init__()
        self.frequency = nn.Parameter(torch.logspace(-0.6, 0.9, waves))
        self.number = nn.Sequential(nn.Linear(2 + 2 * waves, width), nn.ReLU(), nn.Linear(width, width))
        self.code = nn.Embedding(CLASSES, width)
        self.kind = nn.Embedding(4, width)  # number, class, masked number, masked class
        self.label = nn.Linear(16, width, bias=False)
        random = torch.Generator().manual_seed(0)
        self.register_buffer("labels", torch.randn(_COLUMN_VECTORS, 16, generator=random), persistent=False)

    def forward(self, cells: TableBatch, units: ColumnStatistics) -> Float[Tensor, "b n d e"]:
        is_class = (cells.classes > 0)[:, None]  # [b 1 d]
        values = torch.where(cells.observed, cells.values, units.mean)
        z, g = units.standard(values), units.rank(values)
        z = torch.where(z.abs() < 3, z, z.sign() * (z.abs().clamp_min(3) - 2).log1p().add(3 - math.log(2)))
        angle = g[..., None] * self.frequency
        number = self.number(torch.cat([torch.stack([z, g], -1), angle.sin(), angle.cos()], -1))
        code = self.code(torch.where(is_class & cells.observed, cells.values, 0).long().clamp(0, CLASSES - 1))
        token = torch.where(is_class[..., None], code, number)
        token = torch.where(cells.observed[..., None], token, 0)
        kind = self.kind(is_class.long() + 2 * (~cells.observed).long())
        return token + kind + self.label(self.labels[torch.arange(cells.values.shape[2]) % _COLUMN_VECTORS])


@dataclass(frozen=True)
class CellDistribution:
    """Predictive distribution of a cell: a mixture of Gaussians for numbers, class probabilities otherwise."""

    numbers: MixtureSameFamily  # batch [b n d]
    logits: Float[Tensor, "b n d k"]
    is_class: Bool[Tensor, "b 1 d"]

    def column(self, j: int, classes: int) -> Distribution:
        """Return the distribution of one column, batch [b n]; `classes` is 0 for numbers."""
        if classes:
            return Categorical(logits=self.logits[:, :, j, :classes], validate_args=False)
        shares, parts = self.numbers.mixture_distribution, self.numbers.component_distribution
        normal = Normal(parts.mean[:, :, j], parts.stddev[:, :, j], validate_args=False)
        return MixtureSameFamily(
            Categorical(logits=shares.logits[:, :, j], validate_args=False), normal, validate_args=False
        )

    def log_prob(self, values: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Return the log density of numbers and the log probability of classes."""
        codes = torch.where(self.is_class, values, 0).long().clamp(0, CLASSES - 1)
        log_prob = self.logits.log_softmax(-1).gather(-1, codes[..., None])[..., 0]
        return torch.where(self.is_class, log_prob, self.numbers.log_prob(torch.where(self.is_class, 0, values)))
