"""The reference: every logit and every weight in plain torch, for any dtype, score and span."""

from collections.abc import Collection

import torch
from torch import Tensor

from fillin.attention.problem import AttentionProblem, AttentionResult, Backend


def compute_logits(p: AttentionProblem) -> tuple[Tensor, Tensor | None]:
    """Return the logits [b h n m] with the window applied, and the mask of allowed pairs (None: all)."""
    delta = p.displacements()
    return p.apply_window(p.score(p.q, p.k, delta).expand(*p.v.shape[:2], p.n, p.m), delta)


class ReferenceBackend(Backend):
    """weight_ij = exp(logit_ij), out_i = Σ_j weight_ij v_j (/ Σ_j weight_ij where normalised)."""

    provides = frozenset({"lse", "weights"})

    def run(self, problem: AttentionProblem, want: Collection[str] = ()) -> AttentionResult:
        p, (logits, allowed) = problem, compute_logits(problem)
        if allowed is None:
            weights = logits.softmax(-1) if p.normalise == "softmax" else logits.exp()
            return AttentionResult(weights @ p.v, logits.logsumexp(-1) if "lse" in want else None, weights)
        masked = logits.masked_fill(~allowed, -torch.inf)
        lse = masked.logsumexp(-1) if "lse" in want else None
        if p.normalise == "none":
            weights = masked.exp()
        else:  # a query without keys: a softmax of finite numbers, then zeros, so that no NaN reaches the gradient
            empty = ~allowed.any(-1, keepdim=True)
            weights = masked.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
        return AttentionResult(weights @ p.v, lse, weights)
