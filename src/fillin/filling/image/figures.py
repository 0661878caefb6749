"""Figures of a completed image: its uncertainty, samples side by side, and a sheet with all of it."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from fillin.filling.image.read import PartialImage
from fillin.filling.prediction import NumericPrediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MISSING_COLOUR = 0.45, 0.42, 0.60  # one that few images have
_COLOUR_MAP = "viridis"  # perceptually uniform, also in grey and for colour-blind readers
_MAX_SAMPLES = 6  # on the sheet
_GAP_PIXELS = 4  # between samples


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
        out[image.mask] = image.y
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
