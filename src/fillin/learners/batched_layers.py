"""Layers of several networks at once: every weight has a first axis, the member. On a CPU eight small networks in one
product cost far less than one after another."""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn


class Linears(nn.Module):
    """x_m W_m + b_m for each member m."""

    def __init__(self, members: int, dim: int, out: int):
        super().__init__()
        bound = 1 / math.sqrt(dim)
        self.weight = nn.Parameter(torch.empty(members, dim, out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, out).uniform_(-bound, bound))

    def forward(self, x: Float[Tensor, "m n i"]) -> Float[Tensor, "m n o"]:
        return torch.baddbmm(self.bias, x, self.weight)


class Norms(nn.Module):
    """Layer norms of the members."""

    def __init__(self, members: int, dim: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(members, 1, dim)), nn.Parameter(torch.zeros(members, 1, dim))

    def forward(self, x: Float[Tensor, "m n i"]) -> Float[Tensor, "m n i"]:
        return nn.functional.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


class Numbers(nn.Module):
    """Columns of numbers as tokens: relu([sin 2πfx, cos 2πfx] W + b), with frequencies f and weights for each column
    (Gorishniy et al. 2022). Trees split a column anywhere; a network that sees x alone learns such bends slowly."""

    def __init__(self, members: int, columns: int, width: int, waves: int = 8, frequency: float = 0.5):
        super().__init__()
        self.frequency = nn.Parameter(frequency * torch.randn(members, 1, columns, waves))
        self.mix = Linears(members * columns, 2 * waves, width)

    def forward(self, x: Float[Tensor, "m n d"]) -> Float[Tensor, "m n d e"]:
        angle = 2 * math.pi * x[..., None] * self.frequency
        waves = torch.cat([angle.sin(), angle.cos()], -1).transpose(1, 2).flatten(0, 1)  # [m·d n 2w]
        return self.mix(waves).relu().unflatten(0, (x.shape[0], -1)).transpose(1, 2)


class Codes(nn.Module):
    """Columns of classes as tokens: a vector for each class of each column."""

    offsets: Int64[Tensor, "d"]

    def __init__(self, members: int, classes: list[int], width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(members, sum(classes), width))
        offsets = torch.tensor([0, *classes[:-1]]).cumsum(0) if classes else torch.zeros(0, dtype=torch.long)
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, codes: Int64[Tensor, "m n d"]) -> Float[Tensor, "m n d e"]:
        member = torch.arange(len(codes), device=codes.device)[:, None, None]
        return self.table[member, codes + self.offsets]
