"""The kernel agrees with the reference: output, lse and gradients, with every window and every score."""

import math
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention_problems import (
    avoid_edge_pairs,
    kernel_errors,
    largest_error,
    needs_kernel,
    output_gradients,
    random_problem,
    random_span,
    run,
    solve,
    solve_exactly,
    to_float64,
)
from support.helpers import distance

from fillin.attention import BACKENDS, RBF, SCORES, DotProduct, Gaussian, Laplace, Span, Uniform, attend, make_score
from fillin.attention.backends.reference import compute_logits
from fillin.attention.displacement import DisplacementScore

pytestmark = needs_kernel
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
    seed=seeds, shape=st.tuples(*(st.integers(1, high) for high in (3, 4, 75, 75, 3, 40, 40))),
    options=st.none() | windows, shared=st.booleans(), masked=st.booleans(), causal=st.booleans(),
    normalise=st.sampled_from(["softmax", "softmax", "none"]),
)  # fmt: skip
def test_values_and_gradients(seed, shape, options, shared, masked, causal, normalise):
    """Any sizes, windows (shared by heads or not), masks and causal order, with gradients through lse."""
    torch.manual_seed(seed)
    b, h, n, m, dim_x, d, e = shape
    m = n if causal else m
    span = None if options is None else random_span(dim_x, 1 if shared else h, **options)
    mask = torch.rand(b, 1, 1, m) > 0.3 if masked else None
    p = random_problem(b, h, n, m, dim_x, d, e, span=span, mask=mask, causal=causal, normalise=normalise)
    assert largest_error(p) < 1e-5


@settings(max_examples=25)
@given(seed=seeds, dim_x=st.integers(1, 3), options=windows)
def test_well_conditioned_gradients_of_the_window(seed, dim_x, options):
    """Every query has a key at its location, so Σ_j W_ij ≥ 1: errors are below 1e-5, rounding included."""
    torch.manual_seed(seed)
    p = random_problem(2, 3, 60, 90, dim_x, span=random_span(dim_x, 3, **options | {"init": 2 * options["init"] + 0.2}))
    p.xk[:, :60] = p.xq
    p.k[:, :, :60] = p.q  # with a large weight
    assert largest_error(p, strict=p.span.threshold > 0) < 1e-5


LAYOUTS = {
    "gaps": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "every other": lambda t: t.repeat_interleave(2, 2)[:, :, ::2],
    "transposed": lambda t: t.mT.contiguous().mT,
    "heads last": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "one head": lambda t: t[:, :1].expand_as(t),
    "one row": lambda t: t[:, :, :1].expand_as(t),
    "one number": lambda t: t[..., :1].expand_as(t),
}
layouts = st.sampled_from(sorted(LAYOUTS))


@settings(max_examples=20)
@given(seed=seeds, options=windows, layout=st.tuples(layouts, layouts, layouts, layouts))
def test_strided_and_expanded_tensors(seed, options, layout):
    """q, k, v, locations and incoming gradients."""
    torch.manual_seed(seed)
    p = random_problem(2, 3, 45, 70, 2, 8, 6, span=random_span(2, 3, **options))
    q, k, v = (LAYOUTS[name](t) for name, t in zip(layout, (p.q, p.k, p.v), strict=False))
    p = replace(p, q=q, k=k, v=v, xq=p.xq.mT.contiguous().mT, xk=p.xk.mT.contiguous().mT)
    assert largest_error(p) < 1e-5
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    out, lse = run(replace(p, q=leaves[0], k=leaves[1], v=leaves[2]))
    d_out, d_lse = LAYOUTS[layout[3]](torch.randn(out.shape)), torch.ones(()).expand(lse.shape)
    got = torch.autograd.grad([out, lse], leaves, [d_out, d_lse], retain_graph=True)
    assert all(map(torch.equal, got, torch.autograd.grad([out, lse], leaves, [d_out.clone(), d_lse.contiguous()])))


@pytest.mark.parametrize("shape", [(), (70,), (1, 70), (1, 1, 70), (2, 1, 1, 70), (2, 1, 1, 1), (1, 1, 1, 70)], ids=str)
def test_masks_over_keys_of_every_shape(shape):
    assert largest_error(random_problem(m=70, span=random_span(), mask=torch.rand(shape) > 0.3)) < 1e-5


@pytest.mark.parametrize("shape", [(40, 1), (1, 2, 1, 70), (2, 1, 40, 70), (2, 1, 40, 1), (2, 2, 40, 70)], ids=str)
@pytest.mark.parametrize("windowed", [False, True])
def test_masks_over_pairs_of_every_shape(shape, windowed):
    """Broadcast over any axis; a query without keys has an output of 0 and lse = −∞ in both."""
    torch.manual_seed(0)
    span = random_span() if windowed else None
    assert largest_error(random_problem(m=70, span=span, mask=torch.rand(shape) > 0.3)) < 1e-5


def test_a_mask_over_pairs_is_read_in_the_order_of_the_points():
    """Points 5 and 9 change places: a tile from key 0 to 15 does not hold the keys in between in their order."""
    x = torch.arange(64.0)
    x[5], x[9] = 9.0, 5.0
    p = random_problem(1, 2, 64, 64, 1, span=random_span(1, init=20.0), mask=torch.rand(64, 64) > 0.5)
    x = x.view(1, 64, 1)
    assert largest_error(replace(p, xq=x, xk=x.clone())) < 1e-5


def test_a_mask_over_pairs_may_have_any_strides():
    mask = torch.rand(2, 70, 40) > 0.3
    assert largest_error(random_problem(m=70, mask=mask.mT[:, None])) < 1e-5


def test_masked_keys_may_be_nan():
    p = random_problem(m=70, span=random_span(), mask=torch.rand(2, 1, 1, 70) > 0.3)
    before = solve(p)
    for t in (p.k, p.v):
        t.masked_fill_(~p.mask.mT, math.nan)
    p.xk.masked_fill_(~p.mask[:, 0].mT, math.nan)
    after = solve(p)
    for got, expected in zip((*after[:5], after.span), (*before[:5], before.span), strict=True):
        assert distance(got, expected) < 1e-6


# closed forms of displacement


CLOSED_FORMS = {
    "rbf": lambda h, dim_x, radial: RBF(h, dim_x, radial),
    "gaussian": lambda h, dim_x, radial: Gaussian(h, dim_x, radial),
    "laplace": lambda h, dim_x, radial: Laplace(h, dim_x, radial),
    "two rbf": lambda h, dim_x, radial: RBF(h, dim_x, radial) + RBF(h, dim_x, not radial, init=(0.3, 0.4)),
    "rbf and laplace": lambda h, dim_x, radial: RBF(h, dim_x, radial) + Laplace(h, dim_x, radial),
}


def relative_gradients(p, backend):
    """Output, lse and gradients to everything that can have one, locations included."""
    tensors = {name: getattr(p, name).detach().requires_grad_() for name in ("q", "k", "v", "xq", "xk")}
    out, lse = run(replace(p, **tensors), backend)
    d_out, d_lse = output_gradients(p)
    loss = (out * d_out).sum() + (lse.masked_fill(lse == -torch.inf, 0) * d_lse).sum()
    leaves = [*tensors.values(), *p.score.parameters()]
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    grads = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, grads, strict=True)]
    return [out, lse.nan_to_num(neginf=0), *grads]


@settings(max_examples=100)
@given(
    seed=seeds, form=st.sampled_from(sorted(CLOSED_FORMS)), radial=st.booleans(), dotted=st.booleans(),
    shape=st.tuples(*(st.integers(1, high) for high in (3, 4, 75, 75, 4, 40, 40))),
    masked=st.sampled_from(["no", "keys", "pairs", "causal"]), shared=st.booleans(),
)  # fmt: skip
def test_closed_forms(seed, form, radial, dotted, shape, masked, shared):
    """Scores F(Δ) without a window, in up to four dimensions: gradients reach their parameters and the locations."""
    torch.manual_seed(seed)
    b, h, n, m, dim_x, d, e = shape
    m = n if masked == "causal" else m
    masks = {"keys": torch.rand(b, 1, 1, m) > 0.3, "pairs": torch.rand(b, h, n, m) > 0.3}
    score = CLOSED_FORMS[form](1 if shared else h, dim_x, radial)
    score = DotProduct() + score if dotted else score
    with torch.no_grad():
        for parameter in score.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    p = random_problem(
        b, h, n, m, dim_x, d, e, score=score, mask=masks.get(masked), causal=masked == "causal"
    )  # fmt: skip
    got, exact = relative_gradients(p, "native"), relative_gradients(to_float64(p), "reference")
    for i, (value, expected) in enumerate(zip(got, exact, strict=True)):
        assert distance(value.double(), expected, 0.1 * math.sqrt(e)) < 2e-5, i


@pytest.mark.parametrize("form", sorted(CLOSED_FORMS))
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_locations_reach_the_output_of_closed_forms(form, value):
    """The output of a query at such a location is that of the reference; NaN stays with those it concerns."""
    torch.manual_seed(0)
    p = random_problem(1, 2, 40, 50, 2, score=DotProduct() + CLOSED_FORMS[form](2, 2, radial=False))
    p.xq[0, 3, 1] = value
    with torch.no_grad():
        native, reference = run(p)[0], run(p, "reference")[0]
    assert torch.equal(native.isnan(), reference.isnan())
    assert distance(native.nan_to_num(0), reference.nan_to_num(0)) < 1e-5


def test_closed_forms_do_not_depend_on_the_number_of_threads():
    torch.manual_seed(0)
    p = random_problem(3, 4, 130, 150, 2, score=DotProduct() + RBF(4, 2))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single = relative_gradients(p, "native")
        torch.set_num_threads(2)
        assert all(map(torch.equal, single, relative_gradients(p, "native")))
    finally:
        torch.set_num_threads(threads)


# gradient to σ


def finite_difference(p, step, loss):
    """d loss/d(ln σ) by central differences of the reference in float64."""
    p, slopes = to_float64(p), []
    with torch.no_grad():
        for log_sigma in p.span.log_sigma.view(-1).split(1):
            log_sigma += step
            above = loss(*run(p, "reference"))
            log_sigma -= 2 * step
            below = loss(*run(p, "reference"))
            log_sigma += step
            slopes.append((above - below) / (2 * step))
    return torch.stack(slopes)


@settings(max_examples=20)
@given(
    seed=seeds, dim_x=st.integers(1, 3), modulate=st.sampled_from(["weights", "scores"]),
    shape=st.sampled_from(["ball", "box"]), covariance=st.sampled_from(["diagonal", "isotropic"]),
    init=st.sampled_from([0.1, 0.3, 1.0]),
)  # fmt: skip
def test_the_gradient_to_sigma_equals_finite_differences(seed, dim_x, init, **options):
    """With the continuous cut, over queries with more than one key inside."""
    torch.manual_seed(seed)
    p = random_problem(1, 2, 60, 120, dim_x, span=random_span(dim_x, 2, init, **options))
    avoid_edge_pairs(p)
    several = compute_logits(p)[1].sum(-1) > 1
    d_out, d_lse = (g * several.view(*several.shape, *[1] * (g.ndim - 3)) for g in output_gradients(p))

    def loss(out, lse):
        return (out * d_out).sum() + (lse.masked_fill(~several, 0) * d_lse).sum()

    (got,) = torch.autograd.grad(loss(*run(p)), p.span.log_sigma)
    true = finite_difference(p, 1e-7, loss)
    assert (got.flatten() - true).norm() <= 1e-3 * true.norm()


def test_the_gradient_to_sigma_is_wrong_with_the_hard_cut():
    """The weight of keys that enter as σ grows jumps from 0 to t, which the gradient does not contain."""
    x = torch.linspace(-2, 2, 2001)[None, :, None]
    p = random_problem(1, 1, 1, 2001, 1, 1, 1, score=Uniform())
    for cut, step, wrong in (("hard", 2e-2, True), ("continuous", 1e-6, False)):
        p = replace(p, xq=torch.zeros(1, 1, 1), xk=x, v=x[None].square(), span=Span(1, init=0.5, cut=cut))
        (got,) = torch.autograd.grad(run(p)[0].sum(), p.span.log_sigma)
        true = finite_difference(p, step, lambda out, lse: out.sum()).item()
        assert (abs(got.item() - true) > (0.2 if wrong else 1e-3) * abs(true)) == wrong


# scores of the displacement, by tables

EXTENT = {1: 2.0, 2: 0.12, 3: 0.02}  # for which a fine table has fewer nodes than there are pairs
POINTS = {1: 60, 2: 150, 3: 190}


def smooth_score(name, heads, d, dim_x, radial):
    """The named score with wider length scales, and without parameters that are zero."""
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
    n, span = (POINTS[1], None) if radial else (POINTS[dim_x], random_span(dim_x, 2, EXTENT[dim_x] / 2))
    score = smooth_score(name, 2, 8, dim_x, radial)
    p = random_problem(2, 2, n, n + 5, dim_x, extent=EXTENT[dim_x], score=score, span=span)
    errors = kernel_errors(p, through_lse=False)
    assert errors["out"] < 5e-5
    assert max(errors.values()) < 1e-3


def test_the_joint_score_is_refused():
    p = random_problem(score=make_score("joint", 2, 8, 2))
    assert "mixes content and displacement" in BACKENDS["native"].unfit(p)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
@pytest.mark.parametrize("radial", [False, True])
def test_a_kink_at_zero_is_exact(dim_x, radial):
    """Laplace is piecewise linear, and there is a node at Δ = 0, so any table is exact."""
    p = random_problem(2, 2, 90, 90, dim_x, score=DotProduct() + Laplace(2, dim_x, radial), span=random_span(dim_x))
    p.xk[:, :30] = p.xq[:, :30]
    assert largest_error(p) < 1e-5


def test_scores_of_displacements_need_neither_q_nor_k():
    p = random_problem(n=80, m=90, dim_x=1, score=Gaussian(2, 1, init=0.5), span=random_span(1))
    assert largest_error(replace(p, q=None, k=None)) < 1e-4


class Recorder(DisplacementScore):
    """A score that records how many displacements it was evaluated at, and the largest of them."""

    def __init__(self, dim_x):
        super().__init__(1, dim_x)
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.count, self.largest = 0, torch.zeros(dim_x)

    def forward(self, q, k, delta):
        self.count = max(self.count, delta[0, 0].numel())
        self.largest = torch.maximum(self.largest, delta.detach().abs().amax((0, 2, 3)).float())
        return self.weight * delta.square().sum(1, keepdim=True)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_a_table_covers_the_data_or_the_window(dim_x):
    extent, n = EXTENT[dim_x], POINTS[dim_x]
    spans = [random_span(dim_x, init=extent / 10), random_span(dim_x, init=extent), Span(dim_x, threshold=0.0)]
    for span in (None, *spans):
        p = random_problem(1, 2, n, n, dim_x, extent=extent, score=Recorder(dim_x), span=span)
        run(p)
        reach = (p.xq[:, :, None] - p.xk[:, None]).abs().amax((0, 1, 2))
        if span is not None:
            reach = torch.minimum(reach, span.reach().amax(0))
        assert torch.allclose(p.score.largest, reach, rtol=1e-5)
        assert p.score.count < n * n


def falls_back(p):
    """Whether the back end leaves the problem to `streamed`."""
    with mock.patch.object(BACKENDS["streamed"], "run", wraps=BACKENDS["streamed"].run) as streamed_run:
        out = attend(p.q, p.k, p.v, xq=p.xq, xk=p.xk, score=p.score, tolerance=p.tolerance, backend="native")
    if streamed_run.called:
        assert torch.equal(out, BACKENDS["streamed"].run(p).out)
    return streamed_run.called


def test_no_table_with_more_nodes_than_pairs():
    score = smooth_score("mlp", 2, 8, 1, False)
    assert falls_back(random_problem(1, 2, 15, 15, 1, score=score))
    assert not falls_back(random_problem(1, 2, 60, 60, 1, score=score))
    assert falls_back(random_problem(1, 2, 60, 60, 3, score=make_score("siren", 2, 8, 3)))


def test_the_tolerance_bounds_the_error_and_zero_disables_tables():
    p = random_problem(1, 2, 200, 200, 1, score=smooth_score("siren", 2, 8, 1, False))
    assert falls_back(replace(p, tolerance=0.0))
    exact, errors = solve_exactly(p).out, []
    for tolerance in (1e-1, 1e-3, 1e-5):
        errors.append((run(replace(p, tolerance=tolerance))[0] - exact).abs().max().item())
        assert errors[-1] < tolerance
    assert errors[0] > errors[2]


def test_gradients_to_locations_come_from_streamed():
    p = random_problem(span=random_span())
    p = replace(p, xk=p.xk.requires_grad_())
    out = attend(p.q, p.k, p.v, xq=p.xq, xk=p.xk, span=p.span, backend="native")
    (got,) = torch.autograd.grad(out.sum(), p.xk)
    (true,) = torch.autograd.grad(run(p, "reference")[0].sum(), p.xk)
    assert torch.allclose(got, true, atol=1e-5)


@pytest.mark.parametrize("cut", ["continuous", "hard"])
def test_a_full_covariance_learns_correlation_from_none(cut):
    """At the start the entries of the factor below the diagonal are zero, but have a gradient."""
    torch.manual_seed(0)
    gradients = []
    p = random_problem(1, 2, 40, 40, 2)
    for backend in ("native", "reference"):
        span = Span(2, 2, init=0.4, covariance="full", cut=cut)
        assert not span.lower.any()
        out = attend(p.q, p.k, p.v, xq=p.xq, xk=p.xk, span=span, backend=backend)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        gradients.append(span.lower.grad)
    assert gradients[1].abs().min() > 1e-3
    assert distance(*gradients) < 1e-4
