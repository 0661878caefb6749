"""Multilayer perceptron, multi-head attention, the transformer block of both, and transformers on sequences."""

from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fillin.attention import DotProduct, Score, Sinusoid, Span, attend, expand_key_mask
from fillin.errors import InputError, choose
from fillin.linear import LinearLayer, linear

QueryLocations = Float[Tensor, "b n dx"] | None
KeyLocations = Float[Tensor, "b m dx"] | None
Mask = Bool[Tensor, "..."] | None
Sequence = Float[Tensor, "b n c"]
Memory = Float[Tensor, "b m c"]


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
        backend: str = "auto",
    ):
        super().__init__()
        self.offsets = offsets
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
        out = attend(
            q, k, v, xq=xq, xk=xk, score=self.score, span=self.span,
            mask=mask, causal=causal, backend=self.backend,
        )  # fmt: skip
        return self.join_heads(out, xq)


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
        backend: str = "auto",
    ):
        super().__init__()
        self.pre = choose("norm", norm, ["pre", "post"]) == "pre"
        self.attention = MultiHeadAttention(
            dim, heads, head_dim, score=score, span=span, offsets=offsets, backend=backend
        )
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
        x = x + self.dropout(self.attention(z, projected, xq=xq, xk=xk, mask=mask, causal=causal))
        if self.pre:
            return x + self.dropout(self.feed_forward(self.norm_feed(x)))
        x = self.norm_attention(x)
        return self.norm_feed(x + self.dropout(self.feed_forward(x)))


class Encoder(nn.Module):
    """A stack of blocks in which every token attends to every token, with a final norm where norm="pre"."""

    def __init__(self, dim: int, heads: int, layers: int, norm: str = "pre"):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, heads, norm=norm) for _ in range(layers))
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(self, x: Sequence, mask: Bool[Tensor, "b n"] | None = None) -> Sequence:
        for block in self.blocks:
            x = block(x, mask=expand_key_mask(mask))
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Causal self-attention, then a `Block` that attends to the encoder's output."""

    def __init__(self, dim: int, heads: int, norm: str = "pre"):
        super().__init__()
        self.pre = norm == "pre"
        self.norm, self.past = nn.LayerNorm(dim), MultiHeadAttention(dim, heads)
        self.cross = Block(dim, heads, norm=norm, cross=True)

    def forward(self, x: Sequence, memory: Memory, mask: Bool[Tensor, "b m"] | None = None) -> Sequence:
        x = x + self.past(self.norm(x), causal=True) if self.pre else self.norm(x + self.past(x, causal=True))
        return self.cross(x, memory, mask=expand_key_mask(mask))


class Decoder(nn.Module):
    """A stack of decoder layers: token i attends to tokens ≤ i and to the whole memory."""

    def __init__(self, dim: int, heads: int, layers: int, norm: str = "pre"):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, norm) for _ in range(layers))
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(self, x: Sequence, memory: Memory, mask: Bool[Tensor, "b m"] | None = None) -> Sequence:
        for layer in self.layers:
            x = layer(x, memory, mask)
        return self.norm(x)


class Seq2Seq(nn.Module):
    """Translation model: embeddings + sinusoids, encoder, decoder, logits over the vocabulary (Vaswani et al. 2017).
    `forward` uses teacher forcing: the decoder reads the true words so far. `greedy` decodes: it reads its own."""

    def __init__(self, vocabulary: int, dim: int = 64, heads: int = 4, layers: int = 2, norm: str = "pre"):
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocabulary, dim), Sinusoid(dim)
        self.encoder = Encoder(dim, heads, layers, norm=norm)
        self.decoder = Decoder(dim, heads, layers, norm=norm)
        self.out = LinearLayer(dim, vocabulary)

    def _embed(self, words: Int[Tensor, "b n"]) -> Sequence:
        embedded = self.embed(words)
        position = torch.arange(words.shape[1], device=words.device, dtype=embedded.dtype)
        return embedded + self.positions(position[:, None])

    def forward(self, source: Int[Tensor, "b m"], target: Int[Tensor, "b n"]) -> Float[Tensor, "b n vocabulary"]:
        """Return the logits of the word that follows each word of `target`."""
        return self.out(self.decoder(self._embed(target), self.encoder(self._embed(source))))

    @torch.no_grad()
    def greedy(self, source: Int[Tensor, "b m"], start: int, length: int) -> Int[Tensor, "b length"]:
        """Decode `length` words greedily, beginning after the word `start`."""
        memory = self.encoder(self._embed(source))
        words = torch.full((len(source), 1), start, dtype=source.dtype, device=source.device)
        for _ in range(length):
            logits = self.out(self.decoder(self._embed(words), memory)[:, -1])
            words = torch.cat([words, logits.argmax(-1, keepdim=True).to(words.dtype)], 1)
        return words[:, 1:]
