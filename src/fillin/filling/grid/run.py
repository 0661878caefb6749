"""Filling a grid: field after field in memory, or blocks as a dask graph for any scheduler."""

import itertools
import math
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from fillin.filling.grid.block import Tick, fill_block
from fillin.filling.grid.layout import GridLayout, coarse_cells, compute
from fillin.runtime import require

if TYPE_CHECKING:
    from fillin.models import Process

BLOCK_KEY = "fillin-block"  # in the names of dask's tasks


def fill_grid(layout: GridLayout, model: "Process | None", tick: Tick = lambda done: None) -> Any:
    """Return [4 …] with the original dimensions: filled, std, low, high; a NumPy array, or dask's for blocks.

    Only a grid without missing cells needs no model.
    """
    parts = _fill_in_memory(layout, model, tick) if layout.blocks is None else _fill_blocks(layout, model)
    order = [layout.variable.dims.index(dim) for dim in layout.original_dims]
    return parts.transpose([0, *(1 + i for i in order)])


def _fill_in_memory(layout: GridLayout, model: Any, tick: Tick) -> ndarray:
    values, lead = _as_floats(layout.variable.values), len(layout.slice_dims)
    cells = tuple(np.arange(len(axis.x)) for axis in layout.settings.axes)
    fillable = np.broadcast_to(layout.fillable, values.shape)
    out = np.empty((4, *values.shape), dtype=values.dtype)
    for index in np.ndindex(*values.shape[:lead]):
        field = fill_block(model, layout.settings, values[index], cells, fillable[index], cells, tick=tick)
        out[(slice(None), *index)] = field
    return out


def _as_floats(values: Any) -> Any:
    return values if values.dtype.kind == "f" else values.astype(float)


def _fill_blocks(layout: GridLayout, model: Any) -> Any:
    """Return a dask array with the blocks of the layout; each is one task that gets its cells and those of its halo."""
    dask, da = require("dask"), require("dask.array")
    variable, blocks, lead = layout.variable, layout.blocks, len(layout.slice_dims)
    assert blocks is not None
    values = _as_floats(variable.values if variable.lazy else da.from_array(variable.values, chunks=blocks.sizes))
    token = uuid4().hex
    shared_model = dask.delayed(model, name=f"fillin-model-{token}", traverse=False)
    shared_settings = dask.delayed(layout.settings, name=f"fillin-settings-{token}", traverse=False)
    task = dask.delayed(fill_block, pure=False)
    dimensions = zip(values.shape, blocks.sizes, strict=True)
    ranges = [[np.arange(start, min(start + size, n)) for start in range(0, n, size)] for n, size in dimensions]
    coarse, fillable = _coarse_field(layout, values), layout.fillable
    parts = np.empty([1, *map(len, ranges)], dtype=object)
    for index in itertools.product(*(range(len(along)) for along in ranges)):
        rows = [ranges[i][k] for i, k in enumerate(index)]
        slices, inner = tuple(slice(int(r[0]), int(r[-1]) + 1) for r in rows[:lead]), tuple(rows[lead:])
        cells = tuple(
            halo_cells(along, halo, len(axis.x), bool(axis.period))
            for along, halo, axis in zip(inner, blocks.halo, layout.settings.axes, strict=True)
        )
        around = values[slices]
        for i, along in enumerate(cells):
            around = _take(da, around, lead + i, along)
        allowed = fillable[tuple(_mask_slice(along, n) for along, n in zip(rows, fillable.shape, strict=True))]
        far = None if coarse is None else (coarse[0][slices], coarse[1])
        name = f"{BLOCK_KEY}-{token}-{'-'.join(map(str, index))}"
        block = task(shared_model, shared_settings, around, cells, allowed, inner, far, dask_key_name=name)
        shape = (4, *(len(along) for along in rows))
        parts[(0, *index)] = da.from_delayed(block, shape, dtype=values.dtype)
    return da.block(parts.tolist())


def _coarse_field(layout: GridLayout, values: Any) -> tuple[ndarray, tuple[ndarray, ...]] | None:
    """Return a few cells of every field where blocks do not see all of it, so that wide gaps have a context."""
    blocks, lead = layout.blocks, len(layout.slice_dims)
    shape = values.shape[lead:]
    assert blocks is not None
    if all(size + 2 * halo >= n for size, halo, n in zip(blocks.sizes[lead:], blocks.halo, shape, strict=True)):
        return None
    coarse = coarse_cells(shape)
    rows = tuple(np.arange(n)[along] for n, along in zip(shape, coarse, strict=True))
    return np.asarray(compute(values[(..., *coarse)], layout.variable)), rows


def halo_cells(rows: Int[ndarray, "_"], halo: int, n: int, periodic: bool) -> Int[ndarray, "_"]:
    """Return the indices of a block's cells along an axis of n, and of `halo` more on either side, each once.

    >>> halo_cells(np.arange(0, 2), 1, 6, True), halo_cells(np.arange(0, 2), 1, 6, False)
    (array([5, 0, 1, 2]), array([0, 1, 2]))
    """
    first, last = int(rows[0]) - halo, int(rows[-1]) + halo
    if last - first + 1 >= n and periodic:
        return np.arange(n)
    return np.arange(first, last + 1) % n if periodic else np.arange(max(0, first), min(n - 1, last) + 1)


def _take(da: Any, values: Any, axis: int, rows: ndarray) -> Any:
    """Take rows along an axis: one run of indices, or two across the seam of a periodic axis."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    parts = [values[(slice(None),) * axis + (slice(int(run[0]), int(run[-1]) + 1),)] for run in runs]
    return parts[0] if len(parts) == 1 else da.concatenate(parts, axis)


def _mask_slice(rows: ndarray, n: int) -> slice:
    """Return the slice of a mask along one dimension, which has size 1 where the mask lacks that dimension."""
    return slice(None) if n == 1 else slice(int(rows[0]), int(rows[-1]) + 1)


def count_blocks(layout: GridLayout) -> int:
    assert layout.blocks is not None
    return math.prod(-(-n // size) for n, size in zip(layout.variable.shape, layout.blocks.sizes, strict=True))
