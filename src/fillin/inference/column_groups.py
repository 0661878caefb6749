"""Groups of the columns of a wide sheet, of which each is predicted with those that predict it best."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.models.guides import find_available

MAX_COLUMNS = 16  # that are predicted together
_PRIOR_ROWS = 24.0  # that a correlation by distance is worth
_CANDIDATES, _SLOPE_ROWS, _SLOPE_RIDGE = 64, 2_000, 1e-3  # of the regressions that group columns; the ridge per row


def measure_slopes(
    z: Float[ndarray, "n d"], observed: Bool[ndarray, "n d"], strength: Float[ndarray, "d d"]
) -> Float[ndarray, "d d"]:
    """Return the sizes, at most 1, of the slopes of a ridge regression of each standardised column on those of the
    largest strength: a column may say little by itself, and much beside another."""
    slopes = np.zeros_like(strength)
    for j in range(z.shape[1]):
        others = np.argsort(-strength[j], kind="stable")[:_CANDIDATES]
        others = others[(strength[j, others] > 0) & (others != j)]
        rows = np.flatnonzero(observed[:, j])
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _SLOPE_ROWS)).round().astype(int)]
        if len(rows) and len(others):
            inner = z[np.ix_(rows, others)]
            gram = inner.T @ inner / len(rows) + _SLOPE_RIDGE * np.eye(len(others))
            slopes[j, others] = np.abs(np.linalg.solve(gram, inner.T @ z[rows, j] / len(rows)))
    return np.minimum(slopes, 1)


def group_columns(
    y: Float[ndarray, "n d"], correlation: Float[ndarray, "d d"] | None = None
) -> list[tuple[Int[ndarray, "c"], Int[ndarray, "t"]]]:
    """Return groups of columns that are predicted together, and those of each group that no earlier group predicts:
    all columns, or each with those that predict it best: by their correlation, or their slope beside others."""
    d = y.shape[1]
    if d <= MAX_COLUMNS:
        return [(np.arange(d), np.arange(d))]
    observed = ~np.isnan(y)
    count = np.maximum(observed.sum(0), 1)
    z = np.where(observed, y - np.where(observed, y, 0).sum(0) / count, 0)
    z /= np.maximum(np.sqrt((z**2).sum(0) / count), 1e-300)
    both = observed.T.astype(float) @ observed
    if correlation is None:
        strength = np.abs(z.T @ z) / np.maximum(both, 1) * np.sqrt(both / (both + MAX_COLUMNS))
        available = find_available(torch.from_numpy(observed)[None])[0].numpy()
        strength = np.where(available, np.maximum(strength, measure_slopes(z, observed, strength * available)), 0)
    else:  # that of few common rows is shrunk towards the one by distance
        strength = np.abs(z.T @ z + _PRIOR_ROWS * correlation) / (both + _PRIOR_ROWS) * observed.any(0)
    np.fill_diagonal(strength, np.inf)
    pending, groups = set(range(d)), []
    for column in np.argsort(observed.sum(0), kind="stable"):
        if column in pending:
            columns = np.sort(np.argsort(-strength[column], kind="stable")[:MAX_COLUMNS])
            targets = np.array(sorted(pending & set(columns[strength[column, columns] > 0.3]) | {column}))
            pending -= set(targets)
            groups.append((columns, targets))
    return groups
