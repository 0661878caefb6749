"""Layout of a grid to fill: the dimensions of a field, the cells to fill, units of distance, tiles and blocks.

Tiles that overlap up to their centres belong to the whole field, and each is predicted from the observed cells nearest
to its centre. The split of a field into blocks changes nothing, as long as a block sees these cells.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument, render
from fillin.filling.diagnostics import Note
from fillin.filling.grid.background import Background
from fillin.filling.grid.learn_background import learn_background
from fillin.filling.grid.variable import Axis, Mask, Variable, choose_dims, set_periods
from fillin.inference.context import MAX_QUERIES, Context
from fillin.inference.tiles import Tile, split_into_tiles
from fillin.predictive import GaussianMixture
from fillin.runtime import Tick
from fillin.warp import Bounds, BoundsWarp

if TYPE_CHECKING:
    from fillin.models import Process

TILE_CONTEXT_CELLS = {1: 512, 2: 128, 3: 384}  # by dimensions; more cells dilute the near ones
_TILES_AT_ONCE = 32
_EXCLUSIVE = 0.1  # of the way from a centre to the next, on either side, a tile predicts alone
_MAX_FIELD_CELLS = 4_000_000  # of a field filled in one block
_MAX_BLOCK_VALUES, _MIN_BLOCK_CELLS = 16_000_000, 40_000  # of a block with all of its slices
_SAMPLE_SLICES, _SAMPLE_CELLS = 8, 256  # along each axis, that the roughness is measured on
_MAX_ANISOTROPY = 4.0  # ratio of the weights of two axes, cell for cell


@dataclass(frozen=True)
class FieldSettings:
    """Settings that all blocks of a variable share.

    `unit` is the distance along each axis that counts as one, `tile` the number of cells of a tile along each axis
    (about: a whole number of equal tiles fits), `n_context` the number of observed cells that a tile is predicted from.
    """

    name: str
    axes: tuple[Axis, ...]
    unit: tuple[float, ...]
    tile: tuple[int, ...]
    n_context: int
    warp: BoundsWarp
    level: float
    background: Background | None = None  # of all slices, where they inform each other

    @property
    def periodic(self) -> list[bool]:
        return [bool(axis.period) for axis in self.axes]

    @cached_property
    def tile_counts(self) -> list[int]:
        return [max(1, round(len(axis.x) / size)) for axis, size in zip(self.axes, self.tile, strict=True)]

    def tiles(self, cells: Int[ndarray, "n d"]) -> list[Tile]:
        """Return the tiles that have a share in any of the cells; the shares of a cell add up to one."""
        lengths = np.array([len(axis.x) for axis in self.axes])
        position = (cells + 0.5) * np.array(self.tile_counts) / lengths - 0.5
        return list(split_into_tiles(position, _EXCLUSIVE, self.tile_counts, self.periodic))

    def centre(self, tile: Tile) -> Float[ndarray, "d"]:
        axes = zip(self.axes, self.tile_counts, tile.number, strict=True)
        return np.array([
            np.interp((i + 0.5) * len(axis.x) / count - 0.5, np.arange(len(axis.x)), axis.x) for axis, count, i in axes
        ])  # fmt: skip

    def locations(self, cells: Int[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        return np.stack([axis.x[cells[:, i]] for i, axis in enumerate(self.axes)], 1)

    def context(
        self, model: "Process", cells: Int[ndarray, "n d"], y: Float[ndarray, "n"], expected: ndarray | None = None
    ) -> Context:
        """Return the context of observed cells; `expected` [2 n] are mean and standard deviation of their background,
        in the units of the model: the context has the standardised differences from it."""
        x, z, unit = self.locations(cells), self.warp.forward(y), np.array(self.unit)
        if expected is not None:
            z = (z - expected[0]) / expected[1]
        period = np.array([axis.period for axis in self.axes])
        return Context(
            model, x, z[:, None], max_points=self.n_context, scale=unit, period=period if period.any() else None
        )

    def predict(
        self,
        context: Context,
        cells: Int[ndarray, "n d"],
        tick: Tick = lambda done: None,
        expected: ndarray | None = None,
    ) -> GaussianMixture:
        """Predict cells, tile by tile unless all of them see the whole context. `expected` [2 n] is their background,
        if the context has differences from one."""
        mixture = self._predict_standardised(context, cells, tick)
        if expected is not None and self.background is not None:
            mean, std = mixture.moments()
            predicted = expected[1] != 1  # slices with too few observed cells are filled from themselves alone
            factor = np.where(predicted, self.background.widen(std), 1.0)[:, None]
            mixture = mixture.rescaled((1 - factor) * mean[:, None], factor)
            mixture = mixture.rescaled(expected[0][:, None], expected[1][:, None])
        return mixture.transformed(self.warp)

    def _predict_standardised(self, context: Context, cells: Int[ndarray, "n d"], tick: Tick) -> GaussianMixture:
        x = self.locations(cells)
        if not len(cells) or (context.tree is None and context.period is None):
            return context.predict(x, tick=tick)[:, 0]

        def predict_tiles(tiles: list[Tile]) -> list[GaussianMixture]:
            ends = np.cumsum([len(tile.rows) for tile in tiles])
            rows = np.split(np.arange(ends[-1]), ends[:-1])
            groups = [(part, self.centre(tile)) for part, tile in zip(rows, tiles, strict=True)]
            mixture = context.predict(x[np.concatenate([tile.rows for tile in tiles])], groups=groups)[:, 0]
            return [mixture[part] for part in rows]

        return blend(self.tiles(cells), predict_tiles, len(cells), tick)


def blend(
    tiles: list[Tile],
    predict: Callable[[list[Tile]], list[GaussianMixture]],
    n: int,
    tick: Tick = lambda done: None,
) -> GaussianMixture:
    """Blend the predictions of all tiles at n cells; a cell is done with the last tile that has a share in it."""
    last = np.zeros(n, dtype=int)
    for number, tile in enumerate(tiles):
        last[tile.rows] = number
    n_done = np.bincount(last, minlength=len(tiles))
    corners = max(int(tile.corner.max()) for tile in tiles) + 1
    share, parts = np.zeros((n, corners)), None
    batches = (predict(tiles[start : start + _TILES_AT_ONCE]) for start in range(0, len(tiles), _TILES_AT_ONCE))
    for tile, mixture, number in zip(tiles, chain.from_iterable(batches), n_done, strict=True):
        arrays = np.stack([mixture.weights, mixture.means, mixture.stds])  # [3 m k]
        if parts is None:
            parts = np.zeros((3, n, corners, arrays.shape[-1]))
        share[tile.rows, tile.corner] = tile.share
        parts[:, tile.rows, tile.corner] = arrays
        tick(int(number))
    assert parts is not None
    first = parts[:, np.arange(n), share.argmax(1)]  # a tile without a share gets a copy of one that has a share
    parts = np.where((share > 0)[..., None], parts, first[:, :, None])
    return GaussianMixture.blend([GaussianMixture(*parts[:, :, corner]) for corner in range(corners)], share.T)


@dataclass(frozen=True)
class Blocks:
    """Block sizes in cells along each dimension (those of the field last), and the halo along those of the field."""

    sizes: tuple[int, ...]
    halo: tuple[int, ...]


@dataclass(frozen=True)
class GridLayout:
    """A variable with the dimensions of a field last, the cells to fill, and the settings to fill them with.

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

    def label_slice(self, number: int) -> str:
        """Return the coordinates of a field, by its number, as text."""
        index = np.unravel_index(number, self.cells_to_fill.shape)
        return ", ".join(self.variable.axes[dim].label(int(i)) for dim, i in zip(self.slice_dims, index, strict=True))

    def list_sources(self, number: int) -> str:
        """Return the slices that weigh most in the background of a field, with their weights; "" without one."""
        if self.settings.background is None:
            return ""
        sources = self.settings.background.sources(number)
        return ", ".join(f"{self.label_slice(source)} ({share:.0%})" for source, share in sources)

    @property
    def summary(self) -> str:
        extent = " × ".join(f"{dim} ({self.variable.sizes[dim]:,})" for dim in self.field_dims)
        n_fields = self.cells_to_fill.size
        how = "separately" if self.settings.background is None else "with the others"
        slices = f", each {' and '.join(self.slice_dims)} {how} ({n_fields:,} fields)" if self.slice_dims else ""
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
    alone: bool = False,
) -> GridLayout:
    """Check the options against the variable and lay out its fields, tiles and blocks."""
    variable.check()
    if halo is not None and halo < 0:
        raise InputError("{halo} must be a number of cells, got {value}", halo=argument("halo"), value=halo)
    variable.check_dims("chunks", list(chunks or {}))
    for dim, size in (chunks or {}).items():
        if not isinstance(size, int) or size < 1:
            text = "{chunks}: '{dim}' needs a number of cells of at least 1, got {size!r}"
            raise InputError(text, chunks=argument("chunks"), dim=dim, size=size)
    original_dims, field_dims = variable.dims, choose_dims(variable, over)
    dims = *(dim for dim in original_dims if dim not in field_dims), *field_dims
    values = variable.values.transpose([original_dims.index(dim) for dim in dims])
    variable = replace(variable, dims=dims, values=values)
    lead = len(dims) - len(field_dims)
    axes = set_periods([variable.axes[dim] for dim in field_dims], periods or {})
    detected = [axis.name for axis in axes if axis.period and axis.name not in (periods or {})]
    notes = [Note(f"{name} covers 360 degrees: treated as periodic") for name in detected]
    missing = np.isnan(values)
    counts = variable.compute(missing.sum(axis=tuple(range(lead))) if lead else missing.astype(int))
    always_missing = counts == math.prod(variable.shape[:lead])
    n_missing = int(counts.sum())
    fillable = np.ones((1,) * len(dims), dtype=bool)
    if mask is not None:
        fillable = mask.broadcast(variable)
    elif lead and not fill_always_missing and always_missing.any():
        fillable = ~always_missing.reshape((1,) * lead + always_missing.shape)
        text = "{n:,} cells of the field are missing in every slice, as land is, and stay missing ({option} fills them)"
        fields = {"n": int(always_missing.sum()), "option": argument("fill_always_missing")}
        notes.append(Note(render(text, **fields)))
    if always_missing.all():
        raise InputError(f"{variable.label} is missing everywhere: there is no observed cell to fill it from")
    settings, observed_share = _choose_tiles(variable, axes, fillable, lead, bounds, level)
    if lead and not alone:
        settings = replace(settings, background=learn_background(variable, settings, counts))
    blocks = _choose_blocks(variable, settings, observed_share, lead, chunks, halo)
    to_fill = variable.compute((missing & fillable).sum(axis=tuple(range(lead, len(dims)))))
    return GridLayout(variable, original_dims, field_dims, fillable, settings, blocks, n_missing, to_fill, notes)


def _choose_tiles(
    variable: Variable, axes: list[Axis], fillable: ndarray, lead: int, bounds: Bounds | None, level: float
) -> tuple[FieldSettings, float]:
    """Return units of distance, tiles and bounds, and the share of observed cells, all from a sample.

    They do not depend on how the variable is split into blocks.
    """
    shape = variable.shape[lead:]
    slices = tuple(slice(None, None, -(-n // _SAMPLE_SLICES)) for n in variable.shape[:lead])
    strided = slices + tuple(slice(None, None, -(-n // _SAMPLE_CELLS)) for n in shape)
    sample = variable.compute(variable.values[strided]).astype(float)
    land = np.isnan(sample) & ~np.broadcast_to(fillable, variable.shape)[strided]
    observed = sample[np.isfinite(sample)]
    share = max(len(observed) / max(sample.size - int(land.sum()), 1), 1e-3)
    middle = slices + tuple(slice(max(0, (n - _SAMPLE_CELLS) // 2), (n + _SAMPLE_CELLS) // 2) for n in shape)
    rough = roughness(variable.compute(variable.values[middle]).astype(float), lead)
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
    """Return None where the variable fits in memory and no chunks are requested.

    The default halo is a tile and 1.5 times the radius of a ball with the context of a tile: missing cells are not
    spread evenly.
    """
    shape, field_dims = variable.shape, variable.dims[lead:]
    max_cells = _MAX_FIELD_CELLS
    if settings.background is not None:  # a block reads all slices
        max_cells = max(_MIN_BLOCK_CELLS, _MAX_BLOCK_VALUES // math.prod(shape[:lead]))
    large = math.prod(shape[lead:]) > (max_cells if variable.lazy else _MAX_FIELD_CELLS)
    if chunks is None and not variable.lazy and not large:
        return None
    d = len(field_dims)
    if halo is not None:
        halos = (halo,) * d
    else:
        steps = np.array([axis.step for axis in settings.axes]) / np.array(settings.unit)  # of a cell, in units
        unit_ball = {1: 2.0, 2: math.pi, 3: 4 * math.pi / 3}[d]
        radius = (settings.n_context / share * float(np.prod(steps)) / unit_ball) ** (1 / d)
        halos = tuple(int(np.ceil(1.5 * radius / step + n)) for step, n in zip(steps, settings.tile, strict=True))
    default = {dim: 1 if i < lead else n for i, (dim, n) in enumerate(variable.sizes.items())}
    if chunks is None and large:
        side = int(max_cells ** (1 / d))
        default |= {dim: max(side, 4 * n) for dim, n in zip(field_dims, halos, strict=True)}
    sizes = default | (chunks or {})
    return Blocks(tuple(min(n, sizes[dim]) for dim, n in variable.sizes.items()), halos)
