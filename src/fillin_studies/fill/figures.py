"""Figures of the study: CRPS of all methods, fills of real curves, and fields."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fillin.plots import BLUE, FAINT, INK, ORANGE, panels, save, style
from fillin_studies.figures import colour
from fillin_studies.fill.data import Case, Field, Found, Series
from fillin_studies.fill.masks import KINDS
from fillin_studies.fill.methods import METHODS, OURS

_SHOWN = ("blocks", "end")


def draw(found: Found, results: Mapping[tuple[str, str], Mapping[str, dict[str, Any]]], folder: Path) -> dict[str, str]:
    """All that can be drawn, with captions."""
    pictures = {"crps.png": "CRPS over the deviation of the series, with standard errors over masks; lower is better."}
    _crps(results, folder / "crps.png")
    series = [one for one in found.sets.values() if isinstance(one, Series)]
    if series and not METHODS[OURS[1]].missing:
        _examples(series, folder / "examples.png")
        pictures["examples.png"] = (
            f"Real curves with blocks or the end hidden (orange), filled by {OURS[1]}: mean, 50 % and 95 % bands; "
            "grey: linear interpolation."
        )
    method = OURS[2] if not METHODS[OURS[2]].missing else "linear"
    for one in found.sets.values():
        if isinstance(one, Field):
            name = f"field-{one.name}.png"
            _field(one, method, folder / name)
            pictures[name] = f"{one.name}: the truth, what is left of it, filled by {method}, and how surely."
    return pictures


def _crps(results, path: Path) -> None:
    """A panel a kind of gap, a column a data set, a mark a method."""
    kinds = [kind for kind in KINDS if any(key[1] == kind for key in results)]
    names = [name for name in METHODS if any("crps" in of.get(name, {}) for of in results.values())]
    with style():
        figure, axes = panels(len(kinds), 1, width=9.5, height=2.6)
        for [panel], kind in zip(axes, kinds, strict=True):
            sets = [data for data, own in results if own == kind]
            for number, name in enumerate(names):
                at = [i for i, data in enumerate(sets) if "crps" in results[data, kind].get(name, {})]
                own = [results[sets[i], kind][name] for i in at]
                x = np.array(at) + 0.7 * ((number + 0.5) / len(names) - 0.5)
                value, error = (np.array([one[key] for one in own]) for key in ("crps", "crps_error"))
                ink, _ = colour(number)
                panel.errorbar(
                    x, value, np.stack([np.minimum(error, 0.9 * value), error]), fmt="os^"[number // 6 % 3], color=ink,
                    markersize=4 if name not in OURS.values() else 6, linewidth=1, label=name,
                )  # fmt: skip
            panel.set_yscale("log")
            panel.set_xlim(-0.5, len(sets) - 0.5)
            panel.set_xticks(range(len(sets)), [name.replace("_", "\n") for name in sets])
            panel.set_title(kind)
            panel.set_ylabel("CRPS / deviation")
        axes[0][0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        save(figure, path)


def _examples(series: list[Series], path: Path) -> None:
    with style():
        figure, axes = panels(len(series), len(_SHOWN), width=11.0, height=1.9, sharex="row", sharey="row")
        for row, one in zip(axes, series, strict=True):
            row[0].set_ylabel(one.name)
            for panel, kind in zip(row, _SHOWN, strict=True):
                _example(panel, one.case(kind, 0))
        for panel, kind in zip(axes[0], _SHOWN, strict=True):
            panel.set_title(kind)
        save(figure, path)


def _example(panel: Axes, case: Case) -> None:
    x, y, _ = case.question
    places = np.linspace(case.x.min(), case.x.max(), 600)
    answer = METHODS[OURS[1]].fill(x, y, places[:, None])
    for inside, alpha in ((0.95, 0.16), (0.5, 0.26)):
        low, high = (answer.quantile(0.5 + half)[:, 0] for half in (-inside / 2, inside / 2))
        panel.fill_between(places, low, high, color=BLUE, alpha=alpha, linewidth=0)
    panel.plot(places, np.interp(places, x[:, 0], y), color=FAINT, linewidth=0.7)
    panel.plot(places, answer.mean[:, 0], color=BLUE, linewidth=1)
    panel.plot(x[:, 0], y, ".", color=INK, markersize=2)
    panel.plot(case.x[case.mask.hidden, 0], case.truth, ".", color=ORANGE, markersize=2.5)
    room = 0.3 * np.ptp(case.y)
    panel.set_ylim(case.y.min() - room, case.y.max() + room)


def _field(one: Field, method: str, path: Path) -> None:
    rows, columns, values = one.grid
    case = one.case("random", 0)
    answer = METHODS[method].fill(*case.question)
    there = np.isfinite(values)

    def on_grid(known, hidden) -> np.ndarray:
        cells, grid = np.full(len(case.y), np.nan), np.full(values.shape, np.nan)
        cells[case.mask.known], cells[case.mask.hidden] = known, hidden
        grid[there] = cells
        return grid

    known = case.y[case.mask.known]
    parts = {
        "truth": values,
        "what is known": on_grid(known, np.nan),
        "filled": on_grid(known, answer.mean[:, 0]),
        "standard deviation": on_grid(0, answer.std[:, 0]),
    }
    wide = len(columns) > 3 * len(rows)
    with style():
        figure, axes = panels(*((4, 1) if wide else (1, 4)), width=11.0, height=1.2 if wide else 2.8)
        for panel, (title, part) in zip(axes.ravel(), parts.items(), strict=True):
            scale = {} if title == "standard deviation" else {"vmin": np.nanmin(values), "vmax": np.nanmax(values)}
            drawn = panel.pcolormesh(columns, rows, part, cmap="viridis", shading="nearest", rasterized=True, **scale)
            figure.colorbar(drawn, ax=panel)
            panel.set_title(title)
            panel.set_facecolor("#DDDDDD")
        save(figure, path)
