"""What curves are made of: random functions that give y at any places.

A function with a known answer also gives its *hypotheses*: what each setting of its unknowns would say of the targets,
and how well that setting explains the context. `fillin.data.limits` averages over them.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal

from fillin.data.kernels import Kernel, Range, RBFKernel, check_range, is_number, within
from fillin.data.quadrature import adapt
from fillin.data.task import Task
from fillin.errors import InputError


class Hypotheses(NamedTuple):
    """Settings s of what is unknown, for each task b of a batch."""

    evidence: Float[Tensor, "s b"]  # ln p(yc | s), plus the log of its prior weight
    marginal: Float[Tensor, "s b nt"]  # ln p(yt_i | yc, s)
    joint: Float[Tensor, "s b"]  # ln p(yt | yc, s)


class FunctionPrior(ABC):
    """A distribution over functions from R^dx to R^dim_y; dx is any number where `dim_x` is None."""

    dim_x: ClassVar[int | None] = None
    dim_y: int = 1

    @abstractmethod
    def draw(self, x: Float[Tensor, "b n dx"], random: torch.Generator) -> tuple[Float[Tensor, "b n dy"], Any]:
        """One function a task, at x in float64, and the unknowns that made it (what `given` takes)."""

    def given(self, unknowns: Any, task: Task) -> Hypotheses | None:
        """The one hypothesis that is true, or None where there is no closed form."""
        return None

    def settings(self, task: Task, number: int) -> Hypotheses | None:
        """About `number` hypotheses that fill the prior evenly, or None where there is no closed form."""
        return None


def uniform(random: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=random, dtype=torch.float64)


def check_noise(where: str, noise) -> None:
    """An error unless `noise` is a standard deviation, or the range that each task draws its own from."""
    if isinstance(noise, tuple | list):
        check_range(where, "noise", noise)
    elif not (is_number(noise) and noise >= 0):
        raise InputError(f"{where}: noise is a standard deviation of at least 0, or a range of them, got {noise!r}")


def deviation(noise: float | Range, u: Tensor, logarithmic: bool = False) -> Tensor:
    """The noise of each task: `noise`, or (log-)uniform in it where it is a range, at the uniforms u."""
    return within(u, noise, logarithmic) if isinstance(noise, tuple | list) else torch.full_like(u, noise)


@dataclass(frozen=True)
class GaussianProcessPrior(FunctionPrior):
    """f ~ GP(0, k), y = f + noise·ε. `noise` is a standard deviation, or the range of which each task draws its own,
    uniformly or log-uniformly."""

    kernel: Kernel = field(default_factory=RBFKernel)
    noise: float | Range = 0.02
    logarithmic: bool = False

    def __post_init__(self):
        check_noise("GaussianProcess", self.noise)
        if self.logarithmic and isinstance(self.noise, tuple | list) and self.noise[0] == 0:
            raise InputError(f"GaussianProcess: a log-uniform range of noise begins above 0, got {self.noise!r}")

    def draw(self, x, random):
        theta = self._hyper(uniform(random, len(x), self.unknown))
        factor = torch.linalg.cholesky(self._covariance(x, theta))
        return factor @ torch.randn(*x.shape[:2], 1, generator=random, dtype=x.dtype), theta

    def given(self, unknowns, task):
        return self._explain(task, unknowns[None])

    def settings(self, task, number):
        def evidence(u: Tensor) -> Tensor:
            return self._explain(context, self._hyper(u)).evidence

        context = Task(task.xc, task.yc, task.xt[:, :0], task.yt[:, :0])
        u, density = adapt(evidence, number, len(task.xc), self.unknown)
        found = self._explain(task, self._hyper(u))
        return found._replace(evidence=found.evidence - density)

    def posterior(
        self,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc 1"],
        xt: Float[Tensor, "b nt dx"],
        unknowns: Float[Tensor, "b size"] | None = None,
    ) -> MultivariateNormal:
        """The exact answer for one who is told the hyperparameters, noise included: batch [b], event [nt]. Without
        `unknowns` (those of `draw`) they are the middle of their ranges. Rasmussen & Williams, 2.22–2.24."""
        x = torch.cat([xc, xt], 1).double()
        if unknowns is None:
            unknowns = self._hyper(torch.full((len(x), self.unknown), 0.5, dtype=torch.float64))
        nc = xc.shape[1]
        factor = torch.linalg.cholesky(self._covariance(x, unknowns))
        white = torch.linalg.solve_triangular(factor[:, :nc, :nc], yc.double(), upper=False)
        mean = (factor[:, nc:, :nc] @ white)[..., 0]
        return MultivariateNormal(mean, scale_tril=factor[:, nc:, nc:], validate_args=False)

    @property
    def unknown(self) -> int:
        """How many numbers a task draws: those of the kernel, and the noise where it has a range."""
        return self.kernel.size + isinstance(self.noise, tuple | list)

    def _hyper(self, u: Float[Tensor, "*b unknown"]) -> Float[Tensor, "*b size"]:
        """θ of the kernel, then the noise, at uniforms."""
        own = self.kernel.hyper(u[..., : self.kernel.size])
        last = u[..., self.kernel.size :] if self.unknown > self.kernel.size else own.new_zeros(*own.shape[:-1], 1)
        return torch.cat([own, deviation(self.noise, last, self.logarithmic)], -1)

    def _covariance(self, x: Tensor, theta: Tensor) -> Tensor:
        """Of y at x. Without noise the smallest jitter that keeps a Cholesky factor is added."""
        gram = self.kernel(x, x, theta[..., :-1])
        jitter = 1e-9 * gram.diagonal(dim1=-2, dim2=-1).mean(-1)
        gram.diagonal(dim1=-2, dim2=-1).add_(torch.maximum(theta[..., -1].square(), jitter)[..., None])
        return gram

    def _explain(self, task: Task, theta: Float[Tensor, "s b size"]) -> Hypotheses:
        """Rasmussen & Williams, algorithm 2.1, for every θ at once.

        One factor of the covariance of (context, targets) has everything: its context part whitens yc, the rest is the
        factor of the posterior covariance of the targets (its Schur complement).
        """
        x = torch.cat([task.xc, task.xt], 1).double()
        y = torch.cat([task.yc, task.yt], 1).double()
        nc = task.xc.shape[1]
        parts = []
        for some in theta.split(
            max(1, 2_000_000 // max(1, len(x) * x.shape[1] ** 2))
        ):  # 16 MB of covariances at a time
            factor = torch.linalg.cholesky(self._covariance(x.expand(len(some), *x.shape), some))
            white = torch.linalg.solve_triangular(factor, y.expand(len(some), *y.shape), upper=False)[..., 0]
            density = -0.5 * white.square() - factor.diagonal(dim1=-2, dim2=-1).log() - 0.5 * math.log(2 * math.pi)
            rest = factor[..., nc:, nc:]
            variance = rest.square().sum(-1)
            residual = (rest @ white[..., nc:, None])[..., 0]  # yt − its posterior mean
            marginal = -0.5 * (residual.square() / variance + variance.log() + math.log(2 * math.pi))
            parts.append((density[..., :nc].sum(-1), marginal, density[..., nc:].sum(-1)))
        return Hypotheses(*(torch.cat(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Sawtooth(FunctionPrior):
    """y = frac(frequency · (x·direction) − phase) + noise·ε, direction a random unit vector, as in neuralprocesses."""

    frequency: Range = (2.0, 4.0)
    noise: float | Range = 0.0

    def __post_init__(self):
        check_range(type(self).__name__, "frequency", self.frequency)
        check_noise(type(self).__name__, self.noise)

    def draw(self, x, random):
        turns = self._turns(x, random)
        noise = deviation(self.noise, uniform(random, len(x), 1, 1))
        return self._wave(turns) + noise * torch.randn(turns.shape, generator=random, dtype=x.dtype), None

    def _turns(self, x: Tensor, random: torch.Generator) -> Tensor:
        direction = torch.randn(len(x), x.shape[-1], 1, generator=random, dtype=x.dtype)
        direction = direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
        u = uniform(random, 2, len(x), 1, 1)
        return within(u[0], self.frequency) * (x @ direction) - u[1]

    def _wave(self, turns: Tensor) -> Tensor:
        return (turns - turns.floor()).clamp(max=1 - 2**-24)  # below 1 also once it is rounded to float32


class SquareWave(Sawtooth):
    """y = 1 in the first half of each turn, 0 in the second, + noise·ε."""

    def _wave(self, turns):
        return (super()._wave(turns) < 0.5).to(turns.dtype)


@dataclass(frozen=True)
class PredatorPrey(FunctionPrior):
    """Prey u and predators v under Lotka and Volterra's equations with noise in the growth, as in neuralprocesses:

        du = u(α − βv) dt + σ u dW,    dv = v(−γ + δu) dt + σ v dW

    Euler–Maruyama in ln u and ln v (populations stay positive) from the first place to the last, so many `years` a unit
    of x; y is both populations, divided by `unit`. One input dimension, two outputs.
    """

    years: float = 25.0
    unit: float = 5.0
    dim_y: int = 2
    dim_x: ClassVar[int | None] = 1

    def draw(self, x, random):
        tenths = 10 * self.years * (x[..., 0] - x.min()) if x.numel() else x[..., 0]  # of a year since the first place
        steps = math.ceil(float(tenths.max())) + 1 if x.numel() else 1
        u = uniform(random, 5, len(x)).numpy()
        rates, sigma = 0.25 + u[[0, 2]], 0.02 + 0.06 * u[4]
        feed = rates * (0.2 + 0.2 * u[[1, 3]])
        start = torch.log(1 + 9 * uniform(random, 2, len(x))).numpy()
        shocks = torch.randn(steps, 2, len(x), generator=random, dtype=x.dtype).numpy() * sigma * math.sqrt(0.1)
        populations = torch.from_numpy(_lotka_volterra(start, rates, feed, sigma, shocks)).permute(2, 0, 1) / self.unit
        before = tenths.floor().long()
        share = (tenths - before)[..., None]
        pick = before[..., None].expand(-1, -1, 2)
        return populations.gather(1, pick) * (1 - share) + populations.gather(1, pick + 1) * share, None


def _lotka_volterra(state: np.ndarray, rates, feed, sigma, shocks: np.ndarray, dt: float = 0.1) -> np.ndarray:
    """Paths [steps+1 2 b] from ln(u, v) = state [2 b]. In numpy: for arrays this small it is five times as fast."""
    sign = np.array([[1.0], [-1.0]])
    path = np.empty((len(shocks) + 1, *state.shape))
    path[0] = np.exp(state)
    for number, shock in enumerate(shocks):
        growth = sign * (rates - feed * path[number, ::-1]) - 0.5 * sigma**2
        state = np.clip(state + np.clip(growth, -10, 10) * dt + shock, -7, 5)
        path[number + 1] = np.exp(state)
    return path


@dataclass(frozen=True)
class MixturePrior(FunctionPrior):
    """Each task draws its function from one of `members`, with probability in proportion to `weights`."""

    members: tuple[FunctionPrior, ...]
    weights: tuple[float, ...]

    def __post_init__(self):
        if len(self.members) != len(self.weights) or not all(is_number(w) and w > 0 for w in self.weights):
            raise InputError(f"Mixture: needs a positive weight for each of {len(self.members)}, got {self.weights}")
        if len({member.dim_y for member in self.members}) != 1:
            raise InputError("Mixture: its members must have the same number of outputs")

    @property
    def dim_y(self) -> int:  # type: ignore[override]
        return self.members[0].dim_y

    @property
    def dim_x(self) -> int | None:  # type: ignore[override]
        return next((member.dim_x for member in self.members if member.dim_x is not None), None)

    @property
    def shares(self) -> Tensor:
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return weights / weights.sum()

    def draw(self, x, random):
        choice = torch.multinomial(self.shares, len(x), replacement=True, generator=random)
        y, unknowns = x.new_empty(*x.shape[:2], self.dim_y), []
        for number, member in enumerate(self.members):
            rows = (choice == number).nonzero()[:, 0]
            if len(rows):
                y[rows], own = member.draw(x[rows], random)
                unknowns.append((rows, member, own))
        return y, unknowns

    def given(self, unknowns, task):
        whole = Hypotheses(
            task.xc.new_zeros(1, len(task.xc), dtype=torch.float64),
            task.xc.new_zeros(1, len(task.xt), task.xt.shape[1], dtype=torch.float64),
            task.xc.new_zeros(1, len(task.xc), dtype=torch.float64),
        )
        for rows, member, own in unknowns:
            part = member.given(own, task.rows(rows))
            if part is None:
                return None
            for all_rows, some in zip(whole, part, strict=True):
                all_rows[:, rows] = some
        return whole

    def settings(self, task, number):
        parts = []
        for member, share in zip(self.members, self.shares, strict=True):
            part = member.settings(task, number)
            if part is None:
                return None
            parts.append(part._replace(evidence=part.evidence + share.log()))
        return Hypotheses(*(torch.cat(column) for column in zip(*parts, strict=True)))
