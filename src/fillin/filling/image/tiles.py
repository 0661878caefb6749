"""Square tiles that overlap a little. Those of `filling.fields` overlap all the way to their middles, which wide gaps
between sparse cells want; the cells of a picture are many and close, and each answer costs."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

_BLENDED = 1 / 6  # of a tile, along each of its edges


class Piece(NamedTuple):
    """Rows of the cells that a tile answers, its share in each, and its middle, in cells."""

    rows: Int[ndarray, "m"]
    share: Float[ndarray, "m"]
    middle: Float[ndarray, "2"]


def pieces(cells: Int[ndarray, "n 2"], start: Int[ndarray, "2"], side: int, blended: bool = True) -> Iterator[Piece]:
    """Of all tiles that have a share in any of the cells; tile (0, 0) begins at `start`. The shares of a cell are 1 in
    all, and change smoothly."""
    place = (cells + 0.5 - start) / side
    own = np.floor(place).astype(int)
    within = place - own
    low, high = within < _BLENDED, within > 1 - _BLENDED
    edge = np.where(low, within, 1 - within) / (2 * _BLENDED) + 0.5  # ½ on the edge, 1 where the blend ends
    share = np.where((low | high) & blended, edge**2 * (3 - 2 * edge), 1.0)
    near = np.stack([own, own + high.astype(int) - low], 1)  # [n 2 axis]
    parts = np.stack([share, 1 - share], 1)
    tile = np.stack([near[:, [a, b], [0, 1]] for a in (0, 1) for b in (0, 1)], 1)  # [n 4 axis]
    weight = np.stack([parts[:, a, 0] * parts[:, b, 1] for a in (0, 1) for b in (0, 1)], 1)
    row, corner = np.nonzero(weight)
    which, number = np.unique(tile[row, corner], axis=0, return_inverse=True)
    order = np.argsort(number.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(number.ravel(), minlength=len(which)))
    for one, some in zip(which, np.split(order, ends[:-1]), strict=True):
        yield Piece(row[some], weight[row[some], corner[some]], (one + 0.5) * side + start - 0.5)
