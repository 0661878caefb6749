"""Filling gaps: the weights that `fillin fill` uses, and `curve`, against methods that are fitted to each series.

A cell is a data set × a kind of gap × a method, pooled over masks that are the same for every method.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from fillin_studies.base import DataSets, MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport, StudyScale
from fillin_studies.fill.comparison import (
    GapResults,
    ThreeComparison,
    compare_with_three,
    describe_comparisons,
    tabulate_comparisons,
    tabulate_distances,
)
from fillin_studies.fill.data import PriorSeries, find_gap_data
from fillin_studies.fill.figures import draw_figures
from fillin_studies.fill.long_series import (
    LONG,
    LONG_METHODS,
    compare_long,
    describe_long,
    find_long_series,
    tabulate_long,
)
from fillin_studies.fill.methods import EARLIER, METHODS, OURS
from fillin_studies.fill.scores import BAYES, BROAD_PRIOR, NARROW_PRIORS, measure, measure_gap
from fillin_studies.report import Metric, format_row, format_sections, format_table

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


def _tabulate_limits(limits: Sequence[dict[str, Any]]) -> list[str]:
    if not limits:
        return [f"Not measured: {METHODS[OURS[1]].missing or 'the cells are not done'}."]
    columns = ("tasks of the TNP protocol", "weights", "log-likelihood", "exact Bayes", "gap", "its error", "tasks")
    rows = [
        [cell[key] for key in ("data", "method", "log_likelihood", "limit", "gap", "gap_error", "tasks")]
        for cell in limits
    ]
    text = (
        "Log-likelihood per target in nats. Exact Bayes knows the prior of the tasks and averages over its "
        "hyperparameters; *the broad prior* are the Gaussian processes that `curve` was trained on, with Gaussian "
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
    findings = describe_comparisons(comparisons)
    findings += [
        f"{cell['method']} is {cell['gap']:.2f} ± {cell['gap_error']:.2f} nats below exact Bayes on {cell['data']}."
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


class FillStudy(MethodStudy):
    name = "fill"
    version = 2
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
        for name, method in product((*NARROW_PRIORS, BROAD_PRIOR), (OURS[1], EARLIER)):
            if not METHODS[method].missing:
                cells[f"limit, {name}, {method}"] = {"data": name, "kind": "limit", "method": method}
        return cells

    def version_of(self, settings: RecipeSettings) -> str:
        method = METHODS.get(settings["method"])
        return f"{self.version}.{method.stamp if method else 1}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        if settings["kind"] == "limit":
            return measure_gap(settings["data"], settings["method"], settings["masks"], progress)
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
            "Against the best of three": tabulate_comparisons(results),
            "Coverage by distance": tabulate_distances(results),
            "Against exact Bayes": _tabulate_limits(limits),
            "Long series": tabulate_long(long) if long else ["No sheets were measured: give `--data DIR`."],
            "Methods": _describe_methods(results),
        }
        missing = [f"{name} is left out: {method.missing}." for name, method in METHODS.items() if method.missing]
        findings = [*_summarise(results, comparisons, limits), *describe_long(long), *self.data.left_out, *missing]
        figures = draw_figures(self.data, results, folder)
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
