"""Windows on a GPU: torch's FlexAttention, told which blocks of queries and keys can meet at all.

Points are sorted along a space-filling curve, cut into blocks, and a block of queries is given those blocks of keys
whose boxes lie within the window's reach. What is inside a block is decided pair by pair. On a GPU this is compiled;
elsewhere it runs as plain torch, slowly, and is there to be compared with the reference.
"""

import warnings
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import pad

from fillin.attention.backends import fused
from fillin.attention.problem import Problem, Result

_BLOCK = 128


def unfit(p: Problem) -> str | None:
    if p.span is None or p.xq is None or p.xk is None:
        return "it is for windows over places"
    if p.span.threshold == 0:
        return "a window without a threshold leaves nothing out"
    if p.v.dtype == torch.float64 and p.v.is_cuda:
        return "FlexAttention takes float32 and below"
    if p.mask is not None and (p.mask.ndim > 1 and any(s != 1 for s in p.mask.shape[-3:-1])):
        return "it takes masks over keys alone, [b 1 1 m]"
    if p.xq.requires_grad or p.xk.requires_grad:
        return "it gives no gradient to places"
    if p.causal or p.normalise != "softmax":
        return "it takes no causal order, and always normalises"
    if None in fused.folds(p):
        return f"the score {type(p.score).__name__} is not made of columns of q and k"
    return None


def curve(x: Float[Tensor, "b n dx"]) -> Int64[Tensor, "b n"]:
    """The order of points along a Z-curve: bits of their coordinates, interleaved."""
    dim_x = x.shape[-1]
    depth = 62 // dim_x if dim_x > 2 else 20
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    cells = ((x - low) / (high - low).clamp_min(torch.finfo(x.dtype).tiny) * (2**depth - 1)).long()
    code = torch.zeros_like(cells[..., 0])
    for bit in range(depth):
        for d in range(dim_x):
            code |= (cells[..., d] >> bit & 1) << (bit * dim_x + d)
    return code.argsort(1)


def near(
    xq: Float[Tensor, "b n dx"], xk: Float[Tensor, "b m dx"], reach: Float[Tensor, "h dx"]
) -> Bool[Tensor, "b h q k"]:
    """Which blocks of sorted queries and keys may hold a pair with |Δ_d| ≤ reach_d in every dimension."""

    def boxes(x: Tensor) -> tuple[Tensor, Tensor]:
        short = -x.shape[1] % _BLOCK
        parts = torch.cat([x, x[:, -1:].expand(-1, short, -1)], 1).unflatten(1, (-1, _BLOCK))
        return parts.amin(2), parts.amax(2)

    (low_q, high_q), (low_k, high_k) = boxes(xq), boxes(xk)
    gap = torch.maximum(low_q[:, :, None] - high_k[:, None], low_k[:, None] - high_q[:, :, None])  # [b q k dx]
    return (gap[:, None] <= reach[:, None, None] * (1 + 1e-5)).all(-1)


@cache
def _attention(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention  # slow to import, and seldom needed

    if compiled:
        return torch.compile(flex_attention, dynamic=True)

    def plain(*args: Any, **options: Any) -> Any:
        with warnings.catch_warnings():  # it says that it is slow here, which we know
            warnings.filterwarnings("ignore", message="flex_attention called without", category=UserWarning)
            return flex_attention(*args, **options)

    return plain


def run(p: Problem, lse: bool = False) -> Result:
    from torch.nn.attention.flex_attention import AuxRequest, BlockMask

    span, xq, xk = p.span, p.xq, p.xk
    assert span is not None
    assert xq is not None
    assert xk is not None
    b, h, m, e = p.v.shape
    order_q, order_k = curve(xq), curve(xk)
    at_q, at_k = (x.gather(1, o[..., None].expand_as(x)) for x, o in ((xq, order_q), (xk, order_k)))
    inverse = span.inverse(xq.shape[-1]).expand(h, -1, -1)
    keep = None if p.mask is None else p.mask.expand(b, 1, 1, m)[:, 0, 0].gather(1, order_k)
    columns = [f for f in fused.folds(p) if f is not None]
    q, k = (torch.cat([f[side].expand(b, h, -1, -1) for f in columns], -1) for side in (0, 1))
    width = max(16, 1 << (max(q.shape[-1], e) - 1).bit_length())  # FlexAttention wants powers of two
    q, k, v = (pad(_sorted(t, o), (0, width - t.shape[-1])) for t, o in ((q, order_q), (k, order_k), (p.v, order_k)))

    def window(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        delta = at_q[batch, i] - at_k[batch, j]
        squares = (inverse[head] @ delta).square()
        g, t = (-0.5 * squares.sum()).exp(), span.threshold
        parts = (-0.5 * squares).exp() if span.shape == "box" else g[None]
        inside = (parts > t).all()
        score = score * g if span.modulate == "scores" else score
        if span.cut == "continuous":
            above = torch.where(parts > t, parts - t, 1 - t)
            score = score + (above.clamp_min(torch.finfo(above.dtype).tiny) / (1 - t)).log().sum()
        elif span.modulate == "weights":
            score = score - 0.5 * squares.sum()
        if keep is not None:
            inside = inside & keep[batch, j]
        return torch.where(inside, score, -torch.inf)

    blocks = near(at_q.detach(), at_k.detach(), span.reach().detach().expand(h, xq.shape[-1]))
    mask = BlockMask.from_kv_blocks(
        blocks.sum(-1, dtype=torch.int32), blocks.int().argsort(dim=-1, descending=True, stable=True).int(),
        BLOCK_SIZE=_BLOCK, seq_lengths=(p.n, m),
    )  # fmt: skip
    attention = _attention(p.v.is_cuda)
    out, extra = attention(q, k, v, score_mod=window, block_mask=mask, scale=1.0, return_aux=AuxRequest(lse=True))
    sums = extra.lse
    nothing = sums == -torch.inf  # a query that may attend to nothing
    out = out[..., :e].masked_fill(nothing[..., None], 0)
    back = order_q.argsort(1)
    return Result(_sorted(out, back), _sorted(sums[..., None], back)[..., 0] if lse else None)


def _sorted(t: Float[Tensor, "b h n d"], order: Int64[Tensor, "b n"]) -> Float[Tensor, "b h n d"]:
    return t.gather(2, order[:, None, :, None].expand_as(t))
