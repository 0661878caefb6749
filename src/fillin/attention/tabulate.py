"""F(Δ) from a table: evaluated on a grid of displacements instead of on every pair, and interpolated between.

Exact in its gradients to the table, and so to F's parameters. Linear interpolation errs by step²/8 · |F''|, which the
table itself shows in its second differences: it is made as fine as the tolerance asks, and not used where that would
take as many nodes as there are pairs. How fine depends on F and the places of this call alone, never on earlier ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding_bag

from fillin.attention.displacement import PlaceScore
from fillin.attention.problem import Problem
from fillin.attention.scores import Score, Sum

_FIRST = {1: 257, 2: 33, 3: 17}  # nodes along an axis to begin with
_WORTH = 4  # pairs per node from which on a table is faster than the network itself


@dataclass(frozen=True)
class Tabulated:
    """values [h *nodes (f)] at low + step · index along each axis of Δ, or of ‖Δ‖ where `radial`."""

    values: Float[Tensor, "h ..."]
    low: Float[Tensor, " dims"]
    step: Float[Tensor, " dims"]
    nodes: int
    radial: bool
    exact: bool = False  # every Δ that is asked for is a node


def tabulate(
    f: Callable[[Float[Tensor, "1 dims n m"]], Float[Tensor, "h n m ..."]],
    reach: Float[Tensor, " dx"],
    radial: bool,
    most: float,
    tolerance: float,
) -> Tabulated | None:
    """f on a grid over |Δ| ≤ reach, fine enough; None where that takes more than `most` nodes, or f is too rough.

    There is a node at Δ = 0, where scores of distance have their kink, so that those are exact.
    """
    reach = torch.linalg.vector_norm(reach, keepdim=True) if radial else reach
    dims, tiny = len(reach), torch.finfo(reach.dtype).tiny
    if dims not in _FIRST or tolerance <= 0 or torch.compiler.is_compiling():  # which cannot wait for an error
        return None

    def table(nodes: int, between: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        low = torch.zeros_like(reach) if radial else -reach
        step = ((reach - low) / (nodes - 1)).clamp_min(tiny)
        at = torch.arange(nodes - between, dtype=reach.dtype, device=reach.device) + 0.5 * between
        axes = [low[d] + step[d] * at if radial else step[d] * (at - (nodes - 1) / 2) for d in range(dims)]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"))
        values = f(grid.reshape(1, dims, len(at), -1))  # a score wants two axes of pairs
        return values.unflatten(2, (len(at),) * (dims - 1)) if dims > 1 else values.squeeze(2), low, step

    nodes = _FIRST[dims]
    for attempt in range(4):
        if nodes**dims > most:
            return None
        with torch.set_grad_enabled(torch.is_grad_enabled() and attempt > 0):  # the first only tells how fine
            values, low, step = table(nodes)
        error = _bends(values, dims)
        if error > tolerance:  # a kink at a node bends, but is met exactly: what counts is what lies between nodes
            with torch.no_grad():
                error = min(error, float((table(nodes, True)[0] - _middles(values, dims)).abs().max()))
        if error <= tolerance:
            return Tabulated(table(nodes)[0] if attempt == 0 else values, low, step, nodes, radial)
        if not error < float("inf"):
            return None
        nodes = int(1.1 * nodes * (error / tolerance) ** 0.5) | 1  # the error falls as the square of the step
    return None


def _bends(values: Tensor, dims: int) -> float:
    """The largest error of interpolating something smooth: Σ over dimensions of |second difference|/8."""
    found = [values.detach().diff(n=2, dim=d).abs().max() / 8 for d in range(1, dims + 1)]
    return float(torch.stack(found).sum())


def _middles(values: Tensor, dims: int) -> Tensor:
    """Interpolated values in the middle of every cell."""
    for d in range(1, dims + 1):
        size = values.shape[d] - 1
        values = (values.detach().narrow(d, 0, size) + values.detach().narrow(d, 1, size)) / 2
    return values


def tabulate_scores(
    scores: Sequence[PlaceScore], heads: int, reach: Float[Tensor, " dx"], most: float, tolerance: float
) -> Tabulated | None:
    """The sum of some scores of Δ, per head."""

    def total(grid: Tensor) -> Tensor:
        return sum(score(None, None, grid)[0].expand(heads, -1, -1) for score in scores)  # type: ignore[return-value]

    return tabulate(total, reach, all(score.radial for score in scores), most, tolerance)


def on_grid(
    f: Callable[[Float[Tensor, "1 dims n m"]], Float[Tensor, "h n m ..."]],
    xq: Float[Tensor, "b n dx"],
    xk: Float[Tensor, "b m dx"],
    reach: Float[Tensor, " dx"],
    most: float,
) -> Tabulated | None:
    """f at every Δ that places on an even grid, the same in all tasks, can have within reach: nothing lies between
    nodes, so that no tolerance is asked. None where places are on no such grid, or there are more than `most` nodes."""
    step = steps(xq, xk)
    if step is None:
        return None
    half = (reach / step + 1e-3).int() + 1
    if float((2.0 * half + 1).prod()) > most:
        return None
    axes = [
        s * torch.arange(-n, n + 1, dtype=s.dtype, device=s.device) for s, n in zip(step, half.tolist(), strict=True)
    ]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    values = f(grid.reshape(1, len(axes), len(axes[0]), -1))
    values = values if len(axes) > 1 else values.squeeze(2)
    return Tabulated(values, -half * step, step, max(map(len, axes)), radial=False, exact=True)


def steps(xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"]) -> Float[Tensor, " dx"] | None:
    """From one place to the next along each axis, where those of the first task are on an even grid of one or two."""
    if torch.compiler.is_compiling() or xq.shape[-1] > 2:
        return None
    found = [_even(torch.cat([xq[0, :, d], xk[0, :, d]])) for d in range(xq.shape[-1])]
    return None if None in found else torch.stack(found)  # type: ignore[arg-type]


def _even(x: Float[Tensor, " n"]) -> Float[Tensor, ""] | None:
    """The distance of neighbours, where every place is a whole number of these from the first."""
    distinct = x.detach().sort().values
    gaps, size = distinct.diff(), distinct[-1] - distinct[0]
    gaps = gaps[gaps > 1e-5 * size]
    if not len(gaps):
        return None
    step = size / len(gaps)
    at = (distinct - distinct[0]) / step
    return step if float((at - at.round()).abs().max()) < 1e-3 else None


def extent(xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"]) -> Float[Tensor, " dx"]:
    """max |Δ| along each axis, over all pairs of all batches."""
    xq, xk = xq.detach(), xk.detach()
    return torch.maximum(xq.amax((0, 1)) - xk.amin((0, 1)), xk.amax((0, 1)) - xq.amin((0, 1)))


def tabulated(p: Problem) -> Problem:
    """The same problem with every costly, smooth score of Δ read from a table, where that pays.

    Places that want a gradient keep the exact score: the table knows Δ only to look it up.
    """
    xq, xk = p.xq, p.xk
    if p.v.dtype != torch.float32:  # who asks for more digits wants them
        return p
    if xq is None or xk is None or xq.requires_grad or xk.requires_grad or torch.compiler.is_compiling():
        return p
    most = len(xq) * xq.shape[1] * xk.shape[1] / _WORTH

    def table(score: Score) -> Score:
        if not isinstance(score, PlaceScore) or not score.tabulates or score.dim > 2:
            return score
        found = tabulate_scores([score], score.heads, extent(xq, xk), most, p.tolerance)
        return score if found is None else Table(found)

    terms = [table(term) for term in p.score.terms]
    changed = any(new is not old for new, old in zip(terms, p.score.terms, strict=True))
    return replace(p, score=terms[0] if len(terms) == 1 else Sum(*terms)) if changed else p


class Table(Score):
    """logit = Σ over the 2^dim corners around Δ of corner weight · table value."""

    places = True

    def __init__(self, table: Tabulated):
        super().__init__()
        self.table, self.values = table, table.values.flatten(1)

    def tensors(self) -> list[Tensor]:
        return [self.values]

    def forward(self, q, k, delta):
        if self.table.radial:
            delta = torch.linalg.vector_norm(delta, dim=1, keepdim=True)
        return _Lookup.apply(self.values, delta, self.table.low, self.table.step, self.table.nodes)


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
