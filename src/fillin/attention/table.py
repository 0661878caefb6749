"""F(Δ) from a table: evaluated on a grid of displacements instead of on every pair, and interpolated between.

Exact in its gradients to the table, and so to F's parameters. Linear interpolation errs by step²/8 · |F''|, which the
table itself shows in its second differences: it is made as fine as the tolerance asks, and not used where that would
take nearly as many nodes as there are pairs.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding_bag

from fillin.attention.displacement import PlaceScore
from fillin.attention.problem import Problem
from fillin.attention.scores import Score, Sum

TOLERANCE = 1e-4  # the largest error of a logit; attention's output, an average, errs by less
_FIRST = {1: 2048, 2: 192}  # nodes per dimension to begin with; three dimensions would take too many
_WORTH = 4  # pairs per node from which on a table is faster than the network itself


def tabulated(p: Problem) -> Problem:
    """The same problem with every costly, smooth score of Δ read from a table, where that pays.

    Places that want a gradient keep the exact score: the table knows Δ only to look it up.
    """
    xq, xk = p.xq, p.xk
    if p.v.dtype != torch.float32:  # who asks for more digits wants them
        return p
    if xq is None or xk is None or xq.requires_grad or xk.requires_grad or torch.compiler.is_compiling():
        return p
    terms = [_table(t, xq, xk) or t for t in p.score.terms]
    changed = any(new is not old for new, old in zip(terms, p.score.terms, strict=True))
    return replace(p, score=terms[0] if len(terms) == 1 else Sum(*terms)) if changed else p


def _table(score: Score, xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"]) -> "Table | None":
    """A table of `score` over all displacements that occur, fine enough; None where it would not pay."""
    if not isinstance(score, PlaceScore) or not score.tabulates or score.dim not in _FIRST:
        return None
    low, high = xq.amin((0, 1)) - xk.amax((0, 1)), xq.amax((0, 1)) - xk.amin((0, 1))
    if score.radial:
        low, high = low.new_zeros(1), torch.linalg.vector_norm(torch.maximum(low.abs(), high.abs()), keepdim=True)
    most = int((len(xq) * xq.shape[1] * xk.shape[1] / _WORTH) ** (1 / score.dim))
    nodes = _FIRST[score.dim]
    for _ in range(2):
        if nodes > most:
            return None
        step = ((high - low) / (nodes - 1)).clamp_min(torch.finfo(low.dtype).tiny)
        values = _evaluate(score, low, step, nodes)
        error = _error(values)
        if error <= TOLERANCE:
            return Table(values.flatten(1), low, step, nodes, score.radial)
        nodes = int(1.1 * nodes * (error / TOLERANCE) ** 0.5)  # the error falls as the square of the step
    return None


def _evaluate(score: PlaceScore, low: Tensor, step: Tensor, nodes: int) -> Float[Tensor, "h *nodes"]:
    axes = [low[i] + step[i] * torch.arange(nodes, dtype=low.dtype, device=low.device) for i in range(score.dim)]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]  # [1 dim G (G)]
    values = score(None, None, grid if score.dim == 2 else grid[..., None])[0]  # a score wants [b dim n m]
    return values if score.dim == 2 else values[..., 0]


def _error(values: Float[Tensor, "h *nodes"]) -> float:
    """The largest error of interpolating between the nodes: Σ over dimensions of |second difference|/8."""
    found = [values.detach().diff(n=2, dim=d).abs().max() / 8 for d in range(1, values.ndim)]
    return float(torch.stack(found).sum())


class Table(Score):
    """logit = Σ over the 2^dim corners around Δ of corner weight · table value."""

    places = True

    def __init__(self, values: Float[Tensor, "h t"], low: Tensor, step: Tensor, nodes: int, radial: bool):
        super().__init__()
        self.values, self.low, self.step, self.nodes, self.radial = values, low, step, nodes, radial

    def tensors(self) -> list[Tensor]:
        return [self.values]

    def forward(self, q, k, delta):
        if self.radial:
            delta = torch.linalg.vector_norm(delta, dim=1, keepdim=True)
        return _Lookup.apply(self.values, delta, self.low, self.step, self.nodes)


def _cells(delta: Tensor, low: Tensor, step: Tensor, nodes: int) -> tuple[list[Tensor], list[Tensor]]:
    """Per dimension, the cell of each pair and how far into it the pair lies, each [pairs]."""
    cells, parts = [], []
    for i in range(len(low)):
        at = ((delta[:, i].flatten() - low[i]) / step[i]).clamp_(0, nodes - 1)
        cell = at.long().clamp_(max=nodes - 2)
        cells.append(cell)
        parts.append(at - cell)
    return cells, parts


def _corners(cells: list[Tensor], parts: list[Tensor], nodes: int) -> list[tuple[Tensor, Tensor]]:
    """The 2^dim corners of each pair's cell: index into the table and weight."""
    corners = [(cells[0], 1 - parts[0]), (cells[0] + 1, parts[0])]
    for cell, part in zip(cells[1:], parts[1:], strict=True):
        corners = [(j * nodes + c, w * a) for j, w in corners for c, a in ((cell, 1 - part), (cell + 1, part))]
    return corners


class _Lookup(torch.autograd.Function):
    """[h t] table and [b dim n m] displacements → [b h n m]."""

    @staticmethod
    def forward(ctx, values, delta, low, step, nodes):
        cells, parts = _cells(delta, low, step, nodes)
        ctx.save_for_backward(*cells, *parts)
        ctx.nodes, ctx.shape = nodes, values.shape
        index, weight = (torch.stack(side, -1) for side in zip(*_corners(cells, parts, nodes), strict=True))
        rows = embedding_bag(index, values.T.contiguous(), per_sample_weights=weight, mode="sum")  # [pairs h]
        b, _, n, m = delta.shape
        return rows.view(b, n * m, -1).mT.reshape(b, -1, n, m)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        saved = ctx.saved_tensors
        cells, parts = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        flat = grad.transpose(0, 1).reshape(grad.shape[1], -1)  # [h pairs]
        table, share = flat.new_zeros(ctx.shape), torch.empty_like(flat)
        for index, weight in _corners(list(cells), list(parts), ctx.nodes):
            table.index_add_(1, index, torch.mul(flat, weight, out=share))
        return table, None, None, None, None
