"""Scores and figures that several studies of curves share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from fillin.data import Curves
from fillin.evaluate import evaluate
from fillin.evaluate.curves import BATCH
from fillin.evaluate.scores import to_test_stream
from fillin.models import Process
from fillin.plots import COLOURS, draw_intervals, panels, save, style
from fillin.predictive import HALF_WIDTH_95
from fillin.train.log import set_limits
from fillin.train.recipe import Recipe, make_curves
from fillin_studies.base import StudyCell

SHIFT = 4.0  # of all inputs, to test translation equivariance
_DASHES = ("-", "--", ":", "-.")


def score_shifted(model: Process, recipe: Recipe, batches: int, limit_samples: int = 0) -> dict[str, Any]:
    """Score a model on its training distribution, and where all inputs are shifted by `SHIFT`; with `limit_samples`
    also the Bayes limit of the data, averaged over that many hyperparameters."""
    stream = replace(make_curves(recipe), batch=BATCH)  # many small batches: tasks of one share their numbers of points
    scores = evaluate(model, stream, batches=batches, limit_samples=limit_samples)
    shifted = evaluate(model, stream.at(shift=stream.layout.shift + SHIFT), batches=batches, limit_samples=0)
    result = {
        "log_likelihood": scores.log_likelihood,
        "standard_error": scores.standard_error,
        "shifted": shifted.log_likelihood,
        "rmse": scores.rmse,
    }
    return {**result, "limit": scores.limit} if limit_samples else result


@torch.no_grad()
def score_reconstruction(model: Process, recipe: Recipe, batches: int) -> dict[str, Any]:
    """Score predictions at the context points: their RMSE, and how often the context lies in the 95 % interval."""
    stream = to_test_stream(replace(make_curves(recipe), batch=BATCH), 0)
    squares, inside = [], []
    for step in range(batches):
        task = stream.task(step)
        prediction = model(task.xc, task.yc, task.xc)
        error = prediction.mean - task.yc
        squares.append(error.square().mean())
        inside.append((error.abs() < HALF_WIDTH_95 * prediction.stddev).float().mean())
    return {
        "context_rmse": float(torch.stack(squares).mean().sqrt()),
        "context_covered": float(torch.stack(inside).mean()),
    }


def line_style(number: int) -> tuple[str, str]:
    """Return colour and dash of the n-th line of a panel: colours first, then dashes."""
    return COLOURS[number % len(COLOURS)], _DASHES[number // len(COLOURS) % len(_DASHES)]


@contextmanager
def drawing(path: Path, rows: int = 1, columns: int = 1, **options: Any) -> Iterator[tuple[Figure, np.ndarray]]:
    """Make a figure and its axes [rows columns] as `fillin.plots.panels` does; save it at the end of the block."""
    with style():
        figure, axes = panels(rows, columns, **options)
        yield figure, axes
        save(figure, path)


def draw_learning(
    cells: Sequence[StudyCell], groups: Sequence[tuple[str, str, Callable[[str], str | None]]],
    names: Sequence[str] | None, path: Path, *, shared_legend: bool = True, **options: Any,
) -> None:  # fmt: skip
    """Draw validations of the cells of seed 0: a panel for each (title, "step" or "seconds", label), where `label`
    names the line of a variant (None: no line); `names` fixes the order of colours."""
    with drawing(path, 1, len(groups), **options) as (_, [axes]):
        for panel, (title, against, label) in zip(axes, groups, strict=True):
            lines = {name: cell for cell in cells if cell.seed == 0 and (name := label(cell.variant)) is not None}
            order = list(names or lines)
            values: list[float] = []
            for name, cell in lines.items():
                points = [(getattr(line, against), line.validation) for line in cell.lines]
                points = [(x, y) for x, y in points if y is not None]
                values += [y for _, y in points[1:]]  # the first is before any training
                colour, dash = line_style(order.index(name))
                panel.plot(*zip(*points, strict=True), dash, color=colour, linewidth=1.2, label=name)
            set_limits(panel, values)
            panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside the lines, not over them
            panel.set(title=title, xlabel={"step": "steps", "seconds": "seconds of training"}[against])
        for panel in axes[:-1] if shared_legend else ():
            panel.get_legend().remove()
        if options.get("sharey"):
            axes[-1].set_ylabel("")


@torch.no_grad()
def draw_fits(models: dict[str, Process], streams: dict[str, Curves], path: Path) -> None:
    """Draw each model (row) on one task of each stream (column): prediction intervals, and the truth as dots."""
    shape = {"width": 3.4 * len(streams), "height": 1.7, "sharex": "col", "sharey": "col"}
    with drawing(path, len(models), len(streams), **shape) as (_, axes):
        for row, (name, model) in zip(axes, models.items(), strict=True):
            row[0].set_ylabel(name)
            for panel, stream in zip(row, streams.values(), strict=True):
                task = stream.task(0)
                x = torch.cat([task.xc[:1], task.xt[:1]], 1)
                xt = torch.linspace(float(x.min()), float(x.max()), 300).view(1, -1, 1)
                draw_intervals(panel, xt, model(task.xc[:1], task.yc[:1], xt), task.xc[:1], task.yc[:1])
                panel.plot(task.xt[0, :, 0], task.yt[0, :, 0], ".", color="#999999", markersize=2, zorder=1)
                low, high = float(task.yt[0].min()), float(task.yt[0].max())
                margin = 0.6 * ((high - low) or 1.0)
                panel.set_ylim(low - margin, high + margin)
        for panel, title in zip(axes[0], streams, strict=True):
            panel.set_title(title)
