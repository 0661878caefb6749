"""Forward + backward of every model, in milliseconds, in yardsticks and against tnp-d."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fillin.data import Task
from fillin.errors import choose
from fillin.measure import Cost, Run, Tick, costs
from fillin.models import LatentProcess, Process, create, names
from fillin.objectives import elbo, log_likelihood

REFERENCE, YARDSTICK = "tnp-d", "yardstick"


@dataclass(frozen=True)
class Size:
    """How much is predicted from how much, and how often that is timed."""

    context: int
    targets: int
    batch: int = 16
    rounds: int = 10

    @property
    def label(self) -> str:
        return f"{self.context}/{self.targets}"


def sizes(repeats: int) -> tuple[Size, Size]:
    """32/64 and 256/512 points. The latter take seconds a run, and are timed a fifth as often."""
    return Size(32, 64, rounds=repeats), Size(256, 512, rounds=max(1, repeats // 5))


@dataclass(frozen=True)
class Figure:
    """One model at one size. Ratios are times: to tnp-d at the same size, to the yardstick of the same rounds."""

    size: str
    milliseconds: float
    to_reference: float
    yardsticks: float
    megabytes: float | None


@dataclass(frozen=True)
class Row:
    model: str
    parameters: int
    figures: list[Figure]


def yardstick(seed: int = 0) -> Run:
    """Forward + backward of torch.nn.TransformerEncoder (6 layers, width 64, 4 heads, feed-forward 128) on 16×96
    tokens: a unit of time that carries over from one machine to another."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        tokens = torch.randn(16, 96, 64)

    def run() -> None:
        encoder(tokens).square().mean().backward()
        encoder.zero_grad(set_to_none=True)

    return run


def curves(size: Size, seed: int = 0) -> Task:
    """Noisy sines at uniform places in [−2, 2): costs do not depend on what is fitted."""
    random = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(size.batch, size.context + size.targets, 1, generator=random) - 2
    y = torch.sin(3 * x) + 0.1 * torch.randn(x.shape, generator=random)
    n = size.context
    return Task(x[:, :n], y[:, :n], x[:, n:], y[:, n:])


def step(model: Process, task: Task, samples: int = 1) -> Run:
    """One step of training without the optimiser: the gradient of the ELBO of a latent model, of ln p of others.

    Gradients are dropped at the end, so that every run has to make them, and its memory includes them.
    """

    def run() -> None:
        value = elbo(model, task, samples) if isinstance(model, LatentProcess) else log_likelihood(model, task)
        value.mean().neg().backward()
        model.zero_grad(set_to_none=True)

    return run


def make(name: str, seed: int = 0, **options) -> Process:
    """`create` from a seed, leaving torch's own random state as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return create(name, **options)


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def compare(
    models: Mapping[str, Process],
    size: Size,
    *,
    samples: Mapping[str, int] | None = None,
    seed: int = 0,
    tick: Tick = lambda: None,
) -> dict[str, Cost]:
    """What a step of each model costs, and, under the name "yardstick", what the unit does in the same rounds."""
    task, latents = curves(size, seed), samples or {}
    runs = {name: step(model, task, latents.get(name, 1)) for name, model in models.items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # latent models draw from torch's random state
        return costs({YARDSTICK: yardstick(seed), **runs}, size.rounds, tick)


def measure_models(
    wanted: Sequence[str],
    at: Sequence[Size],
    *,
    size: str = "base",
    seed: int = 0,
    tick: Tick = lambda: None,
) -> list[Row]:
    """Every model wanted (none named: all of them) at every size; tnp-d is always among them, for the ratios."""
    models = {name: make(name, seed, size=size) for name in chosen(wanted)}
    figures: dict[str, list[Figure]] = {name: [] for name in models}
    for one in at:
        found = compare(models, one, seed=seed, tick=tick)
        unit, reference = found[YARDSTICK].seconds, found[REFERENCE].seconds
        for name in models:
            took = found[name].seconds
            figures[name].append(
                Figure(one.label, 1e3 * took, took / reference, took / unit, megabytes(found[name].bytes))
            )
    return [Row(name, count(model), figures[name]) for name, model in models.items()]


def chosen(wanted: Sequence[str]) -> list[str]:
    """The names asked for in the registry's order, with tnp-d; an unknown one is an error."""
    asked = {choose("model", name, names()) for name in wanted} or set(names())
    return [name for name in names() if name in asked | {REFERENCE}]


def megabytes(size: int | None) -> float | None:
    return None if size is None else size / 1e6
