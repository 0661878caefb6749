"""The learned window: its effect on weights, its edge, and its gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fillin.attention import DotProduct, Span, Uniform, attend
from fillin.errors import FillinError


def weights(span, delta, logits=None):
    """exp of the modulated logits at displacements [n dx], zero outside."""
    displacements = delta.T[None, :, :, None]
    base = torch.zeros(1, 1, len(delta), 1, dtype=delta.dtype) if logits is None else logits.view(1, 1, -1, 1)
    modulated, inside = span(base, displacements)
    inside = torch.ones_like(modulated, dtype=torch.bool) if inside is None else inside
    return torch.where(inside, modulated.exp(), 0)[0, 0, :, 0].detach(), modulated[0, 0, :, 0].detach()


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_the_formulas(dim_x):
    delta, t, sigma = torch.linspace(-1.5, 1.5, 41).double()[:, None] * torch.ones(dim_x).double(), 0.1, 0.6
    logits = torch.linspace(-1, 2, 41).double()
    g = torch.exp(-0.5 * (delta / sigma).square().sum(-1))
    w = (g - t).clamp_min(0) / (1 - t)
    per_dim = torch.exp(-0.5 * (delta / sigma).square())
    inside, inside_box = g > t, (per_dim > t).all(-1)

    def span(**options):
        return Span(dim_x, init=sigma, threshold=t, **options).double()

    continuous, _ = weights(span(), delta)
    assert torch.allclose(continuous, w)
    hard, _ = weights(span(cut="hard"), delta)
    assert torch.allclose(hard, g * inside)
    box, _ = weights(span(shape="box"), delta)
    assert torch.allclose(box, ((per_dim - t).clamp_min(0) / (1 - t)).prod(-1))
    open_, _ = weights(Span(dim_x, init=sigma, threshold=0.0).double(), delta)
    assert torch.allclose(open_, g)
    _, scores = weights(span(modulate="scores", cut="hard"), delta, logits)
    assert torch.allclose(scores, logits * g)
    scored, _ = weights(span(modulate="scores"), delta, logits)
    assert torch.allclose(scored, (logits * g).exp() * w)
    box_scores, _ = weights(span(modulate="scores", cut="hard", shape="box"), delta, logits)
    assert torch.allclose(box_scores, (logits * g).exp() * inside_box)


@given(seed=st.integers(0, 1000), dim_x=st.integers(1, 3))
def test_a_full_covariance_is_positive_definite(seed, dim_x):
    torch.manual_seed(seed)
    span = Span(dim_x, heads=3, covariance="full").double()
    with torch.no_grad():
        for parameter in span.parameters():
            parameter.normal_(0, 2)
    covariance = span.factor @ span.factor.mT
    assert (torch.linalg.eigvalsh(covariance) > 0).all()
    delta = torch.randn(dim_x).double()
    by_hand = -0.5 * torch.einsum("i,hij,j->h", delta, torch.linalg.inv(covariance), delta)
    got = span.exponents(delta.view(1, dim_x, 1, 1)).sum(2)[0, :, 0, 0]
    assert torch.allclose(got, by_hand, rtol=1e-6)


def test_a_full_covariance_without_correlation_is_a_diagonal_one():
    delta = torch.randn(20, 2).double()
    full, diagonal = (Span(2, init=0.8, covariance=c).double() for c in ("full", "diagonal"))
    assert torch.allclose(weights(full, delta)[0], weights(diagonal, delta)[0])


def test_reach_is_the_edge_of_the_window():
    span = Span(1, init=0.4, threshold=0.1)
    reach = span.reach().item()
    assert reach == pytest.approx(0.4 * math.sqrt(-2 * math.log(0.1)))
    near, far = weights(span, torch.tensor([[reach * 0.999], [reach * 1.001]]))[0]
    assert near > 0
    assert far == 0
    assert Span(1, threshold=0.0).reach().isinf().all()


def slope(span, x, v, step=1e-5):
    """d(output)/d(ln σ) by autograd, and by central differences."""
    xq, k = torch.zeros(1, 1, 1).double(), torch.zeros(1, 1, len(x), 1).double()

    def out():
        return attend(k[:, :, :1], k, v, xq=xq, xk=x[None], score=Uniform(), span=span).sum()

    (by_autograd,) = torch.autograd.grad(out(), span.log_sigma)
    with torch.no_grad():
        span.log_sigma += step
        above = out()
        span.log_sigma -= 2 * step
        below = out()
        span.log_sigma += step
    return by_autograd.item(), ((above - below) / (2 * step)).item()


def test_the_gradient_of_the_continuous_cut_is_right_and_of_the_hard_cut_wrong():
    """As σ grows, keys enter at the edge. The gradient of the hard cut does not contain them."""
    x = torch.linspace(-2, 2, 4001).double()[:, None]  # steps of 1e-3
    v = x.square().view(1, 1, -1, 1)
    got, true = slope(Span(1, init=0.5).double(), x, v, 1e-6)
    assert got == pytest.approx(true, rel=1e-3)
    got, true = slope(Span(1, init=0.5, cut="hard").double(), x, v, 2e-2)
    assert abs(got - true) > 0.2 * abs(true)


def test_an_empty_window_gives_zeros_and_no_nan():
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    far = torch.full((1, 3, 1), 100.0)
    for modulate in ("weights", "scores"):
        span = Span(1, 2, init=0.1, modulate=modulate)
        out = attend(q, q, q, xq=far, xk=-far, score=DotProduct(), span=span)
        out.sum().backward()
        assert (out == 0).all()
        assert (q.grad == 0).all()
        assert (span.log_sigma.grad == 0).all()


INVALID = [
    {"shape": "box", "covariance": "full"}, {"threshold": 1.0}, {"init": 0.0}, {"modulate": "wieghts"}, {"cut": "soft"},
]  # fmt: skip


@pytest.mark.parametrize("options", INVALID, ids=str)
def test_invalid_options_are_refused(options):
    with pytest.raises(FillinError):
        Span(2, **options)
