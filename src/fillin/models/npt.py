"""Non-parametric transformers (Kossen et al. 2021): a table in, predictions of its masked cells out.

    H ← embed(X, M) [b n d e];  H ← between attributes (d tokens of width e, row by row)
                                H ← between datapoints (n tokens: rows of width d·e, or column by column of width e)

repeated; each is a transformer block (attention and a feed-forward network, residuals, layer norms). The model is
equivariant to permutations of rows. Column by column neither the weights nor the time grow with (d·e)², and one set of
weights serves any number of columns. For many rows attention goes through a few pseudo-tokens, in time linear in n.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Distribution, MixtureSameFamily, Normal

from fillin.attention import expand_key_mask
from fillin.errors import InputError, choose
from fillin.heads import rescale
from fillin.layers import ISAB, Block, PseudoTokens
from fillin.linear import LinearLayer
from fillin.models.base import Points, Process, Targets

if TYPE_CHECKING:
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
    def of(cls, cells: "TableBatch") -> "ColumnStatistics":
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
        mean, scale = self.mean[..., first:], self.scale[..., first:]
        return ColumnStatistics(mean, scale, self.ordered[:, first:], self.count[:, first:])

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
        self.number = nn.Sequential(LinearLayer(2 + 2 * waves, width), nn.ReLU(), LinearLayer(width, width))
        self.code = nn.Embedding(CLASSES, width)
        self.kind = nn.Embedding(4, width)  # number, class, masked number, masked class
        self.label = LinearLayer(16, width, bias=False)
        random = torch.Generator().manual_seed(0)
        self.register_buffer("labels", torch.randn(_COLUMN_VECTORS, 16, generator=random), persistent=False)

    def forward(self, cells: "TableBatch", units: ColumnStatistics) -> Float[Tensor, "b n d e"]:
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
            return TorchCategorical(logits=self.logits[:, :, j, :classes], validate_args=False)
        shares, parts = self.numbers.mixture_distribution, self.numbers.component_distribution
        normal = Normal(parts.mean[:, :, j], parts.stddev[:, :, j], validate_args=False)
        weights = TorchCategorical(logits=shares.logits[:, :, j], validate_args=False)
        return MixtureSameFamily(weights, normal, validate_args=False)

    def log_prob(self, values: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Return the log density of numbers and the log probability of classes."""
        codes = torch.where(self.is_class, values, 0).long().clamp(0, CLASSES - 1)
        log_prob = self.logits.log_softmax(-1).gather(-1, codes[..., None])[..., 0]
        return torch.where(self.is_class, log_prob, self.numbers.log_prob(torch.where(self.is_class, 0, values)))


class InducedAttention(nn.Module):
    """Attention between rows through M pseudo-tokens, in O(M·n) (Lee et al. 2019)."""

    def __init__(self, number: int, dim: int, make: Callable[..., Block]):
        super().__init__()
        self.pseudo, self.meet = PseudoTokens(number, dim), ISAB(dim, make)

    def forward(
        self, x: Float[Tensor, "b n c"], context: Float[Tensor, "b m c"], *, mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b n c"]:
        latents, _ = self.pseudo(x)
        return self.meet.spread(x, self.meet.gather(latents, context, mask=mask))


class NPT(Process):
    """Non-parametric transformer: `model.fill(cells)` predicts each cell of a table.

    As a process, model(xc, yc, xt), it reads the table whose rows are points and whose columns are those of x and y,
    with y masked at the targets. Columns are standardised by the context, so that neither shifts nor scales matter.
    With `pseudo` tokens rows attend to those, and those to the context rows; 0: rows attend to rows.
    """

    equivariant = True

    def __init__(
        self, dim_x: int | None = None, dim_y: int = 1, width: int = 64, heads: int = 2, layers: int = 6,
        hidden: int | None = None, between: str = "columns", pseudo: int = 0, head: str = "mixture", **head_options,
    ):  # fmt: skip
        choose("head of npt", head, ["mixture"])
        super().__init__(dim_x, 1, head, width, **head_options)  # the head predicts single cells
        self.dim_y, self.joined = dim_y, choose("between", between, ["columns", "rows"]) == "rows"
        if self.joined and dim_x is None:
            raise InputError("npt: between='rows' needs a fixed number of columns; give dim_x, or between='columns'")
        if type(pseudo) is not int or pseudo < 0:
            raise InputError(f"npt: pseudo must be a number of tokens (0: attention between all rows), got {pseudo!r}")
        row = width * (dim_x + dim_y) if self.joined and dim_x else width
        self.dim_x = dim_x if self.joined else None  # column by column any number is allowed
        self.embed = CellEmbedding(width)
        self.attributes = nn.ModuleList(Block(width, heads, hidden=hidden) for _ in range(layers))
        make = partial(Block, heads=heads, hidden=None if self.joined else hidden)
        self.datapoints = nn.ModuleList(
            InducedAttention(pseudo, row, make) if pseudo else make(row) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.logits = LinearLayer(width, CLASSES)

    def fill(self, cells: "TableBatch") -> CellDistribution:
        """Predict each cell, given the observed ones."""
        if (largest := int(cells.classes.max())) > CLASSES:
            raise InputError(f"npt: a column has {largest} classes, at most {CLASSES} are supported; merge rare ones")
        units = ColumnStatistics.of(cells)
        h = self.features(cells, units)
        exists = torch.arange(CLASSES, device=h.device) < cells.classes.clamp_min(1)[:, None, :, None]
        logits = self.logits(h).masked_fill(~exists, -torch.inf)
        return CellDistribution(self._numbers(h, units), logits, (cells.classes > 0)[:, None])

    def features(self, cells: "TableBatch", units: ColumnStatistics) -> Float[Tensor, "b n d e"]:
        """Apply the layers: attention between attributes, then between datapoints."""
        h = self.embed(cells, units)
        b, n, d, _ = h.shape
        keys = None if cells.valid is None else cells.valid[:, : cells.context]
        if keys is not None and not self.joined:
            keys = keys.repeat_interleave(d, 0)
        for attributes, datapoints in zip(self.attributes, self.datapoints, strict=True):
            h = attributes(h.flatten(0, 1)).unflatten(0, (b, n))
            rows = h.flatten(2) if self.joined else h.transpose(1, 2).flatten(0, 1)
            rows = datapoints(rows, rows[:, : cells.context], mask=expand_key_mask(keys))
            h = rows.unflatten(2, (d, -1)) if self.joined else rows.unflatten(0, (b, d)).transpose(1, 2)
        return self.norm(h)

    def _numbers(self, h: Float[Tensor, "b n d e"], units: ColumnStatistics) -> MixtureSameFamily:
        mixture = self.head.mixture(self.head.out(h).unflatten(-1, (3, -1)))  # type: ignore[operator, union-attr]
        mixture = rescale(mixture, units.mean, units.scale)
        assert isinstance(mixture, MixtureSameFamily)
        return mixture

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None) -> Distribution:
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        cells = self.encode(context, targets)
        return self._numbers(self.decode(cells, targets), ColumnStatistics.of(cells).columns(xc.shape[2]))

    def encode(self, context: Points, targets: Targets) -> "TableBatch":
        """Return the table whose rows are points, context first."""
        points = context.join(targets.without_values(self.dim_y))
        located = points.valid & context.valid.any(1, keepdim=True)  # without a context there is no origin
        observed = torch.cat([located[..., None].expand(points.x.shape), points.observed], -1)
        classes = torch.zeros(observed.shape[0], observed.shape[2], dtype=torch.long, device=observed.device)
        from fillin.data.task import TableBatch  # the data that train the models need not load to use them

        return TableBatch(torch.cat([points.x, points.y], -1), observed, ~observed, classes, len(context), points.keep)

    def decode(self, encoded: "TableBatch", targets: Targets) -> Float[Tensor, "b nt dy e"]:
        """Return features of the cells of y, one column each."""
        return self.features(encoded, ColumnStatistics.of(encoded))[:, encoded.context :, targets.x.shape[2] :]
