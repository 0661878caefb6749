"""A picture of a filled table: for each column what was known, what was filled, and how surely."""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from fillin.filling.prediction import ClassPrediction, NumericPrediction, Prediction
from fillin.filling.table.plan import TablePlan
from fillin.tabular.table import CLASS, DATE, TypedColumn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS, _BARS, _MARKS = 8, 10, 2_000  # columns, classes of one, filled cells that are drawn one by one


def draw_table(plan: TablePlan, found: Prediction) -> "Figure":
    """A panel for each of the columns in which most was filled."""
    from fillin.plots import panels, style

    most = sorted(plan.all_fills, key=lambda column: -int(column.missing.sum()))[:_PANELS]
    chosen = [column for column in plan.all_fills if column in most]
    across = 1 if len(chosen) == 1 else 2
    with style():
        figure, axes = panels(-(-len(chosen) // across), across, width=9.0, height=2.5)
        for axis, column in zip(axes.flat, chosen, strict=False):
            one = found[column.name]
            (_classes if isinstance(one, ClassPrediction) else _numbers)(axis, column, one)  # pyright: ignore[reportArgumentType]
            axis.set_title(column.name)
        for axis in axes.flat[len(chosen) :]:
            axis.set_visible(False)
        axes.flat[0].legend(loc="upper right")
        told = ["below the axis: each number that was filled, darker where it is surer"] if _any_numbers(plan) else []
        left_out = len(plan.all_fills) - len(chosen)
        told += [f"not shown: {left_out:,} more column{'s' * (left_out > 1)}"] if left_out else []
        figure.supxlabel("; ".join(told), fontsize=8)
    return figure


def _any_numbers(plan: TablePlan) -> bool:
    return any(column.kind != CLASS for column in plan.all_fills)


def _numbers(axis: "Axes", column: TypedColumn, found: NumericPrediction) -> None:
    """How many values are known and, upon those, how many are filled; below, every filled one, darker the surer."""
    from fillin.plots import BLUE, FAINT

    known = column.features[~column.missing]
    edges = np.histogram_bin_edges(np.concatenate([known, found.mean]), min(40, 5 + int(len(known) ** 0.5)))
    places = _moments(edges) if column.kind == DATE else edges
    below, above = (np.histogram(values, edges)[0] for values in (known, found.mean))
    axis.stairs(below, places, fill=True, color=FAINT, alpha=0.45, label="known")
    axis.stairs(below + above, places, baseline=below, fill=True, color=BLUE, alpha=0.6, label="filled")
    few = np.unique(np.linspace(0, len(found.rows) - 1, _MARKS).astype(int))
    at = found.mean[few]
    spread = float(known.std()) or 1.0
    sure = np.clip(1 - np.nan_to_num(found.std[few], nan=0.0) / spread, 0, 1)
    low = -0.08 * float((below + above).max())
    colours = [(*_rgb(BLUE), 0.15 + 0.85 * float(one)) for one in sure]
    axis.vlines(_moments(at) if column.kind == DATE else at, 1.6 * low, 0.6 * low, colors=colours, linewidth=1.0)
    axis.set_ylim(bottom=2 * low)
    axis.set_ylabel("rows")
    if column.kind == DATE:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        few_dates = AutoDateLocator(maxticks=5)  # or their words run into each other
        axis.xaxis.set_major_locator(few_dates)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(few_dates))


def _classes(axis: "Axes", column: TypedColumn, found: ClassPrediction) -> None:
    """How often the commonest words are known and, upon that, filled: lighter where that is less sure."""
    from fillin.plots import BLUE, FAINT

    known, filled = Counter(column.labels[~column.missing].tolist()), Counter(found.labels.tolist())
    words = [word for word, _ in known.most_common(_BARS)]
    at = np.arange(len(words))
    below = [known[word] for word in words]
    axis.bar(at, below, 0.7, color=FAINT, alpha=0.45, label="known")
    sure = [_mean(found.probability[found.labels == word]) for word in words]
    colours = [(*_rgb(BLUE), 0.15 + 0.85 * one) for one in sure]
    axis.bar(at, [filled[word] for word in words], 0.7, bottom=below, color=colours, label="filled")
    short = [word if len(word) <= 12 else word[:11] + "…" for word in words]
    turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if len(words) > 5 else {}
    axis.set_xticks(at, [word.replace("$", r"\$") for word in short], **turned)
    axis.set_xlim(-0.6, len(words) - 0.4)
    axis.set_ylabel("rows")


def _mean(values: ndarray) -> float:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else 1.0


def _moments(days: ndarray) -> ndarray:
    return np.rint(days * 86_400).astype("datetime64[s]")


def _rgb(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(colour)
