"""Figure of scattered observations: maps of observed and filled values, and of their standard deviations."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from fillin.filling.frames import format_locations
from fillin.filling.prediction import ColumnPredictions
from fillin.filling.scattered.grid_map import MapGrid
from fillin.filling.scattered.roles import ScatteredRoles
from fillin.filling.series.infer_roles import NewRows
from fillin.tabular.table import TypedColumn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_COLUMNS = 3  # drawn: those with the most predictions
_MAX_POINTS = 20_000  # drawn one by one, of each kind
_MAX_CELLS = 1000  # drawn along an axis; more could not be seen
_MAX_ASPECT = 4.0  # of a map that is drawn to scale
_DEGREES = frozenset(["lon", "longitude", "lat", "latitude"])


def draw_points(roles: ScatteredRoles, new: NewRows, grid: MapGrid | None, prediction: ColumnPredictions) -> "Figure":
    """Draw values | standard deviations over the first two coordinates, a row for each column.

    With a grid its cells are drawn below the observed points; of more than two coordinates its middle slice.
    """
    from fillin.plots import panels, style

    names = sorted(prediction, key=lambda name: -len(prediction[name].rows))[:_MAX_COLUMNS]
    across, up = (np.concatenate([c.values, new.locations[i]]) for i, c in enumerate(roles.locations[:2]))
    across, up = (_moments(column, v) for column, v in zip(roles.locations, (across, up), strict=False))
    aspect = _aspect(roles)
    height = float(np.clip(4.0 * (aspect[1] if aspect else 0.75) + 0.6, 2.6, 6.0))
    with style():
        figure, axes = panels(len(names), 2, width=10.0, height=height, sharex=True, sharey=True)
        for row, name in enumerate(names):
            column, part = roles.table.column(name), prediction[name]
            observed = np.flatnonzero(~column.missing & roles.located)
            limits = _limits(column.values[observed], part)
            left, right = axes[row]
            stds = part.std if part.map is None else part.map.std[np.isfinite(part.map.std)]
            largest_std = float(np.quantile(stds, 0.99)) if len(stds) else 1.0
            if grid is not None and part.map is not None:
                _draw_cells(figure, left, grid, part.map.mean, limits, "viridis")
                _draw_cells(figure, right, grid, part.map.std, (0.0, largest_std), "magma_r")
            filled = _thinned(np.arange(len(part.rows)))
            seen = _thinned(observed)
            at, size = part.rows[filled], float(np.clip(90 / np.sqrt(max(len(observed), 1)), 1.0, 4.5)) ** 2
            edge = {"linewidths": 0.3 if grid is not None and size > 4 else 0, "edgecolors": "white"}
            dots = left.scatter(
                across[seen], up[seen], s=size, c=column.values[seen], cmap="viridis", vmin=limits[0], vmax=limits[1],
                label="observed", zorder=3, **edge,
            )  # fmt: skip
            right.scatter(across[seen], up[seen], s=0.5 * size, c="#B8B8B8", linewidths=0, label="observed", zorder=1)
            if len(at):
                marks = {"s": max(2.2 * size, 14), "edgecolors": "#222222", "linewidths": 0.7, "zorder": 4}
                left.scatter(
                    across[at], up[at], c=part.mean[filled], cmap="viridis", vmin=limits[0], vmax=limits[1],
                    label="filled", **marks,
                )  # fmt: skip
                marks["linewidths"] = 0.3
                stds = right.scatter(
                    across[at], up[at], c=part.std[filled], cmap="magma_r", vmin=0, vmax=largest_std, **marks
                )
                if grid is None:
                    figure.colorbar(stds, ax=right, fraction=0.05, pad=0.02)
            if grid is None:
                figure.colorbar(dots, ax=left, fraction=0.05, pad=0.02)
            left.set_title(name)
            right.set_title(f"{name}, standard deviation")
            for axis in (left, right):
                axis.margins(0.02)
                axis.set_xlabel(roles.names[0] if row == len(names) - 1 else "")
                if aspect:
                    axis.set_aspect(aspect[0])
                if roles.locations[0].clock is not None:
                    axis.tick_params(axis="x", rotation=30)
            left.set_ylabel(roles.names[1])
        axes[0, 0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.2, handletextpad=0.1)
        remarks = [f"{len(prediction) - len(names)} more columns"] if len(prediction) > len(names) else []
        figure.supxlabel("; ".join([*_hidden_coordinates(roles, grid), *remarks]), fontsize=8)
    return figure


def _moments(column: TypedColumn, values: ndarray) -> ndarray:
    return values.astype("datetime64[us]") if column.clock is not None else values


def _thinned(rows: Int[ndarray, "n"]) -> Int[ndarray, "m"]:
    """Return as many rows as can be drawn."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, _MAX_POINTS).astype(int))] if len(rows) else rows


def _limits(values: ndarray, part: Any) -> tuple[float, float]:
    """Return the range of colours: that of most values, so that a few extremes do not flatten the rest."""
    parts = [values, part.mean, *([] if part.map is None else [part.map.mean.ravel()])]
    low, high = np.nanquantile(np.concatenate(parts), [0.005, 0.995])
    return float(low), float(high)


def _aspect(roles: ScatteredRoles) -> tuple[float, float] | None:
    """Return the aspect at which both coordinates have one scale, and the height over the width of the map; None where
    they have other units, or the map would be a strip."""
    first, second = roles.locations[:2]
    if first.clock is not None or second.clock is not None:
        return None
    width, height = (float(np.ptp(column.values[roles.located])) for column in (first, second))
    scale, degrees = 1.0, [column.name.lower() in _DEGREES for column in (first, second)]
    if all(degrees) and first.name.lower().startswith("lon"):
        scale = 1 / max(np.cos(np.deg2rad(float(second.values[roles.located].mean()))), 0.1)
    if any(degrees) and not all(degrees):
        return None
    ratio = height * scale / width if width else np.inf
    return (scale, ratio) if 1 / _MAX_ASPECT <= ratio <= _MAX_ASPECT else None


def _draw_cells(
    figure: "Figure", axis: "Axes", grid: MapGrid, values: ndarray, limits: tuple[float, float], colours: str
) -> None:
    middle = tuple(n // 2 for n in values.shape[2:])
    strides = [slice(None, None, -(-n // _MAX_CELLS)) for n in values.shape[:2]]
    shown = np.ma.masked_invalid(values[(*strides, *middle)].T)
    x, y = (
        _moments(column, cells[stride])
        for column, cells, stride in zip(grid.roles.locations, grid.axes, strides, strict=False)
    )
    mesh = axis.pcolormesh(x, y, shown, shading="nearest", cmap=colours, vmin=limits[0], vmax=limits[1], zorder=0)
    mesh.set_rasterized(True)
    axis.set_facecolor("#E6E6E6")
    figure.colorbar(mesh, ax=axis, fraction=0.05, pad=0.02)


def _hidden_coordinates(roles: ScatteredRoles, grid: MapGrid | None) -> list[str]:
    """Return where the map cuts the coordinates that are not drawn, or that points of all of them are drawn."""
    hidden = roles.locations[2:]
    if grid is None:
        return [f"points at all values of {' and '.join(column.name for column in hidden)}"] if hidden else []
    cuts = (axis[len(axis) // 2 : len(axis) // 2 + 1] for axis in grid.axes[2:])
    return [f"map at {c.name} {format_locations(c, cut)[0]}" for c, cut in zip(hidden, cuts, strict=True)]
