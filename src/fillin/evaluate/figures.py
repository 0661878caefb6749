"""What a report shows: a few curves beside the exact answer, calibration, likelihood against the number of points, and
how far a model with learned windows looks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributions import MultivariateNormal, Normal

from fillin.data import Curves, FunctionPrior, GaussianProcessPrior, MixturePrior, Task
from fillin.evaluate.report import Row, Setting, label
from fillin.evaluate.scores import Likelihood, unseen
from fillin.metrics import COVERAGE_LEVELS, PIT_BINS
from fillin.models import Process
from fillin.plots import (
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    bands,
    panels,
    samples,
    save,
    spans,
    style,
    windows,
)
from fillin.sampling import sample

_DASHED = (0, (4, 3))


def draw(folder: Path, model: Process, asked: Sequence[Setting], rows: Sequence[Row], seed: int = 0) -> list[Path]:
    """All pictures of a report into a folder; where each is."""
    made = [curves(folder / "curves.png", model, asked[0].stream, seed)] if asked[0].stream.dim_x == 1 else []
    calibrated = [row for row in rows if row.kind != "context" and row.scores.pit is not None]
    if calibrated:
        made.append(calibration(folder / "calibration.png", calibrated))
    if contexts := [row for row in rows if row.kind == "context"]:
        made.append(against_context(folder / "context.png", contexts))
    if spans(model):
        made.append(save(windows(model), folder / "windows.png"))
    return made


@torch.no_grad()
def curves(path: Path, model: Process, stream: Curves, seed: int = 0, number: int = 5) -> Path:
    """From few points to many: the model above; below, where there is one, the answer for one who is told the
    hyperparameters. Bands of 50 % and 95 %, `number` functions drawn from each."""
    low, high = stream.layout.target_range or stream.layout.range
    fine, coarse = (torch.linspace(low, high, n).view(1, n, 1) + stream.layout.shift for n in (241, 41))
    least, most = stream.layout.context
    sizes = sorted({max(least, round(most * share)) for share in (0.08, 0.25, 0.6)})
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    asked = [_task(stream, size, seed) for size in sizes]
    exact = all(_exact(stream.function, unknowns, task, fine) is not None for task, unknowns in asked)
    with style(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # a model that draws targets in the order given has learnt from places in any order, not from left to right
        coarse = coarse[:, torch.randperm(coarse.shape[1])]
        figure, axes = panels(1 + exact, len(sizes), width=9, height=2.1, sharex=True, sharey="col")
        for column, (task, unknowns) in zip(axes.T, asked, strict=True):
            xc, yc, xt, few = (t.to(device) for t in (task.xc, task.yc, fine, coarse))
            bands(column[0], xt, model(xc, yc, xt), xc, yc)
            samples(column[0], few, sample(model, xc, yc, few, n=number))
            column[0].set_title(label("context", task.xc.shape[1]))
            if exact:
                _answer(column[1], stream, unknowns, task, fine, coarse, number)
            for panel in column:
                panel.plot(task.xt[0, :, 0], task.yt[0, :, 0], "o", color=ORANGE, markersize=1.6, label="held out")
        axes[0, 0].set_ylabel("model")
        if exact:
            axes[1, 0].set_ylabel("exact posterior,\ntold the hyperparameters")
        axes[0, 0].plot([], [], color=BLUE, linewidth=0.6, alpha=0.55, label="samples")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    model.train(training)
    return save(figure, path)


def _task(stream: Curves, size: int, seed: int) -> tuple[Task, Any]:
    """One task of `size` points, and 40 more that nobody is told."""
    stream = replace(stream.at(context=(size, size), targets=(40, 40), points=None), batch=1)
    return unseen(stream, seed).draw(size)


def _answer(axes, stream: Curves, unknowns, task: Task, fine, coarse, number: int) -> None:
    answer, few = (_exact(stream.function, unknowns, task, places) for places in (fine, coarse))
    assert answer is not None
    assert few is not None
    each = Normal(answer.mean[..., None], answer.stddev[..., None], validate_args=False)
    bands(axes, fine, each, task.xc, task.yc, colour=GREEN)
    samples(axes, coarse, few.sample(torch.Size([number]))[..., None], colour=GREEN)


def _exact(function: FunctionPrior, unknowns: Any, task: Task, xt) -> MultivariateNormal | None:
    """The posterior of the one task at xt; None where there is no closed form."""
    if isinstance(function, MixturePrior):
        [(_, member, own)] = unknowns
        return _exact(member, own, task, xt)
    return function.posterior(task.xc, task.yc, xt, unknowns) if isinstance(function, GaussianProcessPrior) else None


def calibration(path: Path, rows: Sequence[Row]) -> Path:
    """Left: how much of what comes is inside each central band, against how much should be. Right: the PIT of each
    setting; a ∪ is a model too sure of itself, a ∩ one not sure enough."""
    across = (len(rows) + 1) // 2
    with style():
        figure, _ = panels(1, 1, width=3.6 + 1.9 * across, height=3.6)
        figure.clear()
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(3.6, 1.9 * across))[0]
        axes = left.subplots()
        axes.plot([0, 100], [0, 100], color=FAINT, linewidth=0.8, linestyle=_DASHED)
        grid = right.subplots(2, across, squeeze=False, sharex=True, sharey=True).flat
        tallest = max(max(row.scores.pit or ()) for row in rows)
        for number, (row, panel) in enumerate(zip(rows, grid, strict=False)):
            colour, scores = COLOURS[number % len(COLOURS)], row.scores
            assert scores.pit is not None
            assert scores.coverage is not None
            actual = [100 * scores.coverage[str(level)] for level in COVERAGE_LEVELS]
            width = 1.2 if number else 3.5  # a model that a shift leaves as it is would hide the first line
            dash = "-" if number < len(COLOURS) else "--"
            axes.plot(
                [0, *COVERAGE_LEVELS, 100], [0, *actual, 100], dash, color=colour, linewidth=width, label=row.label
            )
            edges = [i / PIT_BINS for i in range(PIT_BINS + 1)]
            panel.stairs([PIT_BINS * share for share in scores.pit], edges, fill=True, color=colour, alpha=0.55)
            panel.axhline(1, color=INK, linewidth=0.7, linestyle=_DASHED)
            panel.set_title(f"{row.label}\nKS {scores.ks:.3f}", fontsize=8)
            panel.set(xlim=(0, 1), ylim=(0, 1.05 * max(PIT_BINS * tallest, 1.2)), xticks=[0, 0.5, 1])
        for panel in grid:
            panel.set_visible(False)
        axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal", xlabel="central band, %", ylabel="targets inside it, %")
        axes.legend(loc="upper left", fontsize=7)
        right.supxlabel("PIT: P(Y ≤ what came)", fontsize=9)
        right.supylabel("density", fontsize=9)
    return save(figure, path)


def against_context(path: Path, rows: Sequence[Row]) -> Path:
    """Log-likelihood per target against context points, with two standard errors, and the limits; a panel for targets
    together where the model has that."""
    kinds: list[tuple[str, list[Likelihood]]] = [("each target on its own", [row.scores for row in rows])]
    joint = [row.scores.joint for row in rows if row.scores.joint is not None]
    if joint:
        kinds.append(("all targets together", joint))
    sizes = [row.value for row in rows]
    with style():
        figure, [line] = panels(1, len(kinds), width=1.0 + 4.2 * len(kinds), height=3.2, sharey=True)
        for axes, (title, found) in zip(line, kinds, strict=True):
            for name, colour, dash, words in (
                ("known", FAINT, (0, (1, 1.5)), "told the hyperparameters"),
                ("limit", INK, _DASHED, "Bayes limit"),
            ):
                there = [
                    (size, v) for size, one in zip(sizes, found, strict=True) if (v := getattr(one, name)) is not None
                ]
                if there:
                    axes.plot(*zip(*there, strict=True), color=colour, linewidth=1, linestyle=dash, label=words)
            values, errors = [one.log_likelihood for one in found], [2 * one.standard_error for one in found]
            axes.errorbar(
                sizes, values, errors, fmt="o-", color=BLUE, markersize=3.5, linewidth=1.4, elinewidth=1, label="model"
            )
            axes.set(title=title, xlabel="context points")
            axes.margins(x=0.04)
            axes.xaxis.get_major_locator().set_params(integer=True)
        line[0].set_ylabel("log-likelihood per target")
        handles, labels = line[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return save(figure, path)
