"""Tiles that overlap: a cell between the middles of two tiles is predicted by both, in shares that change smoothly."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray


class Tile(NamedTuple):
    """The rows of the cells that a tile predicts, its number among the 2^d tiles of each cell, its share in each, and
    its coordinates among the tiles."""

    rows: Int[ndarray, "m"]
    corner: Int[ndarray, "m"]
    share: Float[ndarray, "m"]
    number: Int[ndarray, "d"]


def split_into_tiles(
    position: Float[ndarray, "n d"],
    exclusive: float,
    counts: list[int] | None = None,
    periodic: list[bool] | None = None,
) -> Iterator[Tile]:
    """The tiles that have a share in any cell; the shares of a cell add up to one.

    `position` is in units of tiles, a whole number in the middle of one. Up to `exclusive` of the way from a middle to
    the next the tile predicts alone; beyond, its share falls as 1 − 3u² + 2u³ (exclusive = ½: no overlap). With
    `counts` there are so many tiles along each axis, which are repeated where the axis is `periodic`.
    """
    n, d = position.shape
    number, share = np.zeros((n, 2**d, d), dtype=int), np.ones((n, 2**d))
    for axis in range(d):
        below = np.floor(position[:, axis]).astype(int)
        offset, width = position[:, axis] - below - exclusive, 1 - 2 * exclusive
        u = np.clip(offset / width, 0, 1) if width > 0 else (offset >= 0).astype(float)
        upper = u**2 * (3 - 2 * u)
        neighbours = np.stack([below, below + 1], 1)
        if counts is not None:
            count = counts[axis]
            wraps = periodic is not None and periodic[axis]
            neighbours = neighbours % count if wraps else np.clip(neighbours, 0, count - 1)
            upper = np.where(neighbours[:, 0] == neighbours[:, 1], 0, upper)  # there is no tile beyond the last
        shares = np.stack([1 - upper, upper], 1)
        side = (np.arange(2**d) >> axis) & 1
        number[:, :, axis], share = neighbours[:, side], share * shares[:, side]
    row, corner = np.nonzero(share)
    numbers, which = np.unique(number[row, corner], axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(numbers)))
    for tile, index in zip(numbers, np.split(order, ends[:-1]), strict=True):
        yield Tile(row[index], corner[index], share[row[index], corner[index]], tile)
