"""ProcessRegressor: covariances and sample paths against an exact process, and fine-tuning."""

import io

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support.helpers import ExactProcess, tiny
from support.regression_data import Q, X, Y, draw_points, filler, unit_data
from torch.distributions import Categorical, MixtureSameFamily, Normal

from fillin import ProcessRegressor
from fillin.heads import ObservedHead, ObservedMixture
from fillin.inference import finetune, sample_paths

pytest_plugins = ["support.regressor_fixtures"]
pytestmark = pytest.mark.usefixtures("short_search")


class ExactObservedProcess(ExactProcess):
    """Marginals with and without noise; autoregressive sampling gives the exact joint posterior."""

    def __init__(self):
        super().__init__(length=0.3, scale=1.0, noise=0.3)
        self.head = ObservedHead(1, 1)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        normal = super().forward(xc, yc, xt, mask_c, mask_t)
        weights = Categorical(torch.ones(*normal.mean.shape, 1))
        clean = Normal(normal.mean[..., None], (normal.variance - 0.3**2).clamp_min(1e-8).sqrt()[..., None])
        noisy = Normal(normal.mean[..., None], normal.stddev[..., None])
        return ObservedMixture(weights, noisy, MixtureSameFamily(weights, clean))

    def covariance(self, X, y, Q, noise: bool):
        x, values, query = (torch.from_numpy(np.asarray(a, dtype=float))[None] for a in (X, y[:, None], Q))
        return self.joint(x, values, query).covariance_matrix[0].numpy() - (not noise) * 0.09 * np.eye(len(Q))


# joint predictions


@pytest.mark.parametrize("noise", [True, False])
def test_the_covariance_is_that_of_an_exact_process(noise):
    x, y = unit_data()
    model = ExactObservedProcess()
    query = np.linspace(0, 1, 12)[:, None]
    exact = model.covariance(x, y, query, noise)
    regressor = ProcessRegressor(model).fit(x, y)
    _, std = regressor.predict(query, return_std=True, noise=noise)
    _, cov = regressor.predict(query, return_cov=True, noise=noise)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    assert np.linalg.eigvalsh(cov).min() > 0
    assert_allclose(cov, cov.T)
    correlation, expected = (c / np.sqrt(np.outer(np.diag(c), np.diag(c))) for c in (cov, exact))
    off = ~np.eye(12, dtype=bool)
    assert np.abs(correlation - expected)[off].mean() < (0.1 if noise else 0.2)  # 0.09 with noise and 128 samples
    assert np.corrcoef(correlation[off], expected[off])[0, 1] > 0.9


def test_sample_paths_drawn_in_groups_have_the_exact_covariance(monkeypatch):
    """Independent groups would have no covariance between neighbours in two groups."""
    x, y = unit_data()
    model = ExactObservedProcess()
    query = np.random.default_rng(0).permutation(np.linspace(0, 1, 24))[:, None]
    exact = model.covariance(x, y, query, noise=True)
    regressor = ProcessRegressor(model).fit(x, y)
    monkeypatch.setattr(sample_paths, "MAX_CHAIN", 6)
    monkeypatch.setattr(sample_paths, "MAX_TOKENS", 2000)  # not all paths at once
    drawn = regressor.sample_y(query, 400)
    assert_allclose(drawn.mean(1), regressor.predict(query), atol=0.2)
    covariance = np.cov(drawn)
    assert_allclose(np.diag(covariance), np.diag(exact), rtol=0.35)
    off = ~np.eye(24, dtype=bool)
    assert np.abs(covariance - exact)[off].mean() < 0.04
    assert np.corrcoef(covariance[off], exact[off])[0, 1] > 0.93


def test_samples_use_the_context_around_each_group(fitted):
    x = np.linspace(0, 100, 2000)[:, None]
    regressor = ProcessRegressor(fitted.model).fit(x, np.sin(x[:, 0]))
    drawn = regressor.sample_y(np.linspace(0, 100, 12)[:, None], 2)
    assert drawn.shape == (12, 2)
    assert np.isfinite(drawn).all()
    sizes = [len(g) for g in sample_paths._groups(regressor.contexts_[0], x[::10], np.random.default_rng(0))]
    assert sum(sizes) == 200
    assert max(sizes) < 30


def test_a_seed_determines_samples_and_covariances(fitted):
    state = torch.get_rng_state()
    assert np.array_equal(fitted.sample_y(Q, 3, random_state=5), fitted.sample_y(Q, 3, random_state=5))
    assert not np.allclose(fitted.sample_y(Q, 3, random_state=5), fitted.sample_y(Q, 3, random_state=6))
    covs = [
        ProcessRegressor(fitted.model, random_state=seed).fit(X, Y).predict(Q, return_cov=True)[1] for seed in (0, 0, 1)
    ]
    assert np.array_equal(covs[0], covs[1])
    assert not np.array_equal(covs[0], covs[2])
    assert np.array_equal(covs[0], fitted.predict(Q, return_cov=True)[1])
    assert torch.equal(state, torch.get_rng_state())


def test_many_queries_show_a_progress_bar(fitted, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    many = np.random.default_rng(0).uniform(0, 5, (20_001, 1))
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    prediction = fitted.predict(many)
    assert "predict" in terminal.getvalue()
    terminal.truncate(0)
    few = fitted.predict(many[:50])
    assert not terminal.getvalue().strip("\0")
    assert_allclose(prediction[:50], few, rtol=1e-4, atol=1e-5)
    fitted.sample_y(many[:21], 100)
    assert "sample" in terminal.getvalue()
    assert "2100/2100" in terminal.getvalue()


# fine-tuning


def test_fine_tuning_needs_enough_points(fitted):
    regressor = ProcessRegressor(fitted.model, adapt=True)
    with pytest.warns(UserWarning, match="needs 100 observations, there are 30"):
        regressor.fit(X, Y)
    assert regressor.model_ is fitted.model
    assert np.array_equal(regressor.predict(Q), fitted.predict(Q))


def test_fine_tuning_gains_on_held_out_points(monkeypatch):
    monkeypatch.setattr(finetune, "MAX_STEPS", 24)
    monkeypatch.setattr(finetune, "_STEPS_PER_SCORE", 8)
    model = filler()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = draw_points(120)
    first, second = (ProcessRegressor(model, adapt=True, random_state=seed).fit(x, y, y_err=0.1) for seed in (3, 3))
    assert first.gain_ > 0.1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert first.gain_ == second.gain_
    assert np.array_equal(first.predict(Q), second.predict(Q))
    plain = ProcessRegressor(model).fit(x, y, y_err=0.1)
    new = draw_points(200, seed=9)
    scores = [r.contexts_[0].predict(new[0]).log_prob(new[1][:, None]).mean() for r in (first, plain)]
    assert scores[0] > scores[1] + 0.1


def test_fine_tuning_that_does_not_help_is_discarded(monkeypatch):
    monkeypatch.setattr(finetune, "_RATE", 1e4)
    monkeypatch.setattr(finetune, "_STEPS_PER_SCORE", 2)
    model = filler()
    regressor = ProcessRegressor(model, adapt=True).fit(*draw_points(120))
    assert regressor.gain_ == 0
    assert np.array_equal(regressor.predict(Q), ProcessRegressor(model).fit(*draw_points(120)).predict(Q))


def test_any_process_can_be_fine_tuned(monkeypatch):
    monkeypatch.setattr(finetune, "MAX_STEPS", 20)
    assert ProcessRegressor(tiny("te-tnp", dtype=torch.float32), adapt=True).fit(*draw_points(700)).gain_ > 0
