"""Pictures of curves: bands, coherent samples, what each head attends to, and how far it looks.

Everything draws on matplotlib's own Figure and Axes; pyplot's global state is never touched, so pictures are made
without a screen and in threads alike.

>>> import torch, fillin
>>> model = fillin.create("te-tnp", size="small")
>>> xc, yc, xt = torch.rand(1, 5, 1), torch.rand(1, 5, 1), torch.linspace(0, 1, 50).view(1, 50, 1)
>>> with style():
...     figure, [[axes]] = panels(1, 1)
...     bands(axes, xt, model(xc, yc, xt), xc, yc)
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
from torch.distributions import Distribution, MixtureSameFamily, Normal

from fillin.attention import AttentionRecord, Span
from fillin.errors import InputError
from fillin.heads import LatentMixture
from fillin.io import write_file

# Okabe and Ito's colours: told apart by all kinds of eyes, and in print.
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
_lock = threading.RLock()  # matplotlib's settings belong to the whole process: one thread at a time wears the style


@contextmanager
def style() -> Iterator[None]:
    """Our look inside the block; matplotlib's settings are as before after it."""
    with _lock, mpl.rc_context(_STYLE):
        yield


def panels(
    rows: int = 1, columns: int = 1, width: float = 8.0, height: float = 1.9, **options
) -> tuple[Figure, np.ndarray]:
    """A figure `width` inches wide and its axes [rows columns], each row `height` high; options go to subplots()."""
    with style():
        figure = Figure(figsize=(width, height * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **options)


def bands(
    axes: Axes,
    xt: Float[Tensor, "b nt 1"],
    distribution: Distribution,
    xc: Float[Tensor, "b nc 1"] | None = None,
    yc: Float[Tensor, "b nc dy"] | None = None,
    *,
    task: int = 0,
    output: int = 0,
    colour: str = BLUE,
) -> None:
    """The mean as a line, the central 50 % and 95 % at each place as bands, the context as dots.

    `distribution` is what a model returns: its mean is [b nt dy]. One task and one output of it are drawn.
    """
    if distribution.mean.ndim != 3:
        raise InputError(f"bands: the mean must be [b nt dy], got shape {tuple(distribution.mean.shape)}")
    x = xt[task, :, 0].detach()
    order = x.argsort()

    def curve(values: Tensor) -> np.ndarray:
        return values.detach()[task, order, output].cpu().numpy()

    across = x[order].cpu().numpy()
    for inside, alpha in ((0.95, 0.16), (0.5, 0.26)):
        low, high = (curve(_quantile(distribution, 0.5 + half)) for half in (-inside / 2, inside / 2))
        axes.fill_between(across, low, high, color=colour, alpha=alpha, linewidth=0, label=f"{inside:.0%}")
    axes.plot(across, curve(distribution.mean), color=colour, linewidth=1.4, label="mean")
    if xc is not None and yc is not None:
        axes.plot(
            xc[task, :, 0].cpu(), yc[task, :, output].cpu(), "o", color=INK, markersize=3.6, markeredgecolor="white",
            markeredgewidth=0.6, zorder=5, label="context", clip_on=False,
        )  # fmt: skip


def samples(
    axes: Axes,
    xt: Float[Tensor, "b nt 1"],
    drawn: Float[Tensor, "n b nt dy"],
    *,
    task: int = 0,
    output: int = 0,
    colour: str = BLUE,
) -> None:
    """Coherent functions, `drawn` by `fillin.sample`, as thin lines."""
    order = xt[task, :, 0].argsort()
    x, lines = xt[task, order, 0].cpu().numpy(), drawn[:, task, order, output].cpu().numpy()
    for line in lines:
        axes.plot(x, line, color=colour, linewidth=0.6, alpha=0.55)


def attention(
    axes: Iterable[Axes],
    seen: Sequence[AttentionRecord],
    target: int,
    *,
    xc: Float[Tensor, "b nc 1"] | None = None,
    xt: Float[Tensor, "b nt 1"] | None = None,
    task: int = 0,
) -> None:
    """Where one target looks: the weights [h nc] of each layer, a row of stems a head, one axes a layer.

    `seen` is what `fillin.attention.record_weights()` collected. Stems stand where attention saw the context; an
    equivariant model sees it relative to its first point, and others not at all, so pass xc and xt to draw in places of
    your own.
    """
    axes = list(axes)
    if not seen or len(axes) != len(seen):
        raise InputError(f"attention: {len(seen)} layers were seen, but there are {len(axes)} axes; pass one a layer")
    targets = seen[-1].weights.shape[2] if xt is None else xt.shape[1]
    if not -targets <= target < targets:
        raise InputError(f"attention: target {target} is not one of the {targets} targets")
    for number, (panel, layer) in enumerate(zip(axes, seen, strict=True), 1):
        keys, queries = layer.xk if xc is None else xc, layer.xq if xt is None else xt
        if keys is None or queries is None:
            raise InputError(f"attention: layer {number} attends without places; pass xc and xt")
        if keys.shape[1] != layer.weights.shape[3]:
            raise InputError(
                f"attention: layer {number} attends to {layer.weights.shape[3]} tokens, not to {keys.shape[1]} context "
                "points; pass only the layers of `seen` that do"
            )
        row = target % targets - targets  # from the end: where the context asks as well, it comes before the targets
        weights = layer.weights[task, :, row].cpu()
        _stems(panel, keys[task, :, 0].cpu(), weights, float(queries[task, row, 0]))
        panel.set_title(f"layer {number}, longest stem {float(weights.max()):.2f}", color=INK)


def _stems(axes: Axes, x: Tensor, weights: Float[Tensor, "h m"], place: float) -> None:
    """Heads one above another, first on top, all to one scale: that of the axes."""
    heads, tallest = len(weights), float(weights.max())
    step = 1.25 * tallest or 1.0
    axes.axvline(place, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    for head, row in enumerate(weights):
        floor, colour = step * (heads - 1 - head), COLOURS[head % len(COLOURS)]
        axes.axhline(floor, color=colour, linewidth=0.5, alpha=0.5)
        axes.vlines(x.numpy(), floor, (floor + row).numpy(), color=colour, linewidth=2.2, label=f"head {head + 1}")
    axes.set_ylim(-0.15 * step, step * heads)
    axes.set_yticks([step * (heads - 1 - h) for h in range(heads)], [f"{h + 1}" for h in range(heads)])
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("head")
    axes.spines["left"].set_visible(False)


def spans(model: nn.Module) -> dict[str, Span]:
    """The learned windows of a model, each under the name of the layer that looks through it."""
    found = {name: part for name, part in model.named_modules() if isinstance(part, Span)}
    return {name.removesuffix(".span").removesuffix(".attention"): span for name, span in found.items()}


@torch.no_grad()
def windows(model: nn.Module) -> Figure:
    """How far every head of every layer looks, all to one scale, with σ beside it.

    In one dimension (and in any where only distance counts) the window itself; otherwise where it is cut, seen along
    the other axes, or, where it is not cut, at one σ.
    """
    found = spans(model)
    if not found:
        raise InputError("windows: no layer of this model has a learned window; create it with span=0.3, say")
    flat = all((span.dim_x or 1) == 1 for span in found.values())
    views = [(span, name, plane) for name, span in found.items() for plane in _planes(span)]
    planes = len(views) // len(found)
    across = planes if planes > 1 else min(3, len(found))
    rows = math.ceil(len(views) / across)
    far = 1.08 * max(_radius(span) * float(_sigma(span).max()) for span in found.values())
    with style():
        height = 2.0 if flat else 2.5
        figure, axes = panels(rows, across, width=1.0 + 3.1 * across, height=height, sharex=True, sharey=True)
        for number, panel in enumerate(axes.flat):
            if number >= len(views):
                panel.set_visible(False)
                continue
            span, name, plane = views[number]
            _window(panel, span, plane, far)
            panel.set_title(f"layer {number // planes + 1}: {name}" if number % planes == 0 else "")
            lowest = number + across >= len(views)
            panel.tick_params(labelbottom=lowest)
            panel.xaxis.label.set_visible(lowest or not flat)
            panel.yaxis.label.set_visible(number % across == 0 or not flat)
            if (number + 1) % planes == 0:
                panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.2, title="head: σ", fontsize=7)
    return figure


def _planes(span: Span) -> list[tuple[int, ...]]:
    """The axes of each view of a window: (0,) in one dimension, every pair in more."""
    return list(combinations(range(span.dim_x), 2)) if (span.dim_x or 1) > 1 else [(0,)]  # type: ignore[arg-type]


def _radius(span: Span) -> float:
    """How many σ of a window are drawn: up to its edge; without one, all of a curve, or an outline at one σ."""
    if span.threshold > 0:
        return math.sqrt(-2 * math.log(span.threshold))
    return 3.0 if (span.dim_x or 1) == 1 else 1.0


def _sigma(span: Span) -> Float[Tensor, "h _"]:
    """√C_ii: σ along each axis."""
    return span.factor.square().sum(-1).sqrt()


def _window(axes: Axes, span: Span, plane: tuple[int, ...], far: float) -> None:
    sigma = _sigma(span)[:, :1] if span.covariance == "isotropic" else _sigma(span)
    for head, line in enumerate(_curves(span, far) if len(plane) == 1 else _outlines(span, plane)):
        dash = ("-", "--", ":", "-.")[head // len(COLOURS) % 4]
        who = "all" if span.heads == 1 else f"{head + 1}"
        label = f"{who}: {', '.join(f'{float(s):.2g}' for s in sigma[head])}"
        axes.plot(*line.cpu().numpy(), dash, color=COLOURS[head % len(COLOURS)], linewidth=1.3, label=label)
    names = [f"$\\Delta_{axis + 1}$" for axis in plane] if len(plane) > 1 else ["Δ" if span.dim_x else "distance"]
    axes.set_xlabel(names[0])
    if len(plane) == 1:
        axes.set(xlim=(-far, far) if span.dim_x else (0, far), ylim=(0, 1.05))
        axes.set_ylabel("score ×" if span.modulate == "scores" else "weight ×")
    else:
        axes.plot(0, 0, "+", color=FAINT, markersize=5)
        axes.set(xlim=(-far, far), ylim=(-far, far), aspect="equal", ylabel=names[1])


def _curves(span: Span, far: float) -> Float[Tensor, "h 2 n"]:
    """By what the window multiplies at Δ: the weight by W, or the score by G."""
    x = torch.linspace(-far, far, 401, dtype=span.log_sigma.dtype, device=span.log_sigma.device)
    delta = x.view(1, 1, -1, 1)
    height, inside = span(torch.zeros_like(delta).expand(1, span.heads, -1, 1), delta)
    if span.modulate == "scores":
        height = span.exponents(delta).sum(2)
    height = height.exp() if inside is None else height.exp().where(inside, torch.nan)
    return torch.stack([x.expand(span.heads, -1), height[0, ..., 0]], 1)


def _outlines(span: Span, plane: tuple[int, ...]) -> Float[Tensor, "h 2 n"]:
    """The edge G = t of a ball, an ellipse whatever axis it is seen along, or that of a box; one σ where t = 0."""
    across, radius = list(plane), _radius(span)
    if span.shape == "box":
        corners = span.log_sigma.new_tensor([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]])
        return radius * _sigma(span)[:, across, None] * corners
    angle = torch.linspace(0, 2 * math.pi, 181, dtype=span.log_sigma.dtype, device=span.log_sigma.device)
    covariance = span.factor @ span.factor.mT
    seen = covariance[:, across][:, :, across]  # an ellipsoid's shadow has the covariance of its axes
    return radius * torch.linalg.cholesky(seen) @ torch.stack([angle.cos(), angle.sin()])


def save(figure: Figure, path: str | os.PathLike) -> Path:
    """Write the figure, as PNG where the path has no ending; whole or not at all. Returns where it is."""
    path = Path(path)
    path = path if path.suffix else path.with_suffix(".png")
    known = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise InputError(f"save: {path.name} has an ending that cannot be drawn; use one of {', '.join(sorted(known))}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with style():
            write_file(path, lambda temporary: figure.savefig(temporary, format=path.suffix[1:].lower()))
    except OSError as error:
        raise InputError(f"save: cannot write {path}: {error.strerror or error}; choose another path") from error
    return path


def _quantile(distribution: Distribution, p: float) -> Float[Tensor, "b nt dy"]:
    """y with P(Y ≤ y) = p at each target on its own."""
    marginals = getattr(distribution, "marginals", distribution)
    centre, spread = marginals.mean, marginals.stddev
    if isinstance(marginals, LatentMixture):
        below = lambda y: marginals.given.cdf(y).mean(0)  # noqa: E731
    elif isinstance(marginals, MixtureSameFamily):
        below = marginals.cdf
    else:
        return Normal(centre, spread, validate_args=False).icdf(torch.tensor(p, dtype=centre.dtype))
    # Chebyshev: a p-quantile is within σ/√p of the mean; halve that interval to the digits of float32
    far = spread / min(p, 1 - p) ** 0.5
    low, high = centre - far, centre + far
    for _ in range(30):
        middle = (low + high) / 2
        under = below(middle) < p
        low, high = torch.where(under, middle, low), torch.where(under, high, middle)
    return (low + high) / 2
