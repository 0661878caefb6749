"""The compiled kernel (native/span.h): time and memory grow with the pairs inside the window, not with all pairs.

A score is split into columns of q and k, closed forms and a table of F(Δ), and a table of features that meet the query
(Transformer-XL). The kernel takes float32 on the CPU and locations of one to four dimensions.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fillin.attention import kernel
from fillin.attention.backends.fused import join_columns
from fillin.attention.displacement import ClosedForm, DisplacementScore
from fillin.attention.kernel import DifferentiableInputs, FixedInputs, KernelSettings
from fillin.attention.problem import AttentionProblem, AttentionResult, Backend
from fillin.attention.relative import RelativePosition
from fillin.attention.scores import DotProduct, Score
from fillin.attention.tabulate import DisplacementTable, largest_displacement, tabulate, tabulate_grid, tabulate_scores


class ScoreParts(NamedTuple):
    """A score as the kernel reads it: columns of q and k and the factor of their product, closed forms of F, tables of
    F and of R, and g. A part is None where the score has no such part."""

    q: Tensor | None
    k: Tensor | None
    scale: float
    forms: list[ClosedForm]
    bias: DisplacementTable | None = None
    g: Tensor | None = None
    features: DisplacementTable | None = None


class NativeBackend(Backend):
    """The compiled kernel. The fallback computes gradients to locations, and scores whose table would be too large."""

    def __init__(self, fallback: Backend):
        self.fallback = fallback

    def unfit(self, problem: AttentionProblem) -> str | None:
        p = problem
        if not kernel.is_available():
            return "fillin was installed without a C++ compiler"
        if p.v.device.type != "cpu" or p.v.dtype != torch.float32:
            return f"the kernel takes float32 on the CPU, not {p.v.dtype} on {p.v.device.type}"
        if any(t.dtype != torch.float32 for t in p.learned_tensors):
            return "the score or the span is not in float32"
        if p.xq is None or p.xk is None:
            return "the kernel needs locations: pass xq and xk"
        if p.xq.shape[-1] not in (1, 2, 3, 4):
            return f"the kernel takes locations of 1 to 4 dimensions, not {p.xq.shape[-1]}"
        for term in p.score.terms:
            if term.traits.content and isinstance(term, DisplacementScore):
                return f"the score {type(term).__name__} mixes content and displacement pair by pair"
            if term.traits.compares_keys:
                return f"the score {type(term).__name__} compares keys with one another"
        return None

    def run(self, problem: AttentionProblem, want: Collection[str] = ()) -> AttentionResult:
        parts = None if needs_location_gradient(problem) else split_score(problem)
        if parts is None:
            return self.fallback.run(problem, want)
        out, lse = _run_kernel(problem, parts)
        if problem.normalise == "none":
            out = out * lse.exp()[..., None]
        return AttentionResult(out, lse if "lse" in want else None)


def needs_location_gradient(p: AttentionProblem) -> bool:
    """Return whether xq or xk receives a gradient that the kernel does not compute: it does through closed forms."""
    if not (any(x is not None and x.requires_grad for x in (p.xq, p.xk)) and torch.is_grad_enabled()):
        return False
    return p.span is not None or not has_closed_form(p)


def has_closed_form(p: AttentionProblem) -> bool:
    """Return whether the score has terms of Δ, and the kernel evaluates all of them in closed form."""
    displacement = [t for t in p.score.terms if t.traits.displacement]
    forms = [t.closed_form() for t in displacement if isinstance(t, DisplacementScore)]
    return 0 < len(displacement) == len(forms) <= kernel.MAX_FORMS and None not in forms


def _run_kernel(p: AttentionProblem, parts: ScoreParts) -> tuple[Tensor, Tensor]:
    """Return the normalised output [b h n e] and lse [b h n]."""
    assert p.xq is not None
    assert p.xk is not None
    b, h, m, _ = p.v.shape
    kinds = tuple(kernel.FORMS.index(form.kind) for form in parts.forms)
    settings, inverse = KernelSettings(parts.scale, p.causal, forms=kinds), None
    bias = bias_axes = features = features_axes = None
    if parts.bias is not None:
        bias, bias_axes = _table_tensors(parts.bias)
        settings = settings._replace(radial=parts.bias.radial)
    if parts.features is not None:
        features, features_axes = _table_tensors(parts.features)
        settings = settings._replace(features_radial=parts.features.radial, features_exact=parts.features.exact)
    if p.span is not None:
        inverse = p.span.inverse(p.xq.shape[-1]).expand(h, -1, -1).contiguous()
        span = p.span
        settings = settings.with_span(span.modulate, span.cut, span.shape, span.threshold, span.covariance)
    allowed = pairs = None
    if p.has_pair_mask:
        assert p.mask is not None
        pairs = p.mask if p.mask.shape[-1] == m else p.mask.expand(*p.mask.shape[:-1], m)
        pairs = (pairs if pairs.stride(-1) == 1 else pairs.contiguous()).expand(b, h, p.n, m)
    elif p.mask is not None:
        allowed = p.mask.expand(b, 1, 1, m)[:, 0, 0].contiguous()
    xq, xk, orders = p.xq, p.xk, (None, None)
    if p.span is not None:  # neighbours in space are close in memory, so that the window drops whole tiles
        xq, xk, orders = xq.detach(), xk.detach(), (kernel.spatial_order(p.xq), kernel.spatial_order(p.xk))
    forms = tuple((_by_head(form.log_scale, h), _by_head(form.amplitude, h)) for form in parts.forms)
    inputs = DifferentiableInputs(parts.q, parts.k, p.v, xq, xk, inverse, bias, parts.g, features, forms)
    fixed = FixedInputs(*orders, allowed, pairs, bias_axes, features_axes)
    return kernel.run_attention(inputs, fixed, settings)


def _by_head(parameter: Any, heads: int) -> Any:
    """A parameter of a score, one row per head; shared by all heads where the score has one."""
    if parameter is None:
        return None
    return parameter.expand(heads, *parameter.shape[1:]).contiguous()  # the kernel reads it by address


def _table_tensors(table: DisplacementTable) -> tuple[Tensor, Tensor]:
    """Return the values of a table and its axes [2 dims]: low ends and inverse steps."""
    return table.values.contiguous(), torch.stack([table.low, 1 / table.step])


def split_score(p: AttentionProblem) -> ScoreParts | None:
    """Split the score into parts; None where it has others, or where a table would have more nodes than pairs."""
    assert p.xq is not None
    assert p.xk is not None
    heads, max_nodes = p.v.shape[1], p.n_logits / p.v.shape[1]
    scores_of_delta = [t for t in p.score.terms if isinstance(t, DisplacementScore)]
    forms = {t: form for t in scores_of_delta if (form := t.closed_form()) is not None}
    forms = dict(list(forms.items())[: kernel.MAX_FORMS])
    displacement = [t for t in scores_of_delta if t not in forms]
    relative = [t for t in p.score.terms if isinstance(t, RelativePosition)]
    if not displacement and not relative:
        content = _fold_content(p, [t for t in p.score.terms if t not in forms], [])
        return None if content is None else ScoreParts(*content, list(forms.values()))
    reach = largest_displacement(p.xq, p.xk)
    if p.span is not None:  # of the widest window
        reach = torch.minimum(reach, p.span.reach().detach().amax(0))
    grids = {  # tables of R at the displacements of a grid of pixels
        t: tabulate_grid(t.tabulate_features, p.xq, p.xk, reach, max_nodes)
        if p.shared_locations and (t.traits.gridded or t.folds)
        else None
        for t in relative
    }
    # a row of an exact table is cheaper than many columns, so such a term is not folded
    tabulated = [t for t in relative if not t.folds] or [t for t in relative if grids[t] is not None][:1]
    others = [t for t in p.score.terms if t not in scores_of_delta and t not in tabulated]
    content = _fold_content(p, others, tabulated)
    bias = tabulate_scores(displacement, heads, reach, max_nodes, p.tolerance) if displacement else None
    if content is None or len(tabulated) > 1 or (displacement and bias is None):
        return None
    if not tabulated:
        return ScoreParts(*content, list(forms.values()), bias)
    term: Any = tabulated[0]
    g, features = term.position_queries(p.q), grids[term]
    if features is None:  # so fine a table that the logits, its products with g, meet the tolerance
        longest = float(torch.linalg.vector_norm(g.detach(), dim=-1).max()) or 1.0
        features = tabulate(term.tabulate_features, reach, term.traits.radial, max_nodes, p.tolerance / longest)
    if features is None:
        return None
    if features.exact and (rest := -g.shape[-1] % kernel.lanes()):  # the kernel reads a whole vector at a time
        g, features = pad(g, (0, rest)), replace(features, values=pad(features.values, (0, rest)))
    return ScoreParts(*content, list(forms.values()), bias, g, features)


def _fold_content(
    p: AttentionProblem, others: list[Score], relative: list[RelativePosition]
) -> tuple[Tensor | None, Tensor | None, float] | None:
    """Columns whose product, times a factor, is the sum of the given terms; None where a term does not fold."""
    if not relative and [type(t) for t in others] == [DotProduct] and p.q is not None:
        return p.q, p.k, 1 / math.sqrt(p.q.shape[-1])
    folded: list[Any] = [t.fold(p.q, p.k, p.xq, p.xk) for t in others]
    folded += [t.content_columns(p.q, p.k) for t in relative]  # type: ignore[arg-type]
    if None in folded:
        return None
    return (*join_columns(p, folded), 1.0) if folded else (None, None, 1.0)
