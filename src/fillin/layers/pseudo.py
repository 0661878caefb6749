"""Few tokens standing for many: Set Transformer, latent bottleneck and constant-memory attention.

Pseudo-tokens have places too where a model needs them: learned offsets from the mean of the context's places, or
means of those places weighted by attention (any number of dimensions). Both move with the data.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention.attend import attend
from fillin.attention.scores import Uniform
from fillin.errors import InputError, choose
from fillin.layers.block import Block

Tokens = Float[Tensor, "b n c"]
Places = Float[Tensor, "b n dx"]
Latents = Float[Tensor, "b M c"]
LatentPlaces = Float[Tensor, "b M dx"]
KeyMask = Bool[Tensor, "b n"]


def over_keys(mask: KeyMask | None) -> Bool[Tensor, "b 1 1 n"] | None:
    """A mask over points, as attend() takes it."""
    return None if mask is None else mask[:, None, None, :]


def average(values: Tokens, mask: KeyMask | None = None) -> Float[Tensor, "b 1 c"]:
    """The mean over points: attention with uniform weights. Zeros where there is no point."""
    at = values.new_zeros(len(values), 1, 1, 1)
    return attend(at, at.expand(-1, -1, values.shape[1], -1), values[:, None], score=Uniform(), mask=over_keys(mask))[
        :, 0
    ]


class PseudoTokens(nn.Module):
    """M learned tokens, and where they stand.

    places=None: nowhere. "mean": learned offsets from the mean of the places of what they stand for (fixes `dim_x`).
    "attention": attention-weighted means of those places, p_m = Σ_j softmax_j(s_m · W t_j) x_j (any dimension).
    """

    def __init__(self, number: int, dim: int, places: str | None = None, dim_x: int = 1):
        super().__init__()
        self.kind = places if places is None else choose("places", places, ["mean", "attention"])
        self.tokens = nn.Parameter(torch.randn(number, dim))
        if places == "mean":
            self.offsets = nn.Parameter(torch.randn(number, dim_x))
        elif places == "attention":
            self.seeds = nn.Parameter(torch.randn(number, dim))
            self.to_k = nn.Linear(dim, dim, bias=False)

    def forward(
        self, tokens: Tokens, x: Places | None = None, mask: KeyMask | None = None
    ) -> tuple[Latents, LatentPlaces | None]:
        """The pseudo-tokens [b M c] and their places [b M dx] for the given tokens at x."""
        return self.tokens.expand(len(tokens), -1, -1), self.locate(tokens, x, mask)

    def locate(self, tokens: Tokens, x: Places | None, mask: KeyMask | None) -> LatentPlaces | None:
        if self.kind is None:
            return None
        if x is None:
            raise InputError("PseudoTokens: places were asked for, but the tokens have none; pass x [b n dx]")
        if self.kind == "mean":
            return average(x, mask) + self.offsets
        queries = self.seeds.expand(len(x), 1, -1, -1)
        return attend(queries, self.to_k(tokens)[:, None], x[:, None], mask=over_keys(mask))[:, 0]


Make = Callable[..., Block]


class PMA(nn.Module):
    """Pooling by multi-head attention (Lee et al. 2019): learned seeds read the set. [b n c] → [b M c]."""

    def __init__(self, seeds: int, dim: int, make: Make = Block):
        super().__init__()
        self.pseudo = PseudoTokens(seeds, dim)
        self.read = make(dim, cross=True)

    def forward(self, tokens: Tokens, *, mask: KeyMask | None = None) -> Latents:
        seeds, _ = self.pseudo(tokens)
        return self.read(seeds, tokens, mask=over_keys(mask))


class LatentBottleneck(nn.Module):
    """One layer of LBANP's encoder: latents read the context, then one another. O(M·(n + M))."""

    def __init__(self, dim: int, make: Make = Block):
        super().__init__()
        self.read, self.mix = make(dim, cross=True), make(dim)

    def forward(
        self,
        latents: Latents,
        context: Tokens,
        *,
        xl: LatentPlaces | None = None,
        xc: Places | None = None,
        mask: KeyMask | None = None,
    ) -> Latents:
        latents = self.read(latents, context, xq=xl, xk=xc, mask=over_keys(mask))
        return self.mix(latents, xq=xl)


class ISAB(nn.Module):
    """Induced set attention (Lee et al. 2019): latents read the set, the set reads the latents. O(M·n).

    forward → (the set's new tokens, the latents), since a target too may read the latents.
    """

    def __init__(self, dim: int, make: Make = Block):
        super().__init__()
        self.gather, self.spread = make(dim, cross=True), make(dim, cross=True)

    def forward(
        self,
        latents: Latents,
        tokens: Tokens,
        *,
        xl: LatentPlaces | None = None,
        x: Places | None = None,
        mask: KeyMask | None = None,
    ) -> tuple[Tokens, Latents]:
        latents = self.gather(latents, tokens, xq=xl, xk=x, mask=over_keys(mask))
        return self.spread(tokens, latents, xq=x, xk=xl), latents


class CMABState(NamedTuple):
    """All that is kept of the data seen so far: per head and latent, the running mean and its log-weight."""

    out: Float[Tensor, "b h M d"]
    lse: Float[Tensor, "b h M"]


class CMAB(nn.Module):
    """Constant-memory attention (Feng et al. 2023): learned latents read raw data, a chunk at a time.

    c' = logaddexp(c, c_new);  o' = e^(c − c')·o + e^(c_new − c')·o_new

    so `update` needs neither the old data nor the number of them, and reading in chunks equals reading at once. The
    latents that meet the data are constants of the layer and the keys are raw tokens: that is what keeps a whole
    stack of layers constant in memory. What was read then passes into the stack's own latents through `forward`.
    """

    def __init__(self, number: int, dim: int, make: Make = Block):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(number, dim))
        self.read, self.pass_on, self.mix = make(dim, cross=True), make(dim, cross=True), make(dim)

    def start(self, batch: int, dim_x: int | None = None) -> CMABState:
        """Nothing seen yet; `dim_x` where tokens have places."""
        attention = self.read.attention
        width = attention.head_dim + (0 if dim_x is None or attention.offsets is None else dim_x + 1)
        empty = self.latents.new_zeros(batch, attention.heads, len(self.latents), width)
        return CMABState(empty, torch.full_like(empty[..., 0], -torch.inf))

    def update(
        self,
        state: CMABState,
        tokens: Tokens,
        *,
        xl: LatentPlaces | None = None,
        x: Places | None = None,
        mask: KeyMask | None = None,
    ) -> CMABState:
        """The state after seeing `tokens` too."""
        if tokens.shape[1] == 0:
            return state
        attention, memory = self.read.attention, self.read.remember(tokens, x)
        backend = "auto" if attention.backend == "fused" else attention.backend  # fused attention gives no sums
        latents = self.read.norm_attention(self.latents).expand(len(tokens), -1, -1)
        out, lse = attend(
            attention.queries(latents), memory.k, memory.v, xq=xl, xk=x, score=attention.score, span=attention.span,
            mask=over_keys(mask), backend=backend, return_lse=True,
        )  # fmt: skip
        total = torch.logaddexp(state.lse, lse)
        safe = total.masked_fill(total == -torch.inf, 0)  # nothing seen at all: e^(−∞ − 0) = 0, not NaN
        old, new = (state.lse - safe).exp()[..., None], (lse - safe).exp()[..., None]
        return CMABState(old * state.out + new * out, total)

    def forward(self, latents: Latents, state: CMABState, *, xl: LatentPlaces | None = None) -> Latents:
        """The stack's latents after reading what this layer's own latents have gathered."""
        block = self.read
        gathered = self.latents + block.attention.join(state.out, xl)
        gathered = gathered + block.feed_forward(block.norm_feed(gathered))
        latents = self.pass_on(latents, gathered, xq=xl, xk=xl)
        return self.mix(latents, xq=xl)
