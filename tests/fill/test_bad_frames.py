"""Bad input in Python: errors name the row, the column and the argument, in words of Python."""

import numpy as np
import pandas as pd
import pytest
from support.helpers import ExactProcess

import fillin
from fillin.errors import FillinError, InputTypeError

pytest_plugins = ["support.fill_command"]
FRAMES = {
    "a list": ([1, 2], "fill takes a DataFrame .*array of NumPy.*xarray, got list"),
    "one column": (pd.DataFrame({"y": [1.0, None]}), "only one column, 'y'.*value; add a column of locations, or an"),
    "words": (
        pd.DataFrame({"t": [1, 2, 3], "y": ["1", "<2", "3"]}),
        r"row 1, column 'y': '<2' is not a number; .*: na=\['<2'\]$",
    ),
    "a missing location": (
        pd.DataFrame({"t": [1, None, 3], "y": [1, 1, None]}),
        "row 1, column 't': missing.* with x=; if the rows have no order, pass kind='table'$",
    ),
    "a step": (pd.DataFrame({"t": [1, 2], "y": [1, None]}), "^every: 'soon' is not a step", {"every": "soon"}),
    "no rows": (pd.DataFrame({"t": [], "y": []}), "the frame has no rows"),
    "columns without names": (pd.DataFrame([[1.0, None], [2.0, 3.0]]), "columns must be named by text"),
    "infinity": (
        pd.DataFrame({"t": [1, 2, 3], "y": [1.0, np.inf, None]}),
        "the frame, row 1, column 'y': inf is not finite",
    ),
    "new rows and no order": (
        pd.DataFrame({"t": [1, 3, 2], "y": [1.0, 2.0, None]}),
        "looks like.*in row 2.*kind='series', x='t';",
        {"every": 1},
    ),
    "until alone": (pd.DataFrame({"t": [1, 2], "y": [1, None]}), "^until needs every, the step", {"until": 5}),
    "a step of times": (
        pd.DataFrame({"t": ["2024-01-01", "2024-01-02"], "y": [1.0, None]}),
        "^every: 'soon' is not a duration",
        {"every": "soon"},
    ),
    "an end": (
        pd.DataFrame({"t": ["2024-01-01", "2024-01-02"], "y": [1.0, None]}),
        "^until 2020-01-01 lies before",
        {"every": "1d", "until": "2020-01-01"},
    ),
    "a turn": (pd.DataFrame({"t": [1, 2], "y": [1, None]}), "^period: 'round' is not a period", {"period": "round"}),
    "day or month": (
        pd.DataFrame({"t": ["01/02/2024", "01/03/2024", "01/04/2024"], "y": [1, None, 3]}),
        "no date decides; read it with pandas.to_datetime, format='%d/%m/%Y' or '%m/%d/%Y'",
    ),
    "several series": (
        pd.DataFrame({"t": ["2024-01-01"] * 2 + ["2024-01-02"] * 2, "y": [1, None, 2, 3], "a b": list("pqpq")}),
        "identifies the series: by='a b'; .*pass kind='series'$",
    ),
    "most rows at one location": (
        pd.DataFrame({"t": [1, 1, 1, 2], "y": [1, None, 2, 3]}),
        "identifies the series: by='COLUMN'; .*with x=; average",
        {"x": "t"},
    ),
    "all missing": (
        pd.DataFrame({"t": [1, 2], "y": [None, None], "z": [1, 2]}, dtype=float),
        "others with y=$",
        {"y": "y"},
    ),
    "outside": (
        pd.DataFrame({"t": [1, 2, 3], "y": [1, -2, None]}),
        "row 1, column 'y': -2 lies outside bounds 0:;",
        {"bounds": (0, None)},
    ),
    "no model": (
        pd.DataFrame({"t": [1, 2], "y": [1, None]}),
        "^model: there is no model 'nowhere'",
        {"model": "nowhere"},
    ),
    "no errors": (
        pd.DataFrame({"t": [1, 2], "y": [1, None], "e": [1, 1]}),
        "^y_err: this model does not read errors",
        {"y_err": "e", "model": ExactProcess()},
    ),
    "no room": (
        pd.DataFrame({"t": [1, 2, 3], "y": [1, -2e300, None]}),
        "the frame, row 1, column 'y': -2e.300 is beyond 1e.300",
    ),
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
    with pytest.raises(FillinError, match=message) as caught:
        fillin.fill(frame, **(options[0] if options else {}))
    assert "--" not in str(caught.value)


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
