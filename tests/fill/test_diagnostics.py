"""Notes on how data were read: printed on the command line, warnings in Python and kept with the result."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from support.series_files import TABLE

import fillin
from fillin.errors import FillinWarning

pytest_plugins = ["support.fill_command"]
SENSIBLE = {
    "the same time twice": ("date,y\n2024-01-01,1\n2024-01-01,2\n2024-01-02,\n2024-01-03,3\n", []),
    "unsorted times": ("date,y\n2024-01-03,1\n2024-01-01,2\n2024-01-02,\n", []),
    "an x that is named": (TABLE, ["--as", "series", "--x", "x"]),
    "a word for missing": ("t,y\n1,5\n2,<0.5\n3,7\n", ["--na", "<0.5"]),
    "a date read as declared": ("t,y\n01/02/2024,1\n01/03/2024,\n01/04/2024,3\n", ["--date-format", "%d/%m/%Y"]),
    "1e30 beside 1e-30": ("t,y\n1,1e30\n2,1e-30\n3,\n4,-1e30\n", []),
    "a constant": ("t,y\n1,4\n2,\n3,4\n", []),
    "one point": ("t,y\n1,4\n2,\n3,\n", []),
    "far and tiny locations": ("t,y\n1e30,4\n2e30,\n3e30,1\n", []),
    "years before the clocks": ("date,y\n0850-01-01,1\n0851-01-01,\n0852-01-01,3\n", []),
    "a fraction of a second": ("t,y\n2024-01-01 00:00:00,1\n2024-01-01 00:00:00.25,\n2024-01-01 00:00:01,3\n", []),
}


@pytest.mark.parametrize("case", SENSIBLE)
def test_a_sensible_result(case, fill):
    content, words = SENSIBLE[case]
    result = fill(content, *words).frame
    assert np.isfinite(result[["y_filled", "y_std", "y_low", "y_high"]]).all().all()


def test_a_number_that_may_encode_a_missing_value_is_noted(fill):
    ran = fill("t,y\n1,5\n2,-999\n3,6\n4,\n")
    assert ran.code == 0
    assert "y is -999 in 1 rows; if that encodes a missing value, pass --na -999" in ran.stdout
    ran = fill("t,y\n1,5\n2,-9999\n3,6\n4,-9999\n", name="full.csv")
    assert "y is -9999 in 2 rows; if that encodes a missing value, pass --na -9999" in ran.stdout
    assert "nothing seems to be missing" in ran.stdout
    ran = fill("t,y,z\n1,5,1\n2,-9999,\n3,6,2\n4,-9999,3\n", name="other.csv")
    assert "y is -9999 in 2 rows" in ran.stdout
    ran = fill("t,k,y\n1,5,3%\n2,6,\n3,7,5%\n", name="shares.csv")
    assert "shares.csv, line 2, column 'y': '3%' cannot be read as a number" in ran.stdout
    assert "nothing seems to be missing" in ran.stdout
    ran = fill(b"t,y,w\n1,5,K\xf6ln\n2,,a\n", "--force")
    assert "line 2 is not UTF-8: the file is read, and written, as Latin-1" in ran.stdout


DOUBTFUL = {
    "a number that may encode a missing value": (
        {"t": [1, 2, 3, 4], "y": [5, -999, 6, None]},
        {},
        r"y is -999 in 1 rows.*na=\[-999\]$",
    ),
    "words that mean missing": ({"t": [1, 2, 3], "y": ["5", "missing", "7"]}, {}, "y has 'missing' among its numbers"),
    "rows at one location": ({"t": [1, 1, 2, 3], "y": [5, 6, None, 6]}, {"x": "t"}, "2 rows share their location"),
    "a group without values": (
        {"t": [1, 2, 1, 2], "y": [1, None, None, None], "who": ["a", "a", "b", "b"]},
        {"by": "who"},
        "no value of y of b is observed",
    ),
    "numbers that cannot be read": (
        {"t": [1, 2, 3], "k": [5, 6, 7], "y": ["3%", None, "5%"]},
        {},
        "row 0, column 'y': '3%' cannot be read as a number",
    ),
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_doubtful_input_is_a_warning_at_the_line_of_the_caller(case, small_filler):
    columns, options, message = DOUBTFUL[case]
    with pytest.warns(FillinWarning, match=message) as caught:
        result = fillin.fill(pd.DataFrame(columns), model=small_filler, **options)
    assert [warning.filename for warning in caught] == [__file__], "once, and where fill was called"
    assert "--" not in str(caught[0].message)
    if "y_filled" in result:
        assert str(caught[0].message) in result.attrs["fillin"]


def test_a_declared_reading_is_no_warning(small_filler):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = pd.DataFrame({"t": [1, 2, 3, 4], "y": ["5", "-999", "?", "6"]})
        result = fillin.fill(frame, na=["-999", "?"], model=small_filler)
    assert (result["y_std"] > 0).tolist() == [False, True, True, False]


def test_attrs_of_a_pandas_frame_describe_the_reading(small_filler):
    day, hour = ["2024-01-01"] * 2 + ["2024-01-02"] * 2, ["00:00", "12:00"] * 2
    frame = pd.DataFrame({"day": day, "hour": hour, "y": [1.0, None, 2, 3]})
    frame.attrs["source"] = "mine"
    result = fillin.fill(frame, model=small_filler)
    seen, note = result.attrs["fillin"]
    assert seen.startswith("the frame: a series over day")
    assert note == "day and hour are read together, as one time"
    assert result.attrs["source"] == "mine"
    assert frame.attrs == {"source": "mine"}
    assert "y_filled" in fillin.fill(pl.DataFrame(frame), model=small_filler)


def test_words_that_are_read_as_missing_are_noted(fill):
    assert "y has 'n/a', '?' among its numbers: read as missing" in fill("t,y\n1,2\n2,n/a\n3,?\n4,\n5,3\n").stdout
    assert "note" not in fill("t,y\n1,2\n2,?\n3,\n4,3\n", "--na", "?", "--force").stdout
