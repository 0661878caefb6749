"""Prior over small synthetic tables, the training data of the recipe `table`.

Half of the tables come from a random causal graph, half from columns and a function of them. Columns are then warped,
censored, rounded or discretised into classes; a third of the targets are classes.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.task import TableBatch, check_count_ranges, make_generator

Column = Float[Tensor, "n"]
Inputs = Float[Tensor, "n d"]


@dataclass(frozen=True)
class Sampler:
    """Random numbers of several distributions from one generator."""

    random: torch.Generator

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


@dataclass(frozen=True)
class SyntheticTables:
    """Stream of batches of tables of one size, with at most `cells` cells per batch. The target is the last column; it
    is queried in all rows after the context. In half of the batches cells anywhere are missing as well, and queried."""

    rows: tuple[int, int] = (24, 640)
    columns: tuple[int, int] = (2, 14)
    cells: int = 12_000
    most_classes: int = 10
    seed: int = 0
    dim_x: int = 1  # the model takes any number of columns: both dims are placeholders
    dim_y: int = 1

    def __post_init__(self):
        check_count_ranges(self, "synthetic", rows=8, columns=2)

    @property
    def batch(self) -> int:
        """Batch size for tables of medium size."""
        return self._batch_size(*(round(math.sqrt(a * b)) for a, b in (self.rows, self.columns)))

    def _batch_size(self, rows: int, columns: int) -> int:
        return max(1, min(32, self.cells // (rows * columns)))

    def validation_stream(self, seed: int) -> "SyntheticTables":
        return replace(self, seed=seed, cells=self.cells // 3)

    def task(self, step: int) -> TableBatch:
        draw = Sampler(make_generator(self.seed, step))
        n, d = (round(draw.log_uniform(*pair)) for pair in (self.rows, self.columns))
        context = min(n - 4, max(4, round(n * draw.uniform(0.4, 0.95))))
        batch = self._batch_size(n, d)
        tables = [draw_table(n, d, self.most_classes, draw) for _ in range(batch)]
        values = torch.stack([values for values, _ in tables])
        observed = torch.ones_like(values, dtype=torch.bool)
        if draw.bernoulli(0.5):
            observed = draw.rand(batch, n, d) >= draw.uniform(0.02, 0.35)
            observed[:, :, -1] |= draw.rand(batch, n) < 0.7  # targets are missing less often
        observed[:, context:, -1] = False
        return TableBatch(values, observed, ~observed, torch.stack([classes for _, classes in tables]), context)


def draw_table(n: int, d: int, most_classes: int, draw: Sampler) -> tuple[Float[Tensor, "n d"], Int64[Tensor, "d"]]:
    """Draw a table and the number of classes of each column (0: numbers). The target is the last column."""
    columns = _draw_causal(n, d, draw) if draw.bernoulli(0.5) else _draw_supervised(n, d, draw)
    kinds, classes = draw.uniform(0, 1), []
    for j in range(d):  # some tables have only numbers, some only classes
        is_target = j == d - 1
        if draw.bernoulli(0.33 if is_target else 0.6 * kinds**2):
            limit = min(most_classes, max(2, n // 12)) if is_target else most_classes
            columns[j], k = _discretise(columns[j], draw.integer(2, limit), draw)
        else:
            columns[j], k = _warp(columns[j], is_target, draw), 0
        classes.append(k)
    return torch.stack(columns, 1).float(), torch.tensor(classes)


def _draw_causal(n: int, d: int, draw: Sampler) -> list[Column]:
    """Draw nodes in order, each a noisy function of a few before it; d of them are columns, a late one the target."""
    nodes: list[Column] = []
    roots, noise = draw.integer(1, max(1, d // 2)), draw.log_uniform(0.01, 1.0)
    for i in range(d + draw.integer(0, d)):
        if i < roots:
            nodes.append(_draw_root(n, draw))
            continue
        parents = torch.stack([nodes[draw.integer(0, i - 1)] for _ in range(draw.integer(1, min(4, i)))], 1)
        f = _standardise(any_function(parents, draw))
        nodes.append(_standardise(f + noise * draw.log_uniform(0.3, 3) * draw.randn(n)))
    target = draw.integer(max(len(nodes) // 2, min(roots, len(nodes) - 1)), len(nodes) - 1)
    others = [i for i in draw.permutation(len(nodes)) if i != target][: d - 1]
    return [*(nodes[i] for i in others), nodes[target]]


def _draw_supervised(n: int, d: int, draw: Sampler) -> list[Column]:
    """Draw columns that may share latent factors, and a function of some of them."""
    x = torch.stack([_draw_root(n, draw) for _ in range(d - 1)], 1)
    if draw.bernoulli(0.6) and d > 2:
        factors = draw.randn(n, draw.integer(1, max(1, d // 2)))
        x = x + draw.log_uniform(0.1, 3) * factors @ draw.randn(factors.shape[1], d - 1) / math.sqrt(factors.shape[1])
        x = (x - x.mean(0)) / x.std(0).clamp_min(1e-6)
    kept = x[:, draw.permutation(d - 1)[: draw.integer(1, d - 1)]] if draw.bernoulli(0.5) else x
    y = _standardise(any_function(kept, draw))
    if draw.bernoulli(0.3):
        y = _standardise(y + draw.log_uniform(0.1, 2) * _standardise(any_function(kept, draw)))
    heteroscedastic = (0.7 * _standardise(any_function(kept, draw))).clamp(-2, 2).exp() if draw.bernoulli(0.2) else 1.0
    tails = draw.randn(n) / (draw.gamma(2.0, n).sqrt() if draw.bernoulli(0.2) else 1.0)
    return [*x.unbind(1), y + draw.log_uniform(0.003, 1.0) * heteroscedastic * tails]


def _draw_root(n: int, draw: Sampler) -> Column:
    kind = draw.integer(0, 4)
    if kind <= 1:
        return draw.randn(n)
    if kind == 2:
        x = draw.rand(n)
    elif kind == 3:  # clusters
        centres = 2 * draw.randn(draw.integer(2, 6))
        x = centres[draw.randint(len(centres), n)] + draw.log_uniform(0.05, 1) * draw.randn(n)
    else:
        x = torch.exp(draw.uniform(0.3, 1.2) * draw.randn(n))
    return _standardise(x)


def _standardise(x: Column) -> Column:
    return (x - x.mean()) / x.std().clamp_min(1e-6)


def _warp(x: Column, is_target: bool, draw: Sampler) -> Column:
    """Apply one of the transforms to 60 % of the features or 33 % of the targets."""
    warps, kinds, max_size = (_TARGET_WARPS, 12, 1.5) if is_target else (_FEATURE_WARPS, 10, 2.0)
    kind, size = draw.integer(0, kinds - 1), draw.uniform(0.3, max_size)
    return warps[kind](x, size, draw) if kind < len(warps) else x


_FEATURE_WARPS = (
    lambda x, size, draw: torch.exp(size * x.clamp(max=6)),
    lambda x, size, draw: x.sign() * x.abs() ** size,
    lambda x, size, draw: x.argsort().argsort() / len(x),  # ranks
    lambda x, size, draw: _count_below(x, draw.rand(draw.integer(2, 20)).sort().values).to(x.dtype),  # few levels
    lambda x, size, draw: (x - torch.quantile(x, draw.uniform(0, 0.7))).clamp_min(0),  # censored from below
    lambda x, size, draw: (x * draw.log_uniform(1, 20)).round(),
)
_TARGET_WARPS = (
    lambda y, size, draw: torch.exp(size * y.clamp(max=6)),
    lambda y, size, draw: torch.nn.functional.softplus(3 * y) ** (2 * size),
    lambda y, size, draw: y.clamp(-draw.uniform(0.7, 3), draw.uniform(0.7, 3)),
    lambda y, size, draw: (y * draw.log_uniform(1, 20)).round(),
)


def _count_below(x: Column, probabilities: Float[Tensor, "k"]) -> Int64[Tensor, "n"]:
    """Return the number of these quantiles of x that lie below each value."""
    return torch.searchsorted(torch.quantile(x, probabilities), x.contiguous())


def _discretise(x: Column, k: int, draw: Sampler) -> tuple[Column, int]:
    """Cut a column at k − 1 quantiles into classes, in random order in 70 % of the cases."""
    shares = draw.rand(k) + 0.1
    codes = _count_below(x, (shares.cumsum(0) / shares.sum())[:-1])
    if draw.bernoulli(0.7):
        codes = torch.tensor(draw.permutation(k))[codes]
    return codes.to(x.dtype), k


def gaussian_process(x: Inputs, draw: Sampler, waves: int = 128) -> Column:
    """Draw a Gaussian process by random features Σ_k a_k cos(ω_k·x + φ_k) with a length scale per column. The kernel is
    RBF, or Matérn where ω has heavy tails (Rahimi & Recht 2007)."""
    d = x.shape[1]
    lengths = math.sqrt(d) * torch.exp(math.log(0.4) + math.log(20) * draw.rand(d))
    heavy = draw.gamma(draw.uniform(0.5, 2.5), waves).sqrt() if draw.bernoulli(0.5) else torch.ones(waves)
    omega = draw.randn(d, waves) / lengths[:, None] / heavy.clamp_min(0.05)
    return torch.cos(x @ omega + 2 * math.pi * draw.rand(waves)) @ draw.randn(waves)


def network(x: Inputs, draw: Sampler) -> Column:
    """Draw a network of two or three layers with one of several activations."""
    activation = _ACTIVATIONS[draw.integer(0, len(_ACTIVATIONS) - 1)]
    for _ in range(draw.integer(1, 2)):
        width = draw.integer(2, 24)
        weights = draw.randn(x.shape[1], width) * (draw.rand(x.shape[1], width) < draw.uniform(0.4, 1.0))
        x = activation(draw.log_uniform(0.5, 3) * x @ weights / math.sqrt(x.shape[1]) + draw.randn(width))
        x = (x - x.mean(0)) / x.std(0).clamp_min(1e-3)
    return x @ draw.randn(x.shape[1])


def trees(x: Inputs, draw: Sampler) -> Column:
    """Draw a sum of up to 40 trees of depth 1 to 4, each level with one split."""
    count, depth = round(draw.log_uniform(1, 40)), draw.integer(1, 4)
    weights = draw.gamma(0.6, x.shape[1]) + 1e-3
    column = torch.multinomial(weights, count * depth, replacement=True, generator=draw.random)
    inputs = x[:, column]
    threshold = inputs[draw.randint(len(x), count * depth), torch.arange(count * depth)]
    bits = (inputs > threshold).view(len(x), count, depth).long()
    leaf = (bits << torch.arange(depth)).sum(-1)
    return draw.randn(count, 1 << depth)[torch.arange(count), leaf].sum(1)


def additive(x: Inputs, draw: Sampler) -> Column:
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

_FUNCTIONS = (network, network, additive, additive, trees, gaussian_process, gaussian_process)


def any_function(x: Inputs, draw: Sampler) -> Column:
    """Draw a function of one of the four kinds, at standardised columns x."""
    return _FUNCTIONS[draw.integer(0, len(_FUNCTIONS) - 1)](x, draw)
