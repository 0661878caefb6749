"""The truth: every logit, every weight, in plain sight. Any dtype, any score, any span."""

import torch

from fillin.attention.problem import Problem, Result


def unfit(problem: Problem) -> str | None:
    return None


def run(p: Problem, lse: bool = False) -> Result:
    """weight_ij = exp(logit_ij), out_i = Σ_j weight_ij v_j (/ Σ_j weight_ij where normalised)."""
    delta, keep = p.delta(), p.keep()
    logits = p.score(p.q, p.k, delta).expand(*p.v.shape[:2], p.n, p.m)
    if p.span is not None:
        logits, inside = p.span(logits, delta)
        if inside is not None:
            keep = inside if keep is None else inside & keep
    if keep is not None:
        logits = logits.masked_fill(~keep, -torch.inf)

    if p.normalise == "none":
        weights = logits.exp()
    elif keep is None and p.m > 0:
        weights = logits.softmax(-1)
    else:  # a query that may attend to nothing gets zeros: its row of logits is replaced before the softmax
        nothing = (logits == -torch.inf).all(-1, keepdim=True)
        weights = logits.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return Result(weights @ p.v, logits.logsumexp(-1) if lse else None, weights)
