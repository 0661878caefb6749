"""Figures of the study `sheets`: ratios to the best baseline, and columns with a long gap."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from fillin.plots import BLUE, FAINT, INK, ORANGE
from fillin.predictive import GaussianMixture
from fillin_studies.curves import drawing, line_style
from fillin_studies.sheets.data import SheetDataset
from fillin_studies.sheets.methods import JOINT, METHODS, fill, predict_jointly
from fillin_studies.sheets.results import RMSE, Boards, find_best, has

_EXAMPLES = ("blocks", "column")
_ABREAST = 4  # panels
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_MARGIN = 0.75  # of the gap, drawn on each side of it


def draw_ratios(boards: Boards, path: Path) -> bool:
    """Draw a panel for each pattern, a column for each sheet, a mark for each method. False: there is nothing."""
    best = {(pattern, data): boards[pattern].mean(data, name, RMSE).value for pattern, data, name in find_best(boards)}
    patterns = list(dict.fromkeys(pattern for pattern, _ in best))
    if not patterns:
        return False
    names = [name for name in METHODS if any(has(boards[pattern], data, name) for pattern, data in best)]
    with drawing(path, len(patterns), width=8.5, height=2.2) as (_, axes):
        for [panel], pattern in zip(axes, patterns, strict=True):
            results, sheets = boards[pattern], [data for other, data in best if other == pattern]
            panel.axhline(1, color=FAINT, linewidth=0.7)
            for number, name in enumerate(names):
                places = [place for place, data in enumerate(sheets) if has(results, data, name)]
                means = [results.mean(sheets[place], name, RMSE) for place in places]
                unit = np.array([best[pattern, sheets[place]] for place in places])
                value, error = (np.array([mean[part] for mean in means]) / unit for part in (0, 1))
                panel.errorbar(
                    np.array(places) + 0.7 * ((number + 0.5) / len(names) - 0.5), value,
                    np.stack([np.minimum(error, 0.9 * value), error]), fmt="os^"[number // 6 % 3],
                    color=line_style(number)[0], markersize=6 if name == JOINT else 4, linewidth=1, label=name,
                )  # fmt: skip
            panel.set(yscale="log", xlim=(-0.5, len(sheets) - 0.5), title=pattern, ylabel="RMSE / best baseline")
            panel.set_xticks(range(len(sheets)), sheets)
            low, high = panel.get_ylim()
            panel.set_yticks([tick for tick in _TICKS if low <= tick <= high], minor=False)
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("")
        axes[0][0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return True


def draw_methods(data: SheetDataset, names: Sequence[str], model: str, path: Path) -> str:
    """Draw the longest gap of a sheet with blocks, filled by each method; return the name of the column."""
    case = data.case(_EXAMPLES[0], 0)
    j, start, stop = find_longest_gap(case.hidden)
    around = round(_MARGIN * (stop - start))
    rows, gap = np.arange(max(0, start - around), min(len(case.y), stop + around)), np.arange(start, stop)
    missing = np.flatnonzero(np.isnan(case.observed[:, j]))
    shown = np.isin(missing, gap)
    high = -(-len(names) // _ABREAST)
    with drawing(path, high, _ABREAST, width=11.0, height=1.5, sharex=True, sharey=True) as (_, axes):
        for panel in axes.ravel()[len(names) :]:
            panel.set_visible(False)
        for panel, name in zip(axes.ravel(), names, strict=False):
            filled = fill(case, METHODS[name], model)
            prediction = filled[:, j] if isinstance(filled, np.ndarray) else filled[j]
            panel.plot(rows, case.observed[rows, j], color=INK, linewidth=0.8)
            panel.plot(gap, case.y[gap, j], color=ORANGE, linewidth=0.8)
            if isinstance(prediction, GaussianMixture):
                mixture = prediction[shown]
                low, up = (mixture.quantile(level) for level in (0.025, 0.975))
                panel.fill_between(gap, low, up, color=BLUE, alpha=0.16, linewidth=0)
                panel.plot(gap, mixture.mean, color=BLUE, linewidth=1)
            elif prediction is not None:
                panel.plot(gap, prediction[gap], color=BLUE, linewidth=1)
            panel.set_title(name)
        margin = 0.3 * float(np.ptp(case.y[rows, j])) or 1.0
        axes[0, 0].set_ylim(case.y[rows, j].min() - margin, case.y[rows, j].max() + margin)
    return case.columns[j]


def draw_examples(sheets: Mapping[str, SheetDataset], model: str, path: Path) -> None:
    """Draw the longest gap of each sheet with blocks, and with a piece of a column hidden."""
    with drawing(path, len(sheets), len(_EXAMPLES), width=11.0, height=1.7) as (_, axes):
        for (row, data), (column, pattern) in product(enumerate(sheets.values()), enumerate(_EXAMPLES)):
            panel, case = axes[row, column], data.case(pattern, 0)
            j, start, stop = find_longest_gap(case.hidden)
            around = round(_MARGIN * (stop - start))
            rows = np.arange(max(0, start - around), min(len(case.y), stop + around))
            missing = np.flatnonzero(np.isnan(case.observed[:, j]))
            mixture = predict_jointly(case.observed, model)[j]
            assert mixture is not None
            shown = np.isin(missing, np.arange(start, stop))
            mixture, gap = mixture[shown], missing[shown]
            for inside, alpha in ((0.95, 0.16), (0.5, 0.26)):
                low, high = (mixture.quantile(0.5 + half) for half in (-inside / 2, inside / 2))
                panel.fill_between(gap, low, high, color=BLUE, alpha=alpha, linewidth=0)
            seen = np.flatnonzero(~np.isnan(case.observed[:, j]))
            panel.plot(rows, np.interp(rows, seen, case.observed[seen, j]), color=FAINT, linewidth=0.7)
            panel.plot(rows, case.observed[rows, j], color=INK, linewidth=0.8)
            panel.plot(gap, case.y[gap, j], color=ORANGE, linewidth=0.8)
            panel.plot(gap, mixture.mean, color=BLUE, linewidth=1)
            panel.set_title(f"{pattern}: {data.name}, {case.columns[j]}")


def find_longest_gap(hidden: np.ndarray) -> tuple[int, int, int]:
    """Return the column of the longest run of hidden cells, its first row and the row after it."""
    padded = np.pad(hidden.T.astype(int), ((0, 0), (1, 1)))
    column, start = np.nonzero(np.diff(padded, axis=1) == 1)
    _, stop = np.nonzero(np.diff(padded, axis=1) == -1)
    longest = int(np.argmax(stop - start))
    return int(column[longest]), int(start[longest]), int(stop[longest])
