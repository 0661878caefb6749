"""Cost of a training step: of every model, of every score of te-tnp, of released code, and of the training loop.

Rows are JSON objects. Ratios are of time, to tnp-d at the same size and to the yardstick of the same rounds.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fillin.attention import SCORES, Score, attend
from fillin.attention.backends.fused import fold_terms
from fillin.attention.dispatch import tabulate_terms
from fillin.attention.problem import AttentionProblem
from fillin.data import Task
from fillin.errors import InputError, choose
from fillin.measure import Cost, Workload, fastest_times, measure_costs
from fillin.models import LatentProcess, Process, create, names
from fillin.objectives import elbo, log_likelihood
from fillin.runtime import Tick
from fillin.train.loop import Loop, TrainingModule, make_objective, make_optimiser
from fillin.train.recipe import Recipe, build_model, make_stream, read_recipe
from fillin_studies.base import count_parameters

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
    """A training step without the optimiser: the gradient of the ELBO of a latent model, of ln p of any other."""

    def run() -> None:  # it drops the gradients, so that every run computes them and its memory includes them
        value = elbo(model, task, samples) if isinstance(model, LatentProcess) else log_likelihood(model, task)
        value.mean().neg().backward()
        model.zero_grad(set_to_none=True)

    return run


def make_model(name: str, seed: int = 0, **options) -> Process:
    """`create` with weights drawn from a seed; torch's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return create(name, **options)


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
) -> list[dict[str, Any]]:
    """Measure the selected models (none: all of them) at every size. tnp-d is always among them, for the ratios."""
    models = {name: make_model(name, seed, size=size) for name in select_models(selected)}
    rows = {name: {"model": name, "parameters": count_parameters(models[name]), "figures": []} for name in models}
    for points in sizes:
        costs = measure_steps(models, points, seed=seed, tick=tick)
        for name, row in rows.items():
            seconds = costs[name].seconds
            row["figures"].append({
                "size": points.label, "milliseconds": 1e3 * seconds,
                "to_reference": seconds / costs[REFERENCE].seconds, "yardsticks": seconds / costs[YARDSTICK].seconds,
                "megabytes": to_megabytes(costs[name].bytes),
            })  # fmt: skip
    return list(rows.values())


def select_models(selected: Sequence[str]) -> list[str]:
    """Return the selected names in the registry's order, with tnp-d; none selected: all names."""
    chosen = {choose("model", name, names()) for name in selected} or set(names())
    return [name for name in names() if name in chosen | {REFERENCE}]


def select_scores(include_slow: bool = False) -> list[str]:
    return [name for name in SCORES if include_slow or name != SLOW_SCORE]


def measure_scores(
    scores: Sequence[str], points: StepSize = SCORE_SIZE, *, size: str = "base", seed: int = 0,
    tick: Tick = lambda: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure te-tnp with each score; the first row is tnp-d. For `how` and `error` see `_score_accuracy`."""
    models = {REFERENCE: make_model(REFERENCE, seed, size=size)}
    models |= {f"te-tnp {name}": make_model("te-tnp", seed, size=size, score=name) for name in scores}
    costs = measure_steps(models, points, seed=seed, tick=tick)
    base = costs[REFERENCE]
    rows = []
    for name, model in models.items():
        how, error = _score_accuracy(model, points, seed)
        cost = costs[name]
        rows.append({
            "score": name.removeprefix("te-tnp "), "how": how, "milliseconds": 1e3 * cost.seconds,
            "to_reference": cost.seconds / base.seconds, "megabytes": to_megabytes(cost.bytes),
            "memory_to_reference": None if cost.bytes is None or not base.bytes else cost.bytes / base.bytes,
            "error": error,
        })  # fmt: skip
    return rows


@torch.no_grad()
def _score_accuracy(model: Process, points: StepSize, seed: int) -> tuple[str, float | None]:
    """Return how the score of the first layer is computed: "folded" into queries and keys, read from a "table", or
    evaluated on "pairs"; and of a table ‖auto − reference‖/‖reference‖ of attention's output."""
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


def measure_training(models: Sequence[str], steps: int, rounds: int, seed: int, tick: Tick) -> list[dict[str, Any]]:
    """Time steps of the recipe te-tnp in seconds: bare (forward + backward + optimiser), and in the whole loop, from
    building the model to the last checkpoint."""
    from lightning_fabric import Fabric

    fabric, rows = Fabric(accelerator="cpu", devices=1), []
    for name in models:
        words = ["--model.name", name, "--budget.time", "null", "--budget.steps", str(steps), "--seed", str(seed)]
        recipe = read_recipe("te-tnp", [*words, "--keep.validations", "1", "--keep.batches", "1"])

        stream = make_stream(recipe)
        tasks = [stream.task(step) for step in range(steps)]
        goal = TrainingModule(build_model(recipe, stream), make_objective(recipe))
        optimiser = make_optimiser(recipe, goal)

        def bare(tasks=tasks, goal=goal, optimiser=optimiser) -> None:
            for task in tasks:
                goal(task.xc, task.yc, task.xt, task.yt, task.mask_c, task.mask_t).backward()
                optimiser.step()
                optimiser.zero_grad()

        def loop(recipe: Recipe = recipe) -> None:
            with tempfile.TemporaryDirectory() as folder:
                Loop(fabric, recipe, Path(folder), "bench", watch=lambda *_: None)()

        best = fastest_times({"bare": bare, "loop": loop}, rounds, tick)
        seconds = {key: value / steps for key, value in best.items()}
        rows.append({"model": name, **seconds, "ratio": best["loop"] / best["bare"]})
    return rows


@dataclass(frozen=True)
class Peer:
    """A released model, its cost, and the options of fillin's model that come nearest to it."""

    title: str
    parameters: int
    yardsticks: float
    megabytes: int
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    samples: int = 1  # latent samples per step


PEER_SIZE = StepSize(32, 64, batch=16, rounds=10)  # at which the peers were measured

_TNP = {"width": 64, "heads": 4, "layers": 6, "hidden": 128}
_TEN = {"width": 128, "heads": 8, "head_dim": 16, "layers": 5, "hidden": 128}

# Measured by running the released code at its default size on one thread; they are no claims of the authors.
# Same dimensions (width, heads, layers, feed-forward). Cambridge's TNP-D has one block a layer for the context and
# another for the targets where fillin's has one for both, hence half the parameters at the same work per token.
PEERS: tuple[Peer, ...] = (
    Peer("CANP, TNP-pytorch", 332_000, 0.44, 34, "canp", {"hidden": 256, "layers": 7}),
    Peer("ANP, TNP-pytorch", 348_000, 1.44, 93, "anp", {"width": 104, "heads": 4}, samples=4),
    Peer("TNP-D, TNP-pytorch", 222_000, 0.97, 53, "tnp-d", _TNP),
    Peer("TNP-A, TNP-pytorch", 222_000, 1.83, 81, "tnp-a", _TNP),
    Peer("TNP-ND, TNP-pytorch", 333_000, 1.27, 57, "tnp-nd", {**_TNP, "layers": 8}),
    # Cambridge's ANP has no latent path: in the names of fillin it is a canp with five layers of self-attention
    Peer("ANP, cambridge-mlg/tnp", 629_000, 0.87, 28, "canp", {"self_attention": 5, "layers": 3}),
    Peer("TNP-D, cambridge-mlg/tnp", 1_060_000, 1.39, 60, "tnp-d", _TEN),
    Peer("LBANP-32, cambridge-mlg/tnp", 1_560_000, 1.75, 60, "lbanp", {**_TEN, "pseudo_tokens": 32}),
    Peer("LBANP-8, Borealis", 785_000, 1.14, 47, "lbanp", {**_TNP, "hidden": 200, "pseudo_tokens": 8}),
    # the peer's grid has 64 points a unit; with fillin's default of 16 the comparison would flatter
    Peer(
        "ConvCNP, neuralprocesses", 329_000, 1.02, 17, "convcnp", {"width": 176, "kernel": 3, "points_per_unit": 64.0}
    ),
    Peer("ConvCNP, cambridge-mlg/tnp", 51_000, 0.48, 8, "convcnp", {"width": 68, "kernel": 3}),
    Peer("AttnCNP, NPF", 335_000, 0.34, 28, "canp", {"layers": 15, "self_attention": 0}),
    Peer("TE-TNP, cambridge-mlg/tetnp", 657_000, 10.1, 650, "te-tnp", {**_TEN, "hidden": 224}),
    Peer("TE-TNP, cambridge-mlg/tetnp", 657_000, 10.1, 650, "te-tnp", {**_TEN, "score": "joint"}),
)


def select_peers(models: Sequence[str]) -> list[Peer]:
    """Return the peers of these models; of all models where none is named."""
    chosen = {choose("model", name, names()) for name in models} or set(names())
    peers = [peer for peer in PEERS if peer.model in chosen]
    if not peers:
        available = ", ".join(sorted({peer.model for peer in PEERS}))
        raise InputError(f"--peers: no peer of {', '.join(models)} was measured; there are peers of {available}")
    return peers


def measure_peers(
    peers: Sequence[Peer], size: StepSize = PEER_SIZE, *, seed: int = 0, tick: Tick = lambda: None
) -> list[dict[str, Any]]:
    """Measure fillin's models at the size of each peer, all in the same rounds; `ratio` below 1: fillin is faster."""
    keyed = {str(number): peer for number, peer in enumerate(peers)}
    models = {key: make_model(peer.model, seed, **peer.options) for key, peer in keyed.items()}
    samples = {key: peer.samples for key, peer in keyed.items()}
    costs = measure_steps(models, size, samples=samples, seed=seed, tick=tick)
    rows = []
    for key, peer in keyed.items():
        yardsticks = costs[key].seconds / costs[YARDSTICK].seconds
        rows.append({
            "model": peer.model, "options": peer.options, "samples": peer.samples, "peer": peer.title,
            "parameters": count_parameters(models[key]), "peer_parameters": peer.parameters, "yardsticks": yardsticks,
            "peer_yardsticks": peer.yardsticks, "ratio": yardsticks / peer.yardsticks,
            "megabytes": to_megabytes(costs[key].bytes), "peer_megabytes": peer.megabytes,
        })  # fmt: skip
    return rows
