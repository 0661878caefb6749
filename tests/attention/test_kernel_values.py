"""The kernel computes what the reference computes: values, sums and gradients, with every window and every score."""

import math
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention_problems import as_type, built, errors, exact, off_the_edge, pulls, run, scattered, solve, window
from support.helpers import distance

from fillin.attention import BACKENDS, SCORES, DotProduct, Gaussian, Laplace, Span, Uniform, attend, make_score
from fillin.attention.backends.reference import compute_logits
from fillin.attention.displacement import DisplacementScore
from fillin.errors import InputError

pytestmark = built
seeds = st.integers(0, 2**16)


WINDOWS = st.fixed_dictionaries(
    {
        "init": st.sampled_from([0.05, 0.2, 0.5, 1.5]), "threshold": st.sampled_from([0.0, 0.05, 0.1, 0.5]),
        "modulate": st.sampled_from(["weights", "scores"]), "cut": st.sampled_from(["continuous", "hard"]),
    }
)  # fmt: skip
FORMS = [("ball", "diagonal"), ("ball", "isotropic"), ("ball", "full"), ("box", "diagonal"), ("box", "isotropic")]
windows = st.builds(lambda w, form: {**w, "shape": form[0], "covariance": form[1]}, WINDOWS, st.sampled_from(FORMS))


@settings(max_examples=150)
@given(
    seed=seeds, shape=st.tuples(*(st.integers(1, most) for most in (3, 4, 75, 75, 3, 40, 40))),
    options=st.none() | windows, shared=st.booleans(), masked=st.booleans(), causal=st.booleans(),
    normalise=st.sampled_from(["softmax", "softmax", "none"]),
)  # fmt: skip
def test_values_and_gradients_of_anything(seed, shape, options, shared, masked, causal, normalise):
    """Any sizes, any window (one for all heads, or one each), masks, causal order, through the sums too."""
    torch.manual_seed(seed)
    b, h, n, m, dim_x, d, e = shape
    m = n if causal else m
    span = None if options is None else window(dim_x, 1 if shared else h, **options)
    mask = torch.rand(b, 1, 1, m) > 0.3 if masked else None
    p = scattered(b, h, n, m, dim_x, d, e, span=span, mask=mask, causal=causal, normalise=normalise)
    assert max(errors(p).values()) < 1e-5


@settings(max_examples=25)
@given(seed=seeds, dim_x=st.integers(1, 3), options=windows)
def test_the_gradient_of_the_window_too_where_it_is_well_conditioned(seed, dim_x, options):
    """Every query has a key where it stands, so Σ_j W_ij ≥ 1, and others: 1e-5, and nothing is put down to rounding."""
    torch.manual_seed(seed)
    p = scattered(2, 3, 60, 90, dim_x, span=window(dim_x, 3, **options | {"init": 2 * options["init"] + 0.2}))
    p.xk[:, :60] = p.xq
    p.k[:, :, :60] = p.q  # and it counts
    assert max(errors(p, strict=p.span.threshold > 0).values()) < 1e-5


LAYOUTS = {
    "gaps": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "every other": lambda t: t.repeat_interleave(2, 2)[:, :, ::2],
    "turned": lambda t: t.mT.contiguous().mT,
    "heads last": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "one head": lambda t: t[:, :1].expand_as(t),
    "one row": lambda t: t[:, :, :1].expand_as(t),
    "one number": lambda t: t[..., :1].expand_as(t),
}
layouts = st.sampled_from(sorted(LAYOUTS))


@settings(max_examples=20)
@given(seed=seeds, options=windows, laid=st.tuples(layouts, layouts, layouts, layouts))
def test_tensors_that_are_strided_or_expanded(seed, options, laid):
    """q, k, v and their places, and the gradients that come in."""
    torch.manual_seed(seed)
    p = scattered(2, 3, 45, 70, 2, 8, 6, span=window(2, 3, **options))
    q, k, v = (LAYOUTS[name](t) for name, t in zip(laid, (p.q, p.k, p.v), strict=False))
    p = replace(p, q=q, k=k, v=v, xq=p.xq.mT.contiguous().mT, xk=p.xk.mT.contiguous().mT)
    assert max(errors(p).values()) < 1e-5
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    out, lse = run(replace(p, q=leaves[0], k=leaves[1], v=leaves[2]))
    d_out, d_lse = LAYOUTS[laid[3]](torch.randn(out.shape)), torch.ones(()).expand(lse.shape)
    got = torch.autograd.grad([out, lse], leaves, [d_out, d_lse], retain_graph=True)
    assert all(map(torch.equal, got, torch.autograd.grad([out, lse], leaves, [d_out.clone(), d_lse.contiguous()])))


@pytest.mark.parametrize("shape", [(), (70,), (1, 70), (1, 1, 70), (2, 1, 1, 70), (2, 1, 1, 1), (1, 1, 1, 70)], ids=str)
def test_masks_over_keys_of_every_shape(shape):
    assert max(errors(scattered(m=70, span=window(), mask=torch.rand(shape) > 0.3)).values()) < 1e-5


@pytest.mark.parametrize("shape", [(40, 1), (1, 2, 1, 70), (2, 1, 40, 70)], ids=str)
def test_other_masks_are_refused(shape):
    p = scattered(m=70)
    with pytest.raises(InputError, match="masks over keys"):
        attend(p.q, p.k, p.v, xq=p.xq, xk=p.xk, mask=torch.ones(shape, dtype=torch.bool), backend="native")


def test_a_key_that_is_masked_may_hold_anything():
    p = scattered(m=70, span=window(), mask=torch.rand(2, 1, 1, 70) > 0.3)
    clean = solve(p)
    for t in (p.k, p.v):
        t.masked_fill_(~p.mask.mT, math.nan)
    p.xk.masked_fill_(~p.mask[:, 0].mT, math.nan)
    got = solve(p)
    for now, before in zip((*got[:5], got.window), (*clean[:5], clean.window), strict=True):
        assert distance(now, before) < 1e-6


# σ's gradient


def slope(p, step, loss):
    """d loss/d(ln σ) by central differences of the reference in float64."""
    p, found = as_type(p, torch.float64), []
    with torch.no_grad():
        for at in p.span.log_sigma.view(-1).split(1):
            at += step
            above = loss(*run(p, "reference"))
            at -= 2 * step
            below = loss(*run(p, "reference"))
            at += step
            found.append((above - below) / (2 * step))
    return torch.stack(found)


@settings(max_examples=20)
@given(
    seed=seeds, dim_x=st.integers(1, 3), modulate=st.sampled_from(["weights", "scores"]),
    shape=st.sampled_from(["ball", "box"]), covariance=st.sampled_from(["diagonal", "isotropic"]),
    init=st.sampled_from([0.1, 0.3, 1.0]),
)  # fmt: skip
def test_the_gradient_of_sigma_is_that_of_finite_differences(seed, dim_x, init, **options):
    """With the continuous cut, over queries that have more than one key inside."""
    torch.manual_seed(seed)
    p = scattered(1, 2, 60, 120, dim_x, span=window(dim_x, 2, init, **options))
    off_the_edge(p)
    several = compute_logits(p)[1].sum(-1) > 1
    d_out, d_lse = (pull * several.view(*several.shape, *[1] * (pull.ndim - 3)) for pull in pulls(p))

    def loss(out, lse):
        return (out * d_out).sum() + (lse.masked_fill(~several, 0) * d_lse).sum()

    (got,) = torch.autograd.grad(loss(*run(p)), p.span.log_sigma)
    true = slope(p, 1e-7, loss)
    assert (got.flatten() - true).norm() <= 1e-3 * true.norm()


def test_the_gradient_of_sigma_is_wrong_with_the_hard_cut():
    """Keys that come in at the edge as σ grows jump from nothing to t; the gradient knows nothing of them."""
    x = torch.linspace(-2, 2, 2001)[None, :, None]
    p = scattered(1, 1, 1, 2001, 1, 1, 1, score=Uniform())
    for cut, step, wrong in (("hard", 2e-2, True), ("continuous", 1e-6, False)):
        p = replace(p, xq=torch.zeros(1, 1, 1), xk=x, v=x[None].square(), span=Span(1, init=0.5, cut=cut))
        (got,) = torch.autograd.grad(run(p)[0].sum(), p.span.log_sigma)
        true = slope(p, step, lambda out, lse: out.sum()).item()
        assert (abs(got.item() - true) > (0.2 if wrong else 1e-3) * abs(true)) == wrong


# scores of the displacement, from tables

EXTENT = {1: 2.0, 2: 0.12, 3: 0.02}  # so that a fine table has fewer nodes than there are pairs
POINTS = {1: 60, 2: 150, 3: 190}


def smooth(name, heads, d, dim_x, radial):
    """The score of that name, wider than it starts out, and with nothing at zero."""
    score = make_score(name, heads, d, dim_x, radial)
    with torch.no_grad():
        for kind, parameter in score.named_parameters():
            if kind.endswith("log_scale"):
                parameter += 2
            elif not parameter.any():
                parameter.normal_(0, 0.5)
    return score


@pytest.mark.parametrize("radial", [False, True], ids=["vector", "radial"])
@pytest.mark.parametrize("dim_x", [1, 2, 3])
@pytest.mark.parametrize("name", sorted(set(SCORES) - {"joint"}))
def test_every_score(name, dim_x, radial):
    """Values within 5e-5, gradients to the score's parameters within 1e-3."""
    n, span = (POINTS[1], None) if radial else (POINTS[dim_x], window(dim_x, 2, EXTENT[dim_x] / 2))
    score = smooth(name, 2, 8, dim_x, radial)
    found = errors(scattered(2, 2, n, n + 5, dim_x, extent=EXTENT[dim_x], score=score, span=span), sums=False)
    assert found["out"] < 5e-5
    assert max(found.values()) < 1e-3


def test_joint_scores_weigh_each_pair_by_itself():
    p = scattered(score=make_score("joint", 2, 8, 2))
    assert "mixes content and displacement" in BACKENDS["native"].unfit(p)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
@pytest.mark.parametrize("radial", [False, True])
def test_a_kink_at_nothing_is_met_exactly(dim_x, radial):
    """Laplace: there is a node at Δ = 0, so a table of any fineness is right."""
    p = scattered(2, 2, 90, 90, dim_x, score=DotProduct() + Laplace(2, dim_x, radial), span=window(dim_x))
    p.xk[:, :30] = p.xq[:, :30]
    assert max(errors(p).values()) < 1e-5


def test_scores_of_places_alone_need_neither_q_nor_k():
    p = replace(scattered(n=80, m=90, dim_x=1, score=Gaussian(2, 1, init=0.5), span=window(1)), q=None, k=None)
    assert max(errors(p).values()) < 1e-4


class Recorder(DisplacementScore):
    """A score that remembers how many displacements it was asked for, and how far the furthest was."""

    def __init__(self, dim_x):
        super().__init__(1, dim_x)
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.asked, self.furthest = 0, torch.zeros(dim_x)

    def forward(self, q, k, delta):
        self.asked = max(self.asked, delta[0, 0].numel())
        self.furthest = torch.maximum(self.furthest, delta.detach().abs().amax((0, 2, 3)).float())
        return self.weight * delta.square().sum(1, keepdim=True)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_a_table_goes_as_far_as_the_data_or_the_window(dim_x):
    extent, n = EXTENT[dim_x], POINTS[dim_x]
    for span in (None, window(dim_x, init=extent / 10), window(dim_x, init=extent), Span(dim_x, threshold=0.0)):
        p = scattered(1, 2, n, n, dim_x, extent=extent, score=Recorder(dim_x), span=span)
        run(p)
        far = (p.xq[:, :, None] - p.xk[:, None]).abs().amax((0, 1, 2))
        if span is not None:
            far = torch.minimum(far, span.reach().amax(0))
        assert torch.allclose(p.score.furthest, far, rtol=1e-5)
        assert p.score.asked < n * n


def handed_over(p):
    """Whether the back end leaves the problem to `streamed`."""
    with mock.patch.object(BACKENDS["streamed"], "run", wraps=BACKENDS["streamed"].run) as streaming:
        out = attend(p.q, p.k, p.v, xq=p.xq, xk=p.xk, score=p.score, tolerance=p.tolerance, backend="native")
    if streaming.called:
        assert torch.equal(out, BACKENDS["streamed"].run(p).out)
    return streaming.called


def test_no_table_where_it_would_have_more_nodes_than_there_are_pairs():
    score = smooth("mlp", 2, 8, 1, False)
    assert handed_over(scattered(1, 2, 15, 15, 1, score=score))
    assert not handed_over(scattered(1, 2, 60, 60, 1, score=score))
    assert handed_over(scattered(1, 2, 60, 60, 3, score=make_score("siren", 2, 8, 3)))


def test_no_table_where_the_tolerance_is_zero_and_a_finer_one_where_it_is_small():
    p = scattered(1, 2, 200, 200, 1, score=smooth("siren", 2, 8, 1, False))
    assert handed_over(replace(p, tolerance=0.0))
    true, found = exact(p).out, []
    for tolerance in (1e-1, 1e-3, 1e-5):
        found.append((run(replace(p, tolerance=tolerance))[0] - true).abs().max().item())
        assert found[-1] < tolerance
    assert found[0] > found[2]


def test_places_that_learn_are_left_to_streamed():
    p = scattered(span=window())
    p = replace(p, xk=p.xk.requires_grad_())
    out = attend(p.q, p.k, p.v, xq=p.xq, xk=p.xk, span=p.span, backend="native")
    (got,) = torch.autograd.grad(out.sum(), p.xk)
    (true,) = torch.autograd.grad(run(p, "reference")[0].sum(), p.xk)
    assert torch.allclose(got, true, atol=1e-5)
