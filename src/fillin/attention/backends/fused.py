"""torch's fused attention. What separates becomes columns of q and k; what does not becomes a bias.

A softmax over (q'·k' + bias): with every term folded there is no bias, nothing pairwise is stored, and memory is O(n).
"""

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from fillin.attention.problem import Problem, Result
from fillin.attention.scores import Folded


def unfit(p: Problem) -> str | None:
    if p.normalise != "softmax":
        return "fused attention always normalises"
    if p.span is not None and p.span.modulate == "scores":
        return "a window that multiplies logits is no bias"
    return None


def folds(p: Problem) -> list[Folded | None]:
    """For each term of the score its columns, or None where it must be a bias. Places are centred first."""
    xq, xk = p.xq, p.xk
    if xq is not None and xk is not None and xk.shape[1]:
        centre = (xk.amin(1, keepdim=True) + xk.amax(1, keepdim=True)) / 2
        xq, xk = xq - centre, xk - centre
    return [term.fold(p.q, p.k, xq, xk) for term in p.score.terms]


def run(p: Problem, folded: list[Folded | None] | None = None) -> Result:
    folded = folds(p) if folded is None else folded
    b, h, m, e = p.v.shape
    columns = [f for f in folded if f is not None]
    rest = [term for term, f in zip(p.score.terms, folded, strict=True) if f is None]
    if columns:
        q = torch.cat([f[0].expand(b, h, -1, -1) for f in columns], -1)
        k = torch.cat([f[1].expand(b, h, -1, -1) for f in columns], -1)
    else:  # nothing folds: fused attention still wants a column, and zeros add nothing to the bias
        q, k = p.v.new_zeros(b, h, p.n, 1), p.v.new_zeros(b, h, m, 1)

    keep, bias, nothing = p.keep(), None, None
    if rest or p.span is not None:
        delta = p.delta()
        bias = sum((term(p.q, p.k, delta) for term in rest), start=p.v.new_zeros(()))
        if p.span is not None:
            bias, inside = p.span(bias, delta)
            if inside is not None:
                keep = inside if keep is None else inside & keep
    if keep is not None:  # a query that may attend to nothing attends to all, and its output is dropped
        nothing = ~keep.any(-1, keepdim=True)
        keep = keep | nothing
        bias = keep if bias is None else bias.masked_fill(~keep, -torch.inf)
    if bias is not None and bias.ndim < 2:
        bias = bias.expand(p.n, m)

    # torch takes the path that stores nothing pairwise only where q, k and v are equally wide
    width = max(q.shape[-1], e)
    q, k, v = (pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in (q, k, p.v))
    out = scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)[..., :e]
    return Result(out if nothing is None else out.masked_fill(nothing, 0))
