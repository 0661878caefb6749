"""What reads tables comes with the extra `fill`, what reads fields with `fields`, pictures with `images`, what serves
the page with `play`; imported when they are needed."""

from importlib import import_module
from types import ModuleType

from fillin.errors import InputError

EXTRAS = {
    "xarray": "fields", "netCDF4": "fields", "zarr": "fields", "dask": "fields", "PIL": "images", "fastapi": "play",
    "uvicorn": "play",
}  # fmt: skip


def need(module: str) -> ModuleType:
    """The module, or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(module.split(".")[0], "fill")
        raise InputError(f"{error.name} is needed, and not installed: pip install 'fillin[{extra}]'") from error
