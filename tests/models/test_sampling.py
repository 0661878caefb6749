"""Samples and likelihoods where the right answer is known in closed form."""

import pytest
import torch
from support.helpers import ExactProcess, distance, random_task, tiny
from torch.distributions import Normal

import fillin
from fillin.heads import HEADS
from fillin.models import names
from fillin.objectives import autoregressive, log_likelihood
from fillin.sampling import sample_curve


def test_autoregressive_factors_of_a_gaussian_process_are_its_joint():
    process, task = ExactProcess().double(), random_task(nc=3, nt=6)
    exact = process.joint(task.xc, task.yc, task.xt).log_prob(task.yt[..., 0]) / 6
    assert distance(autoregressive(process, task), exact) < 1e-9
    assert (log_likelihood(process, task) - exact).abs().min() > 1e-3  # which the marginals are not


def test_autoregressive_samples_of_a_gaussian_process_have_its_covariance():
    process, task = ExactProcess(length=1.0).double(), random_task(b=1, nc=2, nt=4)
    exact = process.joint(task.xc, task.yc, task.xt)
    drawn = fillin.sample(process, task.xc, task.yc, task.xt, 6000)[:, 0, :, 0]
    error = drawn.T.cov() - exact.covariance_matrix[0]
    assert error.abs().max() < 0.06
    assert (drawn.mean(0) - exact.mean[0]).abs().max() < 0.06


def test_a_tnp_a_likelihood_in_one_pass_is_the_product_of_its_steps():
    """Equation 9: the conditionals of one pass equal those met target by target, with kept keys and values."""
    for name in ("tnp-a", "te-tnp-a"):
        model, task = tiny(name), random_task(nc=4, nt=5)
        context, targets = model.read(*task.inputs)
        one_pass = model.head(model.teacher_forced(context, targets, task.yt))
        for i in range(5):  # the i-th conditional knows nothing of what comes after
            other = task.yt.clone()
            other[:, i:] = 9
            again = model.head(model.teacher_forced(context, targets, other))
            assert distance(again.mean[:, : i + 1], one_pass.mean[:, : i + 1]) < 1e-12
        first = model(*task.inputs)
        assert distance(first.mean[:, :1], one_pass.mean[:, :1]) < 1e-12
        total = one_pass.log_prob(task.yt).sum((1, 2))
        assert distance(first.log_prob(task.yt), total) < 1e-12


@pytest.mark.parametrize("name", ["tnp-a", "te-tnp-a"])
def test_kept_keys_and_values_change_nothing(name, monkeypatch):
    """Draw with the mean instead of a sample: step by step with a cache = teacher forcing on what was drawn."""
    monkeypatch.setattr(Normal, "sample", lambda self, shape=(): self.mean)
    model, task = tiny(name, dim_y=2), random_task(nc=4, nt=5, dim_y=2)
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[0, 2] = False
    drawn = fillin.sample(model, task.xc, task.yc, task.xt, 3, mask_c=mask)
    assert distance(drawn[0], drawn[2]) < 1e-12
    context, targets = model.read(task.xc, task.yc, task.xt, mask)
    forced = model.head(model.teacher_forced(context, targets, drawn[1]))
    assert distance(forced.mean, drawn[1]) < 1e-10


@pytest.mark.parametrize("name", names())
def test_every_model_samples_both_ways(name):
    model, task = tiny(name, dim_y=2), random_task(dim_y=2, nt=3)
    for method in ("auto", "autoregressive"):
        drawn = fillin.sample(model, task.xc, task.yc, task.xt, 2, method=method)
        assert drawn.shape == (2, 2, 3, 2)
        assert drawn.isfinite().all()
        assert distance(drawn[0], drawn[1]) > 1e-3
        nothing = fillin.sample(model, task.xc[:, :0], task.yc[:, :0], task.xt, 2, method=method)
        assert nothing.isfinite().all()


@pytest.mark.parametrize("name", ["tnp-a", "te-tnp-a"])
def test_drawing_knows_which_outputs_are_not_asked_for(name, monkeypatch):
    monkeypatch.setattr(Normal, "sample", lambda self, shape=(): self.mean)
    model, task = tiny(name, dim_y=2), random_task(nc=4, nt=5, dim_y=2)
    mask = torch.rand(2, 5, 2) > 0.4
    drawn = fillin.sample(model, task.xc, task.yc, task.xt, 1, mask_t=mask)[0]
    context, targets = model.read(task.xc, task.yc, task.xt, None, mask)
    forced = model.head(model.teacher_forced(context, targets, drawn))
    there = mask.any(-1)  # a target of which nothing is asked for is padding
    assert distance(forced.mean[there], drawn[there]) < 1e-10


@pytest.mark.parametrize("name", ["np", "anp", "convnp"])
def test_every_function_has_a_latent_of_its_own(name):
    """More functions than the predictive mixture has latents, and none is like another."""
    model, task = tiny(name, samples=2, floor=0.0), random_task(b=1)
    with torch.no_grad():  # next to no noise at the points
        model.head.out.weight[1] = 0
        model.head.out.bias[1] = -40
    drawn = fillin.sample(model, task.xc, task.yc, task.xt, 8)[:, 0, :, 0]
    assert torch.pdist(drawn).min() > 1e-6


@pytest.mark.parametrize("name", ["tnp-nd", "te-tnp-nd", "np"])
def test_samples_have_the_moments_of_the_distribution(name):
    model, task = tiny(name, **({"samples": 64} if name == "np" else {})), random_task(b=1)
    out = model(*task.inputs)
    drawn = fillin.sample(model, task.xc, task.yc, task.xt, 8000)
    assert (drawn.mean(0) - out.mean).abs().max() < 0.1 * out.stddev.max() + 0.02
    assert (drawn.std(0) / out.stddev - 1).abs().max() < 0.08


def test_a_latent_sample_is_of_one_latent():
    """With no noise at the points, samples are exactly the functions of the K latents."""
    model, task = tiny("np"), random_task(b=1)
    out = model(*task.inputs)
    out.given.scale = torch.full_like(out.given.scale, 1e-9)
    drawn = out.sample((20,))
    nearest = (drawn[:, None, 0] - out.given.mean[None, :, 0]).abs().amax((-1, -2)).min(1).values
    assert nearest.max() < 1e-6


@pytest.mark.parametrize("head", ["lowrank", "cholesky"])
def test_joint_heads_are_the_multivariate_normal_they_say(head):
    made, features = HEADS[head](8, 2, rank=3).double(), torch.randn(2, 4, 8).double()
    out, y = made(features), torch.randn(2, 4, 2).double()
    exact = torch.distributions.MultivariateNormal(out.mean.flatten(1), out.covariance_matrix)
    assert distance(out.log_prob(y), exact.log_prob(y.flatten(1))) < 1e-9
    keep = torch.ones(2, 4, 2, dtype=torch.bool)
    keep[:, -1] = False
    assert distance(made(features, keep).log_prob(y), made(features[:, :-1]).log_prob(y[:, :-1])) < 1e-9


def test_every_head_is_normalised():
    """Densities integrate to one, probabilities sum to one."""
    for name in HEADS:
        far = 600 if name == "observed" else 60  # it starts out wide
        y = torch.linspace(-far, far, 60_001).double().view(1, -1, 1)
        made = HEADS[name](8, 3 if name == "categorical" else 1).double()
        if name == "categorical":
            assert torch.allclose(made(torch.randn(2, 5, 8).double()).mean.sum(-1), torch.ones(2, 5).double())
            continue
        features = torch.randn(1, 1, 8).double()
        out = made(features.expand(1, 60_001 if not made.joint else 1, 8))
        log_p = (
            out.log_prob(y).flatten()
            if not made.joint
            else torch.stack([out.log_prob(v.view(1, 1, 1)) for v in y[0, ::20]])
        )
        step = 2 * far / 60_000 * (20 if made.joint else 1)
        assert (log_p.exp().sum() * step).item() == pytest.approx(1, abs=1e-3)


def test_deviations_have_a_floor():
    head = HEADS["gaussian"](4, 1, floor=0.05)
    torch.nn.init.constant_(head.out.bias, -100)
    assert (head(torch.zeros(1, 3, 4)).stddev >= 0.05).all()


def test_sample_curve_go_through_what_is_known_and_hang_together():
    """Near a known point they are there; far from all, neighbours move together and those far apart do not."""
    model, xc = fillin.load("te-tnp-rbf"), torch.tensor([-1.0, -0.8, -0.6]).view(1, 3, 1)
    xt = torch.linspace(-1, 4, 121).view(1, 121, 1)
    drawn = sample_curve(model, xc, xc.sin(), xt, n=200)[:, 0, :, 0]
    assert (drawn[:, 0] - xc[0, 0].sin()).abs().max() < 0.3
    near, far = (torch.corrcoef(torch.stack([drawn[:, 90], drawn[:, at]]))[0, 1] for at in (92, 40))
    assert near > 0.8
    assert far < 0.3
    torch.manual_seed(1)
    first = sample_curve(model, xc, xc.sin(), xt, n=2)
    torch.manual_seed(1)
    again = sample_curve(model, xc, xc.sin(), xt, n=2, prediction=model(xc, xc.sin(), xt))
    assert torch.equal(first, again)
    assert sample_curve(model, xc, xc.sin(), xt[:, :1], n=3).shape == (3, 1, 1, 1)
