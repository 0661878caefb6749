"""The columns of a table as a model reads and tells them: their units, their cells as tokens, what a cell may hold."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

if TYPE_CHECKING:
    from fillin.data.task import TableBatch


CLASSES = 10  # that one set of weights for any table tells apart
_LABELS = 1024  # columns that have a label of their own


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of each column over the rows of the context: its mean, standard deviation and order."""

    mean: Float[Tensor, "b 1 d"]
    scale: Float[Tensor, "b 1 d"]
    ordered: Float[Tensor, "b d m"]  # what is known, in order; ∞ after it
    count: Float[Tensor, "b d 1"]

    @classmethod
    @torch.no_grad()
    def of(cls, cells: "TableBatch") -> "ColumnStatistics":
        values, seen = cells.values[:, : cells.context], cells.observed[:, : cells.context]
        n = seen.sum(1, keepdim=True).clamp_min(1)
        mean = torch.where(seen, values, 0).sum(1, keepdim=True) / n
        rest = torch.where(seen, values - mean, 0)
        scale = (rest.square().sum(1, keepdim=True) / n).sqrt()
        scale = torch.where(scale > 1e-6 * (mean.abs() + 1e-30), scale, torch.where(mean == 0, 1, mean.abs()))
        ordered = torch.where(seen, values, torch.inf).mT.contiguous().sort(-1).values
        return cls(mean, scale, ordered, n.mT.to(values.dtype))

    def standard(self, values: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return (values - self.mean) / self.scale

    def columns(self, first: int) -> "ColumnStatistics":
        """Statistics of the columns from `first` on."""
        return ColumnStatistics(
            self.mean[..., first:], self.scale[..., first:], self.ordered[:, first:], self.count[:, first:]
        )

    @torch.no_grad()
    def rank(self, values: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """The share of known values below, those that are equal counted half, as a normal score."""
        v = values.mT.contiguous()
        below = torch.searchsorted(self.ordered, v) + torch.searchsorted(self.ordered, v, right=True)
        share = (below.to(v.dtype) / 2 + 0.5) / (self.count + 1)
        return torch.special.ndtri(share.clamp(1e-4, 1 - 1e-4)).mT


class Embedding(nn.Module):
    """A cell as a token: its number or its class, whether it is masked, and of which column it is."""

    labels: Float[Tensor, "_ _"]

    def __init__(self, width: int, waves: int = 8):
        super().__init__()
        self.frequency = nn.Parameter(torch.logspace(-0.6, 0.9, waves))
        self.number = nn.Sequential(nn.Linear(2 + 2 * waves, width), nn.ReLU(), nn.Linear(width, width))
        self.code = nn.Embedding(CLASSES, width)
        self.kind = nn.Embedding(4, width)  # a number, a class, either of them masked
        self.label = nn.Linear(16, width, bias=False)
        random = torch.Generator().manual_seed(0)
        self.register_buffer("labels", torch.randn(_LABELS, 16, generator=random), persistent=False)

    def forward(self, cells: "TableBatch", units: ColumnStatistics) -> Float[Tensor, "b n d e"]:
        is_class = (cells.classes > 0)[:, None]  # [b 1 d]
        known = torch.where(cells.observed, cells.values, units.mean)
        z, g = units.standard(known), units.rank(known)
        z = torch.where(z.abs() < 3, z, z.sign() * (z.abs().clamp_min(3) - 2).log1p().add(3 - math.log(2)))
        angle = g[..., None] * self.frequency
        number = self.number(torch.cat([torch.stack([z, g], -1), angle.sin(), angle.cos()], -1))
        code = self.code(torch.where(is_class & cells.observed, cells.values, 0).long().clamp(0, CLASSES - 1))
        token = torch.where(is_class[..., None], code, number)
        token = torch.where(cells.observed[..., None], token, 0)
        kind = self.kind(is_class.long() + 2 * (~cells.observed).long())
        return token + kind + self.label(self.labels[torch.arange(cells.values.shape[2]) % _LABELS])


@dataclass(frozen=True)
class CellDistribution:
    """The distribution of a cell: a Gaussian mixture where its column has numbers, else class probabilities."""

    numbers: MixtureSameFamily  # batch [b n d]
    logits: Float[Tensor, "b n d k"]
    is_class: Bool[Tensor, "b 1 d"]

    def column(self, j: int, classes: int) -> Distribution:
        """Distribution of one column alone, batch [b n]; `classes` as its tables have them, 0 for numbers."""
        if classes:
            return Categorical(logits=self.logits[:, :, j, :classes], validate_args=False)
        shares, parts = self.numbers.mixture_distribution, self.numbers.component_distribution
        normal = Normal(parts.mean[:, :, j], parts.stddev[:, :, j], validate_args=False)
        return MixtureSameFamily(
            Categorical(logits=shares.logits[:, :, j], validate_args=False), normal, validate_args=False
        )

    def log_prob(self, values: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Log density of a number, log probability of a class."""
        codes = torch.where(self.is_class, values, 0).long().clamp(0, CLASSES - 1)
        odds = self.logits.log_softmax(-1).gather(-1, codes[..., None])[..., 0]
        return torch.where(self.is_class, odds, self.numbers.log_prob(torch.where(self.is_class, 0, values)))
