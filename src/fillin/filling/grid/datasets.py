"""xarray datasets, in memory or as NetCDF files and Zarr folders: the variable to fill, and the variables added."""

import json
import math
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from fillin.errors import FillinError, InputError, Message, UnknownName, option
from fillin.filling.grid.axes import Axis, coordinate_axis, index_axis
from fillin.filling.grid.layout import MAX_CELLS_IN_MEMORY
from fillin.filling.grid.variable import GridSource, Mask, Variable, check_readable, mask_label, trailing_mask
from fillin.filling.prediction import SUFFIXES, NumericPrediction, Outputs
from fillin.runtime import require

_ZARR = ".zarr"
_KEPT_ENCODING = ("zlib", "complevel", "shuffle", "fletcher32", "chunksizes", "compressors", "compressor")
_FORMATS = {"NETCDF3_64BIT_OFFSET": "NETCDF3_64BIT", "NETCDF3_64BIT_DATA": "NETCDF4"}  # as xarray calls them
_LONG_NAMES = {
    "filled": "filled", "std": "standard deviation", "low": "lower end of the {}", "high": "upper end of the {}",
}  # fmt: skip


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
        if isinstance(data, Path):
            dataset = open_file(data)
            for name, variable in dataset.data_vars.items():
                if variable.size > MAX_CELLS_IN_MEMORY and variable.dtype.kind in "fiu":
                    dataset[name] = variable.chunk("auto")
            groups = _list_groups(data)
            notes = (f"the groups {', '.join(groups)} are not copied: only the top level is",) if groups else ()
            return cls(dataset, _choose(dataset, var, data.name, chunks), data.suffix.lower(), notes, data)
        dataset = data
        if not hasattr(data, "data_vars"):
            if var is not None:
                raise InputError("var names a variable of a dataset; the data are a single variable already")
            var = data.name or "value"
            dataset = data.to_dataset(name=var)
        return cls(dataset, _choose(dataset, var, "the dataset", None), original=data)

    def read_mask(self, mask: Any) -> Mask:
        """Read a mask: a variable of the dataset, a file with one variable, or an array of NumPy or xarray."""
        if isinstance(mask, ndarray):
            assert self.variable is not None
            return trailing_mask("", mask, self.variable)
        name = mask if isinstance(mask, str) else str(getattr(mask, "name", None) or "")
        label = mask_label(name)
        if isinstance(mask, str):
            mask = self._named_mask(mask, label)
        for dim in mask.dims:
            if dim in mask.coords and dim in self.data.coords:
                ours, theirs = self.data.coords[dim].values, mask.coords[dim].values
                numeric = ours.dtype.kind in "fiu"
                if ours.shape == theirs.shape and not (
                    np.allclose(ours, theirs, rtol=1e-5, atol=1e-8) if numeric else (ours == theirs).all()
                ):
                    raise InputError(
                        "{mask}: its '{dim}' differs from that of the data; interpolate or sort it first",
                        mask=label, dim=dim,
                    )  # fmt: skip
        return Mask(name, tuple(map(str, mask.dims)), _load(mask, label).values)

    def _named_mask(self, name: str, label: Message) -> Any:
        if name in self.data.variables:
            return self.data[name]
        if not Path(name).exists():
            raise InputError(
                "{mask} is neither a variable ({variables}) nor a file",
                mask=label, variables=", ".join(map(str, self.data.variables)),
            )  # fmt: skip
        other = open_file(Path(name))
        numeric = [n for n, variable in other.data_vars.items() if variable.ndim and variable.dtype.kind in "biuf"]
        if len(numeric) != 1:
            raise InputError("{mask} has {n} numeric variables; it must have one", mask=label, n=len(numeric))
        return other[numeric[0]]

    def result(self, prediction: NumericPrediction | None, level: float) -> Any:
        """Return the dataset with NAME_filled, NAME_std, NAME_low and NAME_high, which have the attributes of NAME."""
        if self.variable is None or prediction is None:
            return self.original
        name = self.variable.name
        source, added = self.data[name], {}
        for suffix, values in zip(SUFFIXES, prediction.interval, strict=True):
            part = source.copy(data=values)
            part.attrs = _attributes(source, name, suffix, level)
            part.encoding = {key: source.encoding[key] for key in _KEPT_ENCODING if key in source.encoding}
            if math.prod(self.variable.shape) > MAX_CELLS_IN_MEMORY:
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
        data = self.result(prediction, level)
        try:
            if self.suffix == _ZARR:
                options = _zarr_options(self.path)
                outputs.write(outputs.data, lambda folder: _write_zarr(data, folder, options), folder=True)
            else:
                form = _netcdf_format(self.path)
                outputs.write(outputs.data, lambda file: data.to_netcdf(file, format=form, engine="netcdf4"))
        except FillinError:
            raise
        except (ValueError, TypeError, RuntimeError) as error:  # attributes and encodings that a library refuses
            raise InputError(
                f"cannot write {outputs.data}: {error}; correct or drop that attribute or encoding in {self.path.name}"
            ) from error
        if isinstance(prediction.mean, ndarray):
            return prediction
        written = open_file(outputs.data)
        return NumericPrediction(..., *(written[f"{self.variable.name}_{suffix}"] for suffix in SUFFIXES))

    def close(self) -> None:
        self.data.close()


def open_file(path: Path) -> Any:
    """Return the dataset of a NetCDF file or a Zarr folder, whose values are read when needed."""
    xarray = require("xarray")
    zarr = path.suffix.lower() == _ZARR
    require("zarr" if zarr else "netCDF4")
    check_readable(path, folder=zarr)
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


def _list_groups(path: Path) -> list[str]:
    """Return the names of the groups below the top level."""
    if path.suffix.lower() == _ZARR:
        return sorted(name for name, _ in require("zarr").open_group(path, mode="r", use_consolidated=False).groups())
    with require("netCDF4").Dataset(path) as file:
        return sorted(file.groups)


def _choose(data: Any, var: Hashable | None, source: str, chunks: dict[str, int] | None) -> Variable | None:
    name = _choose_name(data, var, source)
    return None if name is None else dataset_variable(data, name, source, chunks)


def _choose_name(data: Any, var: Hashable | None, source: str) -> Hashable | None:
    """Return the named variable, or the only one of floats that has missing cells; None if none has."""
    if var is not None:
        if var not in data.variables:
            raise UnknownName(f"variable of {source}", var, map(str, data.data_vars))
        return var
    floats = [name for name, variable in data.data_vars.items() if variable.dtype.kind == "f" and variable.ndim]
    if not floats:
        names = ", ".join(f"{n} ({v.dtype})" for n, v in data.data_vars.items()) or "none"
        raise InputError(
            f"{source} has no variable of floating-point numbers over any dimension; its variables: {names}"
        )
    incomplete = [name for name in floats if bool(_load(data[name].isnull().any(), f"{source}: variable '{name}'"))]
    located = [name for name in incomplete if any(dim in data.coords for dim in data[name].dims)]
    chosen = located or incomplete
    if len(chosen) > 1:
        raise InputError(
            "{source} has several variables with missing cells: {names}; name one with {var}",
            source=source, var=option("var"),
            names=", ".join(f"{name} ({', '.join(map(str, data[name].dims))})" for name in chosen),
        )  # fmt: skip
    return chosen[0] if chosen else None


def dataset_variable(data: Any, name: Hashable, source: str, chunks: dict[str, int] | None = None) -> Variable:
    """Return a variable of a dataset, loaded unless it is lazy or is to be read in `chunks`."""
    array = data[name]
    axes = {str(dim): _axis(array, dim, source) for dim in array.dims}
    existing = [f"{name}_{suffix}" for suffix in SUFFIXES if f"{name}_{suffix}" in data.variables]
    if existing:
        raise InputError(
            f"{source} already has a variable '{existing[0]}'; rename it, or fill the file that it came from"
        )
    values = array.variable.data if array.chunks else None
    if chunks and values is None and not isinstance(array.variable._data, ndarray):
        sizes = {dim: size for dim, size in chunks.items() if dim in array.dims}
        if sizes:
            require("dask")
            values = array.chunk({dim: sizes.get(dim, "auto") for dim in array.dims}).data
    if values is None:
        values = _load(array, f"{source}: variable '{name}'").values
    return Variable(str(name), source, tuple(map(str, array.dims)), axes, values)


def _axis(array: Any, dim: Hashable, source: str) -> Axis:
    if dim in array.coords:
        coordinate = array.coords[dim]
        return coordinate_axis(str(dim), coordinate.values, {**coordinate.attrs, **coordinate.encoding}, source)
    curved = [str(name) for name, other in array.coords.items() if dim in other.dims and other.ndim > 1]
    if curved:
        drop = ", ".join(f"'{name}'" for name in curved)
        raise InputError(
            f"{source}: '{dim}' has no one-dimensional coordinate; {', '.join(curved)} are curvilinear "
            f"(two-dimensional). Regrid the field to 1-D coordinates, or fill by indices after ds.drop_vars([{drop}])"
        )
    return index_axis(str(dim), array.sizes[dim])


def _load(array: Any, label: str | Message) -> Any:
    """Load an array, with an error that names it where its file is damaged."""
    try:
        return array.compute()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            "{label} cannot be read: {error}; the file may be damaged", label=label, error=error
        ) from error


def _attributes(source: Any, name: str, suffix: str, level: float) -> dict[str, Any]:
    attributes = {k: value for k, value in source.attrs.items() if k not in ("valid_min", "valid_max", "valid_range")}
    long_name = attributes.get("long_name") or attributes.get("standard_name") or name
    attributes["long_name"] = f"{long_name}, {_LONG_NAMES[suffix].format(f'{100 * level:g} % band')}"
    if suffix == "filled":
        attributes["ancillary_variables"] = " ".join(f"{name}_{other}" for other in SUFFIXES[1:])
    else:
        attributes.pop("standard_name", None)  # it is not the quantity itself
    return attributes


def _zarr_options(path: Path) -> dict[str, Any]:
    """Return the format of a Zarr folder, and whether its metadata are consolidated."""
    metadata = path / "zarr.json"
    if not metadata.exists():
        return {"zarr_format": 2, "consolidated": (path / ".zmetadata").exists()}
    return {"zarr_format": 3, "consolidated": "consolidated_metadata" in json.loads(metadata.read_text())}


def _write_zarr(data: Any, path: Path, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():  # the output may have what the input has, such as text
        warnings.filterwarnings("ignore", "(.*does not have a Zarr V3|Consolidated metadata)")
        data.to_zarr(path, mode="w", **options)


def _netcdf_format(path: Path) -> str:
    """Return the format of a NetCDF file by xarray's name for it."""
    with require("netCDF4").Dataset(path) as file:
        return _FORMATS.get(str(file.data_model), str(file.data_model))
