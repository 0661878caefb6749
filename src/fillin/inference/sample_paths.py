"""Many places together: whole functions, drawn piece by piece, and the covariance between places."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.spatial import cKDTree  # type: ignore[attr-defined]
from scipy.special import ndtri
from scipy.stats import rankdata
from torch import Tensor

from fillin.inference.context import Known, Tick, level_and_size
from fillin.sampling import sample

PIECE = 256  # places drawn in one chain
TOKENS = 1 << 14  # tokens held at once while drawing: functions are drawn as many at a time as have so many
DRAWS = 128  # functions that tell a covariance


@torch.inference_mode()
def draw(
    known: Known, x: Float[ndarray, "m dx"], n: int, seed: int, tick: Tick = lambda done: None
) -> Float[ndarray, "n m"]:
    """n coherent functions at x, as they would be observed, of a known set with one output.

    Up to 256 places are one chain, each drawn given those before it, in random order. Of more, 256 from everywhere come
    first; then one neighbourhood after another, given the known and the drawn points around it. `tick` counts values.
    """
    order = np.random.default_rng(seed)
    drawn, done = np.empty((n, len(x))), np.empty(0, dtype=int)
    (level,), (size,) = level_and_size(known.y)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for group in _groups(known, x, order):
            near, before = _around(known, x[group], x[done])
            places, given = np.append(known.x[near], x[done[before]], 0), (known.y[near, 0][None] - level) / size
            if len(before):  # then each function has a context of its own
                given = np.concatenate([given.repeat(n, 0), (drawn[:, done[before]] - level) / size], 1)
            error = None if known.error is None else np.append(known.error[near, 0] / size, np.zeros(len(before)))
            drawn[:, group] = level + size * _chain(known, places, given, error, x[group], n, tick)
            done = np.append(done, group)
    return drawn


def _groups(known: Known, x: ndarray, order: np.random.Generator) -> Iterator[Int[ndarray, "_"]]:
    """Rows of x in random order, in groups of at most 256 and, but for the first, of neighbours."""
    rest, leaf = order.permutation(len(x)), PIECE
    if len(known.x) > known.most:  # then so small that about an eighth of a context lies among a group
        leaf = int(np.clip(known.most * len(x) / (8 * len(known.x)), 1, PIECE))
    elif len(rest) > PIECE:
        yield rest[:PIECE]
        rest = rest[PIECE:]
    waiting = [cKDTree(x[rest] / known.unit, leafsize=leaf).tree]
    while waiting:
        node = waiting.pop()
        if node.lesser is None or node.greater is None:
            yield order.permutation(rest[node.indices])
        else:
            waiting += [node.greater, node.lesser]


def _around(known: Known, x: ndarray, drawn: ndarray) -> tuple[Int[ndarray, "_"], Int[ndarray, "_"]]:
    """Rows of the known and of the drawn places that are nearest to the middle of x, as many as a context has."""
    own = x / known.unit
    middle = (own.min(0) + own.max(0)) / 2
    rows = np.arange(len(known.x)) if known.tree is None else np.asarray(known.tree.query(middle, known.most)[1])
    far = np.square(np.append(known.x[rows], drawn, 0) / known.unit - middle).sum(1)
    best = np.sort(np.argsort(far, kind="stable")[: known.most])
    return rows[best[best < len(rows)]], best[best >= len(rows)] - len(rows)


def _chain(
    known: Known, xc: ndarray, yc: ndarray, error: ndarray | None, x: ndarray, n: int, tick: Tick
) -> Float[ndarray, "n m"]:
    """n functions at x, target after target: all from one context yc [1 nc], or each from its own [n nc]."""
    origin = xc.min(0)
    at_once, parts = max(1, TOKENS // (len(xc) + len(x))), []
    for start in range(0, n, at_once):
        count = min(at_once, n - start)
        rows = yc if len(yc) == 1 else yc[start : start + count]
        each = count if len(yc) == 1 else 1
        places, asked = (_tensor((p - origin) / known.unit).expand(len(rows), -1, -1) for p in (xc, x))
        values = _tensor(rows)[0, ..., None]
        if error is None:
            found = sample(known.model, places, values, asked, each)
        else:
            told = _tensor(error[:, None]).expand_as(values)
            found = known.model(places, values, asked, error_c=told).sample(torch.Size([each]))
        parts.append(found.flatten(0, 1)[..., 0].double().numpy())
        tick(count * len(x))
    return np.concatenate(parts)


def _tensor(values: ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))[None]


def covariance(
    known: Known, x: Float[ndarray, "m dx"], noise: bool, seed: int, tick: Tick = lambda done: None
) -> Float[ndarray, "m m"]:
    """Σ_ij = σ_i ρ_ij σ_j: exact marginal deviations, and the rank correlation ρ of 128 drawn functions.

    ρ is that of the draws' normal scores (so that a rare outlier does not decide it), shrunk as Ledoit & Wolf (2004)
    do, which makes Σ positive definite. Noise is a place's own: without it (noise=False) only the diagonal changes, and
    Σ is the nearest such matrix with no negative eigenvalue.
    """
    from sklearn.covariance import ledoit_wolf

    deviation = known.at(x).std[:, 0]
    clean = deviation if noise else known.at(x, noise=False).std[:, 0]
    if len(x) < 2:
        return np.diag(clean**2)
    draws = draw(known, x, DRAWS, seed, tick)
    scores = ndtri((rankdata(draws, axis=0) - 0.5) / DRAWS)
    found = _unit_diagonal(ledoit_wolf(scores, assume_centered=True)[0])
    if not noise:
        found = found * np.outer(deviation / clean, deviation / clean)
        np.fill_diagonal(found, 1)
        values, vectors = np.linalg.eigh(found)
        found = _unit_diagonal((vectors * values.clip(1e-6 * values[-1])) @ vectors.T)
    return found * np.outer(clean, clean)


def _unit_diagonal(matrix: Float[ndarray, "m m"]) -> Float[ndarray, "m m"]:
    root = np.sqrt(np.diag(matrix))
    return matrix / np.outer(root, root)
