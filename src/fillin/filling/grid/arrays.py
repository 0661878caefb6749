"""NumPy arrays, in memory, alone in a file (.npy) or several (.npz): locations are indices."""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from fillin.errors import InputError, UnknownName, option
from fillin.filling.grid.axes import index_axis
from fillin.filling.grid.variable import GridSource, Mask, Variable, check_readable, trailing_mask
from fillin.filling.prediction import SUFFIXES, NumericPrediction, Outputs


class FilledArray(NamedTuple):
    """Arrays of the input's shape: values (observed or predicted), standard deviations (0 where observed), interval."""

    filled: ndarray
    std: ndarray
    low: ndarray
    high: ndarray


@dataclass(frozen=True)
class ArraySource(GridSource):
    """An array, written as .npz with the names filled, std, low and high."""

    variable: Variable | None
    suffix: str = ".npz"

    @classmethod
    def open(cls, data: Path | ndarray, var: str | None) -> "ArraySource":
        if not isinstance(data, Path):
            if var is not None:
                raise InputError("var names a variable of a dataset; an array has none")
            return cls(array_variable(data))
        arrays = _read_arrays(data)
        if var is None and len(arrays) > 1:
            incomplete = {n: a for n, a in arrays.items() if a.dtype.kind == "f" and a.ndim and np.isnan(a).any()}
            if not incomplete:
                return cls(None)
            if len(incomplete) > 1:
                raise InputError(f"{data.name}: {', '.join(incomplete)} have missing cells; name one with --var")
            arrays = incomplete
        name, values = _choose_array(arrays, var, data.name)
        return cls(array_variable(values, name, data.name))

    def read_mask(self, mask: Any) -> Mask:
        assert self.variable is not None
        if not isinstance(mask, str):
            return trailing_mask("", np.asarray(mask), self.variable)
        name, values = _choose_array(_read_arrays(Path(mask)), None, mask)
        return trailing_mask(f"{mask} '{name}'" if name else mask, values, self.variable)

    def result(self, prediction: NumericPrediction | None, level: float) -> FilledArray:
        assert prediction is not None
        return FilledArray(*(np.asarray(values) for values in prediction.interval))

    def write(self, outputs: Outputs, prediction: NumericPrediction, level: float) -> NumericPrediction:
        arrays = self.result(prediction, level)

        def save(path: Path) -> None:
            with path.open("wb") as file:  # savez would add a suffix
                np.savez_compressed(file, **dict(zip(SUFFIXES, arrays, strict=True)))

        outputs.write(outputs.data, save)
        return NumericPrediction(..., *arrays)


def array_variable(values: Any, name: str = "", source: str = "the array") -> Variable:
    """Return the variable of an array, with dimensions 0, 1, 2 …; masked cells of a masked array are missing."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), np.nan, values.data)
    dims = tuple(map(str, range(values.ndim)))
    axes = {dim: index_axis(dim, n) for dim, n in zip(dims, values.shape, strict=True)}
    return Variable(name, source, dims, axes, values)


def _read_arrays(path: Path) -> dict[str, ndarray]:
    """Return the arrays of a file by name; "" is that of the one in a .npy file."""
    check_readable(path)
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            return {"": content} if isinstance(content, ndarray) else {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        reason = "it holds Python objects, which are never loaded" if "pickle" in str(error) else str(error)
        raise InputError(f"{path.name} is not a readable NumPy file: {reason}; write it again with np.save") from error


def _choose_array(arrays: Mapping[str, ndarray], var: str | None, source: str) -> tuple[str, ndarray]:
    """Return the named array, or the only one."""
    if var is not None:
        if var not in arrays or not var:
            raise UnknownName(f"array of {source}", var, [name for name in arrays if name])
        return var, arrays[var]
    if len(arrays) != 1:
        raise InputError(
            "{source} has {n} arrays ({names}); name one with {var}",
            source=source, n=len(arrays), names=", ".join(arrays) or "none", var=option("var"),
        )  # fmt: skip
    return next(iter(arrays.items()))
