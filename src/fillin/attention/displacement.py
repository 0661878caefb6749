"""Scores that are functions of the displacement Δ between query and key.

Each head has its own parameters. Δ may have any number of dimensions; `radial` makes a score a function of ‖Δ‖ alone.
"""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.attention.scores import Delta, DotProduct, Score, ScoreTraits
from fillin.errors import InputError
from fillin.linear import LinearLayer

_MIN_TILED = 1 << 20  # hidden units of all pairs from which on a network is applied in tiles
_TILE_ROWS = 2048

# A folded −½‖Δ/ℓ‖² is a small difference of large squares. Beyond this square, float32 has no digits left for it.
_MAX_FOLDED_SQUARE = 400.0


def reduce_to_radius(delta: Delta) -> Float[Tensor, "#b 1 n m"]:
    """‖Δ‖ of every pair."""
    return torch.linalg.vector_norm(delta, dim=1, keepdim=True)


class ClosedForm(NamedTuple):
    """A function of u = Δ/ℓ: "rbf" a·exp(−½‖u‖²), "gaussian" −½‖u‖², "laplace" −‖u‖₁, "radial-laplace" −‖u‖₂."""

    kind: Literal["rbf", "gaussian", "laplace", "radial-laplace"]
    log_scale: Float[Tensor, "h _"]  # ln ℓ, one per dimension, or one for all
    amplitude: Float[Tensor, " h"] | None = None


class DisplacementScore(Score):
    """A score of Δ, or of ‖Δ‖ where `radial`: then one set of weights serves any number of dimensions."""

    def __init__(self, heads: int = 1, dim_x: int = 1, radial: bool = False, **traits: Any):
        super().__init__()
        self.traits = ScoreTraits(displacement=True, radial=radial, **traits)
        self.heads, self.dim = heads, 1 if radial else dim_x

    def validate(self, heads: int, dim_x: int) -> None:
        name = type(self).__name__
        if self.heads not in (1, heads):
            raise InputError(f"attend: {name} has heads={self.heads}, but there are {heads}")
        if not self.traits.radial and self.dim != dim_x:
            raise InputError(f"attend: {name} has dim_x={self.dim}, but locations have {dim_x} dimensions")

    def closed_form(self) -> ClosedForm | None:
        """This score as the compiled kernel evaluates it on every pair; None where the kernel has no such form."""
        return None

    def reduce(self, delta: Delta) -> Float[Tensor, "b _ n m"]:
        """The argument of this score: Δ [b dx n m], or ‖Δ‖ [b 1 n m]."""
        return reduce_to_radius(delta) if self.traits.radial else delta

    def extra_repr(self) -> str:
        return f"heads={self.heads}, dim={self.dim}, radial={self.traits.radial}"


class _LengthScaleScore(DisplacementScore):
    """A score with a length scale ℓ per head (and per dimension unless radial). Heads start from low to high ones."""

    def __init__(self, heads=1, dim_x=1, radial=False, init: float | tuple[float, float] = (0.2, 2.0), **traits: Any):
        super().__init__(heads, dim_x, radial, **traits)
        low, high = init if isinstance(init, tuple) else (init, init)
        logs = torch.linspace(math.log(low), math.log(high), heads)
        logs = logs if heads > 1 else torch.tensor([math.log(low * high) / 2])
        self.log_scale = nn.Parameter(logs[:, None].repeat(1, self.dim))

    @property
    def scale(self) -> Float[Tensor, "h dx"]:
        return self.log_scale.exp()

    def squared_factors(self, delta: Delta) -> tuple[Float[Tensor, "h _"], Float[Tensor, "b _ n m"]]:
        """1/ℓ² and Δ², whose products sum to ‖Δ/ℓ‖²; radial: ‖Δ‖² = Σ Δ², one ℓ for all dimensions."""
        squares = delta.square()
        return self.scale.pow(-2), squares.sum(1, keepdim=True) if self.traits.radial else squares


class Laplace(_LengthScaleScore):
    """logit = −‖Δ/ℓ‖₁ (Kim et al. 2019); radial: −‖Δ‖₂/ℓ."""

    def forward(self, q, k, delta):
        return -torch.einsum("hd,bdnm->bhnm", 1 / self.scale, self.reduce(delta).abs())

    def closed_form(self):
        return ClosedForm("radial-laplace" if self.traits.radial else "laplace", self.log_scale)


class Gaussian(_LengthScaleScore):
    """logit = −½‖Δ/ℓ‖²: the *weight* is a Gaussian. Folds by expanding the square."""

    def forward(self, q, k, delta):
        return -0.5 * torch.einsum("hd,bdnm->bhnm", *self.squared_factors(delta))

    def closed_form(self):
        return ClosedForm("gaussian", self.log_scale)

    def fold(self, q, k, xq, xk):
        if torch.compiler.is_compiling():
            return None
        scale = self.scale[:, None, :]  # [h 1 dim]
        query, key = xq[:, None] / scale, xk[:, None] / scale  # [b h n dx]
        if any(x.numel() and x.detach().abs().amax() ** 2 > _MAX_FOLDED_SQUARE for x in (query, key)):
            return None
        ones_q, ones_k = torch.ones_like(query[..., :1]), torch.ones_like(key[..., :1])
        half_q, half_k = -0.5 * query.square().sum(-1, keepdim=True), -0.5 * key.square().sum(-1, keepdim=True)
        return torch.cat([query, half_q, ones_q], -1), torch.cat([key, ones_k, half_k], -1)


class RBF(_LengthScaleScore):
    """logit = a · exp(−½‖Δ/ℓ‖²): the *logit* is an RBF (Sivaraya 2023)."""

    def __init__(self, heads=1, dim_x=1, radial=False, init=(0.05, 1.0), amplitude: float = 4.0):
        super().__init__(heads, dim_x, radial, init)
        self.amplitude = nn.Parameter(torch.full((heads,), amplitude))

    def forward(self, q, k, delta):
        return _ScaledGaussian.apply(self.amplitude, *self.squared_factors(delta))

    def closed_form(self):
        return ClosedForm("rbf", self.log_scale, self.amplitude)


class _ScaledGaussian(torch.autograd.Function):
    """a_h exp(−½ Σ_d c_hd s_d) for a [h], c [h d] and s [b d n m]. Autograd would take twice the passes over pairs."""

    @staticmethod
    def forward(ctx, a, c, s):
        # e^(−40) is negligible beside any logit; smaller exponents would give denormal numbers, which are slow
        gaussian = torch.einsum("hd,bdnm->bhnm", -0.5 * c, s).clamp_(min=-40).exp_()
        ctx.save_for_backward(a, c, s, gaussian)
        return a[:, None, None] * gaussian

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        a, c, s, gaussian = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is requested, and the saved tensor has no graph
            gaussian = torch.einsum("hd,bdnm->bhnm", -0.5 * c, s).clamp(min=-40).exp()
        d_gaussian = grad * gaussian
        d_c = torch.einsum("bhnm,bdnm->hd", d_gaussian, s)
        d_s = torch.einsum("hd,bhnm->bdnm", -0.5 * a[:, None] * c, d_gaussian) if ctx.needs_input_grad[2] else None
        return d_gaussian.sum((0, 2, 3)), -0.5 * a[:, None] * d_c, d_s


class Linear(DisplacementScore):
    """logit = w · Δ. Its query part cancels in a softmax, so alone it gives all targets the same weights: a control.
    Radial: w ‖Δ‖, which does not cancel."""

    def __init__(self, heads=1, dim_x=1, radial=False):
        super().__init__(heads, dim_x, radial)
        self.weight = nn.Parameter(torch.randn(heads, self.dim))

    def forward(self, q, k, delta):
        return torch.einsum("hd,bdnm->bhnm", self.weight, self.reduce(delta))

    def fold(self, q, k, xq, xk):
        if self.traits.radial:
            return None
        query, key = (xq @ self.weight.T).mT[..., None], (xk @ self.weight.T).mT[..., None]  # [b h n 1]
        return torch.cat([query, torch.ones_like(query)], -1), torch.cat([torch.ones_like(key), -key], -1)


class Fourier(DisplacementScore):
    """logit = Σ_f a_f cos(ω_f·Δ) + b_f sin(ω_f·Δ), frequencies shared by heads: a SIREN with one hidden layer. Folds by
    angle addition. Frequencies start as random Fourier features of a Gaussian kernel of length 1/bandwidth."""

    def __init__(self, heads=1, dim_x=1, radial=False, frequencies: int = 16, bandwidth: float = 4.0):
        super().__init__(heads, dim_x, radial)
        self.omega = nn.Parameter(bandwidth * torch.randn(frequencies, self.dim))
        self.even = nn.Parameter(torch.randn(heads, frequencies) / math.sqrt(frequencies))
        self.odd = nn.Parameter(torch.randn(heads, frequencies) / math.sqrt(frequencies))

    def forward(self, q, k, delta):
        phase = torch.einsum("fd,bdnm->bfnm", self.omega, self.reduce(delta))
        waves = torch.cat([phase.cos(), phase.sin()], 1)
        return torch.einsum("hf,bfnm->bhnm", torch.cat([self.even, self.odd], 1), waves)

    def fold(self, q, k, xq, xk):
        if self.traits.radial:
            return None
        query, key = (xq @ self.omega.T)[:, None], (xk @ self.omega.T)[:, None]  # [b 1 n f]
        cos, sin, a, b = query.cos(), query.sin(), self.even[:, None], self.odd[:, None]
        columns = torch.cat([a * cos + b * sin, a * sin - b * cos], -1)
        return columns, torch.cat([key.cos(), key.sin()], -1)


class _PairwiseMLP(nn.Module):
    """An MLP over the channels of [b c n m] with one output per head and no output bias (a softmax cancels it)."""

    def __init__(self, dim_in: int, hidden: tuple[int, ...], dim_out: int, activation=nn.functional.silu):
        super().__init__()
        self.activation = activation
        sizes = [dim_in, *hidden]
        self.layers: Iterable[Any] = nn.ModuleList(LinearLayer(i, o) for i, o in pairwise(sizes))
        self.out = LinearLayer(sizes[-1], dim_out, bias=False)

    @torch.no_grad()
    def initialise(self, bandwidth: float) -> None:
        """Draw weights with which the logits vary by about one over displacements of 1/bandwidth. With torch's default
        weights they are nearly constant there, and a model learns to use locations slowly."""
        first, *others = self.layers
        first.weight.normal_(0, bandwidth)
        first.bias.uniform_(-2 * bandwidth, 2 * bandwidth)
        for layer in (*others, self.out):
            layer.weight.normal_(0, math.sqrt(2 / layer.in_features))

    def forward(self, z: Float[Tensor, "b c n m"]) -> Float[Tensor, "b h n m"]:
        b, _, n, m = z.shape
        z = z.flatten(2)  # channels first: the logits come out in the layout of attention
        widest = max(layer.out_features for layer in self.layers)
        if z.dtype == torch.float32 and b * n * m * widest >= _MIN_TILED and not torch.compiler.is_compiling():
            logits = _Tiled.apply(z.mT.flatten(0, 1), self._apply_to_rows, *self.parameters())
            return logits.view(b, n * m, -1).mT.unflatten(-1, (n, m))
        for layer in self.layers:  # batched products take half the time of a convolution, forward and backward
            z = self.activation(torch.baddbmm(layer.bias[:, None], layer.weight.expand(b, -1, -1), z))
        return torch.bmm(self.out.weight.expand(b, -1, -1), z).view(b, self.out.out_features, n, m)

    def _apply_to_rows(self, z: Float[Tensor, "p c"]) -> Float[Tensor, "p h"]:
        for layer in self.layers:
            z = self.activation(layer(z))
        return self.out(z)


class _Tiled(torch.autograd.Function):
    """A network over rows, in tiles that stay in cache. The backward pass computes them again."""

    @staticmethod
    def forward(ctx, z, network, *parameters):
        ctx.save_for_backward(z, *parameters)
        ctx.network = network
        return torch.cat([network(tile) for tile in z.split(_TILE_ROWS)])

    @staticmethod
    def backward(ctx, *grad_outputs):
        (grad,) = grad_outputs
        z, *parameters = ctx.saved_tensors
        create_graph = torch.is_grad_enabled()
        totals = [torch.zeros_like(part) for part in parameters]
        of_z = []
        for tile, part in zip(z.split(_TILE_ROWS), grad.split(_TILE_ROWS), strict=True):
            with torch.enable_grad():
                tile = tile if create_graph else tile.detach().requires_grad_()
                inputs = [tile, *parameters] if tile.requires_grad else parameters
                found = list(torch.autograd.grad(ctx.network(tile), inputs, part, create_graph=create_graph))
            if tile.requires_grad:
                of_z.append(found.pop(0))
            totals = [total + one for total, one in zip(totals, found, strict=True)]
        return torch.cat(of_z) if of_z else None, None, *totals


class MLP(DisplacementScore):
    """logit = MLP(Δ), a learned function of the displacement (Sivaraya 2023; Ashman et al. 2024)."""

    def __init__(self, heads=1, dim_x=1, radial=False, hidden: tuple[int, ...] = (32, 32), bandwidth: float = 4.0):
        super().__init__(heads, dim_x, radial, channels=max(hidden), costly=True)
        self.network = _PairwiseMLP(self.dim, tuple(hidden), heads)  # smooth, so that a table of it interpolates well
        self.network.initialise(bandwidth)

    def forward(self, q, k, delta):
        return self.network(self.reduce(delta))


class JointMLP(DisplacementScore):
    """logit = MLP([Δ, q·k/√d of every head]), as in the released code of TE-TNP (Ashman et al. 2024)."""

    def __init__(self, heads=1, dim_x=1, radial=False, hidden: tuple[int, ...] = (128, 128)):
        super().__init__(heads, dim_x, radial, content=True, channels=max(hidden), mixed=True, costly=True)
        self.network = _PairwiseMLP(self.dim + heads, tuple(hidden), heads, torch.relu_)

    def forward(self, q, k, delta):
        content = DotProduct.scaled(q) @ k.mT
        return self.network(torch.cat([self.reduce(delta).expand(len(content), -1, -1, -1), content], 1))


class NetworkScore(DisplacementScore):
    """logit = F(Δ) for any network F from [… dx] to [… heads], for example a SIREN."""

    def __init__(self, network: nn.Module, heads=1, dim_x=1, radial=False):
        super().__init__(heads, dim_x, radial, costly=True)
        self.network = network

    def forward(self, q, k, delta):
        return self.network(self.reduce(delta).movedim(1, -1)).movedim(-1, 1)
