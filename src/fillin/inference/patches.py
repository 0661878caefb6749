"""Patches: boxes around the observations, halved until few observations lie near each, that predict scattered queries.

Patches overlap: a query near the border of two is predicted by both, in shares that change smoothly, so that a map has
no seams. They depend on the observations alone: a prediction does not depend on which others are requested with it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.inference.context import MAX_QUERIES, Context
from fillin.predictive import GaussianMixture
from fillin.runtime import Tick

_OVERLAP = 0.5  # of half the side of a patch, on both sides of its border
_NEAR = 1.25  # radii of a patch: the model sees all observations within, unless they are at one location
_MIN_PER_PERIOD = 8  # patches along a period: each sees the observations on both sides of it
_MAX_HALVINGS = 64  # of a box; beyond it the observations near it are at one location


class Patch(NamedTuple):
    """The rows of the queries that a patch has a share in, its share in each (before those of a query are made to add
    up to one), and its middle."""

    rows: Int[ndarray, "m"]
    share: Float[ndarray, "m"]
    middle: Float[ndarray, "dx"]


def predict_in_patches(context: Context, x: Float[ndarray, "m dx"], tick: Tick = lambda done: None) -> GaussianMixture:
    """Predict observations at x, of one output: a mixture of batch [m], blended from those of all patches."""
    patches = list(split_into_patches(context, x))
    rows = np.concatenate([patch.rows for patch in patches])
    share = np.concatenate([patch.share for patch in patches])
    ends = np.cumsum([len(patch.rows) for patch in patches])
    groups = (
        (np.arange(start, min(start + MAX_QUERIES, end)), patch.middle)
        for patch, end in zip(patches, ends.tolist(), strict=True)
        for start in range(end - len(patch.rows), end, MAX_QUERIES)
    )
    n_predicted = n_ticked = 0

    def count(done: int) -> None:  # predictions, of which a query has one or more
        nonlocal n_predicted, n_ticked
        n_predicted += done
        n_done = n_predicted * len(x) // len(rows)
        tick(n_done - n_ticked)
        n_ticked = n_done

    mixture = context.predict(x[rows], tick=count, groups=groups)[:, 0]
    order, counts = np.argsort(rows, kind="stable"), np.bincount(rows, minlength=len(x))
    first, slots = np.cumsum(counts) - counts, np.arange(counts.max())
    # a query with fewer patches than others repeats the last one, with no share
    index = order[first[:, None] + np.minimum(slots, counts[:, None] - 1)]  # [m slots]
    share = np.where(slots < counts[:, None], share[index], 0)
    share /= share.sum(1, keepdims=True)
    return GaussianMixture.blend([mixture[column] for column in index.T], share.T)


def split_into_patches(context: Context, x: Float[ndarray, "m dx"]) -> Iterator[Patch]:
    """Yield the patches that have a share in any query.

    The box of all observations is halved along its longest side, in units of the context, until the model sees all
    observations near it at once. Queries outside the box belong to the patches on its border.
    """
    period = np.zeros(x.shape[1]) if context.period is None else context.period / context.unit
    observed = context.to_units(context.x)
    low, high = np.where(period > 0, 0, observed.min(0)), np.where(period > 0, period, observed.max(0))
    z = np.clip(context.to_units(x), low, high)
    pending = [((low + high) / 2, (high - low) / 2, np.arange(len(x)), 0)]
    while pending:
        middle, half, rows, halvings = pending.pop()
        share = _share(z[rows], middle, half, period)
        rows, share = rows[share > 0], share[share > 0]
        if not len(rows):
            continue
        wide = (period > 0) & (2 * half * _MIN_PER_PERIOD > period * (1 + 1e-9))
        if _sees_all_near(context, middle, half) or halvings == _MAX_HALVINGS:
            if not wide.any():
                yield Patch(rows, share, middle * context.unit)
                continue
            axis = int(np.argmax(np.where(wide, half, -1)))
        else:
            axis = int(np.argmax(half))
        step = np.where(np.arange(len(half)) == axis, half / 2, 0)
        pending += [(middle + side * step, half - step, rows, halvings + 1) for side in (1, -1)]


def _sees_all_near(context: Context, middle: ndarray, half: ndarray) -> bool:
    """Test whether the context of a patch holds all observations of the ball around it."""
    if context.tree is None:
        return True
    radius = _NEAR * float(np.linalg.norm(half))
    return bool(context.tree.query_ball_point(middle, radius, return_length=True) <= context.max_points)


def _share(z: Float[ndarray, "m d"], middle: ndarray, half: ndarray, period: ndarray) -> Float[ndarray, "m"]:
    """Return Π over the columns of 1 − 3u² + 2u³, where u rises from 0 to 1 across the overlap at either end."""
    distance = np.abs(z - middle)
    distance = np.where(period > 0, np.minimum(distance, period - distance), distance)
    overlap = np.where(half > 0, _OVERLAP * half, 1)
    u = np.clip((distance - half + overlap) / (2 * overlap), 0, 1)
    return (1 - u**2 * (3 - 2 * u)).prod(1)
