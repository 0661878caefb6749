"""A picture of what was filled, and how surely."""

from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from fillin.filling.api import Plan
from fillin.filling.prediction import NumericPrediction
from fillin.filling.series.infer_roles import SeriesRoles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS = 6
_MARKS = 20_000  # points that are drawn one by one
_BANDS = ("low", "high", 0.16, None), ("lower_quartile", "upper_quartile", 0.26, 0.5)


def draw(plan: Plan, filled: dict[str, NumericPrediction]) -> "Figure":
    """A panel for each column and group: known points, filled ones with the central half and the band."""
    from fillin.plots import panels, style

    roles, chosen = plan.roles, _chosen(plan, filled)
    with style():
        figure, axes = panels(len(chosen), 1, width=9.0, height=2.6 if len(chosen) > 1 else 3.4)
        for axis, (column, number) in zip(axes[:, 0], chosen, strict=True):
            group = roles.groups[number]
            _panel(axis, plan, column, number, filled[column])
            title = column if not group.name else f"{column}, {group.name}"
            axis.set_title(title)
            axis.set_xlabel(roles.x.name if axis is axes[-1, 0] else "")
        axes[0, 0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, borderaxespad=0.2)
        left_out = len({(one.column, one.group) for one in plan.series}) - len(chosen)
        if left_out:
            figure.supxlabel(f"and {left_out:,} more", fontsize=8)
    return figure


def _chosen(plan: Plan, filled: dict[str, NumericPrediction]) -> list[tuple[str, int]]:
    """The (column, group)s in which most was filled, in their order."""
    number = {group.name: i for i, group in enumerate(plan.roles.groups)}
    most = sorted(plan.series, key=lambda one: -len(one.at))[:_PANELS]
    return [(one.column, number[one.group]) for one in plan.series if one in most and one.column in filled]


def _panel(axis: "Axes", plan: Plan, name: str, number: int, filled: NumericPrediction) -> None:
    from fillin.plots import BLUE, INK

    roles, rows = plan.roles, plan.roles.table.n_rows
    column, group = roles.table.column(name), roles.groups[number]
    x = _across(roles, plan.new.x)
    known = group.rows[~column.missing[group.rows]]
    mine = np.zeros(rows + len(plan.new.x), dtype=bool)
    mine[group.rows] = True
    mine[rows + np.flatnonzero(plan.new.group == number)] = True
    own = np.flatnonzero(mine[filled.rows])
    line, alone = _line(x, column.values, known, filled, own)
    for low, high, alpha, share in _BANDS:
        label = f"{plan.asked.level if share is None else share:.0%}"
        axis.fill_between(line["x"], line[low], line[high], color=BLUE, alpha=alpha, linewidth=0, label=label)
    axis.plot(line["x"], line["mean"], color=BLUE, linewidth=1.0, zorder=3, label="filled")
    at = x[filled.rows[alone]]  # a band of one place is hardly seen
    axis.vlines(at, filled.low[alone], filled.high[alone], color=BLUE, linewidth=0.8, alpha=0.6)
    axis.plot(at, filled.mean[alone], "o", color=BLUE, markersize=2.4, zorder=4)
    few = known[np.unique(np.linspace(0, len(known) - 1, _MARKS).astype(int))]
    size = float(np.clip(60 / np.sqrt(len(known)), 0.8, 3.2))
    axis.plot(x[few], column.values[few], "o", color=INK, markersize=size, markeredgewidth=0, zorder=5, label="known")
    _heights(axis, column.values[known], filled, own)


def _across(roles: SeriesRoles, new: ndarray) -> ndarray:
    """Places of all rows, those of the table first, as matplotlib draws them."""
    both = np.concatenate([roles.x.values, new])
    return both.astype("datetime64[us]") if roles.x.clock is not None else both


def _line(
    x: ndarray, values: ndarray, known: ndarray, filled: NumericPrediction, own: ndarray
) -> tuple[dict[str, ndarray], ndarray]:
    """Every gap with the known point on either side, where the band is no wider than that, and NaN between gaps; and
    those of `own` that are alone in their gap."""
    place = np.concatenate([x[known], x[filled.rows[own]]])
    order = np.argsort(place, kind="stable")
    blank = _longest(order >= len(known))
    beside = blank | np.roll(blank, 1) | np.roll(blank, -1)
    beside[0], beside[-1] = blank[:2].any(), blank[-2:].any()
    beside &= blank | (order < len(known))
    keep = beside | np.append(False, beside[:-1])  # one that is not beside a gap ends it
    found = {"x": place[order][keep]}
    for name in ("mean", "low", "high", "lower_quartile", "upper_quartile"):
        every = np.concatenate([values[known], getattr(filled, name)[own]])[order]
        found[name] = np.where(beside, every, np.nan)[keep]
    alone = blank & ~np.append(False, blank[:-1]) & ~np.append(blank[1:], False)
    return found, own[order[alone] - len(known)]


def _longest(blank: ndarray) -> ndarray:
    """As many of the runs of blanks as can be drawn; the longest, for the others could not be seen."""
    if blank.sum() <= _MARKS:
        return blank
    run = np.cumsum(np.diff(blank, prepend=False))  # odd: a run of blanks
    length = np.bincount(run)
    length[::2] = 0
    longest = np.argsort(-length, kind="stable")
    drawn = np.cumsum(length[longest]) <= _MARKS
    drawn[0] = True
    return blank & np.isin(run, longest[drawn])


def _heights(axis: "Axes", known: ndarray, filled: NumericPrediction, own: ndarray) -> None:
    """All of what is known and most of the bands: one place that is anyone's guess does not flatten the rest."""
    ends = np.concatenate([filled.low[own], filled.high[own]])
    low, high = np.quantile(ends, [0.02, 0.98]) if len(ends) else (known.min(), known.max())
    low, high = min(low, known.min()), max(high, known.max())
    if low < high:
        axis.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
