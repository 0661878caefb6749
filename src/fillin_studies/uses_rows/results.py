"""Results by data set, and figures: lookup, corruption of context rows, deletion, and attention against distance."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fillin.plots import BLUE, FAINT, GREEN, INK, ORANGE
from fillin_studies.curves import drawing
from fillin_studies.report import Metric, with_minus
from fillin_studies.tables import ACCURACY, LIKELIHOOD, RMSE, MeanError
from fillin_studies.tables.methods import OURS
from fillin_studies.uses_rows.experiments import ABOUT, ORDERS, SHARES_LEFT

LookupResults = dict[str, dict[str, dict[str, Any]]]  # [task][model]
_MIN_EFFECT = {RMSE.key: 1.0, ACCURACY.key: -0.005}  # per cent of the RMSE, and accuracy


class CorruptionEffect:
    """Scores of one data set and model over splits, with the true context rows and with corrupted ones."""

    def __init__(self, cells: Sequence[dict[str, Any]]):
        self.cells = cells
        first = cells[0]
        self.data, self.rows, self.columns = first["data"], first["rows"], first["columns"]
        self.metric = RMSE if first["group"] == "regression" else ACCURACY

    def mean(self, metric: Metric, context: str) -> MeanError:
        return MeanError.of(cell[context][metric.key] for cell in self.cells)

    def change(self, metric: Metric, context: str = "corrupted") -> MeanError:
        """Return the change split by split: of RMSE in per cent, of others the difference."""
        pairs = [(cell["right"][metric.key], cell[context][metric.key]) for cell in self.cells]
        return MeanError.of(100 * (b / a - 1) if metric is RMSE else b - a for a, b in pairs)

    @property
    def matters(self) -> bool:
        """True if the score is worse by more than two standard errors, and by more than a minimal effect."""
        change, least = self.change(self.metric), _MIN_EFFECT[self.metric.key]
        sign = 1 if least > 0 else -1
        return sign * change.value > max(sign * least, 2 * change.error)

    @property
    def less_certain(self) -> bool:
        """True if the log-likelihood is worse by more than two standard errors."""
        change = self.change(LIKELIHOOD)
        return -change.value > max(0.01, 2 * change.error)

    def format_change(self, context: str = "corrupted") -> str:
        change = self.change(self.metric, context)
        value, error = ("+.0f", ".0f") if self.metric is RMSE else ("+.3f", ".3f")
        spread = f" ± {change.error:{error}}" if len(self.cells) > 1 else ""
        return with_minus(f"{change.value:{value}}{spread}{' %' if self.metric is RMSE else ''}")

    def __str__(self) -> str:
        return f"{self.data} ({self.metric.title} {self.format_change()})"


def corruption_effects(measured: Sequence[dict[str, Any]], model: str) -> list[CorruptionEffect]:
    """Group the cells of a model by data set."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for cell in measured:
        if cell["part"] == "sets" and cell["model"] == model:
            sets.setdefault(cell["data"], []).append(cell)
    return [CorruptionEffect(cells) for cells in sets.values()]


def lookup_results(measured: Sequence[dict[str, Any]]) -> LookupResults:
    results: LookupResults = {}
    for cell in measured:
        if cell["part"] == "lookup":
            results.setdefault(cell["task"], {})[cell["model"]] = cell
    return results


_LOOKUP_MARKS = {
    "seen": ("copies shown", BLUE, "o"),
    "targets": ("their targets shuffled", ORANGE, "v"),
    "corrupted": ("all columns shuffled", ORANGE, "s"),
    "unseen": ("copies not shown", FAINT, "o"),
}


def draw_figures(measured: Sequence[dict[str, Any]], folder: Path) -> dict[str, str]:
    """Draw all figures that the results allow; return captions by file."""
    captions: dict[str, str] = {}
    first = [cell for cell in measured if "attention" in cell]
    if tasks := lookup_results(measured):
        _draw_lookup(tasks, folder / "lookup.png")
        captions["lookup.png"] = (
            "Random targets that only the other copy of a row reveals: R² or accuracy on new pairs. Dashed: chance. "
            "Values below −1 are drawn at −1."
        )
    if corruption_effects(measured, OURS):
        _draw_corruption(measured, folder / "corruption.png")
        captions["corruption.png"] = (
            "Test rows, with the true context rows and with rows whose columns are shuffled one by one; mean over "
            "splits with standard errors."
        )
    if first:
        _draw_grid(first, _plot_deletion, folder / "deletion.png", legend=True)
        captions["deletion.png"] = (
            "Score against the share of the rows that is left, deleted in three orders (for each test row its own; "
            f"first split, {OURS}). Dotted: all columns of the context rows shuffled."
        )
        _draw_kept(first, folder / "kept.png")
        captions["kept.png"] = (
            "Distance in features, relative to the mean of each test row, of rows that had to be kept for an unchanged "
            "prediction, and of rows that could be deleted: median, middle half and middle nine tenths."
        )
        _draw_grid(first, _plot_attention, folder / "attention.png", height=2.1)
        captions["attention.png"] = (
            "Attention between rows (1: uniform) against distance in features (1: the mean of a test row): "
            "pairs, more of the near ones, and the means of twentieths by distance; ρ is the rank correlation."
        )
    return captions


def _draw_lookup(tasks: LookupResults, path: Path) -> None:
    names = [name for name in ABOUT if any(name in models for models in tasks.values())]
    width = max(9.0, 1.8 + 2.3 * len(tasks))
    with drawing(path, 1, len(tasks), width=width, height=3.2, sharey=True) as (figure, [row]):
        for panel, (task, models) in zip(row, tasks.items(), strict=True):
            chance = next(iter(models.values()))["chance"]
            numbers = chance == 0
            panel.axvline(chance, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
            for key, (label, colour, mark) in reversed(_LOOKUP_MARKS.items()):
                low = -1 if numbers else 0
                scores = [(models[n][key], y) for y, n in enumerate(names) if n in models and key in models[n]]
                points = [(min(max(x, low), 1), y) for x, y in scores if math.isfinite(x)]
                panel.plot(
                    [x for x, _ in points], [y for _, y in points], mark, color=colour, markersize=5, label=label,
                    markerfacecolor="white" if key in ("corrupted", "unseen") else colour,
                    clip_on=not points,  # the layout needs bounds, which an empty line has only if it is clipped
                )  # fmt: skip
            panel.set(title=task, xlabel="R²" if numbers else "accuracy", xlim=(-1.05, 1.05) if numbers else (0, 1.02))
            panel.set_xticks((-1, -0.5, 0, 0.5, 1) if numbers else (0, 0.5, 1))
            panel.set_yticks(range(len(names)), names)
            panel.grid(axis="y", color="#EEEEEE", linewidth=0.6)
        row[0].set_ylim(len(names) - 0.5, -0.5)
        handles, labels = row[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=3)


def _draw_corruption(measured: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw RMSE relative to that with the true rows, and accuracy."""
    marks = {OURS: ("o", BLUE, ORANGE), "npt": ("s", GREEN, ORANGE)}
    ours = corruption_effects(measured, OURS)
    metrics = [metric for metric in (RMSE, ACCURACY) if any(effect.metric is metric for effect in ours)]
    size = {"width": max(9.0, 1.0 + 4.0 * len(metrics)), "height": max(2.0, 0.9 + 0.28 * len(ours))}
    with drawing(path, 1, len(metrics), **size) as (figure, [row]):
        for panel, metric in zip(row, metrics, strict=True):
            names = [effect.data for effect in ours if effect.metric is metric]
            for model, (mark, *colours) in marks.items():
                for effect in corruption_effects(measured, model):
                    if effect.metric is not metric:
                        continue
                    y = names.index(effect.data) + (0.0 if model == OURS else 0.25)
                    ends = [effect.mean(metric, context) for context in ("right", "corrupted")]
                    if metric is RMSE:
                        change = effect.change(RMSE)
                        ends = [MeanError(1.0, 0.0), MeanError(1 + change.value / 100, change.error / 100)]
                    panel.plot([end.value for end in ends], [y, y], "-", color="#CCCCCC", linewidth=2, zorder=1)
                    for end, colour, rows in zip(ends, colours, ("true rows", "corrupted rows"), strict=True):
                        panel.errorbar(end.value, y, xerr=end.error, fmt=mark, color=colour, markersize=4.5,
                                       linewidth=1, label=f"{model}, {rows}", clip_on=False)  # fmt: skip
            panel.set_yticks(range(len(names)), names)
            panel.set_ylim(len(names) - 0.4, -0.6)
            panel.set_xlabel("RMSE relative to the true rows" if metric is RMSE else "accuracy")
            panel.margins(x=0.05)
            panel.grid(axis="y", color="#EEEEEE", linewidth=0.6)
        handles = {text: mark for panel in row for mark, text in zip(*panel.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)


def _draw_grid(
    first: Sequence[dict[str, Any]], plot: Callable[[Axes, dict[str, Any]], None], path: Path, height: float = 1.9,
    legend: bool = False,
) -> None:  # fmt: skip
    """Draw a small panel for each data set."""
    across = min(4, len(first))
    rows = -(-len(first) // across)
    with drawing(path, rows, across, width=0.6 + 2.4 * across, height=height) as (figure, axes):
        for number, panel in enumerate(axes.flat):
            if number >= len(first):
                panel.set_visible(False)
                continue
            plot(panel, first[number])
            if number + across < len(first):
                panel.set_xlabel("")
            if number % across and panel.get_ylabel() == axes.flat[number - 1].get_ylabel():
                panel.set_ylabel("")
        if legend:
            figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def _plot_deletion(panel: Axes, cell: dict[str, Any]) -> None:
    for order, colour in zip(ORDERS, (BLUE, FAINT, ORANGE), strict=True):
        style = {"color": colour, "linewidth": 1.3, "markersize": 5, "clip_on": False}
        panel.plot(SHARES_LEFT, cell["deleted"][order], ".-", label=order, **style)
    numbers = cell["group"] == "regression"
    if numbers:
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
    corrupted = cell["corrupted"]["rmse" if numbers else "accuracy"]
    panel.axhline(corrupted, color=INK, linewidth=0.8, linestyle=":")
    panel.set(xscale="log", xlim=(1, SHARES_LEFT[-1]))
    panel.set_xticks((1.0, 0.1, 0.01), ["100%", "10%", "1%"])
    panel.minorticks_off()
    panel.set(title=cell["data"], xlabel="rows left", ylabel="RMSE" if numbers else "accuracy")


def _draw_kept(first: Sequence[dict[str, Any]], path: Path) -> None:
    with drawing(path, width=6.5, height=0.9 + 0.32 * len(first)) as (figure, [[panel]]):
        for y, cell in enumerate(first):
            for name, shift, colour in (("kept", -0.15, BLUE), ("deleted", 0.15, FAINT)):
                if levels := cell["kept"][f"{name}_far"]:
                    low, start, middle, end, high = levels
                    label = name if y == 0 else None
                    panel.plot([low, high], [y + shift] * 2, "-", color=colour, linewidth=0.8)
                    line = {"linewidth": 4, "solid_capstyle": "butt"}
                    panel.plot([start, end], [y + shift] * 2, "-", color=colour, label=label, **line)
                    panel.plot(middle, y + shift, "o", color="white", markeredgecolor=colour, markersize=4.5)
        names = [f"{cell['data']} ({cell['kept']['kept']:.0f} of {cell['kept']['rows']} kept)" for cell in first]
        panel.set_yticks(range(len(first)), names)
        panel.set(ylim=(len(first) - 0.5, -0.5), xlabel="distance in features, relative to the mean of each test row")
        panel.set_xlim(left=0)
        figure.legend(loc="outside lower center", ncols=2)


def _plot_attention(panel: Axes, cell: dict[str, Any]) -> None:
    attention = cell["attention"]
    distances, weights = np.array(attention["dots"])
    least = 1e-3
    panel.plot(distances, np.maximum(weights, least), ".", color=BLUE, alpha=0.35, markersize=3.5, markeredgewidth=0)
    panel.plot(attention["far"], np.maximum(attention["nearest"], least), "-", color=ORANGE, linewidth=1.6)
    panel.axhline(1, color=INK, linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    panel.set_yscale("log")
    panel.minorticks_off()
    panel.set_xlim(left=0)
    title = with_minus(f"{cell['data']}, ρ = {attention['rank_correlation']:+.2f}")
    panel.set(title=title, xlabel="distance", ylabel="attention")
