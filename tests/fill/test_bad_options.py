"""Options that do not fit the table, and bad locations: an error that names them, and nothing written."""

import re

import pytest
from support.series_files import SERIES

pytest_plugins = ["support.fill_command"]
CASES = {
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
    "no step": (SERIES, ["--every", "soon"], "'soon' is not a duration; write 10min, 1h"),
    "m alone": (SERIES, ["--every", "1m"], "'1m' is not a duration; write 10min, 1h, 1d, 1w, 1mo"),
    "no step of numbers": (
        "t,y\n1,2\n2,\n",
        ["--every", "1h"],
        "'1h' is not a step of the x column, which has numbers",
    ),
    "a step of nothing": ("t,y\n1,2\n2,\n", ["--every", "0"], "must be more than 0"),
    "too many steps": (SERIES, ["--every", "1us"], "gives .* rows; choose longer steps"),
    "too many numbers": ("t,y\n1,2\n2,\n", ["--every", "1e-9"], "gives .* rows; choose larger steps"),
    "far too many numbers": (
        "t,y\n1,2\n2,\n",
        ["--every", "1e-300"],
        r"1e-300 gives 1e\+300 rows; choose larger",
    ),
    "until before": (
        SERIES,
        ["--every", "1d", "--until", "2020-01-01"],
        "lies before the first location of data.csv, 2024-01",
    ),
    "until nothing": (
        SERIES,
        ["--every", "1d", "--until", "soon"],
        "--until: 'soon' is not a date; write it as 2027-01-31",
    ),
    "until another zone": (
        SERIES,
        ["--every", "1d", "--until", "2025-01-01 00:00Z"],
        "has a time zone, the column has none",
    ),
    "no period": ("t,y\n1,2\n2,\n", ["--period", "round"], "'round' is not a period of 't'"),
    "a level": (SERIES, ["--level", "95"], "--level must lie between 0 and 1"),
    "no model": (SERIES, ["--model", "nowhere"], "--model: there is no model 'nowhere'"),
    "a model that does not fill": (SERIES, ["--model", "te-tnp-rbf"], "te-tnp-rbf is not a model that fills"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_clear_error_and_nothing_written(case, assert_refused):
    assert_refused(*CASES[case])


AT = {
    "another kind of location": ("date\n1\n2\n", "column 'date' must have dates"),
    "a missing location": ("date,k\n2024-01-05,1\n,2\n", "at.csv, line 3, column 'date': missing"),
    "no such column": ("when,k\n2024-01-05,1\n2024-01-06,1\n", "unknown column of at.csv 'date'"),
    "mixed formats": ("date,k\n2024-01-05,1\n2024-01-06,1\n07.01.2024,1\n", "at.csv, line 4, column 'date'"),
    "a zone": ("date,k\n2024-01-05T00:00Z,1\n", "one has a time zone and the other has none"),
}


@pytest.mark.parametrize("case", AT)
def test_new_rows_that_cannot_be_read(case, fill, tmp_path):
    content, message = AT[case]
    (tmp_path / "at.csv").write_text(content)
    ran = fill(SERIES, "--at", str(tmp_path / "at.csv"))
    assert ran.code == 2
    assert re.search(message, ran.stderr), ran.stderr


def test_a_group_that_is_not_observed(fill, tmp_path):
    (tmp_path / "at.csv").write_text("t,who\n5,a\n6,z\n")
    ran = fill("t,y,who\n1,1,a\n2,,a\n", "--by", "who", "--at", str(tmp_path / "at.csv"))
    assert "at.csv, line 3, column 'who': data.csv has no group 'z'" in ran.stderr
