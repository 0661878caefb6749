"""Sources of grids: NumPy arrays and files of them, xarray datasets, NetCDF files and Zarr folders."""

import json
import math
import os
import warnings
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from fillin.errors import FillinError, InputError, UnknownName, option
from fillin.filling.grid.variable import Mask, Variable, compute, coordinate_axis, index_axis, mask_label, trailing_mask
from fillin.filling.prediction import SUFFIXES, NumericPrediction, Outputs
from fillin.runtime import require

_MAX_CELLS_IN_MEMORY = 64_000_000  # of a variable
_ZARR = ".zarr"
_KEPT_ENCODING = ("zlib", "complevel", "shuffle", "fletcher32", "chunksizes", "compressors", "compressor")
_DROPPED_ATTRIBUTES = ("valid_min", "valid_max", "valid_range")
_FORMATS = {"NETCDF3_64BIT_OFFSET": "NETCDF3_64BIT", "NETCDF3_64BIT_DATA": "NETCDF4"}  # as xarray calls them
_LONG_NAMES = ("filled", "standard deviation", "lower bound of {}", "upper bound of {}")


class GridSource(ABC):
    """A file or an object that holds a variable with missing cells, and takes its prediction."""

    variable: Variable | None  # None where no variable has missing cells
    suffix: str  # of the output file
    notes: tuple[str, ...] = ()

    @classmethod
    @abstractmethod
    def open(cls, data: Any, var: str | None, chunks: dict[str, int] | None) -> "GridSource":
        """Read or open a file (a Path) or an object, with its variable `var`."""

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


class FilledArray(NamedTuple):
    """Arrays of the input's shape: values (observed or predicted), standard deviations (0 where observed), interval."""

    filled: ndarray
    std: ndarray
    low: ndarray
    high: ndarray


@dataclass(frozen=True)
class ArraySource(GridSource):
    """An array with dimensions 0, 1, 2 …, written as .npz with the names filled, std, low and high."""

    variable: Variable | None
    suffix: str = ".npz"

    @classmethod
    def open(cls, data: Path | ndarray, var: str | None, chunks: dict[str, int] | None) -> "ArraySource":
        name, source = "", "the array"
        if isinstance(data, Path):
            arrays, source = _read_arrays(data), data.name
            if var is None and len(arrays) > 1:
                arrays = {n: a for n, a in arrays.items() if a.dtype.kind == "f" and a.ndim and np.isnan(a).any()}
                if not arrays:
                    return cls(None)
            name, values = _choose_array(arrays, var, source, "arrays with missing cells")
        elif var is not None:
            raise InputError("var names a variable of a dataset; an array has none")
        else:
            masked = isinstance(data, np.ma.MaskedArray)
            values = np.where(np.ma.getmaskarray(data), np.nan, data.data) if masked else data
        axes = {str(dim): index_axis(str(dim), n) for dim, n in enumerate(values.shape)}
        return cls(Variable(name, source, tuple(axes), axes, values))

    def read_mask(self, mask: Any) -> Mask:
        assert self.variable is not None
        if not isinstance(mask, str):
            return trailing_mask("", np.asarray(mask), self.variable)
        name, values = _choose_array(_read_arrays(Path(mask)), None, mask, "arrays")
        return trailing_mask(f"{mask} '{name}'" if name else mask, values, self.variable)

    def result(self, prediction: NumericPrediction | None, level: float) -> FilledArray:
        assert prediction is not None
        return FilledArray(*(np.asarray(values) for values in prediction.interval))

    def write(self, outputs: Outputs, prediction: NumericPrediction, level: float) -> NumericPrediction:
        arrays = self.result(prediction, level)

        def save(path: Path) -> None:
            with path.open("wb") as file:  # savez would add a suffix
                np.savez_compressed(file, **arrays._asdict())

        outputs.write(outputs.data, save)
        return NumericPrediction(..., *arrays)


def _read_arrays(path: Path) -> dict[str, ndarray]:
    """Return the arrays of a file by name; "" is that of the one in a .npy file."""
    _check_readable(path)
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            return {"": content} if isinstance(content, ndarray) else {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        reason = "it holds Python objects, which are never loaded" if "pickle" in str(error) else str(error)
        raise InputError(f"{path.name} is not a readable NumPy file: {reason}; write it again with np.save") from error


def _choose_array(arrays: dict[str, ndarray], var: str | None, source: str, what: str) -> tuple[str, ndarray]:
    """Return the named array, or the only one."""
    if var is not None:
        if var not in arrays or not var:
            raise UnknownName(f"array of {source}", var, [name for name in arrays if name])
        return var, arrays[var]
    if len(arrays) != 1:
        raise InputError(
            "{source} has {n} {what} ({names}); name one with {var}",
            source=source, n=len(arrays), what=what, names=", ".join(arrays) or "none", var=option("var"),
        )  # fmt: skip
    return next(iter(arrays.items()))


@dataclass(frozen=True)
class DatasetSource(GridSource):
    """A dataset, opened lazily where it is a file, with its variable to fill."""

    data: Any
    variable: Variable | None
    suffix: str = ""
    notes: tuple[str, ...] = ()
    path: Path | None = None
    original: Any = None  # a Dataset or DataArray of the user

    @classmethod
    def open(cls, data: Any, var: str | None, chunks: dict[str, int] | None) -> "DatasetSource":
        if not isinstance(data, Path):
            dataset = data
            if not hasattr(data, "data_vars"):
                if var is not None:
                    raise InputError("var names a variable of a dataset; the data are a single variable already")
                var = data.name or "value"
                dataset = data.to_dataset(name=var)
            return cls(dataset, _choose_variable(dataset, var, "the dataset", None), original=data)
        dataset, suffix = _open_dataset(data), data.suffix.lower()
        for name, variable in dataset.data_vars.items():
            if variable.size > _MAX_CELLS_IN_MEMORY and variable.dtype.kind in "fiu":
                dataset[name] = variable.chunk("auto")
        if suffix == _ZARR:
            groups = [name for name, _ in require("zarr").open_group(data, mode="r", use_consolidated=False).groups()]
        else:
            with require("netCDF4").Dataset(data) as file:
                groups = list(file.groups)
        notes = (f"the groups {', '.join(sorted(groups))} are not copied: only the top level is",) if groups else ()
        return cls(dataset, _choose_variable(dataset, var, data.name, chunks), suffix, notes, data)

    def read_mask(self, mask: Any) -> Mask:
        """Read a mask: a variable of the dataset, a file with one variable, or an array of NumPy or xarray."""
        if isinstance(mask, ndarray):
            assert self.variable is not None
            return trailing_mask("", mask, self.variable)
        name = mask if isinstance(mask, str) else str(getattr(mask, "name", None) or "")
        label = mask_label(name)
        if isinstance(mask, str) and mask in self.data.variables:
            mask = self.data[mask]
        elif isinstance(mask, str):
            if not Path(mask).exists():
                text, names = "{mask} is neither a variable ({variables}) nor a file", map(str, self.data.variables)
                raise InputError(text, mask=label, variables=", ".join(names))
            variables = _open_dataset(Path(mask)).data_vars.values()
            numeric = [variable for variable in variables if variable.ndim and variable.dtype.kind in "biuf"]
            if len(numeric) != 1:
                raise InputError("{mask} has {n} numeric variables; it must have one", mask=label, n=len(numeric))
            (mask,) = numeric
        for dim in mask.dims:
            if dim in mask.coords and dim in self.data.coords:
                ours, theirs = self.data.coords[dim].values, mask.coords[dim].values
                same = np.allclose if ours.dtype.kind in "fiu" else np.array_equal
                if ours.shape == theirs.shape and not same(ours, theirs):
                    text = "{mask}: its '{dim}' differs from that of the data; interpolate or sort it first"
                    raise InputError(text, mask=label, dim=dim)
        return Mask(name, tuple(map(str, mask.dims)), compute(mask, label).values)

    def result(self, prediction: NumericPrediction | None, level: float) -> Any:
        """Return the dataset with NAME_filled, NAME_std, NAME_low and NAME_high, which have the attributes of NAME."""
        if self.variable is None or prediction is None:
            return self.original
        name = self.variable.name
        source, added = self.data[name], {}
        kept = {key: value for key, value in source.attrs.items() if key not in _DROPPED_ATTRIBUTES}
        title = kept.get("long_name") or kept.get("standard_name") or name
        interval = f"the {100 * level:g} % prediction interval"
        for suffix, long_name, values in zip(SUFFIXES, _LONG_NAMES, prediction.interval, strict=True):
            part = source.copy(data=values)
            part.attrs = kept | {"long_name": f"{title}, {long_name.format(interval)}"}
            if suffix == "filled":
                part.attrs["ancillary_variables"] = " ".join(f"{name}_{other}" for other in SUFFIXES[1:])
            else:
                part.attrs.pop("standard_name", None)  # it is not the quantity itself
            part.encoding = {key: source.encoding[key] for key in _KEPT_ENCODING if key in source.encoding}
            if math.prod(self.variable.shape) > _MAX_CELLS_IN_MEMORY:
                part.encoding.pop("chunksizes", None)
            fill = source.encoding.get("_FillValue")
            if isinstance(fill, np.floating) and part.dtype == fill.dtype:
                part.encoding["_FillValue"] = fill
            added[f"{name}_{suffix}"] = part
        return self.data.assign(added)

    def write(self, outputs: Outputs, prediction: NumericPrediction, level: float) -> NumericPrediction:
        """Write all variables and the four added ones. A lazy prediction is computed block by block on the way."""
        assert self.path is not None
        assert self.variable is not None
        data, zarr = self.result(prediction, level), self.suffix == _ZARR
        if zarr:
            save = partial(data.to_zarr, mode="w", **_zarr_options(self.path))
        else:
            with require("netCDF4").Dataset(self.path) as file:
                form = str(file.data_model)
            save = partial(data.to_netcdf, format=_FORMATS.get(form, form), engine="netcdf4")
        try:
            with warnings.catch_warnings():  # the output may have what the input has, such as text
                warnings.filterwarnings("ignore", "(.*does not have a Zarr V3|Consolidated metadata)")
                outputs.write(outputs.data, save, folder=zarr)
        except FillinError:
            raise
        except (ValueError, TypeError, RuntimeError) as error:  # attributes and encodings that a library refuses
            raise InputError(
                f"cannot write {outputs.data}: {error}; correct or drop that attribute or encoding in {self.path.name}"
            ) from error
        if isinstance(prediction.mean, ndarray):
            return prediction
        written = _open_dataset(outputs.data)
        return NumericPrediction(..., *(written[f"{self.variable.name}_{suffix}"] for suffix in SUFFIXES))

    def close(self) -> None:
        self.data.close()


GRID_FORMATS: dict[str, type[GridSource]] = {
    **dict.fromkeys((".nc", ".nc4", ".cdf", ".netcdf", _ZARR), DatasetSource),
    **dict.fromkeys((".npy", ".npz"), ArraySource),
}  # by suffix; the only list of the files that are read as fields or arrays
GRID_TYPES = {"numpy.ndarray": ArraySource, "xarray.Dataset": DatasetSource, "xarray.DataArray": DatasetSource}


def find_source_type(data: Any) -> type[GridSource] | None:
    """Return the class that reads a file or an object, by its suffix or type; None if it holds no field or array."""
    if isinstance(data, Path):
        return GRID_FORMATS.get(data.suffix.lower())
    types = (f"{base.__module__.split('.')[0]}.{base.__name__}" for base in type(data).__mro__)
    return next((GRID_TYPES[name] for name in types if name in GRID_TYPES), None)


def _open_dataset(path: Path) -> Any:
    """Return the dataset of a NetCDF file or a Zarr folder, whose values are read when needed."""
    xarray = require("xarray")
    zarr = path.suffix.lower() == _ZARR
    require("zarr" if zarr else "netCDF4")
    _check_readable(path, folder=zarr)
    try:
        options = {"engine": "netcdf4"}
        if zarr:
            options = {"engine": "zarr", "chunks": None, "consolidated": _zarr_options(path)["consolidated"]}
        try:
            return xarray.open_dataset(path, decode_timedelta=False, **options)
        except ValueError as error:  # of an unknown calendar, whose times are then numbers
            if "decode" not in str(error):
                raise
            return xarray.open_dataset(path, decode_times=False, **options)
    except Exception as error:  # several libraries read here, and each has its own errors
        kind = "Zarr folder" if zarr else "NetCDF file"
        raise InputError(f"{path.name} is not a readable {kind}: {error}; write it again") from error


def _zarr_options(path: Path) -> dict[str, Any]:
    """Return the format of a Zarr folder, and whether its metadata are consolidated."""
    metadata = path / "zarr.json"
    if not metadata.exists():
        return {"zarr_format": 2, "consolidated": (path / ".zmetadata").exists()}
    return {"zarr_format": 3, "consolidated": "consolidated_metadata" in json.loads(metadata.read_text())}


def _check_readable(path: Path, folder: bool = False) -> None:
    """Raise an error with the reason why a file or a folder cannot be read."""
    if not path.exists():
        kind = "folder" if folder else "file"
        raise InputError(f"there is no {kind} {path}; check its name and folder")
    if folder and not path.is_dir():
        raise InputError(f"{path} is a file, not a Zarr folder; check its name")
    if path.is_dir() and not folder:
        raise InputError(f"{path} is a folder; name a file in it")
    if not os.access(path, os.R_OK):
        raise InputError(f"cannot read {path}: Permission denied; check its permissions")


def _choose_variable(data: Any, var: Hashable | None, source: str, chunks: dict[str, int] | None) -> Variable | None:
    """Return the named variable, or the only one of floats that has missing cells; None if none has."""
    if var is not None:
        if var not in data.variables:
            raise UnknownName(f"variable of {source}", var, map(str, data.data_vars))
        return dataset_variable(data, var, source, chunks)
    floats = [name for name, variable in data.data_vars.items() if variable.dtype.kind == "f" and variable.ndim]
    if not floats:
        names = ", ".join(f"{n} ({v.dtype})" for n, v in data.data_vars.items()) or "none"
        raise InputError(
            f"{source} has no variable of floating-point numbers over any dimension; its variables: {names}"
        )
    incomplete = [name for name in floats if bool(compute(data[name].isnull().any(), f"{source}: variable '{name}'"))]
    located = [name for name in incomplete if any(dim in data.coords for dim in data[name].dims)]
    candidates = located or incomplete
    if len(candidates) > 1:
        raise InputError(
            "{source} has several variables with missing cells: {names}; name one with {var}",
            source=source, var=option("var"),
            names=", ".join(f"{name} ({', '.join(map(str, data[name].dims))})" for name in candidates),
        )  # fmt: skip
    return dataset_variable(data, candidates[0], source, chunks) if candidates else None


def dataset_variable(data: Any, name: Hashable, source: str, chunks: dict[str, int] | None = None) -> Variable:
    """Return a variable of a dataset, loaded unless it is lazy or is to be read in `chunks`."""
    array = data[name]
    axes = {}
    for dim in array.dims:
        curved = [str(other) for other, values in array.coords.items() if dim in values.dims and values.ndim > 1]
        if dim in array.coords:
            x = array.coords[dim]
            axes[str(dim)] = coordinate_axis(str(dim), x.values, {**x.attrs, **x.encoding}, source)
        elif curved:
            raise InputError(
                f"{source}: '{dim}' has no one-dimensional coordinate; {', '.join(curved)} are curvilinear (two-"
                f"dimensional). Regrid the field to 1-D coordinates, or fill by indices after ds.drop_vars({curved})"
            )
        else:
            axes[str(dim)] = index_axis(str(dim), array.sizes[dim])
    existing = [f"{name}_{suffix}" for suffix in SUFFIXES if f"{name}_{suffix}" in data.variables]
    if existing:
        raise InputError(
            f"{source} already has a variable '{existing[0]}'; rename it, or fill the file that it came from"
        )
    sizes = {dim: size for dim, size in (chunks or {}).items() if dim in array.dims}
    if array.chunks:
        values = array.variable.data
    elif sizes and not isinstance(array.variable._data, ndarray):
        require("dask")
        values = array.chunk({dim: sizes.get(dim, "auto") for dim in array.dims}).data
    else:
        values = compute(array, f"{source}: variable '{name}'").values
    return Variable(str(name), source, tuple(axes), axes, values)
