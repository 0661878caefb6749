"""Imputation by a joint Gaussian of all columns: conditional distributions, and its fit by EM."""

import numpy as np
import pandas as pd
import pytest
import torch

from fillin import TableImputer, TableRegressor
from fillin.learners.encoding import GaussianImputer


@pytest.fixture
def joint():
    random = np.random.default_rng(0)
    factor = random.normal(size=(5, 5))
    return GaussianImputer(
        torch.from_numpy(random.normal(size=5)), torch.from_numpy(factor @ factor.T + 0.1 * np.eye(5))
    )


@pytest.mark.parametrize("observed", [[1, 1, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], ids=str)
def test_a_prediction_is_the_conditional_of_the_normal_distribution(joint, observed):
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 1, 5)))
    mask = torch.tensor(observed, dtype=torch.bool).expand(3, 1, 5)
    mean, std = joint.predict(torch.where(mask, x, 77.0), mask)  # missing cells are not read
    o, u = np.flatnonzero(observed), np.flatnonzero(np.array(observed) == 0)
    m, s = joint.mean.numpy(), joint.covariance.numpy()
    gain = s[np.ix_(u, o)] @ np.linalg.inv(s[np.ix_(o, o)]) if len(o) else np.zeros((len(u), 0))
    expected = m[u] + (x[:, 0, o].numpy() - m[o]) @ gain.T
    np.testing.assert_allclose(mean[:, 0, u], expected, atol=1e-9)
    np.testing.assert_allclose(std[0, 0, u] ** 2, np.diag(s[np.ix_(u, u)] - gain @ s[np.ix_(o, u)]), atol=1e-9)
    assert (mean[mask] == x[mask]).all()
    assert (std[mask] == 0).all()


def test_em_recovers_mean_and_covariance_from_incomplete_rows(joint):
    random = np.random.default_rng(2)
    x = random.multivariate_normal(joint.mean.numpy(), joint.covariance.numpy(), 4_000)
    observed = random.random(x.shape) < 0.7
    fitted = GaussianImputer.fit(torch.from_numpy(np.where(observed, x, 0)), torch.from_numpy(observed))
    spread = joint.covariance.diagonal().sqrt()
    assert ((fitted.mean - joint.mean).abs() / spread).max() < 0.1
    assert ((fitted.covariance - joint.covariance).abs() / torch.outer(spread, spread)).max() < 0.1


def test_covariances_of_few_rows_are_shrunk():
    few = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    covariance = GaussianImputer.fit(few, torch.ones(3, 5, dtype=torch.bool)).covariance
    spread = covariance.diagonal().sqrt()
    assert ((covariance / torch.outer(spread, spread)).fill_diagonal_(0).abs()).max() <= 3 / 8 + 1e-6  # n / (n + d)


def test_empty_and_constant_columns_give_finite_predictions():
    x, observed = torch.zeros(20, 3), torch.ones(20, 3, dtype=torch.bool)
    x[:, 0], observed[:, 2] = torch.randn(20, generator=torch.Generator().manual_seed(0)), False
    mean, std = GaussianImputer.fit(x, observed).predict(x, observed)
    assert torch.isfinite(mean).all()
    assert torch.isfinite(std).all()


def test_transductive_queries_attend_to_one_another():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3))
    model = TableRegressor(members=2, steps=20, features=0.5).fit(X, X[:, 0])
    apart = model.predict(X[:9] + 0.1)
    model.transductive = True
    together = model.predict(X[:9] + 0.1)
    assert np.abs(apart - together).max() > 1e-6
    alone = np.concatenate([model.predict(X[i : i + 1] + 0.1) for i in range(9)])
    np.testing.assert_allclose(alone, apart, atol=1e-6)  # a row does not attend to itself


def test_an_incomplete_row_is_filled_as_if_it_were_not_in_the_table():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3))
    X[:, 2] = X[:, 0]
    X[0, 2] = np.nan
    imputer = TableImputer(members=2, steps=20).fit(X)
    filled, std = imputer.fill(X[:1])
    fitted = imputer.learner_
    imputer.learner_ = fitted.with_rows(fitted.inputs[1:], fitted.outputs[1:])
    again, std_again = imputer.fill(X[:1])
    np.testing.assert_allclose(filled, again, atol=1e-6)
    np.testing.assert_allclose(std, std_again, atol=1e-6)


def test_a_table_of_class_columns_only_is_filled():
    X = pd.DataFrame({"a": ["x", "y"] * 10, "b": ["p", "q"] * 9 + ["p", None]})
    filled = TableImputer(members=2, steps=5).fit_transform(X)
    assert filled[19, 1] in ("p", "q")
