"""Gridded transformer neural process: a grid of pseudo-tokens between points and targets (Ashman et al. 2024b)."""

import math
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fillin.attention import expand_key_mask
from fillin.errors import InputError
from fillin.layers import mlp
from fillin.models.base import Points, Targets
from fillin.models.tnp import Tokens, TransformerProcess

MAX_CELLS = 1 << 16  # of a grid in all dimensions together


class GridTokens(NamedTuple):
    """Tokens of the cells, the corner and the cell width of each task's grid, and whether the task has a context."""

    tokens: Float[Tensor, "b m c"]
    low: Float[Tensor, "b 1 dx"]
    step: Float[Tensor, "b 1 dx"]
    known: Bool[Tensor, "b"]


class GriddedTNP(TransformerProcess):
    """Points are read into a grid of pseudo-tokens, which attend to their neighbours and from which targets read.

    Parameters
    ----------
    cells : int, optional
        Cells of the grid in each dimension. The default is 64 in one dimension, 16 in two and 8 in more.
    window : int, default=8
        Cells in each dimension of the windows within which tokens of the grid attend to one another.
    nearest : int, default=3
        Cells in each dimension that a target attends to.

    Notes
    -----
    encoder: the token of a cell attends to the points in that cell. processor: self-attention within windows, which
    every second layer moves by half a window (as in Swin; one window of all cells is a ViT). decoder: a target attends
    to the cells nearest to it. With n points, m targets and M cells the cost is O(n + M + m), where points are spread
    evenly over the cells; TNP-D takes O(n² + nm). The grid covers the bounding box of each context, so that it depends
    on no target. This choice of the grid and tokens made of the centre and the width of a cell are ours.
    """

    windows: Tensor
    shifted: Tensor

    def __init__(
        self, dim_x: int = 1, cells: int | None = None, window: int = 8, nearest: int = 3, layers: int = 5, **options
    ):
        super().__init__(dim_x, layers=layers, **options)
        self.cells = cells or {1: 64, 2: 16}.get(dim_x, 8)
        self.nearest, n = min(nearest, self.cells), self.cells**dim_x
        if n > MAX_CELLS:
            raise InputError(f"cells={self.cells} in each of {dim_x} dimensions is a grid of {n:,}; choose fewer cells")
        self.embed_cells = mlp(2 * dim_x, self.width, self.width)
        self.read_points, self.read_grid = (self.make_block(self.width, cross=True) for _ in range(2))
        self.blocks = nn.ModuleList(self.make_block(self.width) for _ in range(self.layers))
        for name, shift in (("windows", 0), ("shifted", window // 2)):
            self.register_buffer(name, window_index(self.cells, window, shift, dim_x), persistent=False)

    def encode(self, context: Points, targets: Targets) -> GridTokens:
        valid, known = context.valid[..., None], context.valid.any(1)
        low, high = self._bounds(context.x, valid, known)
        step = (high - low) / self.cells
        tokens = self._gather_points(context, low, step)
        for number, block in enumerate(self.blocks):
            index = self.shifted if number % 2 else self.windows
            b, (n, size) = len(tokens), index.shape
            inside = index >= 0
            local = tokens[:, index.clamp_min(0)].flatten(0, 1)
            mask = inside.expand(b, -1, -1).flatten(0, 1)
            local = block(local, mask=expand_key_mask(mask)).view(b, n * size, -1)
            tokens = torch.empty_like(tokens).index_copy(1, index[inside], local[:, inside.flatten()])
        return GridTokens(tokens, low, step, known)

    @staticmethod
    def _bounds(x: Tensor, valid: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest location of each context; 0 without one."""
        if not x.shape[1]:
            zero = x.new_zeros(len(x), 1, x.shape[-1])
            return zero, zero
        low, high = (
            torch.where(valid, x, sign * torch.inf).mul(sign).amin(1, keepdim=True).mul(sign) for sign in (1.0, -1.0)
        )
        return tuple(torch.where(known[:, None, None], bound, 0) for bound in (low, high))  # type: ignore[return-value]

    def locate(self, x: Float[Tensor, "b n dx"], low: Tensor, step: Tensor) -> Int[Tensor, "b n dx"]:
        """Return the cell of each location in each dimension, of a location outside the nearest one."""
        position = (x - low) / torch.where(step > 0, step, torch.inf)
        return position.floor().clamp(0, self.cells - 1).long()

    def _flat(self, cell: Int[Tensor, "*b dx"]) -> Int[Tensor, "*b"]:
        weights = self.cells ** torch.arange(cell.shape[-1] - 1, -1, -1, device=cell.device)
        return (cell * weights).sum(-1)

    def _gather_points(self, context: Points, low: Tensor, step: Tensor) -> Tokens:
        """Return the tokens of the cells after each has attended to the points in it."""
        (b, n), m, dx = context.x.shape[:2], self.cells ** context.x.shape[-1], context.x.shape[-1]
        axis = torch.arange(self.cells, dtype=low.dtype, device=low.device)
        grid = torch.stack(torch.meshgrid(*[axis] * dx, indexing="ij"), -1).view(1, m, dx)
        cells = self.embed_cells(torch.cat([low + (grid + 0.5) * step, step.expand(-1, m, -1)], -1))
        slots = group_by_cell(torch.where(context.valid, self._flat(self.locate(context.x, low, step)), m), m)
        tokens, task = self.tokens(context), torch.arange(b, device=low.device)[:, None, None]
        inside = tokens[task, slots.clamp_min(0)].flatten(0, 1) if n else tokens.new_zeros(b * m, 0, self.width)
        mask = expand_key_mask((slots >= 0).flatten(0, 1))
        return self.read_points(cells.flatten(0, 1)[:, None], inside, mask=mask).view(b, m, -1)

    def decode(self, encoded: GridTokens, targets: Targets) -> Tokens:
        b, nt, dx = targets.x.shape
        tokens = self.tokens(targets.without_values(self.dim_y)).flatten(0, 1)[:, None]
        cell = self.locate(targets.x, encoded.low, encoded.step)
        first = (cell - self.nearest // 2).clamp(0, self.cells - self.nearest)
        offsets = torch.tensor(list(product(range(self.nearest), repeat=dx)), device=cell.device)
        near = self._flat(first[:, :, None] + offsets)  # [b nt k]
        task = torch.arange(b, device=cell.device)[:, None, None]
        keys = encoded.tokens[task, near].flatten(0, 1)
        mask = encoded.known[:, None, None].expand(near.shape).flatten(0, 1)
        return self.features(self.read_grid(tokens, keys, mask=expand_key_mask(mask)).view(b, nt, self.width))


def window_index(cells: int, window: int, shift: int, dim_x: int) -> Int[Tensor, "n size"]:
    """Return the cells of each window of a grid, in which windows begin `shift` cells before it; −1 outside.

    >>> window_index(4, 2, 1, 1).tolist()
    [[-1, 0], [1, 2], [3, -1]]
    """
    number = math.ceil((cells + shift) / window)
    axis = torch.arange(number * window) - shift
    axes = torch.where((axis >= 0) & (axis < cells), axis, -1).view(number, window)
    index, valid = torch.zeros((1, 1), dtype=torch.long), torch.ones((1, 1), dtype=torch.bool)
    for _ in range(dim_x):
        index = (index[:, None, :, None] * cells + axes[None, :, None]).flatten(2).flatten(0, 1)
        valid = (valid[:, None, :, None] & (axes >= 0)[None, :, None]).flatten(2).flatten(0, 1)
    return torch.where(valid, index, -1)


def group_by_cell(cell: Int[Tensor, "b n"], cells: int) -> Int[Tensor, "b m p"]:
    """Return the points of each cell, as indices padded by −1 to those of the fullest cell; `cells` is no cell.

    >>> group_by_cell(torch.tensor([[1, 0, 1, 3]]), 3).tolist()
    [[[1, -1], [0, 2], [-1, -1]]]
    """
    b, n = cell.shape
    counts = torch.zeros(b, cells + 1, dtype=torch.long, device=cell.device).scatter_add(1, cell, torch.ones_like(cell))
    fullest = int(counts[:, :cells].max()) if b and n else 0
    ordered, order = cell.sort(dim=1, stable=True)
    rank = torch.arange(n, device=cell.device) - (counts.cumsum(1) - counts).gather(1, ordered)
    slots = torch.full((b, cells + 1, max(fullest, 1)), -1, dtype=torch.long, device=cell.device)
    task, kept = torch.arange(b, device=cell.device)[:, None].expand(b, n), ordered < cells
    slots[task[kept], ordered[kept], rank[kept]] = order[kept]
    return slots[:, :cells, :fullest]
