"""torch's fused attention. Terms of the score that fold become columns of q and k; the others become a bias.

It is a softmax over (q'·k' + bias). Where every term folds there is no bias, no tensor over pairs, and memory is O(n).
"""

import math
from collections.abc import Collection

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from fillin.attention.problem import AttentionProblem, AttentionResult, Backend
from fillin.attention.scores import DotProduct, Folded


def fold_terms(p: AttentionProblem) -> list[Folded | None]:
    """Fold each term of the score into columns; None where it must be a bias. Locations are centred first."""
    xq, xk = p.xq, p.xk
    if xq is not None and xk is not None and xk.shape[1]:
        centre = (xk.amin(1, keepdim=True) + xk.amax(1, keepdim=True)) / 2
        xq, xk = xq - centre, xk - centre
    return [term.fold(p.q, p.k, xq, xk) for term in p.score.terms]


def is_dot_product(p: AttentionProblem) -> bool:
    """Return whether the logits are q·k/√d alone, which torch computes from q and k as they are."""
    return type(p.score) is DotProduct and p.span is None


def join_columns(p: AttentionProblem, folded: list[Folded]) -> tuple[Tensor, Tensor]:
    """Concatenate the columns of folded terms to q' [b h n _] and k' [b h m _]."""
    b, h = p.v.shape[:2]
    q, k = ([columns[side].expand(b, h, -1, -1) for columns in folded] for side in (0, 1))
    return (q[0], k[0]) if len(folded) == 1 else (torch.cat(q, -1), torch.cat(k, -1))  # torch copies even one tensor


class FusedBackend(Backend):
    """`scaled_dot_product_attention` on folded scores."""

    provides = frozenset()

    def unfit(self, problem: AttentionProblem) -> str | None:
        if problem.normalise != "softmax":
            return "fused attention always normalises"
        if problem.span is not None and problem.span.modulate == "scores":
            return "a window that multiplies logits cannot be written as a bias"
        return None

    def run(self, problem: AttentionProblem, want: Collection[str] = ()) -> AttentionResult:
        p, plain = problem, is_dot_product(problem)
        folded = [] if plain else fold_terms(p) if p.folded is None else p.folded
        b, h, m, e = p.v.shape
        columns = [term for term in folded if term is not None]
        unfolded = [] if plain else [t for t, columns in zip(p.score.terms, folded, strict=True) if columns is None]
        scale = 1.0
        if plain and p.q is not None and p.k is not None:
            q, k, scale = p.q, p.k, 1 / math.sqrt(p.q.shape[-1])
        elif columns:
            q, k = join_columns(p, columns)
        else:  # fused attention needs a column; zeros add nothing to the bias
            q, k = p.v.new_zeros(b, h, p.n, 1), p.v.new_zeros(b, h, m, 1)

        delta = p.displacements() if unfolded or p.span is not None else None
        bias, empty = sum((term(p.q, p.k, delta) for term in unfolded), start=p.v.new_zeros(())), None
        bias, allowed = p.apply_window(bias, delta)
        bias = None if delta is None else bias
        if allowed is not None:  # a query without keys attends to all of them, and its output is dropped
            empty = ~allowed.any(-1, keepdim=True)
            allowed = allowed | empty
            bias = allowed if bias is None else bias.masked_fill(~allowed, -torch.inf)
        if bias is not None and bias.ndim < 2:
            bias = bias.expand(p.n, m)

        # torch stores no tensor over pairs only where q, k and v have the same width
        width = max(q.shape[-1], e)
        q, k, v = (pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in (q, k, p.v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)[..., :e]
        return AttentionResult(out if empty is None else out.masked_fill(empty, 0))
