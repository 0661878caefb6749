"""Figures of the study `sheets`: ratios to the best baseline, and columns with a long gap."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np

from fillin.plots import BLUE, FAINT, INK, ORANGE
from fillin_studies.curves import drawing, line_style
from fillin_studies.sheets.data import SEVERAL, SheetDataset
from fillin_studies.sheets.methods import JOINT, METHODS, predict_jointly
from fillin_studies.sheets.results import RMSE, Boards, find_baselines, has

_EXAMPLES = ("blocks", "column")
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_MARGIN = 0.75  # of the gap, drawn on each side of it


def draw_ratios(boards: Boards, path: Path) -> bool:
    """Draw a panel for each pattern, a column for each sheet, a mark for each method. False: there is nothing."""
    patterns = [pattern for pattern in SEVERAL if pattern in boards and _find_best(boards, pattern)]
    if not patterns:
        return False
    names = [name for name in METHODS if any(has(boards[p], data, name) for p in patterns for data in boards[p].sets)]
    with drawing(path, len(patterns), width=8.5, height=2.2) as (_, axes):
        for [panel], pattern in zip(axes, patterns, strict=True):
            best, results = _find_best(boards, pattern), boards[pattern]
            panel.axhline(1, color=FAINT, linewidth=0.7)
            for number, name in enumerate(names):
                places = [i for i, data in enumerate(best) if has(results, data, name)]
                means = [results.mean(data, name, RMSE) for i, data in enumerate(best) if i in places]
                unit = np.array([value for i, value in enumerate(best.values()) if i in places])
                value, error = (np.array([mean[part] for mean in means]) / unit for part in (0, 1))
                panel.errorbar(
                    np.array(places) + 0.7 * ((number + 0.5) / len(names) - 0.5), value,
                    np.stack([np.minimum(error, 0.9 * value), error]), fmt="os^"[number // 6 % 3],
                    color=line_style(number)[0], markersize=6 if name == JOINT else 4, linewidth=1, label=name,
                )  # fmt: skip
            panel.set(yscale="log", xlim=(-0.5, len(best) - 0.5), title=pattern, ylabel="RMSE / best baseline")
            panel.set_xticks(range(len(best)), list(best))
            low, high = panel.get_ylim()
            panel.set_yticks([tick for tick in _TICKS if low <= tick <= high], minor=False)
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_formatter("")
        axes[0][0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return True


def _find_best(boards: Boards, pattern: str) -> dict[str, float]:
    """Return the lowest RMSE of a baseline, by sheet."""
    results, best = boards[pattern], {}
    for data in results.sets:
        names = find_baselines(results, data)
        if names:
            best[data] = min(results.mean(data, name, RMSE).value for name in names)
    return best


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
