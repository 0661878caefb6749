"""`fillin fill` with several --x: files, maps, pictures, reports, and errors that write nothing."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from support.scattered_points import BOUND_COLUMNS, surface, wells

import fillin
from fillin.cli import main
from fillin.errors import InputError
from fillin.filling.plan import make_plan

pytest_plugins = ["support.field_command"]
X = ["--x", "lon", "--x", "lat"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "wells.csv"
    wells().to_csv(path, index=False)
    return path


def test_every_byte_is_kept_and_four_columns_are_added(tmp_path, command):
    content = (
        '# wells\r\nid;lon;lat;v\r\n"a;1";8,50;51;2,50\r\nb;9;51,5;\r\nc;8,7;52;3e0\r\nd;8,2;51,25;NA\r\ne;9;52;1\r\n'
    )
    path = tmp_path / "wells.csv"
    path.write_bytes(content.encode())
    command(path, *X)
    before, after = content.encode(), (tmp_path / "wells.filled.csv").read_bytes()
    assert path.read_bytes() == before
    rows, old = after.decode().split("\r\n"), content.split("\r\n")
    assert rows[:2] == ["# wells", "id;lon;lat;v;v_filled;v_std;v_low;v_high"]
    for new, row in zip(rows[2:-1], old[2:-1], strict=True):
        assert new.startswith(row + ";")
    assert rows[2].endswith(";2,50;2,50;0;2,50;2,50")
    assert all(float(cell.replace(",", ".")) is not None for cell in rows[3].split(";")[4:])


def test_a_map_a_picture_and_a_report(path, command, tmp_path):
    out, _ = command(path, *X, "--y", "nitrate", "--grid", "0.05", "--report", "--figure")
    assert "scattered observations over lon (" in out
    assert "cells of lon and lat" in out
    assert sorted(os.listdir(tmp_path)) == [
        "wells.csv", "wells.filled.csv", "wells.filled.html", "wells.filled.png", "wells.grid.nc"
    ]  # fmt: skip
    assert (tmp_path / "wells.filled.png").stat().st_size > 20_000
    page = (tmp_path / "wells.filled.html").read_text()
    for word in ("skill", "points at random", "blocks", "Equal distances for nitrate", "--grid 0.05"):
        assert word in page
    with xr.open_dataset(tmp_path / "wells.grid.nc") as grid:
        assert set(grid.data_vars) == {"nitrate", "nitrate_std", "nitrate_low", "nitrate_high"}
        assert grid["nitrate"].dims == ("lat", "lon")
        frame = wells()
        for name in ("lon", "lat"):
            axis = grid[name].to_numpy()
            np.testing.assert_allclose(axis / 0.05, np.round(axis / 0.05), atol=1e-6)
            assert axis[0] <= frame[name].min() < axis[1]
            assert axis[-2] < frame[name].max() <= axis[-1]
        assert (grid["nitrate_low"] < grid["nitrate"]).all()
        assert (grid["nitrate_std"] > 0).all()
        assert "95 % prediction interval" in grid["nitrate_low"].attrs["long_name"]


def test_parquet_locations_of_a_file_and_steps_by_name(tmp_path, command):
    path, at = tmp_path / "wells.parquet", tmp_path / "at.csv"
    wells().to_parquet(path)
    at.write_text("lat,lon,note\n0.5,0.25,a\n0.75,0.5,b\n")
    command(path, *X, "--at", str(at), "--grid", "lon=0.2", "--grid", "lat=0.1", "-o", str(tmp_path / "out.parquet"))
    filled = pd.read_parquet(tmp_path / "out.parquet")
    assert filled[["lon", "lat"]][-2:].to_numpy().tolist() == [[0.25, 0.5], [0.5, 0.75]]
    assert filled[BOUND_COLUMNS].notna().all(axis=None)
    with xr.open_dataset(tmp_path / "out.grid.nc") as grid:
        np.testing.assert_allclose(np.diff(grid["lon"]), 0.2)
        np.testing.assert_allclose(np.diff(grid["lat"]), 0.1)


def test_a_map_agrees_with_the_truth_and_with_new_rows():
    frame, at = wells(600, 0), pd.DataFrame({"lon": [0.4, 0.6], "lat": [0.5, 0.5]})
    filled, grid = fillin.fill(frame, x=["lon", "lat"], y="nitrate", grid={"lon": 0.1, "lat": 0.1}, at=at)
    assert type(filled) is pd.DataFrame
    cells = grid.sel(lon=[0.4, 0.6], lat=0.5, method="nearest")
    np.testing.assert_allclose(cells["nitrate"], filled["nitrate_filled"][-2:], rtol=1e-5)
    np.testing.assert_allclose(cells["nitrate_high"], filled["nitrate_high"][-2:], rtol=1e-5)
    lon, lat = np.meshgrid(grid["lon"], grid["lat"])
    inside = grid["nitrate_std"].to_numpy() < 0.1
    error = grid["nitrate"].to_numpy() - surface(np.stack([lon.ravel(), lat.ravel()], 1)).reshape(lon.shape)
    assert inside.sum() > 10
    assert np.sqrt(np.mean(error[inside] ** 2)) < 0.1


def test_a_map_has_no_seams():
    """No step between neighbouring cells is much larger than those beside it."""
    frame = wells(900, 0, seed=3)
    _, grid = fillin.fill(frame, x=["lon", "lat"], y="nitrate", grid=0.01)
    certain = grid["nitrate_std"].to_numpy() < 0.2
    bends = np.abs(np.diff(grid["nitrate"].to_numpy(), n=2, axis=1))[certain[:, 1:-1]]
    assert bends.max() < 0.1


def test_maps_over_time_and_of_uncertain_cells(model):
    frame = wells(100, 5).assign(day=pd.Timestamp("2024-01-03") + pd.to_timedelta(np.arange(100) % 9, "D"))
    options = {"x": ["lon", "day"], "y": "nitrate", "grid": {"lon": 0.5, "day": "2d"}}
    _, grid = fillin.fill(frame, model=model, **options)
    assert grid["nitrate"].dims == ("day", "lon")
    assert grid["day"].to_numpy()[0] <= np.datetime64("2024-01-03")
    assert (np.diff(grid["day"]) == np.timedelta64(2, "D")).all()
    limit = float(grid["nitrate_std"].median())
    _, certain = fillin.fill(frame, model=model, max_std=limit, **options)
    assert (certain["nitrate"].isnull() == (grid["nitrate_std"] > limit)).all()


def test_pieces_of_a_map_change_nothing(model, monkeypatch):
    from fillin.filling.scattered import grid_map, points

    frame = wells(400, 60)
    whole = fillin.fill(frame, x=["lon", "lat"], y="nitrate", grid=0.05, model=model)
    monkeypatch.setattr(grid_map, "_BLOCK_CELLS", 50)
    monkeypatch.setattr(points, "_MAX_QUERIES_HELD", 7)
    pieces = fillin.fill(frame, x=["lon", "lat"], y="nitrate", grid=0.05, model=model)
    np.testing.assert_allclose(pieces.map["nitrate"], whole.map["nitrate"], rtol=1e-5)
    np.testing.assert_allclose(pieces.frame[BOUND_COLUMNS], whole.frame[BOUND_COLUMNS], rtol=1e-5)


@pytest.mark.parametrize("columns", [["lon", "lat", "depth"], ["depth", "lat"], ["lon", "day"]])
def test_pictures_of_other_coordinates(columns, tmp_path, command):
    frame = wells(60, 6).assign(depth=np.arange(60) % 7, day=[f"2024-01-{1 + i % 28:02d}" for i in range(60)])
    path = tmp_path / "wells.csv"
    frame.to_csv(path, index=False)
    names = [word for name in columns for word in ("--x", name)]
    model = ["--model", "radial"] if len(columns) == 3 else []
    command(path, *names, "--y", "nitrate", "--figure", *model)
    assert (tmp_path / "wells.filled.png").stat().st_size > 10_000
    steps = [word for name in columns for word in ("--grid", f"{name}={'9d' if name == 'day' else 0.5}")]
    command(path, *names, "--y", "nitrate", "--figure", "--force", *steps, *model)
    assert (tmp_path / "wells.grid.nc").exists()


def test_complete_data_are_noted_and_not_written(path, command, tmp_path):
    wells(50, 0).to_csv(path, index=False)
    out, _ = command(path, *X)
    assert "nothing is missing: nothing was done" in out
    assert os.listdir(tmp_path) == ["wells.csv"]


def test_existing_maps_are_replaced_only_with_force(path, command, tmp_path):
    (tmp_path / "wells.grid.nc").write_text("mine")
    _, error = command(path, *X, "--grid", "0.2", code=2)
    assert "wells.grid.nc exists; replace it with --force" in error
    assert (tmp_path / "wells.grid.nc").read_text() == "mine"
    assert not (tmp_path / "wells.filled.csv").exists()
    command(path, *X, "--grid", "0.2", "--force")
    assert (tmp_path / "wells.grid.nc").stat().st_size > 1000


def test_a_kill_while_writing_leaves_no_partial_file(path, folder, tmp_path):
    code = (
        "import os, sys; from fillin import io; from fillin.cli import main\n"
        "io.sync = lambda path: os.kill(os.getpid(), 9)\n"
        "main(sys.argv[1:])"
    )
    arguments = ["fill", str(path), *X, "--grid", "0.2", "--model", str(folder), "--no-figure"]
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert {name for name in os.listdir(tmp_path) if not name.startswith(".")} == {"wells.csv"}


POINTS = "lon,lat,v,name,day\n1,5,2,a,2024-01-01\n2,6,,b,2024-01-02\n3,5,4,a,2024-01-03\n4,7,1,b,2024-01-04\n"
ONE_PLACE = "lon,lat,v\n1,5,2\n1,5,3\n1,6,\n"
BAD = {
    "words": (POINTS, ["--x", "lon", "--x", "name"], "'name' has neither numbers nor dates.*--by name"),
    "degrees as text": (
        "lon,lat,v\n8.1E,50,1\n8.2E,51,\n8.3E,52,3\n", X, "line 2, column 'lon': '8.1E' cannot be read as a number"
    ),
    "one unreadable": ("lon,lat,v\n1,5,2\n2,?!,\n3,5,4\n", X, "line 3, column 'lat': '\\?!' is not a number"),
    "infinite location": ("lon,lat,v\n1,5,2\n2,inf,\n3,5,4\n", X, "line 3, column 'lat': 'inf' is not finite"),
    "infinite value": ("lon,lat,v\n1,5,inf\n2,6,\n3,5,4\n", X, "line 2, column 'v': 'inf' is not finite"),
    "huge": ("lon,lat,v\n1,5,2\n1e301,6,\n3,7,4\n", X, "beyond 1e\\+300"),
    "twice": (POINTS, ["--x", "lon", "--x", "lon"], "'lon' is named twice; name each coordinate once"),
    "x and y": (POINTS, [*X, "--y", "lon"], "'lon' cannot be a coordinate and have another role"),
    "no such column": (POINTS, ["--x", "lon", "--x", "lta"], "did you mean 'lat'"),
    "no coordinate": ("lon,lat,v\n,5,2\n,6,\n", X, "column 'lon' is missing in every row"),
    "never both": ("lon,lat,v\n,5,2\n1,,\n", X, "no row has all coordinates"),
    "one location": (ONE_PLACE, X, "all observed values of 'v' are at one location \\(lon 1, lat 5\\)"),
    "a constant": ("lon,lat,v\n1,5,2\n1,6,3\n2,7,\n", X, "'lon' is 1 wherever 'v' is observed.*leave it out of --x"),
    "one value": ("lon,lat,v\n1,5,2\n2,6,\n", X, "has 1 observed value with a location, and at least 2"),
    "no value": ("lon,lat,v\n1,5,\n2,6,\n", [*X, "--y", "v"], "'v' is missing in all 2 rows.*--y"),
    "every": (POINTS, [*X, "--every", "1"], "--every does not apply to scattered.*or pass --grid 0.1"),
    "max-gap": (POINTS, [*X, "--max-gap", "1"], "--max-gap does not apply to scattered.*or pass --max-std 0.5"),
    "covariate": (POINTS, [*X, "--covariate", "day"], "--covariate does not apply.*or pass --x COLUMN"),
    "alone": (POINTS, [*X, "--alone"], "--alone does not apply to scattered observations; leave it out"),
    "kind": (POINTS, [*X, "--as", "table"], "--as does not apply to scattered observations; leave it out"),
    "until": (POINTS, [*X, "--until", "5"], "--until does not apply to scattered"),
    "a period without a name": (POINTS, [*X, "--period", "360"], "name the coordinate.*such as --period lon=360"),
    "a period of another": (POINTS, [*X, "--period", "v=360"], "unknown coordinate, in --period"),
    "a short period": (POINTS, [*X, "--period", "lon=2"], "'lon' extends over 3, more than one period of 2"),
    "no step": (POINTS, [*X, "--grid", "wide"], "'wide' is not a step of 'lon'"),
    "a step of nothing": (POINTS, [*X, "--grid", "0"], "'0' is not a step of 'lon'"),
    "steps of some": (POINTS, [*X, "--grid", "lon=1"], "the step of lat is not given; write --grid lon=0.1 --grid"),
    "a step of another": (POINTS, [*X, "--grid", "lno=1,lat=1"], "unknown coordinate, in --grid.*did you mean 'lon'"),
    "steps mixed": (POINTS, [*X, "--grid", "lon=1", "--grid", "2"], "is not one step, nor steps by name"),
    "a large map": (POINTS, [*X, "--grid", "1e-5"], "the limit is 20,000,000; choose steps about 60 times"),
    "a far too large map": (POINTS, [*X, "--grid", "1e-200"], "choose steps about"),
    "dates without a unit": (POINTS, ["--x", "lon", "--x", "day", "--grid", "1"], "'day' has dates.*--grid day=1d"),
    "a map of groups": (POINTS, [*X, "--by", "name", "--grid", "1"], "--grid makes one map, and --by several sets"),
    "a map of a series": ("t,y\n1,2\n2,\n3,4\n", ["--grid", "1"], "--grid does not apply to a series.*--x COLUMN --x"),
    "no std": (POINTS, [*X, "--max-std", "0"], "--max-std must be a positive number"),
    "bounds": (POINTS, [*X, "--bounds", "2:"], "line 5, column 'v': 1 lies outside --bounds 2:"),
    "a model of one dimension": (POINTS, [*X, "--model", "curve"], "needs 2 and 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_clear_error_and_nothing_written(case, tmp_path, capsys):
    content, arguments, message = BAD[case]
    path = tmp_path / "data.csv"
    path.write_text(content)
    assert main(["fill", str(path), *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert len(error.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == ["data.csv"]


AT = {
    "another kind": ("lon,lat\n2024-01-01,5\n2024-01-02,6\n", "at.csv: column 'lon' must have numbers"),
    "a missing location": ("lon,lat\n1,5\n2,\n", "at.csv, line 3, column 'lat': missing"),
    "no such column": ("lon,v\n1,5\n2,1\n", "unknown column of at.csv 'lat'"),
}


@pytest.mark.parametrize("case", AT)
def test_new_rows_that_cannot_be_read(case, tmp_path, capsys):
    content, message = AT[case]
    (tmp_path / "data.csv").write_text(POINTS)
    (tmp_path / "at.csv").write_text(content)
    assert main(["fill", str(tmp_path / "data.csv"), *X, "--at", str(tmp_path / "at.csv")]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_errors_in_python_name_arguments():
    with pytest.raises(InputError, match=r"every does not apply to scattered observations.*grid=0.1"):
        make_plan(wells(), {"x": ["lon", "lat"], "every": 1})
    with pytest.raises(InputError, match=r"write grid=\{'lon': 0.1, 'lat': 0.1\}"):
        make_plan(wells(), {"x": ["lon", "lat"], "grid": {"lon": 1}})
    with pytest.raises(InputError, match="an array with a column for each of lon, lat"):
        make_plan(wells(), {"x": ["lon", "lat"], "at": [1.0, 2.0]})
