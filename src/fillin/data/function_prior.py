"""The broad prior that pretrained models learn from: what curves and fields of the world may look like.

A task draws where its points are (evenly, scattered, in clusters), which of them are hidden (anywhere, in blocks, at an
end), a function (Gaussian processes of many kernels, their sums and products, waves, warped, with changes of regime),
and how it is observed (noise of any size, uneven, with heavy tails and outliers, sometimes with known errors). Some
tasks are plain: those of the protocol by which papers compare models.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.curves import PROTOCOLS, make_generator, parse_function
from fillin.data.functions import FunctionPrior, MixturePrior, uniform
from fillin.data.kernels import Range, is_number, is_pair, within
from fillin.data.task import Task
from fillin.errors import InputError

# Kernels and waves, with their shares. Lengths are in quarters of the width of all points.
FUNCTIONS = (
    "3 rbf | 2 matern-5/2 | 2 matern-3/2 | 1.5 matern-1/2 | 1 rational-quadratic | 2 periodic | 2 weakly-periodic | "
    "1.5 rbf + rbf | 1 rbf + matern-1/2 | 1 rbf + linear | 1.5 periodic + rbf | 2 weakly-periodic + rbf | "
    "2 weakly-periodic + linear + matern-3/2 | 1 rbf * linear | 1 periodic * linear + linear | 0.5 linear | "
    "1 weakly-periodic + weakly-periodic | 1 periodic + periodic + rbf"
)
FLAT = "2 rbf | 2 matern-5/2 | 2 matern-3/2 | 1.5 matern-1/2 | 1 rational-quadratic | 2 rbf + rbf | 1 rbf + linear"
PLAIN = "2 rbf | 2 matern-5/2 | periodic"
WAVES = " | 0.5 sawtooth | 0.5 square-wave"
HYPER: dict[str, Any] = {
    "length": (0.05, 4.0), "scale": (0.05, 1.0), "period": (0.04, 3.0), "drift": (0.5, 20.0), "mix": (0.2, 3.0),
    "frequency": (0.3, 6.0), "noise": 0.0, "logarithmic": True,
}  # fmt: skip


@dataclass(frozen=True)
class BroadPrior:
    """A stream of tasks of `points` each (log-uniform), as many in a batch as have about so many `pairs`.

    The share `plain` has the kernels, places and noise of the protocol `tnp`. With `columns` a batch has 1 to dim_x of
    them, some of more weight than others: what a radial model is to learn from.
    """

    dim_x: int = 1
    points: tuple[int, int] = (6, 512)
    pairs: int = 300_000
    noise: Range = (0.003, 1.0)
    plain: float = 0.2
    columns: bool = False
    seed: int = 0
    dim_y: int = 1

    def __post_init__(self):
        if not (is_pair(self.points) and 4 <= self.points[0] <= self.points[1]):
            raise InputError(f"broad: points must be two whole numbers of at least 4, got {self.points!r}")
        if not (is_number(self.plain) and 0 <= self.plain <= 1):
            raise InputError(f"broad: plain is a share of tasks, from 0 to 1, got {self.plain!r}")

    @property
    def batch(self) -> int:
        """Of a task of middling size."""
        return self._batch(round(math.sqrt(self.points[0] * self.points[1])))

    def _batch(self, points: int) -> int:
        return max(2, min(64, self.pairs // (points * (points + 100))))

    def validation_stream(self, seed: int) -> "BroadPrior":
        return replace(self, seed=seed, pairs=self.pairs // 4)

    def task(self, step: int) -> Task:
        random = make_generator(self.seed, step)
        total = round(float(within(uniform(random, 1), self.points, logarithmic=True)))
        batch = self._batch(total)
        nc = min(total - 1, int(total * float(uniform(random, 1))))
        dim_x = int(torch.randint(1, self.dim_x + 1, (), generator=random)) if self.columns else self.dim_x
        plain = uniform(random, batch) < self.plain
        x = places(batch, total, dim_x, random)
        x = torch.where(plain[:, None, None], 4 * uniform(random, *x.shape) - 2, x)
        order = torch.where(
            plain[:, None], uniform(random, batch, total).argsort(1), order_context_first(x, nc, random)
        )
        x = x.gather(1, order[..., None].expand(x.shape))
        if self.columns:
            x = x * _weights(batch, dim_x, random)
        clean = values(x, random)
        y, error = observe(x, clean, self.noise, random)
        if plain.any():
            clean[plain] = _plain(noise=0.0).draw(x[plain], random)[0]
            y[plain] = clean[plain] + _TNP["noise"] * torch.randn(clean[plain].shape, generator=random, dtype=y.dtype)
            error[plain] = 0
        parts = [part.float() for part in (x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:])]
        return Task(*parts, error_c=error[:, :nc].float(), noise_free_t=clean[:, nc:].float())


_TNP = PROTOCOLS["tnp"][1]


def _plain(**options) -> FunctionPrior:
    return parse_function(PLAIN, {**_TNP, **options})


def gaussian_part(plain: float = 0.2, noise: Range = (0.003, 1.0)) -> FunctionPrior:
    """What of this prior has a closed form: its Gaussian processes in one dimension under Gaussian noise, neither
    warped nor broken. `fillin.data.limits.bayes_limit` tells how well anyone could do there."""
    rest = parse_function(FUNCTIONS, {**HYPER, "scale": (0.3, 1.0), "noise": noise})
    return MixturePrior((_plain(), rest), (plain, 1 - plain))


def _weights(batch: int, dim_x: int, random: torch.Generator) -> Float[Tensor, "b 1 dx"]:
    """How much a column matters. Their squares add up to one, so that the diagonal of [−2, 2]^dx becomes 4 long."""
    weights = within(uniform(random, batch, 1, dim_x), (0.03, 1.0), logarithmic=True)
    weights = torch.where(uniform(random, batch, 1, dim_x) < 0.3, 1.0, weights)
    return weights / torch.linalg.vector_norm(weights, dim=-1, keepdim=True)


def places(batch: int, n: int, dim_x: int, random: torch.Generator) -> Float[Tensor, "b n dx"]:
    """n places in [−2, 2]^dx: four tasks in ten evenly (half on a lattice where dx > 1), the others scattered."""
    if dim_x == 1:
        # steps of a renewal process: shape 50 is nearly even, 0.2 comes in clusters
        shape = within(uniform(random, batch, 1), (0.2, 50.0), logarithmic=True).expand(-1, n + 1)
        steps = torch._standard_gamma(shape.contiguous(), generator=random).clamp_min(1e-6)
        even = uniform(random, batch, 1) < 0.4
        x = torch.where(even, 1.0, steps).cumsum(1)
        return (4 * (x[:, :n] / x[:, n:]) - 2)[..., None]
    x = 4 * uniform(random, batch, n, dim_x) - 2
    side = math.ceil((2 * n) ** (1 / dim_x))  # half of the nodes of a lattice, each of them once
    lattice = torch.cartesian_prod(*[torch.linspace(-2, 2, side, dtype=x.dtype)] * dim_x)
    nodes = torch.stack([lattice[torch.randperm(len(lattice), generator=random)[:n]] for _ in range(batch)])
    return torch.where(uniform(random, batch, 1, 1) < 0.5, nodes, x)


def order_context_first(x: Float[Tensor, "b n dx"], nc: int, random: torch.Generator) -> Int64[Tensor, "b n"]:
    """An order of the points: nc that are known, then those that are hidden (in no order), per task anywhere, in up to
    four blocks, beyond an end, or some of each."""
    b, n, dim_x = x.shape
    scattered = uniform(random, b, n)
    centres = 4 * uniform(random, b, 4, dim_x) - 2
    blocks = torch.randint(1, 5, (b, 1, 1), generator=random)
    far = torch.cdist(x, centres).masked_fill(torch.arange(4) >= blocks, torch.inf).amin(-1)
    direction = torch.randn(b, dim_x, 1, generator=random, dtype=x.dtype)
    ahead = -(x @ direction)[..., 0] * torch.where(uniform(random, b, 1) < 0.7, direction[:, 0].sign(), 1)
    kind = uniform(random, b, 1)
    near = torch.where(kind < 0.35, far, ahead)  # small where it is to be hidden
    rank = near.argsort(1).argsort(1) / n
    mixed = torch.where(uniform(random, b, 1) < 0.3, 0.3 * uniform(random, b, 1), 0)
    key = torch.where(kind < 0.5, -rank + mixed * scattered, scattered)
    order = key.argsort(1)
    return torch.cat([order[:, :nc], _shuffled(order[:, nc:], random)], 1)


def _shuffled(order: Tensor, random: torch.Generator) -> Tensor:
    return order.gather(1, uniform(random, *order.shape).argsort(1))


def values(x: Float[Tensor, "b n dx"], random: torch.Generator) -> Float[Tensor, "b n 1"]:
    """Functions without noise, each with a deviation of one, or nearly."""
    f = unit(_prior(x.shape[-1]).draw(x, random)[0])
    changed = uniform(random, len(x)) < 0.1
    if changed.any():
        f[changed] = unit(_change(x[changed], f[changed], random))
    warped = uniform(random, len(x)) < 0.3
    if warped.any():
        f[warped] = unit(_warp(f[warped], random))
    return f


def _prior(dim_x: int) -> FunctionPrior:
    return parse_function((FUNCTIONS if dim_x == 1 else FLAT) + WAVES, HYPER)


def unit(f: Float[Tensor, "b n 1"]) -> Float[Tensor, "b n 1"]:
    return (f - f.mean(1, keepdim=True)) / f.std(1, keepdim=True).clamp_min(1e-6)


def _change(x: Tensor, f: Tensor, random: torch.Generator) -> Tensor:
    """Another function, and another level, beyond a place that is drawn."""
    other = unit(_prior(x.shape[-1]).draw(x, random)[0])
    direction = torch.randn(len(x), x.shape[-1], 1, generator=random, dtype=x.dtype)
    along = x @ direction
    cut = along.gather(1, torch.randint(x.shape[1], (len(x), 1, 1), generator=random))
    size, level = within(uniform(random, len(x), 1, 1), (0.1, 3.0)), torch.randn(len(x), 1, 1, generator=random)
    same = uniform(random, len(x), 1, 1) < 0.4  # of those a step alone
    return torch.where(along < cut, f, torch.where(same, f, size * other) + 2 * level)


def _warp(f: Tensor, random: torch.Generator) -> Tensor:
    """exp, sinh, tanh, |·|, steps, a floor: values that are positive, bounded, counted or cut off."""
    size = within(uniform(random, len(f), 1, 1), (0.3, 2.0))
    forms = (
        torch.exp(size * f), torch.sinh(size * f), torch.tanh(size * f), f.abs(), (2 * size * f).round(),
        (f - size + 1).clamp_min(0) + 1e-3 * f, torch.exp(0.5 * f),
    )  # fmt: skip
    choice = torch.randint(len(forms), (len(f), 1, 1), generator=random)
    return sum((torch.where(choice == i, form, 0) for i, form in enumerate(forms)), torch.zeros_like(f))


def observe(
    x: Float[Tensor, "b n dx"], clean: Float[Tensor, "b n 1"], noise: Range, random: torch.Generator
) -> tuple[Float[Tensor, "b n 1"], Float[Tensor, "b n 1"]]:
    """y, and the errors of it that are known (0: none)."""
    shape, b = clean.shape, len(clean)
    sigma = within(uniform(random, b, 1, 1), noise, logarithmic=True)
    direction = torch.randn(b, x.shape[-1], 1, generator=random, dtype=x.dtype)
    uneven = torch.where(uniform(random, b, 1, 1) < 0.15, (x @ direction).clamp(-2, 2), 0).exp()
    freedom = torch.where(uniform(random, b, 1, 1) < 0.2, within(uniform(random, b, 1, 1), (2.0, 8.0)), 1e6)
    chi = torch._standard_gamma((freedom / 2).expand(shape).contiguous(), generator=random) / (freedom / 2)
    tails = torch.randn(shape, generator=random, dtype=x.dtype) / chi.clamp_min(1e-3).sqrt()
    wild = (uniform(random, *shape) < 0.04) & (uniform(random, b, 1, 1) < 0.08)
    tails = torch.where(wild, 10 * tails, tails)
    known = uniform(random, b, 1, 1) < 0.15
    error = torch.where(known, within(uniform(random, *shape), (0.01, 1.0), logarithmic=True), 0)
    y = clean + sigma * uneven * tails + error * torch.randn(shape, generator=random, dtype=x.dtype)
    return y, error
