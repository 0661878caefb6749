"""Arrays of NumPy, alone (.npy) or several in a file (.npz): places are the numbers of rows and columns."""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from fillin.errors import InputError, UnknownName, option
from fillin.filling.grid.axes import counted
from fillin.filling.grid.mask import Mask, unnamed
from fillin.filling.grid.paths import check_readable
from fillin.filling.grid.plan import FieldPlan
from fillin.filling.grid.variable import Variable
from fillin.filling.prediction import SUFFIXES
from fillin.filling.write import put


class FilledArray(NamedTuple):
    """Arrays of the shape that came: values (known or filled), deviations (0 where known), and the band."""

    filled: ndarray
    std: ndarray
    low: ndarray
    high: ndarray


@dataclass(frozen=True)
class ArrayFile:
    """An array that was read; it is written as .npz with the names filled, std, low and high."""

    variable: Variable | None
    ending: str = ".npz"
    notes: tuple[str, ...] = ()

    def mask(self, text: str) -> Mask:
        assert self.variable is not None
        name, values = choose_array(read_arrays(Path(text)), None, text)
        return unnamed(f"{text} '{name}'" if name else text, values, self.variable)

    def write(self, path: Path, plan: FieldPlan, found: Any, force: bool) -> Any:
        parts = np.asarray(found)

        def save(beside: Path) -> None:
            with beside.open("wb") as file:  # savez would add an ending
                np.savez_compressed(file, **dict(zip(SUFFIXES, parts, strict=True)))

        put(path, save, force)
        return parts

    def close(self) -> None:
        pass


def read_arrays(path: Path) -> dict[str, ndarray]:
    """By name; "" for the one of a .npy file."""
    check_readable(path)
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return {"": found} if isinstance(found, ndarray) else {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        why = "it holds Python objects, which are never loaded" if "pickle" in str(error) else str(error)
        raise InputError(f"{path.name} is not a readable file of NumPy: {why}; write it again with np.save") from error


def choose_array(arrays: Mapping[str, ndarray], var: str | None, where: str) -> tuple[str, ndarray]:
    """The one that is named, or the only one."""
    if var is not None:
        if var not in arrays or not var:
            raise UnknownName(f"array of {where}", var, [name for name in arrays if name])
        return var, arrays[var]
    if len(arrays) != 1:
        names = ", ".join(arrays) or "none"
        raise InputError(f"{where} has {len(arrays)} arrays ({names}); name one with " + option("var"))
    return next(iter(arrays.items()))


def open_arrays(path: Path, var: str | None) -> ArrayFile:
    arrays = read_arrays(path)
    if var is None and len(arrays) > 1:
        gaps = {n: a for n, a in arrays.items() if a.dtype.kind == "f" and a.ndim and np.isnan(a).any()}
        if not gaps:
            return ArrayFile(None)
        if len(gaps) > 1:
            raise InputError(f"{path.name}: {', '.join(gaps)} have gaps; name one with --var")
        arrays = gaps
    name, values = choose_array(arrays, var, path.name)
    return ArrayFile(array_variable(values, name, path.name))


def array_variable(values: Any, name: str = "", where: str = "the array") -> Variable:
    """Dimensions are called 0, 1, 2 …; what a masked array hides is missing."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), np.nan, values.data)
    dims = tuple(map(str, range(values.ndim)))
    axes = {dim: counted(dim, n) for dim, n in zip(dims, values.shape, strict=True)}
    return Variable(name, where, dims, axes, values)
