"""Gaussian processes averaged over kernels: exact inference, the native kernel against the reference, and the choice
of kernels."""

import math

import pytest
import torch
from support.attention_problems import needs_kernel
from support.helpers import distance

from fillin.attention import kernel
from fillin.data.kernels import Matern12Kernel, Matern32Kernel, Matern52Kernel, RBFKernel
from fillin.gp import GPPosterior
from fillin.models import processes
from fillin.models.processes import (
    KERNELS,
    Kernels,
    average_predictions,
    choose_kernels,
    choose_subsets,
    compute_evidence,
    predict_cells,
)

_FREEDOM = 3.0


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
    return torch.tensor(plain + periodic * list(processes._PERIODIC), dtype=torch.float64).expand(c, -1, -1)


@needs_kernel
@pytest.mark.parametrize("dim_x", [1, 2])
def test_native_likelihoods_and_predictions_equal_the_reference(dim_x):
    x, y, observed, error, period = random_columns(dim_x=dim_x)
    theta = every_kernel(3, dim_x == 1)
    got = processes._evidence(theta, period, x, y, error, observed)
    assert distance(got, compute_evidence(theta, period, x, y, error, observed)) < 1e-8
    apart = processes.distances(x, x)
    for number in range(theta.shape[1]):
        found = processes.correlate(theta[:, number], period, apart)
        assert distance(found, processes.compute_correlation(theta[:, number], period, apart)) < 1e-13
    kernels = Kernels(theta, period, torch.ones(3, dtype=torch.bool))
    queries = 3 * torch.rand(3, 7, dim_x).double() - 1
    keep = torch.cat([observed, torch.ones(3, 7, dtype=torch.bool)], 1)[:, None]
    got, expected = (
        part(kernels, x, y, error, observed, queries) * keep for part in (processes._average, average_predictions)
    )
    assert distance(got, expected) < 1e-6


@pytest.mark.parametrize(
    ("number", "kind"), list(enumerate([RBFKernel(), Matern52Kernel(), Matern32Kernel(), Matern12Kernel()]))
)
def test_kernels_are_those_of_the_library(number, kind):
    x = random_columns()[0]
    theta = torch.tensor([[number, 0.7, 0.1, 0, 1, 1]], dtype=torch.float64).expand(3, -1)
    expected = kind(x, x, torch.tensor([[0.7, 1.0]]).double().expand(3, -1))
    found = processes.correlate(theta, torch.zeros(3), processes.distances(x, x))
    assert distance(found, expected) < 1e-7  # the library adds to the diagonal


def test_predictions_of_one_kernel_are_exact_inference():
    """The scale of the process is integrated out, which leaves the mean as it is and scales the variance."""
    x, y, observed, error, period = random_columns(c=1)
    theta = torch.tensor([[[0, 0.7, 0.2, 0, 1, 1]]], dtype=torch.float64)
    found = predict_cells(Kernels(theta, period, torch.zeros(1, dtype=torch.bool)), x, y, observed, error, ~observed)
    gram = RBFKernel()(x, x, torch.tensor([[0.7, 1.0]]).double())[0]
    seen, noise = observed[0], 0.04 + error[0].square() + 1e-8

    def exact(context, target):
        posterior = GPPosterior.from_covariance(gram[context][:, context] + noise[context].diag(), y[0, context, None])
        mean, variance = posterior.predict(gram[context][:, target], torch.ones(int(target.sum())).double())
        return mean[:, 0], variance

    white = torch.linalg.solve(gram[seen][:, seen] + noise[seen].diag(), y[0, seen])
    scale = (_FREEDOM + y[0, seen] @ white) / (_FREEDOM + seen.sum())
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
    assert found.shape == (2, KERNELS, 6)
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
    kernels = choose_kernels(x, torch.where(observed, y, 0), observed, torch.zeros_like(y), period)
    found = predict_cells(kernels, x, torch.where(observed, y, 0), observed, torch.zeros_like(y), ~observed)
    error = (found.mean - y)[:, 60:].square().mean(1).sqrt()
    assert error[0] < 0.15 < 0.4 < error[1]


@pytest.mark.parametrize("n", [1, 2, 30, 49, 200, 1500])
def test_subsets_hold_observed_rows_once(n):
    x, _, observed, _, _ = random_columns(c=4, n=n)
    observed[0] = True
    observed[1, 1:] = False
    for rows, there in choose_subsets(x, observed):
        assert rows.shape[1] <= processes.SUBSET
        for column in range(4):
            chosen = rows[column, there[column]]
            assert observed[column, chosen].all()
            assert len(chosen.unique()) == len(chosen)
    _, there = choose_subsets(x, observed)[0]
    for column in range(4):
        assert there[column].sum() == min(processes.SUBSET, observed[column].sum())


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
    for rows, there in processes.choose_large_subsets(observed):
        assert rows.shape[1] <= processes.LARGE_SUBSET
        for column in range(4):
            chosen = rows[column, there[column]]
            assert observed[column, chosen].all()
            assert len(chosen.unique()) == len(chosen)
