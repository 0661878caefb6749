"""Pseudo-tokens that summarise many tokens: Set Transformer, latent bottleneck and constant-memory attention.

Pseudo-tokens have locations where a model needs them: learned offsets from the mean location of the context, or means
of its locations weighted by attention (any number of dimensions). Both move with the data.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention import Uniform, attend, combine, expand_key_mask
from fillin.errors import InputError, choose
from fillin.layers.block import Block
from fillin.linear import LinearLayer

Tokens = Float[Tensor, "b n c"]
Latents = Float[Tensor, "b M c"]
Locations = Float[Tensor, "b n dx"] | None
LatentLocations = Float[Tensor, "b M dx"] | None
KeyMask = Bool[Tensor, "b n"] | None
BlockFactory = Callable[..., Block]


def masked_mean(values: Tokens, mask: KeyMask = None) -> Float[Tensor, "b 1 c"]:
    """Mean over points: attention with uniform weights. Zeros for a task without points."""
    q = values.new_zeros(len(values), 1, 1, 1)
    k = q.expand(-1, -1, values.shape[1], -1)
    return attend(q, k, values[:, None], score=Uniform(), mask=expand_key_mask(mask))[:, 0]


class PseudoTokens(nn.Module):
    """M learned tokens, and their locations.

    locations=None: none. "mean": learned offsets from the mean location of the tokens they summarise (fixes `dim_x`).
    "attention": attention-weighted means of those locations, Σ_j softmax_j(s_m · W t_j) x_j (any dimension).
    """

    def __init__(self, number: int, dim: int, locations: str | None = None, dim_x: int = 1):
        super().__init__()
        if type(number) is not int or number < 1:
            raise InputError(
                f"the number of pseudo-tokens or seeds must be a whole number of at least 1, got {number!r}"
            )
        self.kind = locations if locations is None else choose("locations", locations, ["mean", "attention"])
        self.tokens = nn.Parameter(torch.randn(number, dim))
        if locations == "mean":
            self.offsets = nn.Parameter(torch.randn(number, dim_x))
        elif locations == "attention":
            self.seeds = nn.Parameter(torch.randn(number, dim))
            self.to_k = LinearLayer(dim, dim, bias=False)

    def forward(self, tokens: Tokens, x: Locations = None, mask: KeyMask = None) -> tuple[Latents, LatentLocations]:
        """Return the pseudo-tokens [b M c] and their locations [b M dx] for tokens at x."""
        return self.tokens.expand(len(tokens), -1, -1), self.locate(tokens, x, mask)

    def locate(self, tokens: Tokens, x: Locations, mask: KeyMask) -> LatentLocations:
        if self.kind is None:
            return None
        if x is None:
            raise InputError("PseudoTokens: the tokens have no locations; pass x [b n dx]")
        if self.kind == "mean":
            return masked_mean(x, mask) + self.offsets
        queries = self.seeds.expand(len(x), 1, -1, -1)
        return attend(queries, self.to_k(tokens)[:, None], x[:, None], mask=expand_key_mask(mask))[:, 0]


class PMA(nn.Module):
    """Pooling by multi-head attention (Lee et al. 2019): learned seeds attend to the set. [b n c] → [b M c]."""

    def __init__(self, seeds: int, dim: int, make: BlockFactory = Block):
        super().__init__()
        self.pseudo = PseudoTokens(seeds, dim)
        self.read = make(dim, cross=True)

    def forward(self, tokens: Tokens, *, mask: KeyMask = None) -> Latents:
        seeds, _ = self.pseudo(tokens)
        return self.read(seeds, tokens, mask=expand_key_mask(mask))


class LatentBottleneck(nn.Module):
    """Encoder layer of LBANP (Feng et al. 2023): latents attend to the context, then to each other. O(M·(n + M))."""

    def __init__(self, dim: int, make: BlockFactory = Block):
        super().__init__()
        self.read, self.mix = make(dim, cross=True), make(dim)

    def forward(
        self, latents: Latents, tokens: Tokens, *, xl: LatentLocations = None, x: Locations = None, mask: KeyMask = None
    ) -> Latents:
        latents = self.read(latents, tokens, xq=xl, xk=x, mask=expand_key_mask(mask))
        return self.mix(latents, xq=xl)


class ISAB(nn.Module):
    """Induced set attention (Lee et al. 2019): latents attend to the set, the set attends to the latents. O(M·n).
    `forward` returns the new tokens of the set and the latents, to which targets may attend as well."""

    def __init__(self, dim: int, make: BlockFactory = Block):
        super().__init__()
        self.gather, self.spread = make(dim, cross=True), make(dim, cross=True)

    def forward(
        self, latents: Latents, tokens: Tokens, *, xl: LatentLocations = None, x: Locations = None, mask: KeyMask = None
    ) -> tuple[Tokens, Latents]:
        latents = self.gather(latents, tokens, xq=xl, xk=x, mask=expand_key_mask(mask))
        return self.spread(tokens, latents, xq=x, xk=xl), latents


class CMABState(NamedTuple):
    """Summary of the data so far: per head and latent, the running mean and its log-weight."""

    out: Float[Tensor, "b h M d"]
    lse: Float[Tensor, "b h M"]


class CMAB(nn.Module):
    """Constant-memory attention (Feng et al. 2023): learned latents attend to the data, a chunk at a time.

    c' = logaddexp(c, c_new);  o' = e^(c − c')·o + e^(c_new − c')·o_new

    So `update` needs neither the old data nor their number, and chunks give the same result as all data at once. The
    latents of a layer are constants and its keys are the embedded data, so a whole stack of layers needs constant
    memory. `forward` passes the summary on to the latents of the stack.
    """

    def __init__(self, number: int, dim: int, make: BlockFactory = Block):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(number, dim))
        self.read, self.pass_on, self.mix = make(dim, cross=True), make(dim, cross=True), make(dim)

    def start(self, batch: int, dim_x: int | None = None) -> CMABState:
        """Return the state before any data; pass `dim_x` where tokens have locations."""
        attention = self.read.attention
        width = attention.head_dim + (0 if dim_x is None or attention.offsets is None else dim_x + 1)
        empty = self.latents.new_zeros(batch, attention.heads, len(self.latents), width)
        return CMABState(empty, torch.full_like(empty[..., 0], -torch.inf))

    def update(
        self, state: CMABState, tokens: Tokens, *, xl: LatentLocations = None, x: Locations = None, mask: KeyMask = None
    ) -> CMABState:
        """Return the state after adding `tokens`."""
        if tokens.shape[1] == 0:
            return state
        attention, (k, v) = self.read.attention, self.read.project_context(tokens, x)
        backend = "auto" if attention.backend == "fused" else attention.backend  # fused attention returns no lse
        latents = self.read.norm_attention(self.latents).expand(len(tokens), -1, -1)
        out, lse = attend(
            attention.project_queries(latents), k, v, xq=xl, xk=x, score=attention.score, span=attention.span,
            mask=expand_key_mask(mask), backend=backend, return_lse=True,
        )  # fmt: skip
        return CMABState(*combine(state.out, state.lse, out, lse))

    def forward(self, latents: Latents, state: CMABState, *, xl: LatentLocations = None) -> Latents:
        """Update the latents of the stack from the summary that the latents of this layer hold."""
        block = self.read
        summary = self.latents + block.attention.join_heads(state.out, xl)
        summary = summary + block.feed_forward(block.norm_feed(summary))
        latents = self.pass_on(latents, summary, xq=xl, xk=xl)
        return self.mix(latents, xq=xl)
