"""Gaussian processes in 1, 2, 3 and 5 input dimensions, and over space and time, against the Bayes limit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fillin.models import Process
from fillin.plots import FAINT
from fillin.train.recipe import Recipe
from fillin_studies.base import RecipeSettings, StudyCell, StudyReport, StudyScale, TrainingStudy, mean_over_seeds
from fillin_studies.curves import drawing, line_style, score_shifted

# separable, non-separable, and flowing fields
_FIELDS: RecipeSettings = {"data.function": "space-time | gneiting | advection-diffusion"}
_MANY: RecipeSettings = {"data.points": 100, "data.context": [3, 96], "data.targets": [3, 96]}
# length scales and points such that exact inference is about equally certain in each
DATA: dict[str, RecipeSettings] = {
    "1-D": {"data.dim_x": 1, "data.length": [0.1, 0.6]},
    "2-D": {"data.dim_x": 2, "data.length": [0.4, 1.6], **_MANY},
    "3-D": {"data.dim_x": 3, "data.length": [1.0, 3.0], **_MANY},
    "5-D": {"data.dim_x": 5, "data.length": [2.0, 5.0], **_MANY},
    "1-D + time": {"data.dim_x": 2, "data.length": [0.4, 1.6], **_FIELDS, **_MANY},
    "2-D + time": {"data.dim_x": 3, "data.length": [0.8, 2.4], **_FIELDS, **_MANY},
}
REFERENCE = "te-tnp"
MODELS: dict[str, RecipeSettings] = {
    "te-tnp": {"model.name": "te-tnp"},
    "te-tnp, radial": {"model.name": "te-tnp", "model.radial": True},
    "tnp-d": {"model.name": "tnp-d"},
    "te-lbanp": {"model.name": "te-lbanp"},
    "convcnp": {"model.name": "convcnp"},
}


class DimensionStudy(TrainingStudy):
    name = "dimensions"
    title = "Gaussian processes in 1, 2, 3 and 5 input dimensions, and over space and time, against the limit"
    question = (
        "Transformers need no grid. How much do they lose as dimensions grow? Length scales grow too, so that "
        "neighbours stay informative. Fields over time and one or two dimensions of space are separable, non-separable "
        "or flowing Gaussian processes. Log-likelihood per target in nats, higher is better."
    )
    recipe: ClassVar[RecipeSettings] = {"data.function": "rbf", "data.protocol": "tnp"}
    quick = StudyScale({"budget.time": "45s", "model.size": "small"}, 1, "quick: 45 seconds each on one thread.")
    full = StudyScale(
        {"budget.steps": 100_000, "model.size": "base", "optimiser.rate": 1e-3}, 3, "full: 100,000 steps each."
    )

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        return {
            f"{name}, {label}": {**model, **data}
            for label, data in DATA.items()
            for name, model in MODELS.items()
            if name != "convcnp" or data["data.dim_x"] <= 2  # its grid has at most two dimensions
        }

    def measure(self, model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
        """Score the model. The limit belongs to the data: one model a dimension measures it, on the shared tasks."""
        reference = recipe["model"]["name"] == REFERENCE and not recipe["model"]["radial"]
        limit_samples = 0 if not reference else 128 if quick else 512
        return score_shifted(model, recipe, 100 if quick else 2000, limit_samples=limit_samples)

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        likelihood, shifted = mean_over_seeds(cells, "log_likelihood"), mean_over_seeds(cells, "shifted")
        limits = {name.rpartition(", ")[2]: limit for name, limit in mean_over_seeds(cells, "limit").items()}
        rows, findings = [], []
        for label, limit in limits.items():
            names = [name for name in likelihood if name.endswith(f", {label}")]
            best = max(names, key=likelihood.__getitem__)
            rows.append((f"**limit, {label}**", limit, 0.0, limit))
            rows += [(name, likelihood[name], limit - likelihood[name], shifted[name]) for name in names]
            findings.append(
                f"{label}: the best is **{best.removesuffix(f', {label}')}**, {limit - likelihood[best]:.3f} nats "
                f"below exact inference with unknown hyperparameters ({limit:.3f})."
            )
        with drawing(folder / "dimensions.png", width=6.5, height=3.6) as (_, [[axes]]):
            places = {label: place for place, label in enumerate(DATA)}
            for number, name in enumerate(MODELS):
                values = {label: likelihood[f"{name}, {label}"] for label in DATA if f"{name}, {label}" in likelihood}
                colour, dash = line_style(number)
                axes.plot(
                    [places[label] for label in values], list(values.values()), "o" + dash, color=colour,
                    markersize=4, label=name,
                )  # fmt: skip
            at = [places[label] for label in limits]
            axes.plot(at, list(limits.values()), "s--", color=FAINT, markersize=4, label="limit")
            axes.set_xticks(list(places.values()), labels=list(places))
            axes.margins(x=0.05)
            axes.set(xlabel="input dimensions", ylabel="log-likelihood per target")
            axes.legend(loc="best")
        columns = ("model", "log-likelihood", "below the limit", "shifted by 4")
        caption = "Log-likelihood against input dimensions, and the Bayes limit with unknown hyperparameters."
        return StudyReport(findings, columns, rows, {"dimensions.png": caption})
