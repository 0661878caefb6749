"""Streams of curves: which functions, at which places, how many points. Batch s is a function of (seed, s) alone.

>>> stream = curves("rbf", batch=4)
>>> stream.task(0).xc.shape[0]
4
>>> curves("rbf + periodic | 0.5 sawtooth", protocol="te-tnp").task(7)
Task(xc=[16, 41, 1], yc=[16, 41, 1], xt=[16, 128, 1], yt=[16, 128, 1])
"""

import math
import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fillin.data.functions import (
    FunctionPrior,
    GaussianProcessPrior,
    MixturePrior,
    PredatorPrey,
    Sawtooth,
    SquareWave,
    uniform,
)
from fillin.data.kernels import KERNELS, Kernel, ProductKernel, SumKernel, is_number, is_pair
from fillin.data.task import Task
from fillin.errors import InputError, UnknownName, choose

Counts = tuple[int, int]  # both ends included


@dataclass(frozen=True)
class TaskLayout:
    """Where the points of a task are: uniform in [low, high]^dim_x, both moved by `shift`.

    Nc is uniform in `context` and Nt in `targets`, alike for the tasks of a batch; where `points` is given, Nc + Nt
    stays below it. Targets may have a range of their own.
    """

    context: Counts = (3, 46)
    targets: Counts = (3, 46)
    points: int | None = 50
    range: tuple[float, float] = (-2.0, 2.0)
    target_range: tuple[float, float] | None = None
    shift: float = 0.0
    dim_x: int = 1

    def __post_init__(self):
        for name, least in (("context", 0), ("targets", 1)):
            value = getattr(self, name)
            if not (is_pair(value) and all(type(n) is int for n in value) and least <= value[0] <= value[1]):
                raise InputError(f"curves: {name} must be two whole numbers, {least} ≤ first ≤ second, got {value!r}")
        if self.points is not None:
            if type(self.points) is not int:
                raise InputError(f"curves: points must be a whole number, or None for any, got {self.points!r}")
            if self.points <= self.context[0] + self.targets[0]:
                least = f"{self.context[0]} + {self.targets[0]}"
                raise InputError(f"curves: points={self.points} leaves no room for {least}: points stay below it")
        for name in ("range", "target_range"):
            value = getattr(self, name)
            if not (is_pair(value) and value[0] < value[1]) and (name, value) != ("target_range", None):
                raise InputError(f"curves: {name} must be places (low, high) with low < high, got {value!r}")
        if not is_number(self.shift):
            raise InputError(f"curves: shift must be a number, got {self.shift!r}")
        if type(self.dim_x) is not int or self.dim_x < 1:
            raise InputError(f"curves: dim_x must be a whole number of at least 1, got {self.dim_x!r}")

    def draw(self, batch: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Places of context [b nc dx] and targets [b nt dx], in float64."""
        most = math.inf if self.points is None else self.points - 1
        nc = _between(self.context[0], min(self.context[1], most - self.targets[0]), random)
        nt = _between(self.targets[0], min(self.targets[1], most - nc), random)
        places = []
        for number, (low, high) in ((nc, self.range), (nt, self.target_range or self.range)):
            places.append(self.shift + low + (high - low) * uniform(random, batch, number, self.dim_x))
        return places[0], places[1]


def _between(low: int, high: float, random: torch.Generator) -> int:
    return int(torch.randint(low, int(high) + 1, (), generator=random))


@dataclass(frozen=True)
class Curves:
    """A stream of tasks: `task(s)` is the same whoever asks, and whenever."""

    function: FunctionPrior = field(default_factory=GaussianProcessPrior)
    layout: TaskLayout = field(default_factory=TaskLayout)
    batch: int = 16
    seed: int = 0

    def __post_init__(self):
        for name, least in (("batch", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"curves: {name} must be a whole number of at least {least}, got {value!r}")
        if self.function.dim_x not in (None, self.dim_x):
            raise InputError(f"curves: this function has {self.function.dim_x} input dimension, got dim_x={self.dim_x}")

    @property
    def dim_x(self) -> int:
        return self.layout.dim_x

    @property
    def dim_y(self) -> int:
        return self.function.dim_y

    def task(self, step: int) -> Task:
        """Batch `step`."""
        return self.draw(step)[0]

    def draw(self, step: int) -> tuple[Task, Any]:
        """Batch `step`, and the unknowns that made it: `function.given(unknowns, task)` is the answer."""
        random = make_generator(self.seed, step)
        xc, xt = self.layout.draw(self.batch, random)
        y, unknowns = self.function.draw(torch.cat([xc, xt], 1), random)
        nc = xc.shape[1]
        return Task(xc.float(), y[:, :nc].float(), xt.float(), y[:, nc:].float()), unknowns

    def validation_stream(self, seed: int) -> "Curves":
        return replace(self, seed=seed, batch=4)

    def at(self, **layout: Any) -> "Curves":
        """The same functions at other places: `stream.at(shift=4.0)`."""
        return replace(self, layout=replace(self.layout, **layout))


def make_generator(*seeds: int) -> torch.Generator:
    """Random numbers that depend on all of `seeds`. torch keeps 32 bits of a seed, so they are mixed into those."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))


# What is known of a protocol: where points are, and what hyperparameters are.
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
FUNCTIONS: dict[str, type] = {
    **KERNELS,
    "sawtooth": Sawtooth,
    "square-wave": SquareWave,
    "predator-prey": PredatorPrey,
}


def curves(function: str = "rbf", protocol: str = "tnp", batch: int = 16, seed: int = 0, **options: Any) -> Curves:
    """A stream from words.

    `function` is a kernel or another function by name; `+` and `*` combine kernels, `|` mixes functions, and a number
    before one is its weight: "2 rbf | matern-5/2 | rbf * periodic | sawtooth". `protocol` sets places, counts and
    hyperparameters as a paper does; `options` override them: every field of `TaskLayout`, and what the function has of
    `noise`, `logarithmic` and ranges of hyperparameters ("length", "scale", "period", "drift", "mix", "frequency").
    """
    settings = defaults(protocol, function)
    for option in options:
        if option not in settings:
            raise UnknownName(f"option of {function!r}", option, settings)
    settings |= {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    places = {f.name: settings.pop(f.name) for f in fields(TaskLayout)}
    return Curves(parse_function(function, settings), TaskLayout(**places), batch, seed)


def defaults(protocol: str, function: str = "rbf") -> dict[str, Any]:
    """Return every option of `curves` with its value under a protocol: those of `TaskLayout`, then the function's."""
    layout, hyper = PROTOCOLS[choose("protocol", protocol, PROTOCOLS)]
    words = {word for part in re.split(r"[|+*]", str(function)) for word in part.split()}
    kinds = [kind for name, kind in FUNCTIONS.items() if name in words]
    own = {f.name: hyper.get(f.name, f.default) for kind in kinds for f in fields(kind) if f.name != "dim_y"}
    if words & set(KERNELS):
        own["noise"] = hyper["noise"]
    return {**{f.name: getattr(layout, f.name) for f in fields(TaskLayout)}, **own}


def parse_function(text: str, hyper: dict[str, Any]) -> FunctionPrior:
    """The function that is written in words, as in `curves`, with these ranges of hyperparameters."""
    members, weights = [], []
    for part in str(text).split("|"):
        words = part.strip().split(maxsplit=1)
        weight = _number(words[0]) if len(words) == 2 else None
        if weight is not None and not 0 < weight < math.inf:
            raise InputError(f"curves: a weight must be a positive number, got {words[0]} before {words[1]!r}")
        weights.append(1.0 if weight is None else weight)
        members.append(_function(part.strip() if weight is None else words[1], hyper))
    return members[0] if len(members) == 1 else MixturePrior(tuple(members), tuple(weights))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _function(text: str, hyper: dict[str, Any]) -> FunctionPrior:
    if text in FUNCTIONS and text not in KERNELS:
        kind = FUNCTIONS[text]
        return kind(**{f.name: hyper[f.name] for f in fields(kind) if f.name in hyper})
    return GaussianProcessPrior(_kernel(text, hyper), hyper["noise"], bool(hyper.get("logarithmic", False)))


def _kernel(text: str, hyper: dict[str, Any]) -> Kernel:
    """Sums of products: * binds more tightly than +."""
    sums = []
    for term in text.split("+"):
        factors = [_basic(name.strip(), hyper) for name in term.split("*")]
        sums.append(factors[0] if len(factors) == 1 else ProductKernel(tuple(factors)))
    return sums[0] if len(sums) == 1 else SumKernel(tuple(sums))


def _basic(name: str, hyper: dict[str, Any]) -> Kernel:
    if not name:
        raise InputError("curves: a function is missing; write for example 'rbf + periodic | 0.5 sawtooth'")
    if name in FUNCTIONS and name not in KERNELS:
        raise InputError(f"curves: {name} is no kernel, so it cannot be added or multiplied; mix it with |")
    kind = KERNELS.get(name)
    if kind is None:
        raise UnknownName("function", name, FUNCTIONS)
    return kind(**{f.name: hyper[f.name] for f in fields(kind) if f.name in hyper})
