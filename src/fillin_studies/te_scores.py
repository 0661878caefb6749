"""S1: what should a displacement be worth? Every score of TE-TNP at equal steps and at equal time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fillin.attention import CONTROL_SCORES
from fillin.models import Process
from fillin.plots import panels, save, style
from fillin.train.recipe import Recipe
from fillin_studies.base import Cell, Report, Scale, Settings, Study, average
from fillin_studies.figures import learning
from fillin_studies.measures import shifted

# the dearest first, so that it does not run alone at the end
SCORES = ("joint", "mlp", "fourier", "rbf", "gaussian", "linear", "nothing")


def variants(quick: bool) -> Mapping[str, Settings]:
    budgets = {"steps": {"budget.steps": 600 if quick else 100_000}, "time": {"budget.time": "40s" if quick else "1h"}}
    return {
        f"{score}, equal {kind}": {"model.score": score, **own} for kind, own in budgets.items() for score in SCORES
    }


def measure(model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
    return shifted(model, recipe, 200 if quick else 12_000, shift=4.0)


def report(cells: Sequence[Cell], folder: Path) -> Report:
    here, there = average(cells, "log_likelihood"), average(cells, "shifted")
    cost, steps = average(cells, "ms"), average(cells, "steps")
    rows = []
    for score in SCORES:
        by_steps, by_time = f"{score}, equal steps", f"{score}, equal time"
        if by_steps not in here or by_time not in here:
            continue
        rows.append(
            (
                score,
                here[by_steps],
                there[by_steps],
                round(cost[by_steps]),
                here[by_time],
                there[by_time],
                round(steps[by_time]),
            )
        )
    rows.sort(key=lambda row: -row[4])
    varies = [row for row in rows if row[0] not in CONTROL_SCORES]
    worst = max(abs(here[name] - there[name]) for name in here)
    control = max(row[4] for row in rows if row[0] in CONTROL_SCORES)
    findings = [
        f"At equal time the best score is **{varies[0][0]}** ({varies[0][4]:.3f}), then {varies[1][0]} "
        f"({varies[1][4]:.3f}); the joint form that was published reaches {_of(rows, 'joint'):.3f}.",
        f"At equal steps the best is **{max(varies, key=lambda row: row[1])[0]}** "
        f"({max(row[1] for row in varies):.3f}).",
        f"Nothing and w·Δ are controls: every target gets the same prediction; they stay at {control:.3f} or below.",
        f"Moving all places by 4 changes no score by more than {worst:.1g}.",
    ]
    names = list(SCORES)
    with style():
        figure, axes = panels(1, 2, width=10.0, height=3.6, sharey=True)
        for panel, kind, against in zip(axes[0], ("steps", "time"), ("step", "seconds"), strict=True):
            some = [_renamed(cell, kind) for cell in cells if cell.variant.endswith(f"equal {kind}")]
            learning(panel, some, against, names)
            panel.set_title(f"equal {kind}")
        axes[0][1].set_ylabel("")
        axes[0][0].get_legend().remove()
        save(figure, folder / "learning.png")
    columns = ("score", "equal steps", "shifted by 4", "ms a step", "equal time", "shifted by 4", "steps")
    return Report(findings, columns, rows, {"learning.png": "Validation while training, by steps and by time."})


def _of(rows: Sequence[tuple], score: str) -> float:
    return next(row[4] for row in rows if row[0] == score)


def _renamed(cell: Cell, kind: str) -> Cell:
    return Cell(cell.variant.removesuffix(f", equal {kind}"), cell.seed, cell.recipe, cell.folder)


STUDY = Study(
    name="te-scores",
    line="which score makes a translation-equivariant transformer learn",
    question="TE-TNP sees places only through a score of their differences. Which should it be: nothing, w·Δ, "
    "an RBF, a Gaussian window, an MLP, Fourier features, or one MLP of Δ and the dot product together (the "
    "published form)? Log-likelihood per target in nats, higher is better.",
    recipe={"data.function": "rbf", "data.protocol": "tnp", "model.name": "te-tnp"},
    variants=variants,
    quick=Scale({"model.size": "small"}, 1, "quick: 600 steps, or 40 seconds on one thread."),
    full=Scale({"model.size": "base", "optimiser.rate": 1e-3}, 3, "full: 100,000 steps, or an hour."),
    measure=measure,
    report=report,
)
