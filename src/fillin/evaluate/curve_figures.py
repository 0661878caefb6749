"""Figures of an evaluation on curves: predictions beside the exact posterior, calibration, and context size."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from fillin import plots
from fillin.data import Curves, FunctionPrior, GaussianProcessPrior, MixturePrior, Task
from fillin.evaluate.curves import Condition, SettingScores
from fillin.evaluate.scores import Likelihood, to_test_stream
from fillin.metrics import COVERAGE_LEVELS, PIT_BINS
from fillin.models import Process
from fillin.plots import BLUE, COLOURS, FAINT, GREEN, INK, ORANGE, panels, save, style
from fillin.sampling import sample

_DASHED = (0, (4, 3))
_SAMPLE_PATHS = 5
_HELD_OUT_POINTS = 40


def draw_all(
    folder: Path, model: Process, stream: Curves, scores: Sequence[SettingScores], seed: int = 0
) -> list[Path]:
    """Save all figures that apply and return their paths."""
    paths = [draw_predictions(folder / "curves.png", model, stream, seed)] if stream.dim_x == 1 else []
    if calibrated := [row for row in scores if row.kind != "context" and row.scores.pit is not None]:
        paths.append(draw_calibration(folder / "calibration.png", calibrated))
    if contexts := [row for row in scores if row.kind == "context"]:
        paths.append(draw_context_sizes(folder / "context.png", contexts))
    if plots.find_spans(model):
        paths.append(save(plots.draw_windows(model), folder / "windows.png"))
    return paths


@torch.no_grad()
def draw_predictions(path: Path, model: Process, stream: Curves, seed: int = 0) -> Path:
    """Draw predictions from few to many context points, and below them the exact posterior where there is one.

    The posterior is given the hyperparameters. Both have 50 % and 95 % intervals and five sample paths.
    """
    low, high = stream.layout.target_range or stream.layout.range
    fine, coarse = (torch.linspace(low, high, n).view(1, n, 1) + stream.layout.shift for n in (241, 41))
    fewest, most = stream.layout.context
    sizes = sorted({max(fewest, round(most * share)) for share in (0.08, 0.25, 0.6)})
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    draws = [_draw_task(stream, size, seed) for size in sizes]
    exact = all(_exact_posterior(stream.function, parameters, task, fine) for task, parameters in draws)
    with style(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # a model that samples targets in the given order was trained on random order, not from left to right
        coarse = coarse[:, torch.randperm(coarse.shape[1])]
        figure, axes = panels(1 + exact, len(sizes), width=9, height=2.1, sharex=True, sharey="col")
        for column, (task, parameters) in zip(axes.T, draws, strict=True):
            xc, yc, xt, few = (t.to(device) for t in (task.xc, task.yc, fine, coarse))
            plots.draw_intervals(column[0], xt, model(xc, yc, xt), xc, yc)
            plots.draw_samples(column[0], few, sample(model, xc, yc, few, n=_SAMPLE_PATHS))
            column[0].set_title(Condition("context", task.xc.shape[1]).label)
            if exact:
                posterior, paths = (_exact_posterior(stream.function, parameters, task, x) for x in (fine, coarse))
                assert posterior is not None
                assert paths is not None
                marginals = Normal(posterior.mean[..., None], posterior.stddev[..., None], validate_args=False)
                plots.draw_intervals(column[1], fine, marginals, task.xc, task.yc, colour=GREEN)
                plots.draw_samples(
                    column[1], coarse, paths.sample(torch.Size([_SAMPLE_PATHS]))[..., None], colour=GREEN
                )
            for panel in column:
                panel.plot(task.xt[0, :, 0], task.yt[0, :, 0], "o", color=ORANGE, markersize=1.6, label="held out")
        axes[0, 0].set_ylabel("model")
        if exact:
            axes[1, 0].set_ylabel("exact posterior,\ngiven hyperparameters")
        axes[0, 0].plot([], [], color=BLUE, linewidth=0.6, alpha=0.55, label="samples")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    model.train(training)
    return save(figure, path)


def _draw_task(stream: Curves, size: int, seed: int) -> tuple[Task, Any]:
    """Draw one task of `size` context points and 40 held-out ones, and its hyperparameters."""
    stream = stream.at(context=(size, size), targets=(_HELD_OUT_POINTS, _HELD_OUT_POINTS), points=None)
    return to_test_stream(replace(stream, batch=1), seed).draw(size)


def _exact_posterior(
    function: FunctionPrior, parameters: Any, task: Task, xt: Float[Tensor, "1 n 1"]
) -> MultivariateNormal | None:
    """Return the posterior of the one task at xt; None where there is no closed form."""
    if isinstance(function, MixturePrior):
        [(_, member, member_parameters)] = parameters
        return _exact_posterior(member, member_parameters, task, xt)
    return function.posterior(task.xc, task.yc, xt, parameters) if isinstance(function, GaussianProcessPrior) else None


def draw_calibration(path: Path, rows: Sequence[SettingScores]) -> Path:
    """Draw the coverage of central intervals against their level (left) and the PIT of each setting (right).

    A ∪-shaped PIT is that of an overconfident model, a ∩-shaped one that of an underconfident model.
    """
    across = (len(rows) + 1) // 2
    edges = [i / PIT_BINS for i in range(PIT_BINS + 1)]
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
            width = 1.2 if number else 3.5  # the line of an equivariant model on shifted inputs would hide the first
            dash = "-" if number < len(COLOURS) else "--"
            levels = [0, *COVERAGE_LEVELS, 100]
            axes.plot(levels, [0, *actual, 100], dash, color=colour, linewidth=width, label=row.label)
            panel.stairs([PIT_BINS * share for share in scores.pit], edges, fill=True, color=colour, alpha=0.55)
            panel.axhline(1, color=INK, linewidth=0.7, linestyle=_DASHED)
            panel.set_title(f"{row.label}\nKS {scores.ks:.3f}", fontsize=8)
            panel.set(xlim=(0, 1), ylim=(0, 1.05 * max(PIT_BINS * tallest, 1.2)), xticks=[0, 0.5, 1])
        for panel in grid:
            panel.set_visible(False)
        axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal", xlabel="central interval, %", ylabel="coverage, %")
        axes.legend(loc="upper left", fontsize=7)
        right.supxlabel("PIT: P(Y ≤ y)", fontsize=9)
        right.supylabel("density", fontsize=9)
    return save(figure, path)


def draw_context_sizes(path: Path, rows: Sequence[SettingScores]) -> Path:
    """Draw log-likelihoods, ± two standard errors, and their limits against the number of context points."""
    kinds: list[tuple[str, list[Likelihood]]] = [("marginal", [row.scores for row in rows])]
    if joint := [row.scores.joint for row in rows if row.scores.joint is not None]:
        kinds.append(("joint", joint))
    sizes = [row.value for row in rows]
    limits = (("known", FAINT, (0, (1, 1.5)), "given hyperparameters"), ("limit", INK, _DASHED, "Bayes limit"))
    with style():
        figure, [line] = panels(1, len(kinds), width=1.0 + 4.2 * len(kinds), height=3.2, sharey=True)
        for axes, (title, scores) in zip(line, kinds, strict=True):
            for name, colour, dash, label in limits:
                values = [getattr(likelihood, name) for likelihood in scores]
                points = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
                if points:
                    axes.plot(*zip(*points, strict=True), color=colour, linewidth=1, linestyle=dash, label=label)
            axes.errorbar(
                sizes, [likelihood.log_likelihood for likelihood in scores],
                [2 * likelihood.standard_error for likelihood in scores],
                fmt="o-", color=BLUE, markersize=3.5, linewidth=1.4, elinewidth=1, label="model",
            )  # fmt: skip
            axes.set(title=title, xlabel="context points")
            axes.margins(x=0.04)
            axes.xaxis.get_major_locator().set_params(integer=True)
        line[0].set_ylabel("log-likelihood per target")
        handles, labels = line[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return save(figure, path)
