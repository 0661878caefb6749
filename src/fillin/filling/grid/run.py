"""Filling a planned variable: a field after another in memory, or blocks as a dask graph for any scheduler."""

import itertools
import math
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from fillin.filling.grid.block import Tick, fill_block
from fillin.filling.grid.plan import FieldPlan, computed, lattice
from fillin.runtime import require

if TYPE_CHECKING:
    from fillin.models import Process

KEY = "fillin-block"


def fill_field(plan: FieldPlan, model: "Process", tick: Tick = lambda done: None) -> Any:
    """[4 …] with the dimensions as they came: filled, std, low, high; an array of NumPy, or of dask if it is lazy."""
    found = _in_memory(plan, model, tick) if plan.blocks is None else _blocks(plan, model)
    back = [plan.variable.dims.index(dim) for dim in plan.order]
    return found.transpose([0, *(1 + i for i in back)])


def everything(plan: FieldPlan) -> tuple[Int[ndarray, "_"], ...]:
    """All cells of a field, as numbers of each axis."""
    return tuple(np.arange(len(axis.x)) for axis in plan.how.axes)


def _in_memory(plan: FieldPlan, model: "Process", tick: Tick) -> ndarray:
    values, cells, lead = _floats(plan.variable.values), everything(plan), len(plan.slices)
    allowed = np.broadcast_to(plan.allowed, values.shape)
    out = np.empty((4, *values.shape), dtype=values.dtype)
    for number in np.ndindex(*values.shape[:lead]):
        done = fill_block(model, plan.how, values[number], cells, allowed[number], cells, tick=tick)
        out[(slice(None), *number)] = done
    return out


def _floats(values: Any) -> Any:
    return values if values.dtype.kind == "f" else values.astype(float)


def _blocks(plan: FieldPlan, model: "Process") -> Any:
    """A dask array of the same blocks as the plan has; each is one task that gets its cells and those of its halo."""
    dask, da = require("dask"), require("dask.array")
    variable, blocks, lead = plan.variable, plan.blocks, len(plan.slices)
    assert blocks is not None
    values = _floats(variable.values if variable.lazy else da.from_array(variable.values, chunks=blocks.sizes))
    token = uuid4().hex
    shared = dask.delayed(model, name=f"fillin-model-{token}", traverse=False)
    how = dask.delayed(plan.how, name=f"fillin-how-{token}", traverse=False)
    each = zip(values.shape, blocks.sizes, strict=True)
    ranges = [[np.arange(a, min(a + size, n)) for a in range(0, n, size)] for n, size in each]
    coarse = _coarse(plan, values)
    allowed = plan.allowed
    task = dask.delayed(fill_block, pure=False)
    parts = np.empty([1, *map(len, ranges)], dtype=object)
    for number in itertools.product(*(range(len(own)) for own in ranges)):
        own = [ranges[i][k] for i, k in enumerate(number)]
        slices, inner = tuple(slice(int(r[0]), int(r[-1]) + 1) for r in own[:lead]), tuple(own[lead:])
        cells = tuple(
            reach(rows, halo, len(axis.x), bool(axis.length))
            for rows, halo, axis in zip(inner, blocks.halo, plan.how.axes, strict=True)
        )
        around = values[slices]
        for i, rows in enumerate(cells):
            around = _take(da, around, lead + i, rows)
        free = allowed[tuple(_part(rows, n) for rows, n in zip(own, allowed.shape, strict=True))]
        far = None if coarse is None else (coarse[0][slices], coarse[1])
        name = f"{KEY}-{token}-{'-'.join(map(str, number))}"
        done = task(shared, how, around, cells, free, inner, far, dask_key_name=name)
        shape = (4, *(len(rows) for rows in own))
        parts[(0, *number)] = da.from_delayed(done, shape, dtype=values.dtype)
    return da.block(parts.tolist())


def _coarse(plan: FieldPlan, values: Any) -> tuple[ndarray, tuple[ndarray, ...]] | None:
    """A few cells of every field, where blocks do not see all of it: nothing lies too far from what is known."""
    blocks, lead = plan.blocks, len(plan.slices)
    shape = values.shape[lead:]
    assert blocks is not None
    if all(size + 2 * halo >= n for size, halo, n in zip(blocks.sizes[lead:], blocks.halo, shape, strict=True)):
        return None
    few = lattice(shape)
    rows = tuple(np.arange(n)[part] for n, part in zip(shape, few, strict=True))
    return np.asarray(computed(values[(..., *few)], plan.variable)), rows


def reach(rows: Int[ndarray, "_"], halo: int, n: int, round_: bool) -> Int[ndarray, "_"]:
    """The numbers of a block's cells along an axis of n and of `halo` more on either side, beyond the seam of what goes
    round; none comes twice.

    >>> reach(np.arange(0, 2), 1, 6, True), reach(np.arange(0, 2), 1, 6, False)
    (array([5, 0, 1, 2]), array([0, 1, 2]))
    """
    first, last = int(rows[0]) - halo, int(rows[-1]) + halo
    if last - first + 1 >= n and round_:
        return np.arange(n)
    return np.arange(first, last + 1) % n if round_ else np.arange(max(0, first), min(n - 1, last) + 1)


def _take(da: Any, values: Any, axis: int, rows: ndarray) -> Any:
    """values at rows of an axis: one run of numbers, or two where it goes round."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    parts = [values[(slice(None),) * axis + (slice(int(run[0]), int(run[-1]) + 1),)] for run in runs]
    return parts[0] if len(parts) == 1 else da.concatenate(parts, axis)


def _part(rows: ndarray, n: int) -> slice:
    """Of a mask that may be one cell wide and mean all."""
    return slice(None) if n == 1 else slice(int(rows[0]), int(rows[-1]) + 1)


def number_of_blocks(plan: FieldPlan) -> int:
    assert plan.blocks is not None
    return math.prod(-(-n // size) for n, size in zip(plan.variable.shape, plan.blocks.sizes, strict=True))
