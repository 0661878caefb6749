"""Part of a field, filled: the one function that does the work, here or on the workers of a cluster.

Tiles that overlap up to their centres belong to the whole field, and each is predicted from the observed cells nearest
to its centre. How a field is split into blocks changes nothing, as long as a block sees these cells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument, render
from fillin.filling.grid.axes import Axis
from fillin.inference.context import Context
from fillin.inference.tiles import Tile, split_into_tiles
from fillin.predictive import GaussianMixture
from fillin.runtime import Tick
from fillin.warp import BoundsWarp

if TYPE_CHECKING:
    from fillin.models import Process

MAX_QUERIES_HELD = 16_384  # cells whose mixtures are in memory at a time
_EXCLUSIVE = 0.1  # of the way from a centre to the next, on either side, a tile predicts alone


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

    @cached_property
    def tile_counts(self) -> list[int]:
        return [max(1, round(len(axis.x) / size)) for axis, size in zip(self.axes, self.tile, strict=True)]

    def tiles(self, cells: Int[ndarray, "n d"]) -> list[Tile]:
        """Return the tiles that have a share in any of the cells; the shares of a cell add up to one."""
        lengths = np.array([len(axis.x) for axis in self.axes])
        position = (cells + 0.5) * np.array(self.tile_counts) / lengths - 0.5
        periodic = [bool(axis.period) for axis in self.axes]
        return list(split_into_tiles(position, _EXCLUSIVE, self.tile_counts, periodic))

    def centre(self, tile: Tile) -> Float[ndarray, "d"]:
        axes = zip(self.axes, self.tile_counts, tile.number, strict=True)
        return np.array([
            np.interp((i + 0.5) * len(axis.x) / count - 0.5, np.arange(len(axis.x)), axis.x) for axis, count, i in axes
        ])  # fmt: skip

    def locations(self, cells: Int[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        return np.stack([axis.x[cells[:, i]] for i, axis in enumerate(self.axes)], 1)

    def context(self, model: "Process", cells: Int[ndarray, "n d"], y: Float[ndarray, "n"]) -> Context:
        """Return the context of observed cells."""
        periods = np.array([axis.period for axis in self.axes])
        x, z, unit = self.locations(cells), self.warp.forward(y)[:, None], np.array(self.unit)
        return Context(
            model, x, z, max_points=self.n_context, scale=unit, period=periods if periods.any() else None
        )  # fmt: skip

    def predict(self, context: Context, cells: Int[ndarray, "n d"], tick: Tick = lambda done: None) -> GaussianMixture:
        """Predict cells, tile by tile unless all of them see the whole context."""
        x = self.locations(cells)
        if not len(cells) or (context.tree is None and context.period is None):
            return context.predict(x, tick=tick)[:, 0].transformed(self.warp)

        def predict_tile(tile: Tile) -> GaussianMixture:
            return context.predict(x[tile.rows], groups=[(np.arange(len(tile.rows)), self.centre(tile))])[:, 0]

        return blend(self.tiles(cells), predict_tile, len(cells), tick).transformed(self.warp)

    def check(self, y: Float[ndarray, "n"], cells: Int[ndarray, "n d"]) -> None:
        """Refuse context values that are not finite or lie outside the bounds."""
        outside = ~np.isfinite(y) | (y < self.warp.minimum) | (y > self.warp.maximum)
        if outside.any():
            row = int(outside.argmax())
            flaw = (
                render("lies outside {bounds}", bounds=argument("bounds")) if np.isfinite(y[row]) else "is not finite"
            )
            raise InputError(
                "variable '{name}' at {where}: {value:g} {flaw}; correct it, or make it missing (NaN)",
                name=self.name, value=y[row], flaw=flaw,
                where=", ".join(axis.label(int(cells[row, i])) for i, axis in enumerate(self.axes)),
            )  # fmt: skip


def blend(
    tiles: list[Tile], predict: Callable[[Tile], GaussianMixture], n: int, tick: Tick = lambda done: None
) -> GaussianMixture:
    """Blend the predictions of all tiles at n cells; a cell is done with the last tile that has a share in it."""
    last = np.zeros(n, dtype=int)
    for number, tile in enumerate(tiles):
        last[tile.rows] = number
    n_done = np.bincount(last, minlength=len(tiles))
    corners = max(int(tile.corner.max()) for tile in tiles) + 1
    share, parts = np.zeros((n, corners)), None
    for tile, number in zip(tiles, n_done, strict=True):
        mixture = predict(tile)
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


def fill_block(
    model: "Process",
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
    within = np.ix_(*(_positions(rows, part) for rows, part in zip(cells, inner, strict=True)))
    out = np.empty((4, *lead, *shape), dtype=values.dtype)
    for index in np.ndindex(*lead):
        field = values[index]
        value = field[within].astype(float)
        parts = [value, np.where(np.isnan(value), np.nan, 0.0), value.copy(), value.copy()]
        at = np.argwhere(np.isnan(value) & np.broadcast_to(fillable, (*lead, *shape))[index])
        if len(at):
            observed, y = _observed(field, cells)
            if coarse is not None:
                far, far_y = _observed(coarse[0][index], coarse[1])
                observed, y = np.concatenate([observed, far]), np.concatenate([y, far_y])
            observed, first = np.unique(observed, axis=0, return_index=True)  # in one order, however they came
            y = y[first]
            settings.check(y, observed)
            if len(y):
                queries = np.stack([rows[at[:, i]] for i, rows in enumerate(inner)], 1)
                context = settings.context(model, observed, y)
                for part, numbers in zip(parts, _predict_cells(settings, context, queries, tick), strict=True):
                    part[tuple(at.T)] = numbers
        out[(slice(None), *index)] = np.stack(parts)
    return out


def _predict_cells(settings: FieldSettings, context: Context, cells: ndarray, tick: Tick) -> list[ndarray]:
    """Return mean, standard deviation and interval of cells, in bounded memory."""
    half, parts = settings.level / 2, []
    order = np.lexsort((cells // np.array(settings.tile)).T[::-1])  # few tiles are predicted twice
    for start in range(0, len(order), MAX_QUERIES_HELD):
        mixture = settings.predict(context, cells[order[start : start + MAX_QUERIES_HELD]], tick)
        parts.append([*mixture.moments(), mixture.quantile(0.5 - half), mixture.quantile(0.5 + half)])
    back = np.argsort(order)
    return [np.concatenate(numbers)[back] for numbers in zip(*parts, strict=True)]


def _observed(field: ndarray, cells: tuple[ndarray, ...]) -> tuple[Int[ndarray, "n d"], Float[ndarray, "n"]]:
    """Return the indices and values of the observed cells."""
    at = np.nonzero(~np.isnan(field))
    return np.stack([rows[at[i]] for i, rows in enumerate(cells)], 1), field[at].astype(float)


def _positions(cells: ndarray, part: ndarray) -> ndarray:
    """Return the positions in `cells` of the indices `part`."""
    order = np.argsort(cells)
    return order[np.searchsorted(cells, part, sorter=order)]
