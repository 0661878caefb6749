"""Figures of a completed image: its uncertainty, its samples, a sheet with all of it, and the attention of a pixel.

Attention from one pixel to the observed points is drawn with each head in its colour, as in Kim et al. 2019.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from fillin.errors import InputError
from fillin.filling.image.pixel_context import PixelContext, predict_colours
from fillin.filling.image.read import PartialImage
from fillin.filling.prediction import NumericPrediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fillin.models import Process

_MISSING_COLOUR = 0.45, 0.42, 0.60  # one that few images have
_COLOUR_MAP = "viridis"  # perceptually uniform, also in grey and for colour-blind readers
_MAX_SAMPLES = 6  # on the sheet
_GAP_PIXELS = 4  # between samples
_MAX_MARK_AREA = 90.0  # of the largest weight of a layer, in square points
_MARK_OFFSET = 0.45  # in pixels

PixelAttention = tuple[Float[ndarray, "n 2"], list[Float[ndarray, "heads n"]]]  # context points, weights of each layer


def to_bytes(colours: Float[ndarray, "h w c"]) -> UInt8[ndarray, "h w c"]:
    """0 … 1 → 0 … 255."""
    return np.round(colours * 255).clip(0, 255).astype(np.uint8)


def pixel_std(completed: NumericPrediction) -> Float[ndarray, "h w"]:
    """Return one number a pixel: the root of the mean variance of its channels."""
    return np.sqrt((completed.std**2).mean(2))


def join_samples(samples: Float[ndarray, "n h w c"]) -> UInt8[ndarray, "H W c"]:
    """Return the samples side by side on white, in several rows where they are many."""
    n, h, w, c = samples.shape
    columns = n if n <= _MAX_SAMPLES else int(np.ceil(np.sqrt(n)))
    rows = -(-n // columns)
    out = np.full((rows * (h + _GAP_PIXELS) - _GAP_PIXELS, columns * (w + _GAP_PIXELS) - _GAP_PIXELS, c), 255, np.uint8)
    for number, sample in enumerate(samples):
        top, left = number // columns * (h + _GAP_PIXELS), number % columns * (w + _GAP_PIXELS)
        out[top : top + h, left : left + w] = to_bytes(sample)
    return out


def draw_std(completed: NumericPrediction) -> "Figure":
    """Draw the standard deviation of every pixel with a colour bar, in the proportions of the image."""
    from fillin.plots import panels, style

    h, w = completed.mean.shape[:2]
    width = 4.2 if w >= h else max(2.2, 4.2 * w / h)
    with style():
        figure, [[axes]] = panels(1, 1, width=width + 0.9, height=max(1.4, width * h / w))
        _show_std(figure, axes, completed)
    return figure


def draw_sheet(image: PartialImage, completed: NumericPrediction, title: str) -> "Figure":
    """Draw observed pixels | mean | the original where pixels were held out | uncertainty, above a row of samples."""
    from fillin.plots import panels, style

    h, w = completed.mean.shape[:2]
    n_samples = min(len(completed.samples), _MAX_SAMPLES)
    last = 3 if image.held_out else 2  # the panel of the uncertainty
    columns = max(last + (2 if n_samples else 1), n_samples)
    with style():
        side = 2.1
        figure, axes = panels(
            2 if n_samples else 1, columns, width=side * columns + 0.6, height=max(1.2, side * h / w) + 0.3
        )
        for panel in axes.flat:
            panel.set_axis_off()
        share = "coarse" if image.mask is None else f"{len(image.x) / np.prod(image.shape):.0%}"
        _show(axes[0, 0], show_observed(image), f"observed ({share})")
        _show(axes[0, 1], completed.mean, f"completed, {w} × {h}")
        if image.held_out:
            _show(axes[0, 2], image.colours, "original")
        _show_std(figure, axes[0, last], completed, *axes[0, last + 1 : last + 2])
        for number in range(n_samples):
            _show(axes[1, number], completed.samples[number], f"sample {number + 1}")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def show_observed(image: PartialImage) -> Float[ndarray, "h w 3"]:
    """Return the observed pixels on a plain ground; points that are no pixels as the coarse image they form."""
    out = np.broadcast_to(np.array(_MISSING_COLOUR), (*image.shape, 3)).copy()
    if image.mask is not None:
        out[image.mask] = np.nan_to_num(image.y)
        return out
    from scipy.spatial import KDTree

    cells = np.argwhere(np.ones(image.shape, bool))
    return image.y[KDTree(image.x).query(cells)[1]].reshape(*image.shape, -1) + np.zeros(3)


def _show(axes: "Axes", colours: Float[ndarray, "h w c"], title: str) -> None:
    axes.imshow(np.broadcast_to(colours, (*colours.shape[:2], 3)), interpolation="nearest", vmin=0, vmax=1)
    axes.set_title(title)


def _show_std(figure: "Figure", axes: "Axes", completed: NumericPrediction, empty: "Axes | None" = None) -> None:
    """Show the standard deviation, with its colour bar in the `empty` panel: else it would push samples apart."""
    drawn = axes.imshow(pixel_std(completed), cmap=_COLOUR_MAP, interpolation="nearest", vmin=0)
    axes.set_axis_off()
    axes.set_title("uncertainty")
    position: dict[str, Any] = {"ax": axes, "fraction": 0.046, "pad": 0.03}
    if empty is not None:
        position = {"cax": empty.inset_axes((0, 0, 0.06, 1))}
    bar = figure.colorbar(drawn, **position, label="standard deviation")
    bar.outline.set_visible(False)  # type: ignore[operator]


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

    whole = ~np.isnan(image.y).any(1)
    if not whole.any():
        raise InputError("--attend: no pixel is observed in all channels, and attention is between such pixels")
    image = replace(image, x=image.x[whole], y=image.y[whole])
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
            "--attend: this model has no attention from a target to context points; use a tnp, an anp or sheet-2d"
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
