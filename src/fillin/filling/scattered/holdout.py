"""Observed points for hold-out scores: points at random, or regions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import KDTree, QhullError

from fillin.filling.holdout import MIN_OBSERVED, PATTERNS, HoldoutData, choose_points
from fillin.filling.scattered.points import PointSet
from fillin.runtime import Tick

if TYPE_CHECKING:
    from fillin.models import Process
    from fillin.predictive import GaussianMixture

_MAX_SETS = 6
_MAX_POINTS = 4000  # of a set: those around a random one
_MAX_LINEAR_DIMS = 4  # of linear interpolation, whose cost grows steeply with dimensions


@dataclass(frozen=True)
class PointHoldout(HoldoutData):
    """Observed points of one column and group, some of which are held out."""

    points: PointSet
    y: Float[ndarray, "n"]

    def choose(self, pattern: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
        """Choose points at random, or regions: the nearest 3 to 12 % of the points around one."""
        if pattern == PATTERNS[0]:
            return choose_points(len(self.y), self.n_held_out, pattern, random)
        z, held_out = self.points.x / self.points.units, np.zeros(len(self.y), dtype=bool)
        while held_out.sum() < self.n_held_out:
            count = min(max(1, round(len(z) * random.uniform(0.03, 0.12))), self.n_held_out - int(held_out.sum()))
            distance = ((z - z[random.integers(len(z))]) ** 2).sum(1)
            held_out[np.argsort(np.where(held_out, np.inf, distance), kind="stable")[:count]] = True
        return held_out

    def predict(
        self, held_out: Bool[ndarray, "n"], model: "Process", tick: Tick
    ) -> "tuple[GaussianMixture, Float[ndarray, 'm']]":
        rest, at = self.points.select(~held_out), self.points.x[held_out]
        return rest.predictor(model)(at, tick), _interpolate(rest, at)


def holdout_points(sets: list[PointSet]) -> list[PointHoldout]:
    """Return the largest sets that have enough observed values; of large ones a region."""
    largest = sorted((points for points in sets if len(points.y) >= MIN_OBSERVED), key=lambda p: -len(p.y))
    regions = []
    for points in largest[:_MAX_SETS]:
        ordered = points.ordered()
        if len(ordered.y) > _MAX_POINTS:
            z = ordered.x / points.units
            centre = z[np.random.default_rng(0).integers(len(z))]
            ordered = ordered.select(np.sort(np.asarray(KDTree(z).query(centre, _MAX_POINTS)[1])))
        regions.append(PointHoldout(ordered, ordered.y))
    return regions


def _interpolate(points: PointSet, at: Float[ndarray, "m dx"]) -> Float[ndarray, "m"]:
    """Interpolate linearly in the simplices of Delaunay's triangulation; beyond them take the nearest value."""
    x, y = points.x, points.y
    if points.period is not None:
        for column in np.flatnonzero(points.period):
            shift = np.where(np.arange(x.shape[1]) == column, points.period, 0)
            x, y = np.concatenate([x - shift, x, x + shift]), np.tile(y, 3)
    z, queries = x / points.units, at / points.units
    nearest = NearestNDInterpolator(z, y)(queries)
    if x.shape[1] > _MAX_LINEAR_DIMS:
        return nearest
    try:
        linear = LinearNDInterpolator(z, y)(queries)
    except QhullError:  # on a line or a plane, or too few
        return nearest
    return np.where(np.isnan(linear), nearest, linear)
