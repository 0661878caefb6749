"""ProcessRegressor on disk, and its errors for bad input."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from support.helpers import ExactProcess, tiny
from support.regression_data import Q, X, Y, filler, unit_data

import fillin
from fillin import ProcessRegressor
from fillin.errors import FillinError, InputError

pytest_plugins = ["support.regressor_fixtures"]
pytestmark = pytest.mark.usefixtures("short_search")


# on disk


def test_a_loaded_regressor_predicts_the_same(fitted, tmp_path, ship_models):
    pandas = pytest.importorskip("pandas")
    ship_models(mine=filler())
    y = np.stack([Y, np.where(np.arange(30) % 3, Y**2, np.nan)], 1)
    regressor = ProcessRegressor("mine", random_state=4).fit(pandas.DataFrame({"t": X[:, 0]}), y, y_err=0.2)
    query = pandas.DataFrame({"t": Q[:, 0]})
    for folder in ("a", "a"):  # the second time over the first
        path = regressor.save(tmp_path / folder / "some.safetensors")
    again = ProcessRegressor.load(path)
    assert again.get_params() == regressor.get_params()
    for loaded, original in zip(
        again.predict(query, return_cov=True), regressor.predict(query, return_cov=True), strict=True
    ):
        assert np.array_equal(loaded, original)
    assert np.array_equal(again.sample_y(query, 2), regressor.sample_y(query, 2))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(query.rename(columns={"t": "u"}))
    assert [p.name for p in path.parent.iterdir()] == ["some.safetensors"]
    alone = ProcessRegressor.load(fitted.save(tmp_path / "alone"))
    assert np.array_equal(alone.predict(Q), fitted.predict(Q))
    assert np.array_equal(clone(alone).fit(X, Y).predict(Q), fitted.predict(Q))


def test_errors_of_save_and_load(fitted, tmp_path):
    (tmp_path / "text").write_text("no tensors")
    fillin.save(fitted.model, tmp_path / "model")
    cases = {
        "nothing": "not a readable regressor",
        "text": "not a readable regressor",
        "model/model.safetensors": r"not a ProcessRegressor.*fillin\.load",
    }
    for name, message in cases.items():
        with pytest.raises(InputError, match=message):
            ProcessRegressor.load(tmp_path / name)
    with pytest.raises(InputError, match="cannot write"):
        fitted.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "text"]
    with pytest.raises(InputError, match=r"made by fillin\.create"):
        ProcessRegressor(ExactProcess()).fit(*unit_data()).save(tmp_path / "exact")


# bad input

CASES = {
    "no rows": (lambda r: r.fit(X[:0], Y[:0]), "0 sample"),
    "other lengths": (lambda r: r.fit(X, Y[:-1]), "inconsistent numbers of samples"),
    "no observed value": (lambda r: r.fit(X, Y * np.nan), "column 0 has no observed value"),
    "an empty column": (lambda r: r.fit(X, np.stack([Y, Y * np.nan], 1)), "column 1 has no observed value"),
    "infinite y": (lambda r: r.fit(X, Y + np.inf), "Input y contains infinity"),
    "text in y": (lambda r: r.fit(X, ["a"] * 30), "could not convert string to float"),
    "three axes": (lambda r: r.fit(X, Y[:, None, None]), "dim 3|3 dimensions"),
    "NaN in X": (lambda r: r.fit(X * np.nan, Y), "Input X contains NaN"),
    "one axis": (lambda r: r.fit(X[:, 0], Y), "Reshape your data"),
    "other columns": (lambda r: r.fit(X, Y).predict(np.ones((3, 2))), "2 features, but.*expecting 1"),
    "columns of another model": (lambda r: r.fit(np.ones((3, 2)), Y[:3]), "X has 2 columns.*dim_x=1"),
    "a negative error": (lambda r: r.fit(X, Y, np.where(np.arange(30) == 7, -1, 1)), r"y_err is -1 in row 7"),
    "an infinite error": (lambda r: r.fit(X, Y, np.inf), "y_err contains infinity"),
    "errors of other length": (lambda r: r.fit(X, Y, np.ones(4)), r"y_err has shape \(4,\).*\(30, 1\)"),
    "a probability of one": (lambda r: r.fit(X, Y).predict(Q, quantiles=[0.5, 1]), r"between 0 and 1.*\[0\.5, 1\]"),
    "a probability of zero": (lambda r: r.fit(X, Y).predict(Q, quantiles=0), "between 0 and 1"),
    "no probabilities": (lambda r: r.fit(X, Y).predict(Q, quantiles=[]), "between 0 and 1"),
    "a NaN for a probability": (lambda r: r.fit(X, Y).predict(Q, quantiles=np.nan), "between 0 and 1"),
    "std and cov": (lambda r: r.fit(X, Y).predict(Q, True, True), "not both"),
    "a large covariance": (lambda r: r.fit(X, Y).predict(np.ones((257, 1)), return_cov=True), "at most 256.*sample_y"),
    "a location in other units": (
        lambda r: r.fit(X, Y).predict([[2.0], [1e30]]),
        r"X\[1, 0\] is 1e\+30, but.*between 0\..* and 4\..*check its units",
    ),
    "no samples": (lambda r: r.fit(X, Y).sample_y(Q, 0), "n_samples must be"),
    "an unknown name": (lambda r: r.set_params(model="curv").fit(X, Y), "unknown model 'curv'"),
    "two outputs at once": (lambda r: r.set_params(model=tiny("filler", 1, 2)).fit(X, Y), "dim_y=2.*independently"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case):
    call, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        call(ProcessRegressor(filler()))


def test_bad_types_and_unsupported_options(unchecked):
    with pytest.raises(TypeError, match="a name, a folder or a process, got int"):
        ProcessRegressor(3).fit(X, Y)
    with pytest.raises(TypeError, match="probabilities"):
        ProcessRegressor(filler()).fit(X, Y).predict(Q, quantiles="median")
    plain = ProcessRegressor(tiny("te-tnp", dtype=torch.float32))
    assert plain.fit(X, Y).sample_y(Q, 2).shape == (9, 2)
    with pytest.raises(FillinError, match="does not separate the function from its noise"):
        plain.predict(Q, noise=False)
    with pytest.raises(FillinError, match="does not read errors"):
        plain.fit(X, Y, 0.1)
