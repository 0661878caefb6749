"""Fields with gaps, and files of them, for tests."""

import numpy as np
import xarray as xr

PARTS = ["filled", "std", "low", "high"]


def waves(*shape: int, share: float = 0.3, seed: int = 0) -> np.ndarray:
    """Smooth array with a share of missing values."""
    random = np.random.default_rng(seed)
    coordinates = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    y = 10 + sum(np.sin(x / (3 + i) + i) for i, x in enumerate(coordinates))
    return np.where(random.random(shape) < share, np.nan, y)


def sea(times: int = 3, lat: int = 12, lon: int = 16) -> xr.Dataset:
    """Temperatures over three months with land, gaps, and attributes and encodings as in files."""
    values = waves(times, lat, lon).astype("f4")
    values[0, 4:, :] = np.where(np.isnan(values[0, 4:, :]), 9, values[0, 4:, :])  # only land is missing at all times
    values[1, :4, :] = np.where(np.isnan(values[1, :4, :]), 9, values[1, :4, :])
    values[:, :3, :4] = np.nan
    data = xr.Dataset(
        {
            "sst": (("time", "lat", "lon"), values, {"units": "degC", "long_name": "sea temperature"}),
            "count": (("time",), np.arange(times), {"note": "whole numbers"}),
            "ocean": (("lat", "lon"), (np.arange(lat)[:, None] + np.arange(lon) > 3).astype("i1")),
        },
        {
            "time": np.array(["2024-01-01", "2024-02-01", "2024-03-05", "2024-04-01"][:times], dtype="M8[ns]"),
            "lat": ("lat", np.linspace(60, 38, lat), {"units": "degrees_north"}),
            "lon": ("lon", np.linspace(-10, 20, lon), {"units": "degrees_east"}),
            "depth": 2.5,
        },
        {"title": "a sea", "history": "made"},
    )
    data["sst"].encoding = {"zlib": True, "_FillValue": np.float32(-999)}
    return data


def write_dataset(data: xr.Dataset, path, **options) -> None:
    if path.suffix == ".zarr":
        version = options.get("zarr_format", 3)
        data.to_zarr(path, zarr_format=version, consolidated=version == 2)
    else:
        data.to_netcdf(path, **options)


def read_dataset(path) -> xr.Dataset:
    options = {"engine": "netcdf4"}
    if path.suffix == ".zarr":
        options = {"engine": "zarr", "chunks": None, "consolidated": (path / ".zmetadata").exists()}
    with xr.open_dataset(path, **options) as data:
        return data.load()
