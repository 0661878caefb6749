"""Axes of a field: a number for every index, its label, and the period of a periodic axis."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError, Message, UnknownName, argument

_DAY = np.timedelta64(86_400_000_000, "us")
_LONGITUDE, _LATITUDE = ("lon", "longitude", "degrees_east"), ("lat", "latitude", "degrees_north")
_HORIZONTAL = ("x", "projection_x_coordinate", *_LONGITUDE), ("y", "projection_y_coordinate", *_LATITUDE)


@dataclass(frozen=True)
class Axis:
    """One dimension: strictly monotone coordinates `x` (times in days since the first) and the same as `labels`.

    `keywords` holds the name, standard name, units and CF axis. `period` is 0 where the axis is not periodic. An axis
    that is not `ordered` has text for coordinates, and no distances.
    """

    name: str
    x: Float[ndarray, "n"]
    labels: ndarray
    keywords: frozenset[str] = frozenset()
    period: float = 0.0
    ordered: bool = True

    @property
    def step(self) -> float:
        """Return the median distance between neighbouring cells."""
        return float(np.median(np.abs(np.diff(self.x)))) if len(self.x) > 1 else 1.0

    @property
    def spatial(self) -> bool:
        return any(self.keywords & set(names) for names in _HORIZONTAL)

    def label(self, index: int) -> str:
        """Return the coordinate of an index as text: "lat=52.5"."""
        value = self.labels[index]
        if isinstance(value, np.datetime64):
            value = np.datetime_as_string(value, "s").removesuffix("T00:00:00").replace("T", " ")
        return f"{self.name}={value:g}" if isinstance(value, np.floating) else f"{self.name}={value}"


def index_axis(name: str, n: int) -> Axis:
    """Return the axis of a dimension without coordinates: its indices."""
    return Axis(name, np.arange(n, dtype=float), np.arange(n), frozenset({name.lower()}))


def coordinate_axis(name: str, values: ndarray, attributes: Mapping[str, Any], source: str) -> Axis:
    """Return the axis of coordinates `values` [n], which must be strictly monotone unless they are text."""
    keywords = frozenset(str(attributes.get(key, "")).lower() for key in ("standard_name", "units", "axis"))
    keywords |= {name.lower()}
    where = f"{source}: coordinate '{name}'"
    if values.dtype.kind == "M":
        if np.isnat(values).any():
            index = int(np.isnat(values).argmax())
            raise InputError(f"{where} has no time at index {index}; drop these cells or correct the coordinate")
        x = (values - values[0]) / _DAY
    elif values.dtype.kind == "m":
        x = values / _DAY
    elif values.dtype.kind in "iuf":
        x = values.astype(float)
    elif values.dtype.kind == "O" and len(values) and hasattr(values[0], "calendar"):  # a calendar of cftime
        x = np.array([(value - values[0]).total_seconds() / 86_400 for value in values])
    else:
        return replace(index_axis(name, len(values)), labels=values, keywords=keywords, ordered=False)
    if not np.isfinite(x).all():
        index = int((~np.isfinite(x)).argmax())
        raise InputError(f"{where} is {values[index]} at index {index}; drop these cells or correct the coordinate")
    steps = np.diff(x)
    if len(x) > 1 and not ((steps > 0).all() or (steps < 0).all()):
        reversals = (steps <= 0) if np.sign(steps).sum() >= 0 else (steps >= 0)
        index = int(reversals.argmax())
        raise InputError(
            f"{where} is not strictly monotone: {values[index]} is followed by {values[index + 1]} at index "
            f"{index + 1}; sort it (ds.sortby('{name}')) and drop duplicates"
        )
    return Axis(name, x, values, keywords)


def set_periods(axes: list[Axis], periods: Mapping[str, float]) -> tuple[list[Axis], list[str]]:
    """Return the axes with their periods, given or (longitudes that cover 360°) detected, and notes on the latter."""
    names = [axis.name for axis in axes]
    for name, period in periods.items():
        if name not in names:
            raise UnknownName("dimension of the field, in {period},", name, names, period=argument("period"))
        if not 0 < period < float("inf"):
            raise InputError(
                "{period}: a period must be more than 0, such as {name}=360",
                period=_period_option(name, period), name=name,
            )  # fmt: skip
    periodic, notes = [], []
    for axis in axes:
        period = periods.get(axis.name, 0.0)
        if not period and _covers_circle(axis):
            period = 360.0
            notes.append(f"{axis.name} covers 360 degrees: treated as periodic")
        extent = float(np.ptp(axis.x)) if len(axis.x) else 0.0
        if period and extent > period * (1 + 1e-6):
            raise InputError(
                "{period}: the coordinate runs from {first:g} to {last:g}, more than one period",
                period=_period_option(axis.name, period), first=axis.x[0], last=axis.x[-1],
            )  # fmt: skip
        periodic.append(replace(axis, period=period))
    return periodic, notes


def _period_option(name: str, period: float) -> Message:
    return Message(f"--period {name}={period:g}", f"period={{{name!r}: {period:g}}}")


def _covers_circle(axis: Axis) -> bool:
    steps = np.abs(np.diff(axis.x))
    if not axis.keywords & set(_LONGITUDE) or len(steps) < 3 or np.ptp(steps) > 1e-2 * axis.step:
        return False
    return any(abs(extent - 360) < 0.01 * axis.step * len(axis.x) for extent in (steps.sum(), steps.sum() + axis.step))
