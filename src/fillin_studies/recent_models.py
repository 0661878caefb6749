"""Models of 2024–2026 and pooling by attention, each beside the model that it claims to match: accuracy and cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

import fillin
from fillin.evaluate import evaluate
from fillin.evaluate.curves import BATCH
from fillin.evaluate.scores import to_test_stream
from fillin.heads import marginal_of
from fillin.layers import FeedForward
from fillin.measure import fastest_times
from fillin.models import Process
from fillin.models.cached import IncTNP
from fillin.train.recipe import Recipe, make_curves
from fillin_studies.base import RecipeSettings, StudyCell, StudyReport, StudyScale, TrainingStudy, mean_over_seeds
from fillin_studies.curves import draw_learning, drawing, line_style

# each new model with the models that it is compared with
RIVALS: dict[str, tuple[str, ...]] = {
    "tnp-buffer": ("tnp-d", "tnp-a"),
    "te-tnp-buffer": ("te-tnp", "te-tnp-a"),
    "inctnp": ("tnp-d",),
    "te-inctnp": ("te-tnp",),
    "gridded-tnp": ("tnp-d", "lbanp"),
    "cnp-pma": ("cnp",),
}
MODELS = (
    "cnp", "cnp-pma", "tnp-d", "tnp-a", "tnp-buffer", "inctnp", "te-tnp", "te-tnp-a", "te-tnp-buffer", "te-inctnp",
    "lbanp", "gridded-tnp",
)  # fmt: skip
CONTEXT_SIZES = (64, 256, 1024)
REPORTED_SIZE = 256
TARGETS, SAMPLES = 32, 16  # of the joint samples whose cost is measured
PERMUTATIONS = 8


class RecentModelsStudy(TrainingStudy):
    name = "recent-models"
    title = "recent models against what they claim to beat"
    question = (
        "A causal buffer of targets (tnp-buffer, Hassan et al. 2026) claims joint samples and likelihoods as good as "
        "those of encoding the context again for each target, at a fraction of the cost. A causal context (inctnp, "
        "Mortimer et al. 2026) claims cheap updates without a loss. A grid of pseudo-tokens (gridded-tnp, "
        "Ashman et al. 2024b) claims a cost that grows linearly with the context, without the loss of other "
        "pseudo-tokens. Pooling by multi-head attention (cnp-pma, after Lee et al. 2019) replaces the mean of CNP. All "
        "models take equally many steps on curves of a Gaussian "
        "process. Log-likelihood per target in nats, higher is better."
    )
    recipe: ClassVar[RecipeSettings] = {"data.function": "rbf", "data.protocol": "tnp"}
    quick = StudyScale({"model.size": "small", "budget.steps": 1000}, 1, "quick: 1,000 steps each.")
    full = StudyScale(
        {"model.size": "base", "optimiser.rate": 1e-3, "budget.steps": 100_000}, 3, "full: 100,000 steps each."
    )

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        prefixes = {"objective.name": "random-prefixes"}
        return {name: {"model.name": name, **(prefixes if "buffer" in name else {})} for name in MODELS}

    def measure(self, model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
        stream = replace(make_curves(recipe), batch=BATCH)
        scores = evaluate(model, stream, batches=200 if quick else 4000, limit_samples=0)
        repeats = 1 if model.kind == "marginal" else 0
        few = 20 if quick else 400  # the same tasks for all: a marginal model takes one pass for each target
        joint = evaluate(model, stream, batches=few, limit_samples=0, autoregressive=repeats * few).joint
        assert joint is not None
        sampling = [measure_sampling(model, size) for size in CONTEXT_SIZES]
        return {
            "log_likelihood": scores.log_likelihood,
            "standard_error": scores.standard_error,
            "joint": joint.log_likelihood,
            "joint_error": joint.standard_error,
            "order": measure_order(model, recipe, 20 if quick else 200),
            "sampling": sampling,
            "update": [measure_update(model, size) for size in CONTEXT_SIZES],
        }

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        keys = ("log_likelihood", "joint", "order", "ms")
        marginal, joint, order, step = (mean_over_seeds(cells, key) for key in keys)
        first = {cell.variant: cell.result for cell in cells if cell.seed == min(c.seed for c in cells)}
        names = [name for name in MODELS if name in marginal and name in first]
        costs = {
            name: {kind: _at(first[name][kind], REPORTED_SIZE) for kind in ("sampling", "update")} for name in names
        }
        rows = [
            (
                name, marginal[name], joint[name], order[name], step[name],
                *(value for kind in ("sampling", "update") for value in (
                    costs[name][kind]["tokens"], 1000 * costs[name][kind]["seconds"])),
            )
            for name in names
        ]  # fmt: skip
        draw_learning(cells, [("", "step", lambda name: name)], names, folder / "learning.png", width=7.0, height=3.6)
        _draw_costs({name: first[name] for name in names}, folder / "costs.png")
        columns = (
            "model", "marginal", "joint", "change by order", "ms a step of training", "tokens, samples", "ms, samples",
            "tokens, update", "ms, update",
        )  # fmt: skip
        figures = {
            "learning.png": "Validation during training (marginal models: marginal; others: joint; not comparable).",
            "costs.png": f"Time of {SAMPLES} joint samples of {TARGETS} targets, and of one more observation and a "
            "prediction, against the size of the context.",
        }
        more = [
            "Marginal: each target alone. Joint: all targets of a task, each after those before it; tnp-d and cnp "
            "encode the context again for each. Change by order: mean absolute change of the marginal log-likelihood "
            "of a task when its context is permuted. Costs with weights of seed 0: tokens are inputs of a feed-forward "
            f"network, summed over layers. Samples: {SAMPLES} joint samples of {TARGETS} targets from {REPORTED_SIZE} "
            f"context points (`fillin.sample`). Update: observation {REPORTED_SIZE + 1}, then a prediction of one "
            "target; only inctnp keeps a state, the others encode the context again.",
        ]
        return StudyReport(_summarise(rows, first), columns, rows, figures, more)


def _at(costs: Sequence[Mapping[str, float]], points: int) -> Mapping[str, float]:
    return next(cost for cost in costs if cost["points"] == points)


@torch.no_grad()
def measure_order(model: Process, recipe: Recipe, tasks: int) -> float:
    """Return the mean absolute change of the marginal log-likelihood of a task when its context is permuted."""
    stream, changes = to_test_stream(replace(make_curves(recipe), batch=1), 0), []
    random = torch.Generator().manual_seed(0)
    for step in range(tasks):
        task = stream.task(step)

        def score(order: Tensor | slice, task=task) -> Tensor:
            given = marginal_of(model(task.xc[:, order], task.yc[:, order], task.xt))
            return given.log_prob(task.yt).mean()

        expected = score(slice(None))
        orders = [torch.randperm(task.xc.shape[1], generator=random) for _ in range(PERMUTATIONS)]
        changes += [(score(order) - expected).abs() for order in orders]
    return float(torch.stack(changes).mean())


def count_tokens(model: Process, run: Callable[[], object]) -> int:
    """Return the number of tokens that pass through a feed-forward network in a run, summed over layers."""
    total = 0

    def add(module: torch.nn.Module, arguments: tuple, out: Tensor) -> None:
        nonlocal total
        total += out[..., 0].numel()

    handles = [m.register_forward_hook(add) for m in model.modules() if isinstance(m, FeedForward)]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return total


def _draw_points(n: int) -> tuple[Tensor, Tensor]:
    x = 4 * torch.rand(1, n, 1, generator=torch.Generator().manual_seed(n)) - 2
    return x, torch.sin(3 * x)


@torch.no_grad()
def measure_sampling(model: Process, points: int) -> dict[str, float]:
    """Measure joint samples given a context of some size: tokens and seconds."""
    (xc, yc), (xt, _) = _draw_points(points), _draw_points(TARGETS)

    def run() -> Tensor:
        return fillin.sample(model, xc, yc, xt, SAMPLES)

    return {"points": points, "tokens": count_tokens(model, run), "seconds": fastest_times({"": run}, 2)[""]}


@torch.no_grad()
def measure_update(model: Process, points: int) -> dict[str, float]:
    """Measure one more observation after `points` of them, followed by a prediction of one target."""
    (x, y), (xt, _) = _draw_points(points + 1), _draw_points(1)
    state = model.update(None, x[:, :-1], y[:, :-1]) if isinstance(model, IncTNP) else None

    def run() -> Tensor:
        if isinstance(model, IncTNP):
            return model.predict(model.update(state, x[:, -1:], y[:, -1:]), xt).mean
        return model(x, y, xt).mean

    return {"points": points, "tokens": count_tokens(model, run), "seconds": fastest_times({"": run}, 5)[""]}


def _summarise(rows: Sequence[tuple], results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    keys = ("marginal", "joint", "order", "step", "n", "ms", "n_one", "ms_one")
    by_name = {row[0]: dict(zip(keys, row[1:], strict=True)) for row in rows}
    findings = []
    for name, rivals in RIVALS.items():
        if name not in by_name or not (rivals := tuple(rival for rival in rivals if rival in by_name)):
            continue
        new, old = by_name[name], [by_name[rival] for rival in rivals]

        def list_scores(key: str, rivals=rivals, old=old) -> str:
            return ", ".join(f"{rival} {scores[key]:.3f}" for rival, scores in zip(rivals, old, strict=True))

        text = f"**{name}**: marginal {new['marginal']:.3f} ({list_scores('marginal')})"
        if name == "cnp-pma":
            findings.append(f"{text}, at {new['step'] / old[0]['step']:.1f} times the time of a step.")
        elif name == "gridded-tnp":
            largest = max(CONTEXT_SIZES)
            ms = {n: 1000 * _at(results[n]["update"], largest)["seconds"] for n in (name, *rivals)}
            others = ", ".join(f"{rival} {ms[rival]:.1f}" for rival in rivals)
            findings.append(f"{text}. A prediction from {largest + 1:,} points takes {ms[name]:.1f} ms ({others}).")
        elif "buffer" in name:
            findings.append(
                f"{text}, joint {new['joint']:.3f} ({list_scores('joint')}). {SAMPLES} joint samples of {TARGETS} "
                f"targets take {new['ms']:.0f} ms, 1/{old[0]['ms'] / new['ms']:.0f} of encoding the context again for "
                f"each target ({rivals[0]}), with 1/{old[0]['n'] / new['n']:.0f} of its tokens."
            )
        else:
            findings.append(
                f"{text}, joint {new['joint']:.3f} ({list_scores('joint')}). An observation and a prediction pass "
                f"{new['n_one']:,} tokens through the network, {rivals[0]} {old[0]['n_one']:,}, in "
                f"{new['ms_one']:.1f} and {old[0]['ms_one']:.1f} ms. Another order of the context changes the "
                f"log-likelihood of a task by {new['order']:.3f}."
            )
    return findings


def _draw_costs(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    with drawing(path, 1, 2, width=9.0, height=3.4) as (_, [axes]):
        for panel, kind, title in zip(axes, ("sampling", "update"), ("joint samples", "one observation"), strict=True):
            for number, (name, result) in enumerate(results.items()):
                colour, dash = line_style(number)
                points, seconds = ([cost[key] for cost in result[kind]] for key in ("points", "seconds"))
                panel.plot(points, seconds, dash, color=colour, label=name)
            panel.set(title=title, xscale="log", yscale="log", xlabel="context points", ylabel="seconds")
        axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
