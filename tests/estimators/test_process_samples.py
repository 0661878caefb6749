"""The regressor at places together: covariances and functions drawn against a process known exactly, and what going on
learning gains."""

import io

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support.helpers import ExactProcess, tiny
from support.regression_data import Q, X, Y, filler, some, unit_data
from torch.distributions import Categorical, MixtureSameFamily, Normal

from fillin import ProcessRegressor
from fillin.heads import ObservedHead, ObservedMixture
from fillin.inference import finetune, sample_paths

pytest_plugins = ["support.regressor_fixtures"]
pytestmark = pytest.mark.usefixtures("hasty")


class ExactlyBoth(ExactProcess):
    """Told from its noise, each value on its own; its chain of single values is the exact joint posterior."""

    def __init__(self):
        super().__init__(length=0.3, scale=1.0, noise=0.3)
        self.head = ObservedHead(1, 1)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        found = super().forward(xc, yc, xt, mask_c, mask_t)
        one = Categorical(torch.ones(*found.mean.shape, 1))
        clean = Normal(found.mean[..., None], (found.variance - 0.3**2).clamp_min(1e-8).sqrt()[..., None])
        seen = Normal(found.mean[..., None], found.stddev[..., None])
        return ObservedMixture(one, seen, MixtureSameFamily(one, clean))

    def exactly(self, X, y, Q, noise: bool):
        known, values, asked = (torch.from_numpy(np.asarray(a, dtype=float))[None] for a in (X, y[:, None], Q))
        return self.joint(known, values, asked).covariance_matrix[0].numpy() - (not noise) * 0.09 * np.eye(len(Q))


# places together


@pytest.mark.parametrize("noise", [True, False])
def test_the_covariance_is_that_of_an_exact_process(noise):
    x, y = unit_data()
    model = ExactlyBoth()
    asked = np.linspace(0, 1, 12)[:, None]
    exact = model.exactly(x, y, asked, noise)
    regressor = ProcessRegressor(model).fit(x, y)
    _, std = regressor.predict(asked, return_std=True, noise=noise)
    _, cov = regressor.predict(asked, return_cov=True, noise=noise)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    assert np.linalg.eigvalsh(cov).min() > 0
    assert_allclose(cov, cov.T)
    correlation, wanted = (c / np.sqrt(np.outer(np.diag(c), np.diag(c))) for c in (cov, exact))
    off = ~np.eye(12, dtype=bool)
    assert np.abs(correlation - wanted)[off].mean() < (0.1 if noise else 0.2)  # of 128 draws it is 0.09 with noise
    assert np.corrcoef(correlation[off], wanted[off])[0, 1] > 0.9


def test_drawn_in_pieces_or_at_once_a_function_is_a_function(monkeypatch):
    """Pieces that ignored one another would have no covariance between neighbours of two pieces."""
    x, y = unit_data()
    model = ExactlyBoth()
    asked = np.random.default_rng(0).permutation(np.linspace(0, 1, 24))[:, None]
    exact = model.exactly(x, y, asked, noise=True)
    regressor = ProcessRegressor(model).fit(x, y)
    monkeypatch.setattr(sample_paths, "MAX_CHAIN", 6)
    monkeypatch.setattr(sample_paths, "MAX_TOKENS", 2000)  # and not all functions at once
    drawn = regressor.sample_y(asked, 400)
    assert_allclose(drawn.mean(1), regressor.predict(asked), atol=0.2)
    found = np.cov(drawn)
    assert_allclose(np.diag(found), np.diag(exact), rtol=0.35)
    off = ~np.eye(24, dtype=bool)
    assert np.abs(found - exact)[off].mean() < 0.04
    assert np.corrcoef(found[off], exact[off])[0, 1] > 0.93


def test_many_contexts_points_are_drawn_from_those_around(fitted):
    x = np.linspace(0, 100, 2000)[:, None]
    regressor = ProcessRegressor(fitted.model).fit(x, np.sin(x[:, 0]))
    drawn = regressor.sample_y(np.linspace(0, 100, 12)[:, None], 2)
    assert drawn.shape == (12, 2)
    assert np.isfinite(drawn).all()
    sizes = [len(g) for g in sample_paths._groups(regressor.contexts_[0], x[::10], np.random.default_rng(0))]
    assert sum(sizes) == 200
    assert max(sizes) < 30


def test_the_same_seed_the_same_numbers(fitted):
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


def test_many_places_are_answered_under_a_bar(fitted, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    many = np.random.default_rng(0).uniform(0, 5, (20_001, 1))
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    found = fitted.predict(many)
    assert "predict" in terminal.getvalue()
    terminal.truncate(0)
    few = fitted.predict(many[:50])
    assert not terminal.getvalue().strip("\0")
    assert_allclose(found[:50], few, rtol=1e-4, atol=1e-5)
    fitted.sample_y(many[:21], 100)
    assert "sample" in terminal.getvalue()
    assert "2100/2100" in terminal.getvalue()


# going on learning


def test_adapting_needs_points(fitted):
    regressor = ProcessRegressor(fitted.model, adapt=True)
    with pytest.warns(UserWarning, match="needs 100 observations, there are 30"):
        regressor.fit(X, Y)
    assert regressor.model_ is fitted.model
    assert np.array_equal(regressor.predict(Q), fitted.predict(Q))


def test_adapting_gains_on_points_held_out(monkeypatch):
    monkeypatch.setattr(finetune, "MAX_STEPS", 24)
    monkeypatch.setattr(finetune, "_STEPS_PER_SCORE", 8)
    model = filler()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = some(120)
    one, two = (ProcessRegressor(model, adapt=True, random_state=seed).fit(x, y, y_err=0.1) for seed in (3, 3))
    assert one.gain_ > 0.1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert one.gain_ == two.gain_
    assert np.array_equal(one.predict(Q), two.predict(Q))
    plain = ProcessRegressor(model).fit(x, y, y_err=0.1)
    new = some(200, seed=9)
    scores = [r.contexts_[0].predict(new[0]).log_prob(new[1][:, None]).mean() for r in (one, plain)]
    assert scores[0] > scores[1] + 0.1


def test_adapting_never_keeps_what_lost(monkeypatch):
    monkeypatch.setattr(finetune, "_RATE", 1e4)
    monkeypatch.setattr(finetune, "_STEPS_PER_SCORE", 2)
    model = filler()
    regressor = ProcessRegressor(model, adapt=True).fit(*some(120))
    assert regressor.gain_ == 0
    assert np.array_equal(regressor.predict(Q), ProcessRegressor(model).fit(*some(120)).predict(Q))


def test_any_process_may_adapt(monkeypatch):
    monkeypatch.setattr(finetune, "MAX_STEPS", 20)
    assert ProcessRegressor(tiny("te-tnp", dtype=torch.float32), adapt=True).fit(*some(700)).gain_ > 0
