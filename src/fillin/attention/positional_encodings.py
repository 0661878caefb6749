"""Positional encodings: features of a location, for tokens, or of a displacement, for scores."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from fillin.errors import InputError, choose
from fillin.linear import LinearLayer

_BAND_LEARNING_RATE = 0.1  # of a SIREN with a band, relative to the rest of the network
_BAND_HIDDEN_SCALE = 0.1  # initial weights of the layers above a band, relative to those without a band
_DISTINCT_RESOLUTION = 1 << 16  # displacements that agree to one part in this are the same
_MIN_PAIRS_PER_DISTINCT = 4  # from which on evaluating distinct displacements pays


class Sinusoid(nn.Module):
    """p_j(x) = sin(x / base^(j/D)) for even j, cos(x / base^((j−1)/D)) for odd j (Vaswani et al. 2017).

    In n dimensions the features of each coordinate are added (`combine="add"`, constrained) or concatenated
    (`combine="concat"`, fewer features for each).

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


class LearnedPositions(nn.Module):
    """Learned vector a_c of each whole number c from `low` to `high`; others are clipped to that range.

    Of the position of a token it is a learned positional encoding. Of displacements it holds the relative positions of
    Shaw et al. 2018, whose term of the values is `average`.

    >>> table = LearnedPositions(-2, 2, 8)
    >>> table(torch.tensor([[-5.0], [0.0]])).shape, table.index(torch.tensor([-5.0, 0.0])).tolist()
    (torch.Size([2, 8]), [0, 2])
    """

    def __init__(self, low: int, high: int, dim: int):
        super().__init__()
        if low > high:
            raise InputError(f"LearnedPositions: low must not exceed high, got {low} and {high}")
        self.low, self.high = low, high
        self.table = nn.Parameter(0.02 * torch.randn(high - low + 1, dim))

    def index(self, x: Float[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """Return the row of the table for each number: clip(round(x), low, high) − low."""
        return x.round().clamp(self.low, self.high).long() - self.low

    def forward(self, x: Float[Tensor, "*n 1"]) -> Float[Tensor, "*n dim"]:
        return self.table[self.index(x[..., 0])]

    def average(
        self, weights: Float[Tensor, "b h n m"], delta: Float[Tensor, "#b 1 n m"]
    ) -> Float[Tensor, "b h n dim"]:
        """Σ_j w_ij a_c(Δ_ij), the average of the learned vectors of all displacements (Shaw et al. 2018, equation 3).

        The weights of equal c are added first, so that no vector is stored for a pair.
        """
        rows = self.index(delta).expand(weights.shape)
        shares = weights.new_zeros(*weights.shape[:3], len(self.table)).scatter_add(-1, rows, weights)
        return shares @ self.table


class SIREN(nn.Module):
    """h ← sin(W₀x + b₀)·a,  h ← sin(Wh + b) (layers − 1 times),  then a linear map  (Sitzmann et al. 2020).

    stable=True (specific to fillin) needs no tuning. Row i of W₀ has a random direction and a length
    f_i (its frequency) from a geometric grid between 1 and ω + 2π. Its amplitude is a_i = 1/(1 + (f_i/π)²), divided by
    the root mean square over rows. A wrong ω does little harm:
      too small  the frequencies always reach 2π, and the layers above produce harmonics;
      too large  fast units have small amplitudes, so the network starts smooth, does not fill the gaps between data
                 with noise, and amplifies a fast unit only where that lowers the loss;
      step size  ω multiplies no layer, so it does not multiply the learning rate.
    Inputs should be of order one. Very fast functions (sin 60x) take more steps than with stable=False at its best ω.

    stable=False is the original: h ← sin(ω(Wh + b)), W ~ U(±1/dim_x) in the first layer and U(±√(6/hidden)/ω) in the
    others. ω is both the bandwidth and a factor of the learning rate, and must be tuned.

    A `band` = (low, high) starts the network as a `Sinusoid`: pairs of a sine and a cosine of x with frequencies from
    low to high, so that all cosines agree at x = 0. In n dimensions each pair has a random direction; ω is not used.
    Further layers are residual, h ← h + sin(Wh + b), and small at first. The parameters are differences from this
    start, W = start + ρ·learned with ρ = 0.1. So positions change more slowly than the layers that read them, and
    weight decay leads back to the start instead of shrinking every frequency.

    `bias=False` omits the output bias, which a softmax over keys cancels. `dim=None` omits the output map: the features
    are the `hidden` sines of the last layer, for a score that maps them itself.
    """

    def __init__(
        self,
        dim_x: int,
        dim: int | None,
        hidden: int = 32,
        layers: int = 3,
        omega: float = 10.0,
        stable: bool = True,
        bias: bool = True,
        band: tuple[float, float] | None = None,
    ):
        super().__init__()
        if band is not None and not (stable and dim and hidden % 2 == 0 and 0 < band[0] <= band[1]):
            raise InputError(
                "SIREN: band must go from a low frequency above 0 to a high one, with stable=True, an output map (dim) "
                f"and an even number of hidden units, got {band}, stable={stable}, dim={dim} and hidden={hidden}"
            )
        if layers < 1 or not omega > 0:
            raise InputError(f"SIREN: layers must be at least 1 and omega positive, got {layers} and {omega}")
        self.stable, self.residual = stable, band is not None
        self.register_buffer("omega", torch.tensor(float(omega)), persistent=False)
        sizes = [dim_x, *[hidden] * layers]
        self.sines: Iterable[Any] = nn.ModuleList(LinearLayer(i, o) for i, o in pairwise(sizes))
        self.out = nn.Identity() if dim is None else LinearLayer(hidden, dim, bias=bias)
        self._initialise(omega, hidden, dim_x)
        if band is not None:
            self._initialise_band(*band)

    omega: Tensor

    @torch.no_grad()
    def _initialise(self, omega: float, hidden: int, dim_x: int) -> None:
        first, *others = self.sines
        if self.stable:
            exponent = (torch.arange(hidden) + torch.rand(hidden)) / hidden  # stratified
            direction = nn.functional.normalize(torch.randn(hidden, dim_x), dim=-1)
            first.weight.copy_((omega + 2 * math.pi) ** exponent[:, None] * direction)
            first.bias.uniform_(-math.pi, math.pi)
        else:
            first.weight.uniform_(-1 / dim_x, 1 / dim_x)
        original = siren_bound(hidden, omega)
        bound, out_bound = (math.sqrt(6 / hidden), math.sqrt(1 / hidden)) if self.stable else (original, original)
        for layer in others:
            layer.weight.uniform_(-bound, bound)
        if isinstance(self.out, LinearLayer):
            self.out.weight.uniform_(-out_bound, out_bound)

    @torch.no_grad()
    def _initialise_band(self, low: float, high: float) -> None:
        first, *others = self.sines
        pairs, dim_x = len(first.weight) // 2, first.weight.shape[1]
        direction = nn.functional.normalize(torch.randn(pairs, dim_x), dim=-1)
        frequency = low * (high / low) ** torch.linspace(0, 1, pairs)
        first.weight.copy_((frequency[:, None] * direction).repeat_interleave(2, 0))
        first.bias.copy_(torch.tensor([0, math.pi / 2]).repeat(pairs))
        for layer in others:
            layer.weight.mul_(_BAND_HIDDEN_SCALE)
            layer.bias.zero_()
        self.out.weight.mul_(math.sqrt(6))  # the amplitude of sines
        for layer in (*self.sines, self.out):
            layer.register_buffer("start", layer.weight.clone())
            layer.weight.zero_()
            if layer.bias is not None:
                layer.register_buffer("start_bias", layer.bias.clone())
                layer.bias.zero_()

    def forward(self, x: Float[Tensor, "*n dx"]) -> Float[Tensor, "*n dim"]:
        first, *others = self.sines
        scale = 1 if self.stable else self.omega
        h = torch.sin(scale * self._apply_layer(first, x))
        if self.stable and not self.residual:
            amplitude = 1 / (1 + first.weight.square().sum(-1) / math.pi**2)
            h = h * (amplitude * amplitude.square().mean().rsqrt())
        for layer in others:
            sines = torch.sin(scale * self._apply_layer(layer, h))
            h = h + sines if self.residual else sines
        return self._apply_layer(self.out, h)

    def _apply_layer(self, layer: Any, x: Float[Tensor, "*n i"]) -> Float[Tensor, "*n o"]:
        if not self.residual:
            return layer(x)
        bias = None if layer.bias is None else layer.start_bias + _BAND_LEARNING_RATE * layer.bias
        return linear(x, layer.start + _BAND_LEARNING_RATE * layer.weight, bias)


def siren_bound(hidden: int, omega: float) -> float:
    """√(6/hidden)/ω: initial weights of all layers but the first are U(±bound) (Sitzmann et al. 2020)."""
    return math.sqrt(6 / hidden) / omega


class GridEncoding(nn.Module):
    """An encoding of displacements that is evaluated once per distinct displacement: pixels on a grid have few."""

    def __init__(self, features: nn.Module):
        super().__init__()
        self.features = features

    def forward(self, delta: Float[Tensor, "*b n m dx"]) -> Float[Tensor, "*_ n m f"]:
        delta = delta[:1] if delta.ndim == 4 else delta  # all images of a batch share their locations
        distinct = None if torch.compiler.is_compiling() else find_distinct_displacements(delta)
        if distinct is None:
            return self.features(delta)
        values, index = distinct
        return embedding(index, self.features(values))


def find_distinct_displacements(
    delta: Float[Tensor, "*n dx"],
) -> tuple[Float[Tensor, "u dx"], Int[Tensor, "*n"]] | None:
    """The distinct displacements of locations on a grid and the index of each pair among them; None where many are."""
    axes, index = [], torch.zeros((), dtype=torch.long)
    for axis in delta.unbind(-1):
        cells = (axis * _DISTINCT_RESOLUTION).round().long()
        cells -= cells.min()
        values = axis.new_full((int(cells.max()) + 1,), torch.nan).index_put_((cells,), axis)
        occupied = ~values.isnan()
        axes.append(values[occupied])
        index = index * len(axes[-1]) + (occupied.cumsum(0) - 1)[cells]
    if _MIN_PAIRS_PER_DISTINCT * math.prod(map(len, axes)) > index.numel():
        return None
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2), index
