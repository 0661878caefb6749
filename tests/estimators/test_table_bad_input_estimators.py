"""Tables that cannot be read get a FillinError that names column, row and remedy."""

import sys
from datetime import date, timedelta

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import fillin
from fillin.errors import FillinError
from fillin.tabular.schema import Column, Schema
from fillin.warp import PiecewiseLinearWarp

pytestmark = pytest.mark.usefixtures("unchecked")
FITTED = Schema.infer(pandas.DataFrame({"age": [1.0, 2.0], "name": ["a", "b"], "born": [date(2000, 1, 1), None]}))
TWICE = pandas.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])


def objects(*cells) -> pandas.DataFrame:
    return pandas.DataFrame({"a": pandas.Series(cells, dtype=object)})


def later(**columns) -> pandas.DataFrame:
    return pandas.DataFrame({"age": [1.0, 2.0], "name": ["a", "b"], "born": [None, None], **columns})


INFER = {
    "a list": (lambda: [[1, 2]], "DataFrame .* or an array of NumPy.*got list.*numpy.asarray"),
    "nothing": (lambda: None, "got NoneType"),
    "a series": (lambda: pandas.Series([1.0]), r"got Series.*to_frame\(\)"),
    "lazy": (lambda: polars.LazyFrame({"a": [1]}), r"got LazyFrame.*collect\(\)"),
    "sparse": (lambda: __import__("scipy").sparse.eye(2), r"toarray\(\)"),
    "one dimension": (lambda: np.zeros(3), r"2D array.*got a 1D array instead.*Reshape your data.*reshape\(-1, 1\)"),
    "a scalar": (lambda: np.array(3.0), "got a scalar"),
    "three dimensions": (lambda: np.zeros((1, 1, 1)), "got a 3D array"),
    "no rows": (lambda: pandas.DataFrame({"a": []}), "no rows"),
    "no rows of an array": (lambda: np.zeros((0, 2)), r"no rows: 0 sample\(s\)"),
    "no columns": (lambda: np.zeros((2, 0)), "no columns"),
    "no columns of a frame": (lambda: polars.DataFrame(), "no columns"),
    "names twice": (lambda: TWICE, "two columns are called 'a'; give each"),
    "names twice in Arrow": (lambda: pyarrow.table([[1], [2]], names=["b", "b"]), "two columns are called 'b'"),
    "a name and a number": (lambda: pandas.DataFrame([[1, 2]], columns=["0", 0]), "two columns are called '0'"),
    "text among numbers": (lambda: objects(1, None, 2.5, "x"), "'a', row 3 .*'x'.*mixed types.*kinds={'a': 'class'}"),
    "a number among text": (lambda: objects("x", "y", 3), "row 2 .* is 3 .number.*most of the column is text"),
    "truths among numbers": (lambda: objects(1, 0, True), "row 2 .* is True .boolean.*mixed"),
    "a date among numbers": (lambda: objects(1, date(2000, 1, 1)), r"datetime.date\(2000, 1, 1\) .date"),
    "infinity": (lambda: np.array([[1.0, 2.0], [3.0, -np.inf]]), "'x1', row 1 .*infinite.*missing"),
    "infinity in polars": (lambda: polars.DataFrame({"a": [1.0, np.inf]}), "'a', row 1 .*infinite"),
    "infinity among objects": (lambda: objects(None, np.inf), "row 1 .*infinite"),
    "infinity as text": (lambda: objects("1", "2", "inf"), "row 2 .*infinite"),
    "too large to be one": (lambda: objects(1, 10**400), "row 1 .*infinite"),
    "complex": (lambda: np.array([[1j]]), "'x0': Complex data not supported"),
    "complex in pandas": (lambda: pandas.DataFrame({"a": [1j, 2j]}), "'a': Complex data not supported"),
    "complex among objects": (lambda: objects(1.0, 2j), "row 1 .*Complex data not supported"),
    "lists": (lambda: objects(None, [1]), "row 1 .* is of type list"),
    "lists in polars": (lambda: polars.DataFrame({"a": [[1], [2]]}), "'a' is of type List"),
    "tuples": (lambda: objects((1, 2)), "row 0 .* is of type tuple; write it as"),
    "durations": (lambda: polars.DataFrame({"a": [timedelta(1)]}), "'a' is of type Duration"),
    "durations in NumPy": (lambda: np.array([[1]], dtype="timedelta64[D]"), "'x0' is of type timedelta64"),
    "bytes": (lambda: np.array([[b"a"]]), "'x0' is of type .S1; make it"),
    "records": (lambda: np.zeros((1, 1), dtype=[("a", "f8")]), "'x0' is of type"),
}


@pytest.mark.parametrize("case", INFER)
def test_unreadable_tables(case):
    data, message = INFER[case]
    with pytest.raises(FillinError, match=message):
        Schema.infer(data())


TEN = np.zeros((1, 30))
ENCODE = {
    "text": (lambda: later(age=["1", "old"]), "'age', row 1 .* is 'old', expected a number; .*kinds={'age': 'class'}"),
    "infinity": (lambda: later(age=[1.0, np.inf]), "'age', row 1 .*infinite"),
    "a number for a date": (lambda: later(born=[np.nan, 3.0]), "'born', row 1 .* is 3.0, expected a date"),
    "a date for a number": (lambda: later(age=[None, date(2000, 1, 1)]), "'age', row 1 .*expected a number"),
    "no such day": (lambda: later(born=["2001-02-28", "2001-02-29"]), "'born', row 1 .*'2001-02-29'"),
    "columns gone": (lambda: later()[["name"]], "missing: 'age', 'born'; expected 'age', 'name', 'born', got 'name'"),
    "renamed": (lambda: later().rename(columns={"age": "Age"}), "missing: 'age'; .*rename"),
    "too many": (lambda: np.zeros((1, 4)), "has 4 columns, expected 3: 'age', 'name', 'born'"),
    "no rows": (lambda: later()[:0], "no rows"),
}


@pytest.mark.parametrize("case", ENCODE)
def test_tables_that_do_not_fit_the_schema(case):
    data, message = ENCODE[case]
    with pytest.raises(FillinError, match=message):
        FITTED.encode(data())


AB = pandas.DataFrame({"a": ["x", "2"], "b": [0, 2]})
OTHER = {
    "kinds of no column": (lambda: Schema.infer(AB, {"c": "class"}), "unknown column in kinds 'c'.*Available: a, b"),
    "no such kind": (lambda: Schema.infer(AB, {"a": "classes"}), "kind of column 'a' 'classes'; did you mean 'class'"),
    "kinds in a list": (lambda: Schema.infer(AB, ["class"]), "kinds is a dictionary.*got list"),  # type: ignore
    "no numbers": (lambda: Schema.infer(AB, {"a": "number"}), "'a', row 0 .* is 'x', expected a number"),
    "no dates": (lambda: Schema.infer(AB, {"b": "date"}), "'b', row 0 .* is 0, expected a date"),
    "no truths": (lambda: Schema.infer(AB, {"b": "boolean"}), "'b', row 1 .* is 2, expected true or false.*class"),
    "frames of a thousand": (
        lambda: Schema.infer(TEN).encode(TEN[:, 1:]),
        r"expected 30: 'x0', .*'x9' … \(30 in all\)",
    ),
    "decoding no column": (lambda: FITTED["nam"].decode(np.zeros(1)), "unknown column 'nam'; did you mean 'name'"),
    "no code": (lambda: FITTED["name"].decode(np.array([0.0, 3.0])), "'name': codes .* from 0 to 2, got 3"),
    "half a code": (lambda: FITTED["name"].decode(np.array([0.5])), "got 0.5"),
    "a column of no kind": (lambda: Column("a", "text"), "unknown kind of column 'a' 'text'"),
    "no schema": (lambda: Schema.from_dict({"columns": [{"name": "a"}]}), "not what Schema.to_dict gave.*kind"),
    "no scale": (lambda: PiecewiseLinearWarp.from_dict({"knots": [0]}), "cannot be read.*scores"),
    "a scale unknown": (
        lambda: PiecewiseLinearWarp.fit(np.zeros(3), "quantiles"),
        "scale 'quantiles'; did you mean 'quantile'",
    ),
}


@pytest.mark.parametrize("case", OTHER)
def test_other_invalid_arguments(case):
    call, message = OTHER[case]
    with pytest.raises(FillinError, match=message):
        call()


def test_a_missing_narwhals_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(FillinError, match=r"narwhals.*pip install 'fillin\[fill\]'"):
        Schema.infer(AB)
    assert Schema.infer(np.zeros((1, 1))).names == ["x0"]  # arrays need nothing else


def test_text_targets_need_the_classifier():
    with pytest.raises(FillinError, match="y contains text, such as 'a'; for classes use TableClassifier"):
        fillin.TableRegressor().fit(np.zeros((4, 1)), ["a", "b", "a", "b"])


def test_loading_a_saved_estimator_as_a_model_names_the_right_method(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"")
    with pytest.raises(FillinError, match=r"is a file, and models are folders.*fillin.TableRegressor.load"):
        fillin.load(path)
