"""ProcessRegressor with sheets, the models of one and two columns of X: long records, units, samples."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fillin import ProcessRegressor


def draw_record(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(0, n / 20, n))
    return x[:, None], np.sin(x) + 0.5 * np.sin(0.13 * x + 1) + 0.1 * random.standard_normal(n)


@pytest.fixture(scope="module")
def record():
    """More observations than one context holds."""
    X, y = draw_record(900)
    return ProcessRegressor().fit(X, y), X, y


def test_a_long_record_is_predicted_from_its_neighbourhood(record):
    regressor, X, _ = record
    query = np.linspace(X.min(), X.max(), 200)[:, None]
    mean, std = regressor.predict(query, return_std=True, noise=False)
    truth = np.sin(query[:, 0]) + 0.5 * np.sin(0.13 * query[:, 0] + 1)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.06
    assert std.mean() < 0.08


def test_no_query_of_a_long_record_changes_another(record):
    regressor, X, _ = record
    query = np.linspace(X.min() - 3, X.max() + 3, 500)[:, None]
    together = regressor.predict(query)
    assert_allclose(regressor.predict(query[100:103]), together[100:103], atol=2e-4)
    assert_allclose(regressor.predict(query[::-1])[::-1], together, atol=2e-4)


def test_the_order_of_a_long_record_does_not_matter(record):
    regressor, X, y = record
    order = np.random.default_rng(1).permutation(len(X))
    query = np.linspace(0, 40, 30)[:, None]
    assert_allclose(ProcessRegressor().fit(X[order], y[order]).predict(query), regressor.predict(query), atol=2e-4)


def test_uncertainty_grows_beyond_a_long_record(record):
    regressor, X, _ = record
    width = np.ptp(X)
    _, std = regressor.predict(X.max() + np.array([[0.01], [0.5], [4.0], [16.0]]) * width, return_std=True)
    assert (np.diff(std) > 0).all()
    assert std[3] == pytest.approx(2 * std[2], rel=0.2)  # with the root of the distance beyond three widths


@pytest.mark.parametrize("n", [40, 500])
def test_samples_and_marginals_agree(n):
    X, y = draw_record(n, seed=2)
    regressor = ProcessRegressor().fit(X, y)
    gaps = np.linspace(X.min(), X.max() + 0.2 * np.ptp(X), 25)[:, None]
    _, std = regressor.predict(gaps, return_std=True)
    drawn = regressor.sample_y(gaps, 1500, random_state=0).std(1)
    assert_allclose(drawn, std, rtol=0.15)


def test_sample_paths_of_two_dimensions_are_smooth_and_agree_with_marginals():
    random = np.random.default_rng(0)
    X = random.uniform(0, 5, (80, 2))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.05 * random.standard_normal(80)
    regressor = ProcessRegressor().fit(X, y)
    line = np.stack([np.linspace(0, 8, 60), np.full(60, 2.5)], 1)  # from among the observations to outside of them
    _, std = regressor.predict(line, return_std=True)
    drawn = regressor.sample_y(line, 300, random_state=1)
    assert_allclose(drawn.std(1), std, rtol=0.2)
    steps = np.diff(drawn[45:], axis=0).std(1)
    assert (steps < 0.5 * drawn[46:].std(1)).all()  # outside, where noise is small beside what is unknown


def test_columns_of_any_relevance_are_measured_in_fitted_units():
    """One column in metres and one in kilometres, of which values depend equally."""
    random = np.random.default_rng(3)
    X = random.uniform(0, 5, (150, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * X[:, 1] + 0.02 * random.standard_normal(150)
    query = random.uniform(0.5, 4.5, (40, 2))
    truth = np.sin(2 * query[:, 0]) + 0.1 * query[:, 1]
    regressor = ProcessRegressor().fit(X, y)
    assert regressor.scales_[0, 1] > 3 * regressor.scales_[0, 0]
    assert np.sqrt(np.mean((regressor.predict(query) - truth) ** 2)) < 0.05
    scaled = ProcessRegressor().fit(X * [1, 1000], y)
    assert_allclose(scaled.predict(query * [1, 1000]), regressor.predict(query), atol=1e-3)


def test_known_errors_weigh_observations():
    X, y = draw_record(60, seed=4)
    y_err = np.where(np.arange(60) % 2, 0.02, 5.0)
    wrong = y + np.where(np.arange(60) % 2, 0, np.random.default_rng(5).normal(0, 5, 60))
    query = X[::2] + 1e-3
    weighed = ProcessRegressor().fit(X, wrong, y_err=y_err).predict(query)
    unweighed = ProcessRegressor().fit(X, wrong).predict(query)
    assert np.abs(weighed - y[::2]).mean() < 0.5 * np.abs(unweighed - y[::2]).mean()
