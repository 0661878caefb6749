"""Bounded memory for any score: queries in chunks, each recomputed in the backward pass.

Peak memory is set by `chunk` (queries at a time): what is kept is the inputs and the output, never n × m.
"""

import torch
from torch.utils.checkpoint import checkpoint

from fillin.attention.backends import reference
from fillin.attention.problem import Problem, Result

# Numbers of one kind alive at once (logits, or hidden units of pairs) where the caller names no chunk: 2 MB in float32,
# which stays in the cache between one pass over it and the next.
_LOGITS = 1 << 19


def unfit(problem: Problem) -> str | None:
    return None


def run(p: Problem, chunk: int | None = None, lse: bool = False) -> Result:
    heads = p.v.shape[1]
    chunk = chunk or max(1, _LOGITS * p.n * heads // max(1, p.pairs * max(heads, p.score.channels)))
    if chunk >= p.n:
        return _recomputed(p, lse)
    parts = [_recomputed(p.rows(start, min(start + chunk, p.n)), lse) for start in range(0, p.n, chunk)]
    sums = torch.cat([r.lse for r in parts], -1) if lse else None  # type: ignore[misc]
    return Result(torch.cat([r.out for r in parts], -2), sums)


def _recomputed(p: Problem, lse: bool) -> Result:
    def forward(problem: Problem):
        result = reference.run(problem, lse)
        return result.out, result.lse

    if not torch.is_grad_enabled():
        return Result(*forward(p))
    return Result(*checkpoint(forward, p, use_reentrant=False, preserve_rng_state=False))  # type: ignore[misc]
