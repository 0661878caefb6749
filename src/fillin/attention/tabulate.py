"""Tables of functions of Δ: evaluated on a grid of displacements instead of on every pair, then interpolated.

Gradients to the table, and so to the parameters of F, are exact. Linear interpolation errs by step²/8 · |F''|, which
the second differences of the table show. The grid is refined until the error is below the tolerance, and not used where
it would need as many nodes as there are pairs. It depends on F and the locations of this call alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding_bag

from fillin.attention.displacement import DisplacementScore, reduce_to_radius
from fillin.attention.scores import Score, ScoreTraits

_INITIAL_NODES = {1: 257, 2: 33, 3: 17}  # per axis, by number of dimensions
_MAX_REFINEMENTS = 4

DisplacementFunction = Callable[[Float[Tensor, "1 dims n m"]], Float[Tensor, "h n m ..."]]


@dataclass(frozen=True)
class DisplacementTable:
    """values [h *nodes (f)] at low + step · index along each axis of Δ, or of ‖Δ‖ where `radial`."""

    values: Float[Tensor, "h ..."]
    low: Float[Tensor, " dims"]
    step: Float[Tensor, " dims"]
    nodes: int
    radial: bool
    exact: bool = False  # every Δ of the problem is a node


def tabulate(
    f: DisplacementFunction, reach: Float[Tensor, " dx"], radial: bool, max_nodes: float, tolerance: float
) -> DisplacementTable | None:
    """Evaluate f on a grid over |Δ| ≤ reach; None where the tolerance takes more than `max_nodes` nodes. There is a
    node at Δ = 0, where scores of the distance have a kink, so that those are exact."""
    reach = torch.linalg.vector_norm(reach, keepdim=True) if radial else reach
    dims, tiny = len(reach), torch.finfo(reach.dtype).tiny
    if dims not in _INITIAL_NODES or tolerance <= 0 or torch.compiler.is_compiling():  # a graph cannot refine a grid
        return None

    def evaluate(nodes: int, midpoints: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        low = torch.zeros_like(reach) if radial else -reach
        step = ((reach - low) / (nodes - 1)).clamp_min(tiny)
        index = torch.arange(nodes - midpoints, dtype=reach.dtype, device=reach.device) + 0.5 * midpoints
        axes = [low[d] + step[d] * index if radial else step[d] * (index - (nodes - 1) / 2) for d in range(dims)]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"))
        values = f(grid.reshape(1, dims, len(index), -1))  # a score takes two axes of pairs
        return values.unflatten(2, (len(index),) * (dims - 1)) if dims > 1 else values.squeeze(2), low, step

    nodes = _INITIAL_NODES[dims]
    for attempt in range(_MAX_REFINEMENTS):
        if nodes**dims > max_nodes:
            return None
        with torch.set_grad_enabled(torch.is_grad_enabled() and attempt > 0):  # the first only measures the error
            values, low, step = evaluate(nodes)
        curvatures = [values.detach().diff(n=2, dim=d).abs().max() / 8 for d in range(1, dims + 1)]
        error = float(torch.stack(curvatures).sum())
        if error > tolerance:  # a kink at a node has a large second difference, but is exact: compare the midpoints
            with torch.no_grad():
                interpolated = values.detach()
                for d in range(1, dims + 1):
                    cells = interpolated.shape[d] - 1
                    interpolated = (interpolated.narrow(d, 0, cells) + interpolated.narrow(d, 1, cells)) / 2
                error = min(error, float((evaluate(nodes, True)[0] - interpolated).abs().max()))
        if error <= tolerance:
            return DisplacementTable(evaluate(nodes)[0] if attempt == 0 else values, low, step, nodes, radial)
        if not error < float("inf"):
            return None
        nodes = int(1.1 * nodes * (error / tolerance) ** 0.5) | 1  # the error falls with the square of the step
    return None


def tabulate_scores(
    scores: Sequence[DisplacementScore], heads: int, reach: Float[Tensor, " dx"], max_nodes: float, tolerance: float
) -> DisplacementTable | None:
    """Tabulate the sum of scores of Δ, per head."""

    def total(grid: Tensor) -> Tensor:
        return sum(score(None, None, grid)[0].expand(heads, -1, -1) for score in scores)  # type: ignore[return-value]

    return tabulate(total, reach, all(score.traits.radial for score in scores), max_nodes, tolerance)


def tabulate_grid(
    f: DisplacementFunction,
    xq: Float[Tensor, "b n dx"],
    xk: Float[Tensor, "b m dx"],
    reach: Float[Tensor, " dx"],
    max_nodes: float,
) -> DisplacementTable | None:
    """Evaluate f at every Δ within reach that locations on a regular grid, shared by all tasks, can have.

    Nothing is interpolated, so there is no tolerance. None where the locations are on no such grid, or it has more than
    `max_nodes` nodes.
    """
    step = find_grid_step(xq, xk)
    if step is None:
        return None
    half = (reach / step + 1e-3).int() + 1
    if float((2.0 * half + 1).prod()) > max_nodes:
        return None
    sides = zip(step, half.tolist(), strict=True)
    axes = [s * torch.arange(-n, n + 1, dtype=s.dtype, device=s.device) for s, n in sides]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    values = f(grid.reshape(1, len(axes), len(axes[0]), -1))
    values = values if len(axes) > 1 else values.squeeze(2)
    return DisplacementTable(values, -half * step, step, max(map(len, axes)), radial=False, exact=True)


def find_grid_step(xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"]) -> Float[Tensor, " dx"] | None:
    """Step of the regular grid, of one or two dimensions, of the first task's locations; None where there is none. On a
    grid, every coordinate is a whole number of steps from the first."""
    if torch.compiler.is_compiling() or xq.shape[-1] > 2:
        return None
    steps = []
    for x in torch.cat([xq[0], xk[0]]).detach().T:
        ordered = x.sort().values
        gaps, size = ordered.diff(), ordered[-1] - ordered[0]
        n_steps = int((gaps > 1e-5 * size).sum())
        if not n_steps:
            return None
        steps.append(size / n_steps)
        index = (ordered - ordered[0]) / steps[-1]
        if not float((index - index.round()).abs().max()) < 1e-3:
            return None
    return torch.stack(steps)


def largest_displacement(xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"]) -> Float[Tensor, " dx"]:
    """max |Δ| along each axis, over all pairs of all tasks."""
    xq, xk = xq.detach(), xk.detach()
    return torch.maximum(xq.amax((0, 1)) - xk.amin((0, 1)), xk.amax((0, 1)) - xq.amin((0, 1)))


class TabulatedScore(Score):
    """logit = Σ over the 2^dim corners of the cell around Δ of corner weight · table value."""

    def __init__(self, table: DisplacementTable):
        super().__init__()
        self.traits = ScoreTraits(displacement=True, radial=table.radial)
        self.table, self.values = table, table.values.flatten(1)

    def learned_tensors(self) -> list[Tensor]:
        return [self.values]

    def forward(self, q, k, delta):
        delta = reduce_to_radius(delta) if self.table.radial else delta
        return _Interpolation.apply(self.values, delta, self.table.low, self.table.step, self.table.nodes)


def _corners(cells: list[Tensor], fractions: list[Tensor], nodes: int) -> list[tuple[Tensor, Tensor]]:
    """The 2^dim corners of each pair's cell: index into the table and weight."""
    corners = [(cells[0], 1 - fractions[0]), (cells[0] + 1, fractions[0])]
    for cell, fraction in zip(cells[1:], fractions[1:], strict=True):
        sides = ((cell, 1 - fraction), (cell + 1, fraction))
        corners = [(index * nodes + c, weight * w) for index, weight in corners for c, w in sides]
    return corners


class _Interpolation(torch.autograd.Function):
    """Table [h t] and displacements [b dim n m] → logits [b h n m]."""

    @staticmethod
    def forward(ctx, values, delta, low, step, nodes):
        cells, fractions = [], []  # per dimension, the cell of each pair and its position in the cell, each [pairs]
        for d in range(len(low)):
            index = ((delta[:, d].flatten() - low[d]) / step[d]).clamp_(0, nodes - 1)
            cells.append(index.long().clamp_(max=nodes - 2))
            fractions.append(index - cells[-1])
        ctx.save_for_backward(*cells, *fractions)
        ctx.nodes, ctx.shape = nodes, values.shape
        index, weight = (torch.stack(side, -1) for side in zip(*_corners(cells, fractions, nodes), strict=True))
        logits = embedding_bag(index, values.T.contiguous(), per_sample_weights=weight, mode="sum")  # [pairs h]
        b, _, n, m = delta.shape
        return logits.view(b, n * m, -1).mT.reshape(b, -1, n, m)

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        saved = ctx.saved_tensors
        cells, fractions = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        flat = grad.transpose(0, 1).reshape(grad.shape[1], -1)  # [h pairs]
        d_values, weighted = flat.new_zeros(ctx.shape), torch.empty_like(flat)
        for index, weight in _corners(list(cells), list(fractions), ctx.nodes):
            d_values.index_add_(1, index, torch.mul(flat, weight, out=weighted))
        return d_values, None, None, None, None
