"""The exact Gaussian process of the page: its marginal likelihoods and its posterior are those of the textbook."""

from itertools import product

import torch
from torch.distributions import MultivariateNormal

from fillin.data.kernels import RBFKernel
from fillin.play.gp import AMPLITUDES, LENGTH_SCALES, NOISE_STDS, ExactGP


def make_data(n: int = 23) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = 4 * torch.rand(n, 1, dtype=torch.float64) - 2
    x[1] = x[0]  # two observations at one location
    return x, torch.sin(3 * x) + 0.1 * torch.randn(n, 1, dtype=torch.float64)


def test_marginal_likelihoods_over_the_grid_are_those_of_the_normal_distribution():
    x, y = make_data()
    likelihoods = ExactGP().log_marginal_likelihoods(x, y)
    assert likelihoods.shape == (len(LENGTH_SCALES), len(AMPLITUDES), len(NOISE_STDS))
    for (i, length), (j, amplitude), (k, noise) in product(*map(enumerate, (LENGTH_SCALES, AMPLITUDES, NOISE_STDS))):
        theta = x.new_tensor([length, amplitude])
        covariance = RBFKernel()(x, x, theta) + noise**2 * torch.eye(len(x))
        expected = MultivariateNormal(torch.zeros_like(y[:, 0]), covariance).log_prob(y[:, 0])
        assert abs(likelihoods[i, j, k] - expected) < 1e-7 * abs(expected)


def test_the_fit_maximises_the_likelihood_and_the_posterior_follows_from_it():
    x, y = make_data()
    targets = torch.linspace(-2, 2, 7, dtype=torch.float64)[:, None]
    theta, noise = ExactGP().fit(x, y)
    best = ExactGP().log_marginal_likelihoods(x, y).amax()
    covariance = RBFKernel()(x, x, theta) + noise**2 * torch.eye(len(x))
    assert torch.isclose(MultivariateNormal(torch.zeros_like(y[:, 0]), covariance).log_prob(y[:, 0]), best)
    weights = RBFKernel()(targets, x, theta) @ covariance.inverse()
    prediction = ExactGP()(x[None], y[None], targets[None])
    assert torch.allclose(prediction.mean[0], weights @ y, atol=1e-8)
    posterior = (
        RBFKernel()(targets, targets, theta)
        - weights @ RBFKernel()(x, targets, theta)
        + (noise**2 + 1e-8) * torch.eye(7)
    )
    assert torch.allclose(prediction.stddev[0, :, 0], posterior.diagonal().sqrt(), atol=1e-8)
