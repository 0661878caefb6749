"""Attention from one pixel to the observed points, each head in its colour (as in Kim et al. 2019)."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError
from fillin.filling.image.figures import show_observed
from fillin.filling.image.pixel_context import PixelContext, predict_colours
from fillin.filling.image.read import PartialImage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fillin.models import Process

_MAX_MARK_AREA = 90.0  # of the largest weight of a layer, in square points
_MARK_OFFSET = 0.45  # in pixels

PixelAttention = tuple[Float[ndarray, "n 2"], list[Float[ndarray, "heads n"]]]  # context points, weights of each layer


def parse_pixel(text: str, shape: tuple[int, int]) -> tuple[int, int]:
    """Parse ROW,COLUMN of a pixel, counted from 0."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"--attend: {text!r} is not a pixel; write its row and column, counted from 0: 20,31")
    row, column = map(int, parts)
    if row >= shape[0] or column >= shape[1]:
        raise InputError(f"--attend {text}: the image has rows 0 … {shape[0] - 1} and columns 0 … {shape[1] - 1}")
    return row, column


def attention_weights(model: "Process", image: PartialImage, pixel: tuple[int, int]) -> PixelAttention:
    """Return the context of a pixel, and the weights of every head on it, layer by layer.

    Weights are averaged over channels where these are tasks of their own.
    """
    from fillin.attention import record_weights

    context = PixelContext(model, image.shape, 1, image.x, image.y[None] - 0.5)
    at = np.array(pixel, float)
    rows = context.nearest(at)
    with record_weights() as calls:
        xc, xt = context.normalise(image.x[rows]), context.normalise(at[None])
        predict_colours(model, xc, context.y[:, rows], xt, context.spread)
    n_queries = (1, len(rows) + 1)  # the target alone, or after the context
    layers = [
        call.weights[:, :, -1].mean(0).numpy()
        for call in calls
        if call.weights.shape[2] in n_queries and call.weights.shape[3] == len(rows)
    ]
    if not layers:
        raise InputError(
            "--attend: this model has no attention from a target to context points; use a tnp, an anp or surface"
        )
    return image.x[rows], layers


def draw_attention(model: "Process", image: PartialImage, pixel: tuple[int, int]) -> "Figure":
    """Draw a panel for each layer: observed pixels, and marks whose area is the weight of a head."""
    from fillin.plots import panels, style

    x, layers = attention_weights(model, image, pixel)
    columns = min(4, len(layers))
    rows = -(-len(layers) // columns)
    background = 0.65 + 0.35 * show_observed(image)
    low, high = np.minimum(x.min(0), pixel) - 2, np.maximum(x.max(0), pixel) + 2
    with style():
        figure, axes = panels(
            rows, columns, width=max(4.0, 2.4 * columns), height=2.4 * (high - low)[0] / (high - low)[1] + 0.3
        )
        for panel in axes.flat:
            panel.set_axis_off()
        for number, weights in enumerate(layers):
            panel = axes.flat[number]
            draw_heads(panel, background, x, weights, pixel, labelled=number == 0)
            panel.set(
                xlim=(low[1], high[1]), ylim=(high[0], low[0]), title=f"layer {number + 1} (≤ {weights.max():.2f})"
            )
        figure.suptitle(f"attention from row {pixel[0]}, column {pixel[1]}", x=0.01, ha="left", fontsize=10)
        legend = figure.legend(loc="outside lower left", ncols=min(4, len(layers[0])))
        for mark in legend.legend_handles:
            mark.set_sizes([40.0])  # type: ignore[union-attr]
    return figure


def draw_heads(
    axes: "Axes", background: Float[ndarray, "h w 3"], x: Float[ndarray, "n 2"], weights: Float[ndarray, "heads n"],
    pixel: tuple[int, int], labelled: bool = False,
) -> None:  # fmt: skip
    """Draw one layer: the pixel, and marks of each head on its context."""
    from fillin.plots import COLOURS

    axes.imshow(background, interpolation="nearest")
    for head, head_weights in enumerate(weights):
        angle = 2 * np.pi * head / len(weights)  # marks stand around a point, or they would hide one another
        location = x + _MARK_OFFSET * np.array([np.sin(angle), np.cos(angle)])
        area, colour = _MAX_MARK_AREA * head_weights / weights.max(), COLOURS[head % len(COLOURS)]
        label = f"head {head + 1}" if labelled else None
        axes.scatter(location[:, 1], location[:, 0], area, colour, alpha=0.8, linewidths=0, label=label)
    axes.plot(pixel[1], pixel[0], "x", color="black", markersize=6, markeredgewidth=1.6)
