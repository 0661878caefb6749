"""Pictures: lookup, corruption, deletion, and attention against distance."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fillin.plots import BLUE, FAINT, GREEN, INK, ORANGE, panels, save, style
from fillin_studies.tables.methods import OURS
from fillin_studies.tables.ranks import ACCURACY, RMSE
from fillin_studies.uses_rows.delete import LEFT, ORDERS
from fillin_studies.uses_rows.models import ABOUT
from fillin_studies.uses_rows.results import by_set, looked_up, minus

_ACROSS = 4  # small panels side by side
_WHERE = {  # of the lookup task: what is drawn
    "seen": ("copies shown", BLUE, "o"),
    "targets": ("their targets shuffled", ORANGE, "v"),
    "corrupted": ("all columns shuffled", ORANGE, "s"),
    "unseen": ("copies not shown", FAINT, "o"),
}


def draw(measured: Sequence[dict[str, Any]], folder: Path) -> dict[str, str]:
    """What there is to draw, with captions."""
    found: dict[str, str] = {}
    first = [one for one in measured if "attention" in one]
    if tasks := looked_up(measured):
        _lookup(tasks, folder / "lookup.png")
        found["lookup.png"] = (
            "Random targets that only the other copy of a row tells: R² or accuracy, of pairs that were not learnt. "
            "Dashed: chance. What is below −1 is drawn there."
        )
    if by_set(measured, OURS):
        _corruption(measured, folder / "corruption.png")
        found["corruption.png"] = (
            "Held-out rows, with the right rows to look at and with rows whose columns are shuffled one by one; mean "
            "over splits with standard errors."
        )
    if first:
        _grid(first, _deletion, folder / "deletion.png", legend=True)
        found["deletion.png"] = (
            "The score against the share of the rows that is left, deleted in three orders (of each asked row its own; "
            f"first split, {OURS}). Dotted: without the right rows at all, all columns shuffled."
        )
        _kept(first, folder / "kept.png")
        found["kept.png"] = (
            "Distance in features, in means of each asked row, of rows that had to be kept for what is said to stay "
            "the same, and of rows that could be deleted: median, middle half and middle nine tenths."
        )
        _grid(first, _attention, folder / "attention.png", height=2.1)
        found["attention.png"] = (
            "Attention between rows (1: an even look) against distance in features (1: the mean of an asked row): "
            "pairs, more of the near ones, and the means of twentieths by distance; ρ is the rank correlation."
        )
    return found


def _lookup(tasks: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    with style():
        names = [name for name in ABOUT if any(name in models for models in tasks.values())]
        figure, [row] = panels(1, len(tasks), width=max(9.0, 1.8 + 2.3 * len(tasks)), height=3.2, sharey=True)
        for panel, (task, models) in zip(row, tasks.items(), strict=True):
            numbers = next(iter(models.values()))["chance"] == 0
            panel.axvline(
                next(iter(models.values()))["chance"], color=INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0
            )
            for key, (label, ink, mark) in reversed(_WHERE.items()):
                low = -1 if numbers else 0
                every = [(models[n][key], y) for y, n in enumerate(names) if n in models and key in models[n]]
                at = [(min(max(x, low), 1), y) for x, y in every if math.isfinite(x)]
                # what is empty and not clipped has no bounds, and a layout needs them
                hollow = key in ("corrupted", "unseen")
                panel.plot(
                    [x for x, _ in at], [y for _, y in at], mark, color=ink, markersize=5, label=label,
                    markerfacecolor="white" if hollow else ink, clip_on=not at,
                )  # fmt: skip
            panel.set_title(task)
            panel.set_xlabel("R²" if numbers else "accuracy")
            panel.set_xlim(*((-1.05, 1.05) if numbers else (0, 1.02)))
            panel.set_xticks((-1, -0.5, 0, 0.5, 1) if numbers else (0, 0.5, 1))
            panel.set_yticks(range(len(names)), names)
            panel.grid(axis="y", color="#EEEEEE", linewidth=0.6)
        row[0].set_ylim(len(names) - 0.5, -0.5)
        handles, labels = row[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=3)
    save(figure, path)


def _corruption(measured: Sequence[dict[str, Any]], path: Path) -> None:
    """RMSE in that with the right rows; accuracy as it is."""
    marks = {OURS: ("o", BLUE, ORANGE), "npt": ("s", GREEN, ORANGE)}
    ours = by_set(measured, OURS)
    with style():
        measures = [measure for measure in (RMSE, ACCURACY) if any(one.measure is measure for one in ours)]
        figure, [row] = panels(
            1, len(measures), width=max(9.0, 1.0 + 4.0 * len(measures)), height=max(2.0, 0.9 + 0.28 * len(ours))
        )
        for panel, measure in zip(row, measures, strict=True):
            names = [one.data for one in ours if one.measure is measure]
            for model, (mark, right, wrong) in marks.items():
                shift = 0.0 if model == OURS else 0.25
                for one in by_set(measured, model):
                    if one.measure is not measure:
                        continue
                    y = names.index(one.data) + shift
                    ends = [one.mean(measure, where) for where in ("right", "corrupted")]
                    if measure is RMSE:
                        change = one.change(RMSE)
                        ends = [type(change)(1.0, 0.0), type(change)(1 + change.value / 100, change.error / 100)]
                    panel.plot([end.value for end in ends], [y, y], "-", color="#CCCCCC", linewidth=2, zorder=1)
                    for end, ink, what in zip(ends, (right, wrong), ("right rows", "corrupted rows"), strict=True):
                        panel.errorbar(end.value, y, xerr=end.error, fmt=mark, color=ink, markersize=4.5, linewidth=1,
                                       label=f"{model}, {what}", clip_on=False)  # fmt: skip
            panel.set_yticks(range(len(names)), names)
            panel.set_ylim(len(names) - 0.4, -0.6)
            panel.set_xlabel("RMSE, in that with the right rows" if measure is RMSE else "accuracy")
            panel.margins(x=0.05)
            panel.grid(axis="y", color="#EEEEEE", linewidth=0.6)
        handles = {label: one for panel in row for one, label in zip(*panel.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    save(figure, path)


def _grid(
    first: Sequence[dict[str, Any]], drawn: Callable[[Axes, dict[str, Any]], None], path: Path, height: float = 1.9,
    legend: bool = False,
) -> None:  # fmt: skip
    """A small panel each set."""
    across = min(_ACROSS, len(first))
    rows = -(-len(first) // across)
    with style():
        figure, axes = panels(rows, across, width=0.6 + 2.4 * across, height=height)
        for number, panel in enumerate(axes.flat):
            if number >= len(first):
                panel.set_visible(False)
                continue
            drawn(panel, first[number])
            if number + across < len(first):
                panel.set_xlabel("")
            if number % across and panel.get_ylabel() == axes.flat[number - 1].get_ylabel():
                panel.set_ylabel("")
        if legend:
            figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    save(figure, path)


def _deletion(panel: Axes, one: dict[str, Any]) -> None:
    for order, ink in zip(ORDERS, (BLUE, FAINT, ORANGE), strict=True):
        panel.plot(
            LEFT, one["deleted"][order], ".-", color=ink, linewidth=1.3, markersize=5, label=order, clip_on=False
        )
    numbers = one["group"] == "regression"
    if numbers:
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
    wrong = one["corrupted"]["rmse" if numbers else "accuracy"]
    panel.axhline(wrong, color=INK, linewidth=0.8, linestyle=":")
    panel.set_xscale("log")
    panel.set_xlim(1, LEFT[-1])
    ticks = (1.0, 0.1, 0.01)
    panel.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
    panel.minorticks_off()
    panel.set_title(one["data"])
    panel.set_xlabel("rows left")
    panel.set_ylabel("RMSE" if numbers else "accuracy")


def _kept(first: Sequence[dict[str, Any]], path: Path) -> None:
    with style():
        figure, [[panel]] = panels(1, 1, width=6.5, height=0.9 + 0.32 * len(first))
        for y, one in enumerate(first):
            for key, shift, ink in (("kept_far", -0.15, BLUE), ("deleted_far", 0.15, FAINT)):
                if levels := one["kept"][key]:
                    low, start, middle, end, high = levels
                    label = {"kept_far": "kept", "deleted_far": "deleted"}[key] if y == 0 else None
                    panel.plot([low, high], [y + shift] * 2, "-", color=ink, linewidth=0.8)
                    panel.plot(
                        [start, end], [y + shift] * 2, "-", color=ink, linewidth=4, solid_capstyle="butt", label=label
                    )
                    panel.plot(middle, y + shift, "o", color="white", markeredgecolor=ink, markersize=4.5)
        names = [f"{one['data']} ({one['kept']['kept']:.0f} of {one['kept']['rows']} kept)" for one in first]
        panel.set_yticks(range(len(first)), names)
        panel.set_ylim(len(first) - 0.5, -0.5)
        panel.set_xlim(left=0)
        panel.set_xlabel("distance in features, in means of each asked row")
        figure.legend(loc="outside lower center", ncols=2)
    save(figure, path)


def _attention(panel: Axes, one: dict[str, Any]) -> None:
    found = one["attention"]
    far, looks = np.array(found["dots"])
    least = 1e-3
    panel.plot(far, np.maximum(looks, least), ".", color=BLUE, alpha=0.35, markersize=3.5, markeredgewidth=0)
    panel.plot(found["far"], np.maximum(found["nearest"], least), "-", color=ORANGE, linewidth=1.6)
    panel.axhline(1, color=INK, linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    panel.set_yscale("log")
    panel.minorticks_off()
    panel.set_xlim(left=0)
    panel.set_title(minus(f"{one['data']}, ρ = {found['rank_correlation']:+.2f}"))
    panel.set_xlabel("distance")
    panel.set_ylabel("attention")
