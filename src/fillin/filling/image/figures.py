"""Pictures of a completion: how uncertain it is, samples side by side, and all of it on one sheet."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from fillin.filling.image.api import Completed
from fillin.filling.image.read import Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNKNOWN = 0.45, 0.42, 0.60  # the colour of what is not known: one that few pictures have
_MAP = "viridis"  # even steps of the deviation look even; also in grey, and to all kinds of eyes
_SAMPLES = 6  # on the sheet
_GAP = 4  # pixels between samples


def bytes_of(colours: Float[ndarray, "h w c"]) -> UInt8[ndarray, "h w c"]:
    """0 … 1 → 0 … 255."""
    return np.round(colours * 255).clip(0, 255).astype(np.uint8)


def uncertainty(done: Completed) -> Float[ndarray, "h w"]:
    """One number a pixel: √ of the mean variance of its channels."""
    return np.sqrt((done.std**2).mean(2))


def side_by_side(samples: Float[ndarray, "n h w c"]) -> UInt8[ndarray, "H W c"]:
    """In a row, or in rows where they are many, on white."""
    n, h, w, c = samples.shape
    columns = n if n <= _SAMPLES else int(np.ceil(np.sqrt(n)))
    rows = -(-n // columns)
    out = np.full((rows * (h + _GAP) - _GAP, columns * (w + _GAP) - _GAP, c), 255, np.uint8)
    for number, one in enumerate(samples):
        top, left = number // columns * (h + _GAP), number % columns * (w + _GAP)
        out[top : top + h, left : left + w] = bytes_of(one)
    return out


def uncertainty_figure(done: Completed) -> "Figure":
    """The standard deviation of every pixel, with a legend; its height and width are those of the completion."""
    from fillin.plots import panels, style

    h, w = done.mean.shape[:2]
    wide = 4.2 if w >= h else max(2.2, 4.2 * w / h)
    with style():
        figure, [[axes]] = panels(1, 1, width=wide + 0.9, height=max(1.4, wide * h / w))
        _deviation(figure, axes, done)
    return figure


def sheet(part: Part, done: Completed, title: str) -> "Figure":
    """known | completion | the picture, where it was hidden on purpose | uncertainty, and a row of samples."""
    from fillin.plots import panels, style

    h, w = done.mean.shape[:2]
    count = min(len(done.samples), _SAMPLES)
    last = 3 if part.hidden else 2  # the panel of the uncertainty
    columns = max(last + (2 if count else 1), count)
    with style():
        side = 2.1
        figure, axes = panels(
            2 if count else 1, columns, width=side * columns + 0.6, height=max(1.2, side * h / w) + 0.3
        )
        for panel in axes.flat:
            panel.set_axis_off()
        share = f"{len(part.x) / np.prod(part.shape):.0%}"
        _show(axes[0, 0], known_pixels(part), f"known ({'coarser' if part.mask is None else share})")
        _show(axes[0, 1], done.mean, f"completion, {w} × {h}")
        if part.hidden:
            _show(axes[0, 2], part.picture / 255, "the picture")
        _deviation(figure, axes[0, last], done, *axes[0, last + 1 : last + 2])
        for number in range(count):
            _show(axes[1, number], done.samples[number], f"sample {number + 1}")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def known_pixels(part: Part) -> Float[ndarray, "h w 3"]:
    """Known pixels on a flat ground; points that are no pixels as the coarse picture they are."""
    out = np.broadcast_to(np.array(UNKNOWN), (*part.shape, 3)).copy()
    if part.mask is not None:
        out[part.mask] = part.y
        return out
    from scipy.spatial import KDTree

    cells = np.argwhere(np.ones(part.shape, bool))
    return part.y[KDTree(part.x).query(cells)[1]].reshape(*part.shape, -1) + np.zeros(3)


def _show(axes: "Axes", colours: Float[ndarray, "h w c"], title: str) -> None:
    axes.imshow(np.broadcast_to(colours, (*colours.shape[:2], 3)), interpolation="nearest", vmin=0, vmax=1)
    axes.set_title(title)


def _deviation(figure: "Figure", axes: "Axes", done: Completed, blank: "Axes | None" = None) -> None:
    """The bar is in the `blank` panel beside it, if there is one: or it would push samples below it apart."""
    drawn = axes.imshow(uncertainty(done), cmap=_MAP, interpolation="nearest", vmin=0)
    axes.set_axis_off()
    axes.set_title("uncertainty")
    where: dict[str, Any] = {"ax": axes, "fraction": 0.046, "pad": 0.03}
    if blank is not None:
        where = {"cax": blank.inset_axes((0, 0, 0.06, 1))}
    bar = figure.colorbar(drawn, **where, label="standard deviation")
    bar.outline.set_visible(False)  # type: ignore[operator]
