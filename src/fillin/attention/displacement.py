"""Scores of the displacement: what it is worth that a key lies Δ away from the query.

Each has its own parameters per head, in any number of dimensions; `radial` makes it a function of ‖Δ‖ alone.
"""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.attention.scores import Delta, DotProduct, Score
from fillin.errors import InputError

# A folded −½‖Δ/ℓ‖² is a small difference of large squares: beyond this the digits of float32 are gone.
_FOLD_LIMIT = 400.0


class PlaceScore(Score):
    """A score of Δ, or of ‖Δ‖ where `radial`: then one set of weights serves any number of dimensions."""

    places = True
    tabulates = False  # smooth, and costly on every pair: may be read from a table where pairs are many

    def __init__(self, heads: int = 1, dim_x: int = 1, radial: bool = False):
        super().__init__()
        self.heads, self.radial = heads, radial
        self.dim = 1 if radial else dim_x

    def check(self, heads: int, dim_x: int) -> None:
        if self.heads not in (1, heads):
            raise InputError(f"attend: {type(self).__name__} has heads={self.heads}, but there are {heads}")
        if not self.radial and self.dim != dim_x:
            raise InputError(f"attend: {type(self).__name__} has dim_x={self.dim}, but places have {dim_x} dimensions")

    def seen(self, delta: Delta) -> Float[Tensor, "b _ n m"]:
        """Δ as this score sees it: [b dx n m], or ‖Δ‖ [b 1 n m]."""
        return torch.linalg.vector_norm(delta, dim=1, keepdim=True) if self.radial else delta

    def extra_repr(self) -> str:
        return f"heads={self.heads}, dim={self.dim}, radial={self.radial}"


def _spread(low: float, high: float, heads: int, dim: int) -> Tensor:
    """Log-scales [h dim] from low to high, so that heads start out looking at different distances."""
    at = torch.linspace(math.log(low), math.log(high), heads) if heads > 1 else torch.tensor([math.log(low * high) / 2])
    return at[:, None].repeat(1, dim)


class _Scaled(PlaceScore):
    """A place score with a length scale ℓ per head (and per dimension unless radial)."""

    def __init__(self, heads=1, dim_x=1, radial=False, init: float | tuple[float, float] = (0.2, 2.0)):
        super().__init__(heads, dim_x, radial)
        low, high = init if isinstance(init, tuple) else (init, init)
        self.log_scale = nn.Parameter(_spread(low, high, heads, self.dim))

    @property
    def scale(self) -> Float[Tensor, "h dx"]:
        return self.log_scale.exp()

    def squared(self, delta: Delta) -> Float[Tensor, "b h n m"]:
        """‖Δ/ℓ‖² per head."""
        return torch.einsum("hd,bdnm->bhnm", *self.parts(delta))

    def parts(self, delta: Delta) -> tuple[Float[Tensor, "h _"], Float[Tensor, "b _ n m"]]:
        """1/ℓ² and Δ², whose products sum to ‖Δ/ℓ‖²; radial: ‖Δ‖² = Σ Δ², one ℓ for all dimensions."""
        squares = delta.square()
        return self.scale.pow(-2), squares.sum(1, keepdim=True) if self.radial else squares


class Laplace(_Scaled):
    """logit = −‖Δ/ℓ‖₁ (Kim et al. 2019); radial: −‖Δ‖₂/ℓ."""

    def forward(self, q, k, delta):
        return -torch.einsum("hd,bdnm->bhnm", 1 / self.scale, self.seen(delta).abs())


class Gaussian(_Scaled):
    """logit = −½‖Δ/ℓ‖²: the *weight* is an RBF. Folds by completing the square."""

    def forward(self, q, k, delta):
        return -0.5 * self.squared(delta)

    def fold(self, q, k, xq, xk):
        if torch.compiler.is_compiling():
            return None
        scale = self.scale[:, None, :]  # [h 1 dim]
        query, key = xq[:, None] / scale, xk[:, None] / scale  # [b h n dx]
        far = (
            torch.maximum(query.detach().abs().amax(), key.detach().abs().amax()) if xk.shape[1] and xq.shape[1] else 0
        )
        if far**2 > _FOLD_LIMIT:
            return None
        one_q, one_k = torch.ones_like(query[..., :1]), torch.ones_like(key[..., :1])
        half_q, half_k = -0.5 * query.square().sum(-1, keepdim=True), -0.5 * key.square().sum(-1, keepdim=True)
        return torch.cat([query, half_q, one_q], -1), torch.cat([key, one_k, half_k], -1)


class RBF(_Scaled):
    """logit = a · exp(−½‖Δ/ℓ‖²): the *logit* is an RBF (document 000)."""

    def __init__(self, heads=1, dim_x=1, radial=False, init=(0.05, 1.0), amplitude: float = 4.0):
        super().__init__(heads, dim_x, radial, init)
        self.amplitude = nn.Parameter(torch.full((heads,), amplitude))

    def forward(self, q, k, delta):
        return _Bump.apply(self.amplitude, *self.parts(delta))


class _Bump(torch.autograd.Function):
    """a_h exp(−½ Σ_d c_hd s_d) for a [h], c [h d] and s [b d n m]: autograd's, in half the passes over pairs."""

    @staticmethod
    def forward(ctx, a, c, s):
        # e^(−40) is nothing beside any logit; what lies further would be denormal numbers, and those are slow
        bump = torch.einsum("hd,bdnm->bhnm", -0.5 * c, s).clamp_(min=-40).exp_()
        ctx.save_for_backward(a, c, s, bump)
        return a[:, None, None] * bump

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]
        a, c, s, bump = ctx.saved_tensors
        if torch.is_grad_enabled():  # someone wants a second derivative: what was kept has no history
            bump = torch.einsum("hd,bdnm->bhnm", -0.5 * c, s).clamp(min=-40).exp()
        by_head = grad * bump
        along = torch.einsum("bhnm,bdnm->hd", by_head, s)
        d_s = torch.einsum("hd,bhnm->bdnm", -0.5 * a[:, None] * c, by_head) if ctx.needs_input_grad[2] else None
        return by_head.sum((0, 2, 3)), -0.5 * a[:, None] * along, d_s


class Linear(PlaceScore):
    """logit = w · Δ. Its query part cancels in a softmax, so alone it cannot tell targets apart: a control.

    Radial: w ‖Δ‖, which can.
    """

    def __init__(self, heads=1, dim_x=1, radial=False):
        super().__init__(heads, dim_x, radial)
        self.weight = nn.Parameter(torch.randn(heads, self.dim))

    def forward(self, q, k, delta):
        return torch.einsum("hd,bdnm->bhnm", self.weight, self.seen(delta))

    def fold(self, q, k, xq, xk):
        if self.radial:
            return None
        query, key = (xq @ self.weight.T).mT[..., None], (xk @ self.weight.T).mT[..., None]  # [b h n 1]
        return torch.cat([query, torch.ones_like(query)], -1), torch.cat([torch.ones_like(key), -key], -1)


class Fourier(PlaceScore):
    """logit = Σ_f a_f cos(ω_f·Δ) + b_f sin(ω_f·Δ), frequencies shared by heads: a SIREN of one hidden layer.

    Folds by angle addition. Frequencies start as those of a Gaussian kernel of length `1 / bandwidth`.
    """

    def __init__(self, heads=1, dim_x=1, radial=False, frequencies: int = 16, bandwidth: float = 4.0):
        super().__init__(heads, dim_x, radial)
        self.omega = nn.Parameter(bandwidth * torch.randn(frequencies, self.dim))
        self.even = nn.Parameter(torch.randn(heads, frequencies) / math.sqrt(frequencies))
        self.odd = nn.Parameter(torch.randn(heads, frequencies) / math.sqrt(frequencies))

    def forward(self, q, k, delta):
        phase = torch.einsum("fd,bdnm->bfnm", self.omega, self.seen(delta))
        waves = torch.cat([phase.cos(), phase.sin()], 1)
        return torch.einsum("hf,bfnm->bhnm", torch.cat([self.even, self.odd], 1), waves)

    def fold(self, q, k, xq, xk):
        if self.radial:
            return None
        query, key = (xq @ self.omega.T)[:, None], (xk @ self.omega.T)[:, None]  # [b 1 n f]
        cos, sin, a, b = query.cos(), query.sin(), self.even[:, None], self.odd[:, None]
        columns = torch.cat([a * cos + b * sin, a * sin - b * cos], -1)
        return columns, torch.cat([key.cos(), key.sin()], -1)


class _Pairwise(nn.Module):
    """An MLP over channels of [b c n m], heads out, no output bias (it would cancel in the softmax)."""

    def __init__(self, dim_in: int, hidden: tuple[int, ...], dim_out: int, activation=nn.functional.silu):
        super().__init__()
        self.activation = activation
        sizes = [dim_in, *hidden]
        self.layers: Iterable[Any] = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.out = nn.Linear(sizes[-1], dim_out, bias=False)

    @torch.no_grad()
    def start(self, bandwidth: float) -> None:
        """Weights that make the logits vary by about one over displacements of 1/bandwidth: from torch's own, which
        are nearly constant there, places are learned only slowly."""
        first, *others = self.layers
        first.weight.normal_(0, bandwidth)
        first.bias.uniform_(-2 * bandwidth, 2 * bandwidth)
        for layer in (*others, self.out):
            layer.weight.normal_(0, math.sqrt(2 / layer.in_features))

    def forward(self, z: Float[Tensor, "b c n m"]) -> Float[Tensor, "b h n m"]:
        b, _, n, m = z.shape
        z = z.flatten(2)  # channels first: the logits come out in the layout that attention wants
        for layer in self.layers:
            z = self.activation(nn.functional.conv1d(z, layer.weight[..., None], layer.bias))
        return nn.functional.conv1d(z, self.out.weight[..., None]).view(b, self.out.out_features, n, m)


class MLP(PlaceScore):
    """logit = MLP(Δ): any function of the displacement, learned (documents 000, TE-TNP)."""

    tabulates = True

    def __init__(self, heads=1, dim_x=1, radial=False, hidden: tuple[int, ...] = (32, 32), bandwidth: float = 4.0):
        super().__init__(heads, dim_x, radial)
        self.network = _Pairwise(self.dim, tuple(hidden), heads)  # smooth, so that a table of it interpolates well
        self.channels = max(hidden)
        self.network.start(bandwidth)

    def forward(self, q, k, delta):
        return self.network(self.seen(delta))


class Joint(PlaceScore):
    """logit = MLP([Δ, q·k/√d of every head]): the released form of TE-TNP (Ashman et al. 2024)."""

    content = True
    mixes = True

    def __init__(self, heads=1, dim_x=1, radial=False, hidden: tuple[int, ...] = (128, 128)):
        super().__init__(heads, dim_x, radial)
        self.network = _Pairwise(self.dim + heads, tuple(hidden), heads, torch.relu_)
        self.channels = max(hidden)

    def forward(self, q, k, delta):
        content, seen = DotProduct.scaled(q) @ k.mT, self.seen(delta)
        return self.network(torch.cat([seen.expand(len(content), -1, -1, -1), content], 1))


class Bias(PlaceScore):
    """logit = F(Δ) for any network F from [… dx] to [… heads], for example a SIREN."""

    tabulates = True

    def __init__(self, network: nn.Module, heads=1, dim_x=1, radial=False):
        super().__init__(heads, dim_x, radial)
        self.network = network

    def forward(self, q, k, delta):
        return self.network(self.seen(delta).movedim(1, -1)).movedim(-1, 1)
