"""S4, on curves: does attention help a neural process? NP against ANP, as in Kim et al. 2019."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fillin.heads import LatentMixture
from fillin.models import Process
from fillin.plots import ORANGE, bands, panels, samples, save, style
from fillin.train.recipe import Recipe, make_curves
from fillin_studies.base import Cell, Report, Scale, Settings, Study, average
from fillin_studies.figures import learning
from fillin_studies.measures import reconstruction, shifted

VARIANTS: dict[str, Settings] = {
    "cnp": {"model.name": "cnp"},
    "np": {"model.name": "np", "objective.name": "elbo"},
    "canp, laplace": {"model.name": "canp", "model.cross": "laplace"},
    "canp, dot": {"model.name": "canp", "model.cross": "dot"},
    "canp, multihead": {"model.name": "canp", "model.cross": "multihead"},
    "anp, laplace": {"model.name": "anp", "model.cross": "laplace", "objective.name": "elbo"},
    "anp, dot": {"model.name": "anp", "model.cross": "dot", "objective.name": "elbo"},
    "anp, multihead": {"model.name": "anp", "model.cross": "multihead", "objective.name": "elbo"},
}


def variants(quick: bool) -> Mapping[str, Settings]:
    return VARIANTS


def measure(model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
    batches = 200 if quick else 4000
    return {**shifted(model, recipe, batches, shift=4.0), **reconstruction(model, recipe, batches)}


def report(cells: Sequence[Cell], folder: Path) -> Report:
    target, context, steps, cost, error = (
        average(cells, key) for key in ("log_likelihood", "context_rmse", "steps", "ms", "rmse")
    )
    covered = average(cells, "context_covered")
    names = [name for name in VARIANTS if name in target]
    rows = [
        (
            name,
            target[name],
            error[name],
            context[name],
            covered[name],
            cost[name],
            round(steps[name]),
        )
        for name in names
    ]
    best = max(names, key=target.__getitem__)
    findings = [
        f"Targets: the best is **{best}** ({target[best]:.3f}); cnp reaches {target['cnp']:.3f} and np "
        f"{target['np']:.3f} on the same budget.",
        f"Context: without attention a model misses the points it was given by {context['cnp']:.3f} (cnp) and "
        f"{context['np']:.3f} (np); with multi-head attention by {context['canp, multihead']:.3f} and "
        f"{context['anp, multihead']:.3f}. The noise is 0.02.",
        f"A step with multi-head attention costs {_ratio(rows, 'anp, multihead', 'np'):.1f} times one of np, and "
        f"{_ratio(rows, 'canp, multihead', 'cnp'):.1f} times one of cnp.",
    ]
    with style():
        figure, axes = panels(1, 2, width=10.0, height=3.6, sharey=True)
        for panel, against in zip(axes[0], ("step", "seconds"), strict=True):
            learning(panel, cells, against, names)
        axes[0][0].get_legend().remove()
        axes[0][1].set_ylabel("")
        save(figure, folder / "learning.png")
    _latents({cell.variant: cell for cell in cells if cell.seed == 0}, folder / "latents.png")
    columns = (
        "model", "log-likelihood", "rmse", "rmse at the context", "context in its 95 % band", "ms a step", "steps",
    )  # fmt: skip
    pictures = {
        "learning.png": "Validation while training, by steps and by time (of models with a latent variable "
        "jointly, all targets of a task at once: not to be compared with the table).",
        "latents.png": "Bands (50 % and 95 %) through the same context; orange: the mean function of each latent.",
    }
    return Report(findings, columns, rows, pictures)


def _ratio(rows: Sequence[tuple], one: str, other: str) -> float:
    cost = {row[0]: row[5] for row in rows}
    return cost[one] / cost[other]


@torch.no_grad()
def _latents(cells: Mapping[str, Cell], path: Path) -> None:
    """Columns: few context points, many. Rows: models."""
    shown = [name for name in ("cnp", "np", "canp, multihead", "anp, multihead") if name in cells]
    with style():
        figure, axes = panels(len(shown), 2, width=9.0, height=1.6, sharex=True, sharey="col")
        for column, points in enumerate((6, 20)):
            stream = make_curves(cells[shown[0]].recipe, seed=5).at(context=(points, points), points=None)
            task = stream.task(0).rows(slice(0, 1))
            xt = torch.linspace(-2, 2, 161).view(1, -1, 1)
            for row, name in zip(axes, shown, strict=True):
                model = cells[name].model().eval()
                prediction = model(task.xc, task.yc, xt)
                bands(row[column], xt, prediction, task.xc, task.yc)
                if isinstance(prediction, LatentMixture):  # one mean function a latent
                    samples(row[column], xt, prediction.given.mean, colour=ORANGE)
                row[0].set_ylabel(name)
            axes[0][column].set_title(f"{points} context points")
        save(figure, path)


STUDY = Study(
    name="attention-helps",
    line="does attention help a neural process",
    question="NP and CNP squeeze the context into one vector; ANP and CANP let each target look at it, by a Laplace "
    "kernel, one dot product or several heads. What does that do to the fit of the context, to the targets, and to the "
    "time it takes to learn? Log-likelihood per target in nats, higher is better.",
    recipe={"data.function": "rbf", "data.protocol": "tnp"},
    variants=variants,
    quick=Scale({"budget.time": "60s", "model.size": "small"}, 1, "quick: 60 seconds each on one thread."),
    full=Scale({"budget.steps": 100_000, "model.size": "base"}, 3, "full: 100,000 steps each."),
    measure=measure,
    report=report,
)
