"""Filling series: every blank and every new place of each column and group, in bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument
from fillin.filling.prediction import NumericPrediction
from fillin.filling.series.infer_roles import SeriesRoles
from fillin.filling.series.new_rows import NewRows
from fillin.tabular.table import TypedColumn, TypedTable

if TYPE_CHECKING:
    from fillin.models import Process
    from fillin.predictive import GaussianMixture
    from fillin.warp import Bounds

AT_ONCE = 32_768  # places whose mixtures are held at a time
Tick = Callable[[int], object]


@dataclass(frozen=True)
class Asked:
    """How to fill: the share of the band, the range of each column, the period of x in its own numbers (0: none)."""

    level: float = 0.95
    bounds: dict[str, "Bounds"] = field(default_factory=dict)
    period: float = 0.0

    def __post_init__(self):
        if not 0 < self.level < 1:
            message = "{level} is the probability of the prediction interval, between 0 and 1, got {value}"
            raise InputError(message, level=argument("level"), value=self.level)
        if self.period < 0:
            raise InputError("{period} must be more than 0, got {value}", period=argument("period"), value=self.period)


@dataclass(frozen=True, eq=False)
class Series:
    """One column of one group: where it is known, with what errors, and where it is to be filled."""

    column: str
    group: str
    x: Float[ndarray, "n"]
    y: Float[ndarray, "n"]
    error: Float[ndarray, "n"] | None
    at: Float[ndarray, "m"]
    rows: Int[ndarray, "m"]

    def ready(self, model: "Process", asked: Asked) -> Callable[[ndarray, Tick], "GaussianMixture"]:
        """Return the function that predicts at any locations: believe(at, tick)."""
        from fillin.inference.context import Context
        from fillin.warp import BoundsWarp

        bend = BoundsWarp.fit(self.y, asked.bounds.get(self.column, (None, None)))
        x, y = self.x[:, None], bend.forward(self.y)[:, None]
        error = None if self.error is None else (self.error * bend.slope(self.y))[:, None]
        period = asked.period
        if period:
            x = np.concatenate([x % period + shift for shift in (-period, 0, period)])  # one period away is here too
            y = np.tile(y, (3, 1))
            error = None if error is None else np.tile(error, (3, 1))
        known = Context(model, x, y, error)

        def believe(at: ndarray, tick: Tick = lambda done: None) -> "GaussianMixture":
            return known.predict((at % period if period else at)[:, None], tick=tick)[:, 0].transformed(bend)

        return believe

    def fill(self, model: "Process", asked: Asked, tick: Tick) -> NumericPrediction:
        order = np.argsort(self.at, kind="stable")  # neighbours are asked for together
        believe, half, parts = self.ready(model, asked), asked.level / 2, []
        for start in range(0, len(order), AT_ONCE):
            rows = order[start : start + AT_ONCE]
            belief = believe(self.at[rows], tick)
            quantiles = (belief.quantile(q) for q in (0.5 - half, 0.5 + half, 0.25, 0.75))
            parts.append(NumericPrediction(self.rows[rows], *belief.moments(), *quantiles))
        return NumericPrediction.concatenate(parts)


def series_of(roles: SeriesRoles, new: NewRows) -> list[Series]:
    """Each column and group that has something known and something to fill."""
    x, added = roles.coordinates(roles.x.values), roles.coordinates(new.x)
    found = []
    for column in roles.y:
        for number, group in enumerate(roles.groups):
            blank = column.missing[group.rows]
            known, missing = group.rows[~blank], group.rows[blank]
            extra = np.flatnonzero(new.group == number)
            if not len(known) or not len(missing) + len(extra):
                continue
            error = None if roles.y_err is None else np.nan_to_num(roles.y_err.values[known])
            at, rows = np.concatenate([x[missing], added[extra]]), np.concatenate([missing, roles.table.n_rows + extra])
            found.append(Series(column.name, group.name, x[known], column.values[known], error, at, rows))
    return found


def check_values(roles: SeriesRoles, asked: Asked) -> None:
    """Numbers that leave room to reckon in, and values within their bounds."""
    from fillin.predictive import MAX_MAGNITUDE

    for column in [*([] if roles.x.clock else [roles.x]), *roles.y, *([] if roles.y_err is None else [roles.y_err])]:
        large = np.abs(column.values) > MAX_MAGNITUDE
        if large.any():
            row = int(large.argmax())
            why = f"{column.values[row]:g} is beyond {MAX_MAGNITUDE:g}, which leaves no room to reckon in; correct it, "
            raise roles.table.error_at(row, column.name, why + "or give the column in other units")
    for column in roles.y:
        check_bounds(roles.table, column, asked.bounds.get(column.name, (None, None)))


def check_bounds(table: TypedTable, column: TypedColumn, bounds: "Bounds") -> None:
    """Refuse observed values outside the bounds."""
    low, high = bounds
    below = column.values < (-np.inf if low is None else low)
    outside = below | (column.values > (np.inf if high is None else high))
    if outside.any():
        row = int(outside.argmax())
        shown = f"{'' if low is None else f'{low:g}'}:{'' if high is None else f'{high:g}'}"
        message = "{value:g} lies outside {bounds} {shown}; correct it, or widen the bounds"
        fields = {"value": column.values[row], "bounds": argument("bounds"), "shown": shown}
        raise table.error_at(row, column.name, message, **fields)


def fill_all(
    series: list[Series], model: "Process", asked: Asked, tick: Tick = lambda done: None
) -> dict[str, NumericPrediction]:
    """Fill every column."""
    parts: dict[str, list[NumericPrediction]] = {}
    for one in series:
        parts.setdefault(one.column, []).append(one.fill(model, asked, tick))
    return {column: NumericPrediction.concatenate(own) for column, own in parts.items()}
