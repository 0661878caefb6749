"""ProcessRegressor: the scikit-learn API and the predictions of its model."""

import pickle

import joblib
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator
from support.regression_data import Q, X, Y, draw_points, filler
from torch.distributions import Categorical, MixtureSameFamily

import fillin
from fillin import ProcessRegressor
from fillin.errors import InputError

pytest_plugins = ["support.regressor_fixtures"]
pytestmark = pytest.mark.usefixtures("short_search")


# the scikit-learn API


def test_scikit_learn_checks_pass(ship_models, unchecked):
    """With default options and untrained weights."""
    small = {"width": 16, "heads": 2, "layers": 1, "hidden": 16}
    ship_models(
        sheet=fillin.create("filler", 1, **small),
        **{"sheet-2d": fillin.create("filler", 2, **small)},
        radial=fillin.create("filler", 1, radial=True, **small),
    )
    results = check_estimator(ProcessRegressor(), on_skip=None)
    assert sum(result["status"] == "passed" for result in results) > 40


def test_the_number_of_columns_chooses_the_model(ship_models):
    with pytest.raises(InputError, match=r"'sheet', which does not ship yet \(there is none of its kind\).*dim_x=1"):
        ProcessRegressor().fit(X, Y)
    ship_models(sheet=filler(1))
    assert ProcessRegressor().fit(X, Y).model_.dim_x == 1
    for columns, name in ((2, "sheet-2d"), (3, "radial"), (7, "radial")):
        with pytest.raises(InputError, match=rf"X has {columns} columns.*'{name}'.*there is sheet"):
            ProcessRegressor().fit(*draw_points(dim_x=columns))
    ship_models(radial=filler(1, radial=True), **{"sheet-2d": filler(2)})
    assert ProcessRegressor().fit(*draw_points(dim_x=2)).model_.dim_x == 2
    for columns in (3, 7):
        assert ProcessRegressor().fit(*draw_points(dim_x=columns)).model_.dim_x is None


def test_a_model_is_given_by_name_folder_or_object(ship_models):
    model = filler()
    folder = ship_models(mine=model)
    expected = ProcessRegressor(model).fit(X, Y).predict(Q)
    for given in ("mine", str(folder / "mine"), folder / "mine" / "best"):
        assert np.array_equal(ProcessRegressor(given).fit(X, Y).predict(Q), expected)


def test_clone_pickle_and_grid_search(fitted):
    assert fitted.get_params() == {"model": fitted.model, "adapt": False, "random_state": 0}
    assert_allclose(clone(fitted).fit(X, Y).predict(Q), fitted.predict(Q))
    with pytest.raises(NotFittedError):
        clone(fitted).predict(Q)
    with pytest.raises(NotFittedError):
        clone(fitted).sample_y(Q)
    assert_allclose(pickle.loads(pickle.dumps(fitted)).predict(Q), fitted.predict(Q))
    both = joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(fitted.predict)(Q) for _ in range(2))
    assert all(np.array_equal(result, fitted.predict(Q)) for result in both)
    search = GridSearchCV(ProcessRegressor(fitted.model), {"random_state": [0, 1]}, cv=2).fit(X, Y)
    assert np.isfinite(search.best_score_)


# predictions


def test_predictions_are_those_of_the_model(fitted):
    xc, yc, xt = (torch.from_numpy(a).float()[None] for a in (X, Y[:, None], Q))
    with torch.no_grad():
        marginals = fitted.model(xc, yc, xt).marginals
    for noise, mixture in ((True, marginals), (False, marginals.noise_free)):
        mean, std = fitted.predict(Q, return_std=True, noise=noise)
        likely = Categorical(mixture.mixture_distribution.probs * (mixture.mixture_distribution.probs > 0.01))
        likely = MixtureSameFamily(likely, mixture.component_distribution)
        assert_allclose(mean, likely.mean[0, :, 0], rtol=1e-3, atol=1e-4)
        assert_allclose(std, likely.stddev[0, :, 0], rtol=1e-3)
        low, high = fitted.predict(Q, quantiles=[0.1, 0.9], noise=noise)[1]
        for level, value in ((0.1, low), (0.9, high)):
            assert_allclose(mixture.cdf(torch.from_numpy(value).float()[None, :, None])[0, :, 0], level, atol=1e-3)
    assert not np.allclose(fitted.predict(Q), fitted.predict(Q, noise=False))


def test_shapes_and_order_of_the_results(fitted):
    two_outputs = ProcessRegressor(fitted.model).fit(X, np.stack([Y, Y**2], 1))
    for regressor, shape in ((fitted, (9,)), (two_outputs, (9, 2))):
        mean, std, quantiles = regressor.predict(Q, return_std=True, quantiles=(0.05, 0.5, 0.95))
        assert mean.shape == std.shape == shape
        assert quantiles.shape == (3, *shape)
        assert (np.diff(quantiles, axis=0) > 0).all()
        mean, median = regressor.predict(Q, quantiles=0.5)
        assert np.array_equal(median, quantiles[1])
        mean, cov, median = regressor.predict(Q[:3], return_cov=True, quantiles=[0.5])
        assert cov.shape == (3, 3, *shape[1:])
        assert median.shape == (1, 3, *shape[1:])
        assert regressor.sample_y(Q, 4).shape == (*shape, 4)
        assert np.isfinite(regressor.score(X, regressor.y_train_))


def test_the_training_arrays_are_copied(fitted):
    x, y = X.copy(), Y.copy()
    regressor = ProcessRegressor(fitted.model).fit(x, y)
    x[:], y[:] = 0, 0
    assert np.array_equal(regressor.X_train_, X)
    assert np.array_equal(regressor.predict(Q), fitted.predict(Q))


def test_outputs_are_independent_and_missing_values_are_ignored(fitted):
    y = np.stack([Y, np.cos(X[:, 0])], 1)
    missing = np.random.default_rng(1).random(y.shape) < 0.3
    holes = np.where(missing, np.nan, y)
    mean, std = ProcessRegressor(fitted.model).fit(X, holes).predict(Q, return_std=True)
    for i in range(2):
        alone = ProcessRegressor(fitted.model).fit(X[~missing[:, i]], y[~missing[:, i], i])
        assert np.array_equal((mean[:, i], std[:, i]), alone.predict(Q, return_std=True))
    assert np.array_equal(ProcessRegressor(fitted.model).fit(X, Y[:, None]).predict(Q), fitted.predict(Q))


@pytest.mark.parametrize("unit", [1e30, 1e-30])
def test_predictions_are_equivariant_to_units(fitted, unit):
    expected = fitted.predict(Q, return_std=True, quantiles=[0.3])
    rescaled = ProcessRegressor(fitted.model).fit(X / unit, unit * Y)
    for result, value in zip(rescaled.predict(Q / unit, return_std=True, quantiles=[0.3]), expected, strict=True):
        assert_allclose(result, unit * value, rtol=1e-3, atol=1e-4 * unit)
    drawn = fitted.sample_y(Q, 3)
    assert_allclose(rescaled.sample_y(Q / unit, 3), unit * drawn, rtol=1e-2, atol=1e-2 * unit)


@pytest.mark.parametrize("level", [1e6, -3e9])
def test_predictions_are_equivariant_to_a_large_offset(fitted, level):
    """In float32, the precision of the model, these values are all equal."""
    shifted = ProcessRegressor(fitted.model).fit(X + level, np.stack([Y, Y + level], 1))
    results = shifted.predict(Q + level, return_std=True, quantiles=0.5)
    expected = fitted.predict(Q, return_std=True, quantiles=0.5)
    for result, value, offset in zip(results, expected, (level, 0, level), strict=True):
        assert_allclose(result[:, 0], value, rtol=1e-3, atol=1e-4)
        assert_allclose(result[:, 1] - offset, value, rtol=1e-3, atol=1e-4)
    drawn = shifted.sample_y(Q + level, 30)
    assert_allclose(np.median(drawn, (0, 2)), [0, level], atol=10)


@pytest.mark.parametrize(
    "y",
    [np.array([3.0]), np.full(6, 7.0), np.zeros(4), np.arange(5)],
    ids=["one point", "constant", "zeros", "integers"],
)
def test_few_and_constant_points_give_finite_predictions(fitted, y):
    regressor = ProcessRegressor(fitted.model).fit(np.arange(len(y))[:, None], y)
    mean, std = regressor.predict([[0], [2], [40]], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.isfinite(regressor.sample_y([[0], [2], [2]], 2)).all()
    assert np.isfinite(regressor.predict([[0], [2], [2]], return_cov=True)[1]).all()


def test_duplicate_locations_are_allowed(fitted):
    twice = np.repeat(X, 2, 0), np.repeat(Y, 2) + np.tile([-0.5, 0.5], 30)
    mean, std = ProcessRegressor(fitted.model).fit(*twice).predict(X[[0, 0]], return_std=True)
    assert_allclose(mean[0], mean[1], rtol=1e-4)
    assert (std > 0).all()
    order = np.random.default_rng(0).permutation(60)
    again = ProcessRegressor(fitted.model).fit(*(part[order] for part in twice)).predict(X[[0, 0]])
    assert_allclose(again, mean, rtol=1e-3)
    for first in (0, 1):  # both count
        assert not np.allclose(ProcessRegressor(fitted.model).fit(X, twice[1][first::2]).predict(X[[0]]), mean[0])


def test_measurement_errors_are_used(fitted):
    def predict(error):
        return ProcessRegressor(fitted.model).fit(X, Y, y_err=error).predict(Q)

    assert_allclose(predict(0.0), fitted.predict(Q), rtol=1e-5)
    assert not np.allclose(predict(0.5), fitted.predict(Q), rtol=1e-3)
    assert np.array_equal(predict(0.5), predict(np.full(30, 0.5)))
    assert np.array_equal(predict(0.5), predict(np.full((30, 1), 0.5)))
    partial_errors = np.where(np.arange(30) < 10, 0.5, 0)
    assert np.array_equal(predict(partial_errors), predict(np.where(partial_errors, partial_errors, np.nan)))
    regressor = ProcessRegressor(fitted.model).fit(X, Y, y_err=0.5)
    assert not np.allclose(regressor.sample_y(Q), fitted.sample_y(Q), rtol=1e-3)


def test_columns_of_a_frame_are_checked_by_name(fitted):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"time": X[:, 0]})
    regressor = ProcessRegressor(fitted.model).fit(frame, pandas.Series(Y))
    assert list(regressor.feature_names_in_) == ["time"]
    assert np.array_equal(regressor.predict(pandas.DataFrame({"time": Q[:, 0]})), fitted.predict(Q))
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(pandas.DataFrame({"place": Q[:, 0]}))


def test_one_set_of_radial_weights_serves_any_number_of_columns():
    model = filler(1, radial=True)
    for columns in (1, 2, 5):
        x, y = draw_points(40, columns)
        order = np.random.default_rng(2).permutation(columns)
        expected = ProcessRegressor(model).fit(x, y).predict(x[:7] + 0.1)
        assert_allclose(ProcessRegressor(model).fit(x[:, order], y).predict(x[:7, order] + 0.1), expected, rtol=1e-3)
