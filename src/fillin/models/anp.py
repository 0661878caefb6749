"""Attentive neural processes (Kim et al. 2019): each target attends to the context points."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.attention import Laplace, attend, expand_key_mask
from fillin.errors import choose
from fillin.layers import MultiHeadAttention, mlp
from fillin.models.base import LatentProcess, Process
from fillin.models.cnp import Encoded, LatentDecoder, LatentPath, PointEncoder
from fillin.models.points import Points, Targets

_DECODER_LAYERS = 3


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
        dim_y: int = 1,
        width: int = 128,
        heads: int = 8,
        layers: int = 5,
        hidden: int | None = None,
        cross: str = "multihead",
        self_attention: int = 1,
        head: str = "gaussian",
        **head_options,
    ):
        super().__init__(dim_x, dim_y, width, head, **head_options)
        self.path = PointEncoder(dim_x, dim_y, width, layers - 1, heads, self_attention, hidden)
        self.cross = CrossAttention(cross, dim_x, width, heads)


class CANP(AttentiveProcess):
    """Deterministic path alone: features = MLP([x, r(x)])."""

    def __init__(self, dim_x: int = 1, dim_y: int = 1, width: int = 128, **options):
        super().__init__(dim_x, dim_y, width, **options)
        self.decoder = nn.Sequential(mlp(width + dim_x, width, width, _DECODER_LAYERS - 1), nn.ReLU())

    def encode(self, context: Points, targets: Targets) -> Float[Tensor, "b nt c"]:
        return self.cross(self.path(context), context, targets)

    def decode(self, encoded, targets):
        return self.decoder(torch.cat([encoded, targets.x], -1))


class ANP(AttentiveProcess, LatentProcess):
    """Deterministic path by cross-attention and latent path by the mean, with self-attention in both encoders."""

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 1,
        width: int = 128,
        heads: int = 8,
        layers: int = 5,
        hidden: int | None = None,
        self_attention: int = 1,
        dim_z: int | None = None,
        samples: int = 16,
        seed: int = 0,
        **options,
    ):
        super().__init__(dim_x, dim_y, width, heads, layers, hidden, self_attention=self_attention, **options)
        dim_z = dim_z or width
        self.samples, self.seed = samples, seed
        encoder = PointEncoder(dim_x, dim_y, width, layers - 1, heads, self_attention, hidden)
        self.latent = LatentPath(encoder, width, dim_z)
        self.decoder = LatentDecoder(dim_x, width + dim_z, width, _DECODER_LAYERS)

    def encode(self, context: Points, targets: Targets) -> Encoded:
        return Encoded(context, self.cross(self.path(context), context, targets))

    def posterior(self, points, encoded):
        return self.latent(points)

    def decode_latent(self, encoded, z, targets):
        return self.decoder(encoded.r, z, targets.x)
