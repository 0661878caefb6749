"""Features of a place or of a displacement: what a score or a token is told about where it is."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.errors import InputError, choose


class Sinusoid(nn.Module):
    """p_j(x) = sin(x / base^(j/D)) for even j, cos(x / base^((j−1)/D)) for odd j (equation 1 of the report).

    In n dimensions the features of each coordinate are added (`combine="add"`, constrained) or concatenated
    (`combine="concat"`, fewer features per dimension).

    >>> Sinusoid(4)(torch.zeros(1, 1)).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """

    def __init__(self, dim: int, dim_x: int = 1, base: float = 10_000.0, combine: str = "add"):
        super().__init__()
        self.combine = choose("combine", combine, ["add", "concat"])
        part = dim if combine == "add" else dim // dim_x
        if part % 2 or (combine == "concat" and dim % dim_x):
            raise InputError(f"Sinusoid: dim={dim} does not split into sine/cosine pairs over {dim_x} dimensions")
        self.dim, self.dim_x = dim, dim_x
        self.register_buffer("omega", base ** (-torch.arange(0, part, 2) / part), persistent=False)

    omega: Tensor

    def forward(self, x: Float[Tensor, "*n dx"]) -> Float[Tensor, "*n dim"]:
        phase = x[..., None] * self.omega  # [… dx f]
        waves = torch.stack([phase.sin(), phase.cos()], -1).flatten(-2)  # sine and cosine alternate
        return waves.sum(-2) if self.combine == "add" else waves.flatten(-2)


class Learned(nn.Module):
    """A learned vector for each whole number, clipped to [low, high] (Shaw et al. 2018 for displacements)."""

    def __init__(self, low: int, high: int, dim: int):
        super().__init__()
        self.low, self.high = low, high
        self.table = nn.Parameter(0.02 * torch.randn(high - low + 1, dim))

    def forward(self, x: Float[Tensor, "*n 1"]) -> Float[Tensor, "*n dim"]:
        return self.table[x[..., 0].round().clamp(self.low, self.high).long() - self.low]


class SIREN(nn.Module):
    """z ← sin(ω₀ (W z + b)), layer by layer, then a linear map (Sitzmann et al. 2020)."""

    def __init__(self, dim_x: int, dim: int, hidden: int = 32, layers: int = 3, omega: float = 10.0, bias: bool = True):
        super().__init__()
        self.omega = omega
        sizes = [dim_x, *[hidden] * (layers - 1)]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(sizes, sizes[1:], strict=False))
        self.out = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*n dx"]) -> Float[Tensor, "*n dim"]:
        for layer in self.layers:
            x = torch.sin(self.omega * layer(x))
        return self.out(x)
