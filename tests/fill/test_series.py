"""`fillin fill` and `fillin.fill` of series: unchanged input, added columns, and messages."""

import csv as csvs
import io
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from support.fields_with_gaps import PARTS
from support.series_files import csv, waves

import fillin
from fillin.cli import main
from fillin.errors import InputError
from fillin.filling.prediction import format_number

pytest_plugins = ["support.fill_command"]


LAYOUTS = {
    "plain": "t,y\n1,2.50\n2,\n3,4\n4,5e0\n",
    "without a last line ending": "t,y\n1,2.50\n2,\n3,4",
    "semicolons": "t;y\n1;2.50\n2;\n3;4\n",
    "a decimal comma": "t;y\n1,5;2,50\n2,5;\n3,5;4,0\n",
    "tabs": "t\ty\n1\t2.50\n2\tNA\n3\t4\n",
    "bars": "t|y\n1|2.50\n2|n/a\n3|4\n",
    "Windows": "t,y\r\n1,2.50\r\n2,NaN\r\n3,4\r\n",
    "quotes": 't,y,note\n1,2.50,"a, ""b"""\n2,,"two\nlines"\n3,4," 5"" pipe"\n',
    "a comment": "# river, 2024\n#\nt,y\n1,2.50\n2,-\n3,4\n",
    "UTF-8": "t,y,Ort\n1,2.50,Köln\n2,,Zürich\n3,4,東京\n",
    "a mark": "\ufefft,y\n1,2.50\n2,\n3,4\n",
    "Latin-1": "t,y,Ort\n1,2.50,Köln\n2,,Zürich\n3,4,Genève\n".encode("latin-1"),
    "missing values in many spellings": "t,y\n1,2.5\n2,NULL\n3,?\n4,None\n5,--\n6, \n7,#N/A\n8,3\n",
    "names with spaces": "t , y\n1, 2.50\n2,\n3, 4\n",
    "falling": "t,y\n3,2.50\n2,\n1,4\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_byte_is_kept_and_four_columns_are_added(layout, fill):
    content = LAYOUTS[layout]
    ran = fill(content)
    assert ran.code == 0, ran.stderr
    before = content if isinstance(content, bytes) else content.encode()
    after = ran.path.read_bytes()
    encoding = "latin-1" if layout == "Latin-1" else "utf-8"
    ending = "\r\n" if layout == "Windows" else "\n"
    separator = next(mark for mark in ",;\t|" if mark in before.decode(encoding).split("t", 1)[1][:3])
    assert after.endswith(ending.encode())
    # without the added cells, every row equals that of the input
    rows = list(csvs.reader(io.StringIO(after.decode(encoding), newline=""), delimiter=separator))
    original = list(csvs.reader(io.StringIO(before.decode(encoding), newline=""), delimiter=separator))
    comments = sum(row[0].startswith("#") for row in original)
    assert rows[:comments] == original[:comments]
    names = [f"y_{part}" for part in PARTS]
    assert rows[comments] == [*original[comments], *names]
    assert len(rows) == len(original)
    text = after.decode(encoding)
    for row, old in zip(rows[comments + 1 :], original[comments + 1 :], strict=True):
        assert row[:-4] == old
        mean, std, low, high = (float(cell.replace(",", ".")) for cell in row[-4:])
        if old[1].strip().lower() in ("", "na", "n/a", "nan", "-", "null", "?", "none", "--", "#n/a"):
            assert std > 0
            assert low < high
            assert np.isfinite([mean, low, high]).all()
        else:
            assert row[-4:] == [old[1].strip(), "0", old[1].strip(), old[1].strip()]
        text = text.replace(separator + separator.join(row[-4:]), "", 1)
    text = text.replace(separator + separator.join(names), "", 1)
    whole = before.decode(encoding)
    assert text == (whole if whole.endswith(ending) else whole + ending)


def test_the_summary_names_columns_and_missing_values(fill):
    printed = fill("rownames,time,value\n1,1959,3\n2,1960,\n3,1961,4\n").stdout
    assert "data.csv: a series over time (numbers, 1959 … 1961), 3 rows; to fill: value (1 missing)" in printed
    assert "data.filled.csv" in printed
    printed = fill("n,date,a,b,c\n3,2024-01-01,1,,x\n2,2024-01-02,,,y\n1,2024-01-03,3,4,z\n", "--force").stdout
    assert "over date (dates, 2024-01-01 … 2024-01-03)" in printed
    assert "a (1 missing), b (2 missing)" in printed
    printed = fill("t,y,who\n1,1,a\n1,,b\n2,,a\n2,3,b\n", "--by", "who", "--force").stdout
    assert "2 groups by who" in printed


def test_a_group_without_values_is_left_missing_with_a_note(fill):
    ran = fill("t,y,who\n1,1,a\n2,,a\n1,,b\n2,,b\n", "--by", "who")
    assert "no value of y of b is observed" in ran.stdout
    assert ran.frame["y_filled"].isna().tolist() == [False, False, True, True]


def test_a_number_can_encode_a_missing_value(fill, small_filler):
    result = fill("t,y\n1,5\n2,-999.90\n3,7\n4,-999.9\n", "--na", "-999.9").frame
    assert (result["y_std"] > 0).tolist() == [False, True, False, True]
    assert result["y_filled"].min() > -100
    result = fillin.fill(pd.DataFrame({"t": [1, 2, 3], "y": [5.0, -999, 7]}), na=[-999], model=small_filler)
    assert (result["y_std"] > 0).tolist() == [False, True, False]
    assert result["y"].tolist() == [5, -999, 7]


def test_complete_data_are_noted_and_not_written(fill):
    ran = fill("t,y\n1,2\n2,3\n")
    assert ran.code == 0
    assert "nothing is missing" in ran.stdout
    assert not ran.path.exists()
    frame = pd.DataFrame({"t": [1, 2], "y": [2.0, 3.0]})
    pd.testing.assert_frame_equal(fillin.fill(frame), frame)


def test_numbers_have_the_digits_that_are_certain():
    assert format_number(123456.789, 0.01) == "123456.789"
    assert format_number(-1.23456e-30, 2e-30) == "-1.235e-30"
    assert format_number(0.0, 0.0) == "0"
    assert format_number(3.25, 0.5, comma=True) == "3,25"


def test_a_kill_while_writing_leaves_no_partial_file(tmp_path, small_filler):
    path = tmp_path / "data.csv"
    path.write_text(csv(waves(200)))
    before = path.read_bytes()
    code = (
        "import os, sys; from fillin import io; from fillin.cli import main\n"
        "def stop(path): os.kill(os.getpid(), 9)\n"
        "io.sync = stop  # the file beside is written, and not yet renamed\n"
        "main(sys.argv[1:])"
    )
    arguments = ["fill", str(path), "--model", str(small_filler), "--no-figure"]
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert process.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert not (tmp_path / "data.filled.csv").exists()


def test_help_shows_examples(capsys):
    assert main(["fill", "--help"]) == 0
    printed = capsys.readouterr().out
    for word in ("--every 1d --until", "--bounds 0:1", "NAME_filled", "--by station", "--report"):
        assert word in printed


def test_a_missing_extra_is_named(monkeypatch, fill):
    monkeypatch.setitem(sys.modules, "pandas", None)
    ran = fill("t,y\n1,2\n2,\n")
    assert ran.code == 2
    assert "pip install 'fillin[fill]'" in ran.stderr
    with pytest.raises(InputError, match="fillin\\[fill\\]"):
        fillin.fill(pl.DataFrame({"x": ["a"], "y": [1.0]}))


def test_filling_does_not_import_the_compiler_of_torch(tmp_path):
    """sympy and the symbolic shapes of torch.export take half a second to import."""
    path = tmp_path / "data.csv"
    path.write_text("t,y\n1,2.50\n2,\n3,4\n4,5\n")
    code = (
        "import sys; from fillin.cli import main; code = main(['fill', sys.argv[1]]); "
        "print(code, {'sympy', 'torch._dynamo', 'torch.fx.experimental.symbolic_shapes'} & set(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "0 set()"


def test_a_column_without_a_value_is_left_as_it_is(tmp_path, capsys):
    path = tmp_path / "data.csv"
    path.write_text("date,a,dead\n2024-01-01,1,\n2024-01-02,,NA\n2024-01-03,3,\n")
    assert main(["fill", str(path)]) == 0
    assert "dead has no value, and is left as it is" in capsys.readouterr().out
    filled = pd.read_csv(tmp_path / "data.filled.csv")
    assert filled["a_filled"].notna().all()
    assert not any(name.startswith("dead_") for name in filled)
    assert main(["fill", str(path), "--y", "dead", "--force"]) == 2
    assert "column 'dead' is missing in all 3 rows" in capsys.readouterr().err
