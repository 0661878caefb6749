"""Curves: a batch is a function of (seed, step) alone, and the posterior is the exact one."""

import torch
from helpers import distance

from fillin.data import GaussianProcess, posterior
from fillin.data.curves import rbf


def test_a_batch_depends_on_seed_and_step_and_on_nothing_else():
    first = GaussianProcess(seed=1).task(5)
    torch.rand(3)
    assert torch.equal(GaussianProcess(seed=1).task(5).yc, first.yc)
    for other in (GaussianProcess(seed=2).task(5), GaussianProcess(seed=1).task(6)):
        assert other.xc.shape != first.xc.shape or not torch.equal(other.xc, first.xc)


def test_counts_follow_the_protocol():
    """Nc ~ U[3, 47), Nt ~ U[3, 50 − Nc), x in [−2, 2]."""
    for step in range(200):
        task = GaussianProcess(batch=2).task(step)
        nc, nt = task.xc.shape[1], task.xt.shape[1]
        assert 3 <= nc < 47
        assert 3 <= nt < max(4, 50 - nc)
        assert task.xc.abs().max() <= 2


def test_the_posterior_is_a_conditional_of_the_joint():
    """p(yt | yc) = p(yc, yt)/p(yc), all three by torch's multivariate normal."""
    x, y = torch.randn(1, 7, 2).double(), torch.randn(1, 7).double()
    length, scale, noise = torch.tensor(0.7).double(), torch.tensor(1.3).double(), 0.2
    covariance = rbf(x, x, length, scale) + noise**2 * torch.eye(7).double()

    def joint(n):
        return torch.distributions.MultivariateNormal(torch.zeros(n).double(), covariance[:, :n, :n]).log_prob(y[:, :n])

    exact = posterior(x[:, :4], y[:, :4, None], x[:, 4:], 0.7, 1.3, noise).log_prob(y[:, 4:])
    assert distance(exact, joint(7) - joint(4)) < 1e-6
