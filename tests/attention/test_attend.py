"""`attend`: every back end agrees with the reference, in values and in all gradients."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.attention_problems import output_and_gradients, parameters_of
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
)
from fillin.attention.attend import record_weights
from fillin.attention.dispatch import CROSSOVER, CROSSOVERS, Crossover, find_crossover
from fillin.attention.problem import AttentionProblem
from fillin.attention.score_registry import make_score
from fillin.runtime import read_vendor

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
OTHERS = sorted(set(BACKENDS) - {"reference", "flex"})  # flex has no gradient to locations: test_flex.py
SPANS = [
    None, {"init": 1.5}, {"init": 1.5, "threshold": 0.0}, {"init": 2.0, "cut": "hard", "shape": "box"},
    {"init": 1.5, "modulate": "scores"}, {"init": 1.5, "covariance": "full"},
    {"init": 1.0, "covariance": "isotropic", "modulate": "scores", "cut": "hard"},
]  # fmt: skip


def random_inputs(b, h, n, m, dim_x, dtype, d=4, e=3):
    """q, k, v, xq and xk, all of which require a gradient."""
    shapes = (b, h, n, d), (b, h, m, d), (b, h, m, e), (b, n, dim_x), (b, m, dim_x)
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes]


def solve(backend, inputs, score, span, mask, causal=False):
    """Output and gradients to q, k, v, xq, xk and all parameters."""
    q, k, v, xq, xk = inputs
    chunk = 2 if backend == "streamed" and q.shape[2] < 100 else None
    options = {"score": score, "span": span, "mask": mask, "causal": causal, "backend": backend, "chunk": chunk}
    return output_and_gradients(attend(q, k, v, xq=xq, xk=xk, **options), [*inputs, *parameters_of(score, span)])


def solve_in_float64(inputs, score, span, mask):
    inputs = [t.detach().double().requires_grad_(t.requires_grad) for t in inputs]
    return solve("reference", inputs, deepcopy(score).double(), span and deepcopy(span).double(), mask)


def fits(backend, inputs, score, span=None, mask=None, causal=False):
    return BACKENDS[backend].unfit(AttentionProblem(*inputs, score, span, mask, causal)) is None


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(0, 5), st.integers(0, 6), st.integers(1, 3)),
    span_options=st.sampled_from(SPANS), masked=st.booleans(), radial=st.booleans(),
)  # fmt: skip
def test_back_ends_agree_with_the_reference(backend, name, dtype, shape, span_options, masked, radial):
    b, h, n, m, dim_x = shape
    score = make_score(name, h, 4, dim_x, radial).to(dtype)
    span = None if span_options is None else Span(dim_x, h, **span_options).to(dtype)
    inputs, mask = random_inputs(b, h, n, m, dim_x, dtype), None
    if masked:
        mask = torch.rand(b, 1, n, m) > 0.4
        mask[:, :, :1] = False  # one query has no keys
    if not fits(backend, inputs, score, span, mask):
        return
    solutions = solve(backend, inputs, score, span, mask), solve("reference", inputs, score, span, mask)
    results = list(zip(*solutions, solve_in_float64(inputs, score, span, mask), strict=True))
    for i, (got, reference, exact) in enumerate(results):
        assert got.isfinite().all()
        # near the edge of a window every algorithm loses digits, and most in the gradient of the window
        allowed = 3 * distance(reference.double(), exact, floor=0.1) + TOLERANCE[dtype]
        allowed *= 10 if i >= len(results) - len(parameters_of(span)) else 1
        assert distance(got.double(), exact, floor=0.1) < allowed  # q, k, v and x are of order one
    if masked and n:
        assert (results[0][0][:, :, 0] == 0).all()


def assert_solutions_agree(got, exact):
    assert distance(got[0], exact[0]) < 1e-12
    assert all(distance(g, t) < 1e-10 for g, t in zip(got[1:], exact[1:], strict=True))


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_causal_order(backend):
    inputs, score = random_inputs(2, 2, 5, 5, 1, torch.float64), DotProduct()
    if not fits(backend, inputs, score, causal=True):
        pytest.skip("tested in test_kernel_values.py")
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    causal = solve(backend, inputs, score, None, None, causal=True)
    assert_solutions_agree(causal, solve("reference", inputs, score, None, mask))


def test_masked_softmax_of_equation_7():
    """Equation 7 of Sivaraya 2023 prints other numbers; these are the softmax of its masked inputs (errata)."""
    logits = torch.tensor([[0.2, 0.3, 0.5, 0.1], [0.1, 0.2, 0.7, 0.0], [0.3, 0.4, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
    eye = torch.eye(4)[None, None]
    # q·k/√d with d = 4 and k = I: q = 2·logits gives exactly these logits
    out, weights = attend(2 * logits[None, None], eye, eye, causal=True, return_weights=True)
    expected = torch.tensor(
        [[1, 0, 0, 0], [0.4750, 0.5250, 0, 0], [0.3322, 0.3672, 0.3006, 0], [0.2138, 0.2363, 0.2612, 0.2887]]
    )
    assert (weights[0, 0] - expected).abs().max() < 1e-4
    assert torch.equal(out, weights)  # the values are the identity


def test_uniform_scores_give_the_mean_and_unnormalised_the_sum():
    q, k, v = torch.zeros(2, 1, 1, 1), torch.zeros(2, 1, 5, 1), torch.randn(2, 1, 5, 3)
    mean, total = (attend(q, k, v, score=Uniform(), normalise=normalise) for normalise in ("softmax", "none"))
    assert torch.allclose(mean, v.mean(2, keepdim=True), atol=1e-6)
    assert torch.allclose(total, v.sum(2, keepdim=True), atol=1e-5)


def test_unnormalised_weights_are_the_kernel():
    """normalise="none": w = K. The exponent is −‖Δ‖₁ for Laplace and −½‖Δ/ℓ‖² for Gaussian."""
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
    inputs, score = random_inputs(2, 2, 5, 6, 1, torch.float64), make_score("rbf", 2, 4, 1).double()
    mask = torch.rand(shape) > 0.3
    if not fits(backend, inputs, score, mask=mask):
        pytest.skip("tested in test_kernel_values.py")
    expanded = solve("reference", inputs, score, None, mask.expand(2, 2, 5, 6))
    assert_solutions_agree(solve(backend, inputs, score, None, mask), expanded)


@pytest.mark.parametrize("normalise", ["softmax", "none"])
@pytest.mark.parametrize("masked", [False, True])
def test_streamed_gradients_through_lse_and_unnormalised(normalise, masked):
    q, k, v, xq, xk = random_inputs(2, 2, 5, 6, 1, torch.float64)
    score, span = make_score("rbf", 2, 4, 1).double(), Span(1, 2, init=2.0, threshold=0.0).double()
    mask, grads = torch.rand(2, 1, 5, 6) > 0.3 if masked else None, []
    for backend, chunk in (("reference", None), ("streamed", 2)):
        out, lse = attend(
            q, k, v, xq=xq, xk=xk, score=score, span=span, mask=mask, normalise=normalise, backend=backend, chunk=chunk,
            return_lse=True,
        )  # fmt: skip
        loss = out.sin().sum() + lse.masked_fill(lse == -torch.inf, 0).cos().sum()
        grads.append(torch.autograd.grad(loss, [q, k, v, xq, xk, *parameters_of(score, span)]))
    assert all(distance(got, exact) < 1e-10 for exact, got in zip(*grads, strict=True))


def test_handwritten_derivative_of_the_rbf():
    """First and second derivatives against finite differences."""
    score = RBF(2, 2, init=(0.5, 1.0)).double()
    delta = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    inputs = (*score.parameters(), delta)

    def logits(log_scale, amplitude, delta):
        return torch.func.functional_call(score, {"log_scale": log_scale, "amplitude": amplitude}, (None, None, delta))

    assert torch.autograd.gradcheck(logits, inputs)
    assert torch.autograd.gradgradcheck(logits, inputs)


@pytest.mark.parametrize("backend", ["reference", "streamed"])
def test_log_sum_exp(backend):
    q, k, v, *_ = random_inputs(2, 2, 5, 6, 1, torch.float64)
    out, lse = attend(q, k, v, backend=backend, chunk=2 if backend == "streamed" else None, return_lse=True)
    assert distance(lse, (q @ k.mT / 2).logsumexp(-1)) < 1e-12
    assert out.shape == (2, 2, 5, 3)


@pytest.mark.parametrize("name", ["rbf", "mlp", "joint", "laplace"])
def test_streamed_never_stores_all_pairs(name):
    """In forward and backward pass, no tensor is as large as n × m: a chunk is the largest."""
    n, largest = 256, 0
    q, k, v, xq, xk = random_inputs(1, 2, n, n, 1, torch.float32)

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


def test_folded_scores_store_no_pairs():
    q, k, v, xq, xk = random_inputs(1, 2, 512, 512, 1, torch.float32, d=16, e=16)
    for name in ("fourier", "gaussian", "linear", "relative-sinusoid"):
        sizes = []
        score = make_score(name, 2, 16, 1)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):  # noqa: B023
            attend(q, k, v, xq=xq, xk=xk, score=score)
        assert max(sizes) < 512 * 512


def test_a_gaussian_too_narrow_to_fold():
    """Beyond (half range/ℓ)² = 400 the fold would lose its digits, so it is not used."""
    q, k, v, xq, xk = (t.detach() for t in random_inputs(1, 2, 40, 40, 1, torch.float32))
    score = DotProduct() + Gaussian(2, 1, init=0.004)
    assert score.terms[1].fold(q, k, xq, xk) is None
    exact = attend(
        *(t.double() for t in (q, k, v)), xq=xq.double(), xk=xk.double(), score=score.double(), backend="reference"
    )
    got = attend(q, k, v, xq=xq, xk=xk, score=score.float())
    assert distance(got.double(), exact) < 1e-5


def assert_table_is_close(inputs, score, backend="reference"):
    """A table was used: the output differs, by at most 5e-5, and gradients by at most 1e-3 of their norm."""
    out, *grads = solve("auto", inputs, score, None, None)
    exact, *exact_grads = solve(backend, inputs, score, None, None)
    assert 0 < distance(out, exact) < 5e-5
    assert all(distance(got, true) < 1e-3 for got, true in zip(grads, exact_grads, strict=True))


@pytest.mark.parametrize("dim_x", [1, 2])
@pytest.mark.parametrize("radial", [False, True])
def test_tables_approximate_the_score(dim_x, radial):
    inputs = [t.detach() for t in random_inputs(1, 2, 900, 900, dim_x, torch.float32)]
    score = DotProduct() + MLP(2, dim_x, radial, bandwidth=4.0 if radial or dim_x == 1 else 0.25)
    assert_table_is_close(inputs, score)


def test_tables_in_chunks():
    """More pairs than a call stores are streamed; gradients flow through the table."""
    inputs = [t.detach() for t in random_inputs(1, 8, 600, 600, 1, torch.float32)]
    assert_table_is_close(inputs, DotProduct() + MLP(8, 1), "streamed")


def test_no_table_where_locations_require_a_gradient():
    inputs, score = random_inputs(1, 2, 200, 200, 1, torch.float32), DotProduct() + MLP(2, 1)
    got, exact = (solve(backend, inputs, score, None, None) for backend in ("auto", "reference"))
    assert torch.equal(got[0], exact[0])
    assert torch.equal(got[4], exact[4])


def test_weights_are_recorded_inside_the_block_only():
    q, k, v, xq, xk = random_inputs(1, 2, 3, 4, 1, torch.float32)
    with record_weights() as records:
        attend(q, k, v, xq=xq, xk=xk)
    attend(q, k, v)
    assert len(records) == 1
    assert torch.allclose(records[0].weights.sum(-1), torch.ones(1, 2, 3))
    assert not records[0].weights.requires_grad


def test_fixed_blocks_mask_keys_of_other_blocks():
    x = torch.tensor([[[0.2, 0.2], [0.8, 0.4], [1.2, 0.2], [0.2, 1.7]]])
    mask = fixed_block_mask(x, x, 1.0)
    assert mask.shape == (1, 1, 4, 4)
    assert mask[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("maker", [*CROSSOVERS, "HygonGenuine", None])
def test_the_maker_of_the_processor_sets_the_crossover(maker, tmp_path):
    """Nothing is timed, so that equal machines compute equal bytes. An unknown maker gets the higher thresholds."""
    described = tmp_path / "cpuinfo"
    if maker:
        described.write_text(f"processor\t: 0\nvendor_id\t: {maker}\nmodel name\t: a CPU\n")
    highest = Crossover(*(max(c[i] for c in CROSSOVERS.values()) for i in range(2)))
    assert find_crossover(read_vendor(described)) == CROSSOVERS.get(maker, highest)
    assert CROSSOVER in (*CROSSOVERS.values(), highest)
