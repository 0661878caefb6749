"""Sample paths of sheets, coherent across rows and columns: a Gaussian copula of the predictions of the cells.

A draw of a cell is F⁻¹(Φ(z)), with F its predictive distribution, so that draws and predictions agree cell by cell. The
normal scores z are correlated

- along a column as the Gaussian process that guides it, given the observed cells. Blocks of rows are drawn one after
  another, each given the observed cells and the drawn rows around it;
- between the columns of a row as the columns are where they are observed, given those that are observed: as what the
  process of each column leaves, or, where most columns of a row are missing, as their values.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.models.processes import Kernels, correlate, distances
from fillin.runtime import Tick

_BLOCK = 96  # queries of a column that are drawn at once
_SPAN = 128  # observed cells between them, at the most
_OBSERVED, _DRAWN = 64, 48  # cells on each side, and before, that they are conditioned on
_KERNELS = 4  # of a column, which share the draws
_JITTER = 1e-6
_SHRINKAGE = 10.0  # rows, by which correlations of few rows are shrunk to 0


@dataclass(frozen=True)
class ColumnProcess:
    """Rows x in units of the kernels, observed ones and queried ones, and the kernels of a column."""

    x: Float[ndarray, "n dx"]
    observed: Int[ndarray, "k"]
    queried: Int[ndarray, "m"]
    kernels: Kernels  # of one column

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

    def _blocks(self) -> Iterator[slice]:
        """Yield queries that are drawn at once: up to 96, with few observed cells between the first and the last."""
        before, start = np.searchsorted(self.observed, self.queried), 0
        while start < len(self.queried):
            reach = int(np.searchsorted(before, before[start] + _SPAN, side="right"))
            stop = min(start + _BLOCK, reach)
            yield slice(start, stop)
            start = stop

    def _draw_by(self, theta: torch.Tensor, noises: Float[ndarray, "2 s n"], tick: Tick) -> Float[ndarray, "s m"]:
        noise = float(theta[0, 2]) ** 2 + _JITTER
        latent, scores = np.empty((noises.shape[1], len(self.queried))), np.empty((noises.shape[1], len(self.queried)))

        def covariance(a: ndarray, b: ndarray) -> ndarray:
            parts = (torch.from_numpy(self.x[rows])[None] for rows in (a, b))
            return correlate(theta, self.kernels.period, distances(*parts))[0].numpy()

        for block in self._blocks():
            rows, drawn = self.queried[block], np.arange(max(0, block.start - _DRAWN), block.start)
            low, high = np.searchsorted(self.observed, [rows[0], rows[-1]])
            seen = self.observed[max(0, low - _OBSERVED) : high + _OBSERVED]
            context = np.concatenate([seen, self.queried[drawn]])
            own = covariance(context, context)
            own[np.diag_indices(len(context))] += np.where(np.arange(len(context)) < len(seen), noise, _JITTER)
            cross, prior = covariance(rows, context), covariance(rows, rows)
            weights = np.linalg.solve(own, cross.T).T if len(context) else cross
            left = prior - weights @ cross.T
            left[np.diag_indices(len(rows))] += _JITTER
            factor = np.linalg.cholesky(left)
            mean = latent[:, drawn] @ weights[:, len(seen) :].T
            latent[:, block] = mean + noises[0][:, rows] @ factor.T
            known = own[: len(seen), : len(seen)]
            share = np.linalg.solve(known, cross[:, : len(seen)].T).T * cross[:, : len(seen)]
            std = np.sqrt(np.maximum(prior.diagonal() - share.sum(1), _JITTER) + noise)
            scores[:, block] = (latent[:, block] + noise**0.5 * noises[1][:, rows]) / std
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
