"""Features of a place or of a displacement: what a score or a token is told about where it is."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from fillin.errors import InputError, choose

_RATE = 0.1  # how fast a SIREN with a band learns, beside everything else
_LITTLE = 0.1  # what the layers above a band have at first, of what they would have without


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
    """h ← sin(W₀x + b₀)·a,  h ← sin(Wh + b) (layers − 1 times),  then a linear map  (Sitzmann et al. 2020).

    stable=True (ours): a needs-no-tuning parameterisation. Row i of W₀ has a random direction and a length f_i (its
    frequency) from a geometric grid between 1 and ω + 2π; its loudness is a_i = 1/(1 + (f_i/π)²), divided by the root
    mean square over rows. A wrong ω does little harm:
      too small  the band always reaches 2π, and the layers above make harmonics of it;
      too large  fast units are there but faint, so the network starts smooth and does not fill the gaps between
                 data with noise, and turns a fast unit up only where the error asks for it;
      the step   ω multiplies no layer, so it does not multiply the learning rate.
    Inputs should be of order one. Very fast functions (sin 60x) take more steps than with the usual one at its best ω.

    stable=False (the usual): h ← sin(ω(Wh + b)), W ~ U(±1/dim_x) at first and U(±√(6/hidden)/ω) after: ω is at once
    the bandwidth and a factor on the learning rate, and must be tuned.

    With a `band` it starts as a `Sinusoid` does: pairs of a sine and a cosine of x, their frequencies from its low to
    its high end, so that all cosines agree at x = 0; and layers add to them, h ← h + sin(Wh + b), little at first.
    In n dimensions each pair has a direction of its own; ω counts for nothing. What is learned is the difference from
    this start, W = start + ρ·learned with ρ = 0.1. So what positions mean changes more slowly than what is made of
    them; and a decay of weights, which would take a share of each frequency at each step, and turn all that is far
    away, leads back to the start.

    `bias=False` leaves out the constant of the output, which a softmax over keys would cancel.
    """

    def __init__(
        self,
        dim_x: int,
        dim: int,
        hidden: int = 32,
        layers: int = 3,
        omega: float = 10.0,
        stable: bool = True,
        bias: bool = True,
        band: tuple[float, float] | None = None,
    ):
        super().__init__()
        if band is not None and not (stable and hidden % 2 == 0 and 0 < band[0] <= band[1]):
            said = f"{band}, with stable={stable} and hidden={hidden}"
            raise InputError(
                f"SIREN: a band goes from a low frequency above 0 to a high one, and takes stable=True and an even "
                f"number of hidden units, got {said}"
            )
        if layers < 1 or not omega > 0:
            raise InputError(f"SIREN: layers must be at least 1 and omega positive, got {layers} and {omega}")
        self.stable, self.adds = stable, band is not None
        self.register_buffer("omega", torch.tensor(float(omega)), persistent=False)
        sizes = [dim_x, *[hidden] * layers]
        self.sines: Iterable[Any] = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.out = nn.Linear(hidden, dim, bias=bias)
        with torch.no_grad():
            self._start(omega, hidden, dim_x)
            if band is not None:
                self._pair(*band)

    omega: Tensor

    def _start(self, omega: float, hidden: int, dim_x: int) -> None:
        first, *others = self.sines
        if self.stable:
            place = (torch.arange(hidden) + torch.rand(hidden)) / hidden  # one row in each part of the band
            direction = nn.functional.normalize(torch.randn(hidden, dim_x), dim=-1)
            first.weight.copy_((omega + 2 * math.pi) ** place[:, None] * direction)
            first.bias.uniform_(-math.pi, math.pi)
        else:
            first.weight.uniform_(-1 / dim_x, 1 / dim_x)
        usual = math.sqrt(6 / hidden) / omega
        for layer in others:
            bound = math.sqrt(6 / hidden) if self.stable else usual
            layer.weight.uniform_(-bound, bound)
        bound = math.sqrt(1 / hidden) if self.stable else usual
        self.out.weight.uniform_(-bound, bound)

    def _pair(self, low: float, high: float) -> None:
        first, *others = self.sines
        pairs, dim_x = len(first.weight) // 2, first.weight.shape[1]
        direction = nn.functional.normalize(torch.randn(pairs, dim_x), dim=-1)
        frequency = low * (high / low) ** torch.linspace(0, 1, pairs)
        first.weight.copy_((frequency[:, None] * direction).repeat_interleave(2, 0))
        first.bias.copy_(torch.tensor([0, math.pi / 2]).repeat(pairs))
        for layer in others:
            layer.weight.mul_(_LITTLE)
            layer.bias.zero_()
        self.out.weight.mul_(math.sqrt(6))  # as loud as sines are
        for layer in (*self.sines, self.out):
            layer.register_buffer("start", layer.weight.clone())
            layer.weight.zero_()
            if layer.bias is not None:
                layer.register_buffer("start_bias", layer.bias.clone())
                layer.bias.zero_()

    def forward(self, x: Float[Tensor, "*n dx"]) -> Float[Tensor, "*n dim"]:
        first, *others = self.sines
        scale = 1 if self.stable else self.omega
        h = torch.sin(scale * self._through(first, x))
        if self.stable and not self.adds:
            loudness = 1 / (1 + first.weight.square().sum(-1) / math.pi**2)
            h = h * (loudness * loudness.square().mean().rsqrt())
        for layer in others:
            sines = torch.sin(scale * self._through(layer, h))
            h = h + sines if self.adds else sines
        return self._through(self.out, h)

    def _through(self, layer: Any, x: Float[Tensor, "*n i"]) -> Float[Tensor, "*n o"]:
        if not self.adds:
            return layer(x)
        bias = None if layer.bias is None else layer.start_bias + _RATE * layer.bias
        return linear(x, layer.start + _RATE * layer.weight, bias)
