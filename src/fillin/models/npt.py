"""Non-parametric transformers (Kossen et al. 2021): a table in, predictions of its masked cells out.

    H ← embed(X, M) [b n d e];  H ← between attributes (d tokens of width e, row by row)
                                H ← between datapoints (n tokens: rows of width d·e, or column by column of width e)

repeated; each is a transformer block (attention and a feed-forward network, residuals, layer norms). The model is
equivariant to permutations of rows. Column by column neither the weights nor the time grow with (d·e)², and one set of
weights serves any number of columns. For many rows attention goes through a few pseudo-tokens, in time linear in n.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Distribution, MixtureSameFamily

from fillin.attention import expand_key_mask
from fillin.data.task import TableBatch
from fillin.errors import InputError, choose
from fillin.heads import rescale
from fillin.layers import ISAB, Block, PseudoTokens
from fillin.models.base import Process
from fillin.models.cell_embedding import CLASSES, CellDistribution, CellEmbedding, ColumnStatistics
from fillin.models.points import Points, Targets, origin, read


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
        super().__init__(dim_x, 1, width, head, **head_options)  # the head predicts single cells
        self.dim_y, self.joined = dim_y, choose("between", between, ["columns", "rows"]) == "rows"
        if self.joined and dim_x is None:
            raise InputError(
                "npt: between='rows' needs a fixed number of columns; give dim_x, or use between='columns'"
            )
        if type(pseudo) is not int or pseudo < 0:
            raise InputError(
                f"npt: pseudo must be a number of tokens, 0 for attention between all rows, got {pseudo!r}"
            )
        row = width * (dim_x + dim_y) if self.joined and dim_x else width
        self.dim_x = dim_x if self.joined else None  # column by column any number is allowed
        self.embed = CellEmbedding(width)
        self.attributes = nn.ModuleList(Block(width, heads, hidden=hidden) for _ in range(layers))
        make = partial(Block, heads=heads, hidden=None if self.joined else hidden)
        self.datapoints = nn.ModuleList(
            InducedAttention(pseudo, row, make) if pseudo else make(row) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, CLASSES)

    def fill(self, cells: TableBatch) -> CellDistribution:
        """Predict each cell, given the observed ones."""
        largest = int(cells.classes.max())
        if largest > CLASSES:
            raise InputError(
                f"npt: a column has {largest} classes, but at most {CLASSES} are supported; merge rare ones"
            )
        units = ColumnStatistics.of(cells)
        h = self.features(cells, units)
        exists = torch.arange(CLASSES, device=h.device) < cells.classes.clamp_min(1)[:, None, :, None]
        logits = self.logits(h).masked_fill(~exists, -torch.inf)
        return CellDistribution(self._numbers(h, units), logits, (cells.classes > 0)[:, None])

    def features(self, cells: TableBatch, units: ColumnStatistics) -> Float[Tensor, "b n d e"]:
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

    def read(self, xc, yc, xt, mask_c=None, mask_t=None) -> tuple[Points, Targets]:
        dtype = next(self.parameters()).dtype
        context, targets = read(xc, yc, xt, mask_c, mask_t, self.dim_x, self.dim_y, dtype)
        start = origin(context)
        return context.relative_to(start), targets.relative_to(start)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None) -> Distribution:
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        cells = self.encode(context, targets)
        return self._numbers(self.decode(cells, targets), ColumnStatistics.of(cells).columns(xc.shape[2]))

    def encode(self, context: Points, targets: Targets) -> TableBatch:
        """Return the table whose rows are points, context first."""
        points = context.join(targets.without_values(self.dim_y))
        located = points.valid & context.valid.any(
            1, keepdim=True
        )  # without a context locations are relative to nothing
        observed = torch.cat([located[..., None].expand(points.x.shape), points.observed], -1)
        classes = torch.zeros(observed.shape[0], observed.shape[2], dtype=torch.long, device=observed.device)
        return TableBatch(torch.cat([points.x, points.y], -1), observed, ~observed, classes, len(context), points.keep)

    def decode(self, encoded: TableBatch, targets: Targets) -> Float[Tensor, "b nt dy e"]:
        """Return features of the cells of y, one column each."""
        return self.features(encoded, ColumnStatistics.of(encoded))[:, encoded.context :, targets.x.shape[2] :]
