"""Outputs of `fillin fill`: the input is never replaced, other files only with --force, and no file is partial."""

import os
import subprocess
import sys

import pytest
from support.series_files import SERIES

from fillin.errors import FillinError
from fillin.filling.prediction import Outputs

pytest_plugins = ["support.fill_command"]
CASES = {
    "another ending": (SERIES, ["-o", "out.parquet"], "the output is written as .csv"),
    "no name": (SERIES, ["-o", ""], "-o: the name of the output is empty; name a file"),
    "no folder": (SERIES, ["-o", "nowhere/out.csv"], "there is no folder nowhere"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_clear_error_and_nothing_written(case, assert_refused):
    assert_refused(*CASES[case])


def test_no_permission_to_write(tmp_path, fill, monkeypatch):
    from fillin import io

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(io, "sync", refuse)
    ran = fill(SERIES)
    assert ran.code == 2
    assert "cannot write" in ran.stderr
    assert "Permission denied; choose another path with -o" in ran.stderr
    assert os.listdir(tmp_path) == ["data.csv"]


def test_files_are_replaced_only_with_force(fill, tmp_path):
    for name in ("data.filled.csv", "data.filled.png", "data.filled.html"):
        kept = tmp_path / name
        kept.write_text("mine")
        ran = fill(SERIES, "--report", figure=True)
        assert ran.code == 2
        assert f"{name} exists; replace it with --force" in ran.stderr
        assert kept.read_text() == "mine"
        kept.unlink()
    (tmp_path / "data.filled.csv").write_text("mine")
    assert fill(SERIES, "--force").code == 0
    assert (tmp_path / "data.filled.csv").read_text().startswith("date,y,y_filled")


@pytest.mark.parametrize("links", [True, False])
def test_a_file_written_meanwhile_by_another_run_is_kept(fill, tmp_path, monkeypatch, links):
    from fillin import io

    out, sync = tmp_path / "data.filled.csv", io.sync

    def another_run(path):
        out.write_text("theirs")
        sync(path)

    def no_link(*_):
        raise OSError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
        assert fill(SERIES).code == 0
        out.unlink()
    monkeypatch.setattr(io, "sync", another_run)
    ran = fill(SERIES)
    assert ran.code == 2
    assert "was meanwhile written by another run and is kept; replace it with --force" in ran.stderr
    assert out.read_text() == "theirs"
    assert sorted(os.listdir(tmp_path)) == ["data.csv", out.name]
    assert fill(SERIES, "--force").code == 0
    assert out.read_text().startswith("date,y,y_filled")


def test_a_folder_of_another_run_is_kept(tmp_path):
    out = tmp_path / "out.zarr"
    (tmp_path / "out.zarr").mkdir()
    (tmp_path / "out.zarr" / "theirs").touch()
    with pytest.raises(FillinError, match="meanwhile written by another run and is kept"):
        Outputs(out, {}).write(out, lambda folder: folder.mkdir(), folder=True)
    assert os.listdir(tmp_path) == ["out.zarr"]
    Outputs(out, {}, force=True).write(out, lambda folder: folder.mkdir(), folder=True)
    assert os.listdir(tmp_path / "out.zarr") == []


def test_leftovers_of_a_killed_run_are_removed(fill, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    kept = [f".data.filled.csv.{os.getppid()}", ".data.filled.csv.mine", f".other.csv.{ended.pid}"]
    for name in (f".data.filled.csv.{ended.pid}", *kept):
        (tmp_path / name).write_text("half")
    assert fill(SERIES).code == 0
    assert (tmp_path / f".data.filled.csv.{ended.pid}").exists()  # too young: it may be another machine's
    for path in tmp_path.glob(".*"):
        os.utime(path, (0, 0))
    assert fill(SERIES, "--force").code == 0
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "data.csv", "data.filled.csv"])


def test_the_input_is_never_the_output(fill, tmp_path):
    (tmp_path / "link.csv").symlink_to(tmp_path / "data.csv")
    for way in (tmp_path / "data.csv", tmp_path / "link.csv"):
        ran = fill(SERIES, "-o", str(way), "--force")
        assert ran.code == 2
        assert "is the input, which is never overwritten" in ran.stderr
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in fill(SERIES, "-o", str(tmp_path / "folder.csv"), "--force").stderr
