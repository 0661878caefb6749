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
        measured = {
            kind: {score: name for score in SCORES if (name := f"{score}, equal {kind}") in likelihood}
            for kind in ("steps", "time")
        }
        by_steps, by_time = measured.values()
        rows = []
        for score in sorted({**by_time, **by_steps}, key=lambda score: -likelihood.get(by_time.get(score, ""), -1e9)):
            a, b = by_steps.get(score, ""), by_time.get(score, "")
            row = [score, likelihood.get(a), shifted.get(a), round(cost[a]) if a else None]
            rows.append([*row, likelihood.get(b), shifted.get(b), round(steps[b]) if b else None])
        findings = []
        for kind, names in measured.items():
            ranked = sorted((s for s in names if s not in CONTROL_SCORES), key=lambda s: -likelihood[names[s]])
            if ranked:
                best = [f"{score} ({likelihood[names[score]]:.3f})" for score in ranked]
                then = f", then {best[1]}" if len(best) > 1 else ""
                joint = likelihood.get(names.get("joint", ""))
                published = "" if joint is None else f"; the joint form that was published reaches {joint:.3f}"
                findings.append(f"At equal {kind} the best score is {best[0]}{then}{published}.")
        if controls := [likelihood[n] for names in measured.values() for s, n in names.items() if s in CONTROL_SCORES]:
            findings.append(
                "Nothing and w·Δ are controls: every target receives the same prediction; they stay at "
                f"{max(controls):.3f} or below."
            )
        if likelihood:
            change = max(abs(likelihood[name] - shifted[name]) for name in likelihood)
            findings.append(f"Shifting all inputs by 4 changes no score by more than {change:.1g}.")
        panels = [
            (f"equal {kind}", against, lambda name, end=f", equal {kind}": name[: -len(end)] if end in name else None)
            for kind, against in (("steps", "step"), ("time", "seconds"))
            if measured[kind]
        ]
        if not panels:
            return StudyReport(findings, ("score",), [])
        draw_learning(cells, panels, SCORES, folder / "learning.png", width=10.0, height=3.6, sharey=True)
        columns = ("score", "equal steps", "shifted by 4", "ms a step", "equal time", "shifted by 4", "steps")
        captions = {"learning.png": "Validation during training, by steps and by time."}
        return StudyReport(findings, columns, rows, captions)
