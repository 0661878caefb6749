"""Observed cells of fields for hold-out scores: cells at random, or boxes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from fillin.filling.grid.background import to_units
from fillin.filling.grid.layout import FieldSettings, GridLayout
from fillin.filling.holdout import MIN_OBSERVED, PATTERNS, HoldoutData, choose_points
from fillin.predictive import GaussianMixture
from fillin.runtime import Tick

if TYPE_CHECKING:
    from fillin.models import Process

_MAX_FIELDS = 4
_MAX_CELLS = 4000  # of a field


@dataclass(frozen=True)
class FieldHoldout(HoldoutData):
    """Observed cells of a field or of a window of it, as indices along each axis, and their values."""

    settings: FieldSettings
    cells: Int[ndarray, "n d"]
    y: Float[ndarray, "n"]
    slices: Float[ndarray, "t *cells"] | None = None  # the field or window in all slices, in the units of the model
    number: int = 0  # of the field among them
    start: Int[ndarray, "d"] | int = 0  # of the window
    periodic: Sequence[bool] = ()  # axes of the window

    def choose(self, pattern: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
        """Choose cells at random, or boxes of 3 to 12 % of the field."""
        if pattern == PATTERNS[0]:
            return choose_points(len(self.y), self.n_held_out, pattern, random)
        held_out = np.zeros(len(self.y), dtype=bool)
        low, high = self.cells.min(0), self.cells.max(0) + 1
        while held_out.sum() < self.n_held_out:
            side = random.uniform(0.03, 0.12) ** (1 / self.cells.shape[1])
            centre = self.cells[random.integers(len(self.y))]
            half = np.maximum(side * (high - low), 2) / 2
            box = (np.abs(self.cells - centre) < half).all(1) & ~held_out
            held_out[np.flatnonzero(box)[: self.n_held_out - int(held_out.sum())]] = True
        return held_out

    def predict(
        self, held_out: Bool[ndarray, "n"], model: "Process", tick: Tick
    ) -> tuple[GaussianMixture, Float[ndarray, "m"]]:
        settings, at = self.settings, self.cells[held_out]
        cells, y = self.cells[~held_out], self.y[~held_out]
        linear = interpolate(settings.locations(cells), y, settings.locations(at), settings)
        if settings.background is None or self.slices is None:
            return settings.predict(settings.context(model, cells, y), at, tick), linear
        slices, within = self.slices.copy(), tuple((self.cells - self.start).T)
        slices[(self.number, *(part[held_out] for part in within))] = np.nan
        mean, std = settings.background.learned_again(slices).fields(slices, self.periodic)
        expected = np.stack([mean[self.number][within], std[self.number][within]])
        context = settings.context(model, cells, y, expected[:, ~held_out])
        return settings.predict(context, at, tick, expected[:, held_out]), linear


def interpolate(
    x: Float[ndarray, "n d"], y: Float[ndarray, "n"], at: Float[ndarray, "m d"], settings: FieldSettings
) -> Float[ndarray, "m"]:
    """Interpolate linearly between neighbours (in triangles in two dimensions), beyond them by the nearest value."""
    periods = np.array([axis.period for axis in settings.axes])
    for i in np.flatnonzero(periods):
        shift = np.zeros(len(periods))
        shift[i] = periods[i]
        x, y = np.concatenate([x - shift, x, x + shift]), np.tile(y, 3)
    unit = np.array(settings.unit)
    if x.shape[1] == 1:
        order = np.argsort(x[:, 0])
        return np.interp(at[:, 0], x[order, 0], y[order])
    nearest = NearestNDInterpolator(x / unit, y)(at / unit)
    if (np.ptp(x, 0) == 0).any() or len(x) <= x.shape[1] + 1:
        return nearest
    linear = LinearNDInterpolator(x / unit, y)(at / unit)
    return np.where(np.isnan(linear), nearest, linear)


def holdout_fields(layout: GridLayout) -> list[FieldHoldout]:
    """Return a few evenly spaced fields with enough observed cells; of large fields a window in the middle."""
    lead = layout.cells_to_fill.shape
    shape = np.array(layout.variable.shape[len(lead) :])
    share = min(1.0, (_MAX_CELLS / np.prod(shape)) ** (1 / len(shape)))
    side = np.minimum(shape, np.ceil(shape * share).astype(int))
    start = (shape - side) // 2
    window = tuple(map(slice, start.tolist(), (start + side).tolist()))
    settings, fields, slices = layout.settings, [], None
    periodic = [wraps and size == n for wraps, size, n in zip(settings.periodic, side, shape, strict=True)]
    if settings.background is not None:
        values = layout.variable.compute(layout.variable.values[(..., *window)]).astype(float)
        slices = to_units(settings.warp, values).reshape(-1, *side)
    for k in np.unique(np.linspace(0, layout.cells_to_fill.size - 1, _MAX_FIELDS).round().astype(int)):
        index = tuple(map(int, np.unravel_index(k, lead)))
        values = layout.variable.compute(layout.variable.values[index + window]).astype(float)
        at = np.argwhere(np.isfinite(values))
        if len(at) >= MIN_OBSERVED:
            y = values[tuple(at.T)]
            fields.append(FieldHoldout(settings, at + start, y, slices, int(k), start, periodic))
    return fields
