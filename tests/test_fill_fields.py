"""Fields of NetCDF, Zarr and xarray: what is kept, what is added, and that blocks change nothing."""

import os
import re
import signal
import subprocess
import sys

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from gappy import PARTS, sea, waves
from helpers import ExactProcess
from torch.distributions import Normal

import fillin
from fillin.errors import FillinError, InputError
from fillin.filling.fields.axes import axis_of
from fillin.filling.fields.datasets import dataset_variable
from fillin.filling.fields.judge import field_subjects
from fillin.filling.fields.plan import plan_field, roughness
from fillin.filling.fields.run import fill_field, reach
from fillin.filling.hidden import WAYS, verdicts
from fillin.filling.known import Known

pytest_plugins = ["fields"]


def stored(data: xr.Dataset, path, **options) -> None:
    if path.suffix == ".zarr":
        version = options.get("zarr_format", 3)
        data.to_zarr(path, zarr_format=version, consolidated=version == 2)
    else:
        data.to_netcdf(path, **options)


def read(path) -> xr.Dataset:
    options = {"engine": "netcdf4"}
    if path.suffix == ".zarr":
        options = {"engine": "zarr", "chunks": None, "consolidated": (path / ".zmetadata").exists()}
    with xr.open_dataset(path, **options) as data:
        return data.load()


@pytest.mark.parametrize("name", ["sea.nc", "sea.zarr"])
def test_all_is_kept_and_four_variables_are_added(name, tmp_path, command):
    data, path, out = sea(), tmp_path / name, tmp_path / name.replace(".", ".filled.")
    stored(data, path)
    said, _ = command(path)
    assert "a field sst over lat (12) × lon (16), each time on its own (3 of them)" in said
    assert "12 cells of the field are missing in every slice, as land is, and stay missing" in said
    assert f"wrote {out}" in said
    before, after = read(path), read(out)
    xr.testing.assert_identical(after[list(before.data_vars)], before)
    assert set(after.data_vars) - set(before.data_vars) == {f"sst_{part}" for part in PARTS}
    assert after["sst"].encoding["_FillValue"] == before["sst"].encoding["_FillValue"]
    known, land = before["sst"].notnull(), before["sst"].isnull().all("time")
    filled, std, low, high = (after[f"sst_{part}"] for part in PARTS)
    for part in (filled, std, low, high):
        assert part.dims == before["sst"].dims
        assert part.dtype == np.float32
        assert part.attrs["units"] == "degC"
        assert (part.isnull() == land).all()
    for part in (filled, low, high):
        assert (part == before["sst"]).where(known, True).all()
    assert ((std == 0) == known).where(~land, True).all()
    assert (low < high).where(~known & ~land, True).all()
    assert "standard deviation of sea temperature" in std.attrs["long_name"]
    assert sorted(os.listdir(tmp_path)) == sorted([name, out.name])


def test_formats_and_packing_and_unlimited_dimensions_stay(tmp_path, command):
    data = sea()
    data["sst"].encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 10.0, "_FillValue": np.int16(-9999)}
    path = tmp_path / "old.nc"
    stored(data, path, format="NETCDF3_CLASSIC", unlimited_dims=["time"])
    command(path)
    after, before = read(tmp_path / "old.filled.nc"), read(path)
    xr.testing.assert_identical(after["sst"], before["sst"])
    assert after["sst"].encoding["dtype"] == np.int16
    assert after.encoding["unlimited_dims"] == {"time"}
    assert after["sst_filled"].encoding["dtype"].kind == "f"  # what is filled has more digits than were packed
    with open(tmp_path / "old.filled.nc", "rb") as file:
        assert file.read(3) == b"CDF"


def test_zarr_of_either_format(tmp_path, command):
    for version in (2, 3):
        path = tmp_path / f"v{version}.zarr"
        stored(sea(), path, zarr_format=version)
        command(path)
        out = tmp_path / f"v{version}.filled.zarr"
        assert (out / "zarr.json").exists() == (version == 3)
        assert "sst_std" in read(out)


def test_land_is_what_a_mask_says_or_nothing(tmp_path, command):
    data, path = sea(), tmp_path / "sea.nc"
    stored(data, path)
    command(path, "--mask", "ocean")
    filled = read(tmp_path / "sea.filled.nc")["sst_filled"]
    wanted = data["ocean"].astype(bool) | data["sst"].notnull()
    assert (filled.notnull() == wanted).all()
    stored(data["ocean"].to_dataset(), tmp_path / "mask.nc")
    command(path, "--mask", str(tmp_path / "mask.nc"), "-o", str(tmp_path / "two.nc"))
    xr.testing.assert_identical(read(tmp_path / "two.nc")["sst_filled"], filled)
    command(path, "--fill-always-missing", "-o", str(tmp_path / "three.nc"))
    assert read(tmp_path / "three.nc")["sst_filled"].notnull().all()


def test_without_slices_everything_is_filled(model):
    found = fillin.fill(sea().isel(time=0), model=model)
    assert found["sst_filled"].notnull().all()


def test_slices_are_filled_each_on_its_own_whatever_the_order_of_dimensions(model):
    data = sea()
    whole = fillin.fill(data, model=model)
    one = fillin.fill(data.isel(time=[1]), var="sst", model=model, fill_always_missing=True)
    close = {"rtol": 1e-5, "atol": 1e-5}
    land = data["sst"].isnull().all("time")
    xr.testing.assert_allclose(one["sst_filled"].where(~land), whole["sst_filled"].isel(time=[1]), **close)
    turned = fillin.fill(data.transpose("lon", "time", "lat"), over=["lat", "lon"], model=model)
    assert turned["sst_filled"].dims == ("lon", "time", "lat")


def test_descending_coordinates_and_their_units_do_not_matter(model):
    data = sea().isel(time=0)
    plain = fillin.fill(data, model=model)["sst_filled"]
    scaled = data.assign_coords(lat=data["lat"] * 1e5 + 7e6, lon=data["lon"] * 1e-3)
    other = fillin.fill(scaled, model=model)["sst_filled"]
    np.testing.assert_allclose(other.values, plain.values, atol=2e-4)
    turned = fillin.fill(data.isel(lat=slice(None, None, -1)), model=model)["sst_filled"]
    np.testing.assert_allclose(turned.values[::-1], plain.values, atol=2e-4)


class Plane(ExactProcess):
    """A Gaussian process of two dimensions that remembers what it was asked."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.dim_x, self.asked = 2, []

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        self.asked.append((xc[0].numpy(), xt[0].numpy()))
        return super().forward(xc, yc, xt)


class Mean(ExactProcess):
    """The weighted mean of what is near, in units of distance: a quick stand-in that sees its whole context."""

    def __init__(self, dims=2):
        super().__init__()
        self.dim_x = dims

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        weight = torch.exp(-0.5 * torch.cdist(xt.double(), xc.double()) ** 2) + 1e-9
        mean = (weight @ yc.double()) / weight.sum(-1, keepdim=True)
        return Normal(mean.float(), 0.1 + 0 * mean.float())


def test_neighbours_are_few_and_around():
    """A strip of 10 × 300 cells is not seen as slivers: what fills a cell lies around it, in cells."""
    spy, data = Mean(), waves(10, 300, share=0.4)
    seen = []
    forward = spy.forward
    spy.forward = lambda xc, yc, xt, mask_c=None, mask_t=None: (seen.append((xc, xt)), forward(xc, yc, xt))[1]
    found = fillin.fill(data, model=spy)
    assert np.isfinite(found.filled).all()
    truth = waves(10, 300, share=0)
    assert np.abs(found.filled - truth).max() < 1
    for xc, xt in seen:
        assert xc.shape[1] <= 256
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


def test_longitude_goes_round_where_it_covers_the_circle(tmp_path, command):
    lon = np.arange(0, 360, 10.0)
    y = np.cos(np.radians(lon)) + np.linspace(0, 1, 8)[:, None]
    y[2:5, [0, 1, 20, 35]] = np.nan
    data = xr.Dataset({"t": (("lat", "lon"), y)}, {"lat": np.linspace(-30, 30, 8), "lon": lon})
    data["lon"].attrs["units"] = "degrees_east"
    here = fillin.fill(data, model=Mean())["t_filled"]
    rolled = data.roll(lon=7, roll_coords=True)
    rolled = rolled.assign_coords(lon=("lon", (rolled["lon"].values + 180) % 360 - 180)).sortby("lon")
    there = fillin.fill(rolled, model=Mean(), period={"lon": 360})["t_filled"]
    there = there.assign_coords(lon=there["lon"] % 360).sortby("lon")
    np.testing.assert_allclose(there.values, here.values, atol=2e-3)
    open_ended = fillin.fill(data.rename(lon="east").drop_attrs(), model=Mean())["t_filled"]
    assert np.abs(open_ended.values - here.values).max() > 0.02
    stored(data, tmp_path / "round.nc")
    assert "lon covers 360 degrees: it goes round" in command(tmp_path / "round.nc")[0]


def test_what_goes_round_is_seen_where_it_is_nearest():
    spy = Plane()
    x = np.array([[10.0, 0], [350, 0], [180, 1]])
    known = Known(spy, x, np.ones((3, 1)), scale=np.array([1.0, 1.0]), period=np.array([360.0, 0]))
    known.at(np.array([[355.0, 0]]), pieces=[(np.array([0]), np.array([355.0, 0]))])
    xc, xt = spy.asked[-1]
    assert (xc[:, 0] - xt[0, 0]).round().tolist() == [15, -5, -175]


@pytest.mark.parametrize("round_", [False, True])
@pytest.mark.parametrize("size", [13, 25])
def test_blocks_change_nothing_where_they_see_enough(round_, size):
    """Far more known cells than one context takes, in blocks that cut tiles in two."""
    data = xr.DataArray(waves(36, 44), dims=("y", "x"), coords={"y": np.arange(36.0), "x": np.arange(44.0)}, name="v")
    data[8:14, 20:27] = np.nan
    period = {"x": 44.0} if round_ else None
    whole = fillin.fill(data, model=Mean(), period=period)
    blocks = fillin.fill(data, model=Mean(), period=period, chunks={"y": size, "x": size}, halo=44)
    assert isinstance(blocks["v_filled"].data, da.Array)
    assert max(blocks["v_filled"].data.chunks[0]) == size
    for part in PARTS:
        np.testing.assert_allclose(blocks[f"v_{part}"].values, whole[f"v_{part}"].values, rtol=1e-6)
    by_itself = fillin.fill(data, model=Mean(), period=period, chunks={"y": size, "x": size})
    off = np.abs(by_itself["v_filled"].values - whole["v_filled"].values)
    assert off.max() < 1e-3, "the default halo covers what a place needs"


def test_a_halo_that_is_too_small_shows_only_near_seams():
    data = xr.DataArray(waves(60, 60), dims=("y", "x"), name="v")
    whole = fillin.fill(data, model=Mean())["v_filled"].values
    blocks = fillin.fill(data, model=Mean(), chunks={"y": 30, "x": 30}, halo=1)["v_filled"].values
    off = np.abs(blocks - whole)
    assert 1e-7 < off.max() < 0.5
    far = np.abs(np.arange(60) - 29.5) > 10
    assert off[np.ix_(far, far)].max() < 0.1 * off.max() + 1e-6


def test_a_gap_wider_than_a_block_is_filled_from_afar():
    values = waves(100, 20, share=0.1)
    values[20:, :] = np.nan
    found = fillin.fill(values, model=Mean(), chunks={0: 25, 1: 20}, halo=2)
    assert np.isfinite(found.filled).all()


def test_lazy_stays_lazy_and_is_the_same(model):
    data = sea()
    wanted = fillin.fill(data, model=model)
    lazy = fillin.fill(data.chunk({"time": 1, "lat": 5}), model=model)
    assert all(isinstance(lazy[f"sst_{part}"].data, da.Array) for part in PARTS)
    with dask.config.set(scheduler="synchronous"):
        xr.testing.assert_allclose(lazy.compute(), wanted, rtol=1e-4)


@pytest.mark.parametrize("name", ["sea.nc", "sea.zarr"])
def test_blocks_of_files(name, tmp_path, command):
    path = tmp_path / name
    stored(sea(times=2, lat=18, lon=20), path)
    command(path, "-o", str(tmp_path / ("one" + path.suffix)))
    said, _ = command(
        path,
        "--chunks",
        "lat=7,lon=9",
        "-o",
        str(tmp_path / ("two" + path.suffix)),
        *(["--picture"] if name == "sea.nc" else []),
    )
    assert ("two.png" in said) == (name == "sea.nc")
    one, two = read(tmp_path / ("one" + path.suffix)), read(tmp_path / ("two" + path.suffix))
    xr.testing.assert_allclose(two, one, rtol=1e-3)


def test_three_dimensions_at_once():
    data = xr.DataArray(waves(6, 9, 10), dims=("t", "y", "x"), name="v")
    found = fillin.fill(data, over=["t", "y", "x"], model=Mean(3))
    assert found["v_filled"].notnull().all()
    assert np.abs(found["v_filled"] - waves(6, 9, 10, share=0)).max() < 2
    blocks = fillin.fill(data, over=["t", "y", "x"], model=Mean(3), chunks={"x": 4}, halo=10)
    np.testing.assert_allclose(blocks["v_filled"].values, found["v_filled"].values, rtol=1e-6)


def test_one_dimension_is_a_curve(model):
    times = pd.date_range("2024-01-01", periods=30)
    data = xr.DataArray(waves(2, 30), dims=("station", "time"), coords={"station": ["a", "b"], "time": times}, name="v")
    small = fillin.create("filler", size="small", layers=1, width=16, heads=2, hidden=16).eval()
    found = fillin.fill(data, model=small, fill_always_missing=True)
    assert found["v_filled"].notnull().all()
    with pytest.raises(InputError, match="needs 1 and 1"):
        fillin.fill(data, model=model)


def test_bands_stay_within_bounds(model):
    data = sea().isel(time=0)
    data["sst"] = data["sst"] - data["sst"].min()
    free, bound = (
        fillin.fill(data, model=model, level=0.999),
        fillin.fill(data, model=model, bounds=(0, None), level=0.999),
    )
    assert free["sst_low"].min() < 0
    assert bound["sst_low"].min() >= 0
    with pytest.raises(InputError, match=r"variable 'sst' at lat=.*, lon=.*lies outside --bounds"):
        fillin.fill(data, model=model, bounds=(3, None))


def test_a_page_and_pictures(tmp_path, command):
    stored(sea(), tmp_path / "sea.nc")
    command(tmp_path / "sea.nc", "--report")
    assert (tmp_path / "sea.filled.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "sea.filled.html").read_text()
    for word in ("skill", "in 95 %", *WAYS, "data:image/png;base64,", "lat and lon say where", "stay missing"):
        assert word in page


def test_the_verdict_on_an_exact_process():
    random = np.random.default_rng(0)
    y, x = (v.ravel() for v in np.meshgrid(np.arange(14), np.arange(14), indexing="ij"))
    square = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2
    drawn = np.linalg.cholesky(np.exp(-0.5 * square / 9) + 0.01 * np.eye(len(x))) @ random.standard_normal((len(x), 3))
    field = drawn.T.reshape(3, 14, 14)
    field[:, 3, 4] = np.nan

    class Told(Plane):
        def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
            scale = 1 / float(np.nanmax(np.abs(field)))
            self.exact = ExactProcess(3.0, scale, 0.1 * scale).exact
            return super().forward(xc, yc, xt)

    data = xr.Dataset({"v": (("t", "y", "x"), field)})
    plan = plan_field(dataset_variable(data, "v", "here"), over=["y", "x"], fill_always_missing=True)
    found = verdicts(field_subjects(plan, Told()))
    assert [verdict.way for verdict in found] == list(WAYS)
    for verdict in found:
        assert verdict.skill > 0.1
        assert 0.8 < verdict.inside_95 <= 1


BAD = {
    "no such variable": (sea(), ["--var", "ssst"], "unknown variable of data.nc 'ssst'; did you mean 'sst'"),
    "text": (sea().assign(w=("lat", np.array(list("abcdefghijkl")))), ["--var", "w"], "'w' has text; only numbers"),
    "all missing": (sea().assign(sst=sea()["sst"] * np.nan), [], "'sst' is missing everywhere: nothing is known"),
    "several": (sea().assign(b=sea()["sst"]), [], r"several variables with gaps: sst \(time, lat, lon\), b .*--var"),
    "no floats": (sea()[["count"]], [], r"no variable of floating-point numbers.*count \(int64\)"),
    "chunks of another": (sea(), ["--chunks", "lta=3"], "in --chunks, 'lta'; did you mean 'lat'"),
    "chunks of nothing": (sea(), ["--chunks", "lat"], "'lat' is no size of a dimension; write lat=200"),
    "over another": (sea(), ["--over", "lat,depth"], "in --over, 'depth'"),
    "over one twice": (sea(), ["--over", "lat,lat"], "a field spans one, two or three"),
    "NaN in a coordinate": (
        sea().assign_coords(lat=np.where(np.arange(12) == 3, np.nan, np.arange(12.0))),
        [],
        "data.nc: coordinate 'lat' has nan at 3: no place",
    ),
    "no order": (
        sea().assign_coords(lat=np.r_[0.0, 2, 1, 3:12]),
        [],
        r"'lat' neither only rises nor only falls: 2.0, then 1.0 at 2; sort it \(ds.sortby\('lat'\)\)",
    ),
    "twice": (sea().assign_coords(lat=np.r_[0.0, 1, 1, 3:12]), [], "'lat' neither only rises"),
    "curved": (
        sea().drop_vars("lat").assign_coords(nav=(("lat", "lon"), np.ones((12, 16)))),
        [],
        r"'lat' has no coordinate of its own; nav are curved.*drop_vars\(\['nav'\]\)",
    ),
    "filled before": (sea().assign(sst_std=sea()["sst"]), ["--var", "sst"], "already has a variable 'sst_std'"),
    "infinity": (
        sea().assign(sst=sea()["sst"].where(sea()["lat"] != 38, np.inf)),
        [],
        "variable 'sst' at lat=38, lon=-10: inf is not finite",
    ),
    "no mask": (sea(), ["--mask", "see"], "--mask see is neither a variable"),
    "a mask that does not fit": (sea().assign(w="North"), ["--mask", "w"], "--mask w has .*not numbers"),
    "a mask of nothing": (sea().assign(no=sea()["ocean"] * 0), ["--mask", "no"], "is 0 everywhere"),
    "a period of nothing": (sea(), ["--period", "360"], "does not say which dimension goes round; write lon=360"),
    "a period of another": (sea(), ["--period", "long=360"], "in --period, 'long'; did you mean 'lon'"),
    "more than a turn": (sea(), ["--period", "lon=20"], "it goes from -10 to 20, over a turn"),
    "an option of tables": (sea(), ["--every", "1d"], "--every does not apply to a field"),
    "another option of tables": (sea(), ["--y-err", "e"], "--y-err does not apply"),
    "bounds of another": (sea(), ["--bounds", "x=0:"], "unknown column"),
    "a level": (sea(), ["--level", "95"], "between 0 and 1"),
    "no model": (sea(), ["--model", "nowhere"], "there is no model 'nowhere'"),
    "a model of curves": (sea(), ["--model", "curve"], "dim_x=1, dim_y=1; a field over two dimensions needs 2 and 1"),
    "another ending": (sea(), ["-o", "out.zarr"], "let its name end in .nc"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_clear_error_and_nothing_written(case, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, words, message = BAD[case]
    stored(data, tmp_path / "data.nc")
    before = (tmp_path / "data.nc").read_bytes()
    _, wrong = command(tmp_path / "data.nc", *words, code=2)
    assert re.search(message, wrong), wrong
    assert len(wrong.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == ["data.nc"]
    assert (tmp_path / "data.nc").read_bytes() == before


def test_files_that_are_none(tmp_path, command):
    assert "there is no file" in command(tmp_path / "none.nc", code=2)[1]
    assert "there is no folder" in command(tmp_path / "none.zarr", code=2)[1]
    (tmp_path / "bad.nc").write_bytes(b"CDF, or not")
    assert "bad.nc is not a readable NetCDF file" in command(tmp_path / "bad.nc", code=2)[1]
    (tmp_path / "bad.zarr").mkdir()
    assert "bad.zarr is not a readable Zarr folder" in command(tmp_path / "bad.zarr", code=2)[1]
    (tmp_path / "folder.nc").mkdir()
    assert "is a folder; name a file in it" in command(tmp_path / "folder.nc", code=2)[1]
    (tmp_path / "t.csv").write_text("t,y\n1,2\n2,\n")
    assert "--over does not apply to a table" in command(tmp_path / "t.csv", "--over", "t", code=2)[1]


def test_a_damaged_file_is_told_with_its_variable(tmp_path, command):
    path = tmp_path / "sea.zarr"
    stored(sea(), path)
    for part in (path / "sst" / "c").rglob("*"):
        if part.is_file():
            part.write_bytes(b"noise")
    assert "variable 'sst' cannot be read" in command(path, "--var", "sst", code=2)[1]


def test_nothing_missing_says_so(tmp_path, command):
    stored(sea().fillna(1.0), tmp_path / "whole.nc")
    assert "nothing is missing: nothing was done" in command(tmp_path / "whole.nc")[0]
    data = sea()
    stored(data.assign(sst=data["sst"].fillna(1.0).where(data["ocean"] == 1)), tmp_path / "land.nc")
    assert "nothing is missing but that" in command(tmp_path / "land.nc")[0]
    assert sorted(os.listdir(tmp_path)) == ["land.nc", "whole.nc"]


@pytest.mark.parametrize("name", ["sea.nc", "sea.zarr"])
def test_nothing_is_replaced_without_leave(name, tmp_path, command):
    path = tmp_path / name
    stored(sea(), path)
    command(path)
    assert "exists; replace it with --force" in command(path, code=2)[1]
    command(path, "--force")
    assert "is the input, which is never touched" in command(path, "-o", str(path), "--force", code=2)[1]
    other = tmp_path / f"mine{path.suffix}"
    other.mkdir()
    (other / "precious.txt").write_text("mine")
    assert "is a folder" in command(path, "-o", str(other), "--force", code=2)[1]
    assert (other / "precious.txt").read_text() == "mine"
    if path.suffix == ".zarr":
        assert "lies in the input" in command(path, "-o", str(path / "sub.zarr"), code=2)[1]


def test_no_permission_to_write(tmp_path, command, monkeypatch):
    stored(sea(), tmp_path / "sea.zarr")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    _, wrong = command(tmp_path / "sea.zarr", code=2)
    assert "Permission denied; name another place with -o" in wrong
    assert os.listdir(tmp_path) == ["sea.zarr"]


def test_killed_while_writing_leaves_nothing_in_its_place(tmp_path, folder):
    path = tmp_path / "sea.zarr"
    stored(sea(), path)
    code = (
        "import os, sys; from fillin.cli import main\n"
        "os.rename = lambda *_: os.kill(os.getpid(), 9)  # all is written beside, and not yet renamed\n"
        "main(sys.argv[1:])"
    )
    words = ["fill", str(path), "--model", str(folder), "--no-picture"]
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "sea.filled.zarr").exists()
    xr.testing.assert_identical(read(path), sea())


def test_calendars_of_models(model):
    times = xr.date_range("2000-01-01", periods=3, calendar="360_day", use_cftime=True)
    data = sea().assign_coords(time=times)
    assert fillin.fill(data, model=model)["sst_filled"].notnull().any()
    axis = axis_of("time", times.values, {}, "here")
    assert axis.x.tolist() == [0, 1, 2]


def test_groups_are_told_of(tmp_path, command):
    path = tmp_path / "sea.nc"
    stored(sea(), path)
    xr.Dataset({"a": 1}).to_netcdf(path, mode="a", group="deep")
    assert "the groups deep are not copied" in command(path)[0]


def test_without_the_extra_it_says_what_to_install(tmp_path, command, monkeypatch):
    stored(sea(), tmp_path / "sea.nc")
    monkeypatch.setitem(sys.modules, "xarray", None)
    assert "pip install 'fillin[fields]'" in command(tmp_path / "sea.nc", code=2)[1]


def test_cells_of_a_block_and_its_halo():
    assert reach(np.arange(4, 6), 2, 8, False).tolist() == [2, 3, 4, 5, 6, 7]
    assert reach(np.arange(4, 6), 3, 8, True).tolist() == list(range(8))
    assert reach(np.arange(6, 8), 2, 8, True).tolist() == [4, 5, 6, 7, 0, 1]
    assert reach(np.arange(0, 3), 9, 8, False).tolist() == list(range(8))


def test_any_cluster_of_dask(tmp_path, folder):
    """Workers of another process get the model by value, and give the same."""
    from distributed import Client, LocalCluster

    data = sea(times=2)
    small = fillin.load(folder)
    wanted = fillin.fill(data, model=small)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        found = fillin.fill(data, model=small, chunks={"lat": 6}).compute()
        xr.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.usefixtures("unchecked")
def test_options_of_python(model):
    data = sea()
    with pytest.raises(InputError, match="x= does not apply to an array or a field"):
        fillin.fill(data, x="lat", model=model)
    with pytest.raises(InputError, match="over= does not apply to a table"):
        fillin.fill(pd.DataFrame({"t": [1, 2], "y": [1.0, None]}), over="t")
    with pytest.raises(InputError, match="period of a field says of which dimension"):
        fillin.fill(data, period=360, model=model)
    with pytest.raises(FillinError, match="there is no model 'nowhere'"):
        fillin.fill(data, model="nowhere")
    assert fillin.fill(data.fillna(0.0), model=model).identical(data.fillna(0.0))
    assert fill_field(plan_field(dataset_variable(data, "count", "here")), model)[1].max() == 0
