"""Random attention problems, solved by a back end and exactly: by the reference in float64."""

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

needs_kernel = pytest.mark.skipif(not is_available(), reason="fillin was installed without a C++ compiler")
_LOG_WINDOW_EPSILON = 2e-7  # relative, in float32: a few units in the last place of Δ, of A Δ and of its square


def random_problem(
    b=2, h=2, n=40, m=50, dim_x=2, d=8, e=5, *, extent=2.0, score: Score | None = None, **options
) -> AttentionProblem:
    """Normal q, k and v at uniform locations in [0, extent], without gradients."""
    q, k, v = torch.randn(b, h, n, d), torch.randn(b, h, m, d), torch.randn(b, h, m, e)
    xq, xk = extent * torch.rand(b, n, dim_x), extent * torch.rand(b, m, dim_x)
    return AttentionProblem(q, k, v, xq, xk, DotProduct() if score is None else score, **options)


def random_span(dim_x=2, heads=2, init=0.4, **options) -> Span:
    """A window with a different σ for every head; a full covariance is correlated."""
    span = Span(dim_x, heads, init=init, **options)
    with torch.no_grad():
        span.log_sigma += 0.3 * torch.randn_like(span.log_sigma)
        if span.covariance == "full":
            span.lower += 0.5 * init * torch.randn_like(span.lower)
    return span


def to_float64(p: AttentionProblem) -> AttentionProblem:
    tensors = {name: getattr(p, name) for name in ("q", "k", "v", "xq", "xk")}
    tensors = {name: t if t is None else t.detach().double() for name, t in tensors.items()}
    span = None if p.span is None else copy.deepcopy(p.span).double()
    return replace(p, **tensors, score=copy.deepcopy(p.score).double(), span=span)


class Solution(NamedTuple):
    """Output and lse, and the gradients of Σ out·d_out + Σ lse·d_lse."""

    out: Tensor
    lse: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    score: list[Tensor]
    span: Tensor

    def flatten(self) -> Tensor:
        """All results in one vector."""
        parts = (*self[:5], *self.score, self.span)
        return torch.cat([t.nan_to_num(0, neginf=0).flatten() for t in parts])


def output_gradients(p: AttentionProblem, through_lse: bool = True) -> tuple[Tensor, Tensor]:
    """d_out [b h n e] and d_lse [b h n] (zero unless `through_lse`), the same for every back end and dtype."""
    rng, (b, h, _, e) = torch.Generator().manual_seed(1), p.v.shape
    return torch.randn(b, h, p.n, e, generator=rng).to(p.v), through_lse * torch.randn(b, h, p.n, generator=rng).to(p.v)


def run(p: AttentionProblem, backend: str = "native") -> tuple[Tensor, Tensor]:
    """(out, lse). The fallback of "native" to "streamed" is an error."""
    with mock.patch.object(BACKENDS["streamed"], "run", side_effect=AssertionError("fell back to streamed")):
        return attend(
            p.q, p.k, p.v, xq=p.xq, xk=p.xk, score=p.score, span=p.span, mask=p.mask, causal=p.causal,
            normalise=p.normalise, tolerance=p.tolerance, backend=backend, return_lse=True,
        )  # fmt: skip


def solve(p: AttentionProblem, backend: str = "native", through_lse: bool = True) -> Solution:
    leaves = [t if t is None else t.detach().requires_grad_() for t in (p.q, p.k, p.v)]
    out, lse = run(replace(p, q=leaves[0], k=leaves[1], v=leaves[2]), backend)
    inputs = [t for t in (*leaves, *parameters_of(p.score, p.span)) if t is not None]
    d_out, d_lse = output_gradients(p, through_lse)
    loss = (out * d_out).sum() + (lse.masked_fill(lse == -torch.inf, 0) * d_lse).sum()
    grads = torch.autograd.grad(loss, inputs, allow_unused=True)
    grads = [torch.zeros_like(t) if g is None else g for g, t in zip(grads, inputs, strict=True)]
    if p.q is None:
        grads = [torch.zeros(0), torch.zeros(0), *grads]
    q, k, v, *rest = grads
    count = len(list(p.score.parameters()))
    span = torch.cat([g.flatten() for g in rest[count:]]) if rest[count:] else torch.zeros(0)
    return Solution(out.detach(), lse.detach(), q, k, v, rest[:count], span)


def solve_exactly(p: AttentionProblem, through_lse: bool = True) -> Solution:
    return solve(to_float64(p), "reference", through_lse)


def rounding_errors(p: AttentionProblem) -> tuple[float, float]:
    """Norms of the errors of lse and of the window's gradient that no float32 algorithm avoids.

    A relative error ε of r² moves ln G by ε r², and ln W of the continuous cut by ε r² G/(G − t) ≤ ε r²/W: a query all
    of whose keys lie near the edge is ill conditioned. With κ_i = Σ_j p_ij (1 + r²_ij)/W_ij (W = 1 where it does not
    go to zero) lse_i errs by ε κ_i, and the gradient to ln σ, itself of order κ_i |d_out_i| |v|, by ε κ_i².
    """
    if p.span is None:
        return 0.0, 0.0
    p = to_float64(p)
    with torch.no_grad():
        delta = p.displacements()
        logits, allowed = compute_logits(p)
        weights = logits.masked_fill(~allowed, -torch.inf) if allowed is not None else logits
        weights = weights.softmax(-1).nan_to_num(0)
        square = -2 * p.span.exponents(delta).sum(2)
        if p.span.cut == "continuous" and p.span.threshold > 0:
            log_w, inside = p.span(torch.zeros_like(logits), delta)
            w = log_w.exp().where(inside, 1)
        else:
            w = torch.ones_like(square)
        kappa = (weights * (1 + square) / w).sum(-1)
        d_out, d_lse = output_gradients(p)
        gradient = d_out.norm(dim=-1) * p.v.norm(dim=-1).amax(-1, keepdim=True) + d_lse.abs()
        lse, span = (float(_LOG_WINDOW_EPSILON * error.norm()) for error in (kappa, kappa.square() * gradient))
        return lse, span


def avoid_edge_pairs(p: AttentionProblem) -> None:
    """Widen the window until no pair lies on its edge, where rounding decides whether it is inside."""
    if p.span is None or p.span.threshold == 0:
        return
    with torch.no_grad():
        for _ in range(100):
            exponents = p.span.double().exponents(to_float64(p).displacements())
            factors = exponents if p.span.shape == "box" else exponents.sum(2)
            p.span.float()
            if ((factors / math.log(p.span.threshold)) - 1).abs().min() > 3e-6:
                return
            p.span.log_sigma += 1e-4


def kernel_errors(p: AttentionProblem, strict: bool = False, through_lse: bool = True) -> dict[str, float]:
    """Norm-wise errors of the kernel. Those of lse and span exclude rounding, unless `strict`.

    The gradients to q and k are differences of dot products over e values: a zero there is as exact as those are.
    """
    avoid_edge_pairs(p)
    got, true = solve(p, through_lse=through_lse), solve_exactly(p, through_lse)
    lse_rounding, span_rounding = (0.0, 0.0) if strict else rounding_errors(p)
    errors = {"out": distance(got.out.double(), true.out), "v": distance(got.v.double(), true.v)}
    for side in ("q", "k"):
        errors[side] = distance(getattr(got, side).double(), getattr(true, side), 0.1 * math.sqrt(p.v.shape[-1]))
    finite = true.lse > -torch.inf
    assert torch.equal(finite, got.lse > -torch.inf), "other queries have no keys"
    errors["lse"] = _excess_error(got.lse[finite], true.lse[finite], lse_rounding)
    errors["span"] = _excess_error(got.span, true.span, span_rounding)
    errors["score"] = max(
        [distance(g.double(), t, 0.1) for g, t in zip(got.score, true.score, strict=True)], default=0.0
    )
    assert all(map(math.isfinite, errors.values())), errors
    return errors


def largest_error(p: AttentionProblem, strict: bool = False) -> float:
    return max(kernel_errors(p, strict).values())


def _excess_error(got: Tensor, true: Tensor, rounding: float) -> float:
    """(‖got − true‖ − rounding) / ‖true‖, not below 0."""
    return max(0.0, float((got.double() - true).norm()) - rounding) / max(float(true.norm()), 1e-3)


def output_and_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """The output, and the gradients of a weighted sum of it to the inputs that require one."""
    leaves = [t for t in inputs if t.requires_grad]
    if not out.requires_grad:
        return [out, *map(torch.zeros_like, leaves)]
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    grads = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
    return [out, *(torch.zeros_like(t) if g is None else g for g, t in zip(grads, leaves, strict=True))]


def parameters_of(*modules: torch.nn.Module | None) -> list[Tensor]:
    return [parameter for module in modules if module is not None for parameter in module.parameters()]
