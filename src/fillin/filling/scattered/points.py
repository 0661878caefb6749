"""Observed points of one column and group, and their predictor at any location."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.filling.prediction import NumericPrediction
from fillin.runtime import Tick

if TYPE_CHECKING:
    from fillin.models import Process
    from fillin.predictive import GaussianMixture
    from fillin.warp import Bounds

CONTEXT_POINTS = {2: 128}  # that a location sees, by dimensions; more points dilute the near ones
MAX_CONTEXT_POINTS = 256
MAX_REPEATS = 4  # observations of one location
_MAX_QUERIES_HELD = 16_384  # locations whose mixtures are in memory at a time
Predictor = Callable[..., "GaussianMixture"]  # predict(at [m dx], tick)


@dataclass(frozen=True, eq=False)
class PointSet:
    """One column of one group: observed values `y` at points `x` with their standard errors, and locations `at` to
    fill. `rows` are the table rows of `at`. `period` is that of each coordinate (0: not periodic)."""

    column: str
    group: str
    x: Float[ndarray, "n dx"]
    y: Float[ndarray, "n"]
    error: Float[ndarray, "n"] | None
    at: Float[ndarray, "m dx"]
    rows: Int[ndarray, "m"]
    bounds: "Bounds | None" = None
    period: Float[ndarray, "dx"] | None = None

    @property
    def n_context(self) -> int:
        return CONTEXT_POINTS.get(self.x.shape[1], MAX_CONTEXT_POINTS)

    @cached_property
    def units(self) -> Float[ndarray, "dx"]:
        """Lengths along each coordinate over which values change equally."""
        from fillin.inference.anisotropy import fit_units

        ordered = self.ordered()
        return fit_units(ordered.x, ordered.y)

    def ordered(self) -> "PointSet":
        """Return the points in the order of their coordinates, so that the order of the rows changes nothing."""
        keys = [self.y, *self.x.T[::-1]] if self.error is None else [self.error, self.y, *self.x.T[::-1]]
        return self.select(np.lexsort(keys))

    def select(self, kept: Int[ndarray, "k"] | Bool[ndarray, "n"]) -> "PointSet":
        """Return the set with some of the observed points."""
        error = None if self.error is None else self.error[kept]
        return replace(self, x=self.x[kept], y=self.y[kept], error=error)

    def predictor(self, model: "Process") -> Predictor:
        """Return predict(at, tick), which predicts y at any locations from the observed values."""
        from fillin.inference.context import Context
        from fillin.inference.patches import predict_in_patches
        from fillin.warp import BoundsWarp

        points = _merge_repeats(self.ordered())
        y, error, warp = points.y, points.error, None
        if self.bounds is not None:
            warp = BoundsWarp.fit(y, self.bounds)
            y, error = warp.forward(y), None if error is None else error * warp.slope(points.y)
        context = Context(
            model, points.x, y[:, None], None if error is None else error[:, None], self.n_context, self.units,
            self.period,
        )  # fmt: skip

        def predict(at: Float[ndarray, "m dx"], tick: Tick = lambda done: None) -> "GaussianMixture":
            mixture = predict_in_patches(context, at, tick)
            return mixture if warp is None else mixture.transformed(warp)

        return predict

    def fill(self, predict: Predictor, level: float, tick: Tick) -> NumericPrediction:
        """Predict the values at `at`, with the interval of coverage `level`, in bounded memory."""
        parts = []
        for chunk in _neighbours(self.at / self.units, _MAX_QUERIES_HELD):
            mixture = predict(self.at[chunk], tick)
            quantiles = (mixture.quantile(q) for q in (0.5 - level / 2, 0.5 + level / 2, 0.25, 0.75))
            parts.append(NumericPrediction(self.rows[chunk], *mixture.moments(), *quantiles))
        return NumericPrediction.concatenate(parts)


def _merge_repeats(points: PointSet) -> PointSet:
    """Return ordered points with at most four observations of a location, of the same mean and standard deviation.

    Without it the context of a station that is observed a thousand times would be that station alone.
    """
    starts = np.flatnonzero(np.append(True, (np.diff(points.x, axis=0) != 0).any(1)))
    counts = np.diff(np.append(starts, len(points.x)))
    if len(points.x) <= points.n_context or counts.max() <= MAX_REPEATS:
        return points
    repeated = counts > MAX_REPEATS
    first, many = starts[repeated], counts[repeated]
    means = (np.add.reduceat(points.y, starts) / counts)[repeated]
    location = np.repeat(np.arange(len(starts)), counts)
    offset = points.y - (np.add.reduceat(points.y, starts) / counts)[location]
    stds = np.sqrt(np.add.reduceat(offset**2, starts)[repeated] / many)
    signs = np.where(np.arange(MAX_REPEATS) % 2, 1.0, -1.0)
    kept = np.flatnonzero(~repeated[location])
    merged = points.select(np.concatenate([kept, np.repeat(first, MAX_REPEATS)]))
    merged.y[len(kept) :] = (means[:, None] + stds[:, None] * signs).ravel()
    if merged.error is not None and points.error is not None:
        mean_error = np.add.reduceat(points.error, starts)[repeated] / many
        merged.error[len(kept) :] = np.repeat(mean_error, MAX_REPEATS)
    return merged


def _neighbours(z: Float[ndarray, "m dx"], most: int) -> Iterator[Int[ndarray, "k"]]:
    """Yield the rows of z in parts of at most `most`, each of neighbours."""
    pending = [np.arange(len(z))]
    while pending:
        rows = pending.pop()
        if len(rows) > most:
            order = np.argsort(z[rows, int(np.argmax(np.ptp(z[rows], 0)))], kind="stable")
            pending += [rows[order[len(rows) // 2 :]], rows[order[: len(rows) // 2]]]
        elif len(rows):
            yield rows
