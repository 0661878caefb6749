"""Images, what is known of them and what models make of that, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from fillin.data.images.pixel_grid import pixel_locations
from fillin.data.task import Task
from fillin.evaluate.image_completion import KINDS, asked
from fillin.models import Process
from fillin.plots import panels, save, style

SHOWN = ("1 pixel in 20", "1 in 5", "upper half", "all but a block", "a quarter of it")
FINER = 4  # times as many pixels a side, of what is drawn at a higher resolution
SEED = 7
Column = tuple[str, Task, tuple[int, int]]  # its title, what is known, and how many pixels are asked for


def one(source: str, pattern: str, row: int = 0) -> Task:
    """One image that was held out."""
    return replace(asked(source, pattern), seed=SEED).task(0).rows(slice(row, row + 1))


def shape_of(source: str) -> tuple[int, int]:
    h, w, _ = asked(source, "top").images.shape
    return h, w


def kinds(models: Mapping[str, Process], source: str, path: Path) -> Path:
    """Several kinds of questions, and one at a higher resolution."""
    h, w = shape_of(source)
    columns = [(title, one(source, KINDS[title]), (h, w)) for title in SHOWN]
    finer = (f"{FINER * h} × {FINER * w}", one(source, "top"), (FINER * h, FINER * w))
    return completions(models, [*columns, finer], (h, w), path)


@torch.no_grad()
def completions(models: Mapping[str, Process], columns: Sequence[Column], shape: tuple[int, int], path: Path) -> Path:
    """Rows: what is known, then mean and deviation of each model."""
    with style():
        figure, axes = panels(1 + 2 * len(models), len(columns), width=1.6 * len(columns), height=1.6)
        for column, (title, task, asked_for) in enumerate(columns):
            xt = pixel_locations(*asked_for, shape=shape)[None]
            known(axes[0][column], task, shape)
            axes[0][column].set_title(title)
            for row, model in enumerate(models.values()):
                mean, deviation = _told(model, task, xt)
                colours(axes[1 + 2 * row][column], mean.view(*asked_for, -1))
                axes[2 + 2 * row][column].imshow(
                    deviation.view(*asked_for, -1).mean(-1).numpy(), cmap="magma", vmin=0, vmax=0.4
                )
        name_rows(axes, ["known", *(label for name in models for label in (name, "± deviation"))])
        return save(figure, path)


def name_rows(axes: Any, rows: Sequence[str]) -> None:
    """Labels of rows, and no ticks anywhere."""
    for panel in axes.flat:
        panel.set_xticks([])
        panel.set_yticks([])
    for row, label in zip(axes, rows, strict=False):
        row[0].set_ylabel(label)


def _told(model: Process, task: Task, xt: Float[Tensor, "1 n 2"]) -> tuple[Tensor, Tensor]:
    """Mean and deviation at each place, [n c] each."""
    found = [model(task.xc, task.yc, some) for some in xt.split(1024, 1)]
    return torch.cat([part.mean[0] for part in found]), torch.cat([part.stddev[0] for part in found])


def known(axes: Axes, task: Task, shape: tuple[int, int]) -> None:
    """Known pixels where they are; what is not known is blue."""
    h, w = shape
    canvas = torch.tensor([0.75, 0.84, 0.95]).repeat(h, w, 1)
    unit = 4 / max(h, w)
    at = (task.xc[0] / unit + torch.tensor([h, w]) / 2 - 0.5).round().long()
    canvas[at[:, 0].clamp(0, h - 1), at[:, 1].clamp(0, w - 1)] = (task.yc[0] + 0.5).clamp(0, 1).expand(-1, 3)
    axes.imshow(canvas.numpy())


def colours(axes: Axes, values: Float[Tensor, "h w c"]) -> None:
    axes.imshow((values + 0.5).clamp(0, 1).expand(-1, -1, 3).numpy())
