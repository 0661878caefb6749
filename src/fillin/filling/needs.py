"""What reads tables comes with the extra `fill`, what reads fields with `fields`; imported when they are needed."""

from importlib import import_module
from types import ModuleType

from fillin.errors import InputError

FIELDS = ("xarray", "netCDF4", "zarr", "dask")


def need(module: str) -> ModuleType:
    """The module, or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        extra = "fields" if module.split(".")[0] in FIELDS else "fill"
        raise InputError(f"fill needs {error.name}, which is not installed: pip install 'fillin[{extra}]'") from error
