"""Fields and bad input: one clear line, nothing written, and nothing of the user's touched."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from support.fields_with_gaps import read_dataset, sea, write_dataset

import fillin
from fillin.errors import FillinError, InputError
from fillin.filling.grid.fill import fill_grid
from fillin.filling.grid.layout import make_layout
from fillin.filling.grid.sources import dataset_variable

pytest_plugins = ["support.field_command"]


BAD = {
    "no such variable": (sea(), ["--var", "ssst"], "unknown variable of data.nc 'ssst'; did you mean 'sst'"),
    "text": (sea().assign(w=("lat", np.array(list("abcdefghijkl")))), ["--var", "w"], "'w' has text; only numbers"),
    "all missing": (
        sea().assign(sst=sea()["sst"] * np.nan),
        [],
        "'sst' is missing everywhere: there is no observed cell",
    ),
    "several": (
        sea().assign(b=sea()["sst"]),
        [],
        r"several variables with missing cells: sst \(time, lat, lon\), b .*--var",
    ),
    "no floats": (sea()[["count"]], [], r"no variable of floating-point numbers.*count \(int64\)"),
    "chunks of another": (sea(), ["--chunks", "lta=3"], "in --chunks, 'lta'; did you mean 'lat'"),
    "chunks of nothing": (sea(), ["--chunks", "lat"], "'lat' is not the size of a dimension; write lat=200"),
    "over another": (sea(), ["--over", "lat,depth"], "in --over, 'depth'"),
    "over one twice": (sea(), ["--over", "lat,lat"], "a field spans one, two or three"),
    "NaN in a coordinate": (
        sea().assign_coords(lat=np.where(np.arange(12) == 3, np.nan, np.arange(12.0))),
        [],
        "data.nc: coordinate 'lat' is nan at index 3",
    ),
    "no order": (
        sea().assign_coords(lat=np.r_[0.0, 2, 1, 3:12]),
        [],
        r"'lat' is not strictly monotone: 2.0 is followed by 1.0 at index 2; sort it \(ds.sortby\('lat'\)\)",
    ),
    "twice": (sea().assign_coords(lat=np.r_[0.0, 1, 1, 3:12]), [], "'lat' is not strictly monotone"),
    "curved": (
        sea().drop_vars("lat").assign_coords(nav=(("lat", "lon"), np.ones((12, 16)))),
        [],
        r"'lat' has no one-dimensional coordinate; nav are curvilinear.*drop_vars\(\['nav'\]\)",
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
    "a period of nothing": (
        sea(),
        ["--period", "360"],
        "of a field needs a dimension, got '360'; write --period lon=360",
    ),
    "a period of another": (sea(), ["--period", "long=360"], "in --period, 'long'; did you mean 'lon'"),
    "more than a turn": (sea(), ["--period", "lon=20"], "runs from -10 to 20, more than one period"),
    "an option of tables": (sea(), ["--every", "1d"], "--every does not apply to a field"),
    "another option of tables": (sea(), ["--y-err", "e"], "--y-err does not apply"),
    "bounds of another": (sea(), ["--bounds", "x=0:"], "unknown column"),
    "a level": (sea(), ["--level", "95"], "between 0 and 1"),
    "no model": (sea(), ["--model", "nowhere"], "there is no model 'nowhere'"),
    "a model of curves": (
        sea(),
        ["--model", "curve"],
        "dim_x=1 and dim_y=1; a field over two dim.* needs 2 and 1",
    ),
    "another ending": (sea(), ["-o", "out.zarr"], "written as .nc"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_clear_error_and_nothing_written(case, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, words, message = BAD[case]
    write_dataset(data, tmp_path / "data.nc")
    before = (tmp_path / "data.nc").read_bytes()
    _, wrong = command(tmp_path / "data.nc", *words, code=2)
    assert re.search(message, wrong), wrong
    assert len(wrong.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == ["data.nc"]
    assert (tmp_path / "data.nc").read_bytes() == before


def test_files_of_another_format(tmp_path, command):
    assert "there is no file" in command(tmp_path / "none.nc", code=2)[1]
    assert "there is no folder" in command(tmp_path / "none.zarr", code=2)[1]
    (tmp_path / "bad.nc").write_bytes(b"CDF, or not")
    assert "bad.nc is not a readable NetCDF file" in command(tmp_path / "bad.nc", code=2)[1]
    (tmp_path / "bad.zarr").mkdir()
    assert "bad.zarr is not a readable Zarr folder" in command(tmp_path / "bad.zarr", code=2)[1]
    (tmp_path / "folder.nc").mkdir()
    assert "is a folder; name a file in it" in command(tmp_path / "folder.nc", code=2)[1]
    (tmp_path / "t.csv").write_text("t,y\n1,2\n2,\n")
    assert "--over does not apply to a series" in command(tmp_path / "t.csv", "--over", "t", code=2)[1]


def test_a_damaged_file_is_reported_with_its_variable(tmp_path, command):
    path = tmp_path / "sea.zarr"
    write_dataset(sea(), path)
    for part in (path / "sst" / "c").rglob("*"):
        if part.is_file():
            part.write_bytes(b"noise")
    assert "variable 'sst' cannot be read" in command(path, "--var", "sst", code=2)[1]


def test_complete_data_are_noted(tmp_path, command):
    write_dataset(sea().fillna(1.0), tmp_path / "whole.nc")
    assert "nothing is missing: nothing was done" in command(tmp_path / "whole.nc")[0]
    data = sea()
    write_dataset(data.assign(sst=data["sst"].fillna(1.0).where(data["ocean"] == 1)), tmp_path / "land.nc")
    assert "no other cell is missing: nothing was done" in command(tmp_path / "land.nc")[0]
    assert sorted(os.listdir(tmp_path)) == ["land.nc", "whole.nc"]


@pytest.mark.parametrize("name", ["sea.nc", "sea.zarr"])
def test_files_are_replaced_only_with_force(name, tmp_path, command):
    path = tmp_path / name
    write_dataset(sea(), path)
    command(path)
    assert "exists; replace it with --force" in command(path, code=2)[1]
    command(path, "--force")
    assert "is the input, which is never overwritten" in command(path, "-o", str(path), "--force", code=2)[1]
    other = tmp_path / f"mine{path.suffix}"
    other.mkdir()
    (other / "precious.txt").write_text("mine")
    assert "is a folder" in command(path, "-o", str(other), "--force", code=2)[1]
    assert (other / "precious.txt").read_text() == "mine"
    if path.suffix == ".zarr":
        assert "lies inside the input" in command(path, "-o", str(path / "sub.zarr"), code=2)[1]


def test_no_permission_to_write(tmp_path, command, monkeypatch):
    write_dataset(sea(), tmp_path / "sea.zarr")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    _, wrong = command(tmp_path / "sea.zarr", code=2)
    assert "Permission denied; choose another path with -o" in wrong
    assert os.listdir(tmp_path) == ["sea.zarr"]


def test_killed_while_writing_leaves_nothing_in_its_place(tmp_path, folder):
    path = tmp_path / "sea.zarr"
    write_dataset(sea(), path)
    code = (
        "import os, sys; from fillin.cli import main\n"
        "os.rename = lambda *_: os.kill(os.getpid(), 9)  # all is written beside, and not yet renamed\n"
        "main(sys.argv[1:])"
    )
    words = ["fill", str(path), "--model", str(folder), "--no-figure"]
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "sea.filled.zarr").exists()
    xr.testing.assert_identical(read_dataset(path), sea())


def test_a_missing_extra_is_named(tmp_path, command, monkeypatch):
    write_dataset(sea(), tmp_path / "sea.nc")
    monkeypatch.setitem(sys.modules, "xarray", None)
    assert "pip install 'fillin[fields]'" in command(tmp_path / "sea.nc", code=2)[1]


@pytest.mark.usefixtures("unchecked")
def test_options_of_python(model):
    data = sea()
    with pytest.raises(InputError, match="x does not apply to a field or array"):
        fillin.fill(data, x="lat", model=model)
    with pytest.raises(InputError, match="over does not apply to a series"):
        fillin.fill(pd.DataFrame({"t": [1, 2], "y": [1.0, None]}), over="t")
    with pytest.raises(InputError, match="period of a field needs a dimension"):
        fillin.fill(data, period=360, model=model)
    with pytest.raises(FillinError, match="there is no model 'nowhere'"):
        fillin.fill(data, model="nowhere")
    assert fillin.fill(data.fillna(0.0), model=model).identical(data.fillna(0.0))
    assert fill_grid(make_layout(dataset_variable(data, "count", "here")), model)[1].max() == 0


WORDS = {
    "over another": ({"over": ["lat", "depth"]}, "in over, 'depth'", "in --over, 'depth'"),
    "over four": ({"over": []}, "over: a field spans", "--over: a field spans"),
    "chunks of another": ({"chunks": {"lta": 3}}, "in chunks, 'lta'; did you mean 'lat'", "in --chunks, 'lta'"),
    "a period of another": ({"period": {"long": 360}}, "in period, 'long'; did you mean 'lon'", "in --period, 'long'"),
    "more than a turn": (
        {"period": {"lon": 20}},
        "period={'lon': 20}: the coordinate runs from",
        "--period lon=20: the coordinate runs from",
    ),
    "a mask that is none": ({"mask": "see"}, "mask see is neither", "--mask see is neither"),
    "a halo of nothing": ({"halo": -1}, "halo must be a number of cells", "--halo must be a number of cells"),
    "a level of percent": ({"level": 95}, "level must lie between", "--level must lie between"),
    "bounds that are broken": ({"bounds": (99, None)}, "lies outside bounds;", "lies outside --bounds;"),
    "text": ({"var": "w"}, "name another with var=", "name another with --var"),
}


@pytest.mark.parametrize("case", WORDS)
def test_errors_spell_options_as_the_caller_does(case, model):
    options, python, shell = WORDS[case]
    with pytest.raises(FillinError) as caught:
        fillin.fill(sea().assign(w=("lat", np.array(list("abcdefghijkl")))), **{"var": "sst", **options}, model=model)
    assert python in str(caught.value)
    assert "--" not in str(caught.value)
    assert shell in caught.value.shell
