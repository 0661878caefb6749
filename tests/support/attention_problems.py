"""Random problems of attention over places, solved by a back end and exactly: by the reference, in float64."""

import copy
import math
from dataclasses import replace
from typing import NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor

from fillin.attention import BACKENDS, DotProduct, Score, Span, attend
from fillin.attention.backends.reference import compute_logits
from fillin.attention.kernel import is_available
from fillin.attention.problem import AttentionProblem
from support.helpers import distance

built = pytest.mark.skipif(not is_available(), reason="the kernel is not built here")
_ROUNDING = 2e-7  # of ln G in float32: a few units in the last place of Δ, of A Δ and of its square


def scattered(
    b=2, h=2, n=40, m=50, dim_x=2, d=8, e=5, *, extent=2.0, score: Score | None = None, **options
) -> AttentionProblem:
    """q, k and v are normal, places uniform in [0, extent]; nothing wants a gradient yet."""
    q, k, v = torch.randn(b, h, n, d), torch.randn(b, h, m, d), torch.randn(b, h, m, e)
    xq, xk = extent * torch.rand(b, n, dim_x), extent * torch.rand(b, m, dim_x)
    return AttentionProblem(q, k, v, xq, xk, DotProduct() if score is None else score, **options)


def window(dim_x=2, heads=2, init=0.4, **options) -> Span:
    """Every head has another σ, and a full covariance is correlated."""
    span = Span(dim_x, heads, init=init, **options)
    with torch.no_grad():
        span.log_sigma += 0.3 * torch.randn_like(span.log_sigma)
        if span.covariance == "full":
            span.lower += 0.5 * init * torch.randn_like(span.lower)
    return span


def as_type(p: AttentionProblem, dtype: torch.dtype) -> AttentionProblem:
    tensors = {name: getattr(p, name) for name in ("q", "k", "v", "xq", "xk")}
    tensors = {name: t if t is None else t.detach().to(dtype) for name, t in tensors.items()}
    span = None if p.span is None else copy.deepcopy(p.span).to(dtype)
    return replace(p, **tensors, score=copy.deepcopy(p.score).to(dtype), span=span)


class Solved(NamedTuple):
    """Output and sums, and the gradients of Σ out·d_out + Σ lse·d_lse."""

    out: Tensor
    lse: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    score: list[Tensor]
    window: Tensor


def pulls(p: AttentionProblem, sums: bool = True) -> tuple[Tensor, Tensor]:
    """d_out [b h n e] and d_lse [b h n] (zero without `sums`), the same for every back end and type."""
    draw, (b, h, _, e) = torch.Generator().manual_seed(1), p.v.shape
    return torch.randn(b, h, p.n, e, generator=draw).to(p.v), sums * torch.randn(b, h, p.n, generator=draw).to(p.v)


def run(p: AttentionProblem, backend: str = "native") -> tuple[Tensor, Tensor]:
    """(out, lse); that "native" hands a problem over to "streamed" is an error here."""
    with mock.patch.object(BACKENDS["streamed"], "run", side_effect=AssertionError("handed over to streamed")):
        return attend(
            p.q, p.k, p.v, xq=p.xq, xk=p.xk, score=p.score, span=p.span, mask=p.mask, causal=p.causal,
            normalise=p.normalise, tolerance=p.tolerance, backend=backend, return_lse=True,
        )  # fmt: skip


def solve(p: AttentionProblem, backend: str = "native", sums: bool = True) -> Solved:
    leaves = [t if t is None else t.detach().requires_grad_() for t in (p.q, p.k, p.v)]
    out, lse = run(replace(p, q=leaves[0], k=leaves[1], v=leaves[2]), backend)
    learned = [*p.score.parameters(), *([] if p.span is None else p.span.parameters())]
    wanted = [t for t in (*leaves, *learned) if t is not None]
    d_out, d_lse = pulls(p, sums)
    loss = (out * d_out).sum() + (lse.masked_fill(lse == -torch.inf, 0) * d_lse).sum()
    grads = torch.autograd.grad(loss, wanted, allow_unused=True)
    grads = [torch.zeros_like(t) if g is None else g for g, t in zip(grads, wanted, strict=True)]
    if p.q is None:
        grads = [torch.zeros(0), torch.zeros(0), *grads]
    q, k, v, *others = grads
    count = len(list(p.score.parameters()))
    in_window = torch.cat([g.flatten() for g in others[count:]]) if others[count:] else torch.zeros(0)
    return Solved(out.detach(), lse.detach(), q, k, v, others[:count], in_window)


def exact(p: AttentionProblem, sums: bool = True) -> Solved:
    return solve(as_type(p, torch.float64), "reference", sums)


def rounding(p: AttentionProblem) -> tuple[float, float]:
    """What float32 cannot know of lse and of the window's gradient (norms), whatever the algorithm.

    A relative error ε of r² moves ln G by ε r², and ln W of the continuous cut by ε r² G/(G − t) ≤ ε r²/W: a query all
    of whose keys lie near the edge is ill conditioned. With κ_i = Σ_j p_ij (1 + r²_ij)/W_ij (W = 1 where it does not
    go to zero) lse_i errs by ε κ_i, and the gradient to ln σ, itself of order κ_i |d_out_i| |v|, by ε κ_i².
    """
    if p.span is None:
        return 0.0, 0.0
    p = as_type(p, torch.float64)
    with torch.no_grad():
        delta = p.displacements()
        logits, keep = compute_logits(p)
        weights = logits.masked_fill(~keep, -torch.inf) if keep is not None else logits
        weights = weights.softmax(-1).nan_to_num(0)
        square = -2 * p.span.exponents(delta).sum(2)
        if p.span.cut == "continuous" and p.span.threshold > 0:
            log_w, inside = p.span(torch.zeros_like(logits), delta)
            worth = log_w.exp().where(inside, 1)
        else:
            worth = torch.ones_like(square)
        kappa = (weights * (1 + square) / worth).sum(-1)
        d_out, d_lse = pulls(p)
        pull = d_out.norm(dim=-1) * p.v.norm(dim=-1).amax(-1, keepdim=True) + d_lse.abs()
        return float(_ROUNDING * kappa.norm()), float(_ROUNDING * (kappa.square() * pull).norm())


def off_the_edge(p: AttentionProblem) -> None:
    """A pair at the very edge is in or out by rounding, and with it a step (in the gradient, if the cut is continuous).

    So a window is widened until there is none.
    """
    if p.span is None or p.span.threshold == 0:
        return
    with torch.no_grad():
        for _ in range(100):
            exponents = p.span.double().exponents(as_type(p, torch.float64).displacements())
            parts = exponents if p.span.shape == "box" else exponents.sum(2)
            p.span.float()
            if ((parts / math.log(p.span.threshold)) - 1).abs().min() > 3e-6:
                return
            p.span.log_sigma += 1e-4


def errors(p: AttentionProblem, strict: bool = False, sums: bool = True) -> dict[str, float]:
    """Norm-wise errors of the kernel; of lse and window what rounding does not explain, or all of it if `strict`.

    The gradients to q and k are differences of dot products over e values: a zero there is as exact as those are.
    """
    off_the_edge(p)
    got, true = solve(p, sums=sums), exact(p, sums)
    of_lse, of_window = (0.0, 0.0) if strict else rounding(p)
    found = {"out": distance(got.out.double(), true.out), "v": distance(got.v.double(), true.v)}
    for side in ("q", "k"):
        found[side] = distance(getattr(got, side).double(), getattr(true, side), 0.1 * math.sqrt(p.v.shape[-1]))
    finite = true.lse > -torch.inf
    assert torch.equal(finite, got.lse > -torch.inf), "another set of queries has nothing to attend to"
    found["lse"] = _beyond(got.lse[finite], true.lse[finite], of_lse)
    found["window"] = _beyond(got.window, true.window, of_window)
    found["score"] = max(
        [distance(g.double(), t, 0.1) for g, t in zip(got.score, true.score, strict=True)], default=0.0
    )
    assert all(map(math.isfinite, found.values())), found
    return found


def _beyond(got: Tensor, true: Tensor, explained: float) -> float:
    """(‖got − true‖ − explained) / ‖true‖, not below 0."""
    return max(0.0, float((got.double() - true).norm()) - explained) / max(float(true.norm()), 1e-3)
