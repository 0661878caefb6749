"""Tiles that overlap: a cell between the middles of tiles is answered by each of them, in shares that change smoothly.

Tiles are cut by the numbers of the cells of the whole field and are equally wide along an axis; one that goes round has
a whole number of them, so that there is no seam anywhere. A cell in the middle of a tile is that tile's alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.filling.grid.axes import Axis
from fillin.predictive import GaussianMixture

_ALONE = 0.1  # of the way from a middle to the next, on either side, that is one tile's alone


class Piece(NamedTuple):
    """Rows of the cells that a tile answers, its number among the 2^d tiles of each, its share in each, its middle."""

    rows: Int[ndarray, "m"]
    corner: Int[ndarray, "m"]
    share: Float[ndarray, "m"]
    middle: Float[ndarray, "d"]


@dataclass(frozen=True)
class Tiles:
    """`size` cells along each axis, or a little more or less: as many as there are fit."""

    axes: tuple[Axis, ...]
    size: tuple[int, ...]

    @cached_property
    def counts(self) -> list[int]:
        return [max(1, round(len(axis.x) / size)) for axis, size in zip(self.axes, self.size, strict=True)]

    def pieces(self, cells: Int[ndarray, "n d"]) -> Iterator[Piece]:
        """Of every tile that has a share in any of the cells; the shares of a cell add up to one."""
        n, d = cells.shape
        tile, share = np.zeros((n, 2**d, d), dtype=int), np.ones((n, 2**d))
        for i in range(d):
            near, part = self._along(i, cells[:, i])
            upper = (np.arange(2**d) >> i) & 1
            tile[:, :, i], share = near[:, upper], share * part[:, upper]
        row, corner = np.nonzero(share)
        which, own = np.unique(tile[row, corner], axis=0, return_inverse=True)
        order = np.argsort(own.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(own.ravel(), minlength=len(which)))
        for number, some in zip(which, np.split(order, ends[:-1]), strict=True):
            yield Piece(row[some], corner[some], share[row[some], corner[some]], self._middle(number))

    def _along(self, i: int, cells: Int[ndarray, "n"]) -> tuple[Int[ndarray, "n 2"], Float[ndarray, "n 2"]]:
        """The tiles below and above along an axis, and their shares: 3u² − 2u³ of the way between their middles."""
        count = self.counts[i]
        place = (cells + 0.5) * count / len(self.axes[i].x) - 0.5  # 0 in the middle of the first
        below = np.floor(place).astype(int)
        u = np.clip((place - below - _ALONE) / (1 - 2 * _ALONE), 0, 1)
        upper = u**2 * (3 - 2 * u)
        near = np.stack([below, below + 1], 1)
        near = near % count if self.axes[i].length else np.clip(near, 0, count - 1)
        upper = np.where(near[:, 0] == near[:, 1], 0, upper)  # beyond the first and the last there is no other
        return near, np.stack([1 - upper, upper], 1)

    def _middle(self, tile: Int[ndarray, "d"]) -> Float[ndarray, "d"]:
        each = zip(self.axes, self.counts, tile, strict=True)
        return np.array([np.interp((t + 0.5) * len(a.x) / k - 0.5, np.arange(len(a.x)), a.x) for a, k, t in each])


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
