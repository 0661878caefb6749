"""Random functions of several columns, for the prior over tables: f [n] of x [n d], each column standardised."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

Inputs = Float[Tensor, "n d"]
Values = Float[Tensor, "n"]


class Sampler:
    """Random numbers of several distributions from one generator."""

    def __init__(self, random: torch.Generator):
        self.random = random

    def rand(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.random)

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random)

    def gamma(self, shape: float, n: int) -> Tensor:
        """Draw n gamma variables of mean 1."""
        return torch._standard_gamma(torch.full((n,), shape), generator=self.random) / shape

    def randint(self, high: int, n: int) -> Tensor:
        return torch.randint(high, (n,), generator=self.random)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.random))

    def log_uniform(self, low: float, high: float) -> float:
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def integer(self, low: int, high: int) -> int:
        """Draw a whole number from low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.random))

    def bernoulli(self, probability: float) -> bool:
        return self.uniform(0, 1) < probability

    def permutation(self, n: int) -> list[int]:
        return torch.randperm(n, generator=self.random).tolist()


def any_function(x: Inputs, draw: Sampler) -> Values:
    """Draw one of the four kinds of functions, the cheaper ones a little more often."""
    kind = draw.integer(0, 6)
    if kind <= 1:
        return network(x, draw)
    if kind <= 3:
        return additive(x, draw)
    return trees(x, draw) if kind == 4 else gaussian_process(x, draw)


def gaussian_process(x: Inputs, draw: Sampler, waves: int = 128) -> Values:
    """Draw a Gaussian process by random features Σ_k a_k cos(ω_k·x + φ_k) with a length scale per column.

    The kernel is RBF, or Matérn where ω has heavy tails (Rahimi & Recht 2007).
    """
    d = x.shape[1]
    lengths = math.sqrt(d) * torch.exp(math.log(0.4) + math.log(20) * draw.rand(d))
    heavy = draw.gamma(draw.uniform(0.5, 2.5), waves).sqrt() if draw.bernoulli(0.5) else torch.ones(waves)
    omega = draw.randn(d, waves) / lengths[:, None] / heavy.clamp_min(0.05)
    return torch.cos(x @ omega + 2 * math.pi * draw.rand(waves)) @ draw.randn(waves)


def network(x: Inputs, draw: Sampler) -> Values:
    """Draw a network of two or three layers with one of several activations."""
    activation = _ACTIVATIONS[draw.integer(0, len(_ACTIVATIONS) - 1)]
    for _ in range(draw.integer(1, 2)):
        width = draw.integer(2, 24)
        weights = draw.randn(x.shape[1], width) * (draw.rand(x.shape[1], width) < draw.uniform(0.4, 1.0))
        x = activation(draw.log_uniform(0.5, 3) * x @ weights / math.sqrt(x.shape[1]) + draw.randn(width))
        x = (x - x.mean(0)) / x.std(0).clamp_min(1e-3)
    return x @ draw.randn(x.shape[1])


def trees(x: Inputs, draw: Sampler) -> Values:
    """Draw a sum of up to 40 trees of depth 1 to 4, each level with one split."""
    count, depth = round(draw.log_uniform(1, 40)), draw.integer(1, 4)
    weights = draw.gamma(0.6, x.shape[1]) + 1e-3
    column = torch.multinomial(weights, count * depth, replacement=True, generator=draw.random)
    inputs = x[:, column]
    threshold = inputs[draw.randint(len(x), count * depth), torch.arange(count * depth)]
    bits = (inputs > threshold).view(len(x), count, depth).long()
    leaf = (bits << torch.arange(depth)).sum(-1)
    return draw.randn(count, 1 << depth)[torch.arange(count), leaf].sum(1)


def additive(x: Inputs, draw: Sampler) -> Values:
    """Draw Σ_j a_j s_j(x_j) + Σ a_jk s_j(x_j) s_k(x_k), each s a line, a kink, a step, a wave or a power."""
    d = x.shape[1]
    shapes = [_SHAPES[draw.integer(0, len(_SHAPES) - 1)](x[:, j], draw.uniform(0.3, 2.5), draw.uniform(-1.5, 1.5))
              for j in range(d)]  # fmt: skip
    s = torch.stack(shapes, 1)
    s = (s - s.mean(0)) / s.std(0).clamp_min(1e-3)
    y = s @ (draw.randn(d) * draw.gamma(1.0, d))
    for _ in range(draw.integer(0, min(d, 4))):
        y = y + draw.uniform(-1.5, 1.5) * s[:, draw.integer(0, d - 1)] * s[:, draw.integer(0, d - 1)]
    return y


_ACTIVATIONS = (
    torch.tanh, torch.relu, torch.sin, torch.abs, torch.sigmoid,
    lambda x: x.clamp(-1, 1), lambda x: torch.exp(-x * x), lambda x: (x > 0).to(x.dtype), lambda x: x,
)  # fmt: skip

_SHAPES = (
    lambda x, a, c: x,
    lambda x, a, c: x,
    lambda x, a, c: (x - c).abs(),
    lambda x, a, c: torch.relu(x - c),
    lambda x, a, c: (x > c).to(x.dtype),
    lambda x, a, c: torch.sigmoid(3 * a * (x - c)),
    lambda x, a, c: torch.sin(2 * a * x + c),
    lambda x, a, c: torch.exp(a * x.clamp(-4, 4) / 2),
    lambda x, a, c: (x - c) ** 2,
    lambda x, a, c: torch.log1p(torch.nn.functional.softplus(3 * (x - c))),
    lambda x, a, c: torch.exp(-(2 * a * (x - c)) ** 2),
)  # fmt: skip
