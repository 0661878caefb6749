"""Figure of a filled table: for each column the observed and the filled values, and their uncertainty."""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from fillin.filling.prediction import ClassPrediction, ColumnPredictions, NumericPrediction
from fillin.filling.table.plan import TablePlan
from fillin.tabular.table import CLASS, DATE, TypedColumn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_PANELS, _MAX_CLASSES, _MAX_MARKS = 8, 10, 2_000  # columns, classes of each, filled cells drawn one by one


def draw_table(plan: TablePlan, prediction: ColumnPredictions) -> "Figure":
    """Draw a panel for each of the columns with most filled cells."""
    from fillin.plots import panels, style

    largest = sorted(plan.all_filled, key=lambda column: -int(column.missing.sum()))[:_MAX_PANELS]
    chosen = [column for column in plan.all_filled if column in largest]
    across = 1 if len(chosen) == 1 else 2
    with style():
        figure, axes = panels(-(-len(chosen) // across), across, width=9.0, height=2.5)
        for axis, column in zip(axes.flat, chosen, strict=False):
            draw = _draw_classes if column.kind == CLASS else _draw_numbers
            draw(axis, column, prediction[column.name])
            axis.set_title(column.name)
        for axis in axes.flat[len(chosen) :]:
            axis.set_visible(False)
        axes.flat[0].legend(loc="upper right")
        captions = []
        if any(column.kind != CLASS for column in plan.all_filled):
            captions.append("below the axis: every filled number, darker where its standard deviation is smaller")
        left_out = len(plan.all_filled) - len(chosen)
        captions += [f"not shown: {left_out:,} more column{'s' * (left_out > 1)}"] if left_out else []
        figure.supxlabel("; ".join(captions), fontsize=8)
    return figure


def _draw_numbers(axis: "Axes", column: TypedColumn, prediction: NumericPrediction) -> None:
    """Draw stacked histograms of observed and filled values; below, each filled value, darker for smaller std."""
    from fillin.plots import BLUE, FAINT

    observed = column.features[~column.missing]
    edges = np.histogram_bin_edges(np.concatenate([observed, prediction.mean]), min(40, 5 + int(len(observed) ** 0.5)))
    locations = _to_times(edges) if column.kind == DATE else edges
    below, above = (np.histogram(values, edges)[0] for values in (observed, prediction.mean))
    axis.stairs(below, locations, fill=True, color=FAINT, alpha=0.45, label="observed")
    axis.stairs(below + above, locations, baseline=below, fill=True, color=BLUE, alpha=0.6, label="filled")
    marked = np.unique(np.linspace(0, len(prediction.rows) - 1, _MAX_MARKS).astype(int))
    at = prediction.mean[marked]
    spread = float(observed.std()) or 1.0
    certainty = np.clip(1 - np.nan_to_num(prediction.std[marked], nan=0.0) / spread, 0, 1)
    low = -0.08 * float((below + above).max())
    colours = [(*_rgb(BLUE), 0.15 + 0.85 * float(c)) for c in certainty]
    axis.vlines(_to_times(at) if column.kind == DATE else at, 1.6 * low, 0.6 * low, colors=colours, linewidth=1.0)
    axis.set_ylim(bottom=2 * low)
    axis.set_ylabel("rows")
    if column.kind == DATE:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(maxticks=5)  # or labels overlap
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _draw_classes(axis: "Axes", column: TypedColumn, prediction: ClassPrediction) -> None:
    """Draw bars of the most frequent classes: observed and, upon these, filled, lighter where less probable."""
    from fillin.plots import BLUE, FAINT

    observed, filled = Counter(column.labels[~column.missing].tolist()), Counter(prediction.labels.tolist())
    words = [word for word, _ in observed.most_common(_MAX_CLASSES)]
    at = np.arange(len(words))
    below = [observed[word] for word in words]
    axis.bar(at, below, 0.7, color=FAINT, alpha=0.45, label="observed")
    certainty = [_mean(prediction.probability[prediction.labels == word]) for word in words]
    colours = [(*_rgb(BLUE), 0.15 + 0.85 * c) for c in certainty]
    axis.bar(at, [filled[word] for word in words], 0.7, bottom=below, color=colours, label="filled")
    short = [word if len(word) <= 12 else word[:11] + "…" for word in words]
    rotated = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if len(words) > 5 else {}
    axis.set_xticks(at, [word.replace("$", r"\$") for word in short], **rotated)
    axis.set_xlim(-0.6, len(words) - 0.4)
    axis.set_ylabel("rows")


def _mean(values: ndarray) -> float:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else 1.0


def _to_times(days: ndarray) -> ndarray:
    return np.rint(days * 86_400).astype("datetime64[s]")


def _rgb(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(colour)
