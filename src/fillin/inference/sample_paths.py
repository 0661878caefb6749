"""Joint predictions at many locations: sample paths, drawn group by group, and covariances."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.spatial import cKDTree  # type: ignore[attr-defined]
from scipy.special import ndtri
from scipy.stats import rankdata

from fillin.inference.context import Context, Tick, level_and_size, to_batch
from fillin.inference.record import draw_paths
from fillin.models.sheet import Sheet
from fillin.sampling import sample

MAX_CHAIN = 256  # locations of one autoregressive chain
MAX_TOKENS = 1 << 14  # held at once; it bounds the number of paths that are drawn together
COVARIANCE_PATHS = 128  # sample paths that a correlation is estimated from


@torch.inference_mode()
def sample_paths(
    context: Context, x: Float[ndarray, "m dx"], n: int, seed: int, tick: Tick = lambda done: None
) -> Float[ndarray, "n m"]:
    """Draw n sample paths of observations at x, from a context with one output. Those of a sheet are the quantiles of
    its predictions at correlated normal scores (`record.draw_paths`); other models draw value after value.

    Up to 256 locations are one chain, each drawn given those before it, in random order. For more locations, 256 random
    ones are drawn first; then one neighbourhood after another, given the observed and drawn points around it. `tick`
    counts values.
    """
    if isinstance(context.model, Sheet):
        return draw_paths(context, x, n, seed, tick)
    random = np.random.default_rng(seed)
    paths, done = np.empty((n, len(x))), np.empty(0, dtype=int)
    (level,), (size,) = level_and_size(context.y)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for group in _groups(context, x, random):
            observed, drawn = _nearest(context, x[group], x[done])
            xc = np.append(context.x[observed], x[done[drawn]], 0)
            yc = (context.y[observed, 0][None] - level) / size
            if len(drawn):  # then each path has a context of its own
                yc = np.concatenate([yc.repeat(n, 0), (paths[:, done[drawn]] - level) / size], 1)
            error = None
            if context.error is not None:
                error = np.append(context.error[observed, 0] / size, np.zeros(len(drawn)))
            paths[:, group] = level + size * _chain(context, xc, yc, error, x[group], n, tick)
            done = np.append(done, group)
    return paths


def _groups(context: Context, x: ndarray, random: np.random.Generator) -> Iterator[Int[ndarray, "_"]]:
    """Rows of x in random order, in groups of at most 256; all but the first are neighbourhoods."""
    rest, leaf_size = random.permutation(len(x)), MAX_CHAIN
    if len(context.x) > context.max_points:  # then about an eighth of a context lies among a group
        leaf_size = int(np.clip(context.max_points * len(x) / (8 * len(context.x)), 1, MAX_CHAIN))
    elif len(rest) > MAX_CHAIN:
        yield rest[:MAX_CHAIN]
        rest = rest[MAX_CHAIN:]
    pending = [cKDTree(x[rest] / context.unit, leafsize=leaf_size).tree]
    while pending:
        node = pending.pop()
        if node.lesser is None or node.greater is None:
            yield random.permutation(rest[node.indices])
        else:
            pending += [node.greater, node.lesser]


def _nearest(context: Context, x: ndarray, drawn: ndarray) -> tuple[Int[ndarray, "_"], Int[ndarray, "_"]]:
    """Rows of the observed and of the drawn points nearest to the middle of x, as many as a context has."""
    scaled = x / context.unit
    middle = (scaled.min(0) + scaled.max(0)) / 2
    rows = context.nearest(middle * context.unit)
    distance = np.square(np.append(context.x[rows], drawn, 0) / context.unit - middle).sum(1)
    kept = np.sort(np.argsort(distance, kind="stable")[: context.max_points])
    return rows[kept[kept < len(rows)]], kept[kept >= len(rows)] - len(rows)


def _chain(
    context: Context, xc: ndarray, yc: ndarray, error: ndarray | None, x: ndarray, n: int, tick: Tick
) -> Float[ndarray, "n m"]:
    """n paths at x, one target after another: all from one context yc [1 nc], or each from its own [n nc]."""
    origin = xc.min(0)
    at_once, parts = max(1, MAX_TOKENS // (len(xc) + len(x))), []
    for start in range(0, n, at_once):
        count = min(at_once, n - start)
        rows = yc if len(yc) == 1 else yc[start : start + count]
        per_context = count if len(yc) == 1 else 1
        inputs, queries = (to_batch((p - origin) / context.unit).expand(len(rows), -1, -1) for p in (xc, x))
        values = to_batch(rows)[0, ..., None]
        if error is None:
            drawn = sample(context.model, inputs, values, queries, per_context)
        else:
            errors = to_batch(error[:, None]).expand_as(values)
            drawn = context.model(inputs, values, queries, error_c=errors).sample(torch.Size([per_context]))
        parts.append(drawn.flatten(0, 1)[..., 0].double().numpy())
        tick(count * len(x))
    return np.concatenate(parts)


def covariance(
    context: Context, x: Float[ndarray, "m dx"], noise: bool, seed: int, tick: Tick = lambda done: None
) -> Float[ndarray, "m m"]:
    """Σ_ij = σ_i ρ_ij σ_j: exact marginal standard deviations, and the rank correlation ρ of 128 sample paths.

    ρ is that of the paths' normal scores (so that a rare outlier does not dominate), shrunk as in Ledoit & Wolf (2004),
    which makes Σ positive definite. Noise is independent: without it (noise=False) only the diagonal changes, and Σ is
    the nearest such matrix without negative eigenvalues.
    """
    from sklearn.covariance import ledoit_wolf

    std = context.predict(x).std[:, 0]
    latent_std = std if noise else context.predict(x, noise=False).std[:, 0]
    if len(x) < 2:
        return np.diag(latent_std**2)
    paths = sample_paths(context, x, COVARIANCE_PATHS, seed, tick)
    scores = ndtri((rankdata(paths, axis=0) - 0.5) / COVARIANCE_PATHS)
    correlation = _unit_diagonal(ledoit_wolf(scores, assume_centered=True)[0])
    if not noise:
        correlation = correlation * np.outer(std / latent_std, std / latent_std)
        np.fill_diagonal(correlation, 1)
        values, vectors = np.linalg.eigh(correlation)
        correlation = _unit_diagonal((vectors * values.clip(1e-6 * values[-1])) @ vectors.T)
    return correlation * np.outer(latent_std, latent_std)


def _unit_diagonal(matrix: Float[ndarray, "m m"]) -> Float[ndarray, "m m"]:
    root = np.sqrt(np.diag(matrix))
    return matrix / np.outer(root, root)
