"""Filling of a grid: field after field in memory, or blocks as a dask graph for any scheduler.

`fill_block` does the work, here or on the workers of a cluster.
"""

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument, render
from fillin.filling.grid.layout import Blocks, FieldSettings, GridLayout
from fillin.runtime import Tick, require

if TYPE_CHECKING:
    from fillin.models import Process

BLOCK_KEY = "fillin-block"  # in the names of dask's tasks
_MAX_CELLS_HELD = 16_384  # cells whose mixtures are in memory at a time
_COARSE_CELLS = 48  # along each axis, that represent a field which a block does not see whole


def fill_grid(layout: GridLayout, model: "Process | None", tick: Tick = lambda done: None) -> Any:
    """Return [4 …] with the original dimensions: filled, std, low, high; a NumPy array, or dask's for blocks.

    Only a grid without missing cells needs no model.
    """
    values = layout.variable.values
    if values.dtype.kind != "f":
        values = values.astype(float)
    if layout.blocks is not None:
        parts = _fill_blocks(layout, layout.blocks, values, model)
    else:
        cells = tuple(np.arange(len(axis.x)) for axis in layout.settings.axes)
        parts = fill_block(model, layout.settings, values, cells, layout.fillable, cells, tick=tick)
    order = [layout.variable.dims.index(dim) for dim in layout.original_dims]
    return parts.transpose([0, *(1 + i for i in order)])


def fill_block(
    model: Any,  # a Process; None where no cell is missing
    settings: FieldSettings,
    values: ndarray,
    cells: tuple[Int[ndarray, "_"], ...],
    fillable: ndarray,
    inner: tuple[Int[ndarray, "_"], ...],
    coarse: tuple[ndarray, tuple[Int[ndarray, "_"], ...]] | None = None,
    tick: Tick = lambda done: None,
) -> ndarray:
    """Return [4 … inner]: filled, std, low and high of the cells `inner`, as indices along each axis, of all slices.

    `values` [… cells] are observed or NaN. Missing cells are filled where `fillable`, which broadcasts to [… inner];
    observed ones keep their value, with std 0. `coarse` has a few cells of the whole field and their indices, for gaps
    wider than the block.
    """
    lead = values.shape[: values.ndim - len(cells)]
    shape = tuple(len(rows) for rows in inner)
    axes = zip(settings.axes, cells, inner, strict=True)
    within = np.ix_(*((part - rows[0]) % len(axis.x) for axis, rows, part in axes))  # `rows` may cross a seam
    fillable = np.broadcast_to(fillable, (*lead, *shape))
    out = np.empty((4, *lead, *shape), dtype=values.dtype)
    for index in np.ndindex(*lead):
        value = values[index][within].astype(float)
        parts = [value, np.where(np.isnan(value), np.nan, 0.0), value.copy(), value.copy()]
        missing = np.nonzero(np.isnan(value) & fillable[index])
        if len(missing[0]):
            observed, y = _observed_cells(values[index], cells)
            if coarse is not None:
                far, far_y = _observed_cells(coarse[0][index], coarse[1])
                observed, y = np.concatenate([observed, far]), np.concatenate([y, far_y])
            observed, first = np.unique(observed, axis=0, return_index=True)  # sorted, so that blocks change nothing
            if len(first):
                queries = np.stack([rows[along] for rows, along in zip(inner, missing, strict=True)], 1)
                prediction = _predict_cells(model, settings, observed, y[first], queries, tick)
                for part, numbers in zip(parts, prediction, strict=True):
                    part[missing] = numbers
        out[(slice(None), *index)] = np.stack(parts)
    return out


def _observed_cells(field: ndarray, cells: tuple[ndarray, ...]) -> tuple[Int[ndarray, "n d"], Float[ndarray, "n"]]:
    """Return the indices and values of the observed cells."""
    at = np.nonzero(~np.isnan(field))
    return np.stack([rows[along] for rows, along in zip(cells, at, strict=True)], 1), field[at].astype(float)


def _predict_cells(
    model: "Process",
    settings: FieldSettings,
    observed: Int[ndarray, "n d"],
    y: Float[ndarray, "n"],
    cells: Int[ndarray, "m d"],
    tick: Tick,
) -> list[Float[ndarray, "m"]]:
    """Return mean, standard deviation and interval of cells, in bounded memory."""
    outside = ~np.isfinite(y) | (y < settings.warp.minimum) | (y > settings.warp.maximum)
    if outside.any():
        row = int(outside.argmax())
        flaw = render("lies outside {bounds}", bounds=argument("bounds")) if np.isfinite(y[row]) else "is not finite"
        raise InputError(
            "variable '{name}' at {where}: {value:g} {flaw}; correct it, or make it missing (NaN)",
            name=settings.name, value=y[row], flaw=flaw,
            where=", ".join(axis.label(int(i)) for axis, i in zip(settings.axes, observed[row], strict=True)),
        )  # fmt: skip
    context, half, parts = settings.context(model, observed, y), settings.level / 2, []
    order = np.lexsort((cells // np.array(settings.tile)).T[::-1])  # few tiles are predicted twice
    for start in range(0, len(order), _MAX_CELLS_HELD):
        mixture = settings.predict(context, cells[order[start : start + _MAX_CELLS_HELD]], tick)
        parts.append([*mixture.moments(), mixture.quantile(0.5 - half), mixture.quantile(0.5 + half)])
    back = np.argsort(order)
    return [np.concatenate(numbers)[back] for numbers in zip(*parts, strict=True)]


def _fill_blocks(layout: GridLayout, blocks: Blocks, values: Any, model: "Process | None") -> Any:
    """Return a dask array with the blocks of the layout; each is one task that gets its cells and those of its halo."""
    dask, da = require("dask"), require("dask.array")
    variable, fillable, lead = layout.variable, layout.fillable, len(layout.slice_dims)
    if not variable.lazy:
        values = da.from_array(values, chunks=blocks.sizes)
    token = uuid4().hex
    shared_model = dask.delayed(model, name=f"fillin-model-{token}", traverse=False)
    shared_settings = dask.delayed(layout.settings, name=f"fillin-settings-{token}", traverse=False)
    task = dask.delayed(fill_block, pure=False)
    shape, extents = values.shape[lead:], zip(values.shape, blocks.sizes, strict=True)
    coarse = None  # a few cells of every field where blocks do not see all of it, so that wide gaps have a context
    if any(size + 2 * halo < n for size, halo, n in zip(blocks.sizes[lead:], blocks.halo, shape, strict=True)):
        rows = tuple(np.arange(0, n, -(-n // _COARSE_CELLS)) for n in shape)
        strides = tuple(slice(None, None, -(-n // _COARSE_CELLS)) for n in shape)
        coarse = variable.compute(values[(..., *strides)]), rows
    spans = [[slice(start, min(start + size, n)) for start in range(0, n, size)] for n, size in extents]
    parts = np.empty([1, *map(len, spans)], dtype=object)
    for index in np.ndindex(parts.shape[1:]):
        block = tuple(along[i] for along, i in zip(spans, index, strict=True))
        inner = tuple(np.arange(span.start, span.stop) for span in block[lead:])
        axes = zip(inner, blocks.halo, layout.settings.axes, strict=True)
        cells = tuple(halo_cells(rows, halo, len(axis.x), bool(axis.period)) for rows, halo, axis in axes)
        around = values[block[:lead]]
        for i, rows in enumerate(cells, lead):
            runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)  # two across the seam of a periodic axis
            pieces = [around[(slice(None),) * i + (slice(int(run[0]), int(run[-1]) + 1),)] for run in runs]
            around = da.concatenate(pieces, i)
        dims = zip(block, fillable.shape, strict=True)
        allowed = fillable[tuple(slice(None) if n == 1 else span for span, n in dims)]
        far = None if coarse is None else (coarse[0][block[:lead]], coarse[1])
        name = f"{BLOCK_KEY}-{token}-{'-'.join(map(str, index))}"
        filled = task(shared_model, shared_settings, around, cells, allowed, inner, far, dask_key_name=name)
        sizes = (4, *(span.stop - span.start for span in block))
        parts[(0, *index)] = da.from_delayed(filled, sizes, dtype=values.dtype)
    return da.block(parts.tolist())


def halo_cells(rows: Int[ndarray, "_"], halo: int, n: int, periodic: bool) -> Int[ndarray, "_"]:
    """Return the indices of a block's cells along an axis of n, and of `halo` more on either side, each once.

    >>> halo_cells(np.arange(0, 2), 1, 6, True), halo_cells(np.arange(0, 2), 1, 6, False)
    (array([5, 0, 1, 2]), array([0, 1, 2]))
    """
    first, last = int(rows[0]) - halo, int(rows[-1]) + halo
    if last - first + 1 >= n and periodic:
        return np.arange(n)
    return np.arange(first, last + 1) % n if periodic else np.arange(max(0, first), min(n - 1, last) + 1)
