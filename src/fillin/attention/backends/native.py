"""The compiled kernel (native/span.h): time and memory that follow the pairs inside the window, not all pairs.

A score is split into what it is made of: columns of q and k, a table of F(Δ), a table of features that meet the query
(Transformer-XL). It takes float32 on the CPU, places of one to three dimensions and masks over keys.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fillin.attention import kernel as native
from fillin.attention.backends import streamed
from fillin.attention.displacement import PlaceScore
from fillin.attention.kernel.ops import CUTS, SHAPES, WINDOWS, Fixed, Given, Settings, attend_native, flat, order_of
from fillin.attention.problem import Problem, Result
from fillin.attention.relative import Relative
from fillin.attention.scores import DotProduct, Score
from fillin.attention.span import Span
from fillin.attention.tabulate import Tabulated, extent, on_grid, tabulate, tabulate_scores


def unfit(p: Problem) -> str | None:
    if not native.available():
        return "fillin was installed without a C++ compiler"
    if p.v.device.type != "cpu" or p.v.dtype != torch.float32:
        return f"the kernel takes float32 on the CPU, not {p.v.dtype} on {p.v.device.type}"
    learned = [*p.score.tensors(), *(() if p.span is None else p.span.parameters())]
    if any(t.dtype != torch.float32 for t in learned):
        return "the score or the span is not in float32"
    if p.xq is None or p.xk is None:
        return "the kernel is for points that have places: pass xq and xk"
    if p.xq.shape[-1] not in (1, 2, 3):
        return f"the kernel takes places of 1 to 3 dimensions, not {p.xq.shape[-1]}"
    if p.mask is not None and not _over_keys(p.mask):
        return "the kernel takes masks over keys alone, [b 1 1 m]"
    for term in p.score.terms:
        if term.content and isinstance(term, PlaceScore):
            return f"the score {type(term).__name__} weighs each pair by itself"
        if not term.alone:
            return f"the score {type(term).__name__} compares keys with one another"
    return None


def _over_keys(mask: Tensor) -> bool:
    return mask.ndim <= 1 or (mask.shape[-2] == 1 and (mask.ndim < 3 or mask.shape[-3] == 1))


def learns_places(p: Problem) -> bool:
    """Whether a gradient to the places themselves is asked for, which the kernel does not give."""
    return any(x is not None and x.requires_grad for x in (p.xq, p.xk)) and torch.is_grad_enabled()


class Columns(NamedTuple):
    """q and k (None: no content at all) and what their product is to be multiplied by."""

    q: Tensor | None
    k: Tensor | None
    scale: float


class Parts(NamedTuple):
    """A score taken apart: columns of q and k, F's table, and (g, R's table)."""

    content: Columns
    bias: Tabulated | None
    g: Tensor | None
    features: Tabulated | None


def run(p: Problem, lse: bool = False) -> Result:
    """Gradients to places, and tables too fine to pay, are left to `streamed`."""
    parts = None if learns_places(p) else _take_apart(p)
    return streamed.run(p, None, lse) if parts is None else _run(p, parts, lse)


def _run(p: Problem, parts: Parts, lse: bool) -> Result:
    assert p.xq is not None
    assert p.xk is not None
    b, h, m, _ = p.v.shape
    q, k, scale = parts.content
    settings = Settings(scale, p.causal, radial=parts.bias is not None and parts.bias.radial)
    if parts.features is not None:
        settings = settings._replace(features_radial=parts.features.radial, features_exact=parts.features.exact)
    inverse = None
    if p.span is not None:
        inverse = p.span.inverse(p.xq.shape[-1]).expand(h, -1, -1).contiguous()
        settings = settings._replace(**_window(p.span))
    bias, bias_axes = _table(parts.bias)
    features, features_axes = _table(parts.features)
    keep = None if p.mask is None else p.mask.expand(b, 1, 1, m)[:, 0, 0].contiguous()
    xq, xk = p.xq.detach().contiguous(), p.xk.detach().contiguous()
    given = Given(q, k, p.v, inverse, bias, parts.g, features)
    fixed = Fixed(xq, xk, order_of(p.xq), order_of(p.xk), keep, bias_axes, features_axes)
    out, sums = attend_native(flat(given), flat(fixed), [float(s) for s in settings])
    if p.normalise == "none":
        out = out * sums.exp()[..., None]
    return Result(out, sums if lse else None)


def _window(span: Span) -> dict[str, float]:
    return {
        "window": WINDOWS.index(span.modulate), "cut": CUTS.index(span.cut), "shape": SHAPES.index(span.shape),
        "threshold": span.threshold,
    }  # fmt: skip


def _table(table: Tabulated | None) -> tuple[Tensor | None, Tensor | None]:
    if table is None:
        return None, None
    return table.values.contiguous(), torch.stack([table.low, 1 / table.step])


def _take_apart(p: Problem) -> Parts | None:
    """The parts of the score; None where it has others, or a table of it would be larger than the pairs."""
    heads, most = p.v.shape[1], p.pairs / p.v.shape[1]
    reach = _reach(p)
    places = [t for t in p.score.terms if isinstance(t, PlaceScore)]
    scores = [t for t in p.score.terms if isinstance(t, Relative)]
    nodes = {t: _nodes(p, t, reach, most) for t in scores}  # one row of a table is less than many columns
    relative = [t for t in scores if not t.folds] or [t for t in scores if nodes[t] is not None][:1]
    others = [t for t in p.score.terms if t not in places and t not in relative]
    content = _columns(p, others, relative)
    bias = tabulate_scores(places, heads, reach, most, p.tolerance) if places else None
    if content is None or len(relative) > 1 or (places and bias is None):
        return None
    if not relative:
        return Parts(content, bias, None, None)
    g = relative[0].meets(p.q)  # type: ignore[arg-type]
    features = nodes[relative[0]] or _tabulated(p, relative[0], g, reach, most)
    if features is None:
        return None
    if features.exact and (rest := -g.shape[-1] % native.lanes()):  # read a vector at a time
        g, features = pad(g, (0, rest)), replace(features, values=pad(features.values, (0, rest)))
    return Parts(content, bias, g, features)


def _nodes(p: Problem, score: Relative, reach: Tensor, most: float) -> Tabulated | None:
    """R's table of pixels on a grid, at their displacements; None where it is no such problem."""
    if not p.shared or not (score.few or score.folds) or p.xq is None or p.xk is None:
        return None
    return on_grid(score.features, p.xq, p.xk, reach, most)


def _tabulated(p: Problem, score: Relative, g: Tensor, reach: Tensor, most: float) -> Tabulated | None:
    """R's table, as fine as the tolerance of a logit asks."""
    longest = float(torch.linalg.vector_norm(g.detach(), dim=-1).max()) or 1.0
    return tabulate(score.features, reach, score.radial, most, p.tolerance / longest)


def _columns(p: Problem, others: list[Score], relative: list[Relative]) -> Columns | None:
    """Columns whose product is the sum of the given terms; None where one of them is no such product."""
    if not relative and [type(t) for t in others] == [DotProduct] and p.q is not None:
        return Columns(p.q, p.k, 1 / math.sqrt(p.q.shape[-1]))
    folded = [t.fold(p.q, p.k, p.xq, p.xk) for t in others] + [t.columns(p.q, p.k) for t in relative]
    columns: list[Any] = [f for f in folded if f is not None]
    if len(columns) < len(folded):
        return None
    if not columns:
        return Columns(None, None, 1.0)
    b, h = p.v.shape[:2]
    q, k = (torch.cat([f[side].expand(b, h, -1, -1) for f in columns], -1) for side in (0, 1))
    return Columns(q, k, 1.0)


def _reach(p: Problem) -> Tensor:
    """How far Δ may go along each axis: as far as the data, or the widest window, do."""
    far = extent(p.xq, p.xk)  # type: ignore[arg-type]
    return far if p.span is None else torch.minimum(far, p.span.reach().detach().amax(0))
