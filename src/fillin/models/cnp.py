"""Neural processes that encode the context by its mean, or by attention from each target.

The mean: Garnelo et al. 2018a (CNP) and 2018b (NP). Learned seeds that attend to the context: Lee et al. 2019 (PMA).
Attention from each target: Kim et al. 2019 (CANP, ANP).
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal

from fillin.attention import Laplace, attend, expand_key_mask
from fillin.errors import choose
from fillin.layers import PMA, Block, MultiHeadAttention, masked_mean, mlp
from fillin.linear import LinearLayer
from fillin.models.base import LatentProcess, Points, Process, Targets, make_posterior

_ATTENTIVE_DECODER_LAYERS = 3


class PointEncoder(nn.Module):
    """MLP([x, y, flag]) of every point, then `blocks` layers of self-attention."""

    def __init__(self, dim_x: int, dim_y: int, width: int, layers: int, heads=1, blocks=0, hidden: int | None = None):
        super().__init__()
        self.embed = mlp(dim_x + 2 * dim_y, width, width, layers)
        self.blocks = nn.ModuleList(Block(width, heads, hidden=hidden) for _ in range(blocks))

    def forward(self, points: Points) -> Float[Tensor, "b n c"]:
        tokens = self.embed(torch.cat([points.x, points.values_and_flags], -1))
        for block in self.blocks:
            tokens = block(tokens, mask=expand_key_mask(points.keep))
        return tokens


class LatentPath(nn.Module):
    """q(z | points) = Normal(MLP(s)), s the mean of the encoded points."""

    def __init__(self, encoder: nn.Module, width: int, dim_z: int):
        super().__init__()
        self.encoder, self.out = encoder, mlp(width, 2 * dim_z, width)

    def forward(self, points: Points) -> Normal:
        return make_posterior(self.out(masked_mean(self.encoder(points), points.keep)[:, 0]), -1)


class LatentDecoder(nn.Module):
    """MLP([x, r, z]) at every target, for each of k latents."""

    def __init__(self, dim_x: int, dim_given: int, width: int, layers: int):
        super().__init__()
        self.of_z = LinearLayer(dim_given, width)
        self.of_x = LinearLayer(dim_x, width, bias=False)
        self.rest = nn.Sequential(nn.ReLU(), mlp(width, width, width, max(1, layers - 1)), nn.ReLU())

    def forward(
        self, r: Float[Tensor, "b n c"] | None, z: Float[Tensor, "k b z"], x: Float[Tensor, "b nt dx"]
    ) -> Float[Tensor, "k b nt c"]:
        # the first layer is linear: terms that do not vary with k, or with the target, are computed once
        split = self.of_z.weight.split([self.of_z.in_features - z.shape[-1], z.shape[-1]], 1)
        first = (z @ split[1].T)[:, :, None] + self.of_x(x) + self.of_z.bias
        return self.rest(first if r is None else first + r @ split[0].T)


def make_decoder(dim_x: int, width: int, layers: int, dim_context: int = 0) -> nn.Sequential:
    return nn.Sequential(mlp((dim_context or width) + dim_x, width, width, layers - 1), nn.ReLU())


class CNP(Process):
    """r = mean_j MLP([x_j, y_j, flag_j]); features at x = MLP([r, x])."""

    def __init__(self, dim_x: int = 1, layers: int = 5, **options):
        super().__init__(dim_x, **options)
        self.encoder = PointEncoder(dim_x, self.dim_y, self.width, layers)
        self.decoder = make_decoder(dim_x, self.width, layers)

    def encode(self, context: Points, targets: Targets) -> Float[Tensor, "b 1 c"]:
        return masked_mean(self.encoder(context), context.keep)

    def decode(self, encoded, targets):
        return self.decoder(torch.cat([encoded.expand(-1, targets.x.shape[1], -1), targets.x], -1))


class PooledCNP(Process):
    """CNP whose mean is replaced by pooling by multi-head attention (PMA, Lee et al. 2019).

    M learned seeds attend to the tokens of the context and then to one another, SAB(PMA_M(tokens)), as in the decoder
    of the Set Transformer. Features at x = MLP([r_1 … r_M, x]). The cost is O(M·n), and the summary has a fixed size,
    like the mean. Its use in a neural process is ours.
    """

    def __init__(
        self,
        dim_x: int = 1,
        heads: int = 8,
        layers: int = 5,
        hidden: int | None = None,
        pseudo_tokens: int = 4,
        **options,
    ):
        super().__init__(dim_x, **options)
        make = partial(Block, heads=heads, hidden=hidden)
        self.encoder = PointEncoder(dim_x, self.dim_y, self.width, layers)
        self.pool, self.mix = PMA(pseudo_tokens, self.width, make), make(self.width)
        self.decoder = make_decoder(dim_x, self.width, layers, pseudo_tokens * self.width)

    def encode(self, context: Points, targets: Targets) -> Float[Tensor, "b 1 c"]:
        return self.mix(self.pool(self.encoder(context), mask=context.keep)).flatten(1)[:, None]

    def decode(self, encoded, targets):
        return self.decoder(torch.cat([encoded.expand(-1, targets.x.shape[1], -1), targets.x], -1))


class Encoded(NamedTuple):
    context: Points
    r: Float[Tensor, "b n c"] | None  # deterministic path; n is 1 or the number of targets


class TwoPathProcess(LatentProcess):
    """Latent process with a deterministic path r and a latent path z: features = MLP([r, z, x])."""

    def add_latent_path(self, encoder: PointEncoder, dim_z: int | None, dim_r: int, decoder_layers: int) -> None:
        assert self.dim_x is not None
        dim_z = dim_z or self.width
        self.latent = LatentPath(encoder, self.width, dim_z)
        self.decoder = LatentDecoder(self.dim_x, dim_r + dim_z, self.width, decoder_layers)

    def posterior(self, points, encoded):
        return self.latent(points)

    def decode_latent(self, encoded, z, targets):
        return self.decoder(encoded.r, z, targets.x)


class NP(TwoPathProcess):
    """Latent neural process with an optional deterministic path."""

    def __init__(
        self,
        dim_x: int = 1,
        layers: int = 5,
        dim_z: int | None = None,
        deterministic: bool = True,
        samples: int = 16,
        seed: int = 0,
        **options,
    ):
        super().__init__(dim_x, **options)
        self.samples, self.seed = samples, seed
        make_encoder = partial(PointEncoder, dim_x, self.dim_y, self.width, layers)
        self.path = make_encoder() if deterministic else None
        self.add_latent_path(make_encoder(), dim_z, self.width if deterministic else 0, layers - 1)

    def encode(self, context: Points, targets: Targets) -> Encoded:
        return Encoded(context, None if self.path is None else masked_mean(self.path(context), context.keep))


class CrossAttention(nn.Module):
    """r(x) = Σ_j w_j r_j with weights that depend on locations alone:

    laplace    softmax(−‖x − x_j‖₁/ℓ)
    dot        softmax(f(x)·f(x_j)/√d), f an MLP
    multihead  the same with several heads and projections
    """

    def __init__(self, kind: str, dim_x: int, width: int, heads: int):
        super().__init__()
        self.kind = choose("cross", kind, ["laplace", "dot", "multihead"])
        self.laplace = Laplace(1, dim_x, init=0.2) if kind == "laplace" else None
        self.embed = None if kind == "laplace" else mlp(dim_x, width, width)
        self.heads = MultiHeadAttention(width, heads) if kind == "multihead" else None

    def forward(self, r: Float[Tensor, "b n c"], context: Points, targets: Targets) -> Float[Tensor, "b nt c"]:
        mask = expand_key_mask(context.keep)
        if self.embed is None:
            return attend(None, None, r[:, None], xq=targets.x, xk=context.x, score=self.laplace, mask=mask)[:, 0]
        embedded = self.embed(torch.cat([context.x, targets.x], 1))
        key, query = embedded.split([len(context), targets.x.shape[1]], 1)
        if self.heads is not None:
            return self.heads(query, key, r, mask=mask)
        return attend(query[:, None], key[:, None], r[:, None], mask=mask)[:, 0]


class AttentiveProcess(Process):
    """Deterministic path by cross-attention: r(x) = Σ_j w_j(x) r_j, after self-attention in the encoder."""

    def __init__(
        self,
        dim_x: int = 1,
        heads: int = 8,
        layers: int = 5,
        hidden: int | None = None,
        cross: str = "multihead",
        self_attention: int = 1,
        **options,
    ):
        super().__init__(dim_x, **options)
        sizes = (dim_x, self.dim_y, self.width, layers - 1, heads, self_attention, hidden)
        self.make_encoder = partial(PointEncoder, *sizes)
        self.path = self.make_encoder()
        self.cross = CrossAttention(cross, dim_x, self.width, heads)


class CANP(AttentiveProcess):
    """Deterministic path alone: features = MLP([r(x), x])."""

    def __init__(self, dim_x: int = 1, **options):
        super().__init__(dim_x, **options)
        self.decoder = make_decoder(dim_x, self.width, _ATTENTIVE_DECODER_LAYERS)

    def encode(self, context: Points, targets: Targets) -> Float[Tensor, "b nt c"]:
        return self.cross(self.path(context), context, targets)

    def decode(self, encoded, targets):
        return self.decoder(torch.cat([encoded, targets.x], -1))


class ANP(AttentiveProcess, TwoPathProcess):
    """Deterministic path by cross-attention and latent path by the mean, with self-attention in both encoders."""

    def __init__(self, dim_z: int | None = None, samples: int = 16, seed: int = 0, **options):
        super().__init__(**options)
        self.samples, self.seed = samples, seed
        self.add_latent_path(self.make_encoder(), dim_z, self.width, _ATTENTIVE_DECODER_LAYERS)

    def encode(self, context: Points, targets: Targets) -> Encoded:
        return Encoded(context, self.cross(self.path(context), context, targets))
