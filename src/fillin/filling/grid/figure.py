"""A picture of a filled field: what was known, what it looks like filled, and how sure that is."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.filling.grid.axes import Axis
from fillin.filling.grid.plan import FieldPlan, computed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROWS = 3  # fields that are drawn: those in which most was filled
_CELLS = 1500  # along an axis: more could not be seen


def draw_field(plan: FieldPlan, filled: Any, std: Any) -> "Figure":
    """known | filled | deviation, a row for each field; of one dimension a curve with its band; of three the middle."""
    from fillin.plots import panels, style

    chosen = [_slice(plan, number, filled, std) for number in _chosen(plan)]
    one = len(plan.over) == 1
    tall = not one and _flat(plan)  # a wide strip wants the whole width
    with style():
        rows, columns = (3 * len(chosen), 1) if tall else (len(chosen), 1 if one else 3)
        figure, axes = panels(rows, columns, width=9.0 if not one else 8.0, height=1.7 if tall else 2.6)
        for row, (title, *parts) in enumerate(chosen):
            own = axes[3 * row : 3 * row + 3, 0] if tall else axes[row]
            if one:
                _curve(own[0], plan, title, *parts)
            else:
                _maps(figure, own, plan, title, *parts)
        left_out = int((plan.wanted > 0).sum()) - len(chosen)
        if left_out > 0:
            figure.supxlabel(f"and {left_out:,} more", fontsize=8)
    return figure


def _chosen(plan: FieldPlan) -> list[tuple[int, ...]]:
    most = np.argsort(-plan.wanted.ravel(), kind="stable")[:_ROWS]
    most = np.sort(most[plan.wanted.ravel()[most] > 0])
    return [tuple(int(i) for i in np.unravel_index(k, plan.wanted.shape)) if plan.slices else () for k in most]


def _slice(plan: FieldPlan, number: tuple[int, ...], filled: Any, std: Any) -> tuple[str, ndarray, ndarray, ndarray]:
    """Title, known, filled and deviation; along the last one or two dimensions of the field."""
    cut = dict(zip(plan.slices, number, strict=True))
    if len(plan.over) == 3:
        cut[plan.over[0]] = len(plan.how.axes[0].x) // 2
    drawn = [dim for dim in plan.variable.dims if dim not in cut]
    few = {dim: slice(None, None, -(-plan.variable.shape[plan.variable.dims.index(dim)] // _CELLS)) for dim in drawn}
    at = {**cut, **few}
    known = computed(plan.variable.values[tuple(at[dim] for dim in plan.variable.dims)], plan.variable)
    swap = [dim for dim in plan.order if dim in drawn] != drawn
    mean, doubt = (np.asarray(part[tuple(at[dim] for dim in plan.order)]) for part in (filled, std))
    title = ", ".join(plan.variable.axes[dim].told(row) for dim, row in cut.items())
    return title, np.asarray(known), mean.T if swap else mean, doubt.T if swap else doubt


def _across(axis: Axis) -> ndarray:
    shown = axis.shown if axis.shown.dtype.kind in "iufM" else axis.x
    return shown[:: -(-len(shown) // _CELLS)]


def _dated(drawn: Any, axis: Axis) -> None:
    """Days since the first are labelled by dates of their own calendar, which matplotlib does not know."""
    first = axis.shown[0]
    if hasattr(first, "calendar"):
        drawn.set_major_formatter(lambda day, _: (first + timedelta(days=float(day))).strftime("%Y-%m-%d"))


def _flat(plan: FieldPlan) -> bool:
    """Wider than high by far, in cells."""
    high, wide = (len(axis.x) for axis in plan.how.axes[-2:])
    return wide > 4 * high


def _maps(figure: "Figure", axes: ndarray, plan: FieldPlan, title: str, known: ndarray, filled: ndarray, std: ndarray):
    y, x = plan.how.axes[-2:]
    inside = filled[np.isfinite(filled)]
    low, high = np.quantile(inside, [0.005, 0.995]) if len(inside) else (0.0, 1.0)
    doubt = np.where(std > 0, std, np.nan)
    top = float(np.nanquantile(doubt, 0.99)) if np.isfinite(doubt).any() else 1.0
    limits = (low, high, "viridis"), (low, high, "viridis"), (0.0, top, "magma_r")
    for axis, what, values, (least, most, colours) in zip(
        axes, ("known", "filled", "deviation"), (known, filled, doubt), limits, strict=True
    ):
        shown = np.ma.masked_invalid(np.asarray(values, dtype=float))
        drawn = axis.pcolormesh(_across(x), _across(y), shown, shading="nearest", cmap=colours, vmin=least, vmax=most)
        drawn.set_rasterized(True)
        axis.set_facecolor("#E6E6E6")
        figure.colorbar(drawn, ax=axis, fraction=0.05, pad=0.02)
        name = plan.variable.name
        axis.set_title(", ".join(word for word in (f"{name} {what}".strip(), title if what == "known" else "") if word))
        axis.set_xlabel(x.name if axis is axes[-1] or len(axes) == 3 else "")
        axis.set_ylabel(y.name if axis is axes[0] else "")
        _dated(axis.xaxis, x)
        _dated(axis.yaxis, y)


def _curve(axis: "Axes", plan: FieldPlan, title: str, known: ndarray, filled: ndarray, std: Float[ndarray, "n"]):
    from fillin.plots import BLUE, INK

    x = _across(plan.how.axes[0])
    axis.fill_between(x, filled - 2 * std, filled + 2 * std, color=BLUE, alpha=0.2, linewidth=0, label="±2 deviations")
    axis.plot(x, np.where(std > 0, filled, np.nan), ".-", color=BLUE, linewidth=1.0, markersize=2, label="filled")
    axis.plot(x, known, "o", color=INK, markersize=1.8, markeredgewidth=0, label="known")
    axis.set_title(", ".join(word for word in (plan.variable.name, title) if word))
    axis.set_xlabel(plan.how.axes[0].name)
    _dated(axis.xaxis, plan.how.axes[0])
    axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2)
