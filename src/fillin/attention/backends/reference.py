"""The truth: every logit, every weight, in plain sight. Any dtype, any score, any span."""

import torch
from torch import Tensor

from fillin.attention.problem import Problem, Result


def unfit(problem: Problem) -> str | None:
    return None


def logits(p: Problem) -> tuple[Tensor, Tensor | None]:
    """The logit of every pair [b h n m], window included, and which pairs may be attended (None: all)."""
    delta, keep = p.delta(), p.keep()
    found = p.score(p.q, p.k, delta).expand(*p.v.shape[:2], p.n, p.m)
    if p.span is not None:
        found, inside = p.span(found, delta)
        if inside is not None:
            keep = inside if keep is None else inside & keep
    return found, keep


def run(p: Problem, lse: bool = False) -> Result:
    """weight_ij = exp(logit_ij), out_i = Σ_j weight_ij v_j (/ Σ_j weight_ij where normalised)."""
    found, keep = logits(p)
    if keep is None:
        weights = found.softmax(-1) if p.normalise == "softmax" else found.exp()
        return Result(weights @ p.v, found.logsumexp(-1) if lse else None, weights)
    masked = found.masked_fill(~keep, -torch.inf)
    sums = masked.logsumexp(-1) if lse else None
    if p.normalise == "none":
        weights = masked.exp()
    else:  # a query that may attend to nothing: a softmax of anything but −∞, then zeros
        nothing = ~keep.any(-1, keepdim=True)
        weights = masked.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return Result(weights @ p.v, sums, weights)
