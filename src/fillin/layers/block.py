"""Multilayer perceptron, multi-head attention, and the transformer block of both."""

from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention import DotProduct, LearnedPositions, Score, Span, attend
from fillin.errors import InputError, choose
from fillin.linear import LinearLayer, linear

QueryLocations = Float[Tensor, "b n dx"] | None
KeyLocations = Float[Tensor, "b m dx"] | None
Mask = Bool[Tensor, "..."] | None


def mlp(dim_in: int, dim_out: int, hidden: int, layers: int = 2) -> nn.Sequential:
    """relu(… relu(x W₁ + b₁) …) W + b with `layers` linear maps.

    >>> [type(layer).__name__ for layer in mlp(1, 2, 8)]
    ['LinearLayer', 'ReLU', 'LinearLayer']
    """
    sizes = [dim_in, *[hidden] * (layers - 1), dim_out]
    steps: list[nn.Module] = []
    for i, o in pairwise(sizes):
        steps += [LinearLayer(i, o), nn.ReLU(inplace=True)]
    return nn.Sequential(*steps[:-1])


class KeyValues(NamedTuple):
    """Projected keys and values, which can be cached and extended while decoding step by step."""

    k: Float[Tensor, "b h m d"] | None
    v: Float[Tensor, "b h m e"]


class MultiHeadAttention(nn.Module):
    """concat_h(attend(x W_q, c W_k, c W_v)) W_o, for queries x and context c (by default x itself).

    With `offsets` = dx, the number of dimensions of the locations, each head also returns the mean displacement
    Σ_j w_ij x_j − x_i of the keys that it attends to ("radial": its length). It takes dx + 1 more columns of the values
    and depends on displacements alone, so a model stays translation equivariant.

    With `relative_values`, a table of learned vectors a_c of the displacement, the output of a head is
    Σ_j w_ij (v_j + a_c(Δ_ij)) (Shaw et al. 2018, equation 3). It needs all weights, so `backend` is "auto" or
    "reference".

    Token width, head width and head count are independent. There are no key biases, since they cancel in the softmax.
    `score` and `span` are not shared with other modules. A score that reads no content needs no W_q and W_k.
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
        relative_values: LearnedPositions | None = None,
        backend: str = "auto",
    ):
        super().__init__()
        if offsets is not None and relative_values is not None:
            raise InputError("offsets and relative_values cannot be combined; drop one of them")
        self.offsets, self.relative_values = offsets, relative_values
        head_dim = head_dim or max(1, dim // heads)
        self.heads, self.head_dim, self.backend = heads, head_dim, backend
        self.score, self.span = score or DotProduct(), span
        inner, content = heads * head_dim, self.score.traits.content
        self.to_q = LinearLayer(dim, inner, bias=False) if content else None
        self.to_k = LinearLayer(dim_keys or dim, inner, bias=False) if content else None
        self.to_v = LinearLayer(dim_values or dim_keys or dim, inner, bias=False)
        offset_dim = 0 if offsets is None else 1 if offsets == "radial" else offsets
        self.to_out = LinearLayer(inner + heads * offset_dim, dim)

    def project_queries(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b h n d"] | None:
        return None if self.to_q is None else self._split(self.to_q(x))

    def project_context(
        self, keys: Float[Tensor, "b m c"], values: Float[Tensor, "b m e"] | None = None, xk: KeyLocations = None
    ) -> KeyValues:
        """Project a context to keys and values; with `offsets` the values include the locations."""
        if self.to_k is None:
            k, v = None, self._split(self.to_v(keys if values is None else values))
        elif values is not None:
            k, v = self._split(self.to_k(keys)), self._split(self.to_v(values))
        else:
            both = linear(keys, torch.cat([self.to_k.weight, self.to_v.weight]))
            k, v = both.unflatten(-1, (2 * self.heads, self.head_dim)).transpose(1, 2).chunk(2, 1)
        return KeyValues(k, self._append_locations(v, xk))

    def project_tokens(self, x: Float[Tensor, "b n c"], xk: KeyLocations = None) -> tuple[Tensor | None, KeyValues]:
        """Project tokens that attend to one another: queries, and keys with values, in one product."""
        if self.to_q is None or self.to_k is None:
            return self.project_queries(x), self.project_context(x, xk=xk)
        weights = torch.cat([self.to_q.weight, self.to_k.weight, self.to_v.weight])
        heads = linear(x, weights).unflatten(-1, (3 * self.heads, self.head_dim))
        q, k, v = heads.transpose(1, 2).chunk(3, 1)
        return q, KeyValues(k, self._append_locations(v, xk))

    def _append_locations(self, v: Float[Tensor, "b h m e"], xk: KeyLocations) -> Float[Tensor, "b h m _"]:
        """Append the columns from which `join_heads` computes offsets."""
        if self.offsets is None:
            return v
        if xk is None:
            raise InputError("offsets: queries and keys must have locations; pass xq and xk")
        location = torch.cat([xk, torch.ones_like(xk[..., :1])], -1)
        return torch.cat([v, location[:, None].expand(-1, self.heads, -1, -1)], -1)

    def join_heads(self, out: Float[Tensor, "b h n e"], xq: QueryLocations = None) -> Float[Tensor, "b n c"]:
        """Join the outputs of all heads to one token per query."""
        if self.offsets is not None:
            if xq is None:
                raise InputError("offsets: queries and keys must have locations; pass xq and xk")
            values, location, total = out.tensor_split([self.head_dim, out.shape[-1] - 1], -1)
            offset = location - total * xq[:, None]  # the total is 0 for a query without keys
            if self.offsets == "radial":
                offset = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
            out = torch.cat([values, offset], -1)
        return self.to_out(out.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        context: Float[Tensor, "b m k"] | KeyValues | None = None,
        values: Float[Tensor, "b m e"] | None = None,
        *,
        xq: QueryLocations = None,
        xk: KeyLocations = None,
        mask: Mask = None,
        causal: bool = False,
    ) -> Float[Tensor, "b n c"]:
        xk = xq if xk is None and context is None else xk
        if isinstance(context, KeyValues):
            q, (k, v) = self.project_queries(x), context
        elif context is None and values is None:
            q, (k, v) = self.project_tokens(x, xk)
        else:
            q, (k, v) = self.project_queries(x), self.project_context(x if context is None else context, values, xk)
        average = partial(
            attend, q, k, v, xq=xq, xk=xk, score=self.score, span=self.span,
            mask=mask, causal=causal, backend=self.backend,
        )  # fmt: skip
        if self.relative_values is None:
            return self.join_heads(average(), xq)
        if xq is None or xk is None:
            raise InputError("relative_values: queries and keys must have locations; pass xq and xk")
        out, weights = average(return_weights=True)
        delta = xq.mT[..., :, None] - xk.mT[..., None, :]
        return self.join_heads(out + self.relative_values.average(weights, delta))


class FeedForward(nn.Sequential):
    """relu(x W₁ + b₁) W₂ + b₂, token by token."""

    def __init__(self, dim: int, hidden: int, dropout: float = 0.0):
        drop = [nn.Dropout(dropout)] if dropout else []
        super().__init__(LinearLayer(dim, hidden), nn.ReLU(inplace=True), *drop, LinearLayer(hidden, dim))


class Block(nn.Module):
    """x ← x + attention(norm(x), norm(context)); x ← x + feed_forward(norm(x))    (norm="pre")
       x ← norm(x + attention(x, context)); x ← norm(x + feed_forward(x))          (norm="post")

    Without a context, tokens attend to one another. With one, both share a norm, so that a target can attend to context
    tokens of the same stack (TNP). `cross=True` gives the context its own norm, for contexts of another kind (data that
    latents read).
    """  # fmt: skip

    def __init__(
        self,
        dim: int,
        heads: int = 8,
        head_dim: int | None = None,
        *,
        hidden: int | None = None,
        norm: str = "pre",
        cross: bool = False,
        dropout: float = 0.0,
        score: Score | None = None,
        span: Span | None = None,
        offsets: int | Literal["radial"] | None = None,
        relative_values: LearnedPositions | None = None,
        backend: str = "auto",
    ):
        super().__init__()
        self.pre = choose("norm", norm, ["pre", "post"]) == "pre"
        self.attention = MultiHeadAttention(
            dim, heads, head_dim, score=score, span=span, offsets=offsets, relative_values=relative_values,
            backend=backend,
        )  # fmt: skip
        self.feed_forward = FeedForward(dim, hidden or 2 * dim, dropout)
        self.norm_attention, self.norm_feed = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.norm_context = nn.LayerNorm(dim) if cross and self.pre else None
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def project_context(self, context: Float[Tensor, "b m c"], xk: KeyLocations = None) -> KeyValues:
        """Project `context` to the keys and values of this block, to be cached while decoding step by step."""
        if self.pre:
            context = (self.norm_context or self.norm_attention)(context)
        return self.attention.project_context(context, xk=xk)

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        context: Float[Tensor, "b m c"] | KeyValues | None = None,
        *,
        xq: QueryLocations = None,
        xk: KeyLocations = None,
        mask: Mask = None,
        causal: bool = False,
    ) -> Float[Tensor, "b n c"]:
        z = self.norm_attention(x) if self.pre else x
        projected = context
        if context is not None and not isinstance(context, KeyValues):
            projected = self.project_context(context, xk)
        return self.finish(x, self.attention(z, projected, xq=xq, xk=xk, mask=mask, causal=causal))

    def finish(self, x: Float[Tensor, "b n c"], attended: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        """Add the output of attention to its queries, then apply the feed-forward network."""
        x = x + self.dropout(attended)
        if self.pre:
            return x + self.dropout(self.feed_forward(self.norm_feed(x)))
        x = self.norm_attention(x)
        return self.norm_feed(x + self.dropout(self.feed_forward(x)))
