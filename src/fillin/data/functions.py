"""Distributions over functions, from which curves are drawn; those with closed-form predictions return `Hypotheses`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.quasirandom import SobolEngine

from fillin.data.kernels import KERNELS, Kernel, Range, RBFKernel, check_range, within
from fillin.data.task import Task, is_number
from fillin.errors import InputError
from fillin.gp import GPPosterior, conditional

_CHUNK_ENTRIES = 2_000_000  # of covariance matrices at a time: 16 MB
_SAMPLING_ROUNDS = 8
_CENTRES = 16  # points around which a round draws
_MIN_EFFECTIVE_POINTS = 8


class Hypotheses(NamedTuple):
    """Log densities under settings s of the unknown parameters, for each task b of a batch."""

    evidence: Float[Tensor, "s b"]  # ln p(yc | s), plus the log of its prior weight
    marginal: Float[Tensor, "s b nt"]  # ln p(yt_i | yc, s)
    joint: Float[Tensor, "s b"]  # ln p(yt | yc, s)


class FunctionPrior(ABC):
    """Distribution over functions from R^dx to R^dim_y. `dim_x` is None where any dx is allowed."""

    dim_x: ClassVar[int | None] = None
    dim_y: int = 1

    @abstractmethod
    def draw(self, x: Float[Tensor, "b n dx"], random: torch.Generator) -> tuple[Float[Tensor, "b n dy"], Any]:
        """Draw one function per task. Returns its values at x in float64 and its parameters (for `true_hypothesis`)."""

    def true_hypothesis(self, parameters: Any, task: Task) -> Hypotheses | None:
        """Evaluate the parameters that generated the task. None without a closed form."""
        return None

    def hypotheses(self, task: Task, number: int) -> Hypotheses | None:
        """Evaluate about `number` settings of the parameters that cover the posterior. None without a closed form."""
        return None


def uniform(random: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=random, dtype=torch.float64)


def check_noise(where: str, noise) -> None:
    """Raise an error unless `noise` is a standard deviation, or the range that each task draws its own from."""
    if isinstance(noise, tuple | list):
        check_range(where, "noise", noise)
    elif not (is_number(noise) and noise >= 0):
        raise InputError(f"{where}: noise must be a standard deviation of at least 0, or a range, got {noise!r}")


def noise_std(noise: float | Range, u: Tensor, logarithmic: bool = False) -> Tensor:
    """Return the noise of each task: `noise`, or (log-)uniform in that range at the uniforms u."""
    return within(u, noise, logarithmic) if isinstance(noise, tuple | list) else torch.full_like(u, noise)


@dataclass(frozen=True)
class GaussianProcessPrior(FunctionPrior):
    """y = f + noise·ε with f ~ GP(0, k). `noise` is a standard deviation, or a range from which each task draws its
    own, uniformly or log-uniformly."""

    kernel: Kernel = field(default_factory=RBFKernel)
    noise: float | Range = 0.02
    logarithmic: bool = False

    def __post_init__(self):
        check_noise("GaussianProcessPrior", self.noise)

    def draw(self, x, random):
        theta = self._from_uniform(uniform(random, len(x), self.n_parameters))
        factor = torch.linalg.cholesky(self._covariance(x, theta))
        return factor @ torch.randn(*x.shape[:2], 1, generator=random, dtype=x.dtype), theta

    def true_hypothesis(self, parameters, task):
        return self._evaluate(task, parameters[None])

    def hypotheses(self, task, number):
        context = Task(task.xc, task.yc, task.xt[:, :0], task.yt[:, :0])
        u, density = importance_sample(
            lambda u: self._evaluate(context, self._from_uniform(u)).evidence, number, len(task.xc), self.n_parameters
        )
        hypotheses = self._evaluate(task, self._from_uniform(u))
        return hypotheses._replace(evidence=hypotheses.evidence - density)

    def posterior(
        self,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc 1"],
        xt: Float[Tensor, "b nt dx"],
        parameters: Float[Tensor, "b size"] | None = None,
    ) -> MultivariateNormal:
        """Return the exact predictive distribution of yt for known hyperparameters: batch [b], event [nt]. Without
        `parameters` (those of `draw`) each is the middle of its range. Rasmussen & Williams 2006, 2.22–2.24."""
        x = torch.cat([xc, xt], 1).double()
        if parameters is None:
            parameters = self._from_uniform(torch.full((len(x), self.n_parameters), 0.5, dtype=torch.float64))
        mean, factor = conditional(self._covariance(x, parameters), yc.double())
        return MultivariateNormal(mean[..., 0], scale_tril=factor, validate_args=False)

    @property
    def n_parameters(self) -> int:
        """Number of random parameters of a task: those of the kernel, and the noise where it has a range."""
        return self.kernel.size + isinstance(self.noise, tuple | list)

    def _from_uniform(self, u: Float[Tensor, "*b n"]) -> Float[Tensor, "*b size"]:
        """Map uniforms to θ of the kernel followed by the noise."""
        theta, last = self.kernel.from_uniform(u[..., : self.kernel.size]), u[..., self.kernel.size :]
        last = last if last.shape[-1] else theta.new_zeros(*theta.shape[:-1], 1)  # without a range of noise
        return torch.cat([theta, noise_std(self.noise, last, self.logarithmic)], -1)

    def _covariance(self, x: Tensor, theta: Tensor) -> Tensor:
        """Return the covariance of y at x, with a small jitter instead of the noise where that is smaller."""
        gram = self.kernel(x, x, theta[..., :-1])
        jitter = 1e-9 * gram.diagonal(dim1=-2, dim2=-1).mean(-1)
        gram.diagonal(dim1=-2, dim2=-1).add_(torch.maximum(theta[..., -1].square(), jitter)[..., None])
        return gram

    def _evaluate(self, task: Task, theta: Float[Tensor, "s b size"]) -> Hypotheses:
        """Apply algorithm 2.1 of Rasmussen & Williams 2006 for every θ at once, with one Cholesky factor: its context
        block whitens yc, its target block is the factor of the posterior covariance of the targets."""
        x = torch.cat([task.xc, task.xt], 1).double()
        y = torch.cat([task.yc, task.yt], 1).double()
        nc = task.xc.shape[1]
        parts = []
        for chunk in theta.split(max(1, _CHUNK_ENTRIES // max(1, len(x) * x.shape[1] ** 2))):
            covariance = self._covariance(x.expand(len(chunk), *x.shape), chunk)
            joint = GPPosterior.from_covariance(covariance, y.expand(len(chunk), *y.shape))
            density, white, rest = joint.log_likelihood, joint.white[..., 0], joint.factor[..., nc:, nc:]
            variance = rest.square().sum(-1)
            residual = (rest @ white[..., nc:, None])[..., 0]  # yt − its posterior mean
            marginal = -0.5 * (residual.square() / variance + variance.log() + math.log(2 * math.pi))
            parts.append((density[..., :nc].sum(-1), marginal, density[..., nc:].sum(-1)))
        return Hypotheses(*(torch.cat(column) for column in zip(*parts, strict=True)))


def importance_sample(
    evidence: Callable[[Float[Tensor, "s b k"]], Float[Tensor, "s b"]], number: int, tasks: int, size: int
) -> tuple[Float[Tensor, "s b k"], Float[Tensor, "s b"]]:
    """Draw points u_s in [0, 1]^size for each of `tasks` posteriors ∝ exp(evidence(u)). Returns u_s and ln q(u_s).

    The mean of f(u_s) with weights ∝ exp(evidence(u_s))/q(u_s) estimates the posterior mean of f. A posterior may be
    far narrower than its prior: a quarter of the points are a Sobol sequence, then each round draws from Gaussians
    around the best points so far by a tempered posterior (population Monte Carlo, Cappé et al. 2004). q is the density
    of all rounds together (the balance heuristic of Veach & Guibas 1995).
    """
    per_round = (number - number // 4) // _SAMPLING_ROUNDS
    first = number - per_round * _SAMPLING_ROUNDS
    u = SobolEngine(size, scramble=True, seed=0).draw(first, dtype=torch.float64)[:, None].expand(-1, tasks, -1)
    log_p, log_q = evidence(u), torch.zeros(first, tasks, dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    rounds: list[_Proposal] = []
    for _ in range(_SAMPLING_ROUNDS if per_round else 0):
        rounds.append(_Proposal(u, log_p - log_q))
        drawn = rounds[-1].draw(per_round, random)
        inside = ((drawn > 0) & (drawn < 1)).all(-1)
        drawn = drawn.clamp(1e-9, 1 - 1e-9)  # points outside the prior get weight zero
        log_p = torch.cat([log_p, evidence(drawn).masked_fill(~inside, -math.inf)])
        u = torch.cat([u, drawn])
        parts = [torch.full(u.shape[:2], math.log(first), dtype=u.dtype)]
        parts += [math.log(per_round) + past.log_density(u) for past in rounds]
        log_q = torch.stack(parts).logsumexp(0) - math.log(first + per_round * len(rounds))
    return u, torch.where(log_p.isfinite(), log_q, math.inf)


class _Proposal:
    """Mixture of Gaussians around the best points by tempered weights, with the covariance of those points."""

    def __init__(self, u: Tensor, log_weights: Tensor):
        low, high = torch.zeros(log_weights.shape[1]), torch.ones(log_weights.shape[1])
        for _ in range(20):  # bisection: the largest power up to 1 with an effective sample size 1/Σw² of enough points
            middle = (low + high) / 2
            enough = 1 / (middle * log_weights).log_softmax(0).exp().square().sum(0) >= _MIN_EFFECTIVE_POINTS
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        weights = (low * log_weights).nan_to_num(nan=-math.inf).log_softmax(0).exp()
        best = weights.topk(min(_CENTRES, len(u)), dim=0)
        self.weights = best.values / best.values.sum(0)  # [c b]
        self.centres = u.gather(0, best.indices[..., None].expand(-1, -1, u.shape[-1]))  # [c b k]
        off = self.centres - (self.weights[..., None] * self.centres).sum(0)
        covariance = torch.einsum("cb,cbi,cbj->bij", self.weights, off, off)
        floor = 1e-12 * torch.eye(u.shape[-1], dtype=u.dtype)
        self.factor = torch.linalg.cholesky(
            covariance + 1e-3 * torch.diag_embed(covariance.diagonal(dim1=1, dim2=2)) + floor
        )

    def draw(self, number: int, random: torch.Generator) -> Tensor:
        chosen = torch.multinomial(self.weights.T, number, replacement=True, generator=random).T
        centre = self.centres.gather(0, chosen[..., None].expand(-1, -1, self.centres.shape[-1]))
        noise = torch.randn(centre.shape, generator=random, dtype=centre.dtype)
        return centre + torch.einsum("bij,sbj->sbi", self.factor, noise)

    def log_density(self, u: Tensor) -> Tensor:
        off = (u[:, None] - self.centres).permute(2, 3, 0, 1)  # [b k s c]
        b, k, s, c = off.shape
        white = torch.linalg.solve_triangular(self.factor, off.reshape(b, k, s * c), upper=False).view(b, k, s, c)
        volume = self.factor.diagonal(dim1=1, dim2=2).log().sum(-1) + 0.5 * k * math.log(2 * math.pi)
        log = self.weights.T[:, None].log() - 0.5 * white.square().sum(1) - volume[:, None, None]  # [b s c]
        return log.logsumexp(-1).T


@dataclass(frozen=True)
class Sawtooth(FunctionPrior):
    """y = frac(frequency · (x·direction) − phase) + noise·ε, direction a random unit vector, as in neuralprocesses."""

    frequency: Range = (2.0, 4.0)
    noise: float | Range = 0.0

    def __post_init__(self):
        check_range(type(self).__name__, "frequency", self.frequency)
        check_noise(type(self).__name__, self.noise)

    def draw(self, x, random):
        direction = torch.randn(len(x), x.shape[-1], 1, generator=random, dtype=x.dtype)
        direction = direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
        u = uniform(random, 2, len(x), 1, 1)
        periods = within(u[0], self.frequency) * (x @ direction) - u[1]
        noise = noise_std(self.noise, uniform(random, len(x), 1, 1))
        return self._wave(periods) + noise * torch.randn(periods.shape, generator=random, dtype=x.dtype), None

    def _wave(self, phase: Tensor) -> Tensor:
        return (phase - phase.floor()).clamp(max=1 - 2**-24)  # below 1 also after rounding to float32


class SquareWave(Sawtooth):
    """y = 1 in the first half of each period, 0 in the second, + noise·ε."""

    def _wave(self, phase):
        return (super()._wave(phase) < 0.5).to(phase.dtype)


@dataclass(frozen=True)
class PredatorPrey(FunctionPrior):
    """Stochastic Lotka–Volterra equations of prey u and predators v, as in neuralprocesses:

        du = u(α − βv) dt + σ u dW,    dv = v(−γ + δu) dt + σ v dW

    solved by Euler–Maruyama in ln u and ln v, which keeps populations positive, from the smallest x to the largest,
    with `years` per unit of x. y is both populations divided by `unit`. One input dimension, two outputs.
    """

    years: float = 25.0
    unit: float = 5.0
    dim_y: int = 2
    dim_x: ClassVar[int | None] = 1

    def draw(self, x, random):
        tenths = 10 * self.years * (x[..., 0] - x.min()) if x.numel() else x[..., 0]  # of a year since the smallest x
        steps = math.ceil(float(tenths.max())) + 1 if x.numel() else 1
        u = uniform(random, 5, len(x)).numpy()
        rates, sigma = 0.25 + u[[0, 2]], 0.02 + 0.06 * u[4]
        interaction = rates * (0.2 + 0.2 * u[[1, 3]])
        state = torch.log(1 + 9 * uniform(random, 2, len(x))).numpy()
        shocks = torch.randn(steps, 2, len(x), generator=random, dtype=x.dtype).numpy() * sigma * math.sqrt(0.1)
        path = np.empty((steps + 1, *state.shape))  # of u and v; numpy is five times as fast as torch on such arrays
        path[0], sign = np.exp(state), np.array([[1.0], [-1.0]])
        for step, shock in enumerate(shocks):
            growth = sign * (rates - interaction * path[step, ::-1]) - 0.5 * sigma**2
            state = np.clip(state + np.clip(growth, -10, 10) * 0.1 + shock, -7, 5)
            path[step + 1] = np.exp(state)
        paths = torch.from_numpy(path).permute(2, 0, 1) / self.unit
        before = tenths.floor().long()
        weight = (tenths - before)[..., None]
        index = before[..., None].expand(-1, -1, 2)
        return paths.gather(1, index) * (1 - weight) + paths.gather(1, index + 1) * weight, None


@dataclass(frozen=True)
class MixturePrior(FunctionPrior):
    """Mixture of function priors: each task draws one of `members` with probability proportional to `weights`."""

    members: tuple[FunctionPrior, ...]
    weights: tuple[float, ...]

    def __post_init__(self):
        number = len(self.members)
        if number != len(self.weights) or not all(is_number(w) and w > 0 for w in self.weights):
            raise InputError(f"MixturePrior: give a positive weight for each of {number} members, got {self.weights}")
        if len({member.dim_y for member in self.members}) != 1:
            raise InputError("MixturePrior: its members must have the same number of outputs")

    @property
    def dim_y(self) -> int:  # type: ignore[override]
        return self.members[0].dim_y

    @property
    def dim_x(self) -> int | None:  # type: ignore[override]
        return next((member.dim_x for member in self.members if member.dim_x is not None), None)

    @property
    def probabilities(self) -> Tensor:
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return weights / weights.sum()

    def draw(self, x, random):
        choice = torch.multinomial(self.probabilities, len(x), replacement=True, generator=random)
        y, parameters = x.new_empty(*x.shape[:2], self.dim_y), []
        for number, member in enumerate(self.members):
            rows = (choice == number).nonzero()[:, 0]
            if len(rows):
                y[rows], drawn = member.draw(x[rows], random)
                parameters.append((rows, member, drawn))
        return y, parameters

    def true_hypothesis(self, parameters, task):
        parts = []
        for rows, member, drawn in parameters:
            part = member.true_hypothesis(drawn, task.rows(rows))
            if part is None:
                return None
            parts.append(part)
        order = torch.cat([rows for rows, _, _ in parameters]).argsort()
        return Hypotheses(*(torch.cat(column, 1)[:, order] for column in zip(*parts, strict=True)))

    def hypotheses(self, task, number):
        parts = []
        for member, probability in zip(self.members, self.probabilities, strict=True):
            part = member.hypotheses(task, number)
            if part is None:
                return None
            parts.append(part._replace(evidence=part.evidence + probability.log()))
        return Hypotheses(*(torch.cat(column) for column in zip(*parts, strict=True)))


FUNCTIONS: dict[str, type] = {**KERNELS, "sawtooth": Sawtooth, "square-wave": SquareWave, "predator-prey": PredatorPrey}
