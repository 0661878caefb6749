"""The prior that the pretrained table model learns from: what small tables of the world may look like.

Half of the tables come from a random graph of causes (each column a noisy function of a few others, the target one of
them), half from columns and a function of them: a Gaussian process with a length per column, a network, a sum of trees,
a sum of shapes. Columns are then warped, cut off, rounded or made classes of; a third of the targets are classes.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.cells import Cells
from fillin.data.curves import make_generator
from fillin.data.kernels import is_pair
from fillin.data.tables import functions
from fillin.data.tables.draws import Draws
from fillin.errors import InputError

Column = Float[Tensor, "n"]


@dataclass(frozen=True)
class SyntheticTables:
    """A stream of batches of tables; the tables of a batch share their size, of at most `cells` in all.

    The target is the last column; it is hidden in all rows after those of the context, and in half of the batches
    cells anywhere are missing too, and asked for.
    """

    rows: tuple[int, int] = (24, 640)
    columns: tuple[int, int] = (2, 14)
    cells: int = 12_000
    most_classes: int = 10
    seed: int = 0
    dim_x: int = 1  # of a table neither is one of the model: it takes any columns
    dim_y: int = 1

    def __post_init__(self):
        for name, least in (("rows", 8), ("columns", 2)):
            pair = getattr(self, name)
            if not (is_pair(pair) and least <= pair[0] <= pair[1]):
                raise InputError(f"synthetic: {name} must be two whole numbers of at least {least}, got {pair!r}")

    @property
    def batch(self) -> int:
        """Of tables of middling size."""
        return self._batch(*(round(math.sqrt(a * b)) for a, b in (self.rows, self.columns)))

    def _batch(self, rows: int, columns: int) -> int:
        return max(1, min(32, self.cells // (rows * columns)))

    def validation_stream(self, seed: int) -> "SyntheticTables":
        return replace(self, seed=seed, cells=self.cells // 3)

    def task(self, step: int) -> Cells:
        draw = Draws(make_generator(self.seed, step))
        n, d = (round(draw.log_uniform(*pair)) for pair in (self.rows, self.columns))
        context = min(n - 4, max(4, round(n * draw.uniform(0.4, 0.95))))
        batch = self._batch(n, d)
        tables = [table(n, d, self.most_classes, draw) for _ in range(batch)]
        values = torch.stack([values for values, _ in tables])
        seen = torch.ones_like(values, dtype=torch.bool)
        if draw.chance(0.5):
            seen = draw.rand(batch, n, d) >= draw.uniform(0.02, 0.35)
            seen[:, :, -1] |= draw.rand(batch, n) < 0.7  # labels are rarer to miss
        seen[:, context:, -1] = False
        return Cells(values, seen, ~seen, torch.stack([classes for _, classes in tables]), context)


def table(n: int, d: int, most_classes: int, draw: Draws) -> tuple[Float[Tensor, "n d"], Int64[Tensor, "d"]]:
    """One table, and how many classes each column has (0: numbers). The target is its last column."""
    columns = _of_causes(n, d, draw) if draw.chance(0.5) else _of_inputs(n, d, draw)
    kinds, classes = draw.uniform(0, 1), []
    for j in range(d - 1):  # some tables are all of numbers, some all of classes
        if draw.chance(0.6 * kinds**2):
            columns[j], k = _classes(columns[j], draw.whole(2, most_classes), draw)
        else:
            columns[j], k = _marginal(columns[j], draw), 0
        classes.append(k)
    if draw.chance(0.33):
        columns[-1], k = _classes(columns[-1], draw.whole(2, min(most_classes, max(2, n // 12))), draw)
    else:
        columns[-1], k = _target(columns[-1], draw), 0
    return torch.stack(columns, 1).float(), torch.tensor([*classes, k])


def _of_causes(n: int, d: int, draw: Draws) -> list[Column]:
    """Nodes in order, each a function of a few before it and noise; d of them are seen, a late one is the target."""
    nodes: list[Column] = []
    roots, noise = draw.whole(1, max(1, d // 2)), draw.log_uniform(0.01, 1.0)
    for i in range(d + draw.whole(0, d)):
        if i < roots:
            nodes.append(_root(n, draw))
            continue
        parents = torch.stack([nodes[draw.whole(0, i - 1)] for _ in range(draw.whole(1, min(4, i)))], 1)
        clean = _unit(functions.any_function(parents, draw))
        nodes.append(_unit(clean + noise * draw.log_uniform(0.3, 3) * draw.randn(n)))
    target = draw.whole(max(len(nodes) // 2, min(roots, len(nodes) - 1)), len(nodes) - 1)
    others = [i for i in draw.order(len(nodes)) if i != target][: d - 1]
    return [*(nodes[i] for i in others), nodes[target]]


def _of_inputs(n: int, d: int, draw: Draws) -> list[Column]:
    """Columns that may share a few factors, and a function of them, some of which do not matter."""
    x = torch.stack([_root(n, draw) for _ in range(d - 1)], 1)
    if draw.chance(0.6) and d > 2:
        factors = draw.randn(n, draw.whole(1, max(1, d // 2)))
        share = draw.log_uniform(0.1, 3)
        x = x + share * factors @ draw.randn(factors.shape[1], d - 1) / math.sqrt(factors.shape[1])
        x = (x - x.mean(0)) / x.std(0).clamp_min(1e-6)
    kept = x[:, draw.order(d - 1)[: draw.whole(1, d - 1)]] if draw.chance(0.5) else x
    y = _unit(functions.any_function(kept, draw))
    if draw.chance(0.3):
        y = _unit(y + draw.log_uniform(0.1, 2) * _unit(functions.any_function(kept, draw)))
    uneven = (0.7 * _unit(functions.any_function(kept, draw))).clamp(-2, 2).exp() if draw.chance(0.2) else 1.0
    tails = draw.randn(n) / (draw.gamma(2.0, n).sqrt() if draw.chance(0.2) else 1.0)
    return [*x.unbind(1), y + draw.log_uniform(0.003, 1.0) * uneven * tails]


def _root(n: int, draw: Draws) -> Column:
    kind = draw.whole(0, 4)
    if kind <= 1:
        return draw.randn(n)
    if kind == 2:
        return _unit(draw.rand(n))
    if kind == 3:  # of several groups
        centres = 2 * draw.randn(draw.whole(2, 6))
        return _unit(centres[draw.randint(len(centres), n)] + draw.log_uniform(0.05, 1) * draw.randn(n))
    return _unit(torch.exp(draw.uniform(0.3, 1.2) * draw.randn(n)))


def _unit(x: Column) -> Column:
    return (x - x.mean()) / x.std().clamp_min(1e-6)


def _marginal(x: Column, draw: Draws) -> Column:
    """What is done to a column before it is written down; the order of its values stays."""
    kind, size = draw.whole(0, 9), draw.uniform(0.3, 2.0)
    if kind == 0:
        return torch.exp(size * x.clamp(max=6))
    if kind == 1:
        return x.sign() * x.abs() ** size
    if kind == 2:  # by rank
        return x.argsort().argsort() / len(x)
    if kind == 3:  # few levels
        levels = torch.quantile(x, draw.rand(draw.whole(2, 20)).sort().values)
        return torch.searchsorted(levels, x.contiguous()).to(x.dtype)
    if kind == 4:  # none below a floor
        return (x - torch.quantile(x, draw.uniform(0, 0.7))).clamp_min(0)
    if kind == 5:
        return (x * draw.log_uniform(1, 20)).round()
    return x


def _target(y: Column, draw: Draws) -> Column:
    kind, size = draw.whole(0, 11), draw.uniform(0.3, 1.5)
    if kind == 0:
        return torch.exp(size * y.clamp(max=6))
    if kind == 1:
        return torch.nn.functional.softplus(3 * y) ** (2 * size)
    if kind == 2:
        return y.clamp(-draw.uniform(0.7, 3), draw.uniform(0.7, 3))
    if kind == 3:
        return (y * draw.log_uniform(1, 20)).round()
    return y


def _classes(x: Column, k: int, draw: Draws) -> tuple[Column, int]:
    """Cut at k − 1 places, the parts named in any order. There may be fewer where the column has few levels."""
    shares = draw.rand(k) + 0.1
    cuts = torch.quantile(x, (shares.cumsum(0) / shares.sum())[:-1])
    codes = torch.searchsorted(cuts, x.contiguous())
    if draw.chance(0.7):
        codes = torch.tensor(draw.order(k))[codes]
    return codes.to(x.dtype), k
