"""Evaluation of image completion: likelihood by pattern of observed pixels, reconstruction, equivariance, figures."""

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from fillin.data import Task
from fillin.data.images import Images, pixel_locations
from fillin.errors import InputError
from fillin.evaluate.scores import Evaluation, ResultTable, evaluate, find_run, format_percent, format_score
from fillin.models import Process
from fillin.plots import panels, save, style
from fillin.pretrained import locate
from fillin.runtime import progress

OBSERVED = {  # titles, and patterns of observed pixels
    "1 pixel in 20": "random 0.05",
    "1 in 5": "random 0.2",
    "1 in 2": "random 0.5",
    "upper half": "top",
    "left half": "left",
    "all but a block": "hole",
    "half the resolution": "coarse 2",
    "a quarter of it": "coarse 4",
}
SHIFT_PIXELS = 3  # down and to the right
UPSCALING = 4  # of the completion at a higher resolution, per side
FIGURE_SEED = 7
_DRAWN = ("1 pixel in 20", "1 in 5", "upper half", "all but a block", "a quarter of it")
_BATCH = 4
_TARGETS_AT_ONCE = 1024
FigureColumn = tuple[str, Task, tuple[int, int]]  # title, observed pixels, resolution of the completion


@dataclass(frozen=True)
class PatternScores:
    """Scores of one pattern over all pixels; `covered` is the coverage of 95 % intervals."""

    log_likelihood: float
    error: float
    rmse: float
    covered: float | None


@dataclass(frozen=True)
class CompletionScores:
    """Scores by pattern, and their means, in nats per pixel of colours from −½ to ½."""

    images: int
    kinds: dict[str, PatternScores]
    log_likelihood: float
    standard_error: float
    rmse: float
    context_rmse: float  # at observed pixels, one in five being observed
    moved: float  # largest change of a predicted mean when the image is shifted by `SHIFT_PIXELS`


@dataclass(frozen=True)
class CompletionEvaluation(Evaluation):
    """A model that completes images, and the source of the images (`fillin.data.images.read_images`)."""

    model: Process
    source: str
    batches: int = 160
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        return {"data": {"source": self.source}, "budget": {}}

    @torch.no_grad()
    def score(self, show_progress: bool = False) -> CompletionScores:
        """Score every pattern on the same batches of held-out images."""
        kinds = {}
        with progress("evaluate", len(OBSERVED) * self.batches, show_progress) as tick:
            for title, pattern in OBSERVED.items():
                stream = open_test_images(self.source, pattern)
                scores = evaluate(self.model, stream, self.batches, self.seed, limit_samples=0, tick=tick)
                covered = scores.coverage["95"] if scores.coverage else None
                kinds[title] = PatternScores(scores.log_likelihood, scores.standard_error, scores.rmse, covered)
        columns = zip(*((kind.log_likelihood, kind.error, kind.rmse) for kind in kinds.values()), strict=True)
        # the mean error is an upper bound: all patterns are scored on the same images
        likelihood, error, rmse = map(statistics.fmean, columns)
        stream = open_test_images(self.source, "random 0.2")
        tasks = map(replace(stream, seed=1).task, range(self.batches))
        squares = [(self.model(task.xc, task.yc, task.xc).mean - task.yc).square().mean() for task in tasks]
        context_rmse = float(torch.stack(squares).mean().sqrt())
        max_change = self.shift_error()
        return CompletionScores(_BATCH * self.batches, kinds, likelihood, error, rmse, context_rmse, max_change)

    @torch.no_grad()
    def shift_error(self) -> float:
        """Return the largest change of a predicted mean when all locations are shifted by whole pixels."""
        stream = open_test_images(self.source, "random 0.2")
        task, shift = replace(stream, seed=2).task(0), SHIFT_PIXELS * 4 / max(stream.images.shape[:2])
        change = self.model(*task.inputs).mean - self.model(task.xc + shift, task.yc, task.xt + shift).mean
        return float(change.abs().max())

    def draw(self, folder: Path, scores: CompletionScores) -> list[Path]:
        return [draw_patterns({self.model.config["model"]: self.model}, self.source, folder / "completions.png")]

    def tables(self, name: str, scores: CompletionScores) -> list[ResultTable]:
        rows = [
            (title, format_score(kind.log_likelihood, kind.error), f"{kind.rmse:.3f}", format_percent(kind.covered))
            for title, kind in scores.kinds.items()
        ]
        rows.append(("mean", format_score(scores.log_likelihood, scores.standard_error), f"{scores.rmse:.3f}", ""))
        caption = (
            "Nats per pixel, ± one standard error, and RMSE of colours from −½ to ½; 95 %: coverage. RMSE at observed "
            f"pixels, one in five: {scores.context_rmse:.3f}. Largest change of a mean when the image is shifted by "
            f"{SHIFT_PIXELS} pixels: {scores.moved:.2g}."
        )
        title = f"{name}: {scores.images:,} images, all pixels predicted"
        return [ResultTable(title, ("observed", "log-likelihood", "RMSE", "95 %"), rows, caption)]


def open_completion(
    folder: str | os.PathLike, source: str | None = None, batches: int = 160, seed: int = 0
) -> CompletionEvaluation | None:
    """Open the best model of a run on images, with the images of its recipe or of `source`; None for other folders."""
    run = find_run(locate(folder))
    if run is None or run.recipe["data"]["name"] != "images":
        return None
    evaluation = CompletionEvaluation(run.model().eval(), source or run.recipe["data"]["source"], batches, seed)
    colours = open_test_images(evaluation.source, "top").dim_y
    if colours != evaluation.model.dim_y:
        raise InputError(f"{evaluation.source} has {colours} colours, but the model has {evaluation.model.dim_y}")
    return evaluation


def open_test_images(source: str, pattern: str) -> Images:
    """Open the held-out images, with the observed pixels of `pattern` and all pixels as targets."""
    return Images(source, pattern, targets=0, batch=_BATCH, part="test")


def draw_task(source: str, pattern: str, row: int = 0) -> Task:
    """Draw one held-out image for a figure."""
    return replace(open_test_images(source, pattern), seed=FIGURE_SEED).task(0).rows(slice(row, row + 1))


def get_image_shape(source: str) -> tuple[int, int]:
    height, width, _ = open_test_images(source, "top").images.shape
    return height, width


def draw_patterns(models: Mapping[str, Process], source: str, path: Path) -> Path:
    """Draw completions from several patterns, and one at a higher resolution."""
    h, w = get_image_shape(source)
    columns = [(title, draw_task(source, OBSERVED[title]), (h, w)) for title in _DRAWN]
    finer = (f"{UPSCALING * h} × {UPSCALING * w}", draw_task(source, "top"), (UPSCALING * h, UPSCALING * w))
    return draw_completions(models, [*columns, finer], (h, w), path)


@torch.no_grad()
def draw_completions(
    models: Mapping[str, Process], columns: Sequence[FigureColumn], shape: tuple[int, int], path: Path
) -> Path:
    """Draw observed pixels in the first row, then mean and standard deviation of each model."""
    with style():
        figure, axes = panels(1 + 2 * len(models), len(columns), width=1.6 * len(columns), height=1.6)
        for column, (title, task, resolution) in enumerate(columns):
            locations = pixel_locations(*resolution, shape=shape)[None].split(_TARGETS_AT_ONCE, 1)
            draw_observed(axes[0][column], task, shape)
            axes[0][column].set_title(title)
            for row, model in enumerate(models.values()):
                predictions = [model(task.xc, task.yc, xt) for xt in locations]
                mean, std = (
                    torch.cat([getattr(part, name)[0] for part in predictions]).view(*resolution, -1)
                    for name in ("mean", "stddev")
                )
                draw_colours(axes[1 + 2 * row][column], mean)
                axes[2 + 2 * row][column].imshow(std.mean(-1).numpy(), cmap="magma", vmin=0, vmax=0.4)
        label_rows(axes, ["observed", *(label for name in models for label in (name, "std"))])
        return save(figure, path)


def label_rows(axes: Any, labels: Sequence[str]) -> None:
    """Label the rows of a figure of images, and remove all ticks."""
    for panel in axes.flat:
        panel.set(xticks=[], yticks=[])
    for row, label in zip(axes, labels, strict=False):
        row[0].set_ylabel(label)


def draw_observed(axes: Axes, task: Task, shape: tuple[int, int]) -> None:
    """Show the observed pixels; missing ones are light blue."""
    h, w = shape
    canvas = torch.tensor([0.75, 0.84, 0.95]).repeat(h, w, 1)
    unit = 4 / max(h, w)
    at = (task.xc[0] / unit + torch.tensor([h, w]) / 2 - 0.5).round().long()
    canvas[at[:, 0].clamp(0, h - 1), at[:, 1].clamp(0, w - 1)] = (task.yc[0] + 0.5).clamp(0, 1).expand(-1, 3)
    axes.imshow(canvas.numpy())


def draw_colours(axes: Axes, values: Float[Tensor, "h w c"]) -> None:
    axes.imshow((values + 0.5).clamp(0, 1).expand(-1, -1, 3).numpy())
