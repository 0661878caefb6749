"""A picture as a field over its places: any cell of it is answered from the known points around, in bounded memory.

Up to `most` known points are one context. Of more, cells are answered tile by tile, each from the known points nearest
to its middle. Tiles start at the first known point, so that they move with what is known.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.spatial import KDTree

from fillin.completing.asking import Moments, ask
from fillin.completing.tiles import Piece, pieces
from fillin.models import Process
from fillin.models.base import LatentProcess
from fillin.models.filler import Filler

FILLER, OTHERS = 64, 2048  # known points of one context; a filler told more of them sees less of what is near
_APART = 4.0  # a gap's width over the distance between known points that are looked at from within
_PIECE, _LATENT = 2048, 256  # cells asked at once, and of a model with latents
_TIES = 16  # points that may be as far away as the last of a context
_SIDES = 6, 24  # of a tile, in pixels
_STRIP = 1 << 15  # cells that are sorted into tiles at once
Tick = Callable[[int], object]


@dataclass(frozen=True)
class Field:
    """Known places x (row, column; a pixel is 1) and colours y of one picture or of several that differ in these alone.

    `shape` is that of the picture in pixels, `scale` how many cells a pixel has along each axis.
    """

    model: Process
    shape: tuple[int, int]
    scale: int
    x: Float[ndarray, "n 2"]
    y: Float[ndarray, "b n c"]

    def places(self, cells: Int[ndarray, "*m 2"] | Float[ndarray, "*m 2"]) -> Float[ndarray, "*m 2"]:
        """Where the middles of cells are, in pixels."""
        return (cells + 0.5) / self.scale - 0.5

    def at(self, cells: Int[ndarray, "m 2"], blended: bool = True, tick: Tick = lambda done: None) -> Moments:
        """Mean and deviation of every cell; where tiles that differ are blended, the deviation has that in it."""
        mean, square = (np.zeros((len(self.y), len(cells), self.y.shape[2])) for _ in range(2))
        for rows, share, middle in self._pieces(cells, blended):
            known = self._around(middle)
            for start in range(0, len(rows), self._piece):
                some = slice(start, start + self._piece)
                (m, s), _ = self._ask(known, cells[rows[some]])
                mean[:, rows[some]] += share[some, None] * m
                square[:, rows[some]] += share[some, None] * (s**2 + m**2)
            tick(len(rows))
        return mean, np.sqrt(np.maximum(square - mean**2, 0))

    def functions(self, cells: Int[ndarray, "m 2"], n: int) -> Float[ndarray, "n m c"]:
        """Of a model with latents: what n of them make of the picture."""
        found = np.zeros((n, len(cells), self.y.shape[2]))
        for rows, share, middle in self._pieces(cells, True):
            known = self._around(middle)
            for start in range(0, len(rows), self._piece):
                some = slice(start, start + self._piece)
                made = self._ask(known, cells[rows[some]])[1]
                assert made is not None
                found[:, rows[some]] += share[some, None] * made[:n]
        return found

    def _ask(self, known: Int[ndarray, "k"], cells: Int[ndarray, "m 2"]):
        return ask(self.model, self._told(self.x[known]), self.y[:, known], self._told(self.places(cells)), self.spread)

    def _told(self, x: Float[ndarray, "m 2"]) -> Float[ndarray, "m 2"]:
        """As `data.images.places` has it: the longer side from −2 to 2."""
        return (2 * x + 1 - np.array(self.shape)) * (2 / max(self.shape))

    @cached_property
    def spread(self) -> Float[ndarray, "c"]:
        return np.ptp(self.y, (0, 1)) if self.y.size else np.zeros(self.y.shape[2])

    @cached_property
    def most(self) -> int:
        return FILLER if isinstance(self.model, Filler) else OTHERS

    @cached_property
    def _piece(self) -> int:
        return max(1, (_LATENT if isinstance(self.model, LatentProcess) else _PIECE) // len(self.y))

    @cached_property
    def side(self) -> int:
        """Of a tile in cells: as many known points lie in it as are a quarter of its context, were they spread."""
        share = len(self.x) / np.prod(self.shape)
        return self.scale * int(np.clip(np.sqrt(self.most / 4 / share), *_SIDES))

    @cached_property
    def _tree(self) -> KDTree | None:
        return KDTree(self.x) if len(self.x) > self.most else None

    def _around(self, middle: Float[ndarray, "2"]) -> Int[ndarray, "k"]:
        """The `most` nearest known points. The further away these are, as from the middle of a hole, the further apart
        are those that are taken, so that a tile sees around the gap, and not a thin strip of its edge."""
        if self._tree is None:
            return np.arange(len(self.x))
        apart = max(1.0, (float(self._tree.query(middle)[0]) - self.side / self.scale) / _APART)
        wanted = min(len(self.x), _TIES + int(self.most * apart**2))
        far, rows = map(np.asarray, self._tree.query(middle, wanted))
        rows = rows[np.lexsort((rows, np.round(far, 6)))]  # of those equally far, as on a grid, the first ones
        if apart > 1:
            blocks = np.floor((self.x[rows] - self.x.min(0)) / apart).astype(int)
            rows = rows[np.sort(np.unique(blocks, axis=0, return_index=True)[1])]
        return np.sort(rows[: self.most])

    def _pieces(self, cells: Int[ndarray, "m 2"], blended: bool) -> Iterator[Piece]:
        """Rows of cells, their share in the answer, and the middle of what they are answered from."""
        if self._tree is None:
            yield Piece(np.arange(len(cells)), np.ones(len(cells)), np.zeros(2))
            return
        start = np.round(self.x.min(0) * self.scale).astype(int)
        for first in range(0, len(cells), _STRIP):
            for piece in pieces(cells[first : first + _STRIP], start, self.side, blended):
                yield Piece(first + piece.rows, piece.share, self.places(piece.middle))
