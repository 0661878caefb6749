"""Broad prior over curves and fields, on which the pretrained fillers are trained.

A task draws its locations, its targets among them, a function and its observation errors. A share of the tasks follows
the protocol by which papers compare models.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.curves import PROTOCOLS, parse_function
from fillin.data.functions import FunctionPrior, MixturePrior, uniform
from fillin.data.kernels import Range, within
from fillin.data.task import Task, check_count_ranges, is_number, make_generator
from fillin.errors import InputError

# Kernels and waves with their weights. Lengths are in quarters of the width of all points.
FUNCTIONS = (
    "3 rbf | 2 matern-5/2 | 2 matern-3/2 | 1.5 matern-1/2 | 1 rational-quadratic | 2 periodic | 2 weakly-periodic | "
    "1.5 rbf + rbf | 1 rbf + matern-1/2 | 1 rbf + linear | 1.5 periodic + rbf | 2 weakly-periodic + rbf | "
    "2 weakly-periodic + linear + matern-3/2 | 1 rbf * linear | 1 periodic * linear + linear | 0.5 linear | "
    "1 weakly-periodic + weakly-periodic | 1 periodic + periodic + rbf"
)
FUNCTIONS_ND = (
    "2 rbf | 2 matern-5/2 | 2 matern-3/2 | 1.5 matern-1/2 | 1 rational-quadratic | 2 rbf + rbf | 1 rbf + linear"
)
_TNP = PROTOCOLS["tnp"][1]
PROTOCOL_FUNCTIONS = "2 rbf | 2 matern-5/2 | periodic"
WAVES = " | 0.5 sawtooth | 0.5 square-wave"
HYPER: dict[str, Any] = {
    "length": (0.05, 4.0), "scale": (0.05, 1.0), "period": (0.04, 3.0), "drift": (0.5, 20.0), "mix": (0.2, 3.0),
    "frequency": (0.3, 6.0), "noise": 0.0, "logarithmic": True,
}  # fmt: skip


@dataclass(frozen=True)
class BroadPrior:
    """Stream of tasks with a log-uniform number of `points`, in batches of about `pairs` pairs of points.

    A share `plain` of the tasks follows the protocol `tnp`. With `columns` a batch has 1 to dim_x input columns, some
    with more weight than others, as training data of radial models.
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
        check_count_ranges(self, "broad", points=4)
        if not (is_number(self.plain) and 0 <= self.plain <= 1):
            raise InputError(f"broad: plain must be a share of tasks from 0 to 1, got {self.plain!r}")

    @property
    def batch(self) -> int:
        """Batch size for the geometric mean of the numbers of points."""
        return self._batch_size(round(math.sqrt(self.points[0] * self.points[1])))

    def _batch_size(self, points: int) -> int:
        return max(2, min(64, self.pairs // (points * (points + 100))))

    def validation_stream(self, seed: int) -> "BroadPrior":
        return replace(self, seed=seed, pairs=self.pairs // 4)

    def task(self, step: int) -> Task:
        random = make_generator(self.seed, step)
        total = round(float(within(uniform(random, 1), self.points, logarithmic=True)))
        batch = self._batch_size(total)
        nc = min(total - 1, int(total * float(uniform(random, 1))))
        dim_x = int(torch.randint(1, self.dim_x + 1, (), generator=random)) if self.columns else self.dim_x
        plain = uniform(random, batch) < self.plain
        x = draw_locations(batch, total, dim_x, random)
        x = torch.where(plain[:, None, None], 4 * uniform(random, *x.shape) - 2, x)
        shuffled = uniform(random, batch, total).argsort(1)
        order = torch.where(plain[:, None], shuffled, order_context_first(x, nc, random))
        x = x.gather(1, order[..., None].expand(x.shape))
        if self.columns:  # squares of weights add up to 1, so that the diagonal of [−2, 2]^dx has length 4
            weights = within(uniform(random, batch, 1, dim_x), (0.03, 1.0), logarithmic=True)
            weights = torch.where(uniform(random, batch, 1, dim_x) < 0.3, 1.0, weights)
            x = x * (weights / torch.linalg.vector_norm(weights, dim=-1, keepdim=True))
        f = draw_functions(x, random)
        y, error = observe(x, f, self.noise, random)
        if plain.any():
            f[plain] = parse_function(PROTOCOL_FUNCTIONS, {**_TNP, "noise": 0.0}).draw(x[plain], random)[0]
            y[plain] = f[plain] + _TNP["noise"] * torch.randn(f[plain].shape, generator=random, dtype=y.dtype)
            error[plain] = 0
        parts = [part.float() for part in (x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:])]
        return Task(*parts, error_c=error[:, :nc].float(), noise_free_t=f[:, nc:].float())


def gaussian_part(plain: float = 0.2, noise: Range = (0.003, 1.0)) -> FunctionPrior:
    """Return the part of this prior that has a `bayes_limit`: Gaussian processes in one dimension, Gaussian noise."""
    rest = parse_function(FUNCTIONS, {**HYPER, "scale": (0.3, 1.0), "noise": noise})
    return MixturePrior((parse_function(PROTOCOL_FUNCTIONS, _TNP), rest), (plain, 1 - plain))


def draw_locations(batch: int, n: int, dim_x: int, random: torch.Generator) -> Float[Tensor, "b n dx"]:
    """Draw n locations in [−2, 2]^dx: regular in 40 % of the tasks (a lattice in 50 % for dx > 1), else scattered."""
    if dim_x == 1:
        # steps of a renewal process: shape 50 is nearly regular, 0.2 is clustered
        shape = within(uniform(random, batch, 1), (0.2, 50.0), logarithmic=True).expand(-1, n + 1)
        steps = torch._standard_gamma(shape.contiguous(), generator=random).clamp_min(1e-6)
        x = torch.where(uniform(random, batch, 1) < 0.4, 1.0, steps).cumsum(1)
        return (4 * (x[:, :n] / x[:, n:]) - 2)[..., None]
    x = 4 * uniform(random, batch, n, dim_x) - 2
    side = math.ceil((2 * n) ** (1 / dim_x))  # half of the nodes of a lattice, without repetition
    lattice = torch.cartesian_prod(*[torch.linspace(-2, 2, side, dtype=x.dtype)] * dim_x)
    nodes = torch.stack([lattice[torch.randperm(len(lattice), generator=random)[:n]] for _ in range(batch)])
    return torch.where(uniform(random, batch, 1, 1) < 0.5, nodes, x)


def order_context_first(x: Float[Tensor, "b n dx"], nc: int, random: torch.Generator) -> Int64[Tensor, "b n"]:
    """Return an order of the points: nc context points, then the targets in random order.

    The targets of a task lie anywhere, in up to four blocks, beyond an end, or in a mixture of these.
    """
    b, n, dim_x = x.shape
    scattered = uniform(random, b, n)
    centres = 4 * uniform(random, b, 4, dim_x) - 2
    blocks = torch.randint(1, 5, (b, 1, 1), generator=random)
    far = torch.cdist(x, centres).masked_fill(torch.arange(4) >= blocks, torch.inf).amin(-1)
    direction = torch.randn(b, dim_x, 1, generator=random, dtype=x.dtype)
    ahead = -(x @ direction)[..., 0] * torch.where(uniform(random, b, 1) < 0.7, direction[:, 0].sign(), 1)
    kind = uniform(random, b, 1)
    near = torch.where(kind < 0.35, far, ahead)  # small for targets
    rank = near.argsort(1).argsort(1) / n
    mixed = torch.where(uniform(random, b, 1) < 0.3, 0.3 * uniform(random, b, 1), 0)
    key = torch.where(kind < 0.5, -rank + mixed * scattered, scattered)
    context, targets = key.argsort(1).tensor_split([nc], 1)
    return torch.cat([context, targets.gather(1, uniform(random, *targets.shape).argsort(1))], 1)


def draw_functions(x: Float[Tensor, "b n dx"], random: torch.Generator) -> Float[Tensor, "b n 1"]:
    """Draw noise-free functions at x, with changes of regime and warped, each with a standard deviation of about 1."""
    prior = parse_function((FUNCTIONS if x.shape[-1] == 1 else FUNCTIONS_ND) + WAVES, HYPER)
    f = standardise(prior.draw(x, random)[0])
    changed = uniform(random, len(x)) < 0.1
    if changed.any():  # to another function and another level beyond a random location
        before, x = f[changed], x[changed]
        after = standardise(prior.draw(x, random)[0])
        along = x @ torch.randn(len(x), x.shape[-1], 1, generator=random, dtype=x.dtype)
        cut = along.gather(1, torch.randint(x.shape[1], (len(x), 1, 1), generator=random))
        size, level = within(uniform(random, len(x), 1, 1), (0.1, 3.0)), torch.randn(len(x), 1, 1, generator=random)
        same = uniform(random, len(x), 1, 1) < 0.4  # a change of level alone
        after = torch.where(same, before, size * after) + 2 * level
        f[changed] = standardise(torch.where(along < cut, before, after))
    warped = uniform(random, len(f)) < 0.3
    if warped.any():  # to positive, bounded, discrete or censored values
        g = f[warped]
        size = within(uniform(random, len(g), 1, 1), (0.3, 2.0))
        warps = (
            torch.exp(size * g), torch.sinh(size * g), torch.tanh(size * g), g.abs(), (2 * size * g).round(),
            (g - size + 1).clamp_min(0) + 1e-3 * g, torch.exp(0.5 * g),
        )  # fmt: skip
        choice = torch.randint(len(warps), (len(g), 1, 1), generator=random)
        g = sum((torch.where(choice == i, warp, 0) for i, warp in enumerate(warps)), torch.zeros_like(g))
        f[warped] = standardise(g)
    return f


def standardise(f: Float[Tensor, "b n 1"]) -> Float[Tensor, "b n 1"]:
    return (f - f.mean(1, keepdim=True)) / f.std(1, keepdim=True).clamp_min(1e-6)


def observe(
    x: Float[Tensor, "b n dx"], f: Float[Tensor, "b n 1"], noise: Range, random: torch.Generator
) -> tuple[Float[Tensor, "b n 1"], Float[Tensor, "b n 1"]]:
    """Add noise to f. Returns y and the known standard deviations of its errors (0 where unknown)."""
    shape, b = f.shape, len(f)
    sigma = within(uniform(random, b, 1, 1), noise, logarithmic=True)
    direction = torch.randn(b, x.shape[-1], 1, generator=random, dtype=x.dtype)
    heteroscedastic = torch.where(uniform(random, b, 1, 1) < 0.15, (x @ direction).clamp(-2, 2), 0).exp()
    freedom = torch.where(uniform(random, b, 1, 1) < 0.2, within(uniform(random, b, 1, 1), (2.0, 8.0)), 1e6)
    chi = torch._standard_gamma((freedom / 2).expand(shape).contiguous(), generator=random) / (freedom / 2)
    tails = torch.randn(shape, generator=random, dtype=x.dtype) / chi.clamp_min(1e-3).sqrt()
    outlier = (uniform(random, *shape) < 0.04) & (uniform(random, b, 1, 1) < 0.08)
    tails = torch.where(outlier, 10 * tails, tails)
    has_errors = uniform(random, b, 1, 1) < 0.15
    error = torch.where(has_errors, within(uniform(random, *shape), (0.01, 1.0), logarithmic=True), 0)
    y = f + sigma * heteroscedastic * tails + error * torch.randn(shape, generator=random, dtype=x.dtype)
    return y, error
