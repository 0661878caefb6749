"""The transformer block: attention, then a feed-forward network, each with a residual and a layer norm."""

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention.scores import Score
from fillin.attention.span import Span
from fillin.errors import choose
from fillin.layers.multihead import KeyValues, MultiHeadAttention


class FeedForward(nn.Sequential):
    """relu(x W₁ + b₁) W₂ + b₂, token by token."""

    def __init__(self, dim: int, hidden: int, dropout: float = 0.0):
        drop = [nn.Dropout(dropout)] if dropout else []
        super().__init__(nn.Linear(dim, hidden), nn.ReLU(inplace=True), *drop, nn.Linear(hidden, dim))


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

    def project_context(self, context: Float[Tensor, "b m c"], xk: Float[Tensor, "b m dx"] | None = None) -> KeyValues:
        """Project `context` to the keys and values of this block, to be cached while decoding step by step."""
        if self.pre:
            context = (self.norm_context or self.norm_attention)(context)
        return self.attention.project_context(context, xk=xk)

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        context: Float[Tensor, "b m c"] | KeyValues | None = None,
        *,
        xq: Float[Tensor, "b n dx"] | None = None,
        xk: Float[Tensor, "b m dx"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "b n c"]:
        z = self.norm_attention(x) if self.pre else x
        if context is None:
            xk = xq if xk is None else xk
            projected = self.attention.project_context(z, xk=xk)
        else:
            projected = context if isinstance(context, KeyValues) else self.project_context(context, xk)
        x = x + self.dropout(self.attention(z, projected, xq=xq, xk=xk, mask=mask, causal=causal))
        if self.pre:
            return x + self.dropout(self.feed_forward(self.norm_feed(x)))
        x = self.norm_attention(x)
        return self.norm_feed(x + self.dropout(self.feed_forward(x)))
