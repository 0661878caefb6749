"""Pictures as Kim et al. 2019 draw them: completions side by side, from few to many pixels, what latents differ in, and
where each head looks."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from fillin.data.images import Pattern
from fillin.errors import InputError
from fillin.evaluate.image_completion import KINDS, asked
from fillin.evaluate.image_figures import FINER, SEED, colours, completions, kinds, known, name_rows, one, shape_of
from fillin.filling.image.attention_figure import PixelAttention, attention_weights, draw_heads
from fillin.filling.image.figures import show_observed
from fillin.filling.image.read import PartialImage, observe_pattern
from fillin.models import Process
from fillin.models.base import LatentProcess
from fillin.plots import panels, save, style
from fillin_studies.base import Cell

_SHARES = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
_LATENTS = 5  # shown
_SEEN = 3  # images on which attention is drawn


def draw(name: str, cells: Mapping[str, Cell], folder: Path) -> dict[str, str]:
    """Every picture of one set of images and the models that learnt it; captions by file."""
    models = {model: cell.model().eval() for model, cell in cells.items()}
    source = next(iter(cells.values())).recipe["data"]["source"]
    h, w = shape_of(source)
    made = {
        f"{name}.png": f"{name}: what is known of one image that was held out, and the mean and deviation that each "
        f"model tells, one set of weights each; the last column asks for {FINER} times the pixels a side.",
        f"{name}-shares.png": f"{name}: from few pixels to all of them.",
    }
    kinds(models, source, folder / f"{name}.png")
    shares = [(f"{share:.0%}", one(source, f"random {share}", 3), (h, w)) for share in _SHARES]
    completions(models, shares, (h, w), folder / f"{name}-shares.png")
    latent = {model: own for model, own in models.items() if isinstance(own, LatentProcess)}
    if latent:
        _latents(latent, source, (h, w), folder / f"{name}-latents.png")
        made[f"{name}-latents.png"] = (
            f"{name}: what {_LATENTS} draws of the latent variable make of one pixel in twenty, and of the upper half."
        )
    if _attention(models, source, folder / f"{name}-attention.png"):
        made[f"{name}-attention.png"] = (
            f"{name}: where each head of each layer looks from the pixel with a cross, one in ten being known; each "
            "head has a colour, and the area of its marks is its weight."
        )
    return made


@torch.no_grad()
def _latents(models: Mapping[str, LatentProcess], source: str, shape: tuple[int, int], path: Path) -> None:
    """Rows: models, asked twice. Columns: what is known, and one draw after another."""
    rows = [(name, model, KINDS[kind]) for name, model in models.items() for kind in ("1 pixel in 20", "upper half")]
    with style():
        figure, axes = panels(len(rows), 1 + _LATENTS, width=1.6 * (1 + _LATENTS), height=1.6)
        for row, (_, model, pattern) in zip(axes, rows, strict=True):
            torch.manual_seed(SEED)
            task = one(source, pattern, 1)
            known(row[0], task, shape)
            for panel, drawn in zip(row[1:], model(*task.inputs).given.mean[:_LATENTS], strict=False):
                colours(panel, drawn[0].view(*shape, -1))
        for number, panel in enumerate(axes[0][1:], 1):
            panel.set_title(f"draw {number}")
        name_rows(axes, [name for name, _, _ in rows])
        save(figure, path)


def _attention(models: Mapping[str, Process], source: str, path: Path) -> bool:
    """Rows: images. Columns: layers. Of the last model that looks at known pixels with several heads."""
    pixels = asked(source, "top").images.pixels[:_SEEN]
    h, w = pixels.shape[1:3]
    middle, clear = (h // 2, w // 2), np.zeros((h, w), bool)
    parts = [observe_pattern(one, Pattern("random", 0.1), number, clear) for number, one in enumerate(pixels)]
    found = [seen for model in models.values() if (seen := _seen(model, parts, middle))]
    if not found:
        return False
    layers = len(found[-1][0][1])
    with style():
        figure, axes = panels(len(parts), layers, width=2.0 * layers, height=2.0)
        for row, part, (x, weights) in zip(axes, parts, found[-1], strict=True):
            for panel, own in zip(row, weights, strict=True):
                draw_heads(panel, 0.65 + 0.35 * show_observed(part), x, own, middle)
        for number, panel in enumerate(axes[0], 1):
            panel.set_title(f"layer {number}")
        name_rows(axes, [])
        save(figure, path)
    return True


def _seen(model: Process, parts: list[PartialImage], pixel: tuple[int, int]) -> list[PixelAttention] | None:
    """Of each picture the known points and the weights on them; None of a model without several heads on these."""
    try:
        seen = [attention_weights(model, part, pixel) for part in parts]
    except InputError:
        return None
    return seen if all(len(weights) > 1 for _, layers in seen for weights in layers) else None
