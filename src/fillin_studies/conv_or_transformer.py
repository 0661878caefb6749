"""S3: convolutions or a transformer? Training curves, sawtooth fits, translation, and the cost of inference."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.ticker import ScalarFormatter

from fillin.measure import fastest_times, peak_memory
from fillin.models import Process
from fillin.plots import panels, save, style
from fillin.train.recipe import Recipe, make_curves
from fillin_studies.base import Cell, Report, Scale, Settings, Study, average
from fillin_studies.figures import colour, fits, learning
from fillin_studies.measures import shifted

MODELS: dict[str, Settings] = {
    "convcnp": {"model.name": "convcnp"},
    "convnp": {"model.name": "convnp", "model.samples": 8},
    "tnp-d": {"model.name": "tnp-d"},
    "te-tnp": {"model.name": "te-tnp"},
    "te-tnp, half": {"model.name": "te-tnp", "model.width": 32, "model.heads": 2, "model.hidden": 64},
    "te-lbanp": {"model.name": "te-lbanp"},
    "te-istnp": {"model.name": "te-istnp"},
    "te-cmanp": {"model.name": "te-cmanp"},
}
DATA: dict[str, Settings] = {
    "gp": {"data.function": "rbf", "data.protocol": "tnp"},
    "sawtooth": {"data.function": "sawtooth", "data.protocol": "sawtooth", "model.floor": 0.01},
}
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 50_000)
TARGETS = 1_000
CONSTANT = -0.5 * math.log(2 * math.pi * math.e / 12)  # of a sawtooth wave, uniform in [0, 1], to a fitted normal


def variants(quick: bool) -> Mapping[str, Settings]:
    return {f"{name}, {data}": {**own, **DATA[data]} for data in DATA for name, own in MODELS.items()}


def measure(model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
    found = shifted(model, recipe, 200 if quick else 4000, shift=4.0)
    if recipe["data"]["function"] == "rbf":
        found["inference"] = inference(model, patience=3.0 if quick else 600.0)
    return found


@torch.no_grad()
def inference(model: Process, patience: float) -> list[dict[str, float | None]]:
    """Seconds and peak memory of one prediction of 1,000 targets from n context points in [−2, 2], for growing n, until
    one took longer than `patience` seconds."""
    found = []
    random = torch.Generator().manual_seed(0)
    xt = 4 * torch.rand(1, TARGETS, 1, generator=random) - 2
    for n in SIZES:
        xc = 4 * torch.rand(1, n, 1, generator=random) - 2
        yc = torch.sin(3 * xc)
        taken = fastest_times({"it": lambda xc=xc, yc=yc: model(xc, yc, xt).mean}, 1 if found else 2)["it"]
        if taken < patience:  # a second run is worth it: the first also warms up
            taken = min(taken, fastest_times({"it": lambda xc=xc, yc=yc: model(xc, yc, xt).mean}, 1)["it"])
        found.append({"points": n, "seconds": taken, "bytes": peak_memory(lambda xc=xc, yc=yc: model(xc, yc, xt).mean)})
        if taken > patience:
            break
    return found


def report(cells: Sequence[Cell], folder: Path) -> Report:
    here, there, steps = (average(cells, key) for key in ("log_likelihood", "shifted", "steps"))
    costs = {
        cell.variant.removesuffix(", gp"): cell.result["inference"] for cell in cells if "inference" in cell.result
    }
    names = [name for name in MODELS if f"{name}, gp" in here and f"{name}, sawtooth" in here]
    at = {name: next((row for row in costs[name] if row["points"] == 1000), None) for name in names}
    rows = []
    for name in names:
        gp, saw, cost, last = f"{name}, gp", f"{name}, sawtooth", at[name], costs[name][-1]
        memory = None if cost is None or cost["bytes"] is None else round(cost["bytes"] / 1e6)
        rows.append(
            (
                name, here[gp], there[gp], round(steps[gp]), here[saw], there[saw],
                None if cost is None else 1000 * cost["seconds"], memory, last["points"], round(last["seconds"], 2),
            )
        )  # fmt: skip
    _draw_learning(cells, names, folder)
    _draw_costs(costs, here, names, folder)
    first = {cell.variant: cell for cell in cells if cell.seed == 0}
    drawn = [name for name in ("convcnp", "convnp", "tnp-d", "te-tnp", "te-lbanp") if name in names]
    stream = make_curves(first[f"{drawn[0]}, sawtooth"].recipe, seed=3).at(context=(16, 16))
    fits(
        {name: first[f"{name}, sawtooth"].model().eval() for name in drawn},
        {"where it learnt": stream, "shifted by 4": stream.at(shift=4.0)},
        folder / "sawtooth.png",
    )
    columns = (
        "model", "GP", "GP, shifted", "steps", "sawtooth", "sawtooth, shifted", "ms at 1,000 points", "MB",
        "most points", "seconds there",
    )  # fmt: skip
    pictures = {
        "learning.png": "Validation while training, on curves of a Gaussian process and on sawtooth waves.",
        "sawtooth.png": "Sawtooth waves: each model where it learnt and 4 further on; grey dots are the truth.",
        "costs.png": "Inference of 1,000 targets against the number of context points: time, peak memory; and what a "
        "millisecond buys (1,000 points).",
    }
    return Report(_findings(rows, at), columns, rows, pictures)


def _findings(rows: Sequence[tuple], at: Mapping[str, Any]) -> list[str]:
    by = {row[0]: row for row in rows}
    best, saw = max(rows, key=lambda row: row[1]), max(rows, key=lambda row: row[5])
    found = [
        f"Gaussian process: **{best[0]}** leads with {best[1]:.3f} (convcnp {by['convcnp'][1]:.3f}, "
        f"tnp-d {by['tnp-d'][1]:.3f}).",
        f"Moved by 4, tnp-d, whose tokens carry places, goes from {by['tnp-d'][1]:.3f} to {by['tnp-d'][2]:.3f}.",
        f"Translated sawtooth waves: **{saw[0]}** leads with {saw[5]:.3f}.",
    ]
    flat = [row[0] for row in rows if row[4] < CONSTANT + 0.03]
    if flat:
        found.append(
            f"After this budget still no better on waves than one normal distribution for all ({CONSTANT:.3f}): "
            f"{', '.join(flat)}."
        )
    cost = {row[0]: row[6] for row in rows if row[6] is not None}
    for name in ("convcnp", "te-tnp"):
        alike = [other for other in cost if other != name and cost[other] <= cost[name]]
        if alike:
            rival = max(alike, key=lambda other: by[other][1])
            found.append(
                f"At the inference cost of {name} or less ({cost[name]:.0f} ms for 1,000 + 1,000 points), the best "
                f"other is {rival} ({cost[rival]:.0f} ms): {by[rival][1]:.3f} against {by[name][1]:.3f}."
            )
    far = [row[0] for row in rows if row[8] == SIZES[-1]]
    found.append(f"{SIZES[-1]:,} context points, before a prediction took too long: {', '.join(far) or 'none'}.")
    return found


def _draw_learning(cells: Sequence[Cell], names: Sequence[str], folder: Path) -> None:
    with style():
        figure, axes = panels(1, 2, width=10.0, height=3.6)
        for panel, data in zip(axes[0], DATA, strict=True):
            some = [
                Cell(cell.variant.removesuffix(f", {data}"), cell.seed, cell.recipe, cell.folder)
                for cell in cells
                if cell.variant.endswith(f", {data}")
            ]
            learning(panel, some, "seconds", names)
            panel.set_title(data)
        axes[0][0].get_legend().remove()
        save(figure, folder / "learning.png")


def _draw_costs(costs: Mapping[str, Any], here: Mapping[str, float], names: Sequence[str], folder: Path) -> None:
    with style():
        figure, [axes] = panels(1, 3, width=12.0, height=3.4)
        for number, name in enumerate(names):
            ink, dash = colour(number)
            known = [row for row in costs[name] if row["bytes"]]
            axes[0].plot(
                [r["points"] for r in costs[name]], [r["seconds"] for r in costs[name]], dash, color=ink, label=name
            )
            axes[1].plot([r["points"] for r in known], [r["bytes"] / 1e6 for r in known], dash, color=ink)
            at = next((row for row in costs[name] if row["points"] == 1000), None)
            if at:
                axes[2].plot([1000 * at["seconds"]], [here[f"{name}, gp"]], "o", color=ink)
                axes[2].annotate(
                    name, (1000 * at["seconds"], here[f"{name}, gp"]), (4, -9 if number % 2 else 3),
                    textcoords="offset points", fontsize=7,
                )  # fmt: skip
        for panel, label in zip(axes[:2], ("seconds", "peak memory, MB"), strict=True):
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel("context points")
            panel.set_ylabel(label)
        axes[0].legend(loc="upper left")
        axes[2].set_xscale("log", base=2)
        axes[2].xaxis.set_major_formatter(ScalarFormatter())
        axes[2].margins(x=0.25)
        axes[2].set_xlabel("ms at 1,000 context points")
        axes[2].set_ylabel("log-likelihood per target")
        save(figure, folder / "costs.png")


STUDY = Study(
    name="conv-or-transformer",
    line="convolutions or a transformer",
    question="ConvCNP and ConvNP against TNP-D, TE-TNP and the models with pseudo-tokens: how fast they learn, what "
    "they make of sawtooth waves and of waves moved by 4, and what a prediction costs. Log-likelihood per target in "
    "nats, higher is better; sawtooth waves have no noise, so there the floor of the deviation (0.01) matters.",
    recipe={"keep.validations": 15},
    variants=variants,
    quick=Scale({"budget.time": "45s", "model.size": "small"}, 1, "quick: 45 seconds each on one thread."),
    full=Scale({"budget.steps": 100_000, "model.size": "base", "optimiser.rate": 1e-3}, 3, "full: 100,000 steps each."),
    measure=measure,
    report=report,
)
