"""Properties of every model in the registry. A new model is tested by being registered."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import assert_predictions_close, distance, random_cells, random_task, tiny
from torch.distributions import Distribution

import fillin
from fillin.heads import ObservedHead
from fillin.models import REGISTRY, LatentProcess, create, names
from fillin.models.npt import NPT
from fillin.models.registry import list_options
from fillin.models.sheet import AnchoredHead
from fillin.objectives import (
    elbo,
    importance_weighted,
    log_likelihood,
    masked_reconstruction,
    observed_and_clean,
)

MODELS = names()
CONV = [n for n in MODELS if n.startswith("conv")]
EQUIVARIANT = [n for n in MODELS if create(n, size="small").equivariant]
ORDERED = [n for n in MODELS if create(n, size="small").ordered_context]
MARGINAL = [n for n in MODELS if create(n, size="small").kind == "marginal"]
sizes = {"b": st.integers(1, 3), "nc": st.integers(1, 6), "nt": st.integers(1, 5), "dim_y": st.integers(1, 2)}


def dims(name):
    return st.integers(1, 2 if name in CONV else 3)


def test_te_and_conv_models_are_translation_equivariant():
    """A model declares by `equivariant` what the tests below hold it to, under any name; these names promise it."""
    assert set(EQUIVARIANT) >= {n for n in MODELS if n.startswith(("te-", "conv", "filler", "npt", "sheet"))}


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data(), **sizes)
def test_predictions_have_the_declared_shapes(name, data, b, nc, nt, dim_y):
    dim_x = data.draw(dims(name))
    model, task = tiny(name, dim_x, dim_y), random_task(b, nc, nt, dim_x, dim_y)
    prediction = model(*task.inputs)
    assert isinstance(prediction, Distribution)
    shapes = {"marginal": ((b, nt, dim_y), ()), "joint": ((b,), (nt, dim_y))}
    batch, event = shapes["marginal" if model.kind == "marginal" else "joint"]
    assert (tuple(prediction.batch_shape), tuple(prediction.event_shape)) == (batch, event)
    assert prediction.mean.shape == prediction.stddev.shape == (b, nt, dim_y)
    assert prediction.log_prob(task.yt).shape == batch
    assert (prediction.stddev > 0).all()
    assert fillin.sample(model, task.xc, task.yc, task.xt, 3).shape == (3, b, nt, dim_y)


@pytest.mark.parametrize("name", ORDERED)
def test_models_of_ordered_contexts_depend_on_the_order_of_the_context(name):
    model, task = tiny(name), random_task()
    reversed_ = model(task.xc.flip(1), task.yc.flip(1), task.xt)
    assert distance(reversed_.mean, model(*task.inputs).mean) > 1e-4


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(ORDERED)))
@given(data=st.data(), **sizes)
def test_predictions_are_invariant_to_the_order_of_the_context(name, data, b, nc, nt, dim_y):
    dim_x = data.draw(dims(name))
    model, task, order = tiny(name, dim_x, dim_y), random_task(b, nc, nt, dim_x, dim_y), torch.randperm(nc)
    assert_predictions_close(model(task.xc[:, order], task.yc[:, order], task.xt), model(*task.inputs), 1e-10)


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data(), **sizes)
def test_predictions_are_equivariant_to_the_order_of_targets(name, data, b, nc, nt, dim_y):
    dim_x = data.draw(dims(name))
    model, task, order = tiny(name, dim_x, dim_y), random_task(b, nc, nt, dim_x, dim_y), torch.randperm(nt)
    got, expected = model(task.xc, task.yc, task.xt[:, order]), model(*task.inputs)
    assert distance(got.mean, expected.mean[:, order]) < 1e-10
    assert distance(got.stddev, expected.stddev[:, order]) < 1e-10


@pytest.mark.parametrize("name", EQUIVARIANT)
@given(data=st.data(), nc=st.integers(0, 6), shift=st.integers(-1024, 1024))
def test_predictions_are_translation_equivariant_in_float32(name, data, nc, shift):
    """Locations and shifts are exact in float32: the error is 1e-5 of the output scale for any shift."""
    dim_x = data.draw(dims(name))
    model, task = tiny(name, dim_x, dtype=torch.float32), random_task(2, nc, 5, dim_x, dtype=torch.float32)
    offset = shift * 0.328125 * torch.arange(1, dim_x + 1)
    assert_predictions_close(model(task.xc + offset, task.yc, task.xt + offset), model(*task.inputs), 1e-5)


@pytest.mark.parametrize("name", EQUIVARIANT)
@given(data=st.data(), nc=st.integers(1, 6))
def test_predictions_are_translation_equivariant_in_float64_at_ten_thousand_ranges(name, data, nc):
    dim_x = data.draw(dims(name))
    model = tiny(name, dim_x)
    xc, yc, xt = torch.rand(2, nc, dim_x).double(), torch.randn(2, nc, 1).double(), torch.rand(2, 5, dim_x).double()
    if name in CONV:  # grid points are multiples of the spacing from the smallest x; rounding of x must not cross one
        xc, xt = (xc * 64).round() / 64, (xt * 64).round() / 64
    assert_predictions_close(model(xc + 1e4, yc, xt + 1e4), model(xc, yc, xt), 1e-8)


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(EQUIVARIANT)))
def test_other_models_are_not_translation_equivariant(name):
    model, task = tiny(name), random_task()
    assert distance(model(task.xc + 4, task.yc, task.xt + 4).mean, model(*task.inputs).mean) > 1e-3


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data(), **sizes)
def test_predictions_do_not_depend_on_padding(name, data, b, nc, nt, dim_y):
    """Masked points can have any value, including NaN."""
    dim_x = data.draw(dims(name))
    model, task = tiny(name, dim_x, dim_y), random_task(b, nc, nt, dim_x, dim_y)

    def pad(t):
        return torch.cat([t[:, :1] * torch.nan, t, t[:, :1] * 0 + 7], 1)

    mask_c, mask_t = torch.ones(b, nc + 2, dtype=torch.bool), torch.ones(b, nt + 1, dtype=torch.bool)
    mask_c[:, [0, -1]], mask_t[:, -1] = False, False
    xt, yt = torch.cat([task.xt, task.xt[:, :1] + 1], 1), torch.cat([task.yt, task.yt[:, :1] * torch.nan], 1)
    got, expected = model(pad(task.xc), pad(task.yc), xt, mask_c, mask_t), model(*task.inputs)
    assert distance(got.mean[:, :nt], expected.mean) < 1e-10
    assert distance(got.stddev[:, :nt], expected.stddev) < 1e-10
    likelihood = [
        log_likelihood(model, fillin.Task(pad(task.xc), pad(task.yc), xt, yt, mask_c, mask_t)),
        log_likelihood(model, task),
    ]
    assert distance(*likelihood) < 1e-10


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_output_is_ignored(name):
    """Masks are per output: masked values can be NaN, and unmasked values are used."""
    model, task = tiny(name, dim_y=2), random_task(dim_y=2)
    mask = torch.ones_like(task.yc, dtype=torch.bool)
    mask[0, 1, 0] = mask[1, 2, 1] = False
    masked = task.yc.where(mask, torch.nan)
    got = model(task.xc, masked, task.xt, mask)
    assert got.mean.isfinite().all()
    assert_predictions_close(model(task.xc, task.yc, task.xt, mask), got, 1e-12)
    assert distance(model(*task.inputs).mean, got.mean) > 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_target_output_is_not_scored(name):
    model, task = tiny(name, dim_y=2), random_task(dim_y=2)
    mask = torch.ones_like(task.yt, dtype=torch.bool)
    mask[0, 1, 0] = False
    other = task.yt.where(mask, torch.nan)
    likelihood = log_likelihood(model, fillin.Task(task.xc, task.yc, task.xt, other, None, mask))
    assert likelihood.isfinite().all()
    likelihood.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_empty_context_is_valid(name, dtype):
    """An empty context works alone, and in a batch with a task that has a context."""
    model, task = tiny(name, dtype=dtype), random_task(dtype=dtype)
    prior = model(task.xc[:, :0], task.yc[:, :0], task.xt)
    assert prior.mean.isfinite().all()
    assert prior.log_prob(task.yt).isfinite().all()
    mask = torch.ones(task.xc.shape[:2], dtype=torch.bool)
    mask[0] = False
    predictions = model(task.xc, task.yc, task.xt, mask)
    assert distance(predictions.mean[0], prior.mean[0]) < 1e-5
    loss = log_likelihood(model, fillin.Task(task.xc, task.yc, task.xt, task.yt, mask)).sum()
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_single_point_and_a_duplicate_point(name):
    model, task = tiny(name), random_task(nc=1)
    assert model(*task.inputs).mean.isfinite().all()
    twice = [torch.cat([t, t], 1) for t in (task.xc, task.yc)]
    assert model(*twice, task.xc).log_prob(task.yc).isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_gets_a_gradient(name):
    columns = 2 if name == "sheet" else 1  # attention between columns needs some
    model, task = tiny(name, dim_y=columns), random_task(nc=6, nt=6, dim_y=columns)
    noise_free = isinstance(model.head, ObservedHead | AnchoredHead)  # trained on noise-free values too
    objective = elbo if isinstance(model, LatentProcess) else observed_and_clean if noise_free else log_likelihood
    if isinstance(model, NPT):  # trained on classes too
        masked_reconstruction(model, random_cells()).sum().backward()
    else:
        objective(model, replace(task, noise_free_t=task.yt) if noise_free else task).sum().backward()
    untrained = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not untrained


@pytest.mark.parametrize("name", MODELS)
def test_predictions_vary_with_the_target(name):
    prediction = tiny(name)(*random_task(nt=6).inputs).mean
    assert (prediction.std(1) > 1e-4).all()


@pytest.mark.parametrize("score", ["nothing", "linear", "Linear"])
def test_control_scores_predict_the_same_for_all_targets(score):
    """w·x_query cancels in the softmax, so these scores are controls."""
    prediction = tiny("te-tnp", score=score)(*random_task(nt=6).inputs).mean
    assert prediction.std(1).max() < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_bytes(name):
    def run():
        torch.manual_seed(3)
        model, task = create(name, size="small"), random_task(dtype=torch.float32)
        return model(*task.inputs).mean, fillin.sample(model, task.xc, task.yc, task.xt, 2)

    first, second = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", MARGINAL)
@given(data=st.data(), b=st.integers(1, 2), nc=st.integers(0, 6))
def test_marginal_predictions_do_not_depend_on_other_targets(name, data, b, nc):
    dim_x = data.draw(dims(name))
    model, task = tiny(name, dim_x), random_task(b, nc, 4, dim_x)
    together = model(*task.inputs)
    one_by_one = [model(task.xc, task.yc, task.xt[:, i : i + 1]) for i in range(4)]
    assert distance(torch.cat([p.mean for p in one_by_one], 1), together.mean) < 1e-9
    assert distance(torch.cat([p.stddev for p in one_by_one], 1), together.stddev) < 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_predictions_do_not_depend_on_other_tasks_of_the_batch(name):
    """A prediction depends neither on a wider task in the batch nor on another distant target."""
    model, task = tiny(name), random_task()
    wide = [torch.cat([t[:1], 3 * t[1:] + 5]) for t in (task.xc, task.xt)]
    alone = model(task.xc[:1], task.yc[:1], task.xt[:1])
    beside = model(wide[0], task.yc, wide[1])
    assert distance(beside.mean[:1], alone.mean) < 1e-9
    further = model(task.xc[:1], task.yc[:1], torch.cat([task.xt[:1], task.xt[:1, :1] + 7], 1))
    assert distance(further.mean[:, :-1], alone.mean) < 1e-9


@pytest.mark.parametrize("name", CONV)
def test_the_margin_of_a_grid_follows_the_learned_length(name):
    model, task = tiny(name), random_task()
    with torch.no_grad():
        model.off_grid.kernels[0].log_scale.fill_(torch.tensor(12 * model.spacing).log().item())
    one_by_one = torch.cat([model(task.xc, task.yc, task.xt[:, i : i + 1]).mean for i in range(4)], 1)
    assert distance(one_by_one, model(*task.inputs).mean) < 1e-6


@pytest.mark.parametrize("name", [n for n in EQUIVARIANT if "score" in list_options(n)])
@pytest.mark.parametrize("score", ["fourier", "rbf", "relative-sinusoid"])
def test_padding_keeps_precision_far_from_the_origin(name, score):
    model, task = tiny(name, dtype=torch.float32, score=score), random_task(dtype=torch.float32)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[:, -1] = False
    here, there = (model(task.xc + offset, task.yc, task.xt + offset, mask) for offset in (0, 16384))
    assert_predictions_close(there, here, 1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_set_of_targets_is_valid(name):
    model, task = tiny(name, dim_y=2), random_task(nt=0, dim_y=2)
    prediction = model(*task.inputs)
    assert prediction.mean.shape == (2, 0, 2)
    assert fillin.sample(model, task.xc, task.yc, task.xt, 3, method="autoregressive").shape == (3, 2, 0, 2)


@pytest.mark.parametrize("name", MODELS)
def test_samples_can_be_scored(name):
    """log_prob takes samples of any leading shape and scores them independently."""
    prediction = tiny(name)(*random_task().inputs)
    samples = prediction.sample((3,))
    together = prediction.log_prob(samples)
    assert together.shape == (3, *prediction.batch_shape)
    assert distance(together[1], prediction.log_prob(samples[1])) < 1e-10


@pytest.mark.parametrize("name", [n for n in MODELS if n.startswith("te-")])
@given(span=st.sampled_from([None, 0.7, {"init": 1.0, "modulate": "scores"}]))
def test_radial_models_take_any_dimension_and_are_rotation_invariant(name, span):
    model = tiny(name, radial=True, span=span)
    for dim_x in (1, 2, 4):
        task = random_task(dim_x=dim_x)
        rotation, _ = torch.linalg.qr(torch.randn(dim_x, dim_x, dtype=torch.float64))
        assert_predictions_close(model(task.xc @ rotation, task.yc, task.xt @ rotation), model(*task.inputs), 1e-9)


@pytest.mark.parametrize("name", [n for n in MODELS if n.startswith("te-")])
@pytest.mark.parametrize("score", sorted(fillin.attention.SCORES))
def test_every_te_model_takes_every_score_and_any_span(name, score):
    task = random_task(dim_x=2)
    for span in (None, {"init": 1.5, "covariance": "full"}, {"init": 2.0, "shape": "box", "cut": "hard"}):
        out = tiny(name, dim_x=2, score=score, span=span)(*task.inputs)
        assert out.log_prob(task.yt).isfinite().all()


@pytest.mark.parametrize("name", [n for n in MODELS if isinstance(create(n, size="small"), LatentProcess)])
def test_variational_bounds_are_below_the_likelihood(name):
    """ELBO ≤ importance-weighted bound, which rises with K; all are below the likelihood, up to sampling error."""
    model, task = tiny(name), random_task()

    def mean(objective, samples):
        return torch.stack([objective(model, task, samples) for _ in range(60)]).mean(0)

    with torch.no_grad():
        lower, few, many = mean(elbo, 1), mean(importance_weighted, 2), mean(importance_weighted, 16)
        model.samples = 2000 if name != "convnp" else 300
        true = log_likelihood(model, task)
    assert (lower < few + 0.05).all()
    assert (few < many + 0.05).all()
    assert (many - lower > 1e-3).all()
    assert (many < true + 0.1).all()


@pytest.mark.parametrize("cross", ["laplace", "dot", "multihead"])
@pytest.mark.parametrize("name", ["canp", "anp"])
def test_attentive_models_take_three_kinds_of_attention(name, cross):
    model, task = tiny(name, cross=cross, self_attention=0), random_task()
    (elbo if name == "anp" else log_likelihood)(model, task).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_sizes_have_their_numbers_of_parameters():
    counts = {s: sum(p.numel() for p in create("te-tnp", size=s).parameters()) for s in ("small", "base", "1m")}
    assert counts["small"] < counts["base"] < counts["1m"]
    assert 0.9e6 < counts["1m"] < 1.15e6


def test_every_registry_entry_has_a_description_and_a_paper():
    assert all(entry.description and entry.paper for entry in REGISTRY.values())
