"""Sample paths of sheets, coherent across rows and columns: a Gaussian copula of the predictions of the cells.

A draw of a cell is F⁻¹(Φ(z)), with F its predictive distribution, so that draws and predictions agree cell by cell. The
normal scores z are correlated

- along a column as the Gaussian process that guides it, given the observed cells. Blocks of rows are drawn one after
  another, each given the observed cells and the drawn rows around it, in any number of input dimensions;
- between the columns of a row as the columns are where they are observed, given those that are observed: as what the
  process of each column leaves, or, where most columns of a row are missing, as their values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.spatial import KDTree

from fillin.inference.context import nearest_rows
from fillin.models.covariance import correlate, distances
from fillin.models.processes import Kernels
from fillin.runtime import Tick

_BLOCK = 96  # queries of a column that are drawn at once
_SPAN = 128  # observed cells between them, at the most
_OBSERVED, _DRAWN = 64, 48  # cells on each side, and before, that they are conditioned on
_NEAREST_OBSERVED, _NEAREST_DRAWN = 192, 128  # the same in several dimensions
_MEMORY = 4096  # of the drawn queries, that others may be conditioned on in several dimensions
_KERNELS = 4  # of a column, which share the draws
_JITTER = 1e-6
_SHRINKAGE = 10.0  # rows, by which correlations of few rows are shrunk to 0


class DrawBlock(NamedTuple):
    """Queries that are drawn at once, the rows of observed cells near them, and the queries near them that are drawn
    before."""

    queries: Int[ndarray, "b"]
    observed: Int[ndarray, "s"]
    drawn: Int[ndarray, "p"]


@dataclass(frozen=True)
class ColumnProcess:
    """Rows x in units of the kernels (in one dimension in order), observed ones and queried ones, and the kernels of a
    column."""

    x: Float[ndarray, "n dx"]
    observed: Int[ndarray, "k"]
    queried: Int[ndarray, "m"]
    kernels: Kernels  # of one column
    error: Float[ndarray, "n"] | None = None  # known errors of observed cells, in standard deviations of the column

    def draw(self, noises: Float[ndarray, "2 s n"], tick: Tick) -> Float[ndarray, "s m"]:
        """Draw correlated normal scores of the queried cells from independent ones of each row: for the latent function
        and for the noise."""
        n_draws, number = noises.shape[1], self.kernels.theta.shape[1]
        scores = np.empty((n_draws, len(self.queried)))
        chosen = np.unique(np.linspace(0, number - 1, min(_KERNELS, n_draws)).round().astype(int))
        if not bool(self.kernels.drawn[0]):
            chosen = chosen[:1] * 0  # the best one
        for i, k in enumerate(chosen):
            draws = slice(i, None, len(chosen))
            scores[draws] = self._draw_by(self.kernels.theta[:, k], noises[:, draws], tick)
        return scores

    def _blocks(self) -> Iterator[DrawBlock]:
        """Yield up to 96 queries at a time, with the cells that they are conditioned on."""
        if self.x.shape[1] > 1:
            yield from self._neighbourhoods()
            return
        before, start = np.searchsorted(self.observed, self.queried), 0
        while start < len(self.queried):
            reach = int(np.searchsorted(before, before[start] + _SPAN, side="right"))
            block = np.arange(start, min(start + _BLOCK, reach))
            low, high = np.searchsorted(self.observed, self.queried[block[[0, -1]]])
            seen = self.observed[max(0, low - _OBSERVED) : high + _OBSERVED]
            yield DrawBlock(block, seen, np.arange(max(0, start - _DRAWN), start))
            start = int(block[-1]) + 1

    def _neighbourhoods(self) -> Iterator[DrawBlock]:
        """Yield the same in several dimensions: neighbourhoods of queries, and the nearest cells."""
        at, tree = self.x[self.queried], KDTree(self.x[self.observed]) if len(self.observed) else None
        drawn = np.empty(0, dtype=int)
        pending = [np.arange(len(at))]
        while pending:
            block = pending.pop()
            low, high = at[block].min(0), at[block].max(0)
            middle, radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2
            among = 0 if tree is None else int(tree.query_ball_point(middle, radius, return_length=True))
            if len(block) > 1 and (len(block) > _BLOCK or among > _SPAN):
                order = np.argsort(at[block, int(np.argmax(high - low))], kind="stable")
                pending += [block[order[len(block) // 2 :]], block[order[: len(block) // 2]]]
                continue
            seen = np.empty(0, dtype=int) if tree is None else nearest_rows(tree, middle, _NEAREST_OBSERVED)
            drawn = drawn[-_MEMORY:]
            far = np.square(at[drawn] - middle).sum(1)
            yield DrawBlock(block, self.observed[seen], drawn[np.argsort(far, kind="stable")[:_NEAREST_DRAWN]])
            drawn = np.concatenate([drawn, block])

    def _draw_by(self, theta: torch.Tensor, noises: Float[ndarray, "2 s n"], tick: Tick) -> Float[ndarray, "s m"]:
        noise = float(theta[0, 2]) ** 2 + _JITTER
        latent, scores = np.empty((noises.shape[1], len(self.queried))), np.empty((noises.shape[1], len(self.queried)))
        memory = _DRAWN if self.x.shape[1] == 1 else _MEMORY
        kept, spread = np.empty(0, dtype=int), np.empty((0, 0))  # the last drawn queries, and the covariance of draws
        place = np.empty(len(self.queried), dtype=int)  # of a query among those

        def covariance(a: ndarray, b: ndarray) -> ndarray:
            parts = (torch.from_numpy(self.x[rows])[None] for rows in (a, b))
            return correlate(theta, self.kernels.period, distances(*parts))[0].numpy()

        for block, seen, drawn in self._blocks():
            rows = self.queried[block]
            context = np.concatenate([seen, self.queried[drawn]])
            own = covariance(context, context)
            known_error = 0.0 if self.error is None else np.square(self.error[context])
            own[np.diag_indices(len(context))] += np.where(
                np.arange(len(context)) < len(seen), noise + known_error, _JITTER
            )
            cross = covariance(rows, context)
            weights = np.linalg.solve(own, cross.T).T if len(context) else cross
            left = covariance(rows, rows) - weights @ cross.T
            left[np.diag_indices(len(rows))] += _JITTER
            weights = weights[:, len(seen) :]
            latent[:, block] = latent[:, drawn] @ weights.T + noises[0][:, rows] @ np.linalg.cholesky(left).T
            # blocks see different observations: the variance of the draws is not that of the process given those of one
            beside = weights @ spread[place[drawn]]
            inner = beside[:, place[drawn]] @ weights.T + left
            std = np.sqrt(np.maximum(inner.diagonal(), _JITTER) + noise)
            scores[:, block] = (latent[:, block] + noise**0.5 * noises[1][:, rows]) / std
            kept, spread = np.concatenate([kept, block])[-memory:], np.block([[spread, beside.T], [beside, inner]])
            spread, place[kept] = spread[-memory:, -memory:], np.arange(len(kept))
            tick(len(rows) * len(scores))
        return scores


def correlate_columns(values: Float[ndarray, "n d"], observed: Bool[ndarray, "n d"]) -> Float[ndarray, "d d"]:
    """Return the correlations of standardised columns where both are observed, shrunk by their number, and positive
    definite."""
    z = np.where(observed, np.clip(values, -4, 4), 0)
    both = observed.T.astype(float) @ observed
    square = (z**2).T @ observed
    correlation = z.T @ z / np.sqrt(np.maximum(square * square.T, 1e-12)) * both / (both + _SHRINKAGE)
    np.fill_diagonal(correlation, 1)
    values, vectors = np.linalg.eigh(correlation)
    correlation = (vectors * values.clip(1e-3)) @ vectors.T
    root = np.sqrt(correlation.diagonal())
    return correlation / np.outer(root, root)


def mix_columns(
    normal: Float[ndarray, "p s n d"], correlation: Float[ndarray, "d d"], observed: Bool[ndarray, "n d"]
) -> Float[ndarray, "p s n d"]:
    """Correlate independent normal scores of the columns of each row: the missing columns given the observed ones."""
    patterns, which = np.unique(observed, axis=0, return_inverse=True)
    mixed = normal.copy()
    for number, pattern in enumerate(patterns):
        missing = np.flatnonzero(~pattern)
        if len(missing) < 2:
            continue
        inner, seen = correlation[np.ix_(missing, missing)], np.flatnonzero(pattern)
        cross = correlation[np.ix_(missing, seen)]
        inner = inner - cross @ np.linalg.solve(correlation[np.ix_(seen, seen)], cross.T)
        root = np.sqrt(inner.diagonal())
        factor = np.linalg.cholesky(inner / np.outer(root, root) + 1e-9 * np.eye(len(missing)))
        rows = np.flatnonzero(which.ravel() == number)
        mixed[:, :, rows[:, None], missing] = normal[:, :, rows[:, None], missing] @ factor.T
    return mixed
