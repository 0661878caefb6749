"""Convolutions or a transformer: training curves, fits of sawtooth waves, translation, and the cost of inference."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from matplotlib.ticker import ScalarFormatter

from fillin.measure import fastest_times, peak_memory
from fillin.models import Process
from fillin.train.recipe import Recipe, make_curves
from fillin_studies.base import RecipeSettings, StudyCell, StudyReport, StudyScale, TrainingStudy, mean_over_seeds
from fillin_studies.curves import draw_fits, draw_learning, drawing, line_style, score_shifted

MODELS: dict[str, RecipeSettings] = {
    "convcnp": {"model.name": "convcnp"},
    "convnp": {"model.name": "convnp", "model.samples": 8},
    "tnp-d": {"model.name": "tnp-d"},
    "te-tnp": {"model.name": "te-tnp"},
    "te-tnp, half": {"model.name": "te-tnp", "model.width": 32, "model.heads": 2, "model.hidden": 64},
    "te-lbanp": {"model.name": "te-lbanp"},
    "te-istnp": {"model.name": "te-istnp"},
    "te-cmanp": {"model.name": "te-cmanp"},
}
DATA: dict[str, RecipeSettings] = {
    "gp": {"data.function": "rbf", "data.protocol": "tnp"},
    "sawtooth": {"data.function": "sawtooth", "data.protocol": "sawtooth", "model.floor": 0.01},
}
CONTEXT_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 50_000)
TARGETS = 1_000
# log-likelihood of a sawtooth wave, uniform in [0, 1], under one fitted normal distribution
CONSTANT = -0.5 * math.log(2 * math.pi * math.e / 12)


class ConvolutionStudy(TrainingStudy):
    name = "conv-or-transformer"
    title = "convolutions or a transformer"
    question = (
        "ConvCNP and ConvNP against TNP-D, TE-TNP and the models with pseudo-tokens: how fast do they learn, how well "
        "do they predict sawtooth waves and waves shifted by 4, and what does a prediction cost? Log-likelihood per "
        "target in nats, higher is better; sawtooth waves have no noise, so that there the lower bound of the standard "
        "deviation (0.01) matters."
    )
    recipe: ClassVar[RecipeSettings] = {"keep.validations": 15}
    quick = StudyScale({"budget.time": "45s", "model.size": "small"}, 1, "quick: 45 seconds each on one thread.")
    full = StudyScale(
        {"budget.steps": 100_000, "model.size": "base", "optimiser.rate": 1e-3}, 3, "full: 100,000 steps each."
    )

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        return {f"{name}, {data}": {**model, **DATA[data]} for data in DATA for name, model in MODELS.items()}

    def measure(self, model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
        result = score_shifted(model, recipe, 200 if quick else 4000)
        if recipe["data"]["function"] == "rbf":
            result["inference"] = measure_inference(model, max_seconds=3.0 if quick else 600.0)
        return result

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        likelihood, shifted, steps = (mean_over_seeds(cells, key) for key in ("log_likelihood", "shifted", "steps"))
        measured = {cell.variant.removesuffix(", gp"): cell.result for cell in cells}
        costs = {name: result["inference"] for name, result in measured.items() if "inference" in result}
        at_1000 = {name: cost for name, sizes in costs.items() for cost in sizes if cost["points"] == 1000}
        names = [name for name in MODELS if f"{name}, gp" in likelihood and f"{name}, sawtooth" in likelihood]
        rows = []
        for name in names:
            gp, sawtooth, cost, last = f"{name}, gp", f"{name}, sawtooth", at_1000.get(name), costs[name][-1]
            memory = None if cost is None or cost["bytes"] is None else round(cost["bytes"] / 1e6)
            rows.append(
                (
                    name, likelihood[gp], shifted[gp], round(steps[gp]), likelihood[sawtooth], shifted[sawtooth],
                    None if cost is None else 1000 * cost["seconds"], memory, last["points"], round(last["seconds"], 2),
                )
            )  # fmt: skip
        learning = [
            (data, "seconds", lambda name, end=f", {data}": name.removesuffix(end) if name.endswith(end) else None)
            for data in DATA
        ]
        draw_learning(cells, learning, names, folder / "learning.png", width=10.0, height=3.6)
        _draw_costs(costs, likelihood, names, folder)
        first = {cell.variant: cell for cell in cells if cell.seed == 0}
        drawn = [name for name in ("convcnp", "convnp", "tnp-d", "te-tnp", "te-lbanp") if name in names]
        stream = make_curves(first[f"{drawn[0]}, sawtooth"].recipe, seed=3).at(context=(16, 16))
        draw_fits(
            {name: first[f"{name}, sawtooth"].model().eval() for name in drawn},
            {"training range": stream, "shifted by 4": stream.at(shift=4.0)},
            folder / "sawtooth.png",
        )
        columns = (
            "model", "GP", "GP, shifted", "steps", "sawtooth", "sawtooth, shifted", "ms at 1,000 points", "MB",
            "largest context", "seconds for it",
        )  # fmt: skip
        figures = {
            "learning.png": "Validation during training, on curves of a Gaussian process and on sawtooth waves.",
            "sawtooth.png": "Sawtooth waves: each model in its training range and shifted by 4; grey dots: the truth.",
            "costs.png": "Inference of 1,000 targets against the number of context points: time and peak memory; and "
            "log-likelihood against time (1,000 points).",
        }
        return StudyReport(_summarise(rows), columns, rows, figures)


@torch.no_grad()
def measure_inference(model: Process, max_seconds: float) -> list[dict[str, float | None]]:
    """Measure time and peak memory of one prediction of 1,000 targets from n context points in [−2, 2], for growing n,
    until one takes longer than `max_seconds`."""
    costs: list[dict[str, float | None]] = []
    random = torch.Generator().manual_seed(0)
    xt = 4 * torch.rand(1, TARGETS, 1, generator=random) - 2
    for n in CONTEXT_SIZES:
        xc = 4 * torch.rand(1, n, 1, generator=random) - 2
        yc = torch.sin(3 * xc)

        def predict(xc=xc, yc=yc):
            return model(xc, yc, xt).mean

        seconds = fastest_times({"predict": predict}, 1 if costs else 2)["predict"]
        if seconds < max_seconds:  # run again: the first run also warms up
            seconds = min(seconds, fastest_times({"predict": predict}, 1)["predict"])
        costs.append({"points": n, "seconds": seconds, "bytes": peak_memory(predict)})
        if seconds > max_seconds:
            break
    return costs


def _summarise(rows: Sequence[tuple]) -> list[str]:
    by_name = {row[0]: row for row in rows}
    best, sawtooth = max(rows, key=lambda row: row[1]), max(rows, key=lambda row: row[5])
    tnp_d = by_name["tnp-d"]
    findings = [
        f"Gaussian process: **{best[0]}** leads with {best[1]:.3f} (convcnp {by_name['convcnp'][1]:.3f}, "
        f"tnp-d {tnp_d[1]:.3f}).",
        f"Shifted by 4, tnp-d, whose tokens contain the inputs, falls from {tnp_d[1]:.3f} to {tnp_d[2]:.3f}.",
        f"Shifted sawtooth waves: **{sawtooth[0]}** leads with {sawtooth[5]:.3f}.",
    ]
    flat = [row[0] for row in rows if row[4] < CONSTANT + 0.03]
    if flat:
        findings.append(
            f"After this budget still no better on waves than one normal distribution for all ({CONSTANT:.3f}): "
            f"{', '.join(flat)}."
        )
    cost = {row[0]: row[6] for row in rows if row[6] is not None}
    for name in ("convcnp", "te-tnp"):
        if cheaper := [other for other in cost if other != name and cost[other] <= cost[name]]:
            rival = max(cheaper, key=lambda other: by_name[other][1])
            findings.append(
                f"At the inference cost of {name} or less ({cost[name]:.0f} ms for 1,000 + 1,000 points), the best "
                f"other is {rival} ({cost[rival]:.0f} ms): {by_name[rival][1]:.3f} against {by_name[name][1]:.3f}."
            )
    largest = CONTEXT_SIZES[-1]
    reached = [row[0] for row in rows if row[8] == largest]
    return [*findings, f"{largest:,} context points within the time limit: {', '.join(reached) or 'none'}."]


def _draw_costs(costs: Mapping[str, Any], likelihood: Mapping[str, float], names: Sequence[str], folder: Path) -> None:
    at_1000 = {name: cost for name, sizes in costs.items() for cost in sizes if cost["points"] == 1000}
    with drawing(folder / "costs.png", 1, 3, width=12.0, height=3.4) as (_, [axes]):
        for number, name in enumerate(names):
            colour, dash = line_style(number)
            sizes, seconds = ([cost[key] for cost in costs[name]] for key in ("points", "seconds"))
            memory = [(cost["points"], cost["bytes"] / 1e6) for cost in costs[name] if cost["bytes"]]
            axes[0].plot(sizes, seconds, dash, color=colour, label=name)
            axes[1].plot(*np.reshape(memory, (-1, 2)).T, dash, color=colour)
            if cost := at_1000.get(name):
                point = 1000 * cost["seconds"], likelihood[f"{name}, gp"]
                axes[2].plot(*point, "o", color=colour)
                offset = 4, -9 if number % 2 else 3
                axes[2].annotate(name, point, offset, textcoords="offset points", fontsize=7)
        for panel, label in zip(axes[:2], ("seconds", "peak memory, MB"), strict=True):
            panel.set(xscale="log", yscale="log", xlabel="context points", ylabel=label)
        axes[0].legend(loc="upper left")
        axes[2].set_xscale("log", base=2)
        axes[2].xaxis.set_major_formatter(ScalarFormatter())
        axes[2].margins(x=0.25)
        axes[2].set(xlabel="ms at 1,000 context points", ylabel="log-likelihood per target")
