"""The seam: every back end computes what the reference computes, in value and in every gradient."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import distance
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fillin.attention import (
    BACKENDS,
    MLP,
    RBF,
    SCORES,
    DotProduct,
    Gaussian,
    Laplace,
    Span,
    Uniform,
    attend,
    fixed_block_mask,
    make_score,
    record_weights,
)
from fillin.attention.problem import AttentionProblem

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
OTHERS = sorted(set(BACKENDS) - {"reference"})
SPANS = [
    None,
    {"init": 1.5},
    {"init": 1.5, "threshold": 0.0},
    {"init": 2.0, "cut": "hard", "shape": "box"},
    {"init": 1.5, "modulate": "scores"},
    {"init": 1.0, "covariance": "isotropic", "modulate": "scores", "cut": "hard"},
    {"init": 1.5, "covariance": "full"},
]


def problem(b, h, n, m, dim_x, dtype, d=4, e=3):
    def leaf(*shape):
        return torch.randn(*shape, dtype=dtype, requires_grad=True)

    return leaf(b, h, n, d), leaf(b, h, m, d), leaf(b, h, m, e), leaf(b, n, dim_x), leaf(b, m, dim_x)


def solve(backend, leaves, score, span, mask, causal=False):
    """Output and gradients to q, k, v, xq, xk and all parameters."""
    q, k, v, xq, xk = leaves
    out = attend(
        q, k, v, xq=xq, xk=xk, score=score, span=span, mask=mask, causal=causal, backend=backend,
        chunk=2 if backend == "streamed" and q.shape[2] < 100 else None,
    )  # fmt: skip
    wanted = [*leaves, *score.parameters(), *([] if span is None else span.parameters())]
    leaves = [leaf for leaf in wanted if leaf.requires_grad]
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    if not out.requires_grad:
        return out, [torch.zeros_like(leaf) for leaf in leaves]
    grads = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
    return out, [torch.zeros_like(w) if g is None else g for g, w in zip(grads, leaves, strict=True)]


def flat(solved):
    out, grads = solved
    return [out, *grads]


def doubled(leaves, score, span):
    """The same problem in float64."""
    double = [t.detach().double().requires_grad_(t.requires_grad) for t in leaves]
    return double, deepcopy(score).double(), None if span is None else deepcopy(span).double()


def fits(backend, leaves, score, span=None, mask=None, causal=False):
    """Whether the back end takes this problem; what it does not take it says, and is not tried here."""
    return BACKENDS[backend].unfit(AttentionProblem(*leaves, score, span, mask, causal)) is None


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(0, 5), st.integers(0, 6), st.integers(1, 3)),
    span=st.sampled_from(SPANS), masked=st.booleans(), radial=st.booleans(),
)  # fmt: skip
def test_back_ends_agree_with_the_reference(backend, name, dtype, shape, span, masked, radial):
    b, h, n, m, dim_x = shape
    score = make_score(name, h, 4, dim_x, radial).to(dtype)
    window = None if span is None else Span(dim_x, h, **span).to(dtype)
    leaves, mask = problem(b, h, n, m, dim_x, dtype), None
    if masked:
        mask = torch.rand(b, 1, n, m) > 0.4
        mask[:, :, :1] = False  # and one query that may attend to nothing
    if not fits(backend, leaves, score, window, mask):
        return
    found = solve(backend, leaves, score, window, mask)
    plain = solve("reference", leaves, score, window, mask)
    exact = solve("reference", *doubled(leaves, score, window), mask)
    solved = list(zip(flat(found), flat(plain), flat(exact), strict=True))
    windows = 0 if window is None else len(list(window.parameters()))
    for i, (got, own, true) in enumerate(solved):
        assert got.isfinite().all()
        # near the edge of a window digits are lost whoever computes it, and most for the window itself
        allowed = 3 * distance(own.double(), true, floor=0.1) + TOLERANCE[dtype]
        allowed *= 10 if i >= len(solved) - windows else 1
        assert distance(got.double(), true, floor=0.1) < allowed  # q, k, v and x are of order one
    out = found[0]
    if masked and n:
        assert (out[:, :, 0] == 0).all()


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_causal_order(backend):
    leaves, score = problem(2, 2, 5, 5, 1, torch.float64), DotProduct()
    if not fits(backend, leaves, score, causal=True):
        pytest.skip("tried in test_native")
    out, grads = solve(backend, leaves, score, None, None, causal=True)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    true_out, true_grads = solve("reference", leaves, score, None, mask)
    assert distance(out, true_out) < 1e-12
    assert all(distance(g, t) < 1e-10 for g, t in zip(grads, true_grads, strict=True))


def test_equation_7_with_its_true_values():
    """Document 001 prints other numbers; these are the softmax of its masked inputs (errata)."""
    logits = torch.tensor([[0.2, 0.3, 0.5, 0.1], [0.1, 0.2, 0.7, 0.0], [0.3, 0.4, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
    eye = torch.eye(4)[None, None]
    # q·k/√d with d = 4 and k = I: q = 2·logits gives exactly these logits
    out, weights = attend(2 * logits[None, None], eye, eye, causal=True, return_weights=True)
    true = torch.tensor(
        [[1, 0, 0, 0], [0.4750, 0.5250, 0, 0], [0.3322, 0.3672, 0.3006, 0], [0.2138, 0.2363, 0.2612, 0.2887]]
    )
    assert (weights[0, 0] - true).abs().max() < 1e-4
    assert torch.equal(out, weights)  # the values are the identity


def test_uniform_attention_is_the_mean_and_none_is_the_sum():
    v = torch.randn(2, 1, 5, 3)
    at = torch.zeros(2, 1, 1, 1)
    mean = attend(at, torch.zeros(2, 1, 5, 1), v, score=Uniform())
    total = attend(at, torch.zeros(2, 1, 5, 1), v, score=Uniform(), normalise="none")
    assert torch.allclose(mean, v.mean(2, keepdim=True), atol=1e-6)
    assert torch.allclose(total, v.sum(2, keepdim=True), atol=1e-5)


def test_kernels_as_weights_themselves():
    """normalise="none": w = K. Laplace is −‖Δ‖₁ in the exponent, Gaussian −½‖Δ/ℓ‖²."""
    xq, xk, v = torch.randn(1, 4, 2), torch.randn(1, 6, 2), torch.randn(1, 1, 6, 3)
    delta = xq[0, :, None] - xk[0, None]
    for score, kernel in (
        (Laplace(1, 2, init=1.0), (-delta.abs().sum(-1)).exp()),
        (Laplace(1, 2, radial=True, init=1.0), (-delta.norm(dim=-1)).exp()),
        (Gaussian(1, 2, init=0.5), (-0.5 * (delta / 0.5).square().sum(-1)).exp()),
    ):
        out, weights = attend(None, None, v, xq=xq, xk=xk, score=score, normalise="none", return_weights=True)
        assert torch.allclose(weights[0, 0], kernel, atol=1e-6)
        assert torch.allclose(out[0, 0], kernel @ v[0, 0], atol=1e-5)


MASKS = [(), (6,), (5, 6), (1, 6), (5, 1), (2, 1, 1, 6), (1, 2, 1, 6), (2, 2, 5, 6), (2, 1, 5, 1)]


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_masks_of_every_shape_that_broadcasts(backend, shape):
    leaves, score = problem(2, 2, 5, 6, 1, torch.float64), make_score("rbf", 2, 4, 1).double()
    mask = torch.rand(shape) > 0.3
    if not fits(backend, leaves, score, mask=mask):
        pytest.skip("tried in test_native")
    out, grads = solve(backend, leaves, score, None, mask)
    true, true_grads = solve("reference", leaves, score, None, mask.expand(2, 2, 5, 6))
    assert distance(out, true) < 1e-12
    assert all(distance(g, t) < 1e-10 for g, t in zip(grads, true_grads, strict=True))


@pytest.mark.parametrize("normalise", ["softmax", "none"])
@pytest.mark.parametrize("masked", [False, True])
def test_streamed_gradients_through_sums_and_unnormalised(normalise, masked):
    q, k, v, xq, xk = problem(2, 2, 5, 6, 1, torch.float64)
    score, span = make_score("rbf", 2, 4, 1).double(), Span(1, 2, init=2.0, threshold=0.0).double()
    mask, found = torch.rand(2, 1, 5, 6) > 0.3 if masked else None, []
    for backend, chunk in (("reference", None), ("streamed", 2)):
        out, lse = attend(
            q, k, v, xq=xq, xk=xk, score=score, span=span, mask=mask, normalise=normalise, backend=backend, chunk=chunk,
            return_lse=True,
        )  # fmt: skip
        total = out.sin().sum() + lse.masked_fill(lse == -torch.inf, 0).cos().sum()
        found.append(torch.autograd.grad(total, [q, k, v, xq, xk, *score.parameters(), *span.parameters()]))
    assert all(distance(got, true) < 1e-10 for true, got in zip(*found, strict=True))


def test_the_handwritten_derivative_of_the_rbf():
    """Against finite differences, once and twice."""
    score = RBF(2, 2, init=(0.5, 1.0)).double()
    delta = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    inputs = (*score.parameters(), delta)

    def logits(log_scale, amplitude, at):
        return torch.func.functional_call(score, {"log_scale": log_scale, "amplitude": amplitude}, (None, None, at))

    assert torch.autograd.gradcheck(logits, inputs)
    assert torch.autograd.gradgradcheck(logits, inputs)


@pytest.mark.parametrize("backend", ["reference", "streamed"])
def test_log_sum_exp(backend):
    q, k, v, *_ = problem(2, 2, 5, 6, 1, torch.float64)
    out, lse = attend(q, k, v, backend=backend, chunk=2 if backend == "streamed" else None, return_lse=True)
    assert distance(lse, (q @ k.mT / 2).logsumexp(-1)) < 1e-12
    assert out.shape == (2, 2, 5, 3)


@pytest.mark.parametrize("name", ["rbf", "mlp", "joint", "laplace"])
def test_streamed_never_keeps_the_pairs(name):
    """Forward and backward together, no tensor as large as n × m is ever made: a chunk is the largest."""
    n, largest = 256, 0
    q, k, v, xq, xk = problem(1, 2, n, n, 1, torch.float32)

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max(largest, *(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor)), 0)
            return out

    score = make_score(name, 2, 4, 1)
    with Largest():
        attend(q, k, v, xq=xq, xk=xk, score=score, backend="streamed", chunk=1).sum().backward()
    channels = {"mlp": 32, "joint": 128}.get(name, 8)  # of a pair; q itself has 8
    assert largest <= channels * n < 2 * n * n


def test_folded_scores_keep_no_pairs_either():
    q, k, v, xq, xk = problem(1, 2, 512, 512, 1, torch.float32, d=16, e=16)
    for name in ("fourier", "gaussian", "linear", "relative-sinusoid"):
        kept = []
        score = make_score(name, 2, 16, 1)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):  # noqa: B023
            attend(q, k, v, xq=xq, xk=xk, score=score)
        assert max(kept) < 512 * 512


def test_a_gaussian_far_too_narrow_to_fold_is_still_right():
    """(half range/ℓ)² beyond 400: the fold would lose its digits, so it is not taken."""
    q, k, v, xq, xk = (t.detach() for t in problem(1, 2, 40, 40, 1, torch.float32))
    score = DotProduct() + Gaussian(2, 1, init=0.004)
    assert score.terms[1].fold(q, k, xq, xk) is None
    exact = attend(
        *(t.double() for t in (q, k, v)), xq=xq.double(), xk=xk.double(), score=score.double(), backend="reference"
    )
    got = attend(q, k, v, xq=xq, xk=xk, score=score.float())
    assert distance(got.double(), exact) < 1e-5


@pytest.mark.parametrize("dim_x", [1, 2])
@pytest.mark.parametrize("radial", [False, True])
def test_tables_come_close_to_the_function_itself(dim_x, radial):
    """Interpolated on a grid of Δ: value to 5e-5, gradients to F's parameters to 1e-3 of their norm."""
    n = 900
    leaves = [t.detach() for t in problem(1, 2, n, n, dim_x, torch.float32)]
    score = DotProduct() + MLP(2, dim_x, radial, bandwidth=4.0 if radial or dim_x == 1 else 0.25)
    out, grads = solve("auto", leaves, score, None, None)
    true, true_grads = solve("reference", leaves, score, None, None)
    assert 0 < distance(out, true) < 5e-5  # a table was used, and it is good
    for got, wanted in zip(grads, true_grads, strict=True):
        assert distance(got, wanted) < 1e-3


def test_a_table_read_in_chunks():
    """Beyond what a call stores: streamed, its gradients flow through the table too."""
    leaves = [t.detach() for t in problem(1, 8, 600, 600, 1, torch.float32)]
    score = DotProduct() + MLP(8, 1)
    out, grads = solve("auto", leaves, score, None, None)
    true, true_grads = solve("streamed", leaves, score, None, None)
    assert 0 < distance(out, true) < 5e-5
    assert all(distance(got, wanted) < 1e-3 for got, wanted in zip(grads, true_grads, strict=True))


def test_no_table_where_places_want_a_gradient():
    leaves = problem(1, 2, 200, 200, 1, torch.float32)
    score = DotProduct() + MLP(2, 1)
    out, grads = solve("auto", leaves, score, None, None)
    true, true_grads = solve("reference", leaves, score, None, None)
    assert torch.equal(out, true)
    assert torch.equal(grads[3], true_grads[3])


def test_weights_are_seen_only_when_watched():
    q, k, v, xq, xk = problem(1, 2, 3, 4, 1, torch.float32)
    with record_weights() as seen:
        attend(q, k, v, xq=xq, xk=xk)
    attend(q, k, v)
    assert len(seen) == 1
    assert torch.allclose(seen[0].weights.sum(-1), torch.ones(1, 2, 3))
    assert not seen[0].weights.requires_grad


def test_fixed_blocks_keep_queries_in_their_own_block():
    x = torch.tensor([[[0.2, 0.2], [0.8, 0.4], [1.2, 0.2], [0.2, 1.7]]])
    mask = fixed_block_mask(x, x, 1.0)
    assert mask.shape == (1, 1, 4, 4)
    assert mask[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
