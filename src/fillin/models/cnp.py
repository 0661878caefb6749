"""Conditional and latent neural processes (Garnelo et al. 2018a, b): the context is encoded by its mean."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import softplus

from fillin.attention import expand_key_mask
from fillin.layers import Block, masked_mean, mlp
from fillin.models.base import LatentProcess, Process
from fillin.models.points import Points, Targets


class CNP(Process):
    """r = mean_j MLP([x_j, y_j, flag_j]); features at x = MLP([r, x])."""

    def __init__(
        self, dim_x: int = 1, dim_y: int = 1, width: int = 128, layers: int = 5, head: str = "gaussian", **head_options
    ):
        super().__init__(dim_x, dim_y, width, head, **head_options)
        self.encoder = PointEncoder(dim_x, dim_y, width, layers)
        self.decoder = nn.Sequential(mlp(width + dim_x, width, width, layers - 1), nn.ReLU())

    def encode(self, context: Points, targets: Targets) -> Float[Tensor, "b 1 c"]:
        return masked_mean(self.encoder(context), context.keep)

    def decode(self, encoded, targets):
        return self.decoder(torch.cat([encoded.expand(-1, targets.x.shape[1], -1), targets.x], -1))


class Encoded(NamedTuple):
    context: Points
    r: Float[Tensor, "b n c"] | None  # deterministic path; n is 1 or the number of targets


class LatentPath(nn.Module):
    """q(z | points) = Normal(MLP(s)), s the mean of the encoded points (ANP, Kim et al. 2019, with self-attention)."""

    def __init__(self, encoder: nn.Module, width: int, dim_z: int):
        super().__init__()
        self.encoder, self.out = encoder, mlp(width, 2 * dim_z, width)

    def forward(self, points: Points) -> Normal:
        mean, raw = self.out(masked_mean(self.encoder(points), points.keep)[:, 0]).chunk(2, -1)
        return Normal(mean, 0.01 + 0.99 * softplus(raw), validate_args=False)


class PointEncoder(nn.Module):
    """MLP([x, y, flag]) of every point, then `blocks` layers of self-attention."""

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        width: int,
        layers: int,
        heads: int = 1,
        blocks: int = 0,
        hidden: int | None = None,
    ):
        super().__init__()
        self.embed = mlp(dim_x + 2 * dim_y, width, width, layers)
        self.blocks = nn.ModuleList(Block(width, heads, hidden=hidden) for _ in range(blocks))

    def forward(self, points: Points) -> Float[Tensor, "b n c"]:
        tokens = self.embed(torch.cat([points.x, points.values_and_flags], -1))
        for block in self.blocks:
            tokens = block(tokens, mask=expand_key_mask(points.keep))
        return tokens


class NP(LatentProcess):
    """Latent neural process with an optional deterministic path: features = MLP([r, z, x])."""

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 1,
        width: int = 128,
        layers: int = 5,
        dim_z: int | None = None,
        deterministic: bool = True,
        samples: int = 16,
        seed: int = 0,
        head: str = "gaussian",
        **head_options,
    ):
        super().__init__(dim_x, dim_y, width, head, **head_options)
        dim_z = dim_z or width
        self.samples, self.seed = samples, seed
        self.path = PointEncoder(dim_x, dim_y, width, layers) if deterministic else None
        self.latent = LatentPath(PointEncoder(dim_x, dim_y, width, layers), width, dim_z)
        self.decoder = LatentDecoder(dim_x, (width if deterministic else 0) + dim_z, width, layers - 1)

    def encode(self, context: Points, targets: Targets) -> Encoded:
        return Encoded(context, None if self.path is None else masked_mean(self.path(context), context.keep))

    def posterior(self, points, encoded):
        return self.latent(points)

    def decode_latent(self, encoded, z, targets):
        return self.decoder(encoded.r, z, targets.x)


class LatentDecoder(nn.Module):
    """MLP([x, r, z]) at every target, for each of k latents."""

    def __init__(self, dim_x: int, dim_given: int, width: int, layers: int):
        super().__init__()
        self.of_z = nn.Linear(dim_given, width)
        self.of_x = nn.Linear(dim_x, width, bias=False)
        self.rest = nn.Sequential(nn.ReLU(), mlp(width, width, width, max(1, layers - 1)), nn.ReLU())

    def forward(
        self, r: Float[Tensor, "b n c"] | None, z: Float[Tensor, "k b z"], x: Float[Tensor, "b nt dx"]
    ) -> Float[Tensor, "k b nt c"]:
        # the first layer is linear: terms that do not vary with k, or with the target, are computed once
        split = self.of_z.weight.split([self.of_z.in_features - z.shape[-1], z.shape[-1]], 1)
        first = (z @ split[1].T)[:, :, None] + self.of_x(x) + self.of_z.bias
        return self.rest(first if r is None else first + r @ split[0].T)
