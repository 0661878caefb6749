"""Covariance functions with a prior over their hyperparameters: each has a range, to which uniforms in (0, 1) map."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fillin.data.task import is_pair
from fillin.errors import InputError

Range = tuple[float, float]


def within(u: Tensor, bounds: Range, logarithmic: bool = False) -> Tensor:
    """Map u in (0, 1) to the range `bounds`, uniformly or log-uniformly."""
    low, high = bounds
    return low * (high / low) ** u if logarithmic else low + (high - low) * u


def check_range(where: str, name: str, value) -> None:
    """Raise an error unless `value` is (low, high) with 0 < low ≤ high."""
    if not (is_pair(value) and 0 < value[0] <= value[1] < math.inf):
        raise InputError(f"{where}: {name} must be a range (low, high) with 0 < low ≤ high, got {value!r}")


class Kernel(ABC):
    """Covariance function k(x, x'; θ) with a prior over its hyperparameters θ."""

    @property
    @abstractmethod
    def hyperparameters(self) -> tuple[str, ...]:
        """Names of the hyperparameters, in the order of θ."""

    @property
    def size(self) -> int:
        return len(self.hyperparameters)

    @abstractmethod
    def from_uniform(self, u: Float[Tensor, "*b size"]) -> Float[Tensor, "*b size"]:
        """Map uniforms u to hyperparameters θ of the prior."""

    @abstractmethod
    def __call__(
        self, xa: Float[Tensor, "*b n dx"], xb: Float[Tensor, "*b m dx"], theta: Float[Tensor, "*b size"]
    ) -> Float[Tensor, "*b n m"]:
        """Return the covariance of f(xa) with f(xb) under hyperparameters `theta`."""

    def __add__(self, other: "Kernel") -> "Kernel":
        return SumKernel((self, other))

    def __mul__(self, other: "Kernel") -> "Kernel":
        return ProductKernel((self, other))


@dataclass(frozen=True)
class BaseKernel(Kernel):
    """Single kernel. Each field is the range of a hyperparameter, (log-)uniform a priori. Subclasses define the kernel
    at output scale 1: `correlation(xa, xb, **hyperparameters)`, each [*b 1 1]."""

    correlation: ClassVar[Callable[..., Tensor]]
    uniform: ClassVar[tuple[str, ...]] = ("scale",)  # hyperparameters that are never log-uniform
    length: Range = (0.1, 0.6)
    scale: Range = (0.1, 1.0)
    logarithmic: bool = False

    def __post_init__(self):
        for name in self.hyperparameters:
            self.check(name, getattr(self, name))
        if not isinstance(self.logarithmic, bool):
            raise InputError(f"{type(self).__name__}: logarithmic must be True or False, got {self.logarithmic!r}")

    def check(self, name: str, value) -> None:
        """Raise an error unless `value` is a range of the hyperparameter."""
        check_range(type(self).__name__, name, value)

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        return tuple(f.name for f in fields(self) if f.type in (Range, "Range"))

    def from_uniform(self, u):
        columns = []
        for i, name in enumerate(self.hyperparameters):
            columns.append(within(u[..., i], getattr(self, name), self.logarithmic and name not in self.uniform))
        return torch.stack(columns, -1)

    def __call__(self, xa, xb, theta):
        values = {name: theta[..., i, None, None] for i, name in enumerate(self.hyperparameters)}
        scale = values.pop("scale")
        return scale**2 * self.correlation(xa, xb, **values)


def distance(xa: Tensor, xb: Tensor) -> Tensor:
    """Return ‖xa − xb‖ [*b n m], by subtraction, which stays exact for close points."""
    return torch.linalg.vector_norm(xa[..., :, None, :] - xb[..., None, :, :], dim=-1)


class RBFKernel(BaseKernel):
    """scale² exp(−½ r²/length²)."""

    def correlation(self, xa, xb, length):
        return torch.exp(-0.5 * (distance(xa, xb) / length).square())


class Matern12Kernel(BaseKernel):
    """scale² exp(−r/length)."""

    def correlation(self, xa, xb, length):
        return torch.exp(-distance(xa, xb) / length)


class Matern32Kernel(BaseKernel):
    """scale² (1 + s) exp(−s), s = √3 r/length."""

    def correlation(self, xa, xb, length):
        s = math.sqrt(3) * distance(xa, xb) / length
        return (1 + s) * torch.exp(-s)


class Matern52Kernel(BaseKernel):
    """scale² (1 + s + s²/3) exp(−s), s = √5 r/length."""

    def correlation(self, xa, xb, length):
        s = math.sqrt(5) * distance(xa, xb) / length
        return (1 + s + s.square() / 3) * torch.exp(-s)


@dataclass(frozen=True)
class PeriodicKernel(BaseKernel):
    """scale² exp(−2 Σ_i sin²(π Δ_i/period)/length²): positive definite in any number of dimensions."""

    period: Range = (0.1, 0.5)

    def correlation(self, xa, xb, length, period):
        deltas = (xa[..., :, None, i] - xb[..., None, :, i] for i in range(xa.shape[-1]))
        return torch.exp(-2 * sum(torch.sin(math.pi * delta / period).square() for delta in deltas) / length.square())


@dataclass(frozen=True)
class WeaklyPeriodicKernel(PeriodicKernel):
    """Periodic kernel times exp(−½ r²/drift²): a pattern that changes slowly."""

    drift: Range = (0.5, 2.0)

    def correlation(self, xa, xb, length, period, drift):  # type: ignore[override]
        return super().correlation(xa, xb, length, period) * torch.exp(-0.5 * (distance(xa, xb) / drift).square())


@dataclass(frozen=True)
class RationalQuadraticKernel(BaseKernel):
    """scale² (1 + r²/(2 mix length²))^−mix: a scale mixture of RBF kernels."""

    mix: Range = (0.5, 2.0)

    def correlation(self, xa, xb, length, mix):
        return (1 + (distance(xa, xb) / length).square() / (2 * mix)) ** -mix


class LinearKernel(BaseKernel):
    """scale² (1 + x·x'/length²): linear functions with an intercept."""

    def correlation(self, xa, xb, length):
        return 1 + xa @ xb.mT / length.square()


@dataclass(frozen=True)
class SpaceTimeKernel(BaseKernel):
    """scale² (1 + u²/memory²)^−τ exp(−½ r²/length²): a separable covariance of a lag u in time, the first dimension of
    x, and a distance r in space, the d others. τ = max(1, d/2)."""

    memory: Range = (0.5, 2.0)

    def correlation(self, xa, xb, length, memory, interaction=0.0):
        growth = 1 + (_lag(xa, xb) / memory).square()
        r2 = distance(xa[..., 1:], xb[..., 1:]).square()
        return growth ** -max(1.0, (xa.shape[-1] - 1) / 2) * torch.exp(
            -0.5 * r2 / (length.square() * growth**interaction)
        )


@dataclass(frozen=True)
class GneitingKernel(SpaceTimeKernel):
    """scale² T^−τ exp(−½ r²/(length² T^β)), T = 1 + u²/memory², τ = max(1, d/2): non-separable (Gneiting 2002, equation
    14 with α = γ = 1). `interaction` is β, above 0 and at most 1: the longer the lag, the further apart in space values
    are still alike. Covariances at one time and at one site do not depend on it; at β → 0 it is separable."""

    interaction: Range = (0.2, 1.0)

    def check(self, name, value):
        super().check(name, value)
        if name == "interaction" and value[1] > 1:
            raise InputError(
                f"GneitingKernel: interaction must be at most 1, got {value!r}; larger ones are no covariance"
            )


@dataclass(frozen=True)
class AdvectionDiffusionKernel(BaseKernel):
    """Covariance of a field that flows with velocity v, diffuses with diffusivity κ, fades over the time `memory`, and
    is renewed by a random forcing that is white in time (Sigrist et al. 2015):

        ∂f/∂t + v·∇f = κ∇²f − f/memory + ε
        k(h, u) = scale² exp(−|u|/memory) (ℓ²/s²)^{d/2} exp(−½ ‖h − v u‖²/s²),    s² = ℓ² + 2κ|u|

    for a lag u in time, the first dimension of x, and a displacement h in the d = 1 or 2 dimensions of space, ℓ =
    length. v = speed · (cos direction, sin direction); on a line its first component. `draw_fields` draws such fields
    on grids.
    """

    uniform = ("scale", "direction")
    memory: Range = (2.0, 8.0)
    speed: Range = (0.2, 1.0)
    direction: Range = (0.0, 2 * math.pi)
    diffusivity: Range = (0.01, 0.1)

    def check(self, name, value):
        if name != "direction":
            super().check(name, value)
        elif not (is_pair(value) and value[0] <= value[1]):
            raise InputError(f"AdvectionDiffusionKernel: direction must be a range of angles in radians, got {value!r}")

    def correlation(self, xa, xb, length, memory, speed, direction, diffusivity):
        dims, lag = xa.shape[-1] - 1, _lag(xa, xb)
        if dims > 2:
            raise InputError(
                f"AdvectionDiffusionKernel: space has one or two dimensions, got {dims}; use dim_x=2 or dim_x=3"
            )
        variance = length.square() + 2 * diffusivity * lag.abs()
        h = [xa[..., :, None, 1 + i] - xb[..., None, :, 1 + i] for i in range(dims)]
        moved = [h_i - speed * along * lag for h_i, along in zip(h, (direction.cos(), direction.sin()), strict=False)]
        r2 = sum((part.square() for part in moved), torch.zeros_like(lag))
        shrunk = (length.square() / variance) ** (dims / 2)
        return torch.exp(-lag.abs() / memory) * shrunk * torch.exp(-0.5 * r2 / variance)


def _lag(xa: Tensor, xb: Tensor) -> Tensor:
    """Return the displacement in time [*b n m]."""
    return xa[..., :, None, 0] - xb[..., None, :, 0]


@dataclass(frozen=True)
class SumKernel(Kernel):
    """k₁ + k₂ + …: the kernel of a sum of independent functions."""

    parts: tuple[Kernel, ...]
    combine: ClassVar[Callable[..., Tensor]] = staticmethod(torch.sum)

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.hyperparameters)

    def from_uniform(self, u):
        return torch.cat([part.from_uniform(values) for part, values in self._split(u)], -1)

    def __call__(self, xa, xb, theta):
        return self.combine(torch.stack([part(xa, xb, values) for part, values in self._split(theta)]), 0)

    def _split(self, theta: Tensor) -> Iterable[tuple[Kernel, Tensor]]:
        return zip(self.parts, theta.split([part.size for part in self.parts], -1), strict=True)


class ProductKernel(SumKernel):
    """k₁ · k₂ · …"""

    combine = staticmethod(torch.prod)


KERNELS: dict[str, type[BaseKernel]] = {
    "rbf": RBFKernel,
    "matern-1/2": Matern12Kernel,
    "matern-3/2": Matern32Kernel,
    "matern-5/2": Matern52Kernel,
    "periodic": PeriodicKernel,
    "weakly-periodic": WeaklyPeriodicKernel,
    "rational-quadratic": RationalQuadraticKernel,
    "linear": LinearKernel,
    "space-time": SpaceTimeKernel,
    "gneiting": GneitingKernel,
    "advection-diffusion": AdvectionDiffusionKernel,
}
