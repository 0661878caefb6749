"""Bounded memory for any score: queries in chunks, whose weights are made again in the backward pass.

What is kept is the inputs, the output and one number a query, ln Σ_j exp(logit_ij); peak memory is set by `chunk`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fillin.attention.backends import reference
from fillin.attention.problem import Problem, Result

# Numbers of one kind alive at once (logits, or hidden units of pairs) where the caller names no chunk: 2 MB in float32,
# which stays in the cache between one pass over it and the next.
_LOGITS = 1 << 19
_INPUTS = ("q", "k", "v", "xq", "xk")


def unfit(problem: Problem) -> str | None:
    return None


def run(p: Problem, chunk: int | None = None, lse: bool = False) -> Result:
    chunk = chunk or max(1, _LOGITS * p.n // max(1, p.held))
    inputs = [getattr(p, name) for name in _INPUTS]
    learned = [*p.score.tensors(), *(() if p.span is None else p.span.parameters())]
    out, sums = _Streamed.apply(p, chunk, *inputs, *learned)
    return Result(out, sums if lse else None)


def _chunks(n: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, n)) for start in range(0, n, chunk))


def _forward(p: Problem) -> tuple[Tensor, Tensor]:
    """Output and lse of a few queries. A softmax's largest weight is exp(largest logit − lse), so lse comes free."""
    found, keep = reference.logits(p)
    if keep is None and p.normalise == "softmax":
        weights = found.softmax(-1)
        return weights @ p.v, found.amax(-1) - weights.amax(-1).log()
    if p.normalise == "none":
        found = found if keep is None else found.masked_fill(~keep, -torch.inf)
        return found.exp() @ p.v, found.logsumexp(-1)
    assert keep is not None
    nothing = ~keep.any(-1, keepdim=True)  # such a query attends to all, and its output is dropped
    found = found.masked_fill(~(keep | nothing), -torch.inf)
    weights = found.softmax(-1)
    lse = (found.amax(-1) - weights.amax(-1).log()).masked_fill(nothing[..., 0], -torch.inf)
    return (weights @ p.v).masked_fill(nothing, 0), lse


class _Streamed(torch.autograd.Function):
    """(out, lse) of a problem. Its backward, chunk by chunk, with P the weights and O the output:

    dV = Pᵀ dO;  d logits = P ⊙ (dO Vᵀ − rowsum(dO ⊙ O) + d lse);  the score's own autograd does the rest.
    """

    @staticmethod
    def forward(ctx, p: Problem, chunk: int, *tensors):
        parts = [_forward(p.rows(at.start, at.stop)) for at in _chunks(p.n, chunk)]
        out, lse = (torch.cat(side, 2) for side in zip(*parts, strict=True))
        ctx.save_for_backward(*tensors, out, lse)
        ctx.p, ctx.chunk = p, chunk
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_out, d_lse):  # pyright: ignore[reportIncompatibleMethodOverride]
        tensors: list[Any]
        *tensors, out, lse = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        # inputs become leaves of a graph of their own; what is learned already lies at the edge of it
        tensors = [
            t if t is None or i >= len(_INPUTS) else t.detach().requires_grad_(needed[i]) for i, t in enumerate(tensors)
        ]
        p = replace(ctx.p, **dict(zip(_INPUTS, tensors[: len(_INPUTS)], strict=True)))
        normalised = p.normalise == "softmax"
        mean = (d_out * out).sum(-1, keepdim=True) if normalised else None
        through_sums = bool(d_lse.any())
        d_v = torch.zeros_like(p.v)
        wanted = [i for i, t in enumerate(tensors) if needed[i] and t is not p.v]
        grads: list[Any] = [None] * len(tensors)
        for at in _chunks(p.n, ctx.chunk):
            with torch.enable_grad():
                found, keep = reference.logits(p.rows(at.start, at.stop))
            weights = found.detach() - lse[:, :, at, None] if normalised else found.detach().clone()
            weights.exp_()
            if keep is not None:
                weights.masked_fill_(~keep, 0)
            d_v += weights.mT @ d_out[:, :, at]
            d_found = d_out[:, :, at] @ p.v.detach().mT
            if mean is not None:
                d_found -= mean[:, :, at]
            d_found *= weights
            if through_sums:
                share = weights if normalised else (found.detach() - lse[:, :, at, None]).exp()
                d_found += d_lse[:, :, at, None] * (share if keep is None else share.masked_fill(~keep, 0))
            if found.requires_grad and wanted:
                parts = torch.autograd.grad(found, [tensors[i] for i in wanted], d_found, allow_unused=True)
                for i, part in zip(wanted, parts, strict=True):
                    if part is not None:
                        grads[i] = part if grads[i] is None else grads[i] + part
        grads[_INPUTS.index("v")] = d_v
        return None, None, *grads
