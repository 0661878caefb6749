"""`fillin fill` and bad input: an error with the file, the line, the column and the remedy, and nothing written."""

import gzip
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import fillin
from fillin.cli import main
from fillin.errors import FillinError, InputTypeError

pytest_plugins = ["filled"]
SERIES = "date,y\n2024-01-01,1\n2024-01-02,\n2024-01-03,3\n"
TABLE = "x,y\n1,2\n3,\n2,4\n"
CASES = {
    "an empty file": ("", [], "data.csv is empty.*names"),
    "blank lines": ("\n\n\n", [], "data.csv is empty"),
    "a comment alone": ("# nothing\n", [], "data.csv has no header"),
    "a header alone": ("t,y\n", [], "data.csv has a header and no rows"),
    "no header": (
        "1,2\n2,\n3,4\n",
        [],
        "data.csv, line 1: 1, 2 look like values; .*first line with the columns' names",
    ),
    "two columns of one name": ("t,y,y\n1,2,3\n", [], "line 1: two columns are called 'y'"),
    "a short row": ("t,y\n1,2\n3\n", [], "data.csv, line 3: 1 cells, but the header has 2"),
    "a long row": ("t,y\n1,2\n2,3,4\n", [], "line 3: 3 cells.*in quotes"),
    "a row after two lines": ('t,y,n\n1,2,"a\nb"\n2,3\n', [], "line 4: 2 cells"),
    "a quote that is not closed": ('t,y\n1,5\n2,\n3,"6\n', [], "data.csv, line 4: a quote .*is never closed; close it"),
    "a quote not closed in the middle": ('t,y\n1,5\n2,"\n3,6\n4,7\n', [], "data.csv, line 3: a quote .* never closed"),
    "a quote not closed in the header": ('t,"y\n1,5\n2,\n3,6\n', [], "data.csv, line 1: a quote .* is never closed"),
    "zero bytes": (b"t,y\n1,\x00\x01\x02\n", [], "line 2: not text.*save the table as CSV"),
    "noise": (bytes(np.random.default_rng(0).integers(1, 256, 4000, dtype=np.uint8)), [], "data.csv.*not text"),
    "a spreadsheet": (b"PK\x03\x04 and so on", [], "no CSV file but a spreadsheet.*save it as CSV"),
    "Parquet": (b"PAR1 and so on", [], "no CSV file but a Parquet file; name it .parquet"),
    "gzip": (gzip.compress(SERIES.encode()), [], "compressed; unpack it"),
    "UTF-16": (SERIES.encode("utf-16"), [], "UTF-16; save it as UTF-8"),
    "no number column": (
        "date,who\n2024-01-01,a\n2024-01-02,b\n",
        [],
        "no number column to fill; its columns: date, who",
    ),
    "shares of a hundred": (
        "date,y\n2024-01-01,\n2024-01-02,5%\n2024-01-03,7%\n",
        [],
        "data.csv, line 3, column 'y': '5%' cannot be read as a number; write it as 1234.5",
    ),
    "thousands everywhere": (
        't,y\n1,"1,234"\n2,\n3,"2,345"\n',
        ["--y", "y"],
        "data.csv, line 2, column 'y': '1,234' cannot be read as a number.*thousands",
    ),
    "a line of units": (
        "t,y\ns,degC\n1,5\n2,\n3,7\n",
        [],
        "data.csv, line 2: 's', 'degC' look like units.*remove that line",
    ),
    "a line of units and dates": (
        "date,y\n,degC\n2024-01-01,5\n2024-01-02,\n2024-01-03,7\n",
        [],
        "data.csv, line 2: 'degC' look like units",
    ),
    "one column": ("y\n1\n3\n", [], "data.csv has only one column, 'y'.*a semicolon, a tab"),
    "blanks between cells": ("t y\n1 2\n2 3\n", [], "data.csv has only one column, 't y'"),
    "all missing": ("date,y\n2024-01-01,\n2024-01-02,NA\n", [], "column 'y' is blank in all 2 rows.*--y"),
    "no order": (TABLE, [], r"looks like a table.*'x' breaks in line 4.*cannot be filled yet.*--as series --x x"),
    "a number twice": ("x,y\n1,2\n2,\n2,4\n", [], "looks like a table.*'x' breaks in line 4"),
    "a table that is said to be one": (SERIES, ["--as", "table"], "cannot be filled yet.*--as series --x COLUMN"),
    "another kind": (SERIES, ["--as", "sereis"], "did you mean 'series'"),
    "several zones and none": (
        "t,y\n2024-01-01T00:00+01:00,1\n2024-01-01T01:00+02:00,\n2024-01-01T02:00,2\n",
        [],
        r"data.csv, line 4, column 't': '2024-01-01T02:00' has no time zone, and '2024-01-01T00:00\+01:00' has one",
    ),
    "a zone and none": (
        "t,y\n2024-01-01T00:00Z,1\n2024-01-01T01:00,\n2024-01-01T02:00Z,2\n",
        [],
        "line 3, column 't': '2024-01-01T01:00' has no time zone",
    ),
    "mixed formats": (
        "t,y\n2024-01-01,1\n02.01.2024,\n2024-01-03,3\n",
        [],
        "data.csv, line 3, column 't': '02.01.2024' is not written like '2024-01-01'.*one format",
    ),
    "no date": (
        "t,y\n2024-01-01,1\n2024-02-30,\n2024-03-01,3\n",
        [],
        "line 3, column 't': '2024-02-30' is not written",
    ),
    "day or month": (
        "t,y\n01/02/2024,1\n01/03/2024,\n01/04/2024,3\n",
        [],
        "line 2, column 't'.*--date-format '%d/%m/%Y'",
    ),
    "no time": (
        "date,y\n2024-01-01,1\n,2\n2024-01-03,\n",
        [],
        "data.csv, line 3, column 'date': blank.*remove the row",
    ),
    "a blank line of cells": (
        "t,y\n1,5\n,\n3,5\n",
        [],
        "data.csv, line 3, column 't': blank, and a row without a place",
    ),
    "a blank place beside values that rise": ("t,y\n1,5\n,6\n3,7\n", [], "data.csv, line 3, column 't': blank"),
    "a word among places": ("t,y\n1,5\nx2,\n3,5\n4,5\n", [], "line 3, column 't': 'x2' is not a number"),
    "NaN in x": ("x,y\n1,1\nNaN,2\n3,\n", ["--x", "x"], "data.csv, line 3, column 'x': blank"),
    "infinity in x": ("x,y\n1,1\ninf,2\n3,\n", ["--x", "x"], "line 3, column 'x': 'inf' is not finite"),
    "all of x missing": ("x,y\n,1\n,2\n,\n", ["--x", "x"], "column 'x' is blank in every row"),
    "text in y": (
        "t,y\n1,5\n2,<0.5\n3,7\n4,\n",
        [],
        "data.csv, line 3, column 'y': '<0.5' is not a number.*--na '<0.5'",
    ),
    "text in y alone": ("t,y\n1,5\n2,x\n3,7\n", [], "line 3, column 'y': 'x' is not a number"),
    "infinity in y": ("t,y\n1,5\n2,inf\n3,\n", [], "line 3, column 'y': 'inf' is not finite"),
    "thousands": ('t,y\n1,"1,000.5"\n2,3\n3,\n', [], "line 2, column 'y': '1,000.5' is not a number"),
    "words as y": ("date,y\n2024-01-01,a\n2024-01-02,b\n", ["--y", "y"], "column 'y' has no numbers"),
    "words as x": (
        "date,w,y\n2024-01-01,a,1\n2024-01-02,b,\n",
        ["--x", "w"],
        "column 'w' has neither numbers nor times",
    ),
    "an unknown column": (SERIES, ["--y", "yy"], "unknown column of data.csv 'yy'; did you mean 'y'"),
    "an unknown x": (SERIES, ["--x", "dat"], "did you mean 'date'"),
    "an unknown group": (SERIES, ["--by", "station"], "unknown column of data.csv 'station'.*Known: date, y"),
    "x as y": (SERIES, ["--x", "y", "--y", "y"], "'y' cannot be x and something else"),
    "several series": (
        "date,who,y\n2024-01-01,a,1\n2024-01-01,b,2\n2024-01-02,a,\n2024-01-02,b,3\n",
        [],
        "data.csv, line 3, column 'date': the same place as in line 2.*--by 'who'.*join the two.*--as series",
    ),
    "most rows of one date": (
        "date,y\n2024-01-01,1\n2024-01-01,2\n2024-01-01,\n2024-01-02,3\n",
        [],
        "data.csv, line 3, column 'date': the same place as in line 2: 4 rows have only 2 places.*join them.*--by COL",
    ),
    "most rows of one year, told": (
        "year,y\n2024,1\n2024,2\n2024,\n2024,3\n",
        ["--x", "year", "--as", "series"],
        "data.csv, line 3, column 'year': the same place as in line 2: 4 rows have only 1 place\\.",
    ),
    "most rows of one date in each group": (
        "date,w,y\n2024-01-01,a,1\n2024-01-01,b,2\n2024-01-01,a,\n2024-01-01,b,3\n",
        ["--by", "w"],
        "data.csv, line 4, column 'date': the same place as in line 2",
    ),
    "new places in two columns": (
        "date,time,y\n2024-01-01,00:00,1\n2024-01-01,12:00,\n2024-01-02,00:00,3\n",
        ["--every", "6h"],
        "'date' and 'time' are one time in two columns.*join them",
    ),
    "no order and few values": ("k,y\n1,2\n2,\n1,4\n2,5\n1,5\n", [], "table: .* fall. Tables.*--x COLUMN"),
    "filled before": ("t,y,y_filled\n1,2,2\n2,,3\n", [], "already has a column 'y_filled'"),
    "below the bounds": (
        "t,y\n1,2\n2,-1\n3,\n",
        ["--bounds", "0:"],
        "line 3, column 'y': -1 lies outside --bounds 0:;",
    ),
    "above the bounds": ("t,y\n1,2\n2,\n3,0\n", ["--bounds", "0:1"], "line 2, column 'y': 2 lies outside --bounds 0:1"),
    "no bounds": (SERIES, ["--bounds", "positive"], "'positive' is no range; write 0: or 0:1"),
    "empty bounds": (SERIES, ["--bounds", ":"], "':' is no range"),
    "bounds that are no number": (SERIES, ["--bounds", "nan:5"], "'nan:5' is no range; write 0: or 0:1"),
    "bounds upside down": (SERIES, ["--bounds", "1:0"], "the lower must be below the upper"),
    "bounds of another": (SERIES, ["--bounds", "z=0:1"], "unknown column.*bounds.*'z'"),
    "negative errors": (
        "t,y,e\n1,2,1\n2,3,-1\n3,,\n",
        ["--y-err", "e"],
        "line 3, column 'e': an error is a standard dev",
    ),
    "errors of two": (
        "t,a,b,e\n1,2,1,1\n2,,,1\n",
        ["--y-err", "e"],
        "errors of one column, and 2 are to be filled.*--y",
    ),
    "words as errors": ("t,y,e\n1,2,a\n2,,b\n", ["--y-err", "e"], "column 'e' has no numbers"),
    "until without every": (SERIES, ["--until", "2025-01-01"], "--until needs --every"),
    "at and every": (SERIES, ["--at", "x.csv", "--every", "1d"], "there is no file x.csv|--at and --every"),
    "no step": (SERIES, ["--every", "soon"], "'soon' is no length of time; write 10min, 1h"),
    "m alone": (SERIES, ["--every", "1m"], "'1m' is no length of time; write 10min, 1h, 1d, 1w, 1mo"),
    "no step of numbers": (
        "t,y\n1,2\n2,\n",
        ["--every", "1h"],
        "'1h' is not a step of the x column, which has numbers",
    ),
    "a step of nothing": ("t,y\n1,2\n2,\n", ["--every", "0"], "must be more than 0"),
    "too many steps": (SERIES, ["--every", "1us"], "asks for .* places; ask for longer steps"),
    "too many numbers": ("t,y\n1,2\n2,\n", ["--every", "1e-9"], "asks for .* places; ask for larger steps"),
    "far too many numbers": (
        "t,y\n1,2\n2,\n",
        ["--every", "1e-300"],
        r"1e-300 asks for 1e\+300 places; ask for larger",
    ),
    "until before": (
        SERIES,
        ["--every", "1d", "--until", "2020-01-01"],
        "lies before the first place of data.csv, 2024-01",
    ),
    "until nothing": (
        SERIES,
        ["--every", "1d", "--until", "soon"],
        "--until: 'soon' is no date; write it as 2027-01-31",
    ),
    "until another zone": (
        SERIES,
        ["--every", "1d", "--until", "2025-01-01 00:00Z"],
        "has a time zone, the column has none",
    ),
    "no period": ("t,y\n1,2\n2,\n", ["--period", "round"], "'round' is not the length of a turn of 't'"),
    "a level": (SERIES, ["--level", "95"], "--level is the share.*between 0 and 1"),
    "no model": (SERIES, ["--model", "nowhere"], "--model: there is no model 'nowhere'"),
    "a model that does not fill": (SERIES, ["--model", "te-tnp-rbf"], "te-tnp-rbf is no model that fills"),
    "another ending": (SERIES, ["-o", "out.parquet"], "written as the input is.*end in .csv"),
    "no name": (SERIES, ["-o", ""], "-o: the name of the output is empty; name a file"),
    "no folder": (SERIES, ["-o", "nowhere/out.csv"], "there is no folder nowhere"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_clear_error_and_nothing_written(case, fill, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, words, message = CASES[case]
    ran = fill(content, *words)
    assert ran.code == 2, ran.said
    assert re.search(message, ran.wrong), ran.wrong
    assert "Traceback" not in ran.wrong
    assert len(ran.wrong.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == ["data.csv"]


def told(words, capsys) -> str:
    assert main(["fill", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_a_folder_no_file_and_another_kind(tmp_path, capsys):
    assert "is a folder; name a file in it" in told([tmp_path], capsys)
    assert "there is no file" in told([tmp_path / "none.csv"], capsys)
    (tmp_path / "data.xlsx").write_bytes(b"PK")
    assert "ends in .csv" in told([tmp_path / "data.xlsx"], capsys)
    (tmp_path / "data.parquet").write_bytes(b"PAR1, or not")
    assert "not a readable Parquet file" in told([tmp_path / "data.parquet"], capsys)


def test_no_permission(tmp_path, capsys, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_text(SERIES)
    if os.geteuid():
        path.chmod(0)
    else:  # root may read anything

        def refuse(self):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(type(path), "read_bytes", refuse)
    assert "cannot read" in (said := told([path], capsys))
    assert "Permission denied; look at its permissions" in said


def test_no_permission_to_write(tmp_path, fill, monkeypatch):
    from fillin.models import files

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "sync", refuse)
    ran = fill(SERIES)
    assert ran.code == 2
    assert "cannot write" in ran.wrong
    assert "Permission denied; name another place with -o" in ran.wrong
    assert os.listdir(tmp_path) == ["data.csv"]


def test_nothing_is_replaced_without_leave(fill, tmp_path):
    for name in ("data.filled.csv", "data.filled.png", "data.filled.html"):
        kept = tmp_path / name
        kept.write_text("mine")
        ran = fill(SERIES, "--report", picture=True)
        assert ran.code == 2
        assert f"{name} exists; replace it with --force" in ran.wrong
        assert kept.read_text() == "mine"
        kept.unlink()
    (tmp_path / "data.filled.csv").write_text("mine")
    assert fill(SERIES, "--force").code == 0
    assert (tmp_path / "data.filled.csv").read_text().startswith("date,y,y_filled")


@pytest.mark.parametrize("links", [True, False])
def test_what_another_run_writes_meanwhile_is_kept(fill, tmp_path, monkeypatch, links):
    from fillin.models import files

    out, sync = tmp_path / "data.filled.csv", files.sync

    def another_run(path):
        out.write_text("theirs")
        sync(path)

    def no_link(*_):
        raise OSError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
        assert fill(SERIES).code == 0
        out.unlink()
    monkeypatch.setattr(files, "sync", another_run)
    ran = fill(SERIES)
    assert ran.code == 2
    assert "was written by another run meanwhile, and is kept; replace it with --force" in ran.wrong
    assert out.read_text() == "theirs"
    assert sorted(os.listdir(tmp_path)) == ["data.csv", out.name]
    assert fill(SERIES, "--force").code == 0
    assert out.read_text().startswith("date,y,y_filled")


def test_a_folder_of_another_run_is_kept(tmp_path):
    from fillin.filling.fields.paths import put_folder

    (tmp_path / "out.zarr").mkdir()
    (tmp_path / "out.zarr" / "theirs").touch()
    with pytest.raises(FillinError, match="written by another run meanwhile, and is kept"):
        put_folder(tmp_path / "out.zarr", lambda beside: beside.mkdir(), force=False)
    assert os.listdir(tmp_path) == ["out.zarr"]
    put_folder(tmp_path / "out.zarr", lambda beside: beside.mkdir(), force=True)
    assert os.listdir(tmp_path / "out.zarr") == []


def test_what_a_killed_run_left_is_cleared_away(fill, tmp_path):
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
        assert "is the input, which is never touched" in ran.wrong
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in fill(SERIES, "-o", str(tmp_path / "folder.csv"), "--force").wrong


AT = {
    "another kind of place": ("date\n1\n2\n", "column 'date' must have times"),
    "a blank": ("date,k\n2024-01-05,1\n,2\n", "at.csv, line 3, column 'date': blank"),
    "no such column": ("when,k\n2024-01-05,1\n2024-01-06,1\n", "unknown column of at.csv 'date'"),
    "mixed formats": ("date,k\n2024-01-05,1\n2024-01-06,1\n07.01.2024,1\n", "at.csv, line 4, column 'date'"),
    "a zone": ("date,k\n2024-01-05T00:00Z,1\n", "one has a time zone and the other has none"),
}


@pytest.mark.parametrize("case", AT)
def test_places_that_are_none(case, fill, tmp_path):
    content, message = AT[case]
    (tmp_path / "at.csv").write_text(content)
    ran = fill(SERIES, "--at", str(tmp_path / "at.csv"))
    assert ran.code == 2
    assert re.search(message, ran.wrong), ran.wrong


def test_a_group_that_nothing_is_known_of(fill, tmp_path):
    (tmp_path / "at.csv").write_text("t,who\n5,a\n6,z\n")
    ran = fill("t,y,who\n1,1,a\n2,,a\n", "--by", "who", "--at", str(tmp_path / "at.csv"))
    assert "at.csv, line 3, column 'who': data.csv knows no group 'z'" in ran.wrong


SENSIBLE = {
    "the same time twice": ("date,y\n2024-01-01,1\n2024-01-01,2\n2024-01-02,\n2024-01-03,3\n", []),
    "unsorted times": ("date,y\n2024-01-03,1\n2024-01-01,2\n2024-01-02,\n", []),
    "an x that is named": (TABLE, ["--as", "series", "--x", "x"]),
    "a spelling of blank": ("t,y\n1,5\n2,<0.5\n3,7\n", ["--na", "<0.5"]),
    "a date read as told": ("t,y\n01/02/2024,1\n01/03/2024,\n01/04/2024,3\n", ["--date-format", "%d/%m/%Y"]),
    "1e30 beside 1e-30": ("t,y\n1,1e30\n2,1e-30\n3,\n4,-1e30\n", []),
    "a constant": ("t,y\n1,4\n2,\n3,4\n", []),
    "one point": ("t,y\n1,4\n2,\n3,\n", []),
    "far and tiny places": ("t,y\n1e30,4\n2e30,\n3e30,1\n", []),
    "years before the clocks": ("date,y\n0850-01-01,1\n0851-01-01,\n0852-01-01,3\n", []),
    "a fraction of a second": ("t,y\n2024-01-01 00:00:00,1\n2024-01-01 00:00:00.25,\n2024-01-01 00:00:01,3\n", []),
}


@pytest.mark.parametrize("case", SENSIBLE)
def test_a_sensible_result(case, fill):
    content, words = SENSIBLE[case]
    found = fill(content, *words).frame
    assert np.isfinite(found[["y_filled", "y_std", "y_low", "y_high"]]).all().all()


def test_what_may_mean_a_blank_is_told(fill):
    ran = fill("t,y\n1,5\n2,-999\n3,6\n4,\n")
    assert ran.code == 0
    assert "y is -999 1 times: if that means a blank, say --na -999" in ran.said
    ran = fill("t,y\n1,5\n2,-9999\n3,6\n4,-9999\n", name="full.csv")
    assert "y is -9999 2 times: if that means a blank, say --na -9999" in ran.said
    assert "nothing is missing, as it seems" in ran.said
    ran = fill("t,y,z\n1,5,1\n2,-9999,\n3,6,2\n4,-9999,3\n", name="other.csv")
    assert "y is -9999 2 times" in ran.said
    ran = fill("t,k,y\n1,5,3%\n2,6,\n3,7,5%\n", name="shares.csv")
    assert "shares.csv, line 2, column 'y': '3%' cannot be read as a number" in ran.said
    assert "nothing is missing, as it seems" in ran.said
    ran = fill(b"t,y,w\n1,5,K\xf6ln\n2,,a\n", "--force")
    assert "line 2 is not UTF-8: the file is read, and written, as Latin-1" in ran.said


FRAMES = {
    "a list": ([1, 2], "fill takes a DataFrame .*array of NumPy.*xarray, got list"),
    "one column": (pd.DataFrame({"y": [1.0, None]}), "only one column, 'y'.*value; give it a column of places, or an"),
    "words": (
        pd.DataFrame({"t": [1, 2, 3], "y": ["1", "<2", "3"]}),
        r"row 1, column 'y': '<2' is not a number; .*: na=\['<2'\]$",
    ),
    "a blank place": (pd.DataFrame({"t": [1, None, 3], "y": [1, 1, None]}), "row 1, column 't': blank.* with x=$"),
    "a step": (pd.DataFrame({"t": [1, 2], "y": [1, None]}), "^every: 'soon' is not a step", {"every": "soon"}),
    "no rows": (pd.DataFrame({"t": [], "y": []}), "the frame has no rows"),
    "columns without names": (pd.DataFrame([[1.0, None], [2.0, 3.0]]), "columns must be named by text"),
    "infinity": (
        pd.DataFrame({"t": [1, 2, 3], "y": [1.0, np.inf, None]}),
        "the frame, row 1, column 'y': inf is not finite",
    ),
    "no order": (pd.DataFrame({"t": [1, 3, 2], "y": [1.0, 2.0, None]}), "looks like.*in row 2.*kind='series', x='t';"),
    "a level without a name": (
        pd.DataFrame({"y": [1.0, None]}, pd.MultiIndex.from_tuples([(1, 2), (2, 3)])),
        "every level of the index needs a name",
    ),
    "a zone and none": (
        pd.DataFrame({"t": ["2024-01-01T00:00+01:00", "2024-01-01T00:00"], "y": [1.0, None]}),
        "the frame, row 1, column 't'.*has no time zone",
    ),
}


@pytest.mark.parametrize("case", FRAMES)
@pytest.mark.usefixtures("unchecked")
def test_frames(case):
    frame, message, *options = FRAMES[case]
    with pytest.raises(FillinError, match=message) as told:
        fillin.fill(frame, **(options[0] if options else {}))
    assert "--" not in str(told.value)


@pytest.mark.usefixtures("unchecked")
def test_a_wrong_type_is_a_type_error():
    with pytest.raises(InputTypeError):
        fillin.fill("data.csv")


@pytest.mark.usefixtures("unchecked")
def test_bounds_of_python(small_filler):
    frame = pd.DataFrame({"t": [1, 2, 3], "y": [1.0, None, 2.0]})
    for bounds in ("0:", 3, (0, 1, 2), (float("nan"), 5)):
        with pytest.raises(FillinError, match="bounds must be a pair such as"):
            fillin.fill(frame, bounds=bounds, model=small_filler)
