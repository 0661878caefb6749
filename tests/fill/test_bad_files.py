"""Files that cannot be read as a table: an error that names the file, the line and the remedy, and nothing written."""

import gzip
import os

import numpy as np
import pytest
from support.series_files import SERIES

from fillin.cli import main

pytest_plugins = ["support.fill_command"]
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
    "a spreadsheet": (b"PK\x03\x04 and so on", [], "not a CSV file but a spreadsheet.*save it as CSV"),
    "Parquet": (b"PAR1 and so on", [], "not a CSV file but a Parquet file; name it .parquet"),
    "gzip": (gzip.compress(SERIES.encode()), [], "compressed; unpack it"),
    "UTF-16": (SERIES.encode("utf-16"), [], "UTF-16; save it as UTF-8"),
    "one column": ("y\n1\n3\n", [], "data.csv has only one column, 'y'.*a semicolon, a tab"),
    "spaces between cells": ("t y\n1 2\n2 3\n", [], "data.csv has only one column, 't y'"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_clear_error_and_nothing_written(case, assert_refused):
    assert_refused(*CASES[case])


def error_of(words, capsys) -> str:
    assert main(["fill", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_a_folder_no_file_and_another_kind(tmp_path, capsys):
    assert "is a folder; name a file in it" in error_of([tmp_path], capsys)
    assert "there is no file" in error_of([tmp_path / "none.csv"], capsys)
    (tmp_path / "data.xlsx").write_bytes(b"PK")
    assert "ends in .csv" in error_of([tmp_path / "data.xlsx"], capsys)
    (tmp_path / "data.parquet").write_bytes(b"PAR1, or not")
    assert "not a readable Parquet file" in error_of([tmp_path / "data.parquet"], capsys)


def test_no_permission(tmp_path, capsys, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_text(SERIES)
    if os.geteuid():
        path.chmod(0)
    else:  # root may read anything

        def refuse(self):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(type(path), "read_bytes", refuse)
    assert "cannot read" in (printed := error_of([path], capsys))
    assert "Permission denied; check its permissions" in printed
