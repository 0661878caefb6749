"""Filling gaps: pretrained weights `curve` and `surface` against methods that are fitted to each series.

A cell is a data set × a kind of gap × a method, pooled over masks that are the same for every method.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fillin.plots import BLUE, FAINT, INK, ORANGE
from fillin_studies.base import DataSets, MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport, StudyScale
from fillin_studies.curves import drawing, line_style
from fillin_studies.fill.data import GAP_KINDS, CurveFile, NetcdfField, PriorSeries, find_gap_data
from fillin_studies.fill.long_series import (
    LONG,
    LONG_METHODS,
    compare_long,
    describe_long,
    find_long_series,
    tabulate_long,
)
from fillin_studies.fill.methods import (
    BAYES,
    BEST_OF_THREE,
    METHODS,
    NARROW_PRIORS,
    OURS,
    OWN_PRIOR,
    TIME_REFERENCE,
    measure,
    measure_gap,
)
from fillin_studies.report import Metric, format_row, format_sections, format_table

GapResults = Mapping[tuple[str, str], Mapping[str, dict[str, Any]]]  # (data set, kind of gap) → method → numbers
ACCEPTED_COVERAGE = (0.90, 0.98)  # acceptable share of values inside 95 % intervals
COMPARED_KINDS = ("random", "blocks")  # of gaps, in the comparison with the best of three
CRPS = Metric("crps", "CRPS over the standard deviation of the series", 3, False)
OTHER_METRICS = (
    Metric("log_likelihood", "Log-likelihood per held-out point, in standard deviations of the series", 2, True),
    Metric("rmse", "RMSE over the standard deviation of the series", 3, False),
    Metric("covered", "Share of held-out points inside the 95 % interval", 3, None),
    Metric("seconds", "Seconds of processor time a series, fit and prediction, one thread", 3, False),
)
_FIELD_COLUMNS = {
    "crps": "CRPS", "point": "MAE", "rmse": "RMSE", "log_likelihood": "log-likelihood",
    "covered": "in the 95 % interval", "seconds": "seconds",
}  # fmt: skip


def tabulate(results: GapResults, metric: Metric) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows: a row for each data set and kind, a column for each method, the best in bold."""
    names = [*METHODS, *([BAYES] if metric.key in ("log_likelihood", "seconds") else [])]
    names = [name for name in names if any(metric.key in methods.get(name, {}) for methods in results.values())]
    rows = []
    for (data, kind), methods in results.items():
        values = {name: methods[name][metric.key] for name in names if metric.key in methods.get(name, {})}
        rows.append([f"{data}, {kind}", *format_row(metric, names, values, unranked=(BAYES,))])
    return ["", *names], rows


class ThreeComparison(NamedTuple):
    """fillin on a real curve with one kind of gap, against the best of three. `time_ratio`: to TIME_REFERENCE."""

    data: str
    kind: str
    crps: float
    best: str
    best_crps: float
    covered: float
    time_ratio: float

    @property
    def ratio(self) -> float:
        return self.crps / self.best_crps

    @property
    def is_calibrated(self) -> bool:
        return ACCEPTED_COVERAGE[0] <= self.covered <= ACCEPTED_COVERAGE[1]


def compare_with_three(results: GapResults) -> list[ThreeComparison]:
    """Compare on every real curve and kind of gap that fillin and all of the three were measured on."""
    comparisons = []
    for (data, kind), methods in results.items():
        ours = methods.get(OURS[1])
        if ours is None or ours["group"] != "curve" or not all(name in methods for name in BEST_OF_THREE):
            continue
        best = min(BEST_OF_THREE, key=lambda name: methods[name]["crps"])
        best_crps, time_ratio = methods[best]["crps"], ours["seconds"] / methods[TIME_REFERENCE]["seconds"]
        comparisons.append(ThreeComparison(data, kind, ours["crps"], best, best_crps, ours["covered"], time_ratio))
    return comparisons


def _tabulate_three(comparisons: Sequence[ThreeComparison]) -> list[str]:
    if not comparisons:
        return ["No real curves were measured: give `--data DIR`."]
    columns = (
        "", OURS[1], "best of three", "its CRPS", "ratio", "≤ 1.00", "≤ 1.25", "in the 95 % interval", "90–98 %",
        f"time over {TIME_REFERENCE}", "≤ 0.1",
    )  # fmt: skip
    word = {True: "yes", False: "no"}
    rows = [
        (
            f"{c.data}, {c.kind}", c.crps, c.best, c.best_crps, c.ratio, word[c.ratio <= 1], word[c.ratio <= 1.25],
            c.covered, word[c.is_calibrated], c.time_ratio, word[c.time_ratio <= 0.1],
        )
        for c in comparisons
    ]  # fmt: skip
    return [f"The three are {', '.join(BEST_OF_THREE)}.", "", *format_table(columns, rows)]


def _tabulate_limits(limits: Sequence[dict[str, Any]]) -> list[str]:
    if not limits:
        return [f"Not measured: {METHODS[OURS[1]].missing or 'the cells are not done'}."]
    columns = ("tasks of the TNP protocol", OURS[1], "exact Bayes", "gap", "standard error", "tasks")
    rows = [[cell[key] for key in ("data", "log_likelihood", "limit", "gap", "gap_error", "tasks")] for cell in limits]
    text = (
        "Log-likelihood per target in nats. Exact Bayes knows the prior of the tasks and averages over its "
        "hyperparameters; *its own prior* are the Gaussian processes that the weights were trained on, with Gaussian "
        "noise. In the table of log-likelihoods above, exact Bayes is on the series with gaps. A dash: its average "
        "changes when the settings of hyperparameters are doubled, so that it is no limit."
    )
    return [text, "", *format_table(columns, rows)]


def _describe_methods(results: GapResults) -> list[str]:
    used = {name for methods in results.values() for name in methods}
    lines = [f"- **{name}**: {method.about}." for name, method in METHODS.items() if name in used]
    points = ", ".join(
        f"{data} {kind} {methods['linear']['point']:.3f}"
        for (data, kind), methods in results.items()
        if "linear" in methods and methods["linear"]["group"] != "prior"
    )
    text = (
        "Interpolation and the seasonal forecast predict points. They are scored with normal distributions: the "
        "standard deviation is that of their errors when observed points are left out in turn, growing with the square "
        "root of the distance to observed points."
    )
    return [*lines, "", text + (f" Scored as points (CRPS = |error|), linear has: {points}." if points else "")]


def _summarise(
    results: GapResults, comparisons: Sequence[ThreeComparison], limits: Sequence[dict[str, Any]]
) -> list[str]:
    findings = []
    compared = [c for c in comparisons if c.kind in COMPARED_KINDS]
    if compared:
        worst = max(compared, key=lambda c: c.ratio)
        findings.append(
            f"Real curves, points at random and blocks: {OURS[1]} is no worse than the **best** of "
            f"{', '.join(BEST_OF_THREE)} in {sum(c.ratio <= 1 for c in compared)} of {len(compared)} cells; at worst "
            f"its CRPS is {worst.ratio:.2f} times that ({worst.data}, {worst.kind}). Its 95 % intervals contain "
            f"90–98 % in {sum(c.is_calibrated for c in compared)} of them, and it takes at most "
            f"{max(c.time_ratio for c in compared):.3f} of the time of {TIME_REFERENCE}."
        )
    findings += [
        f"{OURS[1]} is {cell['gap']:.2f} ± {cell['gap_error']:.2f} nats below exact Bayes on {cell['data']}."
        for cell in limits
        if cell["gap"] is not None
    ]
    for (data, _), methods in results.items():
        ours, linear = methods.get(OURS[2]), methods.get("linear")
        if ours and linear and ours["group"] == "field":
            findings.append(
                f"{data}, a field: the CRPS of {OURS[2]} is {ours['crps'] / linear['crps']:.2f} times that of linear "
                f"interpolation, its RMSE {ours['rmse'] / linear['rmse']:.2f} times; its 95 % intervals contain "
                f"{ours['covered']:.1%}."
            )
    return findings


def _draw_figures(
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


class FillStudy(MethodStudy):
    name = "fill"
    title = "filling gaps without fitting anything, against methods that are fitted to each series"
    question = (
        "A Gaussian process is fitted to every series anew; pretrained weights have seen many kinds of series, and "
        "this one never. Which fills gaps better, how well calibrated are the prediction intervals, and what does it "
        "cost? CRPS, RMSE and log-likelihood are in standard deviations of the series; lower is better except for the "
        "last."
    )
    repeats = 3, 20  # masks

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        super().__init__(data, repeats)
        found = find_gap_data(data)
        self.data = DataSets({**found.sets, **find_long_series(data)}, found.left_out)
        self.quick, self.full = (StudyScale({"masks": masks}) for masks in self.repeats)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """Every data set, kind of gap and method that accepts it; then the comparisons with exact Bayes."""
        cells: dict[str, RecipeSettings] = {}
        for name, data in self.data.sets.items():
            methods = [key for key, method in METHODS.items() if data.dim_x in method.dims and not method.missing]
            methods = [key for key in methods if data.group != LONG or key in LONG_METHODS]
            for kind in data.kinds:
                for method in [*methods, BAYES] if isinstance(data, PriorSeries) else methods:
                    cells[f"{name}, {kind}, {method}"] = {"data": name, "kind": kind, "method": method}
        if not METHODS[OURS[1]].missing:
            limit = {"kind": "limit", "method": OURS[1]}
            cells |= {f"limit, {name}": {"data": name, **limit} for name in (*NARROW_PRIORS, OWN_PRIOR)}
        return cells

    def version_of(self, settings: RecipeSettings) -> str:
        method = METHODS.get(settings["method"])
        return f"{self.version}.{method.stamp if method else 1}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        if settings["kind"] == "limit":
            return measure_gap(settings["data"], settings["masks"], progress)
        data = self.data.sets[settings["data"]]
        return measure(data, settings["kind"], settings["method"], settings["masks"], progress)

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        measured = [cell.result for cell in cells]
        limits = [cell for cell in measured if cell["group"] == "limit"]
        results: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        for cell in measured:
            if cell["group"] not in ("limit", LONG):
                results.setdefault((cell["data"], cell["kind"]), {})[cell["method"]] = cell
        comparisons, long = compare_with_three(results), compare_long(measured)
        fields = [
            (f"{data}, {kind}", name, *(cell[key] for key in _FIELD_COLUMNS))
            for (data, kind), methods in results.items()
            for name, cell in methods.items()
            if cell["group"] == "field"
        ]
        table = format_table(("field", "method", *_FIELD_COLUMNS.values()), fields)
        sections = {metric.title: format_table(*tabulate(results, metric)) for metric in OTHER_METRICS}
        sections |= {
            "Fields": table if fields else ["No fields were measured: give `--data DIR`."],
            "Against the best of three": _tabulate_three(comparisons),
            "Against exact Bayes": _tabulate_limits(limits),
            "Long series": tabulate_long(long) if long else ["No sheets were measured: give `--data DIR`."],
            "Methods": _describe_methods(results),
        }
        missing = [f"{name} is left out: {method.missing}." for name, method in METHODS.items() if method.missing]
        findings = [*_summarise(results, comparisons, limits), *describe_long(long), *self.data.left_out, *missing]
        figures = _draw_figures(self.data, results, folder)
        timed = [cell for methods in results.values() for cell in methods.values()]
        minutes = sum(cell["seconds"] * cell["masks"] for cell in timed) / 60
        procedure = (
            f"{len(results)} pairs of a data set and a kind of gap, up to "
            f"{max((cell['masks'] for cell in timed), default=0)} masks each, the same for every method; {minutes:.0f} "
            "minutes in all on one thread. Hidden are 30 % of the points at random or in blocks of 3–12 %, or the last "
            "15 % (of series cut off at several points), of a field 40 % of the cells with a value. Series of priors "
            "have 64 points, a new function for every mask. The time of loading weights is not counted."
        )
        return StudyReport(findings, *tabulate(results, CRPS), figures, format_sections(sections), procedure)
