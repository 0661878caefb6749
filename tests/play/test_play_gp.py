"""The exact process of the page: its grid of likelihoods and its posterior are those of the textbook."""

from itertools import product

import torch
from torch.distributions import MultivariateNormal

from fillin.data.kernels import RBFKernel
from fillin.play.gp import _LENGTHS, _NOISES, _SCALES, ExactGP


def known(n: int = 23) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = 4 * torch.rand(n, 1, dtype=torch.float64) - 2
    x[1] = x[0]  # twice at one place
    return x, torch.sin(3 * x) + 0.1 * torch.randn(n, 1, dtype=torch.float64)


def test_likelihoods_all_over_the_grid_are_those_of_the_normal_distribution():
    x, y = known()
    found = ExactGP().likelihoods(x, y)
    assert found.shape == (len(_LENGTHS), len(_SCALES), len(_NOISES))
    for (i, length), (j, scale), (k, noise) in product(*map(enumerate, (_LENGTHS, _SCALES, _NOISES))):
        theta = x.new_tensor([length, scale])
        covariance = RBFKernel()(x, x, theta) + noise**2 * torch.eye(len(x))
        wanted = MultivariateNormal(torch.zeros_like(y[:, 0]), covariance).log_prob(y[:, 0])
        assert abs(found[i, j, k] - wanted) < 1e-7 * abs(wanted)


def test_it_takes_the_likeliest_and_predicts_by_it():
    x, y = known()
    at = torch.linspace(-2, 2, 7, dtype=torch.float64)[:, None]
    theta, noise = ExactGP().likeliest(x, y)
    best = ExactGP().likelihoods(x, y).amax()
    covariance = RBFKernel()(x, x, theta) + noise**2 * torch.eye(len(x))
    assert torch.isclose(MultivariateNormal(torch.zeros_like(y[:, 0]), covariance).log_prob(y[:, 0]), best)
    across = RBFKernel()(at, x, theta) @ covariance.inverse()
    found = ExactGP()(x[None], y[None], at[None])
    assert torch.allclose(found.mean[0], across @ y, atol=1e-8)
    spread = RBFKernel()(at, at, theta) - across @ RBFKernel()(x, at, theta) + (noise**2 + 1e-8) * torch.eye(7)
    assert torch.allclose(found.stddev[0, :, 0], spread.diagonal().sqrt(), atol=1e-8)
