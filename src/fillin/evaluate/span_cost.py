"""Cost of attention with a learned span: inputs, windows and candidate implementations.

Self-attention of n points, forward and backward, batch 1, 4 heads of dimension 16, float32, with gradients to q, k, v
and the span. Points lie in the unit interval, square or cube; a span of share 0.05 is a ball of 5 % of its volume.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, threshold

from fillin.attention import Score, Span, attend
from fillin.measure import Workload

HEADS, HEAD_DIM, THRESHOLD = 4, 16, 0.1
NATIVE, HARD, FUSED, BIAS, REFERENCE = CANDIDATES = (
    "native", "native, hard cut", "fused, no window", "window as a bias", "reference",
)  # fmt: skip


@dataclass
class AttentionInputs:
    """q, k, v [1 h n d] in the memory layout of a layer's projections, locations x, and the gradient of the output."""

    x: Float[Tensor, "1 n dx"]
    seed: int = 0
    q: Tensor = field(init=False)
    k: Tensor = field(init=False)
    v: Tensor = field(init=False)
    output_grad: Tensor = field(init=False)

    def __post_init__(self):
        generator = torch.Generator().manual_seed(self.seed)
        shape = 1, self.x.shape[1], HEADS, HEAD_DIM
        *qkv, self.output_grad = (torch.randn(shape, generator=generator).transpose(1, 2) for _ in range(4))
        self.q, self.k, self.v = (t.requires_grad_() for t in qkv)

    def run(self, forward: Callable[[], Tensor], *modules: torch.nn.Module) -> Workload:
        """Forward and backward pass. Gradients are returned, not accumulated: every run allocates them anew."""
        inputs = [self.q, self.k, self.v, *(p for module in modules for p in module.parameters())]
        return lambda: torch.autograd.grad(forward(), inputs, self.output_grad)

    def attend(self, backend: str, span: Span | None = None, score: Score | None = None, **options) -> Workload:
        """Attention by one of the library's back ends."""

        def forward() -> Tensor:
            return attend(
                self.q, self.k, self.v, xq=self.x, xk=self.x, score=score, span=span, backend=backend, **options
            )

        return self.run(forward, *(module for module in (span, score) if module is not None))

    def fused(self) -> Workload:
        """Attention of torch, without a span."""
        return self.run(lambda: scaled_dot_product_attention(self.q, self.k, self.v))

    def bias(self, span: Span) -> Workload:
        """Attention of torch with ln W added to the logits, in as few passes over pairs as autograd allows.

        Keys outside the window keep a negligible weight: −∞ would need a mask and another pass.
        """

        def forward() -> Tensor:
            squares = (self.x.mT[0, :, :, None] - self.x.mT[0, :, None, :]).square()  # [dx n m]
            g = torch.einsum("hd,dnm->hnm", -0.5 * (-2 * span.log_sigma).exp(), squares).exp()
            bias = threshold(g - span.threshold, 1e-12, 1e-12, inplace=True).log()  # 1/(1 − t) cancels in the softmax
            return scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=bias)

        return self.run(forward, span)


def sample_locations(layout: str, dim: int, points: int, seed: int = 0) -> Float[Tensor, "1 n dx"]:
    """Pixel centres ("grid") or uniformly random locations ("scattered") in the unit interval, square or cube."""
    if layout == "scattered":
        return torch.rand(1, points, dim, generator=torch.Generator().manual_seed(seed))
    side = round(points ** (1 / dim))
    axes = [(torch.arange(side) + 0.5) / side] * dim
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, dim)


def ball_radius(volume: float, dim: int) -> float:
    """Radius r of a ball of given volume V = π^(dim/2)/Γ(dim/2 + 1) · r^dim.

    >>> round(ball_radius(0.2, 1), 3), round(ball_radius(math.pi / 4, 2), 3)
    (0.1, 0.5)
    """
    unit_ball = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1)
    return (volume / unit_ball) ** (1 / dim)


def neighbour_radius(x: Float[Tensor, "1 n dx"], neighbours: int, sample: int = 512) -> float:
    """Radius that holds this many neighbours on average over points, those at the edges included."""
    distances = torch.cdist(_subsample(x, sample), x[0]).flatten()
    return float(distances.kthvalue(min(len(distances), neighbours * min(sample, x.shape[1]))).values)


def fraction_inside(x: Float[Tensor, "1 n dx"], radius: float, sample: int = 4096) -> float:
    """Fraction of pairs closer than the radius, estimated from at most `sample` points against all."""
    inside = [(torch.cdist(chunk, x[0]) < radius).float().mean(1) for chunk in _subsample(x, sample).split(256)]
    return float(torch.cat(inside).mean())


def _subsample(x: Tensor, size: int) -> Tensor:
    """Evenly spaced rows of x[0], at most `size`."""
    return x[0, torch.linspace(0, x.shape[1] - 1, min(size, x.shape[1])).long()]


def span_of_radius(radius: float, dim: int, cut: str = "continuous") -> Span:
    """Span per head whose window ends at the radius: σ = r/√(−2 ln t)."""
    return Span(dim, HEADS, init=radius / math.sqrt(-2 * math.log(THRESHOLD)), threshold=THRESHOLD, cut=cut)
