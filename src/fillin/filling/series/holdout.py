"""Observed values of series for hold-out scores: points at random, or blocks of neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.filling.holdout import MIN_OBSERVED, HoldoutData, choose_points
from fillin.filling.series.plan import Series
from fillin.filling.series.sheet import SeriesSheet
from fillin.models.sheet import Sheet
from fillin.runtime import Tick

if TYPE_CHECKING:
    from fillin.models import Process
    from fillin.predictive import GaussianMixture

_MAX_SERIES = 12
_MAX_POINTS = 2000  # of a series


@dataclass(frozen=True)
class SeriesHoldout(HoldoutData):
    """Observed values of one series, some of which are held out, and its column in a sheet."""

    series: Series
    y: Float[ndarray, "n"]
    sheet: SeriesSheet | None = None
    column: int = 0

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
        if isinstance(model, Sheet) and self.sheet is not None:
            return self._predict_from_sheet(self.sheet, held_out, model, tick), linear
        return rest.predictor(model)(series.x[held_out], tick), linear

    def _predict_from_sheet(
        self, sheet: SeriesSheet, held_out: Bool[ndarray, "n"], model: Sheet, tick: Tick
    ) -> "GaussianMixture":
        """Predict the held-out values from all others of the sheet, in the order of the series."""
        observed = np.flatnonzero(~np.isnan(sheet.y[:, self.column]))
        # the rows of a sheet are ordered by location; equal locations keep the order of the table
        rows = np.empty_like(observed)
        rows[np.argsort(self.series.x, kind="stable")] = observed
        hidden = np.zeros(len(sheet.x), dtype=bool)
        hidden[rows[held_out]] = True
        queried = np.zeros(sheet.y.shape, dtype=bool)
        queried[:, self.column] = hidden
        mixture = sheet.hidden(self.column, hidden).predict(model, queried, tick)[self.column]
        assert mixture is not None
        return mixture[np.argsort(np.argsort(rows[held_out]))]


def holdout_series(series: list[Series], sheets: Sequence[SeriesSheet] = ()) -> list[SeriesHoldout]:
    """Return the longest series that have enough observed values; of long ones a stretch in the middle."""
    columns = {name: (sheet, j) for sheet in sheets for j, name in enumerate(sheet.names)}
    longest = sorted((s for s in series if len(s.y) >= MIN_OBSERVED), key=lambda s: -len(s.y))
    stretches = []
    for s in longest[:_MAX_SERIES]:
        start = max(0, (len(s.x) - _MAX_POINTS) // 2)
        stretch = _select(s, np.argsort(s.x, kind="stable")[start : start + _MAX_POINTS])
        if (s.column, s.group) not in columns:
            stretches.append(SeriesHoldout(stretch, stretch.y))
            continue
        sheet, column = columns[s.column, s.group]
        observed = np.flatnonzero(~np.isnan(sheet.y[:, column]))
        part = observed[start : start + _MAX_POINTS]
        others = np.setdiff1d(np.arange(part[0], part[-1] + 1), np.setdiff1d(observed, part))
        stretches.append(SeriesHoldout(stretch, stretch.y, sheet.select(others), column))
    return stretches


def _select(series: Series, rows: ndarray) -> Series:
    error = None if series.error is None else series.error[rows]
    return replace(series, x=series.x[rows], y=series.y[rows], error=error)
