"""Layout of a grid to fill: the dimensions of a field, the cells to fill, units of distance, tiles and blocks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument, render
from fillin.filling.diagnostics import Note
from fillin.filling.grid.axes import Axis, set_periods
from fillin.filling.grid.block import FieldSettings
from fillin.filling.grid.variable import Mask, Variable, check_chunks, choose_dims
from fillin.inference.context import MAX_QUERIES
from fillin.warp import Bounds, BoundsWarp

TILE_CONTEXT_CELLS = {1: 512, 2: 128, 3: 384}  # by dimensions; more cells dilute the near ones
MAX_FIELD_CELLS = 4_000_000  # of a field filled in one block
MAX_CELLS_IN_MEMORY = 64_000_000  # of a variable
_COARSE_CELLS = 48  # along each axis, that represent a field which a block does not see whole
_SAMPLE_SLICES, _SAMPLE_CELLS = 8, 256  # along each axis, that the roughness is measured on
_MAX_ANISOTROPY = 4.0  # ratio of the weights of two axes, cell for cell


@dataclass(frozen=True)
class Blocks:
    """Block sizes in cells along each dimension (those of the field last), and the halo along those of the field."""

    sizes: tuple[int, ...]
    halo: tuple[int, ...]


@dataclass(frozen=True)
class GridLayout:
    """A variable with the dimensions of a field last, the cells to fill, and how to fill them.

    A variable holds one field for each index of its slice dimensions. `blocks` is None where field after field is
    filled in memory.
    """

    variable: Variable
    original_dims: tuple[str, ...]
    field_dims: tuple[str, ...]
    fillable: Bool[ndarray, "..."]  # broadcasts to the variable
    settings: FieldSettings
    blocks: Blocks | None
    n_missing: int
    cells_to_fill: Int[ndarray, "..."]  # of each field
    notes: list[Note]

    @property
    def n_to_fill(self) -> int:
        return int(self.cells_to_fill.sum())

    @property
    def slice_dims(self) -> tuple[str, ...]:
        return tuple(dim for dim in self.variable.dims if dim not in self.field_dims)

    @property
    def summary(self) -> str:
        size = dict(zip(self.variable.dims, self.variable.shape, strict=True))
        extent = " × ".join(f"{dim} ({size[dim]:,})" for dim in self.field_dims)
        n_fields = math.prod(self.variable.shape[: len(self.slice_dims)])
        slices = f", each {' and '.join(self.slice_dims)} separately ({n_fields:,} fields)" if self.slice_dims else ""
        return (
            f"{self.variable.source}: a field {self.variable.name or 'of numbers'} over {extent}{slices}; to fill: "
            f"{self.n_to_fill:,} of {math.prod(self.variable.shape):,} cells ({self.n_missing:,} missing)"
        )


def make_layout(
    variable: Variable,
    *,
    over: Sequence[str] | None = None,
    mask: Mask | None = None,
    fill_always_missing: bool = False,
    periods: Mapping[str, float] | None = None,
    chunks: dict[str, int] | None = None,
    halo: int | None = None,
    bounds: Bounds | None = None,
    level: float = 0.95,
) -> GridLayout:
    """Check the options against the variable and lay out its fields, tiles and blocks."""
    variable.check()
    if halo is not None and halo < 0:
        raise InputError("{halo} must be a number of cells, got {value}", halo=argument("halo"), value=halo)
    field_dims = choose_dims(variable, over)
    original_dims = variable.dims
    variable = variable.transpose([dim for dim in original_dims if dim not in field_dims] + list(field_dims))
    lead = len(original_dims) - len(field_dims)
    axes, period_notes = set_periods([variable.axes[dim] for dim in field_dims], periods or {})
    notes = [Note(text) for text in period_notes]
    sizes = None if chunks is None else check_chunks(chunks, variable)
    n_missing, always_missing = _count_missing(variable, lead)
    fillable = np.ones((1,) * len(original_dims), dtype=bool)
    if mask is not None:
        fillable = mask.broadcast(variable)
    elif lead and not fill_always_missing and always_missing.any():
        fillable = ~always_missing.reshape((1,) * lead + always_missing.shape)
        text = "{n:,} cells of the field are missing in every slice, as land is, and stay missing ({option} fills them)"
        fields = {"n": int(always_missing.sum()), "option": argument("fill_always_missing")}
        notes.append(Note(render(text, **fields)))
    if n_missing == math.prod(variable.shape):
        raise InputError(f"{variable.label} is missing everywhere: there is no observed cell to fill it from")
    settings, observed_share = _choose_tiles(variable, axes, fillable, lead, bounds, level)
    blocks = _choose_blocks(variable, settings, observed_share, lead, sizes, halo)
    to_fill = _count_to_fill(variable, fillable, lead)
    return GridLayout(variable, original_dims, field_dims, fillable, settings, blocks, n_missing, to_fill, notes)


def _count_missing(variable: Variable, lead: int) -> tuple[int, Bool[ndarray, "..."]]:
    """Return the number of missing cells, and which cells of a field are missing in every slice, in one pass."""
    if variable.values.dtype.kind != "f":
        return 0, np.zeros(variable.shape[lead:], dtype=bool)
    missing = np.isnan(variable.values)
    counts = compute(missing.sum(axis=tuple(range(lead))) if lead else missing.astype(int), variable)
    return int(counts.sum()), counts == math.prod(variable.shape[:lead])


def _count_to_fill(variable: Variable, fillable: ndarray, lead: int) -> Int[ndarray, "..."]:
    if variable.values.dtype.kind != "f":
        return np.zeros(variable.shape[:lead], dtype=int)
    field_axes = tuple(range(lead, len(variable.dims)))
    return np.asarray(compute((np.isnan(variable.values) & fillable).sum(axis=field_axes), variable))


def compute(values: Any, variable: Variable) -> Any:
    """Compute a dask array, with an error that names the variable where it cannot be read."""
    if not hasattr(values, "compute"):
        return values
    try:
        return values.compute()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{variable.label} cannot be read: {error}; the file may be damaged") from error


def _choose_tiles(
    variable: Variable, axes: list[Axis], fillable: ndarray, lead: int, bounds: Bounds | None, level: float
) -> tuple[FieldSettings, float]:
    """Return units of distance, tiles and bounds, and the share of observed cells, all from a sample.

    They do not depend on how the variable is split into blocks.
    """
    shape = variable.shape[lead:]
    slices = tuple(slice(None, None, -(-n // _SAMPLE_SLICES)) for n in variable.shape[:lead])
    strided = slices + tuple(slice(None, None, -(-n // _SAMPLE_CELLS)) for n in shape)
    sample = np.asarray(compute(variable.values[strided], variable), dtype=float)
    land = np.isnan(sample) & ~np.broadcast_to(fillable, variable.shape)[strided]
    observed = sample[np.isfinite(sample)]
    share = max(len(observed) / max(sample.size - int(land.sum()), 1), 1e-3)
    middle = slices + tuple(slice(max(0, (n - _SAMPLE_CELLS) // 2), (n + _SAMPLE_CELLS) // 2) for n in shape)
    rough = roughness(np.asarray(compute(variable.values[middle], variable), dtype=float), lead)
    unit = np.array([axis.step for axis in axes]) / rough
    d = len(axes)
    n_context = TILE_CONTEXT_CELLS[d]
    side = (n_context / 4 / share) ** (1 / d)  # in cells, of a cube
    tile = np.maximum(1, np.round(side * np.prod(rough) ** (1 / d) / rough))
    while np.prod(2 * tile) > MAX_QUERIES:  # the cells in which a tile has a share
        tile = np.maximum(1, tile // 2)
    warp = BoundsWarp.fit(observed if len(observed) else np.zeros(1), bounds) if bounds else BoundsWarp()
    tiles = tuple(int(min(t, n)) for t, n in zip(tile, shape, strict=True))
    return FieldSettings(variable.name, tuple(axes), tuple(map(float, unit)), tiles, n_context, warp, level), share


def roughness(sample: Float[ndarray, "..."], lead: int) -> Float[ndarray, "d"]:
    """Return the RMS change from cell to cell along each axis of a field, over the geometric mean of all axes.

    A step along an axis with little change is short: neighbours lie further away there.
    """
    changes, sample = [], np.where(np.isfinite(sample), sample, np.nan)
    for axis in range(lead, sample.ndim):
        step = np.diff(sample, axis=axis)
        step = step[np.isfinite(step)]
        changes.append(float(np.sqrt(np.mean(step**2))) if len(step) >= 16 else np.nan)
    rough = np.array(changes)
    if not np.isfinite(rough).all() or not (rough > 0).all():
        return np.ones(len(rough))
    rough = rough / np.exp(np.log(rough).mean())
    return np.clip(rough, _MAX_ANISOTROPY**-0.5, _MAX_ANISOTROPY**0.5)


def _choose_blocks(
    variable: Variable,
    settings: FieldSettings,
    share: float,
    lead: int,
    chunks: dict[str, int] | None,
    halo: int | None,
) -> Blocks | None:
    """Return None where the variable fits in memory and no chunks are requested."""
    shape = variable.shape
    if chunks is None and not variable.lazy and math.prod(shape[lead:]) <= MAX_FIELD_CELLS:
        return None
    halos = (halo,) * (len(shape) - lead) if halo is not None else _default_halo(settings, share)
    sizes = list(shape)
    for i, dim in enumerate(variable.dims):
        if chunks and dim in chunks:
            sizes[i] = min(shape[i], chunks[dim])
        elif i < lead:
            sizes[i] = 1
    if chunks is None and math.prod(shape[lead:]) > MAX_FIELD_CELLS:
        side = MAX_FIELD_CELLS ** (1 / (len(shape) - lead))
        for i in range(lead, len(shape)):
            sizes[i] = min(shape[i], max(int(side), 4 * halos[i - lead]))
    return Blocks(tuple(sizes), halos)


def _default_halo(settings: FieldSettings, share: float) -> tuple[int, ...]:
    """Return a tile and one and a half times the radius of a ball with the context of a tile, in cells.

    The half is a margin, since missing cells are not spread evenly.
    """
    steps = np.array([axis.step for axis in settings.axes]) / np.array(settings.unit)  # of a cell, in units of distance
    d = len(steps)
    unit_ball = {1: 2.0, 2: math.pi, 3: 4 * math.pi / 3}[d]
    radius = (settings.n_context / share * float(np.prod(steps)) / unit_ball) ** (1 / d)
    return tuple(int(np.ceil(1.5 * radius / step + tile)) for step, tile in zip(steps, settings.tile, strict=True))


def coarse_cells(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of a few evenly spaced cells of a field."""
    return tuple(slice(None, None, -(-n // _COARSE_CELLS)) for n in shape)
