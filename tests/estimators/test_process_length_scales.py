"""Several columns of X: a radial model sees distances only, and `fit` learns a length scale for each column."""

import numpy as np
import pytest
import torch

import fillin
from fillin import ProcessRegressor
from fillin.inference.length_scales import _draw_folds, _left_out_likelihood, fit_length_scales


@pytest.fixture(scope="module")
def radial():
    torch.manual_seed(0)
    return fillin.create("filler", size="small", layers=2, radial=True)


def draw_data(n=40, columns=5, seed=0):
    random = np.random.default_rng(seed)
    X = random.uniform(size=(n, columns))
    return X, np.sin(6 * X[:, 0]) + 0.1 * random.normal(size=n)


def left_out(model, X, y, scales, seed):
    """The objective of the length scales, without its ridge penalty."""
    locations = torch.from_numpy(((X - X.min(0)) / scales).astype(np.float32))
    value = torch.from_numpy(((y - y.mean()) / y.std()).astype(np.float32))
    with torch.no_grad():
        return float(_left_out_likelihood(model, locations, value, _draw_folds(len(X), np.random.default_rng(seed))))


@pytest.mark.parametrize("n", [5, 16, 40, 300])
def test_fitted_scales_predict_held_out_points_no_worse_than_equal_ones(radial, n):
    X, y = draw_data(n)
    scales = fit_length_scales(radial, X, y, seed=1)
    equal = np.ptp(X, 0)
    assert scales.shape == (5,)
    assert (scales > 0).all()
    assert left_out(radial, X, y, scales, 1) >= left_out(radial, X, y, equal, 1) - 1e-5
    assert not np.allclose(scales, equal)


def test_fitting_scales_does_not_change_the_model(radial):
    before = {name: tensor.clone() for name, tensor in radial.state_dict().items()}
    fit_length_scales(radial, *draw_data(), seed=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in radial.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in radial.parameters())


@pytest.mark.parametrize("case", ["one column", "constant y", "two points", "a constant column"])
def test_degenerate_data_keep_the_ranges_as_scales(radial, case):
    X, y = draw_data(columns=1 if case == "one column" else 3)
    if case == "constant y":
        y = np.full_like(y, 7.0)
    if case == "two points":
        X, y = X[:2], y[:2]
    if case == "a constant column":
        X[:, 1] = 5.0
    scales = fit_length_scales(radial, X, y, seed=0)
    assert np.isfinite(scales).all()
    assert (scales > 0).all()
    if case != "a constant column":
        assert np.array_equal(scales, np.ptp(X, 0))


def test_folds_are_disjoint():
    for n in (1, 3, 15, 16, 17, 100, 500):
        folds = _draw_folds(n, np.random.default_rng(0))
        assert len(set(folds.ravel())) == folds.size
        assert folds.size > min(n, 128) - 8
        assert folds.shape[1] == 1 or n > 16


def test_predictions_are_equivariant_to_units_of_columns(radial):
    X, y = draw_data()
    units, query = np.array([1e3, 1, 1e-4, 7, 50]), draw_data(7, seed=3)[0]
    plain = ProcessRegressor(radial).fit(X, y).predict(query, return_std=True)
    rescaled = ProcessRegressor(radial).fit(X * units + 3, y).predict(query * units + 3, return_std=True)
    for expected, result in zip(plain, rescaled, strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-2, atol=2e-2)


def test_every_output_has_its_scales_and_they_are_saved(radial, tmp_path):
    X, y = draw_data()
    both = np.stack([y, X[:, 2] ** 2], -1)
    both[3, 1] = np.nan
    regressor = ProcessRegressor(radial).fit(X, both)
    assert regressor.scales_.shape == (2, 5)
    assert not np.allclose(regressor.scales_[0], regressor.scales_[1])
    again = ProcessRegressor.load(regressor.save(tmp_path / "kept.safetensors"))
    query = draw_data(9, seed=4)[0]
    np.testing.assert_array_equal(again.predict(query), regressor.predict(query))
    np.testing.assert_array_equal(again.scales_, regressor.scales_)


def test_the_pretrained_model_finds_the_relevant_columns():
    """Two of six columns are relevant: their scales stand out, and the prediction is accurate."""
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, size=(160, 6))
    y = np.sin(3 * X[:, 1]) + X[:, 4] ** 2 + 0.02 * random.normal(size=160)
    model = ProcessRegressor().fit(X[:120], y[:120])
    weight = 1 / model.scales_[0] if model.scales_[0][1] < model.scales_[0][0] else model.scales_[0]
    assert set(np.argsort(weight)[-2:]) == {1, 4}
    assert model.score(X[120:], y[120:]) > 0.9
    mean, std = model.predict(X[120:], return_std=True)
    assert 0.85 < (np.abs(y[120:] - mean) < 2 * std).mean() <= 1
