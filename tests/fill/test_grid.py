"""Fields of NetCDF, Zarr and xarray: what is kept, what is added, and from where."""

import os

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from support.fields_with_gaps import PARTS, read_dataset, sea, waves, write_dataset
from support.helpers import ExactProcess, KernelMean

import fillin
from fillin.errors import InputError
from fillin.filling.grid.holdout import holdout_fields
from fillin.filling.grid.layout import TILE_CONTEXT_CELLS, make_layout, roughness
from fillin.filling.grid.sources import dataset_variable
from fillin.filling.grid.variable import coordinate_axis
from fillin.filling.holdout import PATTERNS, score_holdout
from fillin.inference.context import Context

pytest_plugins = ["support.field_command"]


@pytest.mark.parametrize("name", ["sea.nc", "sea.zarr"])
def test_all_is_kept_and_four_variables_are_added(name, tmp_path, command):
    data, path, out = sea(), tmp_path / name, tmp_path / name.replace(".", ".filled.")
    write_dataset(data, path)
    printed, _ = command(path)
    assert "a field sst over lat (12) × lon (16), each time separately (3 fields)" in printed
    assert "12 cells of the field are missing in every slice, as land is, and stay missing" in printed
    assert f"wrote {out}" in printed
    before, after = read_dataset(path), read_dataset(out)
    xr.testing.assert_identical(after[list(before.data_vars)], before)
    assert set(after.data_vars) - set(before.data_vars) == {f"sst_{part}" for part in PARTS}
    assert after["sst"].encoding["_FillValue"] == before["sst"].encoding["_FillValue"]
    observed, land = before["sst"].notnull(), before["sst"].isnull().all("time")
    filled, std, low, high = (after[f"sst_{part}"] for part in PARTS)
    for part in (filled, std, low, high):
        assert part.dims == before["sst"].dims
        assert part.dtype == np.float32
        assert part.attrs["units"] == "degC"
        assert (part.isnull() == land).all()
    for part in (filled, low, high):
        assert (part == before["sst"]).where(observed, True).all()
    assert ((std == 0) == observed).where(~land, True).all()
    assert (low < high).where(~observed & ~land, True).all()
    assert std.attrs["long_name"] == "sea temperature, standard deviation"
    assert low.attrs["long_name"] == "sea temperature, lower bound of the 95 % prediction interval"
    assert high.attrs["long_name"] == "sea temperature, upper bound of the 95 % prediction interval"
    assert sorted(os.listdir(tmp_path)) == sorted([name, out.name])


def test_formats_and_packing_and_unlimited_dimensions_stay(tmp_path, command):
    data = sea()
    data["sst"].encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 10.0, "_FillValue": np.int16(-9999)}
    path = tmp_path / "old.nc"
    write_dataset(data, path, format="NETCDF3_CLASSIC", unlimited_dims=["time"])
    command(path)
    after, before = read_dataset(tmp_path / "old.filled.nc"), read_dataset(path)
    xr.testing.assert_identical(after["sst"], before["sst"])
    assert after["sst"].encoding["dtype"] == np.int16
    assert after.encoding["unlimited_dims"] == {"time"}
    assert after["sst_filled"].encoding["dtype"].kind == "f"  # what is filled has more digits than were packed
    with open(tmp_path / "old.filled.nc", "rb") as file:
        assert file.read(3) == b"CDF"


def test_zarr_of_either_format(tmp_path, command):
    for version in (2, 3):
        path = tmp_path / f"v{version}.zarr"
        write_dataset(sea(), path, zarr_format=version)
        command(path)
        out = tmp_path / f"v{version}.filled.zarr"
        assert (out / "zarr.json").exists() == (version == 3)
        assert "sst_std" in read_dataset(out)


def test_land_follows_the_mask_or_is_filled(tmp_path, command):
    data, path = sea(), tmp_path / "sea.nc"
    write_dataset(data, path)
    command(path, "--mask", "ocean")
    filled = read_dataset(tmp_path / "sea.filled.nc")["sst_filled"]
    expected = data["ocean"].astype(bool) | data["sst"].notnull()
    assert (filled.notnull() == expected).all()
    write_dataset(data["ocean"].to_dataset(), tmp_path / "mask.nc")
    command(path, "--mask", str(tmp_path / "mask.nc"), "-o", str(tmp_path / "two.nc"))
    xr.testing.assert_identical(read_dataset(tmp_path / "two.nc")["sst_filled"], filled)
    command(path, "--fill-always-missing", "-o", str(tmp_path / "three.nc"))
    assert read_dataset(tmp_path / "three.nc")["sst_filled"].notnull().all()


def test_without_slices_everything_is_filled(model):
    result = fillin.fill(sea().isel(time=0), model=model)
    assert result["sst_filled"].notnull().all()


def test_slices_are_filled_each_on_its_own_whatever_the_order_of_dimensions(model):
    data = sea(
        lat=10, lon=13
    )  # so small that all of it is one context: distances, which all slices share, do not matter
    whole = fillin.fill(data, model=model)
    alone = fillin.fill(data.isel(time=[1]), var="sst", model=model, fill_always_missing=True)
    close = {"rtol": 1e-5, "atol": 1e-5}
    land = data["sst"].isnull().all("time")
    xr.testing.assert_allclose(alone["sst_filled"].where(~land), whole["sst_filled"].isel(time=[1]), **close)
    turned = fillin.fill(data.transpose("lon", "time", "lat"), over=["lat", "lon"], model=model)
    assert turned["sst_filled"].dims == ("lon", "time", "lat")
    data = sea()
    whole, back = (fillin.fill(field, model=model)["sst_filled"] for field in (data, data.isel(time=[2, 1, 0])))
    xr.testing.assert_allclose(back.sortby("time"), whole, **close)


def test_descending_coordinates_and_their_units_do_not_matter(model):
    data = sea().isel(time=0)
    plain = fillin.fill(data, model=model)["sst_filled"]
    scaled = data.assign_coords(lat=data["lat"] * 1e5 + 7e6, lon=data["lon"] * 1e-3)
    other = fillin.fill(scaled, model=model)["sst_filled"]
    np.testing.assert_allclose(other.values, plain.values, atol=2e-4)
    turned = fillin.fill(data.isel(lat=slice(None, None, -1)), model=model)["sst_filled"]
    np.testing.assert_allclose(turned.values[::-1], plain.values, atol=2e-4)


class Plane(ExactProcess):
    """A Gaussian process of two dimensions that records its inputs."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.dim_x, self.calls = 2, []

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        self.calls.append((xc[0].numpy(), xt[0].numpy()))
        return super().forward(xc, yc, xt)


def test_neighbours_are_few_and_around():
    """A strip of 10 × 300 cells is not seen as slivers: what fills a cell lies around it, in cells."""
    spy, data = KernelMean(), waves(10, 300, share=0.4)
    seen = []
    forward = spy.forward
    spy.forward = lambda xc, yc, xt, mask_c=None, mask_t=None: (seen.append((xc, xt)), forward(xc, yc, xt))[1]
    result = fillin.fill(data, model=spy)
    assert np.isfinite(result.filled).all()
    truth = waves(10, 300, share=0)
    assert np.abs(result.filled - truth).max() < 1
    for xc, xt in seen:
        assert xc.shape[1] <= TILE_CONTEXT_CELLS[2]
        reach = (xc[0].amax(0) - xc[0].amin(0)).numpy()
        assert reach[1] < 60 * reach[0] / 10
        inside = (xt[0] >= xc[0].amin(0) - 1e-4) & (xt[0] <= xc[0].amax(0) + 1e-4)
        assert inside.float().mean() > 0.9


def test_distances_follow_how_fast_values_change():
    field = np.sin(np.arange(40) / 8)[:, None] + np.sin(np.arange(50) / 2)
    rough = roughness(field, 0)
    assert rough[1] / rough[0] == pytest.approx(4, rel=0.15)
    assert roughness(field * np.array([0.0, 1.0])[:, None, None], 1) == pytest.approx(rough)
    assert (roughness(np.full((5, 5), 3.0), 0) == 1).all()
    assert (roughness(np.full((5, 5), np.nan), 0) == 1).all()


def test_longitude_is_periodic_where_it_covers_the_circle(tmp_path, command):
    lon = np.arange(0, 360, 10.0)
    y = np.cos(np.radians(lon)) + np.linspace(0, 1, 8)[:, None]
    y[2:5, [0, 1, 20, 35]] = np.nan
    data = xr.Dataset({"t": (("lat", "lon"), y)}, {"lat": np.linspace(-30, 30, 8), "lon": lon})
    data["lon"].attrs["units"] = "degrees_east"
    here = fillin.fill(data, model=KernelMean())["t_filled"]
    rolled = data.roll(lon=7, roll_coords=True)
    rolled = rolled.assign_coords(lon=("lon", (rolled["lon"].values + 180) % 360 - 180)).sortby("lon")
    there = fillin.fill(rolled, model=KernelMean(), period={"lon": 360})["t_filled"]
    there = there.assign_coords(lon=there["lon"] % 360).sortby("lon")
    np.testing.assert_allclose(there.values, here.values, atol=2e-3)
    open_ended = fillin.fill(data.rename(lon="east").drop_attrs(), model=KernelMean())["t_filled"]
    assert np.abs(open_ended.values - here.values).max() > 0.02
    write_dataset(data, tmp_path / "round.nc")
    assert "lon covers 360 degrees: treated as periodic" in command(tmp_path / "round.nc")[0]


def test_a_periodic_observation_is_seen_where_it_is_nearest():
    spy = Plane()
    x = np.array([[10.0, 0], [350, 0], [180, 1]])
    context = Context(spy, x, np.ones((3, 1)), scale=np.array([1.0, 1.0]), period=np.array([360.0, 0]))
    context.predict(np.array([[355.0, 0]]), groups=[(np.array([0]), np.array([355.0, 0]))])
    xc, xt = spy.calls[-1]
    assert (xc[:, 0] - xt[0, 0]).round().tolist() == [15, -5, -175]


def test_one_dimension_is_a_curve(model):
    times = pd.date_range("2024-01-01", periods=30)
    data = xr.DataArray(waves(2, 30), dims=("station", "time"), coords={"station": ["a", "b"], "time": times}, name="v")
    small = fillin.create("filler", size="small", layers=1, width=16, heads=2, hidden=16).eval()
    result = fillin.fill(data, model=small, fill_always_missing=True)
    assert result["v_filled"].notnull().all()
    with pytest.raises(InputError, match="needs 1 and 1"):
        fillin.fill(data, model=model)


def test_intervals_stay_within_bounds(model):
    data = sea().isel(time=0)
    data["sst"] = data["sst"] - data["sst"].min()
    free, bound = (
        fillin.fill(data, model=model, level=0.999),
        fillin.fill(data, model=model, bounds=(0, None), level=0.999),
    )
    assert free["sst_low"].min() < 0
    assert bound["sst_low"].min() >= 0
    with pytest.raises(InputError, match=r"variable 'sst' at lat=.*, lon=.*lies outside bounds;"):
        fillin.fill(data, model=model, bounds=(3, None))


def test_a_report_and_figures(tmp_path, command):
    write_dataset(sea(), tmp_path / "sea.nc")
    command(tmp_path / "sea.nc", "--report")
    assert (tmp_path / "sea.filled.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "sea.filled.html").read_text()
    for word in (
        "skill",
        "in 95 %",
        *PATTERNS,
        "data:image/png;base64,",
        "lat and lon are the location",
        "stay missing",
    ):
        assert word in page


def test_holdout_scores_of_an_exact_process():
    random = np.random.default_rng(0)
    y, x = (v.ravel() for v in np.meshgrid(np.arange(14), np.arange(14), indexing="ij"))
    square = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2
    drawn = np.linalg.cholesky(np.exp(-0.5 * square / 9) + 0.01 * np.eye(len(x))) @ random.standard_normal((len(x), 3))
    field = drawn.T.reshape(3, 14, 14)
    field[:, 3, 4] = np.nan

    class ScaledProcess(Plane):
        def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
            scale = 1 / float(np.nanmax(np.abs(field)))
            self.exact = ExactProcess(3.0, scale, 0.1 * scale).exact
            return super().forward(xc, yc, xt)

    data = xr.Dataset({"v": (("t", "y", "x"), field)})
    layout = make_layout(dataset_variable(data, "v", "here"), over=["y", "x"], fill_always_missing=True)
    scores = score_holdout(holdout_fields(layout), ScaledProcess())
    assert [score.name for score in scores] == list(PATTERNS)
    for score in scores:
        assert score.skill > 0.1
        assert 0.8 < score.coverage_95 <= 1


def test_calendars_of_models(model):
    times = xr.date_range("2000-01-01", periods=3, calendar="360_day", use_cftime=True)
    data = sea().assign_coords(time=times)
    assert fillin.fill(data, model=model)["sst_filled"].notnull().any()
    axis = coordinate_axis("time", times.values, {}, "here")
    assert axis.x.tolist() == [0, 1, 2]


def test_groups_are_noted(tmp_path, command):
    path = tmp_path / "sea.nc"
    write_dataset(sea(), path)
    xr.Dataset({"a": 1}).to_netcdf(path, mode="a", group="deep")
    assert "the groups deep are not copied" in command(path)[0]
