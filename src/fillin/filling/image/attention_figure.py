"""Where each head looks from one pixel, each head a colour (Kim et al. 2019 draw it so)."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError
from fillin.filling.image.figures import known_pixels
from fillin.filling.image.pixel_context import Field
from fillin.filling.image.query import ask
from fillin.filling.image.read import Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fillin.models import Process

_AREA = 90.0  # of the mark of the largest weight of a layer, in square points
_OFF = 0.45  # pixels

Heads = tuple[
    Float[ndarray, "n 2"], list[Float[ndarray, "heads n"]]
]  # known points, and layer by layer weights on them


def parse_pixel(text: str, shape: tuple[int, int]) -> tuple[int, int]:
    """ROW,COLUMN of a pixel of the picture, counted from 0."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"--attend: {text!r} is no pixel; write its row and column, counted from 0: 20,31")
    row, column = map(int, parts)
    if row >= shape[0] or column >= shape[1]:
        raise InputError(f"--attend {text}: the picture has rows 0 … {shape[0] - 1} and columns 0 … {shape[1] - 1}")
    return row, column


def heads_of(model: "Process", part: Part, pixel: tuple[int, int]) -> Heads:
    """The known points that the pixel is told from, and the weights of every head on these, layer by layer; a mean over
    channels where these are tasks of their own."""
    from fillin.attention import record_weights

    field = Field(model, part.shape, 1, part.x, part.y[None] - 0.5)
    at = np.array(pixel, float)
    known = field.around(at)
    with record_weights() as seen:
        ask(model, field.told(part.x[known]), field.y[:, known], field.told(at[None]), field.spread)
    asking = (1, len(known) + 1)  # the target alone, or after the known points
    layers = [
        one.weights[:, :, -1].mean(0).numpy()
        for one in seen
        if one.weights.shape[2] in asking and one.weights.shape[3] == len(known)
    ]
    if not layers:
        raise InputError(
            "--attend: this model has no attention from a target to known points; use a tnp, an anp or surface"
        )
    return part.x[known], layers


def attention_figure(model: "Process", part: Part, pixel: tuple[int, int]) -> "Figure":
    """A panel a layer: what is known, and on it marks whose area is a head's weight."""
    from fillin.plots import panels, style

    x, layers = heads_of(model, part, pixel)
    columns = min(4, len(layers))
    rows = -(-len(layers) // columns)
    ground = 0.65 + 0.35 * known_pixels(part)  # faint
    low, high = np.minimum(x.min(0), pixel) - 2, np.maximum(x.max(0), pixel) + 2
    with style():
        figure, axes = panels(
            rows, columns, width=max(4.0, 2.4 * columns), height=2.4 * (high - low)[0] / (high - low)[1] + 0.3
        )
        for panel in axes.flat:
            panel.set_axis_off()
        for number, weights in enumerate(layers):
            panel = axes.flat[number]
            draw_heads(panel, ground, x, weights, pixel, named=number == 0)
            panel.set(
                xlim=(low[1], high[1]), ylim=(high[0], low[0]), title=f"layer {number + 1} (≤ {weights.max():.2f})"
            )
        figure.suptitle(f"seen from row {pixel[0]}, column {pixel[1]}", x=0.01, ha="left", fontsize=10)
        legend = figure.legend(loc="outside lower left", ncols=min(4, len(layers[0])))
        for mark in legend.legend_handles:
            mark.set_sizes([40.0])  # type: ignore[union-attr]
    return figure


def draw_heads(
    axes: "Axes", ground: Float[ndarray, "h w 3"], x: Float[ndarray, "n 2"], weights: Float[ndarray, "heads n"],
    pixel: tuple[int, int], named: bool = False,
) -> None:  # fmt: skip
    """One layer: what is known, the pixel that looks, and marks of each head on what it looks at."""
    from fillin.plots import COLOURS

    axes.imshow(ground, interpolation="nearest")
    for head, own in enumerate(weights):
        angle = 2 * np.pi * head / len(weights)  # heads stand around the pixel, or they would hide one another
        place = x + _OFF * np.array([np.sin(angle), np.cos(angle)])
        area, colour = _AREA * own / weights.max(), COLOURS[head % len(COLOURS)]
        label = f"head {head + 1}" if named else None
        axes.scatter(place[:, 1], place[:, 0], area, colour, alpha=0.8, linewidths=0, label=label)
    axes.plot(pixel[1], pixel[0], "x", color="black", markersize=6, markeredgewidth=1.6)
