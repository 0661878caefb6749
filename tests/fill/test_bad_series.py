"""Tables whose rows or cells make no series: an error with the line, the column and the remedy, and nothing written."""

import pytest
from support.series_files import SERIES, TABLE

pytest_plugins = ["support.fill_command"]
CASES = {
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
    "too many new rows": (
        "date,y\n2024-01-01,1\n2024-01-02,\n2024-01-03,3\n",
        ["--every", "1s", "--until", "2024-02-01"],
        "2,678,398 new rows are requested, the limit is 500,000",
    ),
    "all missing": ("date,y\n2024-01-01,\n2024-01-02,NA\n", [], "column 'y' is missing in all 2 rows.*--y"),
    "new rows and no order": (
        TABLE,
        ["--every", "1"],
        r"looks like a table.*'x' breaks in line 4.*new rows.*--as series --x x",
    ),
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
        "data.csv, line 3, column 'date': missing.*remove the row",
    ),
    "a line of empty cells": (
        "t,y\n1,5\n,\n3,5\n",
        [],
        "data.csv, line 3, column 't': missing, and a row without a location",
    ),
    "a missing location beside values that rise": ("t,y\n1,5\n,6\n3,7\n", [], "data.csv, line 3, column 't': missing"),
    "a word among locations": ("t,y\n1,5\nx2,\n3,5\n4,5\n", [], "line 3, column 't': 'x2' is not a number"),
    "NaN in x": ("x,y\n1,1\nNaN,2\n3,\n", ["--x", "x"], "data.csv, line 3, column 'x': missing"),
    "infinity in x": ("x,y\n1,1\ninf,2\n3,\n", ["--x", "x"], "line 3, column 'x': 'inf' is not finite"),
    "all of x missing": ("x,y\n,1\n,2\n,\n", ["--x", "x"], "column 'x' is missing in every row"),
    "text in y": (
        "t,y\n1,5\n2,<0.5\n3,7\n4,\n",
        [],
        "data.csv, line 3, column 'y': '<0.5' is not a number.*--na '<0.5'",
    ),
    "values that overflow": (
        "t,y\n1,5\n2,-1e301\n3,\n",
        [],
        r"data.csv, line 3, column 'y': -1e\+301 is beyond 1e\+300",
    ),
    "locations that overflow": ("t,y\n-1e308,5\n2,\n1e308,4\n", [], "data.csv, line 2, column 't': .*other units"),
    "text in y alone": ("t,y\n1,5\n2,x\n3,7\n", [], "line 3, column 'y': 'x' is not a number"),
    "infinity in y": ("t,y\n1,5\n2,inf\n3,\n", [], "line 3, column 'y': 'inf' is not finite"),
    "thousands": ('t,y\n1,"1,000.5"\n2,3\n3,\n', [], "line 2, column 'y': '1,000.5' is not a number"),
    "words as y": ("date,y\n2024-01-01,a\n2024-01-02,b\n", ["--y", "y"], "column 'y' has no numbers"),
    "words as x": (
        "date,w,y\n2024-01-01,a,1\n2024-01-02,b,\n",
        ["--x", "w"],
        "column 'w' has neither numbers nor dates",
    ),
    "an unknown column": (SERIES, ["--y", "yy"], "unknown column of data.csv 'yy'; did you mean 'y'"),
    "an unknown x": (SERIES, ["--x", "dat"], "did you mean 'date'"),
    "an unknown group": (SERIES, ["--by", "station"], "unknown column of data.csv 'station'.*Available: date, y"),
    "x as y": (SERIES, ["--x", "y", "--y", "y"], "'y' cannot be x and have another role"),
    "several series": (
        "date,who,y\n2024-01-01,a,1\n2024-01-01,b,2\n2024-01-02,a,\n2024-01-02,b,3\n",
        [],
        "data.csv, line 3, column 'date': the same location as in line 2.*--by who;.*join the two.*--as series",
    ),
    "most rows of one date": (
        "date,y\n2024-01-01,1\n2024-01-01,2\n2024-01-01,\n2024-01-02,3\n",
        [],
        "data.csv, line 3, column 'date': the same location as in line 2: 4 rows have only 2 locations.*join.*--by",
    ),
    "most rows of one year, declared": (
        "year,y\n2024,1\n2024,2\n2024,\n2024,3\n",
        ["--x", "year", "--as", "series"],
        "data.csv, line 3, column 'year': the same location as in line 2: 4 rows have only 1 location\\.",
    ),
    "most rows of one date in each group": (
        "date,w,y\n2024-01-01,a,1\n2024-01-01,b,2\n2024-01-01,a,\n2024-01-01,b,3\n",
        ["--by", "w"],
        "data.csv, line 4, column 'date': the same location as in line 2",
    ),
    "new rows in two columns": (
        "date,time,y\n2024-01-01,00:00,1\n2024-01-01,12:00,\n2024-01-02,00:00,3\n",
        ["--every", "6h"],
        "'date' and 'time' are one time in two columns.*join them",
    ),
    "no order and few values": (
        "k,w,y\n1,a,2\n2,a,\n1,a,4\n2,b,5\n1,b,5\n",
        ["--by", "w"],
        "table: .*order of 'k' breaks in line 4.*Groups.*--x k",
    ),
    "filled before": ("t,y,y_filled\n1,2,2\n2,,3\n", [], "already has a column 'y_filled'"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_clear_error_and_nothing_written(case, assert_refused):
    assert_refused(*CASES[case])
