"""Cost of a training step: of every model, of every score of te-tnp, and of the training loop around it."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fillin.attention import SCORES, Score, attend
from fillin.attention.backends.fused import fold_terms
from fillin.attention.dispatch import tabulate_terms
from fillin.attention.problem import AttentionProblem
from fillin.data import Task
from fillin.errors import choose
from fillin.measure import Cost, Workload, fastest_times, measure_costs
from fillin.models import LatentProcess, Process, create, names
from fillin.objectives import elbo, log_likelihood
from fillin.runtime import Tick
from fillin.train.loop import Loop, TrainingModule, make_objective, make_optimiser
from fillin.train.recipe import Recipe, build_model, make_stream, read_recipe

REFERENCE, YARDSTICK = "tnp-d", "yardstick"
SLOW_SCORE = "joint"  # an MLP on every pair: it takes longer than all other scores together


@dataclass(frozen=True)
class StepSize:
    """Numbers of points and tasks in a training step, and how often it is timed."""

    context: int
    targets: int
    batch: int = 16
    rounds: int = 10

    @property
    def label(self) -> str:
        return f"{self.context}/{self.targets}"


SCORE_SIZE = StepSize(256, 512, batch=2, rounds=3)


def step_sizes(repeats: int) -> tuple[StepSize, StepSize]:
    """Return 32/64 and 256/512 points. A run at the latter takes seconds, and is repeated a fifth as often."""
    return StepSize(32, 64, rounds=repeats), StepSize(256, 512, rounds=max(1, repeats // 5))


@dataclass(frozen=True)
class ModelCost:
    """One model at one size. Ratios are of time: to tnp-d at the same size, and to the yardstick of the same rounds."""

    size: str
    milliseconds: float
    to_reference: float
    yardsticks: float
    megabytes: float | None


@dataclass(frozen=True)
class ModelRow:
    """One model at all sizes."""

    model: str
    parameters: int
    figures: list[ModelCost]


@dataclass(frozen=True)
class ScoreRow:
    """te-tnp with one score, which is "folded" into queries and keys, read from a "table", or evaluated on "pairs".

    `error` is ‖auto − reference‖/‖reference‖ of attention's output, where the score is read from a table.
    """

    score: str
    how: str
    milliseconds: float
    to_reference: float
    megabytes: float | None
    memory_to_reference: float | None
    error: float | None


@dataclass(frozen=True)
class TrainRow:
    """Seconds a step: forward + backward + optimiser, and the loop around them (data, seeds, clipping, log, …)."""

    model: str
    bare: float
    loop: float
    ratio: float


def make_yardstick(seed: int = 0) -> Workload:
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


def make_task(size: StepSize, seed: int = 0) -> Task:
    """Draw noisy sines at uniform inputs in [−2, 2): costs do not depend on the function."""
    random = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(size.batch, size.context + size.targets, 1, generator=random) - 2
    y = torch.sin(3 * x) + 0.1 * torch.randn(x.shape, generator=random)
    n = size.context
    return Task(x[:, :n], y[:, :n], x[:, n:], y[:, n:])


def make_step(model: Process, task: Task, samples: int = 1) -> Workload:
    """A training step without the optimiser: the gradient of the ELBO of a latent model, of ln p of any other.

    Gradients are dropped at the end, so that every run computes them and its memory includes them.
    """

    def run() -> None:
        value = elbo(model, task, samples) if isinstance(model, LatentProcess) else log_likelihood(model, task)
        value.mean().neg().backward()
        model.zero_grad(set_to_none=True)

    return run


def make_model(name: str, seed: int = 0, **options) -> Process:
    """`create` with weights drawn from a seed; torch's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return create(name, **options)


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def to_megabytes(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def measure_steps(
    models: Mapping[str, Process], size: StepSize, samples: Mapping[str, int] | None = None, seed: int = 0,
    tick: Tick = lambda: None,
) -> dict[str, Cost]:  # fmt: skip
    """Measure a step of each model and, under the name "yardstick", the unit of time in the same rounds."""
    task, latents = make_task(size, seed), samples or {}
    steps = {name: make_step(model, task, latents.get(name, 1)) for name, model in models.items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # latent models draw from torch's random state
        return measure_costs({YARDSTICK: make_yardstick(seed), **steps}, size.rounds, tick)


def measure_models(
    selected: Sequence[str], sizes: Sequence[StepSize], *, size: str = "base", seed: int = 0, tick: Tick = lambda: None
) -> list[ModelRow]:
    """Measure the selected models (none: all of them) at every size. tnp-d is always among them, for the ratios."""
    models = {name: make_model(name, seed, size=size) for name in select_models(selected)}
    figures: dict[str, list[ModelCost]] = {name: [] for name in models}
    for points in sizes:
        costs = measure_steps(models, points, seed=seed, tick=tick)
        unit, reference = costs[YARDSTICK].seconds, costs[REFERENCE].seconds
        for name in models:
            seconds, memory = costs[name].seconds, to_megabytes(costs[name].bytes)
            figures[name].append(ModelCost(points.label, 1e3 * seconds, seconds / reference, seconds / unit, memory))
    return [ModelRow(name, count_parameters(model), figures[name]) for name, model in models.items()]


def select_models(selected: Sequence[str]) -> list[str]:
    """Return the selected names in the registry's order, with tnp-d; none selected: all names."""
    chosen = {choose("model", name, names()) for name in selected} or set(names())
    return [name for name in names() if name in chosen | {REFERENCE}]


def select_scores(include_slow: bool = False) -> list[str]:
    return [name for name in SCORES if include_slow or name != SLOW_SCORE]


def measure_scores(
    scores: Sequence[str], points: StepSize = SCORE_SIZE, *, size: str = "base", seed: int = 0,
    tick: Tick = lambda: None,
) -> list[ScoreRow]:  # fmt: skip
    """Measure te-tnp with each score; the first row is tnp-d."""
    models = {REFERENCE: make_model(REFERENCE, seed, size=size)}
    models |= {f"te-tnp {name}": make_model("te-tnp", seed, size=size, score=name) for name in scores}
    costs = measure_steps(models, points, seed=seed, tick=tick)
    base = costs[REFERENCE]
    rows = []
    for name, model in models.items():
        how, error = _score_accuracy(model, points, seed)
        cost = costs[name]
        memory_ratio = None if cost.bytes is None or not base.bytes else cost.bytes / base.bytes
        row = ScoreRow(
            name.removeprefix("te-tnp "), how, 1e3 * cost.seconds, cost.seconds / base.seconds,
            to_megabytes(cost.bytes), memory_ratio, error,
        )  # fmt: skip
        rows.append(row)
    return rows


@torch.no_grad()
def _score_accuracy(model: Process, points: StepSize, seed: int) -> tuple[str, float | None]:
    """Return how the model's first layer is computed at this size and, if from a table, the relative error of that."""
    attention = model.blocks[0].attention  # type: ignore[index, union-attr]
    score: Score = attention.score  # type: ignore[assignment]
    heads, width, n = attention.heads, attention.head_dim, points.context + points.targets
    random = torch.Generator().manual_seed(seed)

    def normal(number: int) -> Tensor:
        return torch.randn(points.batch, heads, number, width, generator=random)  # type: ignore[arg-type]

    q, k, v = normal(n), normal(points.context), normal(points.context)
    xq = 4 * torch.rand(points.batch, n, 1, generator=random) - 2
    xk = xq[:, : points.context]
    problem = AttentionProblem(q, k, v, xq, xk, score)
    if None not in fold_terms(problem):
        return "folded", None
    if tabulate_terms(problem) is problem:
        return "pairs", None
    exact = attend(q, k, v, xq=xq, xk=xk, score=score, backend="reference")
    fast = attend(q, k, v, xq=xq, xk=xk, score=score)
    return "table", float((fast - exact).norm() / exact.norm())


def measure_training(models: Sequence[str], steps: int, rounds: int, seed: int, tick: Tick) -> list[TrainRow]:
    """Time `steps` steps of the recipe te-tnp, bare and in the training loop by turns, on the same tasks.

    The loop is timed whole, from building the model to the last checkpoint.
    """
    from lightning_fabric import Fabric

    fabric, rows = Fabric(accelerator="cpu", devices=1), []
    for name in models:
        words = ["--model.name", name, "--budget.time", "null", "--budget.steps", str(steps), "--seed", str(seed)]
        recipe = read_recipe("te-tnp", [*words, "--keep.validations", "1", "--keep.batches", "1"])

        def loop(recipe: Recipe = recipe) -> None:
            with tempfile.TemporaryDirectory() as folder:
                Loop(fabric, recipe, Path(folder), "bench", watch=lambda *_: None)()

        best = fastest_times({"bare": _bare_steps(recipe, steps), "loop": loop}, rounds, tick)
        rows.append(TrainRow(name, best["bare"] / steps, best["loop"] / steps, best["loop"] / best["bare"]))
    return rows


def _bare_steps(recipe: Recipe, steps: int) -> Workload:
    """Forward + backward + optimiser alone."""
    stream = make_stream(recipe)
    tasks = [stream.task(step) for step in range(steps)]
    goal = TrainingModule(build_model(recipe, stream), make_objective(recipe))
    optimiser = make_optimiser(recipe, goal)

    def run() -> None:
        for task in tasks:
            goal(task.xc, task.yc, task.xt, task.yt, task.mask_c, task.mask_t).backward()
            optimiser.step()
            optimiser.zero_grad()

    return run
