"""Figures of predictions: prediction intervals, sample paths, attention weights and learned windows.

Everything draws on matplotlib's Figure and Axes without pyplot's global state, so it works in threads and without a
display.

>>> import torch, fillin
>>> model = fillin.create("te-tnp", size="small")
>>> xc, yc, xt = torch.rand(1, 5, 1), torch.rand(1, 5, 1), torch.linspace(0, 1, 50).view(1, 50, 1)
>>> with style():
...     figure, [[axes]] = panels(1, 1)
...     draw_intervals(axes, xt, model(xc, yc, xt), xc, yc)
"""

import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.distributions import Distribution

from fillin.attention import AttentionRecord, Span
from fillin.errors import InputError
from fillin.heads import to_predictive
from fillin.io import write_file
from fillin.predictive import GaussianMixture

# The palette of Okabe & Ito (2008), which colour-blind readers can distinguish.
BLUE, ORANGE, GREEN, PINK, AMBER, SKY = COLOURS = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
INK, FAINT = "#222222", "#8A8A8A"

_STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "axes.titlepad": 6, "axes.labelcolor": INK,
    "text.color": INK, "axes.titlecolor": INK, "axes.edgecolor": FAINT, "axes.linewidth": 0.6,
    "axes.spines.top": False, "axes.spines.right": False, "xtick.color": FAINT, "ytick.color": FAINT,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "xtick.major.size": 3, "ytick.major.size": 3, "axes.xmargin": 0, "axes.formatter.useoffset": False,
    "legend.frameon": False, "legend.fontsize": 8, "savefig.dpi": 160, "figure.facecolor": "white",
}  # fmt: skip
_lock = threading.RLock()  # matplotlib's settings are global: one thread at a time changes them


@contextmanager
def style() -> Iterator[None]:
    """Apply the style of fillin within the block; matplotlib's settings are restored after it."""
    with _lock, mpl.rc_context(_STYLE):
        yield


def panels(
    rows: int = 1, columns: int = 1, width: float = 8.0, height: float = 1.9, **options
) -> tuple[Figure, np.ndarray]:
    """Make a figure `width` inches wide and its axes [rows columns], each row `height` inches high.

    Further options are those of `Figure.subplots`.
    """
    with style():
        figure = Figure(figsize=(width, height * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **options)


def draw_intervals(
    axes: Axes, xt: Float[Tensor, "b nt 1"], distribution: Distribution, xc: Float[Tensor, "b nc 1"] | None = None,
    yc: Float[Tensor, "b nc dy"] | None = None, *, task: int = 0, output: int = 0, colour: str = BLUE,
) -> None:  # fmt: skip
    """Draw the mean as a line, the central 50 % and 95 % intervals as bands, the context as dots.

    `distribution` is the prediction of a model, with a mean [b nt dy]. One task and one output of it are drawn.
    """
    if distribution.mean.ndim != 3:
        raise InputError(f"draw_intervals: the mean must be [b nt dy], got shape {tuple(distribution.mean.shape)}")
    order = xt[task, :, 0].detach().argsort()
    x, order = xt[task, order, 0].detach().cpu().numpy(), order.cpu().numpy()
    marginals = to_predictive(distribution)
    assert isinstance(marginals, GaussianMixture)
    curve = marginals[task, order, output]
    for level, alpha in ((0.95, 0.16), (0.5, 0.26)):
        low, high = curve.quantiles(np.array([0.5 - level / 2, 0.5 + level / 2]))
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, label=f"{level:.0%}")
    mean = distribution.mean.detach()[task, order, output].cpu().numpy()
    axes.plot(x, mean, color=colour, linewidth=1.4, label="mean")
    if xc is not None and yc is not None:
        axes.plot(
            xc[task, :, 0].cpu(), yc[task, :, output].cpu(), "o", color=INK, markersize=3.6, markeredgecolor="white",
            markeredgewidth=0.6, zorder=5, label="context", clip_on=False,
        )  # fmt: skip


def draw_samples(
    axes: Axes, xt: Float[Tensor, "b nt 1"], paths: Float[Tensor, "n b nt dy"], *, task: int = 0, output: int = 0,
    colour: str = BLUE,
) -> None:  # fmt: skip
    """Draw sample paths, as `fillin.sample` returns them, as thin lines."""
    order = xt[task, :, 0].argsort()
    x, lines = xt[task, order, 0].cpu().numpy(), paths[:, task, order, output].cpu().numpy()
    axes.plot(x, lines.T, color=colour, linewidth=0.6, alpha=0.55)


def draw_attention(
    axes: Iterable[Axes], records: Sequence[AttentionRecord], target: int, *, xc: Float[Tensor, "b nc 1"] | None = None,
    xt: Float[Tensor, "b nt 1"] | None = None, task: int = 0,
) -> None:  # fmt: skip
    """Draw the attention weights [h nc] of one target: one axes per layer, a row of stems per head.

    `records` are those of `fillin.attention.record_weights()`. Stems stand at the locations that attention received: an
    equivariant model passes them relative to its first point, and others pass none. Pass xc and xt to draw at them.
    """
    axes = list(axes)
    if not records or len(axes) != len(records):
        raise InputError(f"draw_attention: {len(records)} layers were recorded, got {len(axes)} axes; pass one a layer")
    targets = records[-1].weights.shape[2] if xt is None else xt.shape[1]
    if not -targets <= target < targets:
        raise InputError(f"draw_attention: target {target} is not one of the {targets} targets")
    for number, (panel, layer) in enumerate(zip(axes, records, strict=True), 1):
        keys, queries = layer.xk if xc is None else xc, layer.xq if xt is None else xt
        if keys is None or queries is None:
            raise InputError(f"draw_attention: layer {number} attends without locations; pass xc and xt")
        if keys.shape[1] != layer.weights.shape[3]:
            raise InputError(
                f"draw_attention: layer {number} attends to {layer.weights.shape[3]} tokens, not to {keys.shape[1]} "
                "context points; pass only the records of layers that attend to the context"
            )
        row = target % targets - targets  # from the end: queries of the context, if any, precede those of the targets
        weights = layer.weights[task, :, row].cpu()
        _draw_stems(panel, keys[task, :, 0].cpu(), weights, float(queries[task, row, 0]))
        panel.set_title(f"layer {number}, longest stem {float(weights.max()):.2f}", color=INK)


def _draw_stems(axes: Axes, x: Tensor, weights: Float[Tensor, "h m"], location: float) -> None:
    """Draw the heads one above another, the first on top, on one scale."""
    heads, step = len(weights), 1.25 * float(weights.max()) or 1.0
    axes.axvline(location, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    for head, row in enumerate(weights):
        floor, colour = step * (heads - 1 - head), COLOURS[head % len(COLOURS)]
        axes.axhline(floor, color=colour, linewidth=0.5, alpha=0.5)
        axes.vlines(x.numpy(), floor, (floor + row).numpy(), color=colour, linewidth=2.2, label=f"head {head + 1}")
    axes.set_ylim(-0.15 * step, step * heads)
    axes.set_yticks([step * (heads - 1 - h) for h in range(heads)], [f"{h + 1}" for h in range(heads)])
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("head")
    axes.spines["left"].set_visible(False)


def draw_alignment(axes: Axes, weights: Float[Tensor, "n m"], read: Sequence[str], written: Sequence[str]) -> None:
    """Draw the weights with which written tokens (rows) attend to read ones (columns); black is a weight of 1."""
    if tuple(weights.shape) != (len(written), len(read)):
        raise InputError(
            f"draw_alignment: weights are {tuple(weights.shape)}, but there are {len(written)} written and {len(read)} "
            "read tokens"
        )
    axes.imshow(weights.detach().cpu().numpy(), cmap="Greys", vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(range(len(read)), list(read), rotation=90)
    axes.set_yticks(range(len(written)), list(written))
    axes.tick_params(length=0)


def find_spans(model: nn.Module) -> dict[str, Span]:
    """Return the learned windows of a model by the name of their layer."""
    spans = {name: module for name, module in model.named_modules() if isinstance(module, Span)}
    return {name.removesuffix(".span").removesuffix(".attention"): span for name, span in spans.items()}


@torch.no_grad()
def draw_windows(model: nn.Module) -> Figure:
    """Draw the learned windows of every head and layer on one scale, with their σ.

    In one dimension, or for a function of distance, the window itself is drawn; in more dimensions its edge, projected
    on each plane, or its contour at one σ where it has no edge.
    """
    spans = find_spans(model)
    if not spans:
        raise InputError("draw_windows: no layer of this model has a learned window; create it with span=0.3, say")
    flat = all((span.dim_x or 1) == 1 for span in spans.values())
    views = [  # a panel per plane: (0,) in one dimension, every pair of axes in more
        (span, name, plane)
        for name, span in spans.items()
        for plane in combinations(range(span.dim_x or 1), min(2, span.dim_x or 1))
    ]
    planes = len(views) // len(spans)
    across = planes if planes > 1 else min(3, len(spans))
    extent = 1.08 * max(_radius(span) * float(_sigma(span).max()) for span in spans.values())
    with style():
        rows, height = math.ceil(len(views) / across), 2.0 if flat else 2.5
        figure, axes = panels(rows, across, width=1.0 + 3.1 * across, height=height, sharex=True, sharey=True)
        for panel in axes.flat[len(views) :]:
            panel.set_visible(False)
        for number, (panel, (span, name, plane)) in enumerate(zip(axes.flat, views, strict=False)):
            _draw_window(panel, span, plane, extent)
            panel.set_title(f"layer {number // planes + 1}: {name}" if number % planes == 0 else "")
            lowest = number + across >= len(views)
            panel.tick_params(labelbottom=lowest)
            panel.xaxis.label.set_visible(lowest or not flat)
            panel.yaxis.label.set_visible(number % across == 0 or not flat)
            if (number + 1) % planes == 0:
                panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.2, title="head: σ", fontsize=7)
    return figure


def _radius(span: Span) -> float:
    """Return the drawn radius in σ: that of the edge; without an edge 3 for a curve, 1 for a contour."""
    without_edge = 3.0 if (span.dim_x or 1) == 1 else 1.0
    return math.sqrt(-2 * math.log(span.threshold)) if span.threshold > 0 else without_edge


def _sigma(span: Span) -> Float[Tensor, "h _"]:
    """√C_ii: σ along each axis."""
    return span.factor.square().sum(-1).sqrt()


def _draw_window(axes: Axes, span: Span, plane: tuple[int, ...], extent: float) -> None:
    sigma = _sigma(span)[:, :1] if span.covariance == "isotropic" else _sigma(span)
    for head, line in enumerate(_profiles(span, extent) if len(plane) == 1 else _contours(span, list(plane))):
        dash = ("-", "--", ":", "-.")[head // len(COLOURS) % 4]
        name = "all" if span.heads == 1 else f"{head + 1}"
        label = f"{name}: {', '.join(f'{float(s):.2g}' for s in sigma[head])}"
        axes.plot(*line.cpu().numpy(), dash, color=COLOURS[head % len(COLOURS)], linewidth=1.3, label=label)
    names = [f"$\\Delta_{axis + 1}$" for axis in plane] if len(plane) > 1 else ["Δ" if span.dim_x else "distance"]
    axes.set_xlabel(names[0])
    if len(plane) == 1:
        axes.set(xlim=(-extent, extent) if span.dim_x else (0, extent), ylim=(0, 1.05))
        axes.set_ylabel("score ×" if span.modulate == "scores" else "weight ×")
    else:
        axes.plot(0, 0, "+", color=FAINT, markersize=5)
        axes.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal", ylabel=names[1])


def _profiles(span: Span, extent: float) -> Float[Tensor, "h 2 n"]:
    """Return the factor of the window at Δ: W of the weight, or G of the score."""
    x = torch.linspace(-extent, extent, 401, dtype=span.log_sigma.dtype, device=span.log_sigma.device)
    delta = x.view(1, 1, -1, 1)
    height, inside = span(torch.zeros_like(delta).expand(1, span.heads, -1, 1), delta)
    if span.modulate == "scores":
        height = span.exponents(delta).sum(2)
    height = height.exp() if inside is None else height.exp().where(inside, torch.nan)
    return torch.stack([x.expand(span.heads, -1), height[0, ..., 0]], 1)


def _contours(span: Span, plane: list[int]) -> Float[Tensor, "h 2 n"]:
    """Return the edge G = t, projected on a plane: an ellipse, or a box; the contour at one σ where t = 0."""
    if span.shape == "box":
        corners = span.log_sigma.new_tensor([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]])
        return _radius(span) * _sigma(span)[:, plane, None] * corners
    angle = torch.linspace(0, 2 * math.pi, 181, dtype=span.log_sigma.dtype, device=span.log_sigma.device)
    covariance = span.factor @ span.factor.mT
    projected = covariance[:, plane][:, :, plane]  # the projection of an ellipsoid has the covariance of its axes
    return _radius(span) * torch.linalg.cholesky(projected) @ torch.stack([angle.cos(), angle.sin()])


def save(figure: Figure, path: str | os.PathLike) -> Path:
    """Write the figure atomically, as PNG if the path has no extension. Returns the path."""
    path = Path(path)
    path = path if path.suffix else path.with_suffix(".png")
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise InputError(f"save: {path.name} has no known image extension; use one of {', '.join(sorted(formats))}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with style():
            write_file(path, lambda temporary: figure.savefig(temporary, format=path.suffix[1:].lower()))
    except OSError as error:
        raise InputError(f"save: cannot write {path}: {error.strerror or error}; choose another path") from error
    return path
