"""A variable with missing cells, whatever its source: numbers over named axes, and the mask of the cells to fill."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.errors import InputError, Message, UnknownName, argument, option, render

_MAX_FIELD_DIMS = 3
_KINDS = {"U": "text", "S": "text", "O": "objects", "M": "times", "m": "times", "b": "booleans"}
_DAY = np.timedelta64(86_400_000_000, "us")
_LONGITUDE = {"lon", "longitude", "degrees_east"}
_HORIZONTAL = {"x", "y", "projection_x_coordinate", "projection_y_coordinate"}
_HORIZONTAL |= _LONGITUDE | {"lat", "latitude", "degrees_north"}


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
        """Median distance between neighbouring cells."""
        return float(np.median(np.abs(np.diff(self.x)))) if len(self.x) > 1 else 1.0

    @property
    def covers_circle(self) -> bool:
        """Test for evenly spaced longitudes over 360°."""
        steps = np.abs(np.diff(self.x))
        if not self.keywords & _LONGITUDE or len(steps) < 3 or np.ptp(steps) > 1e-2 * self.step:
            return False
        extents = steps.sum(), steps.sum() + self.step
        return any(abs(extent - 360) < 0.01 * self.step * len(self.x) for extent in extents)

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
    if values.dtype.kind in "Mm":
        x = (values - values[:1] if values.dtype.kind == "M" else values) / _DAY
    elif values.dtype.kind in "iuf":
        x = values.astype(float)
    elif values.dtype.kind == "O" and len(values) and hasattr(values[0], "calendar"):  # a calendar of cftime
        x = np.array([(value - values[0]).total_seconds() / 86_400 for value in values])
    else:
        return replace(index_axis(name, len(values)), labels=values, keywords=keywords, ordered=False)
    where = f"{source}: coordinate '{name}'"
    if not np.isfinite(x).all():
        index = int((~np.isfinite(x)).argmax())
        raise InputError(f"{where} is {values[index]} at index {index}; drop these cells or correct the coordinate")
    steps = np.diff(x)
    reversals = steps <= 0 if np.sign(steps).sum() >= 0 else steps >= 0
    if reversals.any():
        index = int(reversals.argmax())
        raise InputError(
            f"{where} is not strictly monotone: {values[index]} is followed by {values[index + 1]} at index "
            f"{index + 1}; sort it (ds.sortby('{name}')) and drop duplicates"
        )
    return Axis(name, x, values, keywords)


def set_periods(axes: list[Axis], periods: Mapping[str, float]) -> list[Axis]:
    """Return the axes with their periods: those given, and 360 for longitudes that cover the circle."""
    periods = {axis.name: 360.0 for axis in axes if axis.covers_circle} | dict(periods)
    extents = {axis.name: (axis.x[0], axis.x[-1]) for axis in axes}
    for name, period in periods.items():
        if name not in extents:
            raise UnknownName("dimension of the field, in {period},", name, extents, period=argument("period"))
        given = Message(f"--period {name}={period:g}", f"period={{{name!r}: {period:g}}}")
        if not 0 < period < float("inf"):
            raise InputError("{period}: a period must be more than 0, such as {name}=360", period=given, name=name)
        first, last = extents[name]
        if abs(last - first) > period * (1 + 1e-6):
            text = "{period}: the coordinate runs from {first:g} to {last:g}, more than one period"
            raise InputError(text, period=given, first=first, last=last)
    return [replace(axis, period=periods.get(axis.name, 0.0)) for axis in axes]


@dataclass(frozen=True)
class Variable:
    """Numbers over dimensions, NaN where missing: a NumPy array, or a dask array where larger than memory."""

    name: str
    source: str  # the name of the file
    dims: tuple[str, ...]
    axes: dict[str, Axis]
    values: Any

    @property
    def label(self) -> str:
        return f"{self.source}: variable '{self.name}'" if self.name else self.source

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.dims, self.shape, strict=True))

    @property
    def lazy(self) -> bool:
        return not isinstance(self.values, ndarray)

    def compute(self, values: Any) -> ndarray:
        """Return values derived from those of the variable as a NumPy array."""
        return np.asarray(compute(values, self.label))

    def check(self) -> None:
        """Raise an error unless the variable has numbers in at least one cell of at least one dimension."""
        dtype = self.values.dtype
        if dtype.kind not in "fiu":
            text = "{label} has {content}; only numbers can be filled: name another with {var}"
            raise InputError(text, label=self.label, content=_KINDS.get(dtype.kind, dtype), var=option("var"))
        if not self.dims:
            text = "{label} is a single number; a field needs at least one dimension: see {var}"
            raise InputError(text, label=self.label, var=option("var"))
        if not all(self.shape):
            raise InputError(f"{self.label} has no cells (its shape is {self.shape}), so nothing is observed")

    def check_dims(self, name: str, dims: Sequence[str]) -> None:
        """Raise an error unless the variable has the dimensions given for an option."""
        for dim in dims:
            if dim not in self.dims:
                what = "dimension of {variable}, in {argument},"
                raise UnknownName(what, dim, self.dims, variable=self.label, argument=argument(name))


def choose_dims(variable: Variable, over: Sequence[str] | None) -> tuple[str, ...]:
    """Return the dimensions of a field: the given ones, or those with distances.

    Of more than two with distances, take latitude and longitude (or y and x) by name, else the last two.
    """
    if over is None:
        ordered = [dim for dim, size in variable.sizes.items() if variable.axes[dim].ordered and size > 1]
        if not ordered:
            raise InputError(
                f"{variable.label} has no dimension with distances (numbers or times) and more than one cell to fill "
                "along"
            )
        horizontal = [dim for dim in ordered if variable.axes[dim].keywords & _HORIZONTAL]
        return tuple(horizontal if len(horizontal) == 2 else ordered[-2:])
    variable.check_dims("over", over)
    for dim in over:
        if not variable.axes[dim].ordered:
            text = "{over}: the coordinate of '{dim}' is not numeric, so it has no distances; leave it out"
            raise InputError(text, over=argument("over"), dim=dim)
    if not 1 <= len(over) <= _MAX_FIELD_DIMS or len(set(over)) < len(over):
        text = "{over}: a field spans one, two or three dimensions, got {dims}"
        raise InputError(text, over=argument("over"), dims=", ".join(over) or "none")
    return tuple(dim for dim in variable.dims if dim in over)


@dataclass(frozen=True)
class Mask:
    """True (or any number but 0 and NaN) where a missing cell is to be filled, over some dimensions of the variable."""

    name: str
    dims: tuple[str, ...]
    values: ndarray

    def broadcast(self, variable: Variable) -> Bool[ndarray, "..."]:
        """Return the mask with all dimensions of the variable, those that it lacks having size 1."""
        values, label, sizes = np.asarray(self.values), mask_label(self.name), variable.sizes
        if values.dtype.kind not in "biuf":
            text = "{mask} has {dtype}, not numbers; a mask is 1 where missing cells are filled"
            raise InputError(text, mask=label, dtype=values.dtype)
        for dim, n in zip(self.dims, values.shape, strict=True):
            if sizes.get(dim) != n:
                raise InputError(
                    "{mask} has {dim} ({n}), but {variable} has {sizes}; they must match",
                    mask=label, dim=dim, n=n, variable=variable.label,
                    sizes=", ".join(f"{name} ({length})" for name, length in sizes.items()),
                )  # fmt: skip
        order = [self.dims.index(dim) for dim in variable.dims if dim in self.dims]
        shape = [size if dim in self.dims else 1 for dim, size in sizes.items()]
        fillable = (np.nan_to_num(values) != 0).transpose(order).reshape(shape)
        if not fillable.any():
            text = "{mask} is 0 everywhere, so nothing would be filled; set it to 1 where cells are to be filled"
            raise InputError(text, mask=label)
        return fillable


def mask_label(name: str) -> Message:
    return render("{mask} {name}", mask=argument("mask"), name=name) if name else argument("mask")


def trailing_mask(name: str, values: ndarray, variable: Variable) -> Mask:
    """Return the mask of an array without dimension names: its dimensions are the last of the variable."""
    n, k = values.ndim, len(variable.dims)
    if n > k:
        text = "{mask} has {n} dimensions, {variable} has {k}; it must not have more"
        raise InputError(text, mask=mask_label(name), n=n, variable=variable.label, k=k)
    return Mask(name, variable.dims[k - n :], values)


def compute(values: Any, label: str | Message) -> Any:
    """Compute a lazy array, with an error that names it where its file is damaged."""
    if not hasattr(values, "compute"):
        return values
    try:
        return values.compute()
    except (OSError, RuntimeError, ValueError) as error:
        text = "{label} cannot be read: {error}; the file may be damaged"
        raise InputError(text, label=label, error=error) from error
