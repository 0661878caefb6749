"""The axes of a field: a number for every row of cells, what it is called, and whether it goes round."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError, UnknownName, Words, argument

_DAY = np.timedelta64(86_400_000_000, "us")
_EAST, _NORTH = ("lon", "longitude", "degrees_east"), ("lat", "latitude", "degrees_north")
_ACROSS = ("x", "projection_x_coordinate", *_EAST), ("y", "projection_y_coordinate", *_NORTH)


@dataclass(frozen=True)
class Axis:
    """`x` only rises or only falls (times in days since the first); `shown` is the same as people read it.

    `words` are what its name, standard name, units and axis say; `length` is that of a turn where it goes round.
    """

    name: str
    x: Float[ndarray, "n"]
    shown: ndarray
    words: frozenset[str] = frozenset()
    length: float = 0.0
    ordered: bool = True  # False: words, or nothing that has a distance

    @property
    def step(self) -> float:
        """From one row of cells to the next, as it is mostly."""
        return float(np.median(np.abs(np.diff(self.x)))) if len(self.x) > 1 else 1.0

    @property
    def spatial(self) -> bool:
        return any(self.words & set(names) for names in _ACROSS)

    def told(self, row: int) -> str:
        """Where a row is: "lat=52.5"."""
        value = self.shown[row]
        if isinstance(value, np.datetime64):
            value = np.datetime_as_string(value, "s").removesuffix("T00:00:00").replace("T", " ")
        return f"{self.name}={value:g}" if isinstance(value, np.floating) else f"{self.name}={value}"


def counted(name: str, n: int) -> Axis:
    """Rows that have no coordinate: their numbers."""
    return Axis(name, np.arange(n, dtype=float), np.arange(n), frozenset({name.lower()}))


def axis_of(name: str, values: ndarray, attributes: Mapping[str, Any], where: str) -> Axis:
    """The axis of coordinate `values` [n]; it must have an order, unless it is made of words."""
    words = frozenset(str(attributes.get(key, "")).lower() for key in ("standard_name", "units", "axis")) | {
        name.lower()
    }
    place = f"{where}: coordinate '{name}'"
    if values.dtype.kind == "M":
        if np.isnat(values).any():
            raise InputError(f"{place} has no time at {int(np.isnat(values).argmax())}; drop these rows, or correct it")
        x = (values - values[0]) / _DAY
    elif values.dtype.kind == "m":
        x = values / _DAY
    elif values.dtype.kind in "iuf":
        x = values.astype(float)
    elif values.dtype.kind == "O" and len(values) and hasattr(values[0], "calendar"):  # a calendar of cftime
        x = np.array([(value - values[0]).total_seconds() / 86_400 for value in values])
    else:
        return replace(counted(name, len(values)), shown=values, words=words, ordered=False)
    if not np.isfinite(x).all():
        row = int((~np.isfinite(x)).argmax())
        raise InputError(f"{place} has {values[row]} at {row}: no place; drop these rows, or correct it")
    rises = np.diff(x)
    if len(x) > 1 and not ((rises > 0).all() or (rises < 0).all()):
        breaks = (rises <= 0) if np.sign(rises).sum() >= 0 else (rises >= 0)
        row = int(breaks.argmax())
        raise InputError(
            f"{place} neither only rises nor only falls: {values[row]}, then {values[row + 1]} at {row + 1}; "
            f"sort it (ds.sortby('{name}')) and drop what comes twice"
        )
    return Axis(name, x, values, words)


def with_periods(axes: list[Axis], periods: Mapping[str, float]) -> tuple[list[Axis], list[str]]:
    """Axes that go round, as told or (longitudes that cover 360°) as seen, and notes about the latter."""
    names = [axis.name for axis in axes]
    for name, period in periods.items():
        if name not in names:
            raise UnknownName("dimension of the field, in " + argument("period") + ",", name, names)
        if not 0 < period < float("inf"):
            raise InputError(_turn(name, period) + f": the length of a turn must be more than 0, such as {name}=360")
    found, notes = [], []
    for axis in axes:
        length = periods.get(axis.name, 0.0)
        if not length and _whole_turn(axis):
            length = 360.0
            notes.append(f"{axis.name} covers 360 degrees: it goes round")
        span = float(np.ptp(axis.x)) if len(axis.x) else 0.0
        if length and span > length * (1 + 1e-6):
            raise InputError(_turn(axis.name, length) + f": it goes from {axis.x[0]:g} to {axis.x[-1]:g}, over a turn")
        found.append(replace(axis, length=length))
    return found, notes


def _turn(name: str, length: float) -> Words:
    """As it was said."""
    return Words(f"--period {name}={length:g}", f"period={{{name!r}: {length:g}}}")


def _whole_turn(axis: Axis) -> bool:
    steps = np.abs(np.diff(axis.x))
    if not axis.words & set(_EAST) or len(steps) < 3 or np.ptp(steps) > 1e-2 * axis.step:
        return False
    return any(abs(turn - 360) < 0.01 * axis.step * len(axis.x) for turn in (steps.sum(), steps.sum() + axis.step))


def parse_periods(texts: list[str]) -> dict[str, float]:
    """
    >>> parse_periods(["lon=360"])
    {'lon': 360.0}
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"--period: {text!r} does not say which dimension goes round; write lon=360")
    return found
