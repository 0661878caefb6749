"""Figure of filled series: observed points, predictions and their intervals."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from fillin.filling.prediction import NumericPrediction
from fillin.filling.series.infer_roles import NewRows, SeriesRoles
from fillin.filling.series.plan import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_PANELS = 6
_MAX_POINTS = 20_000  # drawn one by one


def draw_series(
    roles: SeriesRoles, new: NewRows, series: list[Series], prediction: Mapping[str, NumericPrediction], level: float
) -> "Figure":
    """Draw a panel for each column and group with most predictions, with the quartiles and the interval of `level`."""
    from fillin.plots import panels, style

    number_of = {group.name: number for number, group in enumerate(roles.groups)}
    longest = sorted(series, key=lambda s: -len(s.at))[:_MAX_PANELS]
    chosen = [(s.column, number_of[s.group]) for s in series if s in longest and s.column in prediction]
    with style():
        figure, axes = panels(len(chosen), 1, width=9.0, height=2.6 if len(chosen) > 1 else 3.4)
        for axis, (column, number) in zip(axes[:, 0], chosen, strict=True):
            group = roles.groups[number].name
            _draw_panel(axis, roles, new, column, number, prediction[column], level)
            axis.set_title((column if not group else f"{column}, {group}") + _describe_nearest(roles, number))
            axis.set_xlabel(roles.x.name if axis is axes[-1, 0] else "")
        axes[0, 0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, borderaxespad=0.2)
        left_out = len({(s.column, s.group) for s in series}) - len(chosen)
        if left_out:
            figure.supxlabel(f"and {left_out:,} more", fontsize=8)
    return figure


def _describe_nearest(roles: SeriesRoles, number: int) -> str:
    """Return the stations nearest to that of a group, with their distances, where distances are used."""
    locations = roles.locations_of_stations
    if locations is None or not roles.by_distance:
        return ""
    count = len(roles.groups)
    stations = locations.stations(np.arange(count), np.zeros(count, dtype=int))
    distance = stations.distances()[number]
    nearest = np.argsort(np.where(np.arange(count) == number, np.inf, distance), kind="stable")[: min(2, count - 1)]
    return ", near " + ", ".join(f"{roles.groups[k].name} ({stations.format_distance(distance[k])})" for k in nearest)


def _draw_panel(
    axis: "Axes", roles: SeriesRoles, new: NewRows, name: str, number: int, prediction: NumericPrediction, level: float
) -> None:
    from fillin.plots import BLUE, INK

    n_rows = roles.table.n_rows
    column, group = roles.table.column(name), roles.groups[number]
    x = np.concatenate([roles.x.values, new.x])
    x = x.astype("datetime64[us]") if roles.x.clock is not None else x  # of all rows, new ones last
    observed = group.rows[~column.missing[group.rows]]
    in_group = np.zeros(n_rows + len(new.x), dtype=bool)
    in_group[group.rows] = True
    in_group[n_rows + np.flatnonzero(new.group == number)] = True
    predicted = np.flatnonzero(in_group[prediction.rows])
    line, isolated = _gap_lines(x, column.values, observed, prediction, predicted)
    for low, high, alpha, coverage in (("low", "high", 0.16, level), ("lower_quartile", "upper_quartile", 0.26, 0.5)):
        axis.fill_between(
            line["x"], line[low], line[high], color=BLUE, alpha=alpha, linewidth=0, label=f"{coverage:.0%}"
        )
    axis.plot(line["x"], line["mean"], color=BLUE, linewidth=1.0, zorder=3, label="filled")
    at = x[prediction.rows[isolated]]  # the interval of a single point would hardly be visible
    axis.vlines(at, prediction.low[isolated], prediction.high[isolated], color=BLUE, linewidth=0.8, alpha=0.6)
    axis.plot(at, prediction.mean[isolated], "o", color=BLUE, markersize=2.4, zorder=4)
    drawn = observed[np.unique(np.linspace(0, len(observed) - 1, min(len(observed), _MAX_POINTS)).astype(int))]
    size = float(np.clip(60 / np.sqrt(max(1, len(observed))), 0.8, 3.2))
    axis.plot(
        x[drawn], column.values[drawn], "o", color=INK, markersize=size, markeredgewidth=0, zorder=5, label="observed"
    )
    # all observed values and most intervals: a few very wide ones must not flatten the rest
    values = column.values[observed] if len(observed) else prediction.mean[predicted]
    ends = np.concatenate([prediction.low[predicted], prediction.high[predicted]])
    low, high = np.quantile(ends, [0.02, 0.98]) if len(ends) else (values.min(), values.max())
    low, high = min(low, values.min()), max(high, values.max())
    if low < high:
        axis.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))


def _gap_lines(
    x: ndarray, values: ndarray, observed: ndarray, prediction: NumericPrediction, predicted: ndarray
) -> tuple[dict[str, ndarray], ndarray]:
    """Return the lines to draw, and which of `predicted` are alone in their gap.

    A line covers a gap and the observed point on either side of it, where the interval has no width; NaN separates
    gaps.
    """
    location = np.concatenate([x[observed], x[prediction.rows[predicted]]])
    order = np.argsort(location, kind="stable")
    missing = _longest_gaps(order >= len(observed))
    beside = missing | np.roll(missing, 1) | np.roll(missing, -1)
    beside[0], beside[-1] = missing[:2].any(), missing[-2:].any()
    beside &= missing | (order < len(observed))
    keep = beside | np.append(False, beside[:-1])  # a point that is not beside a gap ends it
    lines = {"x": location[order][keep]}
    for name in ("mean", "low", "high", "lower_quartile", "upper_quartile"):
        both = np.concatenate([values[observed], getattr(prediction, name)[predicted]])[order]
        lines[name] = np.where(beside, both, np.nan)[keep]
    isolated = missing & ~np.append(False, missing[:-1]) & ~np.append(missing[1:], False)
    return lines, predicted[order[isolated] - len(observed)]


def _longest_gaps(missing: ndarray) -> ndarray:
    """Return as many gaps as can be drawn: the longest, since shorter ones would not be visible."""
    if missing.sum() <= _MAX_POINTS:
        return missing
    run = np.cumsum(np.diff(missing, prepend=False))  # odd in a gap
    length = np.bincount(run)
    length[::2] = 0
    longest = np.argsort(-length, kind="stable")
    drawn = np.cumsum(length[longest]) <= _MAX_POINTS
    drawn[0] = True
    return missing & np.isin(run, longest[drawn])
