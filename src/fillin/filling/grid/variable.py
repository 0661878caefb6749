"""A variable with missing cells, whatever its source: numbers over named dimensions, and the mask of cells to fill."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from fillin.errors import InputError, Message, UnknownName, argument, option, render
from fillin.filling.grid.axes import Axis
from fillin.filling.prediction import NumericPrediction, Outputs

_MAX_FIELD_DIMS = 3
_KINDS = {"U": "text", "S": "text", "O": "objects", "M": "times", "m": "times", "b": "booleans"}


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
    def lazy(self) -> bool:
        return not isinstance(self.values, ndarray)

    def transpose(self, dims: Sequence[str]) -> "Variable":
        order = [self.dims.index(dim) for dim in dims]
        return replace(self, dims=tuple(dims), values=self.values.transpose(order))

    def check(self) -> None:
        """Raise an error unless the variable has numbers in at least one cell of at least one dimension."""
        dtype = self.values.dtype
        if dtype.kind not in "fiu":
            raise InputError(
                "{label} has {content}; only numbers can be filled: name another with {var}",
                label=self.label, content=_KINDS.get(dtype.kind, dtype), var=option("var"),
            )  # fmt: skip
        if not self.dims:
            raise InputError(
                "{label} is a single number; a field needs at least one dimension: see {var}",
                label=self.label, var=option("var"),
            )  # fmt: skip
        if not all(self.shape):
            raise InputError(f"{self.label} has no cells (its shape is {self.shape}), so nothing is observed")


def choose_dims(variable: Variable, over: Sequence[str] | None) -> tuple[str, ...]:
    """Return the dimensions of a field: the given ones, or those with distances.

    Of more than two with distances, take latitude and longitude (or y and x) by name, else the last two.
    """
    if over is not None:
        for dim in over:
            if dim not in variable.dims:
                raise _unknown_dim(dim, variable, "over")
            if not variable.axes[dim].ordered:
                raise InputError(
                    "{over}: the coordinate of '{dim}' is not numeric, so it has no distances; leave it out",
                    over=argument("over"), dim=dim,
                )  # fmt: skip
        if not 1 <= len(over) <= _MAX_FIELD_DIMS or len(set(over)) < len(over):
            raise InputError(
                "{over}: a field spans one, two or three dimensions, got {dims}",
                over=argument("over"), dims=", ".join(over) or "none",
            )  # fmt: skip
        return tuple(dim for dim in variable.dims if dim in over)
    size = dict(zip(variable.dims, variable.shape, strict=True))
    ordered = [dim for dim in variable.dims if variable.axes[dim].ordered and size[dim] > 1]
    if not ordered:
        raise InputError(
            f"{variable.label} has no dimension with distances (numbers or times) and more than one cell to fill along"
        )
    if len(ordered) <= 2:
        return tuple(ordered)
    spatial = [dim for dim in ordered if variable.axes[dim].spatial]
    return tuple(spatial if len(spatial) == 2 else ordered[-2:])


def _unknown_dim(dim: str, variable: Variable, name: str) -> UnknownName:
    what = "dimension of {variable}, in {argument},"
    return UnknownName(what, dim, variable.dims, variable=variable.label, argument=argument(name))


def check_chunks(chunks: dict[str, int], variable: Variable) -> dict[str, int]:
    for dim, size in chunks.items():
        if dim not in variable.dims:
            raise _unknown_dim(dim, variable, "chunks")
        if not isinstance(size, int) or size < 1:
            raise InputError(
                "{chunks}: '{dim}' needs a number of cells of at least 1, got {size!r}",
                chunks=argument("chunks"), dim=dim, size=size,
            )  # fmt: skip
    return chunks


@dataclass(frozen=True)
class Mask:
    """True (or any number but 0 and NaN) where a missing cell is to be filled, over some dimensions of the variable."""

    name: str
    dims: tuple[str, ...]
    values: ndarray

    @property
    def label(self) -> Message:
        return mask_label(self.name)

    def broadcast(self, variable: Variable) -> Bool[ndarray, "..."]:
        """Return the mask with all dimensions of the variable, those that it lacks having size 1."""
        values = np.asarray(self.values)
        if values.dtype.kind not in "biuf":
            raise InputError(
                "{mask} has {dtype}, not numbers; a mask is 1 where missing cells are filled",
                mask=self.label, dtype=values.dtype,
            )  # fmt: skip
        size = dict(zip(variable.dims, variable.shape, strict=True))
        for dim, n in zip(self.dims, values.shape, strict=True):
            if size.get(dim) != n:
                raise InputError(
                    "{mask} has {dim} ({n}), but {variable} has {sizes}; they must match",
                    mask=self.label, dim=dim, n=n, variable=variable.label,
                    sizes=", ".join(f"{name} ({length})" for name, length in size.items()),
                )  # fmt: skip
        order = [self.dims.index(dim) for dim in variable.dims if dim in self.dims]
        shape = [size[dim] if dim in self.dims else 1 for dim in variable.dims]
        fillable = (np.nan_to_num(values) != 0).transpose(order).reshape(shape)
        if not fillable.any():
            raise InputError(
                "{mask} is 0 everywhere, so nothing would be filled; set it to 1 where cells are to be filled",
                mask=self.label,
            )  # fmt: skip
        return fillable


def mask_label(name: str) -> Message:
    return render("{mask} {name}", mask=argument("mask"), name=name) if name else argument("mask")


def trailing_mask(name: str, values: ndarray, variable: Variable) -> Mask:
    """Return the mask of an array without dimension names: its dimensions are the last of the variable."""
    mask = Mask(name, variable.dims[max(0, len(variable.dims) - values.ndim) :], values)
    if values.ndim > len(variable.dims):
        raise InputError(
            "{mask} has {n} dimensions, {variable} has {k}; it must not have more",
            mask=mask.label, n=values.ndim, variable=variable.label, k=len(variable.dims),
        )  # fmt: skip
    return mask


class GridSource(ABC):
    """A file or an object that holds a variable with missing cells, and takes its prediction."""

    variable: Variable | None  # None where no variable has missing cells
    suffix: str  # of the output file
    notes: tuple[str, ...] = ()

    @abstractmethod
    def read_mask(self, mask: Any) -> Mask:
        """Return the mask given as an array, or by the name of a variable or file."""

    @abstractmethod
    def result(self, prediction: NumericPrediction | None, level: float) -> Any:
        """Return what `fillin.fill` returns for this object; without a prediction the object itself."""

    @abstractmethod
    def write(self, outputs: Outputs, prediction: NumericPrediction, level: float) -> NumericPrediction:
        """Write the output file; return the prediction as it can be read again, for the figure."""

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Close the file."""


def check_readable(path: Path, folder: bool = False) -> None:
    """Raise an error that says why a file or a folder cannot be read."""
    if not path.exists():
        raise InputError(f"there is no {'folder' if folder else 'file'} {path}; check its name and folder")
    if folder != path.is_dir():
        problem = "is a file, not a Zarr folder; check its name" if folder else "is a folder; name a file in it"
        raise InputError(f"{path} {problem}")
    try:
        if folder:
            os.listdir(path)
        else:
            with path.open("rb") as file:
                file.read(1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error
