"""Scores of the translation-equivariant transformer (TE-TNP) at equal steps and at equal time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fillin.attention import CONTROL_SCORES
from fillin.models import Process
from fillin.train.recipe import Recipe
from fillin_studies.base import RecipeSettings, StudyCell, StudyReport, StudyScale, TrainingStudy, mean_over_seeds
from fillin_studies.curves import draw_learning, score_shifted

# the slowest first, so that it does not run alone at the end
SCORES = ("joint", "mlp", "fourier", "rbf", "gaussian", "linear", "nothing")


class ScoreStudy(TrainingStudy):
    name = "te-scores"
    title = "scores of a translation-equivariant transformer"
    question = (
        "TE-TNP (Ashman et al. 2024) depends on inputs only through a score of their differences. Which score learns "
        "best: nothing, w·Δ, an RBF, a Gaussian window, an MLP, Fourier features, or one MLP of Δ and the dot product "
        "together (the published form)? Log-likelihood per target in nats, higher is better."
    )
    recipe: ClassVar[RecipeSettings] = {"data.function": "rbf", "data.protocol": "tnp", "model.name": "te-tnp"}
    quick = StudyScale({"model.size": "small"}, 1, "quick: 600 steps, or 40 seconds on one thread.")
    full = StudyScale({"model.size": "base", "optimiser.rate": 1e-3}, 3, "full: 100,000 steps, or an hour.")

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        budgets = {
            "steps": {"budget.steps": 600 if quick else 100_000},
            "time": {"budget.time": "40s" if quick else "1h"},
        }
        return {
            f"{score}, equal {kind}": {"model.score": score, **budget}
            for kind, budget in budgets.items()
            for score in SCORES
        }

    def measure(self, model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
        return score_shifted(model, recipe, 200 if quick else 12_000)

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        likelihood, shifted, cost, steps = (
            mean_over_seeds(cells, key) for key in ("log_likelihood", "shifted", "ms", "steps")
        )
        rows = []
        for score in SCORES:
            by_steps, by_time = f"{score}, equal steps", f"{score}, equal time"
            if by_steps in likelihood and by_time in likelihood:
                row = [score, likelihood[by_steps], shifted[by_steps], round(cost[by_steps])]
                rows.append([*row, likelihood[by_time], shifted[by_time], round(steps[by_time])])
        rows.sort(key=lambda row: -row[4])
        scores = [row for row in rows if row[0] not in CONTROL_SCORES]
        change = max(abs(likelihood[name] - shifted[name]) for name in likelihood)
        control = max(row[4] for row in rows if row[0] in CONTROL_SCORES)
        joint = next(row[4] for row in rows if row[0] == "joint")
        findings = [
            f"At equal time the best score is **{scores[0][0]}** ({scores[0][4]:.3f}), then {scores[1][0]} "
            f"({scores[1][4]:.3f}); the joint form that was published reaches {joint:.3f}.",
            f"At equal steps the best is **{max(scores, key=lambda row: row[1])[0]}** "
            f"({max(row[1] for row in scores):.3f}).",
            "Nothing and w·Δ are controls: every target receives the same prediction; they stay at "
            f"{control:.3f} or below.",
            f"Shifting all inputs by 4 changes no score by more than {change:.1g}.",
        ]
        panels = [
            (f"equal {kind}", against, lambda name, end=f", equal {kind}": name[: -len(end)] if end in name else None)
            for kind, against in (("steps", "step"), ("time", "seconds"))
        ]
        draw_learning(cells, panels, SCORES, folder / "learning.png", width=10.0, height=3.6, sharey=True)
        columns = ("score", "equal steps", "shifted by 4", "ms a step", "equal time", "shifted by 4", "steps")
        captions = {"learning.png": "Validation during training, by steps and by time."}
        return StudyReport(findings, columns, rows, captions)
