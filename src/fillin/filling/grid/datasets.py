"""NetCDF files and Zarr folders, and xarray's objects in Python: which variable has gaps, and what is added to them."""

import json
import math
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fillin.errors import FillinError, InputError, UnknownName, Words, argument, both, option
from fillin.filling.grid.axes import Axis, axis_of, counted
from fillin.filling.grid.mask import Mask
from fillin.filling.grid.paths import check_readable, put_folder
from fillin.filling.grid.plan import IN_MEMORY, FieldPlan
from fillin.filling.grid.variable import Variable
from fillin.filling.prediction import SUFFIXES
from fillin.filling.write import put
from fillin.runtime import require

NETCDF, ZARR = (".nc", ".nc4", ".cdf", ".netcdf"), (".zarr",)
_KEPT = ("zlib", "complevel", "shuffle", "fletcher32", "chunksizes", "compressors", "compressor")  # of the encoding
_FORMATS = {"NETCDF3_64BIT_OFFSET": "NETCDF3_64BIT", "NETCDF3_64BIT_DATA": "NETCDF4"}  # as xarray calls them
_WORDS = {"filled": "filled", "std": "standard deviation", "low": "lower end of the {}", "high": "upper end of the {}"}


@dataclass(frozen=True)
class DatasetFile:
    """A file that was opened, lazily, and the variable to fill (None: nothing has gaps)."""

    path: Path
    data: Any
    variable: Variable | None
    ending: str
    notes: tuple[str, ...] = ()

    def mask(self, text: str) -> Mask:
        return mask_of(text, self.data)

    def write(self, path: Path, plan: FieldPlan, found: Any, force: bool) -> Any:
        """Everything that was there, and four variables more; [2 …] of what was written: filled and std."""
        data = with_result(self.data, plan, found)
        try:
            if self.ending in ZARR:
                like = _zarr_like(self.path)
                put_folder(path, lambda beside: _to_zarr(data, beside, like), force)
            else:
                form = _format(self.path)
                put(path, lambda beside: data.to_netcdf(beside, format=form, engine="netcdf4"), force)
        except FillinError:
            raise
        except (ValueError, TypeError, RuntimeError) as error:  # attributes and encodings that a library refuses
            raise InputError(f"cannot write {path}: {error}; correct it in {self.path.name}, or drop it") from error
        if isinstance(found, np.ndarray):
            return found
        again = opened(path)
        return [again[f"{plan.variable.name}_{ending}"] for ending in SUFFIXES[:2]]

    def close(self) -> None:
        self.data.close()


def opened(path: Path) -> Any:
    """The dataset of a file, read when it is needed."""
    xarray = require("xarray")
    zarr = path.suffix.lower() in ZARR
    require("zarr" if zarr else "netCDF4")
    check_readable(path, folder=zarr)
    try:
        options = {"engine": "netcdf4"}
        if zarr:
            options = {"engine": "zarr", "chunks": None, "consolidated": _zarr_like(path)["consolidated"]}
        try:
            return xarray.open_dataset(path, decode_timedelta=False, **options)
        except ValueError as error:  # a calendar that nobody knows: its times are numbers then
            if "decode" not in str(error):
                raise
            return xarray.open_dataset(path, decode_times=False, **options)
    except Exception as error:  # libraries of many makers read here, and each has errors of its own
        kind = "Zarr folder" if zarr else "NetCDF file"
        raise InputError(f"{path.name} is not a readable {kind}: {error}; write it again") from error


def open_dataset(path: Path, var: str | None, chunks: dict[str, int] | None) -> DatasetFile:
    data = opened(path)
    for name, variable in data.data_vars.items():
        if variable.size > IN_MEMORY and variable.dtype.kind in "fiu":
            data[name] = variable.chunk("auto")
    name = choose_variable(data, var, path.name)
    found = None if name is None else dataset_variable(data, name, path.name, chunks)
    groups = _groups(path)
    notes = (f"the groups {', '.join(groups)} are not copied: only what is at the top is",) if groups else ()
    return DatasetFile(path, data, found, path.suffix.lower(), notes)


def _groups(path: Path) -> list[str]:
    """What a file has below its top."""
    if path.suffix.lower() in ZARR:
        return sorted(name for name, _ in require("zarr").open_group(path, mode="r", use_consolidated=False).groups())
    with require("netCDF4").Dataset(path) as file:
        return sorted(file.groups)


def choose_variable(data: Any, var: Hashable | None, where: str) -> Hashable | None:
    """The one that is named, or the only one of floats that has gaps; None if none has."""
    if var is not None:
        if var not in data.variables:
            raise UnknownName(f"variable of {where}", var, map(str, data.data_vars))
        return var
    floats = [name for name, variable in data.data_vars.items() if variable.dtype.kind == "f" and variable.ndim]
    if not floats:
        names = ", ".join(f"{n} ({v.dtype})" for n, v in data.data_vars.items()) or "none"
        raise InputError(
            f"{where} has no variable of floating-point numbers over any dimension; its variables: {names}"
        )
    gaps = [name for name in floats if bool(_read(data[name].isnull().any(), f"{where}: variable '{name}'"))]
    placed = [name for name in gaps if any(dim in data.coords for dim in data[name].dims)]
    chosen = placed or gaps
    if len(chosen) > 1:
        listed = ", ".join(f"{name} ({', '.join(map(str, data[name].dims))})" for name in chosen)
        raise InputError(f"{where} has several variables with gaps: {listed}; name one with " + option("var"))
    return chosen[0] if chosen else None


def dataset_variable(data: Any, name: Hashable, where: str, chunks: dict[str, int] | None = None) -> Variable:
    array = data[name]
    place = f"{where}: variable '{name}'"
    axes = {str(dim): _axis(array, dim, where) for dim in array.dims}
    taken = [f"{name}_{ending}" for ending in SUFFIXES if f"{name}_{ending}" in data.variables]
    if taken:
        raise InputError(f"{where} already has a variable '{taken[0]}'; rename it, or fill the file that it came from")
    values = array.variable.data if array.chunks else None
    if chunks and values is None and not isinstance(array.variable._data, np.ndarray):
        known = {dim: size for dim, size in chunks.items() if dim in array.dims}
        if known:
            require("dask")
            values = array.chunk({dim: known.get(dim, "auto") for dim in array.dims}).data
    if values is None:
        values = _read(array, place).values
    return Variable(str(name), where, tuple(map(str, array.dims)), axes, values)


def _axis(array: Any, dim: Hashable, where: str) -> Axis:
    if dim in array.coords:
        coordinate = array.coords[dim]
        return axis_of(str(dim), coordinate.values, {**coordinate.attrs, **coordinate.encoding}, where)
    curved = [str(name) for name, other in array.coords.items() if dim in other.dims and other.ndim > 1]
    if curved:
        drop = ", ".join(f"'{name}'" for name in curved)
        raise InputError(
            f"{where}: '{dim}' has no coordinate of its own; {', '.join(curved)} are curved (two-dimensional). Put the "
            f"field on a grid of 1-D coordinates, or fill by rows and columns after ds.drop_vars([{drop}])"
        )
    return counted(str(dim), array.sizes[dim])


def _read(array: Any, place: str | Words) -> Any:
    """Loaded, with an error that names it where a file is damaged."""
    try:
        return array.compute()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(both(place) + f" cannot be read: {error}; the file may be damaged") from error


def mask_of(given: Any, data: Any) -> Mask:
    """A variable of the dataset, a file with one variable, or xarray's array; its coordinates must be the data's."""
    where = given if isinstance(given, str) else str(getattr(given, "name", None) or "that was given")
    place = argument("mask") + f" {where}"
    if isinstance(given, str):
        if given in data.variables:
            given = data[given]
        elif Path(given).exists():
            other = opened(Path(given))
            names = [n for n, v in other.data_vars.items() if v.ndim and v.dtype.kind in "biuf"]
            if len(names) != 1:
                raise InputError(place + f" has {len(names)} variables of numbers; it must have one")
            given = other[names[0]]
        else:
            raise InputError(place + f" is neither a variable ({', '.join(map(str, data.variables))}) nor a file")
    for dim in given.dims:
        if dim in given.coords and dim in data.coords:
            mine, its = data.coords[dim].values, given.coords[dim].values
            same = mine.shape != its.shape or bool(
                np.allclose(mine, its, rtol=1e-5, atol=1e-8) if mine.dtype.kind in "fiu" else (mine == its).all()
            )
            if not same:
                raise InputError(place + f": its '{dim}' is not that of the data; interpolate or sort it first")
    return Mask(where, tuple(map(str, given.dims)), _read(given, place).values)


def with_result(data: Any, plan: FieldPlan, found: Any) -> Any:
    """The dataset and NAME_filled, NAME_std, NAME_low, NAME_high, with the attributes of NAME."""
    name = plan.variable.name
    source = data[name]
    parts = {}
    for ending, values in zip(SUFFIXES, found, strict=True):
        part = source.copy(data=values)
        part.attrs = _attributes(source, name, ending, plan.how.level)
        part.encoding = {key: source.encoding[key] for key in _KEPT if key in source.encoding}
        if math.prod(plan.variable.shape) > IN_MEMORY:
            part.encoding.pop("chunksizes", None)
        fill = source.encoding.get("_FillValue")
        if isinstance(fill, np.floating) and part.dtype == fill.dtype:
            part.encoding["_FillValue"] = fill
        parts[f"{name}_{ending}"] = part
    return data.assign(parts)


def _attributes(source: Any, name: str, ending: str, level: float) -> dict[str, Any]:
    about = {key: value for key, value in source.attrs.items() if key not in ("valid_min", "valid_max", "valid_range")}
    called = about.get("long_name") or about.get("standard_name") or name
    about["long_name"] = f"{called}, {_WORDS[ending].format(f'{100 * level:g} % band')}"
    if ending == "filled":
        about["ancillary_variables"] = " ".join(f"{name}_{other}" for other in SUFFIXES[1:])
    else:
        about.pop("standard_name", None)  # it is not the quantity itself
    return about


def _zarr_like(path: Path) -> dict[str, Any]:
    """The format of a Zarr folder, and whether it has one file that tells of all others."""
    new = path / "zarr.json"
    if not new.exists():
        return {"zarr_format": 2, "consolidated": (path / ".zmetadata").exists()}
    return {"zarr_format": 3, "consolidated": "consolidated_metadata" in json.loads(new.read_text())}


def _to_zarr(data: Any, path: Path, like: dict[str, Any]) -> None:
    with warnings.catch_warnings():  # what the input has, text for one, the output may have
        warnings.filterwarnings("ignore", "(.*does not have a Zarr V3|Consolidated metadata)")
        data.to_zarr(path, mode="w", **like)


def _format(path: Path) -> str:
    """That of the file, as xarray names it."""
    with require("netCDF4").Dataset(path) as file:
        model = str(file.data_model)
        return _FORMATS.get(model, model)
