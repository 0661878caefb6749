"""Windows on a GPU: torch's FlexAttention, restricted to blocks of queries and keys that can interact.

Points are sorted along a space-filling curve and cut into blocks. A block of queries visits the blocks of keys whose
bounding boxes lie within the window; inside a block each pair is tested. On a GPU this is compiled. Elsewhere it runs
as plain torch, slowly, for comparison with the reference.
"""

import warnings
from collections.abc import Collection
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import pad

from fillin.attention.backends.fused import fold_terms, join_columns
from fillin.attention.problem import AttentionProblem, AttentionResult, Backend

_BLOCK = 128


def sort_along_curve(x: Float[Tensor, "b n dx"]) -> Int64[Tensor, "b n"]:
    """Order the points along a Z-curve: interleave the bits of their coordinates."""
    dim_x = x.shape[-1]
    depth = 62 // dim_x if dim_x > 2 else 20
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    cells = ((x - low) / (high - low).clamp_min(torch.finfo(x.dtype).tiny) * (2**depth - 1)).long()
    code = torch.zeros_like(cells[..., 0])
    for bit in range(depth):
        for d in range(dim_x):
            code |= (cells[..., d] >> bit & 1) << (bit * dim_x + d)
    return code.argsort(1)


def find_near_blocks(
    xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"], reach: Float[Tensor, "h dx"]
) -> Bool[Tensor, "b h q k"]:
    """Mark the blocks of sorted queries and keys that may hold a pair with |Δ_d| ≤ reach_d in every dimension."""

    padded = (torch.cat([x, x[:, -1:].expand(-1, -x.shape[1] % _BLOCK, -1)], 1) for x in (xq, xk))
    blocks = [x.unflatten(1, (-1, _BLOCK)) for x in padded]
    (low_q, high_q), (low_k, high_k) = ((block.amin(2), block.amax(2)) for block in blocks)
    gap = torch.maximum(low_q[:, :, None] - high_k[:, None], low_k[:, None] - high_q[:, :, None])  # [b q k dx]
    return (gap[:, None] <= reach[:, None, None] * (1 + 1e-5)).all(-1)


@cache
def _flex_attention(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention  # slow to import, and seldom needed

    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention


class FlexBackend(Backend):
    """FlexAttention with the window as a modification of the score."""

    def unfit(self, problem: AttentionProblem) -> str | None:
        p = problem
        if p.span is None or p.xq is None or p.xk is None:
            return "it needs a window over locations: pass span, xq and xk"
        if p.span.threshold == 0:
            return "a window without a threshold drops no pairs"
        if p.v.dtype == torch.float64 and p.v.is_cuda:
            return "FlexAttention takes float32 and below"
        if p.has_pair_mask:
            return "it takes masks over keys alone, [b 1 1 m]"
        if p.xq.requires_grad or p.xk.requires_grad:
            return "it computes no gradient to locations"
        if p.causal or p.normalise != "softmax":
            return "it takes no causal order, and always normalises"
        if None in fold_terms(p):
            return f"the score {type(p.score).__name__} does not fold into columns of q and k"
        return None

    def run(self, problem: AttentionProblem, want: Collection[str] = ()) -> AttentionResult:
        from torch.nn.attention.flex_attention import AuxRequest, BlockMask

        p, span, xq, xk = problem, problem.span, problem.xq, problem.xk
        assert span is not None and xq is not None and xk is not None  # noqa: PT018
        b, h, m, e = p.v.shape
        order_q, order_k = sort_along_curve(xq), sort_along_curve(xk)
        sorted_xq, sorted_xk = (x.gather(1, o[..., None].expand_as(x)) for x, o in ((xq, order_q), (xk, order_k)))
        inverse = span.inverse(xq.shape[-1]).expand(h, -1, -1)
        allowed = None if p.mask is None else p.mask.expand(b, 1, 1, m)[:, 0, 0].gather(1, order_k)
        q, k = join_columns(p, [columns for columns in fold_terms(p) if columns is not None])
        width = max(16, 1 << (max(q.shape[-1], e) - 1).bit_length())  # FlexAttention needs powers of two
        q, k, v = (pad(_sort(t, o), (0, width - t.shape[-1])) for t, o in ((q, order_q), (k, order_k), (p.v, order_k)))

        def apply_window(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            delta = sorted_xq[batch, i] - sorted_xk[batch, j]
            squares = (inverse[head] @ delta).square()
            g, t = (-0.5 * squares.sum()).exp(), span.threshold
            factors = (-0.5 * squares).exp() if span.shape == "box" else g[None]
            inside = (factors > t).all()
            score = score * g if span.modulate == "scores" else score
            if span.cut == "continuous":
                above = torch.where(factors > t, factors - t, 1 - t)
                score = score + (above.clamp_min(torch.finfo(above.dtype).tiny) / (1 - t)).log().sum()
            elif span.modulate == "weights":
                score = score - 0.5 * squares.sum()
            if allowed is not None:
                inside = inside & allowed[batch, j]
            return torch.where(inside, score, -torch.inf)

        blocks = find_near_blocks(sorted_xq.detach(), sorted_xk.detach(), span.reach().detach().expand(h, xq.shape[-1]))
        mask = BlockMask.from_kv_blocks(
            blocks.sum(-1, dtype=torch.int32), blocks.int().argsort(dim=-1, descending=True, stable=True).int(),
            BLOCK_SIZE=_BLOCK, seq_lengths=(p.n, m),
        )  # fmt: skip
        with warnings.catch_warnings():  # torch warns that it is slow where it is not compiled
            warnings.filterwarnings("ignore", message="flex_attention called without", category=UserWarning)
            out, aux = _flex_attention(p.v.is_cuda)(
                q, k, v, score_mod=apply_window, block_mask=mask, scale=1.0, return_aux=AuxRequest(lse=True)
            )
        out = out[..., :e].masked_fill((aux.lse == -torch.inf)[..., None], 0)  # a query without keys
        original = order_q.argsort(1)
        lse = _sort(aux.lse[..., None], original)[..., 0] if "lse" in want else None
        return AttentionResult(_sort(out, original), lse)


def _sort(t: Float[Tensor, "b h n d"], order: Int64[Tensor, "b n"]) -> Float[Tensor, "b h n d"]:
    return t.gather(2, order[:, None, :, None].expand_as(t))
