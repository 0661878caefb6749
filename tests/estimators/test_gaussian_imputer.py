"""Guesses by a Gaussian of all columns: they are the conditional of the normal distribution, and are found by EM."""

import numpy as np
import pandas as pd
import pytest
import torch

from fillin import TableImputer, TableRegressor
from fillin.learners.imputation import GaussianImputer


@pytest.fixture
def joint():
    random = np.random.default_rng(0)
    factor = random.normal(size=(5, 5))
    return GaussianImputer(
        torch.from_numpy(random.normal(size=5)), torch.from_numpy(factor @ factor.T + 0.1 * np.eye(5))
    )


@pytest.mark.parametrize("seen", [[1, 1, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], ids=str)
def test_a_guess_is_the_conditional_of_a_normal(joint, seen):
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 1, 5)))
    mask = torch.tensor(seen, dtype=torch.bool).expand(3, 1, 5)
    mean, deviation = joint.predict(torch.where(mask, x, 77.0), mask)  # what is not seen does not matter
    o, u = np.flatnonzero(seen), np.flatnonzero(np.array(seen) == 0)
    m, s = joint.mean.numpy(), joint.covariance.numpy()
    gain = s[np.ix_(u, o)] @ np.linalg.inv(s[np.ix_(o, o)]) if len(o) else np.zeros((len(u), 0))
    told = m[u] + (x[:, 0, o].numpy() - m[o]) @ gain.T
    np.testing.assert_allclose(mean[:, 0, u], told, atol=1e-9)
    np.testing.assert_allclose(deviation[0, 0, u] ** 2, np.diag(s[np.ix_(u, u)] - gain @ s[np.ix_(o, u)]), atol=1e-9)
    assert (mean[mask] == x[mask]).all()
    assert (deviation[mask] == 0).all()


def test_mean_and_covariance_are_found_where_cells_are_missing(joint):
    random = np.random.default_rng(2)
    x = random.multivariate_normal(joint.mean.numpy(), joint.covariance.numpy(), 4_000)
    seen = random.random(x.shape) < 0.7
    found = GaussianImputer.fit(torch.from_numpy(np.where(seen, x, 0)), torch.from_numpy(seen))
    spread = joint.covariance.diagonal().sqrt()
    assert ((found.mean - joint.mean).abs() / spread).max() < 0.1
    assert ((found.covariance - joint.covariance).abs() / torch.outer(spread, spread)).max() < 0.1


def test_of_few_rows_columns_are_thought_apart():
    few = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = GaussianImputer.fit(few, torch.ones(3, 5, dtype=torch.bool)).covariance
    spread = found.diagonal().sqrt()
    assert ((found / torch.outer(spread, spread)).fill_diagonal_(0).abs()).max() <= 3 / 8 + 1e-6  # n / (n + d)


def test_columns_without_a_value_and_constant_ones_do_no_harm():
    x, seen = torch.zeros(20, 3), torch.ones(20, 3, dtype=torch.bool)
    x[:, 0], seen[:, 2] = torch.randn(20, generator=torch.Generator().manual_seed(0)), False
    mean, deviation = GaussianImputer.fit(x, seen).predict(x, seen)
    assert torch.isfinite(mean).all()
    assert torch.isfinite(deviation).all()


def test_rows_asked_together_see_one_another_where_that_is_wanted():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3))
    model = TableRegressor(members=2, steps=20, features=0.5).fit(X, X[:, 0])
    apart = model.predict(X[:9] + 0.1)
    model.transductive = True
    together = model.predict(X[:9] + 0.1)
    assert np.abs(apart - together).max() > 1e-6
    alone = np.concatenate([model.predict(X[i : i + 1] + 0.1) for i in range(9)])
    np.testing.assert_allclose(alone, apart, atol=1e-6)  # a row does not look at itself


def test_a_row_with_blanks_is_filled_as_if_the_table_did_not_have_it():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3))
    X[:, 2] = X[:, 0]
    X[0, 2] = np.nan
    imputer = TableImputer(members=2, steps=20).fit(X)
    filled, unsure = imputer.fill(X[:1])
    fitted = imputer.learner_
    imputer.learner_ = fitted.with_rows(fitted.inputs[1:], fitted.outputs[1:])
    again, doubt = imputer.fill(X[:1])
    np.testing.assert_allclose(filled, again, atol=1e-6)
    np.testing.assert_allclose(unsure, doubt, atol=1e-6)


def test_a_table_of_classes_alone_has_nothing_to_guess():
    X = pd.DataFrame({"a": ["x", "y"] * 10, "b": ["p", "q"] * 9 + ["p", None]})
    filled = TableImputer(members=2, steps=5).fit_transform(X)
    assert filled[19, 1] in ("p", "q")
