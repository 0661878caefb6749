"""Bounded memory for any score: queries in chunks, whose weights are recomputed in the backward pass.

Inputs, output and lse are stored. Peak memory is set by the chunk.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fillin.attention.backends.reference import compute_logits
from fillin.attention.problem import AttentionProblem, AttentionResult, Backend

# Logits, or hidden units of pairs, of a chunk where the caller sets none: 2 MB in float32, which fit in the cache.
_MAX_NUMBERS_PER_CHUNK = 1 << 19
_INPUTS = ("q", "k", "v", "xq", "xk")


class StreamedBackend(Backend):
    """The reference on chunks of queries."""

    def run(self, problem: AttentionProblem, want: Collection[str] = ()) -> AttentionResult:
        chunk = problem.chunk or max(1, _MAX_NUMBERS_PER_CHUNK * problem.n // max(1, problem.n_stored))
        inputs = [getattr(problem, name) for name in _INPUTS]
        out, lse = _StreamedAttention.apply(problem, chunk, *inputs, *problem.learned_tensors)
        return AttentionResult(out, lse if "lse" in want else None)


def _attend_chunk(p: AttentionProblem) -> tuple[Tensor, Tensor]:
    """Output and lse of one chunk. The largest weight of a softmax is exp(largest logit − lse), which gives lse."""
    logits, allowed = compute_logits(p)
    if allowed is None and p.normalise == "softmax":
        weights = logits.softmax(-1)
        return weights @ p.v, logits.amax(-1) - weights.amax(-1).log()
    if p.normalise == "none":
        logits = logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)
        return logits.exp() @ p.v, logits.logsumexp(-1)
    assert allowed is not None
    empty = ~allowed.any(-1, keepdim=True)  # a query without keys attends to all of them, and its output is dropped
    logits = logits.masked_fill(~(allowed | empty), -torch.inf)
    weights = logits.softmax(-1)
    lse = (logits.amax(-1) - weights.amax(-1).log()).masked_fill(empty[..., 0], -torch.inf)
    return (weights @ p.v).masked_fill(empty, 0), lse


class _StreamedAttention(torch.autograd.Function):
    """(out, lse) of a problem. The backward pass of a chunk, with weights P and output O:

    dV = Pᵀ dO;  d logits = P ⊙ (dO Vᵀ − rowsum(dO ⊙ O) + d lse);  autograd of the score does the rest.
    """

    @staticmethod
    def forward(ctx, p: AttentionProblem, chunk: int, *tensors):
        results = [_attend_chunk(p.slice_queries(start, start + chunk)) for start in range(0, p.n, chunk)]
        out, lse = (torch.cat(chunks, 2) for chunks in zip(*results, strict=True))
        ctx.save_for_backward(*tensors, out, lse)
        ctx.p, ctx.chunk = p, chunk
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_out, d_lse):  # pyright: ignore[reportIncompatibleMethodOverride]
        tensors: list[Any]
        *tensors, out, lse = ctx.saved_tensors
        needs_grad = ctx.needs_input_grad[2:]
        # inputs become leaves of a new graph; learned tensors already are leaves of it
        tensors = [
            t if t is None or i >= len(_INPUTS) else t.detach().requires_grad_(needs_grad[i])
            for i, t in enumerate(tensors)
        ]
        p = replace(ctx.p, **dict(zip(_INPUTS, tensors[: len(_INPUTS)], strict=True)))
        normalised = p.normalise == "softmax"
        mean = (d_out * out).sum(-1, keepdim=True) if normalised else None
        through_lse = bool(d_lse.any())
        d_v = torch.zeros_like(p.v)
        differentiated = [i for i, t in enumerate(tensors) if needs_grad[i] and t is not p.v]
        grads: list[Any] = [None] * len(tensors)
        for start in range(0, p.n, ctx.chunk):
            rows = slice(start, start + ctx.chunk)
            with torch.enable_grad():
                logits, allowed = compute_logits(p.slice_queries(start, start + ctx.chunk))
            weights = logits.detach() - lse[:, :, rows, None] if normalised else logits.detach().clone()
            weights.exp_()
            if allowed is not None:
                weights.masked_fill_(~allowed, 0)
            d_v += weights.mT @ d_out[:, :, rows]
            d_logits = d_out[:, :, rows] @ p.v.detach().mT
            if mean is not None:
                d_logits -= mean[:, :, rows]
            d_logits *= weights
            if through_lse:
                softmax = weights if normalised else (logits.detach() - lse[:, :, rows, None]).exp()
                d_logits += d_lse[:, :, rows, None] * (softmax if allowed is None else softmax.masked_fill(~allowed, 0))
            if logits.requires_grad and differentiated:
                parts = torch.autograd.grad(logits, [tensors[i] for i in differentiated], d_logits, allow_unused=True)
                for i, part in zip(differentiated, parts, strict=True):
                    if part is not None:
                        grads[i] = part if grads[i] is None else grads[i] + part
        grads[_INPUTS.index("v")] = d_v
        return None, None, *grads
