"""D3: the best models on Gaussian processes in 1, 2, 3 and 5 input dimensions, against the limit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fillin.models import Process
from fillin.plots import FAINT, panels, save, style
from fillin.train.recipe import Recipe
from fillin_studies.base import Cell, Report, Scale, Settings, Study, average
from fillin_studies.figures import colour
from fillin_studies.measures import shifted

# length scales and points such that the exact answer knows about as much of each
DATA: dict[int, Settings] = {
    1: {"data.length": [0.1, 0.6]},
    2: {"data.length": [0.4, 1.6], "data.points": 100, "data.context": [3, 96], "data.targets": [3, 96]},
    3: {"data.length": [1.0, 3.0], "data.points": 100, "data.context": [3, 96], "data.targets": [3, 96]},
    5: {"data.length": [2.0, 5.0], "data.points": 100, "data.context": [3, 96], "data.targets": [3, 96]},
}
REFERENCE = "te-tnp"
MODELS: dict[str, Settings] = {
    "te-tnp": {"model.name": "te-tnp"},
    "te-tnp, radial": {"model.name": "te-tnp", "model.radial": True},
    "tnp-d": {"model.name": "tnp-d"},
    "te-lbanp": {"model.name": "te-lbanp"},
    "convcnp": {"model.name": "convcnp"},
}


def variants(quick: bool) -> Mapping[str, Settings]:
    return {
        f"{name}, {dims}-D": {**own, **data, "data.dim_x": dims}
        for dims, data in DATA.items()
        for name, own in MODELS.items()
        if name != "convcnp" or dims <= 2  # grids do not go further
    }


def measure(model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
    """The limit is that of the data: one model a dimension measures it, on the tasks that all of them see."""
    reference = recipe["model"]["name"] == REFERENCE and not recipe["model"]["radial"]
    settings = 0 if not reference else 128 if quick else 512
    return shifted(model, recipe, 100 if quick else 2000, shift=4.0, settings=settings)


def report(cells: Sequence[Cell], folder: Path) -> Report:
    here, there = average(cells, "log_likelihood"), average(cells, "shifted")
    limits = {int(name[-3]): limit for name, limit in average(cells, "limit").items()}
    rows, findings = [], []
    for dims, limit in limits.items():
        names = [name for name in here if name.endswith(f", {dims}-D")]
        best = max(names, key=here.__getitem__)
        rows.append((f"**limit, {dims}-D**", limit, 0.0, limit))
        rows += [(name, here[name], limit - here[name], there[name]) for name in names]
        findings.append(
            f"{dims}-D: the best is **{best.removesuffix(f', {dims}-D')}**, {limit - here[best]:.3f} nats below what "
            f"exact inference with unknown hyperparameters reaches ({limit:.3f})."
        )
    with style():
        figure, [[axes]] = panels(1, 1, width=6.5, height=3.6)
        for number, name in enumerate(MODELS):
            found = [(dims, here[f"{name}, {dims}-D"]) for dims in DATA if f"{name}, {dims}-D" in here]
            ink, dash = colour(number)
            axes.plot([d for d, _ in found], [s for _, s in found], "o" + dash, color=ink, markersize=4, label=name)
        axes.plot(list(limits), list(limits.values()), "s--", color=FAINT, markersize=4, label="limit")
        axes.set_xticks(list(DATA))
        axes.margins(x=0.05)
        axes.set_xlabel("input dimensions")
        axes.set_ylabel("log-likelihood per target")
        axes.legend(loc="best")
        save(figure, folder / "dimensions.png")
    columns = ("model", "log-likelihood", "below the limit", "shifted by 4")
    caption = "Log-likelihood against input dimensions, and the Bayes limit with unknown hyperparameters."
    return Report(findings, columns, rows, {"dimensions.png": caption})


STUDY = Study(
    name="dimensions",
    line="Gaussian processes in 1, 2, 3 and 5 input dimensions, against the limit",
    question="Transformers need no grid: what do they lose as dimensions grow? Length scales grow too, so "
    "that neighbours stay informative. Log-likelihood per target in nats, higher is better.",
    recipe={"data.function": "rbf", "data.protocol": "tnp"},
    variants=variants,
    quick=Scale({"budget.time": "45s", "model.size": "small"}, 1, "quick: 45 seconds each on one thread."),
    full=Scale({"budget.steps": 100_000, "model.size": "base", "optimiser.rate": 1e-3}, 3, "full: 100,000 steps each."),
    measure=measure,
    report=report,
)
