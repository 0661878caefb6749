"""Tables that cannot be filled: an error with location and remedy, or a sensible result; and nothing half-written."""

import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

import fillin
from fillin.cli import main
from fillin.errors import FillinError
from fillin.filling.table import impute as learn

pytest_plugins = ["support.table_command"]
pytestmark = pytest.mark.usefixtures("quick_tables")


def test_nothing_missing_and_nothing_observed(fill_table, tmp_path):
    for content, words in {
        "a,b\n1,x\n3,y\n2,x\n": "nothing is missing: nothing was done",
        "a,b\n1,\n": "b: no value is observed, left missing.*nothing can be filled: nothing was done",
        "a,b\n,\n,\n": "a, b: no value is observed, left missing.*nothing can be filled",
    }.items():
        code, printed, out = fill_table(content, "--as", "table")
        assert code == 0, printed
        assert re.search(words, printed, re.DOTALL)
        assert out is None
    assert os.listdir(tmp_path) == ["data.csv"]


def test_ten_thousand_categories(monkeypatch):
    monkeypatch.setattr(learn, "FULL", learn.EnsembleSize(1, 1))
    random = np.random.default_rng(0)
    town = np.array([f"town {i}" for i in range(10_000)] * 3, dtype=object)[:20_100]
    town[:2000] = "town 7"
    town[random.permutation(len(town))[:50]] = None
    table = pd.DataFrame({"town": town, "x": random.normal(size=len(town))})
    result = fillin.fill(table, kind="table")
    assert result["town_filled"].isin(result["town"]).all()
    assert result["town_probability"].between(0, 1).all()
    with pytest.raises(FillinError, match=r"column 'town' has (10,000|9,99\d) classes, and at most 100.*y='town'"):
        fillin.fill(table, target="town")


def test_planning_a_table_does_not_wait_for_torch():
    code = "import sys, fillin.filling.table.plan as plan; print('torch' in sys.modules, plan.MAX_CLASSES)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "100"]


@pytest.mark.usefixtures("unchecked")
def test_duplicate_column_names_in_a_frame(tmp_path, capsys):
    table = pyarrow.table([[1, 3, 2], [3, None, 5]], names=["b", "b"])
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    assert main(["fill", str(tmp_path / "data.parquet")]) == 2
    assert "data.parquet: two columns are called 'b'; give each a name of its own" in capsys.readouterr().err
    frame = pd.DataFrame([[1, 2], [3, None]], columns=["a", "a"])
    with pytest.raises(FillinError, match="the frame: two columns are called 'a'"):
        fillin.fill(frame, kind="table")


TABLE = "a,b\n1,x\n3,\n2,y\n"


BAD = {
    "empty": ("", [], "data.csv is empty"),
    "a header alone": ("a,b\n", [], "a header and no rows"),
    "twice one name": ("a,a\n1,2\n3,\n2,1\n", [], "line 1: two columns are called 'a'"),
    "ragged": ("a,b\n1,2\n3\n2,1\n", [], "data.csv, line 3: 1 cells, but the header has 2"),
    "mixed types": (
        "a,b\n1,x\n3,y\nmany,z\n2,\n",
        [],
        "data.csv, line 4, column 'a': 'many' is not a number.*--na many; .*pass --class a",
    ),
    "one row": ("a,b,c\n1,,x\n", [], "column 'b' is missing in the only row; leave it out"),
    "infinity": ("a,b\n1,x\n3,y\n-inf,z\n2,\n", [], "data.csv, line 4, column 'a': '-inf' is not finite"),
    "huge": ("a,b\n1,x\n3,y\n1e200,z\n2,\n", [], r"data.csv, line 4, column 'a': 1e\+200 is beyond 1e\+100"),
    "units": ("a,b\nm,kg\n1,2\n3,\n2,1\n", [], "line 2: 'm', 'kg' look like units"),
    "no such target": (TABLE, ["--target", "bb"], "unknown column of data.csv 'bb'; did you mean 'b'"),
    "a target of which nothing is known": ("a,b\n1,\n3,\n2,\n", ["--target", "b"], "'b' is missing in all 3 rows"),
    "a target and nothing else": ("b,k\n1,1\n,1\n2,1\n", ["--target", "b"], "no other column can predict 'b'.*--y b"),
    "two ways to say it": (TABLE, ["--target", "b", "--y", "b"], "--target and --y both name"),
    "a target of a series": (TABLE, ["--target", "b", "--as", "series"], "--target does not apply to a series"),
    "bounds of no column": (TABLE, ["--bounds", "c=0:1"], "unknown column of data.csv 'c'"),
    "a model": (TABLE, ["--model", "curve"], "--model does not apply"),
    "places": (TABLE, ["--as", "table", "--x", "a"], "--x does not apply"),
    "level": (TABLE, ["--level", "95"], "--level must lie between 0 and 1"),
    "seed": (TABLE, ["--seed", "-1"], "--seed must be an integer from 0"),
    "filled before": ("a,b,b_probability\n1,x,1\n3,,1\n2,y,1\n", [], "already has a column 'b_probability'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_clear_error_and_nothing_written(case, fill_table, tmp_path):
    content, words, message = BAD[case]
    code, printed, _ = fill_table(content, *words)
    assert code == 2, printed
    assert re.search(message, printed), printed
    assert len(printed.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == ["data.csv"]


def test_files_are_replaced_only_with_force(fill_table, tmp_path, monkeypatch):
    (tmp_path / "data.filled.csv").write_text("mine")
    monkeypatch.setattr(learn, "predict_cells", None)  # it is known before anything slow begins
    code, printed, out = fill_table(TABLE)
    assert code == 2
    assert "data.filled.csv exists; replace it with --force" in printed
    assert out == b"mine"
    code, printed, _ = fill_table(TABLE, "-o", "data.csv")
    assert code == 2
    assert "is the input, which is never overwritten" in printed


def test_after_an_error_nothing_is_written(fill_table, tmp_path, monkeypatch):
    from fillin import io

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(io, "sync", refuse)
    code, printed, _ = fill_table(TABLE)
    assert code == 2
    assert "cannot write" in printed
    assert os.listdir(tmp_path) == ["data.csv"]
