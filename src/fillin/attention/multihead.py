"""Projections around attend(): self- and cross-attention in one class."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention.attend import attend
from fillin.attention.scores import DotProduct, Score
from fillin.attention.span import Span


class Memory(NamedTuple):
    """What can be attended to, already projected: it can be kept and grown while decoding step by step."""

    k: Float[Tensor, "b h m d"] | None
    v: Float[Tensor, "b h m d"]


class MultiHeadAttention(nn.Module):
    """concat_h(attend(x W_q, c W_k, c W_v)) W_o, for queries x and what they attend to, c (x itself by default).

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
        backend: str = "auto",
    ):
        super().__init__()
        head_dim = head_dim or max(1, dim // heads)
        self.heads, self.head_dim, self.backend = heads, head_dim, backend
        self.score, self.span = score or DotProduct(), span
        inner, content = heads * head_dim, self.score.content
        self.to_q = nn.Linear(dim, inner, bias=False) if content else None
        self.to_k = nn.Linear(dim_keys or dim, inner, bias=False) if content else None
        self.to_v = nn.Linear(dim_values or dim_keys or dim, inner, bias=False)
        self.to_out = nn.Linear(inner, dim)

    def queries(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b h n d"] | None:
        return None if self.to_q is None else self._split(self.to_q(x))

    def memory(self, keys: Float[Tensor, "b m c"], values: Float[Tensor, "b m e"] | None = None) -> Memory:
        """Keys and values of what is attended to."""
        if self.to_k is None:
            return Memory(None, self._split(self.to_v(keys if values is None else values)))
        if values is not None:
            return Memory(self._split(self.to_k(keys)), self._split(self.to_v(values)))
        both = nn.functional.linear(keys, torch.cat([self.to_k.weight, self.to_v.weight]))
        k, v = both.unflatten(-1, (2 * self.heads, self.head_dim)).transpose(1, 2).chunk(2, 1)
        return Memory(k, v)

    def join(self, out: Float[Tensor, "b h n d"]) -> Float[Tensor, "b n c"]:
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
        memory = context if isinstance(context, Memory) else self.memory(x if context is None else context, values)
        xk = xq if xk is None and context is None else xk
        out = attend(
            self.queries(x), memory.k, memory.v, xq=xq, xk=xk, score=self.score, span=self.span,
            mask=mask, causal=causal, backend=self.backend,
        )  # fmt: skip
        return self.join(out)
