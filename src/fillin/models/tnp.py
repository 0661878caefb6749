"""Transformer neural processes (Nguyen & Grover 2022) and translation-equivariant ones (Ashman et al. 2024).

One class serves both: tokens of a TNP include the location, MLP([x, y, flag]), and are compared by content. Those of a
TE-TNP do not, MLP([y, flag]); locations enter through the score of a pair alone.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention import CONTROL_SCORES, ScoreFactory, Span, expand_key_mask, make_score
from fillin.errors import InputError, choose
from fillin.heads import Autoregressive, JointGaussian
from fillin.layers import Block, KeyValues, mlp
from fillin.linear import LinearLayer
from fillin.models.base import Points, Process, Targets

Tokens = Float[Tensor, "b _ c"]  # of the context, the targets, or both


def make_span(span: float | dict | None, heads: int, dim_x: int | None) -> Span | None:
    """Return a window from None, its initial σ, or the arguments of `Span`. dim_x=None makes an isotropic ball."""
    if span is None:
        return None
    if isinstance(span, bool) or not isinstance(span, dict | int | float):
        raise InputError(f"span must be None, the initial σ, or a dict of arguments of Span, got {span!r}")
    options = dict(span) if isinstance(span, dict) else {"init": float(span)}
    for option in options:
        choose("option of span", option, ["heads", "init", "threshold", "modulate", "cut", "shape", "covariance"])
    if dim_x is None:
        options = {"covariance": "isotropic", **options}
    return Span(dim_x, **{"heads": heads, **options})


class TransformerProcess(Process):
    """Base of transformer processes: the embedding of points as tokens and the options of a block."""

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 1,
        width: int = 128,
        heads: int = 8,
        head_dim: int | None = None,
        layers: int = 5,
        hidden: int | None = None,
        equivariant: bool = False,
        score: str | ScoreFactory = "nothing",
        span: float | dict | None = None,
        radial: bool = False,
        offsets: bool | None = None,
        backend: str = "auto",
        **options,
    ):
        if radial and not equivariant:
            raise InputError("radial=True needs a translation-equivariant model: use te-*")
        super().__init__(None if radial else dim_x, dim_y, width=width, **options)
        if offsets is None:  # on, except for the control scores, which must not distinguish targets
            offsets = str(score).lower() not in CONTROL_SCORES
        self.equivariant, self.layers = equivariant, layers
        self.embed = mlp((0 if equivariant else dim_x) + 2 * dim_y, width, width)
        self.make_block = partial(
            _make_block, heads=heads, head_dim=head_dim or max(1, width // heads), hidden=hidden, backend=backend,
            score=score if equivariant else "nothing", span=span, dim_x=dim_x, radial=radial,
            offsets=None if not (equivariant and offsets) else "radial" if radial else dim_x,
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)
        self.out = nn.Sequential(LinearLayer(width, width), nn.ReLU())

    def tokens(self, points: Points) -> Tokens:
        values = points.values_and_flags
        return self.embed(values if self.equivariant else torch.cat([points.x, values], -1))

    def features(self, tokens: Tokens) -> Tokens:
        return self.out(self.norm(tokens))

    def where(self, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n dx"] | None:
        """Return locations for attention, or None where tokens include them."""
        return x if self.equivariant else None


def _make_block(
    dim: int, *, cross: bool = False, heads: int, head_dim: int, score, span, dim_x: int, radial: bool, **options
) -> Block:
    pair_score = make_score(score, heads, head_dim, dim_x, radial)
    window = make_span(span, heads, None if radial else dim_x)
    return Block(dim, heads, head_dim, cross=cross, score=pair_score, span=window, **options)


class TNP(TransformerProcess):
    """All tokens attend to the context tokens, layer by layer; the head reads target tokens (TNP-D, TE-TNP)."""

    def __init__(self, **options):
        super().__init__(**options)
        self.blocks = nn.ModuleList(self.make_block(self.width) for _ in range(self.layers))

    def encode(self, context: Points, targets: Targets) -> Points:
        return context

    def decode(self, encoded: Points, targets: Targets) -> Tokens:
        return self.attend_to_points(encoded, targets, expand_key_mask(encoded.keep))

    def attend_to_points(self, points: Points, targets: Targets, mask: Bool[Tensor, "..."] | None) -> Tokens:
        """Return features of the targets after all tokens have attended to those of `points`, layer by layer."""
        n = len(points)
        tokens = torch.cat([self.tokens(points), self.tokens(targets.without_values(self.dim_y))], 1)
        xk, xq = self.where(points.x), self.where(torch.cat([points.x, targets.x], 1))
        for block in self.blocks[:-1]:
            tokens = block(tokens, tokens[:, :n], xq=xq, xk=xk, mask=mask)
        # the last layer skips the tokens of the points, which are not read
        mask = mask if mask is None or mask.shape[-2] == 1 else mask[..., n:, :]
        return self.features(self.blocks[-1](tokens[:, n:], tokens[:, :n], xq=self.where(targets.x), xk=xk, mask=mask))


class JointTNP(TNP):
    """TNP-ND: the covariance of the head is computed from target tokens after self-attention among targets."""

    kind = "joint"

    def __init__(self, head: str = "lowrank", **options):
        super().__init__(head=head, **options)
        self.between = self.make_block(self.width)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None) -> JointGaussian:
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        features = self.decode(self.encode(context, targets), targets)
        spread = self.between(features, xq=self.where(targets.x), mask=expand_key_mask(targets.valid))
        return self.head(features, targets.keep, spread)


class AutoregressiveTNP(TNP):
    """TNP-A: the joint likelihood as a product of conditionals, computed in one pass (Nguyen & Grover 2022).

    Tokens: [context | targets with y | targets without y]. All attend to the context; a target with y attends to those
    with y up to itself; a target without y attends to those with y before it, and predicts.
    """

    kind = "autoregressive"

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None) -> Autoregressive:
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        return Autoregressive(
            torch.Size([*xt.shape[:2], self.dim_y]),
            targets.keep,
            marginals=lambda: self.head(self.decode(self.encode(context, targets), targets)),
            conditionals=lambda y: self.head(self.teacher_forced(context, targets, y)),
            draw=lambda n: self.draw(context, targets, n),
        )

    def teacher_forced(self, context: Points, targets: Targets, yt: Float[Tensor, "b nt dy"]) -> Tokens:
        """Return features of p(y_i | context, y_1 … y_{i−1}) for all i."""
        points = context.join(targets.with_values(yt))
        nc, nt = len(context), targets.x.shape[1]
        pairs = torch.ones(nt, nt, dtype=torch.bool, device=points.x.device)
        causal = torch.cat([pairs.new_zeros(nc, nt), pairs.tril(), pairs.tril(-1)])  # [context | with y | without y]
        mask = torch.cat([causal.new_ones(nc + 2 * nt, nc), causal], 1)
        mask = mask if points.keep is None else mask & points.keep[:, None, None, :]
        return self.attend_to_points(points, targets, mask)

    @torch.no_grad()
    def draw(self, context: Points, targets: Targets, n: int) -> Float[Tensor, "n b nt dy"]:
        """Draw n coherent functions, target by target. Keys and values are cached, so that a step costs two tokens: the
        last target with its drawn y, and the next target without y."""
        b, nt = targets.x.shape[:2]
        points = context.join(targets.without_values(self.dim_y))
        keep, x = points.valid.repeat(n, 1), points.x.repeat(n, 1, 1)
        xt, caches, y = targets.x.repeat(n, 1, 1), self._cache_context(context, n, nt), []
        mask_t = None if targets.keep is None else targets.keep.repeat(n, 1, 1)
        previous: Points | None = None
        for i in range(nt):
            here = Targets(xt[:, i : i + 1], None if mask_t is None else mask_t[:, i : i + 1])
            query = here.without_values(self.dim_y)
            step = query if previous is None else previous.join(query)
            tokens, length = self.tokens(step), len(context) + i
            xk, mask = self.where(x[:, :length]), expand_key_mask(keep[:, :length])
            for block, cache in zip(self.blocks, caches, strict=True):
                if previous is not None:
                    last = block.project_context(tokens[:, :1], self.where(step.x[:, :1]))  # type: ignore[operator]
                    for cached, added in zip(cache, last, strict=True):
                        if cached is not None:
                            cached[:, :, length - 1 : length] = added
                memory = KeyValues(None if cache.k is None else cache.k[:, :, :length], cache.v[:, :, :length])
                tokens = block(tokens, memory, xq=self.where(step.x), xk=xk, mask=mask)
            drawn = self.head(self.features(tokens[:, -1:])).sample()
            y.append(drawn)
            previous = here.with_values(drawn)
        samples = torch.cat(y, 1) if y else x.new_zeros(n * b, 0, self.dim_y)
        return samples.view(n, b, nt, self.dim_y)

    def _cache_context(self, context: Points, n: int, room: int) -> list[KeyValues]:
        """Return the keys and values of the context of each layer for n functions, padded for the targets to come."""
        tokens, caches = self.tokens(context), []
        x, mask = self.where(context.x), expand_key_mask(context.keep)

        def pad(t: Tensor) -> Tensor:
            return nn.functional.pad(t.repeat(n, 1, 1, 1), (0, 0, 0, room))

        for block in self.blocks:
            memory: KeyValues = block.project_context(tokens, x)  # type: ignore[operator]
            caches.append(KeyValues(None if memory.k is None else pad(memory.k), pad(memory.v)))
            tokens = block(tokens, memory, xq=x, xk=x, mask=mask)
        return caches
