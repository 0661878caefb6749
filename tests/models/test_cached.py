"""Models that encode the context once: cached and streamed results equal those of encoding everything again."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import assert_predictions_close, distance, random_task, tiny
from torch.distributions import Normal

import fillin
from fillin.attention import attend, combine
from fillin.errors import InputError
from fillin.models import create
from fillin.models.cached import Memory
from fillin.objectives import autoregressive, log_likelihood, random_prefixes

CACHED = ["tnp-buffer", "te-tnp-buffer", "inctnp", "te-inctnp"]
BUFFERED, INCREMENTAL = CACHED[:2], CACHED[2:]
PLAIN = {"tnp-buffer": "tnp-d", "te-tnp-buffer": "te-tnp", "inctnp": "tnp-d", "te-inctnp": "te-tnp"}


def copy_weights(model, name: str, **options):
    """A model of another name with the same weights; what the buffer adds is left out."""
    other = tiny(name, model.dim_x, model.dim_y, **options)
    other.load_state_dict({key: value for key, value in model.state_dict().items() if key != "role"})
    return other


def without_role(model):
    torch.nn.init.zeros_(model.role)
    return model


@given(keys=st.integers(0, 6), split=st.integers(0, 6))
def test_attention_to_parts_combines_to_attention_to_all(keys, split):
    """Also where one part, or both, have no key that may be attended to."""
    q, k, v = (torch.randn(2, 3, n, 4).double() for n in (5, keys, keys))
    mask = torch.rand(2, 1, 5, keys) > 0.4
    parts = [
        attend(q, k[:, :, part], v[:, :, part], mask=mask[..., part], return_lse=True)
        for part in (slice(0, split), slice(split, None))
    ]
    out, lse = attend(q, k, v, mask=mask, return_lse=True)
    got, got_lse = combine(*parts[0], *parts[1])
    assert distance(got, out) < 1e-12
    assert torch.allclose(got_lse, lse)


@pytest.mark.parametrize("name", BUFFERED)
def test_marginals_of_a_buffered_model_are_those_of_a_tnp_of_the_same_weights(name):
    model, task = tiny(name, dim_y=2), random_task(dim_y=2)
    mask = torch.rand(2, 5, 2) > 0.3
    plain = copy_weights(model, PLAIN[name])
    inputs = (task.xc, task.yc, task.xt, mask)
    assert_predictions_close(model(*inputs), plain(*inputs), 1e-12)


@pytest.mark.parametrize("name", BUFFERED)
def test_a_buffer_of_all_targets_is_a_tnp_a(name):
    model, task = without_role(tiny(name, buffer=7)), random_task(nt=7)
    other = copy_weights(model, name.removesuffix("buffer") + "a")
    assert distance(model(*task.inputs).log_prob(task.yt), other(*task.inputs).log_prob(task.yt)) < 1e-12
    with torch.no_grad():
        model.role.normal_()
    assert distance(model(*task.inputs).log_prob(task.yt), other(*task.inputs).log_prob(task.yt)) > 1e-4


@pytest.mark.parametrize("name", BUFFERED)
def test_a_buffer_of_one_target_encodes_the_context_again_for_each(name):
    """The autoregressive mode of a TNP-D: the chain rule over one-step marginals."""
    model, task = tiny(name, buffer=1), random_task(nt=6)
    plain = copy_weights(model, PLAIN[name])
    assert distance(log_likelihood(model, task), autoregressive(plain, task)) < 1e-12


@pytest.mark.parametrize("name", BUFFERED)
@given(buffer=st.integers(1, 4), nt=st.integers(1, 7))
def test_a_full_buffer_joins_the_context(name, buffer, nt):
    """Conditionals of a later buffer are those of the model whose context contains the targets before it."""
    model, task = tiny(name, buffer=buffer), random_task(nt=nt)
    given_all = model(*task.inputs).given(task.yt)
    for first in range(0, nt, buffer):
        part = slice(first, first + buffer)
        x, y = torch.cat([task.xc, task.xt[:, :first]], 1), torch.cat([task.yc, task.yt[:, :first]], 1)
        again = model(x, y, task.xt[:, part]).given(task.yt[:, part])
        assert distance(again.mean, given_all.mean[:, part]) < 1e-12
        assert distance(again.stddev, given_all.stddev[:, part]) < 1e-12


@pytest.mark.parametrize("name", CACHED)
def test_conditionals_do_not_depend_on_later_targets(name):
    model, task = tiny(name, **({"buffer": 3} if "buffer" in name else {})), random_task(nt=8)
    prediction = model(*task.inputs)
    given_all = prediction.given(task.yt)
    for i in range(8):
        other = task.yt.clone()
        other[:, i:] = 9
        assert distance(prediction.given(other).mean[:, : i + 1], given_all.mean[:, : i + 1]) < 1e-12
        if i:
            other[:, i - 1] = 7
            assert distance(prediction.given(other).mean[:, i], given_all.mean[:, i]) > 1e-6


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("options", [{}, {"head": "mixture"}, {"backend": "reference"}, {"span": {"init": 1.0}}])
@pytest.mark.parametrize("nc", [0, 4])
def test_samples_from_caches_follow_the_conditionals(name, options, nc, monkeypatch):
    """With means instead of samples, steps that share one encoded context equal teacher forcing on the drawn values."""
    if "span" in options and not name.startswith("te-"):
        options = {"backend": "fused"}  # it returns no lse, so that samples take another
    for kind in (Normal, torch.distributions.MixtureSameFamily):
        monkeypatch.setattr(kind, "sample", lambda self, shape=(): self.mean)
    buffer = {"buffer": 2} if "buffer" in name else {}
    model, task = tiny(name, dim_y=2, **options, **buffer), random_task(nc=nc, nt=5, dim_y=2)
    mask_c, mask_t = torch.ones(2, nc, 2, dtype=torch.bool), torch.rand(2, 5, 2) > 0.3
    mask_c[:1, 2:] = False
    inputs = (task.xc, task.yc, task.xt, mask_c, mask_t)
    samples = fillin.sample(model, *inputs[:3], 3, mask_c=mask_c, mask_t=mask_t)
    assert distance(samples[0], samples[2]) < 1e-12
    forced, requested = model(*inputs).given(samples[1]), mask_t.any(-1)
    assert distance(forced.mean[requested], samples[1][requested]) < 1e-10


@pytest.mark.parametrize("name", CACHED)
def test_different_samples_keep_their_own_targets(name):
    """Each function continues its own values, not those of another function."""
    model = tiny(name, **({"buffer": 3} if "buffer" in name else {}))
    task = random_task(nt=5)
    samples = fillin.sample(model, task.xc, task.yc, task.xt, 400).flatten(0, 1)
    given_all = model(*(t.repeat(400, 1, 1) for t in task.inputs[:3])).given(samples)
    z = ((samples - given_all.mean) / given_all.stddev).view(400, 2, 5)
    assert z.mean(0).abs().max() < 0.25  # 400 draws: a standard error of 0.05
    assert (z.std(0) - 1).abs().max() < 0.2
    together = z.movedim(0, -1).flatten(0, 1).corrcoef() - torch.eye(10)
    assert together.abs().max() < 0.25


@pytest.mark.parametrize("name", BUFFERED)
def test_a_prefix_of_every_earlier_target_is_the_joint_likelihood(name):
    model, task = tiny(name, buffer=6), random_task(nt=6)
    lengths = torch.arange(6).expand(2, -1)
    predicted = model.after_prefixes(task.xc, task.yc, task.xt, task.yt, lengths)
    assert distance(predicted.log_prob(task.yt).sum((1, 2)), model(*task.inputs).log_prob(task.yt)) < 1e-12
    marginal = model.after_prefixes(task.xc, task.yc, task.xt, task.yt, torch.zeros_like(lengths))
    assert_predictions_close(marginal, model(*task.inputs), 1e-12)


@pytest.mark.parametrize("buffer", [2, 16])
def test_training_by_random_prefixes(buffer):
    """Every parameter gets a gradient, no target sees itself, and masked targets do not count."""
    model, task = tiny("tnp-buffer", buffer=buffer), random_task(b=8, nt=9)
    random_prefixes(model, task).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    lengths = torch.arange(9).clamp_max(buffer).expand(8, -1)
    given_all = model.after_prefixes(*task.inputs[:3], task.yt, lengths)
    for i in range(9):  # the longest prefix of target i ends before it
        other = task.yt.clone()
        other[:, i:] = 9
        again = model.after_prefixes(*task.inputs[:3], other, lengths)
        assert distance(again.mean[:, i], given_all.mean[:, i]) < 1e-12
    mask = torch.ones(8, 9, dtype=torch.bool)
    mask[:, -1] = False
    masked = fillin.Task(*task.inputs[:3], torch.where(mask[..., None], task.yt, torch.nan), None, mask)
    torch.manual_seed(0)
    eight = random_prefixes(model, masked)
    torch.manual_seed(0)
    nine = random_prefixes(model, task)
    drawn = (torch.manual_seed(0), torch.rand(8, 9), torch.rand(8, 9))
    lengths = torch.where(drawn[2] < 0.5, 0, (drawn[1] * (torch.arange(9).clamp_max(buffer) + 1)).long())
    last = model.after_prefixes(*task.inputs[:3], task.yt, lengths).log_prob(task.yt)[:, -1, 0]
    assert distance(9 * nine - 8 * eight, last) < 1e-9  # a masked target, in nobody's prefix, is left out
    with pytest.raises(InputError, match="no buffer of targets"):
        random_prefixes(tiny("tnp-a"), task)


@pytest.mark.parametrize("name", INCREMENTAL)
@given(data=st.data(), dim_x=st.integers(1, 2), nc=st.integers(0, 7))
def test_streaming_updates_equal_the_batch_result(name, data, dim_x, nc):
    """Observations in any number of pieces, some empty and some masked, predict like all at once."""
    model, task = tiny(name, dim_x, 2), random_task(nc=nc, dim_x=dim_x, dim_y=2)
    mask = torch.rand(2, nc, 2) > 0.3
    cuts = sorted(data.draw(st.lists(st.integers(0, nc), max_size=4)))
    state = model.update(None, task.xc[:, :0], task.yc[:, :0])
    for first, last in zip([0, *cuts], [*cuts, nc], strict=True):
        part = slice(first, last)
        state = model.update(state, task.xc[:, part], task.yc[:, part], mask[:, part])
    got, expected = model.predict(state, task.xt), model(task.xc, task.yc, task.xt, mask)
    assert_predictions_close(got, expected, 1e-11)
    assert distance(got.log_prob(task.yt), expected.log_prob(task.yt)) < 1e-11


@pytest.mark.parametrize("name", INCREMENTAL)
def test_an_earlier_state_stays_valid(name):
    model, task = tiny(name), random_task(nc=6)
    early = model.update(None, task.xc[:, :3], task.yc[:, :3])
    before = model.predict(early, task.xt).mean.clone()
    one, two = (model.update(early, task.xc[:, i : i + 2], task.yc[:, i : i + 2]) for i in (3, 4))
    assert torch.equal(model.predict(early, task.xt).mean, before)
    assert distance(model.predict(one, task.xt).mean, model.predict(two, task.xt).mean) > 1e-4


@pytest.mark.parametrize("name", INCREMENTAL)
def test_an_update_computes_new_tokens_alone(name, monkeypatch):
    """The number of queries of an update does not depend on the number of earlier observations."""
    model, queries = tiny(name), []
    score = type(model.blocks[0].attention.score)
    real = score.forward

    def record(self, q, k, delta):
        queries.append(q.shape[2])
        return real(self, q, k, delta)

    monkeypatch.setattr(score, "forward", record)
    for block in model.blocks:
        block.attention.backend = "reference"
    task = random_task(nc=41)
    state = model.update(None, task.xc[:, :40], task.yc[:, :40])
    assert queries == [40] * (model.layers - 1)
    queries.clear()
    model.update(state, task.xc[:, 40:], task.yc[:, 40:])
    assert queries == [1] * (model.layers - 1)


@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_new_observation_leaves_the_old_ones_as_they_are(name):
    model, task = tiny(name), random_task(nc=6)
    task.xc[:, 0] = -3  # the smallest location, to which those of an equivariant model are relative
    early = model.update(None, task.xc[:, :4], task.yc[:, :4]).memory
    late = model.update(None, task.xc, task.yc).memory
    for old, new in zip(early.layers, late.layers, strict=True):
        assert distance(new.v[:, :, :4], old.v) < 1e-12
    assert isinstance(late, Memory)
    assert len(late) == 6


@pytest.mark.parametrize("name", INCREMENTAL)
def test_the_joint_likelihood_of_a_causal_model_is_that_of_encoding_again(name):
    """A target that joins the context continues the same sequence."""
    model, task = tiny(name), random_task(nt=6)
    assert distance(log_likelihood(model, task), autoregressive(model, task)) < 1e-12


@pytest.mark.parametrize("name", INCREMENTAL)
def test_one_observation_or_one_layer_is_a_tnp_of_the_same_weights(name):
    """Where no context token sees an earlier one, the causal mask changes nothing."""
    for options, nc in (({}, 1), ({"layers": 1}, 5)):
        model, task = tiny(name, **options), random_task(nc=nc)
        plain = copy_weights(model, PLAIN[name], **options)
        assert_predictions_close(model(*task.inputs), plain(*task.inputs), 1e-12)


def test_states_of_another_batch_are_refused():
    model, task = create("inctnp", size="small"), random_task(dtype=torch.float32)
    state = model.update(None, task.xc, task.yc)
    with pytest.raises(InputError, match="a batch of 1 tasks, but the state has 2"):
        model.update(state, task.xc[:1], task.yc[:1])
    with pytest.raises(InputError, match="a batch of 1 tasks, but the state has 2"):
        model.predict(state, task.xt[:1])
    with pytest.raises(InputError, match="buffer must be a whole number of at least 1"):
        create("tnp-buffer", buffer=0)


def test_a_stream_far_from_the_origin_keeps_its_precision():
    """The first observations fix the origin of an equivariant model, in float32."""
    model, task = tiny("te-inctnp", dtype=torch.float32), random_task(nc=6, dtype=torch.float32)

    def stream(offset: float):
        state = model.update(None, task.xc[:, :2] + offset, task.yc[:, :2])
        return model.predict(model.update(state, task.xc[:, 2:] + offset, task.yc[:, 2:]), task.xt + offset)

    assert_predictions_close(stream(16384), stream(0), 1e-5)
