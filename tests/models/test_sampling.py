"""Samples and likelihoods compared with closed forms."""

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
    assert (log_likelihood(process, task) - exact).abs().min() > 1e-3  # the product of marginals differs


def test_autoregressive_samples_of_a_gaussian_process_have_its_covariance():
    process, task = ExactProcess(length=1.0).double(), random_task(b=1, nc=2, nt=4)
    exact = process.joint(task.xc, task.yc, task.xt)
    samples = fillin.sample(process, task.xc, task.yc, task.xt, 6000)[:, 0, :, 0]
    error = samples.T.cov() - exact.covariance_matrix[0]
    assert error.abs().max() < 0.06
    assert (samples.mean(0) - exact.mean[0]).abs().max() < 0.06


def test_a_tnp_a_likelihood_in_one_pass_is_the_product_of_its_steps():
    """Equation 9: the conditionals of one pass equal those computed target by target with cached keys and values."""
    for name in ("tnp-a", "te-tnp-a"):
        model, task = tiny(name), random_task(nc=4, nt=5)
        context, targets = model.read(*task.inputs)
        one_pass = model.head(model.teacher_forced(context, targets, task.yt))
        for i in range(5):  # the i-th conditional does not depend on later targets
            other = task.yt.clone()
            other[:, i:] = 9
            again = model.head(model.teacher_forced(context, targets, other))
            assert distance(again.mean[:, : i + 1], one_pass.mean[:, : i + 1]) < 1e-12
        first = model(*task.inputs)
        assert distance(first.mean[:, :1], one_pass.mean[:, :1]) < 1e-12
        total = one_pass.log_prob(task.yt).sum((1, 2))
        assert distance(first.log_prob(task.yt), total) < 1e-12


@pytest.mark.parametrize("name", ["tnp-a", "te-tnp-a"])
def test_cached_keys_and_values_do_not_change_samples(name, monkeypatch):
    """With means instead of samples, steps with a cache equal teacher forcing on the drawn values."""
    monkeypatch.setattr(Normal, "sample", lambda self, shape=(): self.mean)
    model, task = tiny(name, dim_y=2), random_task(nc=4, nt=5, dim_y=2)
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[0, 2] = False
    samples = fillin.sample(model, task.xc, task.yc, task.xt, 3, mask_c=mask)
    assert distance(samples[0], samples[2]) < 1e-12
    context, targets = model.read(task.xc, task.yc, task.xt, mask)
    forced = model.head(model.teacher_forced(context, targets, samples[1]))
    assert distance(forced.mean, samples[1]) < 1e-10


@pytest.mark.parametrize("name", names())
def test_every_model_samples_with_both_methods(name):
    model, task = tiny(name, dim_y=2), random_task(dim_y=2, nt=3)
    for method in ("auto", "autoregressive"):
        samples = fillin.sample(model, task.xc, task.yc, task.xt, 2, method=method)
        assert samples.shape == (2, 2, 3, 2)
        assert samples.isfinite().all()
        assert distance(samples[0], samples[1]) > 1e-3
        prior_samples = fillin.sample(model, task.xc[:, :0], task.yc[:, :0], task.xt, 2, method=method)
        assert prior_samples.isfinite().all()


@pytest.mark.parametrize("name", ["tnp-a", "te-tnp-a"])
def test_sampling_ignores_masked_target_outputs(name, monkeypatch):
    monkeypatch.setattr(Normal, "sample", lambda self, shape=(): self.mean)
    model, task = tiny(name, dim_y=2), random_task(nc=4, nt=5, dim_y=2)
    mask = torch.rand(2, 5, 2) > 0.4
    sample = fillin.sample(model, task.xc, task.yc, task.xt, 1, mask_t=mask)[0]
    context, targets = model.read(task.xc, task.yc, task.xt, None, mask)
    forced = model.head(model.teacher_forced(context, targets, sample))
    requested = mask.any(-1)  # a target without requested outputs is padding
    assert distance(forced.mean[requested], sample[requested]) < 1e-10


@pytest.mark.parametrize("name", ["np", "anp", "convnp"])
def test_every_sample_path_has_its_latent(name):
    """More samples than the predictive mixture has latents are all different."""
    model, task = tiny(name, samples=2, floor=0.0), random_task(b=1)
    with torch.no_grad():  # next to no noise at the points
        model.head.out.weight[1] = 0
        model.head.out.bias[1] = -40
    paths = fillin.sample(model, task.xc, task.yc, task.xt, 8)[:, 0, :, 0]
    assert torch.pdist(paths).min() > 1e-6


@pytest.mark.parametrize("name", ["tnp-nd", "te-tnp-nd", "np"])
def test_samples_have_the_moments_of_the_distribution(name):
    model, task = tiny(name, **({"samples": 64} if name == "np" else {})), random_task(b=1)
    out = model(*task.inputs)
    paths = fillin.sample(model, task.xc, task.yc, task.xt, 8000)
    assert (paths.mean(0) - out.mean).abs().max() < 0.1 * out.stddev.max() + 0.02
    assert (paths.std(0) / out.stddev - 1).abs().max() < 0.08


def test_a_sample_uses_one_latent_for_all_targets():
    """With no noise at the points, samples are exactly the functions of the K latents."""
    model, task = tiny("np"), random_task(b=1)
    out = model(*task.inputs)
    out.given.scale = torch.full_like(out.given.scale, 1e-9)
    samples = out.sample((20,))
    nearest = (samples[:, None, 0] - out.given.mean[None, :, 0]).abs().amax((-1, -2)).min(1).values
    assert nearest.max() < 1e-6


@pytest.mark.parametrize("head", ["lowrank", "cholesky"])
def test_joint_heads_equal_a_multivariate_normal(head):
    layer, features = HEADS[head](8, 2, rank=3).double(), torch.randn(2, 4, 8).double()
    out, y = layer(features), torch.randn(2, 4, 2).double()
    exact = torch.distributions.MultivariateNormal(out.mean.flatten(1), out.covariance_matrix)
    assert distance(out.log_prob(y), exact.log_prob(y.flatten(1))) < 1e-9
    observed = torch.ones(2, 4, 2, dtype=torch.bool)
    observed[:, -1] = False
    assert distance(layer(features, observed).log_prob(y), layer(features[:, :-1]).log_prob(y[:, :-1])) < 1e-9


def test_every_head_is_normalised():
    """Densities integrate to one, probabilities sum to one."""
    for name in HEADS:
        limit = 600 if name == "observed" else 60  # its initial distribution is wide
        y = torch.linspace(-limit, limit, 60_001).double().view(1, -1, 1)
        layer = HEADS[name](8, 3 if name == "categorical" else 1).double()
        if name == "categorical":
            assert torch.allclose(layer(torch.randn(2, 5, 8).double()).mean.sum(-1), torch.ones(2, 5).double())
            continue
        features = torch.randn(1, 1, 8).double()
        out = layer(features.expand(1, 60_001 if not layer.joint else 1, 8))
        log_p = (
            out.log_prob(y).flatten()
            if not layer.joint
            else torch.stack([out.log_prob(v.view(1, 1, 1)) for v in y[0, ::20]])
        )
        step = 2 * limit / 60_000 * (20 if layer.joint else 1)
        assert (log_p.exp().sum() * step).item() == pytest.approx(1, abs=1e-3)


def test_standard_deviations_have_a_floor():
    head = HEADS["gaussian"](4, 1, floor=0.05)
    torch.nn.init.constant_(head.out.bias, -100)
    assert (head(torch.zeros(1, 3, 4)).stddev >= 0.05).all()


def test_sample_curves_interpolate_the_context_and_are_correlated():
    """Samples pass near observed points; far away, near locations are correlated and distant ones are not."""
    model, xc = fillin.load("te-tnp-rbf"), torch.tensor([-1.0, -0.8, -0.6]).view(1, 3, 1)
    xt = torch.linspace(-1, 4, 121).view(1, 121, 1)
    samples = sample_curve(model, xc, xc.sin(), xt, n=200)[:, 0, :, 0]
    assert (samples[:, 0] - xc[0, 0].sin()).abs().max() < 0.3
    near, far = (torch.corrcoef(torch.stack([samples[:, 90], samples[:, index]]))[0, 1] for index in (92, 40))
    assert near > 0.8
    assert far < 0.3
    torch.manual_seed(1)
    first = sample_curve(model, xc, xc.sin(), xt, n=2)
    torch.manual_seed(1)
    again = sample_curve(model, xc, xc.sin(), xt, n=2, prediction=model(xc, xc.sin(), xt))
    assert torch.equal(first, again)
    assert sample_curve(model, xc, xc.sin(), xt[:, :1], n=3).shape == (3, 1, 1, 1)
