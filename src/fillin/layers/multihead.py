"""Projections around attend(): self- and cross-attention in one class."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention.attend import attend
from fillin.attention.scores import DotProduct, Score
from fillin.attention.span import Span
from fillin.errors import InputError


class Memory(NamedTuple):
    """What can be attended to, already projected: it can be kept and grown while decoding step by step."""

    k: Float[Tensor, "b h m d"] | None
    v: Float[Tensor, "b h m e"]


class MultiHeadAttention(nn.Module):
    """concat_h(attend(x W_q, c W_k, c W_v)) W_o, for queries x and what they attend to, c (x itself by default).

    With `offsets`, the number of dimensions of places, each head also tells how far away it looked: the mean
    displacement Σ_j w_ij x_j − x_i of what it attended to ("radial": its length). It costs dx + 1 more columns of the
    values, depends on displacements alone, and so keeps a model translation equivariant.

    Token width, head width and head count are independent. There are no key biases: they cancel in the softmax.
    `score` and `span` are this module's own; a score that reads no content builds no W_q and W_k.
    """

    def __init__(
        self,
        dim: int,
        heads: int = 8,
        head_dim: int | None = None,
        *,
        dim_keys: int | None = None,
        dim_values: int | None = None,
        score: Score | None = None,
        span: Span | None = None,
        offsets: int | Literal["radial"] | None = None,
        backend: str = "auto",
    ):
        super().__init__()
        self.offsets = offsets
        head_dim = head_dim or max(1, dim // heads)
        self.heads, self.head_dim, self.backend = heads, head_dim, backend
        self.score, self.span = score or DotProduct(), span
        inner, content = heads * head_dim, self.score.content
        self.to_q = nn.Linear(dim, inner, bias=False) if content else None
        self.to_k = nn.Linear(dim_keys or dim, inner, bias=False) if content else None
        self.to_v = nn.Linear(dim_values or dim_keys or dim, inner, bias=False)
        told = 0 if offsets is None else 1 if offsets == "radial" else offsets
        self.to_out = nn.Linear(inner + heads * told, dim)

    def queries(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b h n d"] | None:
        return None if self.to_q is None else self._split(self.to_q(x))

    def memory(
        self,
        keys: Float[Tensor, "b m c"],
        values: Float[Tensor, "b m e"] | None = None,
        xk: Float[Tensor, "b m dx"] | None = None,
    ) -> Memory:
        """Keys and values of what is attended to; with `offsets` the values hold their places too."""
        if self.to_k is None:
            k, v = None, self._split(self.to_v(keys if values is None else values))
        elif values is not None:
            k, v = self._split(self.to_k(keys)), self._split(self.to_v(values))
        else:
            both = nn.functional.linear(keys, torch.cat([self.to_k.weight, self.to_v.weight]))
            k, v = both.unflatten(-1, (2 * self.heads, self.head_dim)).transpose(1, 2).chunk(2, 1)
        if self.offsets is None:
            return Memory(k, v)
        where = torch.cat([_placed(xk), torch.ones_like(_placed(xk)[..., :1])], -1)
        return Memory(k, torch.cat([v, where[:, None].expand(-1, self.heads, -1, -1)], -1))

    def join(self, out: Float[Tensor, "b h n e"], xq: Float[Tensor, "b n dx"] | None = None) -> Float[Tensor, "b n c"]:
        """What the heads found, as one token each."""
        if self.offsets is not None:
            found, place, some = out.tensor_split([self.head_dim, out.shape[-1] - 1], -1)
            offset = place - some * _placed(xq)[:, None]  # `some` is 1, or 0 where there was nothing to attend to
            if self.offsets == "radial":
                offset = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
            out = torch.cat([found, offset], -1)
        return self.to_out(out.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        context: Float[Tensor, "b m k"] | Memory | None = None,
        values: Float[Tensor, "b m e"] | None = None,
        *,
        xq: Float[Tensor, "b n dx"] | None = None,
        xk: Float[Tensor, "b m dx"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "b n c"]:
        xk = xq if xk is None and context is None else xk
        memory = context if isinstance(context, Memory) else self.memory(x if context is None else context, values, xk)
        out = attend(
            self.queries(x), memory.k, memory.v, xq=xq, xk=xk, score=self.score, span=self.span,
            mask=mask, causal=causal, backend=self.backend,
        )  # fmt: skip
        return self.join(out, xq)


def _placed(x: Tensor | None) -> Tensor:
    if x is None:
        raise InputError("offsets: queries and keys must have places; pass xq and xk")
    return x
