"""Attention in neural processes: NP against ANP on curves, after Kim et al. 2019."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from fillin.heads import LatentMixture
from fillin.models import Process
from fillin.plots import ORANGE, draw_intervals, draw_samples
from fillin.train.recipe import Recipe, make_curves
from fillin_studies.base import RecipeSettings, StudyCell, StudyReport, StudyScale, TrainingStudy, mean_over_seeds
from fillin_studies.curves import draw_learning, drawing, score_reconstruction, score_shifted

VARIANTS: dict[str, RecipeSettings] = {
    "cnp": {"model.name": "cnp"},
    "np": {"model.name": "np", "objective.name": "elbo"},
    **{
        f"{model}, {cross}": {"model.name": model, "model.cross": cross, **objective}
        for model, objective in (("canp", {}), ("anp", {"objective.name": "elbo"}))
        for cross in ("laplace", "dot", "multihead")
    },
}


class AttentionStudy(TrainingStudy):
    name = "attention-helps"
    title = "attention in neural processes"
    question = (
        "NP and CNP compress the context into one vector; in ANP and CANP (Kim et al. 2019) each target attends to it, "
        "by a Laplace kernel, one dot product or several heads. What does attention change in the fit of the context, "
        "in the predictions at targets, and in training time? Log-likelihood per target in nats, higher is better."
    )
    recipe: ClassVar[RecipeSettings] = {"data.function": "rbf", "data.protocol": "tnp"}
    quick = StudyScale({"budget.time": "60s", "model.size": "small"}, 1, "quick: 60 seconds each on one thread.")
    full = StudyScale({"budget.steps": 100_000, "model.size": "base"}, 3, "full: 100,000 steps each.")

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        return VARIANTS

    def measure(self, model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
        batches = 200 if quick else 4000
        return {**score_shifted(model, recipe, batches), **score_reconstruction(model, recipe, batches)}

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        likelihood, rmse, context, covered, cost, steps = (
            mean_over_seeds(cells, key)
            for key in ("log_likelihood", "rmse", "context_rmse", "context_covered", "ms", "steps")
        )
        names = [name for name in VARIANTS if name in likelihood]
        means = likelihood, rmse, context, covered, cost
        rows = [(name, *(mean[name] for mean in means), round(steps[name])) for name in names]
        best = max(names, key=likelihood.__getitem__)
        findings = [
            f"Targets: the best is **{best}** ({likelihood[best]:.3f}); cnp reaches {likelihood['cnp']:.3f} and np "
            f"{likelihood['np']:.3f} with the same budget.",
            f"Context: without attention the RMSE at the context points is {context['cnp']:.3f} (cnp) and "
            f"{context['np']:.3f} (np); with multi-head attention {context['canp, multihead']:.3f} and "
            f"{context['anp, multihead']:.3f}. The standard deviation of the noise is 0.02.",
            f"A step with multi-head attention costs {cost['anp, multihead'] / cost['np']:.1f} times one of np, and "
            f"{cost['canp, multihead'] / cost['cnp']:.1f} times one of cnp.",
        ]
        learning = [("", against, lambda name: name) for against in ("step", "seconds")]
        draw_learning(cells, learning, names, folder / "learning.png", width=10.0, height=3.6, sharey=True)
        _draw_latents({cell.variant: cell for cell in cells if cell.seed == 0}, folder / "latents.png")
        columns = (
            "model", "log-likelihood", "RMSE", "RMSE at the context", "context in the 95 % interval", "ms a step",
            "steps",
        )  # fmt: skip
        figures = {
            "learning.png": "Validation during training, by steps and by time (of latent models jointly, all targets "
            "of a task at once: not comparable with the table).",
            "latents.png": "Prediction intervals (50 % and 95 %) for the same context; orange: the mean function of "
            "each latent sample.",
        }
        return StudyReport(findings, columns, rows, figures)


@torch.no_grad()
def _draw_latents(cells: Mapping[str, StudyCell], path: Path) -> None:
    """Draw models (rows) with few and with many context points (columns)."""
    shown = [name for name in ("cnp", "np", "canp, multihead", "anp, multihead") if name in cells]
    with drawing(path, len(shown), 2, width=9.0, height=1.6, sharex=True, sharey="col") as (_, axes):
        for column, points in enumerate((6, 20)):
            stream = make_curves(cells[shown[0]].recipe, seed=5).at(context=(points, points), points=None)
            task = stream.task(0).rows(slice(0, 1))
            xt = torch.linspace(-2, 2, 161).view(1, -1, 1)
            for row, name in zip(axes, shown, strict=True):
                model = cells[name].model().eval()
                prediction = model(task.xc, task.yc, xt)
                draw_intervals(row[column], xt, prediction, task.xc, task.yc)
                if isinstance(prediction, LatentMixture):  # a mean function for each latent sample
                    draw_samples(row[column], xt, prediction.given.mean, colour=ORANGE)
                row[0].set_ylabel(name)
            axes[0][column].set_title(f"{points} context points")
