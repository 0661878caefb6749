"""The process beside the networks of a table: exact, left out exactly, and trusted as much as it is right."""

import numpy as np
import pytest
import torch

import fillin
from fillin.gp import GaussianProcess, GPHyperparameters, GPTarget
from fillin.learners.calibration import HeldOut, fit_calibration, untrimmed
from fillin.predictive import Categorical, GaussianMixture

HYPERPARAMETERS = GPHyperparameters(torch.tensor([0.2, 0.6]).double(), torch.tensor([0.1, -0.5, -1.0]).double())


def drawn(rows: int = 40) -> tuple[torch.Tensor, GPTarget]:
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0)).double()
    y = torch.stack([x[:, 0].sin() + 0.3 * x[:, 1], x[:, 1].cos()], 1)
    return x, GPTarget(y, torch.ones(rows, dtype=torch.bool))


def closed_form(x: torch.Tensor, y: torch.Tensor, asked: torch.Tensor) -> np.ndarray:
    inverse = torch.linalg.inv(HYPERPARAMETERS.kernel(x, x) + HYPERPARAMETERS.noise_variance * torch.eye(len(x)))
    cross = HYPERPARAMETERS.kernel(asked, x)
    own = HYPERPARAMETERS.kernel(asked, asked).diagonal() + HYPERPARAMETERS.noise_variance
    variance = own - (cross @ inverse * cross).sum(1)
    return torch.cat([cross @ inverse @ y, variance.sqrt()[:, None]], 1).numpy()


def test_it_is_the_closed_form():
    x, target = drawn()
    asked = torch.linspace(-3, 3, 14).reshape(7, 2).double()
    found = GaussianProcess.condition(x, target, HYPERPARAMETERS).predict(asked)
    np.testing.assert_allclose(found, closed_form(x, target.y, asked), atol=1e-9)


def test_what_is_left_out_is_as_if_it_had_never_been_there():
    x, target = drawn()
    found = GaussianProcess.condition(x, target, HYPERPARAMETERS).predict_left_out(x)
    for i in (0, 17, 39):
        rest = torch.arange(len(x)) != i
        np.testing.assert_allclose(found[i], closed_form(x[rest], target.y[rest], x[i, None])[0], atol=1e-9)


def test_rows_whose_target_is_not_known_tell_nothing():
    x, target = drawn()
    some = torch.arange(len(x)) < 25
    other = GPTarget(torch.where(some[:, None], target.y, 1e6), some)
    found, wanted = GaussianProcess.condition(x, other, HYPERPARAMETERS), closed_form(x[some], target.y[some], x)
    np.testing.assert_allclose(found.predict_left_out(x)[25:], wanted[25:], atol=1e-9)
    few = torch.arange(len(x)) < 5
    assert GaussianProcess.fit(x, GPTarget(target.y, few)) is None


def test_lengths_say_which_columns_matter():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(1)).double()
    target = GPTarget((2 * x[:, :1]).sin(), torch.ones(200, dtype=torch.bool))
    smooth = GaussianProcess.fit(x, target)
    assert smooth is not None
    length = smooth.hyperparameters.length.exp()
    assert length[0] < 0.5 * length[1:].min()


def held_out(off: float, guessed: float, rows: int = 4_000) -> tuple[GaussianMixture, HeldOut]:
    """One member whose means are off by a deviation of `off`, and guesses by another."""
    random = np.random.default_rng(0)
    value = random.normal(size=(1, rows))
    guess = np.stack([value + guessed * random.normal(size=value.shape), np.full(value.shape, guessed)], -1)
    mean = value + off * random.normal(size=value.shape)
    said = untrimmed(np.ones((1, rows, 1)), mean[..., None], np.full((1, rows, 1), off))
    return said, HeldOut(value, np.ones(value.shape, bool), np.arange(rows)[None], guess)


@pytest.mark.parametrize(("off", "guessed"), [(1.0, 0.5), (0.3, 0.3), (0.2, 1.0)])
def test_the_share_is_that_with_the_least_error_and_the_width_is_what_is_left(off, guessed):
    widths = fit_calibration(*held_out(off, guessed))
    share = off**2 / (off**2 + guessed**2)
    assert widths.gp_share == pytest.approx(share, abs=0.03)
    left = off * guessed / (off**2 + guessed**2) ** 0.5
    assert widths.ensemble * off == pytest.approx(left, rel=0.05)


def test_without_a_guess_there_is_no_share():
    said, held = held_out(0.5, 0.5)
    assert fit_calibration(said, HeldOut(held.values, held.observed, held.rows)).gp_share == 0


def test_a_value_that_many_rows_have_is_not_moved():
    """The guess is the better mean, and yet half of the rows are exactly what one narrow part says."""
    said, held = held_out(1.0, 0.5)
    spike = np.random.default_rng(1).random(held.values.shape) < 0.5
    value = np.where(spike, 0.0, held.values)
    means = np.stack([np.zeros(value.shape), said.means[..., 0]], -1)
    mixed = untrimmed(
        np.full(means.shape, 0.5), means, np.stack([np.full(value.shape, 1e-3), np.ones(value.shape)], -1)
    )
    guess = np.stack([value + 0.4 * held.gp[..., 0], held.gp[..., 1]], -1)
    assert fit_calibration(mixed, HeldOut(value, held.observed, held.rows, guess)).gp_share == 0


def classes(right: float, rows: int) -> tuple[Categorical, HeldOut]:
    random = np.random.default_rng(0)
    value = random.integers(3, size=(2, rows)).astype(float)
    said = np.full((2, rows, 3), 0.3)
    np.put_along_axis(said, value[..., None].astype(int), 0.4, -1)
    guess = random.normal(size=(2, rows, 4))
    np.put_along_axis(guess, value[..., None].astype(int), right, -1)
    return Categorical(said), HeldOut(value, np.ones(value.shape, bool), np.arange(2 * rows).reshape(2, rows), guess)


def test_classes_are_guessed_where_that_helps_and_rows_enough_say_so():
    assert fit_calibration(*classes(4.0, 100)).gp_share > 0.5
    assert fit_calibration(*classes(0.0, 100)).gp_share == 0
    assert fit_calibration(*classes(4.0, 20)).gp_share == 0  # too few rows to know


def test_it_is_kept_and_looks_at_the_rows_that_are_shown(tmp_path):
    x = np.random.default_rng(0).uniform(-2, 2, size=(120, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1]
    model = fillin.TableRegressor(members=2, steps=30).fit(x, y)
    smooth, widths = model.learner_.gps[0], model.learner_.calibrations[0]
    assert smooth is not None
    assert widths.gp_share > 0.5  # so few steps teach networks little
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.3
    again = fillin.TableRegressor.load(model.save(tmp_path / "model.safetensors"))
    for one, two in zip(model.predict(x, return_std=True), again.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(one, two)
    other = model.learner_.with_rows(x, 2 * y.mean() - y[:, None]).gps[0]
    np.testing.assert_allclose(other.predict(other.x)[:, 0], -smooth.predict(smooth.x)[:, 0], atol=1e-6)


def with_errors(error: np.ndarray) -> tuple[GaussianMixture, HeldOut]:
    """A member that says its errors are standard normal, and what they are."""
    ones = np.ones((1, len(error), 1))
    return untrimmed(ones, 0 * ones, ones), HeldOut(error[None], ones[..., 0] > 0, np.arange(len(error))[None])


def test_errors_that_are_now_and_then_large_have_a_tail():
    random = np.random.default_rng(0)
    error = random.normal(size=2_000) * np.where(random.random(2_000) < 0.1, 3.0, 0.5)
    said, held = with_errors(error)
    widths = fit_calibration(said, held)
    assert widths.tail_share > 0
    told = widths.mixture(said, None)
    inside = np.abs(told.cdf(error) - 0.5) < np.array([[0.25], [0.475]])
    np.testing.assert_allclose(inside.mean(1), [0.5, 0.95], atol=0.03)


def test_errors_that_are_normal_have_none():
    widths = fit_calibration(*with_errors(0.7 * np.random.default_rng(0).normal(size=2_000)))
    assert widths.tail_share == 0
    assert widths.ensemble == pytest.approx(0.7, rel=0.05)
