"""Gaussian processes averaged over kernels: exact inference, the native kernel against the reference, and the choice
of kernels."""

import math
from dataclasses import replace

import pytest
import torch
from support.attention_problems import needs_kernel
from support.helpers import distance

from fillin.attention import kernel
from fillin.data.kernels import Matern12Kernel, Matern32Kernel, Matern52Kernel, RBFKernel
from fillin.gp import GPPosterior
from fillin.models import covariance, kernel_choice, processes
from fillin.models.covariance import FREEDOM, SUBTRACTED, compute_evidence, factorise
from fillin.models.kernel_choice import choose_kernels, choose_subsets
from fillin.models.processes import KERNELS, Kernels, Processes, average_predictions, predict_cells


def random_columns(c=3, n=20, dim_x=1, seed=0):
    """Locations, values, which are observed, errors, and periods."""
    random = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(c, n, dim_x, generator=random, dtype=torch.float64).sort(1).values - 2
    y = torch.randn(c, n, generator=random, dtype=torch.float64).cumsum(1)
    observed = torch.rand(c, n, generator=random) > 0.3
    error = torch.where(torch.rand(c, n, generator=random) > 0.8, 0.3, 0.0).double()
    return x, torch.where(observed, y, 0), observed, error, torch.rand(c, generator=random).double() + 0.3


def every_kernel(c: int, periodic: bool = True) -> torch.Tensor:
    plain = [(kind, length, noise, 0, 1, 1) for kind in range(4) for length in (3.0, 0.3) for noise in (0.01, 0.5)]
    every = plain + periodic * list(kernel_choice._PERIODIC)
    both = [(*theta, no_slope) for theta in every for no_slope in (0, 1)]
    return torch.tensor(both, dtype=torch.float64).expand(c, -1, -1)


def draw_line(x: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """A slope of .7 with a mean of 0 over the observed locations."""
    mean = torch.where(observed, x[..., 0], 0).sum(1, keepdim=True) / observed.sum(1, keepdim=True).clamp_min(1)
    return 0.7 * (x[..., 0] - mean)


@needs_kernel
@pytest.mark.parametrize("dim_x", [1, 2])
def test_native_likelihoods_and_predictions_equal_the_reference(dim_x):
    x, y, observed, error, period = random_columns(dim_x=dim_x)
    theta = every_kernel(3, dim_x == 1)
    line = draw_line(x, observed)
    for given in (None, line):
        got = covariance.evaluate_kernels(theta, period, x, y, error, observed, line=given)
        assert distance(got, compute_evidence(theta, period, x, y, error, observed, line=given)) < 1e-8
    apart = covariance.distances(x, x)
    for number in range(theta.shape[1]):
        found = covariance.correlate(theta[:, number], period, apart)
        assert distance(found, covariance.compute_correlation(theta[:, number], period, apart)) < 1e-13
    kernels = Kernels(theta, period, torch.ones(3, dtype=torch.bool))
    queries = 3 * torch.rand(3, 7, dim_x).double() - 1
    lines = torch.cat([line, queries[..., 0]], 1)
    keep = torch.cat([observed, torch.ones(3, 7, dtype=torch.bool)], 1)[:, None]
    given = (kernels, x, y, lines, error, observed, queries)
    got, expected = (part(*given) * keep for part in (processes._average, average_predictions))
    assert distance(got, expected) < 1e-6


@pytest.mark.parametrize(
    ("number", "kind"), list(enumerate([RBFKernel(), Matern52Kernel(), Matern32Kernel(), Matern12Kernel()]))
)
def test_kernels_are_those_of_the_library(number, kind):
    x = random_columns()[0]
    theta = torch.tensor([[number, 0.7, 0.1, 0, 1, 1, 0]], dtype=torch.float64).expand(3, -1)
    expected = kind(x, x, torch.tensor([[0.7, 1.0]]).double().expand(3, -1))
    found = covariance.correlate(theta, torch.zeros(3), covariance.distances(x, x))
    assert distance(found, expected) < 1e-7  # the library adds to the diagonal


@pytest.mark.parametrize("no_slope", [False, True])
def test_predictions_of_one_kernel_are_exact_inference(no_slope):
    """The scale of the process is integrated out, which leaves the mean as it is and scales the variance. The level and
    the slope are part of the process; without a slope, the level alone, of the values before the slope was
    subtracted."""
    x, y, observed, error, period = random_columns(c=1)
    theta = torch.tensor([[[0, 0.7, 0.2, 0, 1, 1, no_slope]]], dtype=torch.float64)
    kernels, line = Kernels(theta, period, torch.zeros(1, dtype=torch.bool)), draw_line(x, observed)
    found = predict_cells(kernels, x, y, observed, error, ~observed, line)
    trend = torch.ones(1, 20, 20) if no_slope else SUBTRACTED.correlate(covariance.distances(x, x))
    gram = (RBFKernel()(x, x, torch.tensor([[0.7, 1.0]]).double()) + trend)[0]
    y = torch.where(observed, y + no_slope * line, 0)
    found = replace(found, mean=found.mean + no_slope * line)
    seen, noise = observed[0], 0.04 + error[0].square() + covariance.JITTER

    def exact(context, target):
        posterior = GPPosterior.from_covariance(gram[context][:, context] + noise[context].diag(), y[0, context, None])
        mean, variance = posterior.predict(gram[context][:, target], gram.diagonal()[target])
        return mean[:, 0], variance

    white = torch.linalg.solve(gram[seen][:, seen] + noise[seen].diag(), y[0, seen])
    scale = (FREEDOM + y[0, seen] @ white) / (FREEDOM + seen.sum() - 2 + no_slope)  # that a level and a slope leave
    mean, variance = exact(seen, ~seen)
    assert distance(found.mean[0, ~seen], mean) < 1e-7
    assert distance(found.variance[0, ~seen], scale * variance) < 1e-7
    assert distance(found.noise[0], scale * 0.04 * torch.ones(20)) < 1e-7
    for i in seen.nonzero()[:, 0]:  # an observed cell is predicted from all others
        left_out = torch.zeros(20, dtype=torch.bool)
        left_out[i] = True
        mean, variance = exact(seen & ~left_out, left_out)
        assert distance(found.mean[0, i], mean[0]) < 1e-6
        assert distance(found.variance[0, i], scale * variance[0]) < 1e-6


@pytest.mark.parametrize("name", ["native", "reference"])
def test_the_kernel_of_the_data_is_found(name, monkeypatch):
    monkeypatch.setattr(kernel, "is_available", lambda: name == "native" and kernel.library.is_available())
    random = torch.Generator().manual_seed(1)
    x = 4 * torch.rand(2, 45, 1, generator=random, dtype=torch.float64).sort(1).values - 2
    theta = torch.tensor([[0.4, 1.0], [2.0, 1.0]], dtype=torch.float64)
    gram = RBFKernel()(x, x, theta) + 1e-8 * torch.eye(45).double()
    y = (torch.linalg.cholesky(gram) @ torch.randn(2, 45, 1, generator=random, dtype=torch.float64))[..., 0]
    y = y + torch.tensor([[0.02], [0.3]]).double() * torch.randn(2, 45, generator=random, dtype=torch.float64)
    seen, none = torch.ones(2, 45, dtype=torch.bool), torch.zeros(2).double()
    found = choose_kernels(x, y, seen, torch.zeros_like(y), none).theta
    assert found.shape == (2, KERNELS, 7)
    assert (found[0, :, 0] < 1).double().mean() > 0.7  # smooth, of a length of .4, with little noise
    assert 0.25 < found[0, :, 1].median() < 0.6
    assert found[0, :, 2].median() < 0.1 < found[1, :, 2].median()


def test_a_period_is_used_where_there_is_one():
    x = torch.linspace(-2, 2, 90, dtype=torch.float64)[None, :, None].expand(2, -1, -1)
    random = torch.Generator().manual_seed(0)
    wave = torch.sin(2 * math.pi * x[..., 0] / 0.37).abs() * 2 + 0.05 * torch.randn(2, 90, generator=random).double()
    y = wave - wave.mean(1, keepdim=True)
    observed = torch.ones(2, 90, dtype=torch.bool)
    observed[:, 60:] = False
    period = torch.tensor([0.185, 0.0], dtype=torch.float64)
    line = draw_line(x, observed)
    y_seen, none = torch.where(observed, y - line, 0), torch.zeros_like(y)
    kernels = choose_kernels(x, y_seen, observed, none, period, line=line)
    found = predict_cells(kernels, x, y_seen, observed, none, ~observed, line)
    found = replace(found, mean=found.mean + line)
    error = (found.mean - y)[:, 60:].square().mean(1).sqrt()
    assert error[0] < 0.15 < 0.4 < error[1]


@pytest.mark.parametrize("n", [1, 2, 30, 49, 200, 1500])
def test_subsets_hold_observed_rows_once(n):
    x, _, observed, _, _ = random_columns(c=4, n=n)
    observed[0] = True
    observed[1, 1:] = False
    for rows, there in choose_subsets(x, observed):
        assert rows.shape[1] <= kernel_choice.SUBSET
        for column in range(4):
            chosen = rows[column, there[column]]
            assert observed[column, chosen].all()
            assert len(chosen.unique()) == len(chosen)
    _, there = choose_subsets(x, observed)[0]
    for column in range(4):
        assert there[column].sum() == min(kernel_choice.SUBSET, observed[column].sum())


@pytest.mark.parametrize("n", [30, 120])
def test_a_column_is_predicted_alike_in_every_batch(n):
    """Columns of a batch may have few observations or many."""
    x, y, observed, error, period = random_columns(c=4, n=n)
    observed[1, 10:] = False
    y = torch.where(observed, y, 0)

    def predict(columns):
        parts = [part[columns] for part in (x, y, observed, error)]
        return predict_cells(choose_kernels(*parts, period[columns]), *parts, ~observed[columns])

    together = predict(slice(None))
    for column in range(4):
        alone = predict(slice(column, column + 1))
        assert distance(together.mean[column : column + 1], alone.mean) < 1e-8
        assert distance(together.variance[column : column + 1], alone.variance) < 1e-8


@pytest.mark.parametrize("values", ["none", "one", "constant", "repeated locations", "huge step"])
def test_odd_columns_have_finite_predictions(values):
    x, y, observed, error, period = random_columns()
    if values == "none":
        observed = torch.zeros_like(observed)
    elif values == "one":
        observed = torch.arange(20).expand(3, -1) == 4
    elif values == "constant":
        y = torch.zeros_like(y)
    elif values == "repeated locations":
        x = (2 * x).round() / 2
    else:
        y[:, 10:] += 1e6
    y = torch.where(observed, y, 0)
    found = predict_cells(choose_kernels(x, y, observed, error, period), x, y, observed, error, ~observed)
    assert all(part.isfinite().all() for part in (found.mean, found.variance, found.noise))
    assert (found.variance >= 0).all()


@pytest.mark.parametrize("n", [49, 200, 1500])
def test_large_subsets_hold_observed_rows_once(n):
    observed = random_columns(c=4, n=n)[2]
    observed[0] = True
    for rows, there in kernel_choice.choose_large_subsets(observed):
        assert rows.shape[1] <= kernel_choice.LARGE_SUBSET
        for column in range(4):
            chosen = rows[column, there[column]]
            assert observed[column, chosen].all()
            assert len(chosen.unique()) == len(chosen)


@pytest.mark.parametrize("native", [True, False])
def test_a_column_without_a_period_has_a_covariance(native):
    """A second part of a long scale is smooth without a period: the sum is positive definite to float precision."""
    x = torch.linspace(-2, 2, 200, dtype=torch.float64)[None, :, None]
    theta = torch.tensor([[0.0, 2.0, 0.01, 0.8, 1e3, 3.0, 0.0]], dtype=torch.float64)
    correlate = covariance.correlate if native else covariance.compute_correlation
    values = torch.linalg.eigvalsh(correlate(theta, torch.zeros(1, dtype=torch.float64), covariance.distances(x, x))[0])
    assert values[0] > -1e-12


def draw_beside_gap(c: int, seed: int = 0):
    """Noise-free functions of length .4 at 20 locations on each side of a gap of four fifths of the width and in it,
    without the trend and in the units of those beside the gap, and which are observed."""
    random = torch.Generator().manual_seed(seed)
    sides = 0.4 * torch.rand(c, 40, 1, generator=random, dtype=torch.float64)
    sides = torch.where(torch.arange(40)[:, None] < 20, sides - 2, 2 - sides)
    x = torch.cat([sides, 3.2 * torch.rand(c, 30, 1, generator=random, dtype=torch.float64) - 1.6], 1)
    gram = RBFKernel()(x, x, torch.tensor([[0.4, 1.0]]).double().expand(c, -1))
    factor = factorise(gram + 1e-9 * torch.eye(70).double())
    y = (factor @ torch.randn(c, 70, 1, generator=random, dtype=torch.float64))[..., 0]
    design = torch.stack([torch.ones_like(y), x[..., 0]], -1)
    y = y - (design @ torch.linalg.lstsq(design[:, :40], y[:, :40, None]).solution)[..., 0]
    observed = (torch.arange(70) < 40).expand(c, -1)
    return x, y / y[:, :40].std(1, keepdim=True), observed


def test_intervals_hold_in_a_gap_of_which_only_the_ends_are_known():
    """The level and the slope that were removed are uncertain, and the scale is not that of what they leave: processes
    that take them for known cover 42 %."""
    x, y, observed = draw_beside_gap(60)
    seen, none = torch.where(observed, y, 0), torch.zeros(60).double()
    kernels = choose_kernels(x, seen, observed, torch.zeros_like(y), none)
    found = predict_cells(kernels, x, seen, observed, torch.zeros_like(y), ~observed)
    inside = ((found.mean - y).abs() < 1.96 * (found.variance + found.noise).sqrt())[:, 40:]
    assert 0.85 < inside.double().mean() < 0.99


def test_a_trend_that_was_not_removed_is_followed():
    x = torch.linspace(-2, 2, 60, dtype=torch.float64)[None, :, None]
    theta = torch.tensor([[[0, 0.3, 0.1, 0, 1, 1, 0]]], dtype=torch.float64)
    kernels = Kernels(theta, torch.zeros(1).double(), torch.zeros(1, dtype=torch.bool))
    observed = ((x[..., 0] < -0.8) | (x[..., 0] > 0.8)).expand(2, -1)
    y = torch.stack([1 + x[0, :, 0], torch.zeros(60)]).double()
    found = predict_cells(
        kernels.repeat(2), x.expand(2, -1, -1), torch.where(observed, y, 0), observed, torch.zeros_like(y), ~observed
    )
    middle = found.mean[:, 28:32].mean(1)
    assert abs(middle[0] - 1) < 0.15
    assert abs(middle[1]) < 1e-6


@pytest.mark.parametrize("name", ["native", "reference"])
def test_kernels_without_a_slope_are_chosen_where_there_is_none(name, monkeypatch):
    """Forecasts of stationary functions return to their level, those of a rising line continue it."""
    monkeypatch.setattr(kernel, "is_available", lambda: name == "native" and kernel.library.is_available())
    random = torch.Generator().manual_seed(2)
    x = torch.linspace(-2, 6, 60, dtype=torch.float64)[None, :, None].expand(12, -1, -1)
    gram = RBFKernel()(x, x, torch.tensor([[0.4, 1.0]]).double().expand(12, -1)) + 1e-8 * torch.eye(60).double()
    stationary = (torch.linalg.cholesky(gram) @ torch.randn(12, 60, 1, generator=random).double())[..., 0]
    rising = 2 * x[..., 0] + 0.2 * torch.randn(12, 60, generator=random).double()
    observed, far = (x[..., 0] <= 2), x[..., 0] > 4
    u, errors = x.clone(), {}
    for kind, y in (("stationary", stationary), ("rising", rising)):
        design = torch.stack([torch.ones_like(y), x[..., 0]], -1)
        weights = torch.where(observed, 1.0, 0.0).double()[..., None]
        fit = (design @ torch.linalg.lstsq(design * weights, y[..., None] * weights).solution)[..., 0]
        mean = (fit * weights[..., 0]).sum(1, keepdim=True) / weights.sum(1)
        values, none = torch.where(observed, y - fit, 0), torch.zeros_like(y)
        kernels = choose_kernels(u, values, observed, none, torch.zeros(12).double(), line=fit - mean)
        found = predict_cells(kernels, u, values, observed, none, ~observed, fit - mean)
        no_slope = kernels.theta[..., 6].mean()
        errors[kind] = (found.mean + fit - y)[far].abs().mean()
        assert no_slope > 0.6 if kind == "stationary" else no_slope < 0.05
    assert errors["stationary"] < 1.1  # the functions have a standard deviation of 1
    assert errors["rising"] < 0.4  # they rise by 4 from the last observation to the middle of the forecast


def test_stretched_kernels_are_those_of_stretched_locations():
    x, *_, period = random_columns()
    theta, apart = every_kernel(3), covariance.distances(x, x)
    kernels = Kernels(theta, period, torch.zeros(3, dtype=torch.bool))
    stretched = kernels.stretch(2.5)
    for number in range(theta.shape[1]):
        found = covariance.correlate(stretched.theta[:, number], stretched.period, 2.5 * apart)
        assert distance(found, covariance.correlate(theta[:, number], period, apart)) < 1e-12


def test_joined_processes_are_those_of_each_window():
    theta, informed = every_kernel(6)[:, :4], torch.zeros(2, 1, 3, dtype=torch.bool)
    kernels = Kernels(theta, torch.rand(6).double(), torch.zeros(6, dtype=torch.bool))
    both = Processes(kernels, None, torch.ones(2, 1, 1).double(), informed)
    halves = [
        Processes(Kernels(theta[part], kernels.period[part], kernels.drawn[part]), None, both.unit[:1], informed[:1])
        for part in (slice(3), slice(3, 6))
    ]
    joined = Processes.join(halves)
    assert torch.equal(joined.alone.theta, theta)
    assert torch.equal(joined.alone.period, kernels.period)
    assert joined.unit.shape == both.unit.shape
    assert joined.informed.shape == informed.shape


def test_a_covariance_that_rounding_left_indefinite_has_a_factor():
    x = torch.linspace(-2, 2, 300, dtype=torch.float64)[None, :, None]
    theta = torch.tensor([[0, 4.0, 0, 0, 1, 1, 0]], dtype=torch.float64)
    gram = covariance.compute_correlation(theta, torch.zeros(1), covariance.distances(x, x))
    factor = factorise(torch.cat([gram, torch.eye(300).double()[None]]))
    assert factor.isfinite().all()
    assert distance(factor[0] @ factor[0].T, gram[0]) < 1e-6
    assert torch.equal(factor[1], torch.eye(300).double())
