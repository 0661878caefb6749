"""Observed values of series for hold-out scores: points at random, or blocks of neighbours."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.filling.holdout import MIN_OBSERVED, HoldoutData, choose_points
from fillin.filling.series.plan import Series
from fillin.runtime import Tick

if TYPE_CHECKING:
    from fillin.models import Process
    from fillin.predictive import GaussianMixture

_MAX_SERIES = 12
_MAX_POINTS = 2000  # of a series


@dataclass(frozen=True)
class SeriesHoldout(HoldoutData):
    """Observed values of one series, some of which are held out."""

    series: Series
    y: Float[ndarray, "n"]

    def choose(self, pattern: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
        order = np.argsort(self.series.x, kind="stable")
        return choose_points(len(self.y), self.n_held_out, pattern, random)[np.argsort(order)]

    def predict(
        self, held_out: Bool[ndarray, "n"], model: "Process", tick: Tick
    ) -> "tuple[GaussianMixture, Float[ndarray, 'm']]":
        series = self.series
        rest = _select(series, ~held_out)
        order = np.argsort(rest.x, kind="stable")
        linear = np.interp(series.x[held_out], rest.x[order], rest.y[order], period=series.period or None)
        return rest.predictor(model)(series.x[held_out], tick), linear


def holdout_series(series: list[Series]) -> list[SeriesHoldout]:
    """Return the longest series that have enough observed values; of long ones a stretch in the middle."""
    longest = sorted((s for s in series if len(s.y) >= MIN_OBSERVED), key=lambda s: -len(s.y))
    stretches = []
    for s in longest[:_MAX_SERIES]:
        start = max(0, (len(s.x) - _MAX_POINTS) // 2)
        stretches.append(_select(s, np.argsort(s.x, kind="stable")[start : start + _MAX_POINTS]))
    return [SeriesHoldout(stretch, stretch.y) for stretch in stretches]


def _select(series: Series, rows: ndarray) -> Series:
    error = None if series.error is None else series.error[rows]
    return replace(series, x=series.x[rows], y=series.y[rows], error=error)
