"""Streams of tasks on random curves. Batch s is a function of (seed, s) alone.

>>> stream = curves("rbf", batch=4)
>>> stream.task(0).xc.shape[0]
4
>>> curves("rbf + periodic | 0.5 sawtooth", protocol="te-tnp").task(7)
Task(xc=[16, 41, 1], yc=[16, 41, 1], xt=[16, 128, 1], yt=[16, 128, 1])
"""

import math
import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fillin.data.functions import FUNCTIONS, FunctionPrior, GaussianProcessPrior, Hypotheses, MixturePrior, uniform
from fillin.data.kernels import KERNELS, ProductKernel, SumKernel
from fillin.data.task import Task, check_count_ranges, check_counts, is_number, is_pair, make_generator, split_mixture
from fillin.errors import InputError, choose


@dataclass(frozen=True)
class TaskLayout:
    """Numbers and locations of the points of a task: uniform in [low, high]^dim_x, shifted by `shift`.

    Nc is uniform in `context` and Nt in `targets` (both ends included), equal for all tasks of a batch. Where `points`
    is given, Nc + Nt stays below it. `target_range` is a separate range for targets.
    """

    context: tuple[int, int] = (3, 46)
    targets: tuple[int, int] = (3, 46)
    points: int | None = 50
    range: tuple[float, float] = (-2.0, 2.0)
    target_range: tuple[float, float] | None = None
    shift: float = 0.0
    dim_x: int = 1

    def __post_init__(self):
        check_count_ranges(self, "curves", context=0, targets=1)
        if self.points is not None:
            if type(self.points) is not int:
                raise InputError(f"curves: points must be a whole number, or None for no limit, got {self.points!r}")
            if self.points <= self.context[0] + self.targets[0]:
                raise InputError(
                    f"curves: points={self.points} must exceed the fewest context points plus the fewest targets, "
                    f"{self.context[0]} + {self.targets[0]}"
                )
        for name in ("range", "target_range"):
            value = getattr(self, name)
            if not (is_pair(value) and value[0] < value[1]) and (name, value) != ("target_range", None):
                raise InputError(f"curves: {name} must be two locations (low, high) with low < high, got {value!r}")
        if not is_number(self.shift):
            raise InputError(f"curves: shift must be a number, got {self.shift!r}")
        check_counts(self, "curves", dim_x=1)

    def draw(self, batch: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw locations of the context [b nc dx] and of the targets [b nt dx], in float64."""
        max_points = math.inf if self.points is None else self.points - 1
        max_context = min(self.context[1], max_points - self.targets[0])
        nc = int(torch.randint(self.context[0], int(max_context) + 1, (), generator=random))
        max_targets = min(self.targets[1], max_points - nc)
        nt = int(torch.randint(self.targets[0], int(max_targets) + 1, (), generator=random))
        xc, xt = (
            self.shift + low + (high - low) * uniform(random, batch, number, self.dim_x)
            for number, (low, high) in ((nc, self.range), (nt, self.target_range or self.range))
        )
        return xc, xt


@dataclass(frozen=True)
class Curves:
    """Stream of tasks on functions of one prior; `task(s)` depends on the seed and s alone."""

    function: FunctionPrior = field(default_factory=GaussianProcessPrior)
    layout: TaskLayout = field(default_factory=TaskLayout)
    batch: int = 16
    seed: int = 0

    def __post_init__(self):
        check_counts(self, "curves", batch=1, seed=0)
        if self.function.dim_x not in (None, self.dim_x):
            raise InputError(f"curves: this function has {self.function.dim_x} input dimension, got dim_x={self.dim_x}")

    @property
    def dim_x(self) -> int:
        return self.layout.dim_x

    @property
    def dim_y(self) -> int:
        return self.function.dim_y

    def task(self, step: int) -> Task:
        return self.draw(step)[0]

    def draw(self, step: int) -> tuple[Task, Any]:
        """Return batch `step` and the parameters of its functions (see `FunctionPrior.true_hypothesis`)."""
        random = make_generator(self.seed, step)
        xc, xt = self.layout.draw(self.batch, random)
        y, parameters = self.function.draw(torch.cat([xc, xt], 1), random)
        nc = xc.shape[1]
        return Task(xc.float(), y[:, :nc].float(), xt.float(), y[:, nc:].float()), parameters

    def validation_stream(self, seed: int) -> "Curves":
        return replace(self, seed=seed, batch=4)

    def at(self, **layout: Any) -> "Curves":
        """Return the same functions with other locations: `stream.at(shift=4.0)`."""
        return replace(self, layout=replace(self.layout, **layout))


# Layout and ranges of hyperparameters of each protocol.
_HYPER = {"length": (0.1, 0.6), "scale": (0.1, 1.0), "noise": 0.02}
PROTOCOLS: dict[str, tuple[TaskLayout, dict[str, Any]]] = {
    # Nguyen & Grover 2022, and with it LBANP and CMANP: Nc ~ U[3, 47), Nt ~ U[3, 50 − Nc)
    "tnp": (TaskLayout(), _HYPER),
    # Ashman et al. 2024: log-uniform length scales, targets outside the context as well
    "te-tnp": (
        TaskLayout(context=(1, 64), targets=(128, 128), points=None, target_range=(-3.0, 3.0)),
        {"length": (0.25, 4.0), "scale": (1.0, 1.0), "period": (0.25, 4.0), "noise": 0.2, "logarithmic": True},
    ),
    # neuralprocesses: noiseless sawtooth waves
    "sawtooth": (TaskLayout(context=(0, 30), targets=(100, 100), points=None), {**_HYPER, "noise": 0.0}),
}


def curves(function: str = "rbf", protocol: str = "tnp", batch: int = 16, seed: int = 0, **options: Any) -> Curves:
    """Return a stream described in words.

    `function` is the name of a kernel or of another function. `+` and `*` combine kernels, `|` mixes functions, and a
    number before a function is its weight: "2 rbf | matern-5/2 | rbf * periodic | sawtooth". `protocol` sets locations,
    counts and hyperparameters as in a paper. `options` override it: every field of `TaskLayout`, and those of `noise`,
    `logarithmic` and the ranges "length", "scale", "period", "drift", "mix", "frequency" that the function has.
    """
    settings = defaults(protocol, function)
    for option in options:
        choose(f"option of {function!r}", option, settings)
    settings |= {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    layout = TaskLayout(**{f.name: settings.pop(f.name) for f in fields(TaskLayout)})
    return Curves(parse_function(function, settings), layout, batch, seed)


def defaults(protocol: str, function: str = "rbf") -> dict[str, Any]:
    """Return every option of `curves` with its value under a protocol: those of `TaskLayout`, then the function's."""
    layout, hyper = PROTOCOLS[choose("protocol", protocol, PROTOCOLS)]
    words = {word for part in re.split(r"[|+*]", str(function)) for word in part.split()}
    kinds = [kind for name, kind in FUNCTIONS.items() if name in words]
    options = {f.name: hyper.get(f.name, f.default) for kind in kinds for f in fields(kind) if f.name != "dim_y"}
    if words & set(KERNELS):
        options["noise"] = hyper["noise"]
    return {**{f.name: getattr(layout, f.name) for f in fields(TaskLayout)}, **options}


def parse_function(text: str, hyper: dict[str, Any]) -> FunctionPrior:
    """Return the function described in words, as in `curves`, with these ranges of hyperparameters."""

    def parse_factor(name: str, kinds: dict[str, type]) -> Any:
        if not name:
            raise InputError("curves: a function is missing; write for example 'rbf + periodic | 0.5 sawtooth'")
        if name not in kinds and name in FUNCTIONS:
            raise InputError(f"curves: {name} is not a kernel, so it cannot be added or multiplied; mix it with |")
        kind = kinds[choose("function", name, FUNCTIONS)]
        return kind(**{f.name: hyper[f.name] for f in fields(kind) if f.name in hyper})

    def parse_member(text: str) -> FunctionPrior:
        if text in FUNCTIONS and text not in KERNELS:
            return parse_factor(text, FUNCTIONS)
        products = []
        for term in text.split("+"):  # * binds more tightly than +
            factors = tuple(parse_factor(name.strip(), KERNELS) for name in term.split("*"))
            products.append(factors[0] if len(factors) == 1 else ProductKernel(factors))
        kernel = products[0] if len(products) == 1 else SumKernel(tuple(products))
        return GaussianProcessPrior(kernel, hyper["noise"], bool(hyper.get("logarithmic", False)))

    texts, weights = split_mixture(text, "curves")
    members = tuple(parse_member(text) for text in texts)
    return members[0] if len(members) == 1 else MixturePrior(members, weights)


class Limit(NamedTuple):
    """Log-likelihood of exact inference, which no model exceeds on average: ln p(yt | context) per target, [b]."""

    marginal: Float[Tensor, "b"]  # of every target alone
    joint: Float[Tensor, "b"]  # of all targets jointly


def oracle_limit(stream: Curves, step: int) -> Limit | None:
    """Return the limit on batch `step` for known hyperparameters. None without a closed form."""
    task, parameters = stream.draw(step)
    return _average(stream.function.true_hypothesis(parameters, task))


def bayes_limit(stream: Curves, step: int, settings: int = 512) -> Limit | None:
    """Return the limit on batch `step` under the prior of the hyperparameters, the Bayes-optimal log-likelihood.

        p(yt | yc) = Σ_s w_s p(yt | yc, θ_s),    w_s ∝ p(yc | θ_s)

    with θ_s where the posterior has its mass (`importance_sample`). None without a closed form.
    """
    return _average(stream.function.hypotheses(stream.task(step), settings))


def _average(hypotheses: Hypotheses | None) -> Limit | None:
    if hypotheses is None:
        return None
    weights = hypotheses.evidence.log_softmax(0)
    marginal = (weights[..., None] + hypotheses.marginal).logsumexp(0).mean(-1)
    return Limit(marginal, (weights + hypotheses.joint).logsumexp(0) / max(1, hypotheses.marginal.shape[-1]))
