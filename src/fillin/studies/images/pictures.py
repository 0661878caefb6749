"""Pictures as Kim et al. 2019 draw them: completions side by side, from few to many pixels, what latents differ in, and
where each head looks."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from fillin.completing.attention import Heads, draw_heads, heads_of
from fillin.completing.reading import Part, by_pattern
from fillin.completing.sheet import known_pixels
from fillin.data.images import Pattern
from fillin.data.images.places import places
from fillin.data.task import Task
from fillin.errors import InputError
from fillin.models import Process
from fillin.models.base import LatentProcess
from fillin.plots import panels, save, style
from fillin.studies.base import Cell
from fillin.studies.images.kinds import KINDS, asked
from fillin.train.recipe import Recipe

_SHOWN = ("1 pixel in 20", "1 in 5", "upper half", "all but a block", "a quarter of it")
_FINER = 4  # times as many pixels a side, of what is drawn at a higher resolution
_SHARES = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
_LATENTS = 5  # shown
_SEEN = 3  # images on which attention is drawn
_SEED = 7
_Column = tuple[str, Task, tuple[int, int]]  # its title, what is known, and how many pixels are asked for


def draw(name: str, cells: Mapping[str, Cell], folder: Path) -> dict[str, str]:
    """Every picture of one set of images and the models that learnt it; captions by file."""
    models = {model: cell.model().eval() for model, cell in cells.items()}
    recipe = next(iter(cells.values())).recipe
    h, w, _ = asked(recipe, "top").images.shape
    made = {
        f"{name}.png": f"{name}: what is known of one image that was held out, and the mean and deviation that each "
        f"model tells, one set of weights each; the last column asks for {_FINER} times the pixels a side.",
        f"{name}-shares.png": f"{name}: from few pixels to all of them.",
    }
    kinds = [(title, _task(recipe, KINDS[title]), (h, w)) for title in _SHOWN]
    finer = (f"{_FINER * h} × {_FINER * w}", _task(recipe, "top"), (_FINER * h, _FINER * w))
    _completions(models, [*kinds, finer], (h, w), folder / f"{name}.png")
    shares = [(f"{share:.0%}", _task(recipe, f"random {share}", 3), (h, w)) for share in _SHARES]
    _completions(models, shares, (h, w), folder / f"{name}-shares.png")
    latent = {model: own for model, own in models.items() if isinstance(own, LatentProcess)}
    if latent:
        _latents(latent, recipe, (h, w), folder / f"{name}-latents.png")
        made[f"{name}-latents.png"] = (
            f"{name}: what {_LATENTS} draws of the latent variable make of one pixel in twenty, and of the upper half."
        )
    if _attention(models, recipe, folder / f"{name}-attention.png"):
        made[f"{name}-attention.png"] = (
            f"{name}: where each head of each layer looks from the pixel with a cross, one in ten being known; each "
            "head has a colour, and the area of its marks is its weight."
        )
    return made


def _task(recipe: Recipe, pattern: str, row: int = 0) -> Task:
    """One image that was held out."""
    return replace(asked(recipe, pattern), seed=_SEED).task(0).rows(slice(row, row + 1))


@torch.no_grad()
def _completions(models: Mapping[str, Process], columns: list[_Column], shape: tuple[int, int], path: Path) -> None:
    """Rows: what is known, then mean and deviation of each model."""
    with style():
        figure, axes = panels(1 + 2 * len(models), len(columns), width=1.6 * len(columns), height=1.6)
        for column, (title, task, asked_for) in enumerate(columns):
            xt = places(*asked_for, of=shape)[None]
            _known(axes[0][column], task, shape)
            axes[0][column].set_title(title)
            for row, model in enumerate(models.values()):
                mean, deviation = _told(model, task, xt)
                _colours(axes[1 + 2 * row][column], mean.view(*asked_for, -1))
                axes[2 + 2 * row][column].imshow(
                    deviation.view(*asked_for, -1).mean(-1).numpy(), cmap="magma", vmin=0, vmax=0.4
                )
        _named(axes, ["known", *(label for name in models for label in (name, "± deviation"))])
        save(figure, path)


@torch.no_grad()
def _latents(models: Mapping[str, LatentProcess], recipe: Recipe, shape: tuple[int, int], path: Path) -> None:
    """Rows: models, asked twice. Columns: what is known, and one draw after another."""
    rows = [(name, model, KINDS[kind]) for name, model in models.items() for kind in ("1 pixel in 20", "upper half")]
    with style():
        figure, axes = panels(len(rows), 1 + _LATENTS, width=1.6 * (1 + _LATENTS), height=1.6)
        for row, (_, model, pattern) in zip(axes, rows, strict=True):
            torch.manual_seed(_SEED)
            task = _task(recipe, pattern, 1)
            _known(row[0], task, shape)
            for panel, one in zip(row[1:], model(*task.inputs).given.mean[:_LATENTS], strict=False):
                _colours(panel, one[0].view(*shape, -1))
        for number, panel in enumerate(axes[0][1:], 1):
            panel.set_title(f"draw {number}")
        _named(axes, [name for name, _, _ in rows])
        save(figure, path)


def _attention(models: Mapping[str, Process], recipe: Recipe, path: Path) -> bool:
    """Rows: images. Columns: layers. Of the last model that looks at known pixels with several heads."""
    pixels = asked(recipe, "top").images.pixels[:_SEEN]
    h, w = pixels.shape[1:3]
    middle, clear = (h // 2, w // 2), np.zeros((h, w), bool)
    parts = [by_pattern(one, Pattern("random", 0.1), number, clear) for number, one in enumerate(pixels)]
    found = [seen for model in models.values() if (seen := _seen(model, parts, middle))]
    if not found:
        return False
    layers = len(found[-1][0][1])
    with style():
        figure, axes = panels(len(parts), layers, width=2.0 * layers, height=2.0)
        for row, part, (x, weights) in zip(axes, parts, found[-1], strict=True):
            for panel, own in zip(row, weights, strict=True):
                draw_heads(panel, 0.65 + 0.35 * known_pixels(part), x, own, middle)
        for number, panel in enumerate(axes[0], 1):
            panel.set_title(f"layer {number}")
        _named(axes, [])
        save(figure, path)
    return True


def _seen(model: Process, parts: list[Part], pixel: tuple[int, int]) -> list[Heads] | None:
    """Of each picture the known points and the weights on them; None of a model without several heads on these."""
    try:
        seen = [heads_of(model, part, pixel) for part in parts]
    except InputError:
        return None
    return seen if all(len(weights) > 1 for _, layers in seen for weights in layers) else None


def _named(axes, rows: list[str]) -> None:
    """Labels of rows, and no ticks anywhere."""
    for panel in axes.flat:
        panel.set_xticks([])
        panel.set_yticks([])
    for row, label in zip(axes, rows, strict=False):
        row[0].set_ylabel(label)


def _told(model: Process, task: Task, xt: Float[Tensor, "1 n 2"]) -> tuple[Tensor, Tensor]:
    found = [model(task.xc, task.yc, some) for some in xt.split(1024, 1)]
    return torch.cat([one.mean[0] for one in found]), torch.cat([one.stddev[0] for one in found])


def _known(axes: Axes, task: Task, shape: tuple[int, int]) -> None:
    """Known pixels where they are; what is not known is blue."""
    h, w = shape
    canvas = torch.tensor([0.75, 0.84, 0.95]).repeat(h, w, 1)
    unit = 4 / max(h, w)
    at = (task.xc[0] / unit + torch.tensor([h, w]) / 2 - 0.5).round().long()
    canvas[at[:, 0].clamp(0, h - 1), at[:, 1].clamp(0, w - 1)] = (task.yc[0] + 0.5).clamp(0, 1).expand(-1, 3)
    axes.imshow(canvas.numpy())


def _colours(axes: Axes, colours: Float[Tensor, "h w c"]) -> None:
    axes.imshow((colours + 0.5).clamp(0, 1).expand(-1, -1, 3).numpy())
