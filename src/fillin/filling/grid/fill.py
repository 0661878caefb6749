"""Filling of a grid: field after field in memory, or blocks as a dask graph for any scheduler.

`fill_block` does the work, here or on the workers of a cluster.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument, render
from fillin.filling.grid.background import REACH, to_units
from fillin.filling.grid.layout import Blocks, FieldSettings, GridLayout
from fillin.runtime import Tick, require

if TYPE_CHECKING:
    from fillin.models import Process

BLOCK_KEY = "fillin-block"  # in the names of dask's tasks
_MAX_BACKGROUND_VALUES = 8_000_000  # of all slices of a strip
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
        learned = layout.settings.background
        background = None if learned is None else compute_background(values, layout.settings)
        parts = fill_block(
            model, layout.settings, values, cells, layout.fillable, cells, background, tick=tick, workers=None
        )
    order = [layout.variable.dims.index(dim) for dim in layout.original_dims]
    return parts.transpose([0, *(1 + i for i in order)])


def compute_background(values: ndarray, settings: FieldSettings) -> Float[ndarray, "2 ..."]:
    """Return mean and standard deviation of the background of whole fields [slices … cells], in the units of the model,
    strip by strip to bound memory."""
    shape = values.shape[-len(settings.axes) :]
    axis, rows = int(np.argmax(shape)), [np.arange(n) for n in shape]
    size = max(REACH, _MAX_BACKGROUND_VALUES * max(shape) // values.size)
    parts = []
    for start in range(0, shape[axis], size):
        rows[axis] = np.arange(start, min(start + size, shape[axis]))
        axes = zip(rows, settings.axes, strict=True)
        cells = tuple(halo_cells(part, REACH, len(along.x), bool(along.period)) for part, along in axes)
        strip = np.take(values, cells[axis], axis - len(shape))
        parts.append(background_of_cells(settings, strip, cells, tuple(rows)))
    return np.concatenate(parts, axis - len(shape))


def background_of_cells(
    settings: FieldSettings, values: ndarray, around: tuple[ndarray, ...], cells: tuple[ndarray, ...]
) -> Float[ndarray, "2 ..."]:
    """Return the background of `cells` in all slices from `values` of the cells `around` them, as indices."""
    axes = list(zip(settings.axes, around, cells, strict=True))
    within = [(part - rows[0]) % len(axis.x) for axis, rows, part in axes]  # `rows` may cross a seam
    periodic = [bool(axis.period) and len(rows) == len(axis.x) for axis, rows, _ in axes]
    return _background(settings, values, periodic)[(..., *np.ix_(*within))]


def _background(settings: FieldSettings, values: ndarray, periodic: Sequence[bool] = ()) -> Float[ndarray, "2 ..."]:
    assert settings.background is not None
    fields = to_units(settings.warp, values).reshape(-1, *values.shape[-len(settings.axes) :])
    return np.stack(settings.background.fields(fields, periodic)).reshape(2, *values.shape)


def fill_block(
    model: Any,  # a Process; None where no cell is missing
    settings: FieldSettings,
    values: ndarray,
    cells: tuple[Int[ndarray, "_"], ...],
    fillable: ndarray,
    inner: tuple[Int[ndarray, "_"], ...],
    background: ndarray | None = None,
    coarse: tuple[ndarray, ndarray | None, tuple[Int[ndarray, "_"], ...]] | None = None,
    tick: Tick = lambda done: None,
    workers: int | None = 1,
) -> ndarray:
    """Return [4 … inner]: filled, std, low and high of the cells `inner`, as indices along each axis, of all slices.

    `values` [… cells] are observed or NaN, `background` [2 … cells] is their prediction from other slices. Missing
    cells are filled where `fillable`, which broadcasts to [… inner]; observed ones keep their value, with std 0.
    `coarse` has a few cells of the whole field, their background and their indices, for gaps wider than the block.
    Slices are filled by so many `workers` (None: the threads of torch), each on one thread.
    """
    lead = values.shape[: values.ndim - len(cells)]
    shape = tuple(len(rows) for rows in inner)
    axes = zip(settings.axes, cells, inner, strict=True)
    within = np.ix_(*((part - rows[0]) % len(axis.x) for axis, rows, part in axes))  # `rows` may cross a seam
    fillable = np.broadcast_to(fillable, (*lead, *shape))
    out = np.empty((4, *lead, *shape), dtype=values.dtype)

    def fill_slice(index: tuple[int, ...]) -> None:
        value = values[index][within].astype(float)
        parts = [value, np.where(np.isnan(value), np.nan, 0.0), value.copy(), value.copy()]
        missing = np.nonzero(np.isnan(value) & fillable[index])
        if len(missing[0]):
            around = None if background is None else background[(slice(None), *index)]
            observed, y, base = _observed_cells(values[index], around, cells)
            if coarse is not None:
                far = coarse[0][index], None if coarse[1] is None else coarse[1][(slice(None), *index)]
                pairs = zip((observed, y, base), _observed_cells(*far, coarse[2]), strict=True)
                observed, y, base = (np.concatenate(pair, axis) for pair, axis in zip(pairs, (0, 0, 1), strict=True))
            observed, first = np.unique(observed, axis=0, return_index=True)  # sorted, so that blocks change nothing
            if len(first):
                queries = np.stack([rows[along] for rows, along in zip(inner, missing, strict=True)], 1)
                context = observed, y[first], None if around is None else base[:, first]
                expected = None if around is None else around[(slice(None), *within)][(slice(None), *missing)]
                prediction = _predict_cells(model, settings, *context, queries, expected, tick)
                for part, numbers in zip(parts, prediction, strict=True):
                    part[missing] = numbers
        out[(slice(None), *index)] = np.stack(parts)

    _run_all(fill_slice, list(np.ndindex(*lead)), 1 if model is None else workers)
    return out


def _run_all(task: Callable[[tuple[int, ...]], None], items: list[tuple[int, ...]], workers: int | None) -> None:
    """Run a task for each item: operations on the context of a tile are too small for torch to divide among threads."""
    if workers == 1 or len(items) == 1:
        for item in items:
            task(item)
        return
    import torch

    before = torch.get_num_threads()
    workers = min(workers or before, len(items))
    with ThreadPoolExecutor(workers, "fillin-slice", lambda: torch.set_num_threads(1)) as pool:
        futures = [pool.submit(task, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            torch.set_num_threads(before)  # later threads of the process take the number that was set last


def _observed_cells(
    field: ndarray, background: ndarray | None, cells: tuple[ndarray, ...]
) -> tuple[Int[ndarray, "n d"], Float[ndarray, "n"], Float[ndarray, "2 n"]]:
    """Return the indices, the values and the background of the observed cells."""
    at = np.nonzero(~np.isnan(field))
    y = field[at].astype(float)
    observed = np.stack([rows[along] for rows, along in zip(cells, at, strict=True)], 1)
    return observed, y, np.empty((2, len(y))) if background is None else background[(slice(None), *at)]


def _predict_cells(
    model: "Process",
    settings: FieldSettings,
    observed: Int[ndarray, "n d"],
    y: Float[ndarray, "n"],
    background: Float[ndarray, "2 n"] | None,
    cells: Int[ndarray, "m d"],
    expected: Float[ndarray, "2 m"] | None,
    tick: Tick,
) -> list[Float[ndarray, "m"]]:
    """Return mean, standard deviation and interval of cells, in bounded memory. `background` and `expected` are the
    predictions of the observed and of the other cells from other slices."""
    outside = ~np.isfinite(y) | (y < settings.warp.minimum) | (y > settings.warp.maximum)
    if outside.any():
        row = int(outside.argmax())
        flaw = render("lies outside {bounds}", bounds=argument("bounds")) if np.isfinite(y[row]) else "is not finite"
        raise InputError(
            "variable '{name}' at {where}: {value:g} {flaw}; correct it, or make it missing (NaN)",
            name=settings.name, value=y[row], flaw=flaw,
            where=", ".join(axis.label(int(i)) for axis, i in zip(settings.axes, observed[row], strict=True)),
        )  # fmt: skip
    context, half, parts = settings.context(model, observed, y, background), settings.level / 2, []
    order = np.lexsort((cells // np.array(settings.tile)).T[::-1])  # few tiles are predicted twice
    for start in range(0, len(order), _MAX_CELLS_HELD):
        rows = order[start : start + _MAX_CELLS_HELD]
        mixture = settings.predict(context, cells[rows], tick, None if expected is None else expected[:, rows])
        parts.append([*mixture.moments(), mixture.quantile(0.5 - half), mixture.quantile(0.5 + half)])
    back = np.argsort(order)
    return [np.concatenate(numbers)[back] for numbers in zip(*parts, strict=True)]


def _fill_blocks(layout: GridLayout, blocks: Blocks, values: Any, model: "Process | None") -> Any:
    """Return a dask array with the blocks of the layout; each is one task that gets its cells and those of its halo."""
    dask, da = require("dask"), require("dask.array")
    variable, fillable, lead = layout.variable, layout.fillable, len(layout.slice_dims)
    if not variable.lazy:
        values = da.from_array(values, chunks=blocks.sizes)
    token, learned = uuid4().hex, layout.settings.background
    shared_model = dask.delayed(model, name=f"fillin-model-{token}", traverse=False)
    shared_settings = dask.delayed(layout.settings, name=f"fillin-settings-{token}", traverse=False)
    task = dask.delayed(fill_block, pure=False)
    shape, extents = values.shape[lead:], zip(values.shape, blocks.sizes, strict=True)
    coarse = None  # a few cells of every field where blocks do not see all of it, so that wide gaps have a context
    if any(size + 2 * halo < n for size, halo, n in zip(blocks.sizes[lead:], blocks.halo, shape, strict=True)):
        rows = tuple(np.arange(0, n, -(-n // _COARSE_CELLS)) for n in shape)
        strides = tuple(slice(None, None, -(-n // _COARSE_CELLS)) for n in shape)
        few = variable.compute(values[(..., *strides)])
        coarse = few, None if learned is None else _background(layout.settings, few), rows
    spans = [[slice(start, min(start + size, n)) for start in range(0, n, size)] for n, size in extents]
    background_task, backgrounds = dask.delayed(background_of_cells, pure=False), {}
    parts = np.empty([1, *map(len, spans)], dtype=object)
    for index in np.ndindex(parts.shape[1:]):
        block = tuple(along[i] for along, i in zip(spans, index, strict=True))
        inner = tuple(np.arange(span.start, span.stop) for span in block[lead:])
        axes = zip(inner, blocks.halo, layout.settings.axes, strict=True)
        cells = tuple(halo_cells(rows, halo, len(axis.x), bool(axis.period)) for rows, halo, axis in axes)
        around = _take_cells(values[block[:lead]], cells, lead)
        base = None
        if learned is not None:  # all slices of the block at once
            if index[lead:] not in backgrounds:
                axes = zip(inner, blocks.halo, layout.settings.axes, strict=True)
                wide = tuple(
                    halo_cells(rows, halo + REACH, len(axis.x), bool(axis.period)) for rows, halo, axis in axes
                )
                name = f"fillin-background-{token}-{'-'.join(map(str, index[lead:]))}"
                every = _take_cells(values, wide, lead)
                backgrounds[index[lead:]] = background_task(shared_settings, every, wide, cells, dask_key_name=name)
            base = backgrounds[index[lead:]][(slice(None), *block[:lead])]
        dims = zip(block, fillable.shape, strict=True)
        allowed = fillable[tuple(slice(None) if n == 1 else span for span, n in dims)]
        far = None
        if coarse is not None:
            few, few_base, rows = coarse
            far = few[block[:lead]], None if few_base is None else few_base[(slice(None), *block[:lead])], rows
        name = f"{BLOCK_KEY}-{token}-{'-'.join(map(str, index))}"
        filled = task(shared_model, shared_settings, around, cells, allowed, inner, base, far, dask_key_name=name)
        sizes = (4, *(span.stop - span.start for span in block))
        parts[(0, *index)] = da.from_delayed(filled, sizes, dtype=values.dtype)
    return da.block(parts.tolist())


def _take_cells(array: Any, cells: tuple[Int[ndarray, "_"], ...], lead: int) -> Any:
    """Return the cells of a dask array with these indices along the axes of the field."""
    da = require("dask.array")
    for i, rows in enumerate(cells, lead):
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)  # two across the seam of a periodic axis
        pieces = [array[(slice(None),) * i + (slice(int(run[0]), int(run[-1]) + 1),)] for run in runs]
        array = da.concatenate(pieces, i)
    return array


def halo_cells(rows: Int[ndarray, "_"], halo: int, n: int, periodic: bool) -> Int[ndarray, "_"]:
    """Return the indices of a block's cells along an axis of n, and of `halo` more on either side, each once.

    >>> halo_cells(np.arange(0, 2), 1, 6, True), halo_cells(np.arange(0, 2), 1, 6, False)
    (array([5, 0, 1, 2]), array([0, 1, 2]))
    """
    first, last = int(rows[0]) - halo, int(rows[-1]) + halo
    if last - first + 1 >= n and periodic:
        return np.arange(n)
    return np.arange(first, last + 1) % n if periodic else np.arange(max(0, first), min(n - 1, last) + 1)
