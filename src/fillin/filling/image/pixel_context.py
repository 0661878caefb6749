"""Prediction of pixels from the observed points around them, in bounded memory.

Up to `n_context` observed points form one context. With more, cells are predicted tile by tile, each tile from the
points nearest to its centre; within a gap from fewer points that are further apart, in wider tiles. Tiles start at the
first observed point, so that they move with the observations.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.spatial import KDTree
from torch.distributions import MixtureSameFamily

from fillin.heads import LatentMixture, marginal_of, to_predictive
from fillin.inference.context import level_and_size, nearest_rows, to_batch
from fillin.inference.tiles import split_into_tiles
from fillin.models import Process
from fillin.models.base import LatentProcess
from fillin.predictive import GaussianMixture
from fillin.runtime import Tick

_NEAR_CONTEXT, _OTHER_CONTEXT = 64, 2048  # observed points; more of them dilute the near ones for a model of any units
_GAP_DISTANCE = 2.0  # in distances between observed points; cells nearer than that are not in a gap
_MAX_CELLS, _MAX_LATENT_CELLS = 2048, 256  # predicted at once, the latter by a latent model
_TILE_WIDTH = 0.65  # of the square that holds a context; wider is faster, and no worse on photographs
_MIN_TILE_PIXELS = 6
_MAX_CELLS_SORTED = 1 << 15  # into tiles at once
_EXCLUSIVE = (
    1 / 3
)  # of the way from a centre to the next a tile predicts alone: pixels are many, and blending costs time
Moments = tuple[Float[ndarray, "b m c"], Float[ndarray, "b m c"]]


@dataclass(frozen=True)
class PixelContext:
    """Observed points x (row, column; a pixel is 1) with colours y, of b images that differ in these alone.

    `shape` is that of the image in pixels, `scale` the number of cells along each side of a pixel. Predictions include
    observation noise unless `noise` is False.
    """

    model: Process
    shape: tuple[int, int]
    scale: int
    x: Float[ndarray, "n 2"]
    y: Float[ndarray, "b n c"]
    noise: bool = True

    def locations(self, cells: Int[ndarray, "*m 2"] | Float[ndarray, "*m 2"]) -> Float[ndarray, "*m 2"]:
        """Return the centres of cells in pixels."""
        return (cells + 0.5) / self.scale - 0.5

    def predict(self, cells: Int[ndarray, "m 2"], blended: bool = True, tick: Tick = lambda done: None) -> Moments:
        """Return mean and standard deviation of cells, which include the difference between tiles that are blended.

        Tiles that are not blended are three times as wide: few cells are not worth many contexts.
        """
        mean, square = (np.zeros((len(self.y), len(cells), self.y.shape[2])) for _ in range(2))
        for rows, share, (m, s), _ in self._predict_parts(cells, blended):
            mean[:, rows] += share[:, None] * m
            square[:, rows] += share[:, None] * (s**2 + m**2)
            tick(round(share.sum()))
        return mean, np.sqrt(np.maximum(square - mean**2, 0))

    def sample_latents(self, cells: Int[ndarray, "m 2"], n: int) -> Float[ndarray, "n m c"]:
        """Return the function of each of n latent samples of a latent model."""
        functions = np.zeros((n, len(cells), self.y.shape[2]))
        for rows, share, _, samples in self._predict_parts(cells, True):
            assert samples is not None
            functions[:, rows] += share[:, None] * samples[:n]
        return functions

    def _predict_parts(
        self, cells: Int[ndarray, "m 2"], blended: bool
    ) -> Iterator[tuple[ndarray, ndarray, Moments, Any]]:
        """Yield rows of cells, the share of this prediction in each of them, and the prediction."""
        n = max(1, (_MAX_LATENT_CELLS if isinstance(self.model, LatentProcess) else _MAX_CELLS) // len(self.y))
        for context, layer, layer_share in self._layers(cells, blended):
            for rows, share, centre in context._tiles(cells[layer], blended):
                nearest = context.nearest(centre)
                xc = self.normalise(context.x[nearest])
                for start in range(0, len(rows), n):
                    part = rows[start : start + n]
                    xt = self.normalise(self.locations(cells[layer[part]]))
                    yc = context.y[:, nearest]
                    moments, samples = predict_colours(self.model, xc, yc, xt, context.spread, self.noise)
                    yield layer[part], layer_share[part] * share[start : start + n], moments, samples

    def _layers(
        self, cells: Int[ndarray, "m 2"], blended: bool
    ) -> "Iterator[tuple[PixelContext, Int[ndarray, '_'], Float[ndarray, '_']]]":
        """Yield contexts with the cells that they predict, and their share in each.

        The wider the gap of a cell, the fewer points in its context and the wider its tile, so that it sees all sides
        of the gap and not a thin strip of its edge.
        """
        if self._tree is None:
            yield self, np.arange(len(cells)), np.ones(len(cells))
            return
        distance = np.asarray(self._tree.query(self.locations(cells))[0])
        level = np.log2(np.maximum(distance / (_GAP_DISTANCE * self.spacing), 1))
        level = level if blended else np.round(level)
        for number in range(int(np.ceil(level.max(initial=0))) + 1):
            share = np.maximum(1 - np.abs(level - number), 0)
            rows = np.flatnonzero(share)
            if len(rows):
                yield self._thin(number), rows, share[rows]

    def _thin(self, level: int) -> "PixelContext":
        """Keep the first observed point of every square that is 2^level points wide."""
        if not level:
            return self
        squares = np.floor((self.x - self.x.min(0)) / (self.spacing * 2**level)).astype(int)
        rows = np.sort(np.unique(squares, axis=0, return_index=True)[1])
        return replace(self, x=self.x[rows], y=self.y[:, rows])

    def normalise(self, x: Float[ndarray, "m 2"]) -> Float[ndarray, "m 2"]:
        """Return the locations that models see: the longer side from −2 to 2, as in `fillin.data.images`."""
        return (2 * x + 1 - np.array(self.shape)) * (2 / max(self.shape))

    @cached_property
    def spacing(self) -> float:
        """Distance between neighbouring observed points in pixels, were they spread evenly."""
        return float(np.sqrt(np.prod(self.shape) / len(self.x)))

    @cached_property
    def spread(self) -> Float[ndarray, "c"]:
        return np.ptp(self.y, (0, 1)) if self.y.size else np.zeros(self.y.shape[2])

    @cached_property
    def n_context(self) -> int:
        return _NEAR_CONTEXT if self.model.any_units else _OTHER_CONTEXT

    @cached_property
    def _tree(self) -> KDTree | None:
        return KDTree(self.x) if len(self.x) > self.n_context else None

    def nearest(self, centre: Float[ndarray, "2"]) -> Int[ndarray, "k"]:
        """Return the context of a tile: the nearest observed points, the first ones of those at equal distance."""
        if self._tree is None:
            return np.arange(len(self.x))
        return nearest_rows(self._tree, centre, self.n_context)

    def _tiles(self, cells: Int[ndarray, "m 2"], blended: bool) -> Iterator[tuple[ndarray, ndarray, ndarray]]:
        """Yield the rows of the cells that a tile predicts, its share in each, and its centre in pixels.

        A tile has two fifths of its context within, were that spread evenly.
        """
        if self._tree is None:
            yield np.arange(len(cells)), np.ones(len(cells)), np.zeros(2)
            return
        start = np.round(self.x.min(0) * self.scale).astype(int)
        side = self.scale * max(_MIN_TILE_PIXELS, int(_TILE_WIDTH * self.spacing * np.sqrt(self.n_context)))
        side = side if blended else 3 * side
        for first in range(0, len(cells), _MAX_CELLS_SORTED):
            position = (cells[first : first + _MAX_CELLS_SORTED] + 0.5 - start) / side - 0.5
            for tile in split_into_tiles(position, _EXCLUSIVE if blended else 0.5):
                yield first + tile.rows, tile.share, self.locations((tile.number + 0.5) * side + start - 0.5)


@torch.inference_mode()
def predict_colours(
    model: Process,
    xc: Float[ndarray, "n 2"],
    yc: Float[ndarray, "b n c"],
    xt: Float[ndarray, "m 2"],
    spread: Float[ndarray, "c"] | float = 0.0,
    noise: bool = True,
) -> tuple[Moments, Float[ndarray, "k m c"] | None]:
    """Return means and standard deviations at xt, given colours yc of b images at xc.

    For a latent model, also return the function of each latent sample for the first image. A model with one output
    predicts every channel as a task of its own; one with three sees grey three times, and its outputs are averaged. A
    model of any units sees colours in those of the observed ones, `spread` being that of the whole image, and may leave
    out the noise; other models see colours as they are.
    """
    b, n, c = yc.shape
    by_channel = model.dim_y == 1
    tasks = yc.transpose(0, 2, 1).reshape(b * c, n, 1) if by_channel else np.broadcast_to(yc, (b, n, model.dim_y))
    level, size = np.zeros(1), np.ones(1)
    if model.any_units:
        level, size = level_and_size(tasks[..., 0].T, np.tile(np.broadcast_to(spread, c), b))
        xc, xt = xc - xc[:1], xt - xc[:1]  # before they are rounded: equal pixels elsewhere give equal inputs
    level, size = level[:, None, None], size[:, None, None]
    normalised = torch.from_numpy(((tasks - level) / size).astype(np.float32))
    inputs, queries = (to_batch(x).expand(len(tasks), -1, -1) for x in (xc, xt))
    distribution = marginal_of(model(inputs, normalised, queries), noise)

    def to_channels(values: Float[ndarray, "t m dy"]) -> Float[ndarray, "b m c"]:
        if by_channel:
            return values[..., 0].reshape(b, c, -1).transpose(0, 2, 1)
        return values if c == model.dim_y else values.mean(-1, keepdims=True)

    if isinstance(distribution, MixtureSameFamily):  # without its rare components
        mixture = to_predictive(distribution)
        assert isinstance(mixture, GaussianMixture)
        mean, std = mixture.moments()
    else:
        mean, std = distribution.mean.double().numpy(), distribution.stddev.double().numpy()
    functions = None
    if isinstance(distribution, LatentMixture):
        functions = np.concatenate([to_channels(f.double().numpy())[:1] for f in distribution.given.mean])
    return (to_channels(level + size * mean), to_channels(size * std)), functions
