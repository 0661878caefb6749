"""The Gaussian process beside the networks of a table: its predictions, and its share in the calibrated mixture."""

import numpy as np
import pytest
import torch

import fillin
from fillin.gp import GaussianProcess, GPHyperparameters, GPTarget
from fillin.learners.calibration import HeldOut, fit_calibration, untrimmed
from fillin.predictive import Categorical, GaussianMixture

HYPERPARAMETERS = GPHyperparameters(torch.tensor([0.2, 0.6]).double(), torch.tensor([0.1, -0.5, -1.0]).double())


def draw_table(rows: int = 40) -> tuple[torch.Tensor, GPTarget]:
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0)).double()
    y = torch.stack([x[:, 0].sin() + 0.3 * x[:, 1], x[:, 1].cos()], 1)
    return x, GPTarget(y, torch.ones(rows, dtype=torch.bool))


def closed_form(x: torch.Tensor, y: torch.Tensor, query: torch.Tensor) -> np.ndarray:
    inverse = torch.linalg.inv(HYPERPARAMETERS.kernel(x, x) + HYPERPARAMETERS.noise_variance * torch.eye(len(x)))
    cross = HYPERPARAMETERS.kernel(query, x)
    prior = HYPERPARAMETERS.kernel(query, query).diagonal() + HYPERPARAMETERS.noise_variance
    variance = prior - (cross @ inverse * cross).sum(1)
    return torch.cat([cross @ inverse @ y, variance.sqrt()[:, None]], 1).numpy()


def test_the_posterior_is_the_closed_form():
    x, target = draw_table()
    query = torch.linspace(-3, 3, 14).reshape(7, 2).double()
    prediction = GaussianProcess.condition(x, target, HYPERPARAMETERS).predict(query)
    np.testing.assert_allclose(prediction, closed_form(x, target.y, query), atol=1e-9)


def test_leave_one_out_equals_refitting_without_the_row():
    x, target = draw_table()
    prediction = GaussianProcess.condition(x, target, HYPERPARAMETERS).predict_left_out(x)
    for i in (0, 17, 39):
        rest = torch.arange(len(x)) != i
        np.testing.assert_allclose(prediction[i], closed_form(x[rest], target.y[rest], x[i, None])[0], atol=1e-9)


def test_rows_without_a_target_are_ignored():
    x, target = draw_table()
    observed = torch.arange(len(x)) < 25
    partial = GPTarget(torch.where(observed[:, None], target.y, 1e6), observed)
    process = GaussianProcess.condition(x, partial, HYPERPARAMETERS)
    expected = closed_form(x[observed], target.y[observed], x)
    np.testing.assert_allclose(process.predict_left_out(x)[25:], expected[25:], atol=1e-9)
    few = torch.arange(len(x)) < 5
    assert GaussianProcess.fit(x, GPTarget(target.y, few)) is None


def test_length_scales_are_short_for_relevant_columns():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(1)).double()
    target = GPTarget((2 * x[:, :1]).sin(), torch.ones(200, dtype=torch.bool))
    process = GaussianProcess.fit(x, target)
    assert process is not None
    length = process.hyperparameters.length.exp()
    assert length[0] < 0.5 * length[1:].min()


def held_out(error_std: float, gp_std: float, rows: int = 4_000) -> tuple[GaussianMixture, HeldOut]:
    """One member with errors of standard deviation `error_std`, and a GP with errors of `gp_std`."""
    random = np.random.default_rng(0)
    value = random.normal(size=(1, rows))
    gp = np.stack([value + gp_std * random.normal(size=value.shape), np.full(value.shape, gp_std)], -1)
    mean = value + error_std * random.normal(size=value.shape)
    prediction = untrimmed(np.ones((1, rows, 1)), mean[..., None], np.full((1, rows, 1), error_std))
    return prediction, HeldOut(value, np.ones(value.shape, bool), np.arange(rows)[None], gp)


@pytest.mark.parametrize(("error_std", "gp_std"), [(1.0, 0.5), (0.3, 0.3), (0.2, 1.0)])
def test_the_gp_share_minimises_the_error_and_the_width_is_the_remaining_error(error_std, gp_std):
    widths = fit_calibration(*held_out(error_std, gp_std))
    share = error_std**2 / (error_std**2 + gp_std**2)
    assert widths.gp_share == pytest.approx(share, abs=0.03)
    remaining = error_std * gp_std / (error_std**2 + gp_std**2) ** 0.5
    assert widths.ensemble * error_std == pytest.approx(remaining, rel=0.05)


def test_without_a_gp_its_share_is_zero():
    prediction, held = held_out(0.5, 0.5)
    assert fit_calibration(prediction, HeldOut(held.values, held.observed, held.rows)).gp_share == 0


def test_a_narrow_component_at_a_frequent_value_is_kept():
    """The GP has the better mean, but half of the rows have exactly the value of one narrow component."""
    prediction, held = held_out(1.0, 0.5)
    spike = np.random.default_rng(1).random(held.values.shape) < 0.5
    value = np.where(spike, 0.0, held.values)
    means = np.stack([np.zeros(value.shape), prediction.means[..., 0]], -1)
    mixed = untrimmed(
        np.full(means.shape, 0.5), means, np.stack([np.full(value.shape, 1e-3), np.ones(value.shape)], -1)
    )
    gp = np.stack([value + 0.4 * held.gp[..., 0], held.gp[..., 1]], -1)
    assert fit_calibration(mixed, HeldOut(value, held.observed, held.rows, gp)).gp_share == 0


def held_out_classes(gp_score: float, rows: int) -> tuple[Categorical, HeldOut]:
    random = np.random.default_rng(0)
    value = random.integers(3, size=(2, rows)).astype(float)
    probabilities = np.full((2, rows, 3), 0.3)
    np.put_along_axis(probabilities, value[..., None].astype(int), 0.4, -1)
    gp = random.normal(size=(2, rows, 4))
    np.put_along_axis(gp, value[..., None].astype(int), gp_score, -1)
    held = HeldOut(value, np.ones(value.shape, bool), np.arange(2 * rows).reshape(2, rows), gp)
    return Categorical(probabilities), held


def test_the_gp_contributes_to_classes_where_enough_rows_show_a_gain():
    assert fit_calibration(*held_out_classes(4.0, 100)).gp_share > 0.5
    assert fit_calibration(*held_out_classes(0.0, 100)).gp_share == 0
    assert fit_calibration(*held_out_classes(4.0, 20)).gp_share == 0  # too few rows to tell


def test_the_gp_is_saved_and_conditions_on_the_given_rows(tmp_path):
    x = np.random.default_rng(0).uniform(-2, 2, size=(120, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1]
    model = fillin.TableRegressor(members=2, steps=30).fit(x, y)
    process, widths = model.learner_.gps[0], model.learner_.calibrations[0]
    assert process is not None
    assert widths.gp_share > 0.5  # networks learn little in so few steps
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.3
    again = fillin.TableRegressor.load(model.save(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(model.predict(x, return_std=True), again.predict(x, return_std=True))
    mirrored = model.learner_.with_rows(x, 2 * y.mean() - y[:, None]).gps[0]
    np.testing.assert_allclose(mirrored.predict(mirrored.x)[:, 0], -process.predict(process.x)[:, 0], atol=1e-6)


def with_errors(error: np.ndarray) -> tuple[GaussianMixture, HeldOut]:
    """A member that predicts standard normal errors, and its actual errors."""
    ones = np.ones((1, len(error), 1))
    return untrimmed(ones, 0 * ones, ones), HeldOut(error[None], ones[..., 0] > 0, np.arange(len(error))[None])


def test_heavy_tailed_errors_get_a_tail_component():
    random = np.random.default_rng(0)
    error = random.normal(size=2_000) * np.where(random.random(2_000) < 0.1, 3.0, 0.5)
    prediction, held = with_errors(error)
    widths = fit_calibration(prediction, held)
    assert widths.tail_share > 0
    calibrated = widths.mixture(prediction, None)
    inside = np.abs(calibrated.cdf(error) - 0.5) < np.array([[0.25], [0.475]])
    np.testing.assert_allclose(inside.mean(1), [0.5, 0.95], atol=0.03)


def test_normal_errors_get_no_tail_component():
    widths = fit_calibration(*with_errors(0.7 * np.random.default_rng(0).normal(size=2_000)))
    assert widths.tail_share == 0
    assert widths.ensemble == pytest.approx(0.7, rel=0.05)
