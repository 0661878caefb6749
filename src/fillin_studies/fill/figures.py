"""Figures of the study `fill`."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fillin.plots import BLUE, FAINT, INK, ORANGE
from fillin_studies.base import DataSets
from fillin_studies.curves import drawing, line_style
from fillin_studies.fill.data import GAP_KINDS, CurveFile, NetcdfField
from fillin_studies.fill.methods import METHODS, OURS


def draw_figures(
    data: DataSets, results: Mapping[tuple[str, str], Mapping[str, dict[str, Any]]], folder: Path
) -> dict[str, str]:
    """Draw all figures that the results allow; return captions by file."""
    captions = {}
    if results:
        _draw_crps(results, folder / "crps.png")
        captions["crps.png"] = (
            "CRPS over the standard deviation of the series, with standard errors over masks; lower is better."
        )
    series = [dataset for dataset in data.sets.values() if isinstance(dataset, CurveFile)]
    if series and not METHODS[OURS[1]].missing:
        _draw_examples(series, folder / "examples.png")
        captions["examples.png"] = (
            f"Real curves with blocks or the end held out (orange): mean, 50 % and 95 % intervals of {OURS[1]}; "
            "grey: linear interpolation."
        )
    method = OURS[2] if not METHODS[OURS[2]].missing else "linear"
    for dataset in data.sets.values():
        if isinstance(dataset, NetcdfField):
            name = f"field-{dataset.name}.png"
            _draw_field(dataset, method, folder / name)
            captions[name] = f"{dataset.name}: the truth, the observed cells, mean and standard deviation of {method}."
    return captions


def _draw_crps(results, path: Path) -> None:
    """Draw a panel for each kind of gap, a column for each data set, a mark for each method."""
    kinds = [kind for kind in GAP_KINDS if any(key[1] == kind for key in results)]
    names = [name for name in METHODS if any("crps" in methods.get(name, {}) for methods in results.values())]
    with drawing(path, len(kinds), width=9.5, height=2.6) as (_, axes):
        for [panel], kind in zip(axes, kinds, strict=True):
            sets = [data for data, of_kind in results if of_kind == kind]
            for number, name in enumerate(names):
                columns = [i for i, data in enumerate(sets) if "crps" in results[data, kind].get(name, {})]
                cells = [results[sets[i], kind][name] for i in columns]
                x = np.array(columns) + 0.7 * ((number + 0.5) / len(names) - 0.5)
                value, error = (np.array([cell[key] for cell in cells]) for key in ("crps", "crps_error"))
                panel.errorbar(
                    x, value, np.stack([np.minimum(error, 0.9 * value), error]), fmt="os^"[number // 6 % 3],
                    color=line_style(number)[0], markersize=4 if name not in OURS.values() else 6, linewidth=1,
                    label=name,
                )  # fmt: skip
            panel.set(yscale="log", xlim=(-0.5, len(sets) - 0.5), title=kind, ylabel="CRPS / standard deviation")
            panel.set_xticks(range(len(sets)), [name.replace("_", "\n") for name in sets])
        axes[0][0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_examples(series: list[CurveFile], path: Path) -> None:
    kinds = ("blocks", "end")
    with drawing(path, len(series), len(kinds), width=11.0, height=1.9, sharex="row", sharey="row") as (_, axes):
        for (row, dataset), (column, kind) in product(enumerate(series), enumerate(kinds)):
            panel, case = axes[row, column], dataset.case(kind, 0)
            x, y, _ = case.query
            xt = np.linspace(case.x.min(), case.x.max(), 600)
            prediction = METHODS[OURS[1]].predict(x, y, xt[:, None])
            for inside, alpha in ((0.95, 0.16), (0.5, 0.26)):
                low, high = (prediction.quantile(0.5 + half) for half in (-inside / 2, inside / 2))
                panel.fill_between(xt, low, high, color=BLUE, alpha=alpha, linewidth=0)
            panel.plot(xt, np.interp(xt, x[:, 0], y), color=FAINT, linewidth=0.7)
            panel.plot(xt, prediction.mean, color=BLUE, linewidth=1)
            panel.plot(x[:, 0], y, ".", color=INK, markersize=2)
            panel.plot(case.x[case.mask.held_out, 0], case.truth, ".", color=ORANGE, markersize=2.5)
            margin = 0.3 * np.ptp(case.y)
            panel.set_ylim(case.y.min() - margin, case.y.max() + margin)
            axes[row, 0].set_ylabel(dataset.name)
            axes[0, column].set_title(kind)


def _draw_field(dataset: NetcdfField, method: str, path: Path) -> None:
    rows, columns, values = dataset.grid
    case = dataset.case("random", 0)
    prediction = METHODS[method].predict(*case.query)
    present = np.isfinite(values)

    def on_grid(at_observed, at_held_out) -> np.ndarray:
        cells, grid = np.full(len(case.y), np.nan), np.full(values.shape, np.nan)
        cells[case.mask.observed], cells[case.mask.held_out] = at_observed, at_held_out
        grid[present] = cells
        return grid

    observed = case.y[case.mask.observed]
    parts = {
        "truth": values,
        "observed": on_grid(observed, np.nan),
        "predicted": on_grid(observed, prediction.mean),
        "standard deviation": on_grid(0, prediction.std),
    }
    wide = len(columns) > 3 * len(rows)
    shape = (4, 1) if wide else (1, 4)
    with drawing(path, *shape, width=11.0, height=1.2 if wide else 2.8) as (figure, axes):
        for panel, (title, part) in zip(axes.ravel(), parts.items(), strict=True):
            scale = {} if title == "standard deviation" else {"vmin": np.nanmin(values), "vmax": np.nanmax(values)}
            drawn = panel.pcolormesh(columns, rows, part, cmap="viridis", shading="nearest", rasterized=True, **scale)
            figure.colorbar(drawn, ax=panel)
            panel.set(title=title, facecolor="#DDDDDD")
