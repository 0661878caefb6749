"""Figure of a filled field: observed values, filled values and standard deviations."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.filling.grid.layout import GridLayout
from fillin.filling.grid.variable import Axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_FIELDS = 3  # drawn: those with the most filled cells
_MAX_CELLS = 1500  # drawn along an axis; more could not be seen


def draw_grid(layout: GridLayout, filled: Any, std: Any) -> "Figure":
    """Draw observed | filled | standard deviation, a row for each field.

    A field of one dimension is a curve with its interval; of one with three dimensions the middle slice is drawn.
    """
    from fillin.plots import panels, style

    counts = layout.cells_to_fill
    largest = np.argsort(-counts.ravel(), kind="stable")[: min(_MAX_FIELDS, np.count_nonzero(counts))]
    fields = [_read_slice(layout, np.unravel_index(k, counts.shape), filled, std) for k in np.sort(largest)]
    curve = len(layout.field_dims) == 1
    sizes = [len(axis.x) for axis in layout.settings.axes]
    stacked = not curve and sizes[-1] > 4 * sizes[-2]  # a wide strip takes the whole width
    with style():
        rows, columns = (3 * len(fields), 1) if stacked else (len(fields), 1 if curve else 3)
        figure, axes = panels(rows, columns, width=9.0 if not curve else 8.0, height=1.7 if stacked else 2.6)
        for row, (title, *parts) in enumerate(fields):
            panel = axes[3 * row : 3 * row + 3, 0] if stacked else axes[row]
            if curve:
                _draw_curve(panel[0], layout, title, *parts)
            else:
                _draw_maps(figure, panel, layout, title, *parts)
        drawn = [(layout.label_slice(int(k)), layout.list_sources(int(k))) for k in np.sort(largest)]
        lines = [f"{label} also from {sources}" for label, sources in drawn if sources]
        left_out = np.count_nonzero(counts) - len(fields)
        lines += [f"and {left_out:,} more"] if left_out > 0 else []
        if lines:
            figure.supxlabel("\n".join(lines), fontsize=8)
    return figure


def _read_slice(layout: GridLayout, index: Any, filled: Any, std: Any) -> tuple[str, ndarray, ndarray, ndarray]:
    """Return title, observed values, filled values and standard deviation along the last dimensions of a field."""
    variable = layout.variable
    cut: dict[str, Any] = dict(zip(layout.slice_dims, map(int, index), strict=True))
    if len(layout.field_dims) == 3:
        cut[layout.field_dims[0]] = len(layout.settings.axes[0].x) // 2
    drawn = [dim for dim in variable.dims if dim not in cut]
    at = cut | {dim: slice(None, None, -(-variable.sizes[dim] // _MAX_CELLS)) for dim in drawn}
    observed = variable.compute(variable.values[tuple(at[dim] for dim in variable.dims)])
    swap = [dim for dim in layout.original_dims if dim in drawn] != drawn
    mean, stds = (np.asarray(part[tuple(at[dim] for dim in layout.original_dims)]) for part in (filled, std))
    title = ", ".join(variable.axes[dim].label(row) for dim, row in cut.items())
    return title, observed, mean.T if swap else mean, stds.T if swap else stds


def _coordinates(axis: Axis) -> ndarray:
    values = axis.labels if axis.labels.dtype.kind in "iufM" else axis.x
    return values[:: -(-len(values) // _MAX_CELLS)]


def _format_dates(drawn: Any, axis: Axis) -> None:
    """Label days since the first by dates of their calendar, which matplotlib does not know."""
    first = axis.labels[0]
    if hasattr(first, "calendar"):
        drawn.set_major_formatter(lambda day, _: (first + timedelta(days=float(day))).strftime("%Y-%m-%d"))


def _draw_maps(
    figure: "Figure", axes: ndarray, layout: GridLayout, title: str, observed: ndarray, filled: ndarray, std: ndarray
) -> None:
    y, x = layout.settings.axes[-2:]
    finite = filled[np.isfinite(filled)]
    low, high = np.quantile(finite, [0.005, 0.995]) if len(finite) else (0.0, 1.0)
    std = np.where(std > 0, std, np.nan)
    largest_std = float(np.nanquantile(std, 0.99)) if np.isfinite(std).any() else 1.0
    limits = (low, high, "viridis"), (low, high, "viridis"), (0.0, largest_std, "magma_r")
    contents = ("observed", observed), ("filled", filled), ("std", std)
    for axis, (content, values), (vmin, vmax, colours) in zip(axes, contents, limits, strict=True):
        shown = np.ma.masked_invalid(np.asarray(values, dtype=float))
        mesh = axis.pcolormesh(
            _coordinates(x), _coordinates(y), shown, shading="nearest", cmap=colours, vmin=vmin, vmax=vmax
        )
        mesh.set_rasterized(True)
        axis.set_facecolor("#E6E6E6")
        figure.colorbar(mesh, ax=axis, fraction=0.05, pad=0.02)
        words = f"{layout.variable.name} {content}".strip(), title if content == "observed" else ""
        axis.set_title(", ".join(word for word in words if word))
        axis.set_xlabel(x.name if axis is axes[-1] or len(axes) == 3 else "")
        axis.set_ylabel(y.name if axis is axes[0] else "")
        _format_dates(axis.xaxis, x)
        _format_dates(axis.yaxis, y)


def _draw_curve(
    axis: "Axes", layout: GridLayout, title: str, observed: ndarray, filled: ndarray, std: Float[ndarray, "n"]
) -> None:
    from fillin.plots import BLUE, INK

    x = _coordinates(layout.settings.axes[0])
    axis.fill_between(x, filled - 2 * std, filled + 2 * std, color=BLUE, alpha=0.2, linewidth=0, label="±2 std")
    axis.plot(x, np.where(std > 0, filled, np.nan), ".-", color=BLUE, linewidth=1.0, markersize=2, label="filled")
    axis.plot(x, observed, "o", color=INK, markersize=1.8, markeredgewidth=0, label="observed")
    axis.set_title(", ".join(word for word in (layout.variable.name, title) if word))
    axis.set_xlabel(layout.settings.axes[0].name)
    _format_dates(axis.xaxis, layout.settings.axes[0])
    axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2)
