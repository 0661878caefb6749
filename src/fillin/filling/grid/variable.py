"""A variable with gaps, wherever it came from: numbers over named dimensions, each with its axis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy import ndarray

from fillin.errors import InputError, UnknownName, argument, option
from fillin.filling.grid.axes import Axis

_MANY = 3


@dataclass(frozen=True)
class Variable:
    """`values` is a NumPy array, or dask's where it is larger than memory; NaN is missing. `where` names the file."""

    name: str
    where: str
    dims: tuple[str, ...]
    axes: dict[str, Axis]
    values: Any

    @property
    def place(self) -> str:
        return f"{self.where}: variable '{self.name}'" if self.name else self.where

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def lazy(self) -> bool:
        return not isinstance(self.values, ndarray)

    def transposed(self, dims: Sequence[str]) -> "Variable":
        order = [self.dims.index(dim) for dim in dims]
        return replace(self, dims=tuple(dims), values=self.values.transpose(order))

    def check(self) -> None:
        kind = self.values.dtype.kind
        if kind not in "fiu":
            what = {"U": "text", "S": "text", "O": "objects", "M": "times", "m": "times", "b": "yes or no"}
            found = what.get(kind, str(self.values.dtype))
            raise InputError(
                f"{self.place} has {found}; only numbers can be filled: name another with " + option("var")
            )
        if not self.dims:
            raise InputError(
                f"{self.place} is a single number; a field needs at least one dimension: see " + option("var")
            )
        if not all(self.shape):
            raise InputError(f"{self.place} has no cells (its shape is {self.shape}); nothing is known")


def field_dims(variable: Variable, over: Sequence[str] | None) -> tuple[str, ...]:
    """Which dimensions a field spans: those that are named, or all that have distances if they are one or two, or those
    that are called latitude and longitude, y and x, or the last two."""
    if over is not None:
        for dim in over:
            if dim not in variable.dims:
                raise UnknownName(f"dimension of {variable.place}, in " + argument("over") + ",", dim, variable.dims)
            if not variable.axes[dim].ordered:
                raise InputError(
                    argument("over")
                    + f": the coordinate of '{dim}' has no numbers or times, so no distances; leave it out"
                )
        if not 1 <= len(over) <= _MANY or len(set(over)) < len(over):
            got = f": a field spans one, two or three dimensions, got {', '.join(over) or 'none'}"
            raise InputError(argument("over") + got)
        return tuple(dim for dim in variable.dims if dim in over)
    size = dict(zip(variable.dims, variable.shape, strict=True))
    found = [dim for dim in variable.dims if variable.axes[dim].ordered and size[dim] > 1]
    if not found:
        raise InputError(
            f"{variable.place} has no dimension with distances (numbers or times) and more than one cell to fill along"
        )
    if len(found) <= 2:
        return tuple(found)
    spatial = [dim for dim in found if variable.axes[dim].spatial]
    return tuple(spatial if len(spatial) == 2 else found[-2:])


def parse_list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def parse_chunks(text: str | None) -> dict[str, int] | None:
    """
    >>> parse_chunks("lat=200,lon=100")
    {'lat': 200, 'lon': 100}
    """
    if text is None:
        return None
    found = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not size.strip().isdigit() or int(size) < 1:
            raise InputError(f"--chunks: {part!r} is no size of a dimension; write lat=200,lon=200")
        found[name.strip()] = int(size)
    return found


def check_chunks(chunks: dict[str, int], variable: Variable) -> dict[str, int]:
    for dim, size in chunks.items():
        if dim not in variable.dims:
            raise UnknownName(f"dimension of {variable.place}, in " + argument("chunks") + ",", dim, variable.dims)
        if not isinstance(size, int) or size < 1:
            raise InputError(argument("chunks") + f": '{dim}' needs a number of cells of at least 1, got {size!r}")
    return chunks
