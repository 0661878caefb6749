"""A picture as a field over its places: any cell of it is answered from the known points around, in bounded memory.

Up to `most` known points are one context. Of more, cells are answered tile by tile, each from the known points nearest
to its middle; within a gap from fewer that are further apart, and in wider tiles. Tiles start at the first known point,
so that they move with what is known.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.spatial import KDTree

from fillin.filling.image.query import Moments, ask
from fillin.filling.image.tiles import Piece, pieces
from fillin.models import Process
from fillin.models.base import LatentProcess
from fillin.models.filler import Filler

FILLER, OTHERS = 64, 2048  # known points of one context; a filler told more of them sees less of what is near
_NEAR = 2.0  # distances between known points: as far is no gap
_PIECE, _LATENT = 2048, 256  # cells asked at once, and of a model with latents
_TIES = 16  # points that may be as far away as the last of a context
_WIDE = 0.65  # of a square that holds a context: wider is faster, and no worse on photographs
_SIDE = 6  # of a tile in pixels, at least
_STRIP = 1 << 15  # cells that are sorted into tiles at once
Tick = Callable[[int], object]


@dataclass(frozen=True)
class Field:
    """Known places x (row, column; a pixel is 1) and colours y of one picture or of several that differ in these alone.

    `shape` is that of the picture in pixels, `scale` how many cells a pixel has along each axis; `noise` says whether
    what would be seen is asked for, or the picture beneath it.
    """

    model: Process
    shape: tuple[int, int]
    scale: int
    x: Float[ndarray, "n 2"]
    y: Float[ndarray, "b n c"]
    noise: bool = True

    def places(self, cells: Int[ndarray, "*m 2"] | Float[ndarray, "*m 2"]) -> Float[ndarray, "*m 2"]:
        """Where the middles of cells are, in pixels."""
        return (cells + 0.5) / self.scale - 0.5

    def at(self, cells: Int[ndarray, "m 2"], blended: bool = True, tick: Tick = lambda done: None) -> Moments:
        """Mean and deviation of every cell; where tiles that differ are blended, the deviation has that in it. Those
        that are not blended are three times as wide: few cells are not worth many contexts."""
        mean, square = (np.zeros((len(self.y), len(cells), self.y.shape[2])) for _ in range(2))
        for rows, share, (m, s), _ in self._asked(cells, blended):
            mean[:, rows] += share[:, None] * m
            square[:, rows] += share[:, None] * (s**2 + m**2)
            tick(round(share.sum()))
        return mean, np.sqrt(np.maximum(square - mean**2, 0))

    def functions(self, cells: Int[ndarray, "m 2"], n: int) -> Float[ndarray, "n m c"]:
        """Of a model with latents: what n of them make of the picture."""
        found = np.zeros((n, len(cells), self.y.shape[2]))
        for rows, share, _, made in self._asked(cells, True):
            assert made is not None
            found[:, rows] += share[:, None] * made[:n]
        return found

    def _asked(self, cells: Int[ndarray, "m 2"], blended: bool) -> Iterator[tuple[ndarray, ndarray, Moments, Any]]:
        """Rows of cells, the share of an answer in what is told of each, and the answer."""
        for field, own, part in self._layers(cells, blended):
            for rows, share, middle in field._pieces(cells[own], blended):
                known = field.around(middle)
                for start in range(0, len(rows), self._piece):
                    some = rows[start : start + self._piece]
                    told, made = field._ask(known, cells[own[some]])
                    yield own[some], part[some] * share[start : start + self._piece], told, made

    def _layers(
        self, cells: Int[ndarray, "m 2"], blended: bool
    ) -> "Iterator[tuple[Field, Int[ndarray, '_'], Float[ndarray, '_']]]":
        """What answers a cell, and in which share: the wider the gap it lies in, the fewer known points and the wider
        tiles, so that it sees around the gap, and not a thin strip of its edge."""
        if self._tree is None:
            yield self, np.arange(len(cells)), np.ones(len(cells))
            return
        far = np.asarray(self._tree.query(self.places(cells))[0])
        level = np.log2(np.maximum(far / (_NEAR * self.apart), 1))
        level = level if blended else np.round(level)
        for number in range(int(np.ceil(level.max(initial=0))) + 1):
            share = np.maximum(1 - np.abs(level - number), 0)
            rows = np.flatnonzero(share)
            if len(rows):
                yield self._thinned(number), rows, share[rows]

    def _thinned(self, level: int) -> "Field":
        """With the first known point alone of every square that is 2^level points wide."""
        if not level:
            return self
        squares = np.floor((self.x - self.x.min(0)) / (self.apart * 2**level)).astype(int)
        rows = np.sort(np.unique(squares, axis=0, return_index=True)[1])
        return replace(self, x=self.x[rows], y=self.y[:, rows])

    @cached_property
    def apart(self) -> float:
        """From one known point to the next, were they spread evenly; in pixels."""
        return float(np.sqrt(np.prod(self.shape) / len(self.x)))

    def _ask(self, known: Int[ndarray, "k"], cells: Int[ndarray, "m 2"]):
        xc, xt = self.told(self.x[known]), self.told(self.places(cells))
        return ask(self.model, xc, self.y[:, known], xt, self.spread, self.noise)

    def told(self, x: Float[ndarray, "m 2"]) -> Float[ndarray, "m 2"]:
        """As `data.images.pixel_locations` has it: the longer side from −2 to 2."""
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
        """Of a tile in cells: it has two fifths of its context within, were that spread evenly."""
        return self.scale * max(_SIDE, int(_WIDE * self.apart * np.sqrt(self.most)))

    @cached_property
    def _tree(self) -> KDTree | None:
        return KDTree(self.x) if len(self.x) > self.most else None

    def around(self, middle: Float[ndarray, "2"]) -> Int[ndarray, "k"]:
        """The `most` nearest known points; of those equally far, as on a grid, the first ones."""
        if self._tree is None:
            return np.arange(len(self.x))
        far, rows = map(np.asarray, self._tree.query(middle, min(self.most + _TIES, len(self.x))))
        return np.sort(rows[np.lexsort((rows, np.round(far, 6)))[: self.most]])

    def _pieces(self, cells: Int[ndarray, "m 2"], blended: bool) -> Iterator[Piece]:
        """Rows of cells, their share in the answer, and the middle of what they are answered from."""
        if self._tree is None:
            yield Piece(np.arange(len(cells)), np.ones(len(cells)), np.zeros(2))
            return
        start = np.round(self.x.min(0) * self.scale).astype(int)
        for first in range(0, len(cells), _STRIP):
            for piece in pieces(cells[first : first + _STRIP], start, self.side * (1 if blended else 3), blended):
                yield Piece(first + piece.rows, piece.share, self.places(piece.middle))
