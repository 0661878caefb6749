"""Limits: the oracle's likelihood is a conditional of the joint, and the average over the prior converges."""

import pytest
import torch
from support.helpers import distance

from fillin.data import MixturePrior, bayes_limit, curves, oracle_limit


def normal_log_prob(kernel, x, theta, y):
    """ln p(y) by torch's multivariate normal; y [n], θ with the noise last."""
    covariance = kernel(x[None], x[None], theta[None, :-1])[0] + theta[-1] ** 2 * torch.eye(len(x), dtype=x.dtype)
    return torch.distributions.MultivariateNormal(torch.zeros(len(x), dtype=x.dtype), covariance).log_prob(y)


@pytest.mark.parametrize("text", ["rbf", "matern-3/2 + periodic", "rbf | linear"])
@pytest.mark.parametrize("dim_x", [1, 2])
def test_the_oracle_limit_is_a_conditional_of_the_joint(text, dim_x):
    """p(yt | yc) = p(yc, yt)/p(yc) by torch's normal, and the log_prob of `posterior`."""
    stream = curves(text, batch=3, noise=(0.1, 0.3), dim_x=dim_x)
    task, unknowns = stream.draw(2)
    if not isinstance(stream.function, MixturePrior):
        unknowns = [(torch.arange(3), stream.function, unknowns)]
    x, y = torch.cat([task.xc, task.xt], 1).double(), torch.cat([task.yc, task.yt], 1)[..., 0].double()
    nc, nt = task.xc.shape[1], task.xt.shape[1]
    limit = oracle_limit(stream, 2)
    for rows, process, theta in unknowns:
        exact = process.posterior(task.xc[rows], task.yc[rows], task.xt[rows], theta)
        joint = torch.stack(
            [
                normal_log_prob(process.kernel, x[r], t, y[r])
                - normal_log_prob(process.kernel, x[r, :nc], t, y[r, :nc])
                for r, t in zip(rows, theta, strict=True)
            ]
        )
        marginal = torch.distributions.Normal(exact.mean, exact.stddev).log_prob(y[rows, nc:]).mean(-1)
        assert distance(limit.joint[rows], joint / nt) < 1e-6
        assert distance(limit.joint[rows], exact.log_prob(y[rows, nc:]) / nt) < 1e-6
        assert distance(limit.marginal[rows], marginal) < 1e-6


def test_functions_without_closed_form_have_no_limit():
    for text in ("sawtooth", "predator-prey", "rbf | sawtooth"):
        assert oracle_limit(curves(text, batch=8), 0) is None
        assert bayes_limit(curves(text, batch=8), 0, 4) is None


@pytest.mark.parametrize("text", ["rbf", "rbf | rbf", "periodic * rbf"])
def test_bayes_equals_the_oracle_for_fixed_hyperparameters(text):
    options = {"length": (0.3, 0.3), "scale": (0.7, 0.7)} | ({"period": (0.4, 0.4)} if "periodic" in text else {})
    stream = curves(text, batch=4, **options)
    for a, b in zip(bayes_limit(stream, 0, 8), oracle_limit(stream, 0), strict=True):
        assert distance(a, b) < 1e-9


def test_the_bayes_limit_converges():
    stream = curves("rbf", batch=1)
    errors = {32: [], 256: []}
    for step in range(20):
        best = bayes_limit(stream, step, 1024)
        for number, error in errors.items():
            error.append((bayes_limit(stream, step, number).joint - best.joint).abs().item())
    assert sum(errors[256]) / 20 < 0.01
    assert sum(errors[256]) < sum(errors[32])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rbf", (1.509, 1.806, 1.445, 1.771)),
        ("matern-5/2", (1.151, 1.408, 1.106, 1.380)),
    ],
)
@pytest.mark.slow
def test_limits_on_the_protocol_of_tnp(text, expected):
    """Expected values were measured on 600 other tasks, with a standard error of 0.03."""
    stream = curves(text, batch=1, seed=1)
    limits = torch.stack(
        [torch.cat([*oracle_limit(stream, step), *bayes_limit(stream, step, 128)]) for step in range(150)]
    )  # [150 4]: the oracle's, then those of Bayes
    error = (limits.var(0) / len(limits) + 0.03**2).sqrt()
    assert ((limits.mean(0) - torch.tensor(expected)).abs() < 4 * error).all()
    assert (limits[:, :2] - limits[:, 2:]).mean(0).min() > 0  # the oracle knows the hyperparameters


def test_an_empty_context_has_a_limit():
    stream = curves("rbf", context=(0, 0), targets=(3, 3), batch=2)
    limit = bayes_limit(stream, 0, 64)
    assert limit.joint.isfinite().all()
    assert (limit.marginal < 0.5).all()  # only the scale is known
