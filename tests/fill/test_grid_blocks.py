"""Fields in blocks: chunks, halos and dask change nothing where a block sees enough."""

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.fields_with_gaps import PARTS, read_dataset, sea, waves, write_dataset
from support.helpers import KernelMean

import fillin
from fillin.filling.grid.fill import halo_cells

pytest_plugins = ["support.field_command"]


@pytest.mark.parametrize("round_", [False, True])
@pytest.mark.parametrize("size", [13, 25])
def test_blocks_change_nothing_where_they_see_enough(round_, size):
    """Far more observed cells than one context takes, in blocks that cut tiles in two."""
    data = xr.DataArray(waves(36, 44), dims=("y", "x"), coords={"y": np.arange(36.0), "x": np.arange(44.0)}, name="v")
    data[8:14, 20:27] = np.nan
    period = {"x": 44.0} if round_ else None
    whole = fillin.fill(data, model=KernelMean(), period=period)
    blocks = fillin.fill(data, model=KernelMean(), period=period, chunks={"y": size, "x": size}, halo=44)
    assert isinstance(blocks["v_filled"].data, da.Array)
    assert max(blocks["v_filled"].data.chunks[0]) == size
    for part in PARTS:
        np.testing.assert_allclose(blocks[f"v_{part}"].values, whole[f"v_{part}"].values, rtol=1e-6)
    by_itself = fillin.fill(data, model=KernelMean(), period=period, chunks={"y": size, "x": size})
    off = np.abs(by_itself["v_filled"].values - whole["v_filled"].values)
    assert off.max() < 1e-3, "the default halo covers what a location needs"


def test_a_halo_that_is_too_small_shows_only_near_seams():
    data = xr.DataArray(waves(60, 60), dims=("y", "x"), name="v")
    whole = fillin.fill(data, model=KernelMean())["v_filled"].values
    blocks = fillin.fill(data, model=KernelMean(), chunks={"y": 30, "x": 30}, halo=1)["v_filled"].values
    off = np.abs(blocks - whole)
    assert 1e-7 < off.max() < 0.5
    far = np.abs(np.arange(60) - 29.5) > 10
    assert off[np.ix_(far, far)].max() < 0.1 * off.max() + 1e-6


def test_a_gap_wider_than_a_block_is_filled_from_distant_cells():
    values = waves(100, 20, share=0.1)
    values[20:, :] = np.nan
    result = fillin.fill(values, model=KernelMean(), chunks={0: 25, 1: 20}, halo=2)
    assert np.isfinite(result.filled).all()


def test_lazy_stays_lazy_and_is_the_same(model):
    data = sea()
    expected = fillin.fill(data, model=model)
    lazy = fillin.fill(data.chunk({"time": 1, "lat": 5}), model=model)
    assert all(isinstance(lazy[f"sst_{part}"].data, da.Array) for part in PARTS)
    with dask.config.set(scheduler="synchronous"):
        xr.testing.assert_allclose(lazy.compute(), expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["sea.nc", "sea.zarr"])
def test_blocks_of_files(name, tmp_path, command):
    path = tmp_path / name
    write_dataset(sea(times=2, lat=18, lon=20), path)
    command(path, "-o", str(tmp_path / ("one" + path.suffix)))
    printed, _ = command(
        path,
        "--chunks",
        "lat=7,lon=9",
        "-o",
        str(tmp_path / ("two" + path.suffix)),
        *(["--figure"] if name == "sea.nc" else []),
    )
    assert ("two.png" in printed) == (name == "sea.nc")
    one, two = read_dataset(tmp_path / ("one" + path.suffix)), read_dataset(tmp_path / ("two" + path.suffix))
    xr.testing.assert_allclose(two, one, rtol=1e-3)


def test_three_dimensions_at_once():
    data = xr.DataArray(waves(6, 9, 10), dims=("t", "y", "x"), name="v")
    result = fillin.fill(data, over=["t", "y", "x"], model=KernelMean(3))
    assert result["v_filled"].notnull().all()
    assert np.abs(result["v_filled"] - waves(6, 9, 10, share=0)).max() < 2
    blocks = fillin.fill(data, over=["t", "y", "x"], model=KernelMean(3), chunks={"x": 4}, halo=10)
    np.testing.assert_allclose(blocks["v_filled"].values, result["v_filled"].values, rtol=1e-6)


def test_cells_of_a_block_and_its_halo():
    assert halo_cells(np.arange(4, 6), 2, 8, False).tolist() == [2, 3, 4, 5, 6, 7]
    assert halo_cells(np.arange(4, 6), 3, 8, True).tolist() == list(range(8))
    assert halo_cells(np.arange(6, 8), 2, 8, True).tolist() == [4, 5, 6, 7, 0, 1]
    assert halo_cells(np.arange(0, 3), 9, 8, False).tolist() == list(range(8))


def test_any_cluster_of_dask(tmp_path, folder):
    """Workers of another process get the model by value, and give the same."""
    from distributed import Client, LocalCluster

    data = sea(times=2)
    small = fillin.load(folder)
    expected = fillin.fill(data, model=small)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        result = fillin.fill(data, model=small, chunks={"lat": 6}).compute()
        xr.testing.assert_allclose(result, expected, rtol=1e-4)
