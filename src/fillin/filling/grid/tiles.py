"""Tiles of a field, which overlap all the way to their middles, and the blend of their predictions.

Tiles are cut by the cell numbers of the whole field and are equally wide along an axis. A periodic axis has a whole
number of them, so that there is no seam anywhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.filling.grid.axes import Axis
from fillin.inference.tiles import split_into_tiles
from fillin.predictive import GaussianMixture

_EXCLUSIVE = 0.1  # of the way from a middle to the next, on either side, a tile predicts alone


class Piece(NamedTuple):
    """Rows of the cells that a tile predicts, its number among the 2^d tiles of each, its share in each, its middle."""

    rows: Int[ndarray, "m"]
    corner: Int[ndarray, "m"]
    share: Float[ndarray, "m"]
    middle: Float[ndarray, "d"]


@dataclass(frozen=True)
class Tiles:
    """`size` cells along each axis, or a little more or less, so that a whole number of tiles fits."""

    axes: tuple[Axis, ...]
    size: tuple[int, ...]

    @cached_property
    def counts(self) -> list[int]:
        return [max(1, round(len(axis.x) / size)) for axis, size in zip(self.axes, self.size, strict=True)]

    def pieces(self, cells: Int[ndarray, "n d"]) -> Iterator[Piece]:
        """The tiles that have a share in any of the cells; the shares of a cell add up to one."""
        lengths = np.array([len(axis.x) for axis in self.axes])
        position = (cells + 0.5) * np.array(self.counts) / lengths - 0.5
        periodic = [bool(axis.period) for axis in self.axes]
        for tile in split_into_tiles(position, _EXCLUSIVE, self.counts, periodic):
            yield Piece(tile.rows, tile.corner, tile.share, self._middle(tile.number))

    def _middle(self, number: Int[ndarray, "d"]) -> Float[ndarray, "d"]:
        axes = zip(self.axes, self.counts, number, strict=True)
        return np.array([
            np.interp((i + 0.5) * len(axis.x) / count - 0.5, np.arange(len(axis.x)), axis.x) for axis, count, i in axes
        ])  # fmt: skip


def blend(
    pieces: list[Piece],
    predict: Callable[[Piece], GaussianMixture],
    n: int,
    tick: Callable[[int], object] = lambda done: None,
) -> GaussianMixture:
    """The predictions of all pieces at n cells; a cell is done with the last piece that has a share in it."""
    last = np.zeros(n, dtype=int)
    for number, piece in enumerate(pieces):
        last[piece.rows] = number
    n_done = np.bincount(last, minlength=len(pieces))
    corners = max(int(piece.corner.max()) for piece in pieces) + 1
    share, parts = np.zeros((n, corners)), None
    for piece, number in zip(pieces, n_done, strict=True):
        mixture = predict(piece)
        arrays = np.stack([mixture.weights, mixture.means, mixture.stds])  # [3 m k]
        if parts is None:
            parts = np.zeros((3, n, corners, arrays.shape[-1]))
        share[piece.rows, piece.corner] = piece.share
        parts[:, piece.rows, piece.corner] = arrays
        tick(int(number))
    assert parts is not None
    first = parts[:, np.arange(n), share.argmax(1)]  # a tile without a share gets a copy of one that has a share
    parts = np.where((share > 0)[..., None], parts, first[:, :, None])
    return GaussianMixture.blend([GaussianMixture(*parts[:, :, corner]) for corner in range(corners)], share.T)
