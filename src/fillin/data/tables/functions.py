"""Random functions of several columns: f [n] of x [n d], each column of deviation about one."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from fillin.data.tables.draws import Draws

Inputs = Float[Tensor, "n d"]
Values = Float[Tensor, "n"]


def any_function(x: Inputs, draw: Draws) -> Values:
    """One of the four, those that are cheapest a little more often."""
    kind = draw.whole(0, 6)
    if kind <= 1:
        return network(x, draw)
    if kind <= 3:
        return shapes(x, draw)
    return trees(x, draw) if kind == 4 else process(x, draw)


def process(x: Inputs, draw: Draws, waves: int = 128) -> Values:
    """A Gaussian process by random waves Σ_k a_k cos(ω_k·x + φ_k): RBF, or Matérn where ω has heavy tails; a length per
    column."""
    d = x.shape[1]
    lengths = math.sqrt(d) * torch.exp(math.log(0.4) + math.log(20) * draw.rand(d))
    heavy = draw.gamma(draw.uniform(0.5, 2.5), waves).sqrt() if draw.chance(0.5) else torch.ones(waves)
    omega = draw.randn(d, waves) / lengths[:, None] / heavy.clamp_min(0.05)
    return torch.cos(x @ omega + 2 * math.pi * draw.rand(waves)) @ draw.randn(waves)


def network(x: Inputs, draw: Draws) -> Values:
    """Two or three layers, one of several activations."""
    act = _ACTIVATIONS[draw.whole(0, len(_ACTIVATIONS) - 1)]
    for _ in range(draw.whole(1, 2)):
        width = draw.whole(2, 24)
        weights = draw.randn(x.shape[1], width) * (draw.rand(x.shape[1], width) < draw.uniform(0.4, 1.0))
        x = act(draw.log_uniform(0.5, 3) * x @ weights / math.sqrt(x.shape[1]) + draw.randn(width))
        x = (x - x.mean(0)) / x.std(0).clamp_min(1e-3)
    return x @ draw.randn(x.shape[1])


def trees(x: Inputs, draw: Draws) -> Values:
    """A sum of up to 40 trees of depth 1 to 4 whose levels each ask one question."""
    count, depth = round(draw.log_uniform(1, 40)), draw.whole(1, 4)
    weights = draw.gamma(0.6, x.shape[1]) + 1e-3
    column = torch.multinomial(weights, count * depth, replacement=True, generator=draw.random)
    asked = x[:, column]
    threshold = asked[draw.randint(len(x), count * depth), torch.arange(count * depth)]
    bits = (asked > threshold).view(len(x), count, depth).long()
    leaf = (bits << torch.arange(depth)).sum(-1)
    return draw.randn(count, 1 << depth)[torch.arange(count), leaf].sum(1)


def shapes(x: Inputs, draw: Draws) -> Values:
    """Σ_j a_j s_j(x_j) + Σ a_jk s_j(x_j) s_k(x_k), each s a line, a bend, a step, a wave, a power."""
    d = x.shape[1]
    bent = [_SHAPES[draw.whole(0, len(_SHAPES) - 1)](x[:, j], draw.uniform(0.3, 2.5), draw.uniform(-1.5, 1.5))
            for j in range(d)]  # fmt: skip
    s = torch.stack(bent, 1)
    s = (s - s.mean(0)) / s.std(0).clamp_min(1e-3)
    y = s @ (draw.randn(d) * draw.gamma(1.0, d))
    for _ in range(draw.whole(0, min(d, 4))):
        y = y + draw.uniform(-1.5, 1.5) * s[:, draw.whole(0, d - 1)] * s[:, draw.whole(0, d - 1)]
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
