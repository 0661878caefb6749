"""What the study found: tables with the best in bold, the best of three, exact Bayes, and pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fillin_studies.base import Cell, Report
from fillin_studies.fill.data import Found
from fillin_studies.fill.figures import draw
from fillin_studies.fill.methods import METHODS, OURS, REFERENCE, THREE
from fillin_studies.fill.score import BAYES
from fillin_studies.report_files import table

Results = Mapping[tuple[str, str], Mapping[str, dict[str, Any]]]  # (data set, kind) → method → numbers
COVERED = (0.90, 0.98)  # what 95 % bands should hold
JUDGED = ("random", "blocks")  # kinds of gap for which there is a bar


class Measure(NamedTuple):
    """A number of the results: its title, its digits, and whether more of it is better (None: neither)."""

    key: str
    title: str
    digits: int
    more: bool | None


CRPS = Measure("crps", "CRPS over the deviation of the series", 3, False)
OTHERS = (
    Measure("log_likelihood", "Log-likelihood per hidden point, of values in deviations of the series", 2, True),
    Measure("rmse", "RMSE over the deviation of the series", 3, False),
    Measure("covered", "Share of hidden points inside the 95 % band", 3, None),
    Measure("seconds", "Seconds of processor time a series, fit and prediction, one thread", 3, False),
)


def report(found: Found, cells: Sequence[Cell], folder: Path) -> Report:
    measured = [cell.result for cell in cells]
    limits = [one for one in measured if one["group"] == "limit"]
    results: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for one in measured:
        if one["group"] != "limit":
            results.setdefault((one["data"], one["kind"]), {})[one["method"]] = one
    columns, rows = by_method(results, CRPS)
    judged = against_three(results)
    more = [line for one in OTHERS for line in ("", f"## {one.title}", "", *table(*by_method(results, one)))][1:]
    more += ["", "## Fields", "", *_fields(results)]
    more += ["", "## Against the best of three", "", *_three(judged)]
    more += ["", "## Against exact Bayes", "", *_bayes(limits)]
    more += ["", "## Methods", "", *_methods(results)]
    pictures = draw(found, results, folder)
    left_out = [
        *found.left_out,
        *(f"{name} is left out: {one.missing}." for name, one in METHODS.items() if one.missing),
    ]
    return Report(
        [*_findings(judged, limits), *_of_fields(results), *left_out], columns, rows, pictures, more, _made(results)
    )


def by_method(results: Results, measure: Measure) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a row each data set and kind, a column each method, the best of a row in bold."""
    names = [*METHODS, *([BAYES] if measure.key in ("log_likelihood", "seconds") else [])]
    names = [name for name in names if any(measure.key in of.get(name, {}) for of in results.values())]
    rows = []
    for (data, kind), of in results.items():
        values = {name: of[name][measure.key] for name in names if measure.key in of.get(name, {})}
        shown = {name: round(value, measure.digits) for name, value in values.items()}
        rivals = [value for name, value in shown.items() if name != BAYES]
        best = None if measure.more is None or not rivals else (max if measure.more else min)(rivals)
        words = {name: f"{value:.{measure.digits}f}" for name, value in shown.items()}
        words = {name: f"**{word}**" if shown[name] == best and name != BAYES else word for name, word in words.items()}
        rows.append([f"{data}, {kind}", *(words.get(name, "–") for name in names)])
    return ["", *names], rows


IN_FIELDS = ("crps", "point", "rmse", "log_likelihood", "covered", "seconds")  # `point`: the mean absolute error


def _fields(results: Results) -> list[str]:
    """A row each field and method: all that is measured, side by side."""
    columns = ("field", "method", "CRPS", "MAE", "RMSE", "log-likelihood", "in the 95 % band", "seconds")
    rows = [
        (f"{data}, {kind}", name, *(one[key] for key in IN_FIELDS))
        for (data, kind), of in results.items()
        for name, one in of.items()
        if one["group"] == "field"
    ]
    return table(columns, rows) if rows else ["No fields were measured: give `--data DIR`."]


def _of_fields(results: Results) -> list[str]:
    """Ours beside linear interpolation."""
    both = [
        (data, of[OURS[2]], of["linear"])
        for (data, _), of in results.items()
        if OURS[2] in of and "linear" in of and of[OURS[2]]["group"] == "field"
    ]
    return [
        f"{data}, a field: the CRPS of {OURS[2]} is {ours['crps'] / line['crps']:.2f} times that of linear "
        f"interpolation, its RMSE {ours['rmse'] / line['rmse']:.2f} times; its 95 % bands hold {ours['covered']:.1%}."
        for data, ours, line in both
    ]


class Judged(NamedTuple):
    """Ours in one cell of a real curve, beside the best of three."""

    data: str
    kind: str
    crps: float
    best: str
    best_crps: float
    covered: float
    time: float | None  # over that of the reference

    @property
    def ratio(self) -> float:
        return self.crps / self.best_crps


def against_three(results: Results) -> list[Judged]:
    """Of every cell of a real curve that has ours and all of the three."""
    found = []
    for (data, kind), of in results.items():
        ours = of.get(OURS[1])
        if ours is None or ours["group"] != "curve" or not all(name in of for name in THREE):
            continue
        best = min(THREE, key=lambda name: of[name]["crps"])
        time = ours["seconds"] / of[REFERENCE]["seconds"]
        found.append(Judged(data, kind, ours["crps"], best, of[best]["crps"], ours["covered"], time))
    return found


def _three(judged: Sequence[Judged]) -> list[str]:
    if not judged:
        return ["No real curves were measured: give `--data DIR`."]
    columns = (
        "", OURS[1], "best of three", "its CRPS", "ratio", "≤ 1.00", "≤ 1.25", "in the 95 % band", "90–98 %",
        f"time over {REFERENCE}", "≤ 0.1",
    )  # fmt: skip
    rows = [
        (
            f"{one.data}, {one.kind}", one.crps, one.best, one.best_crps, one.ratio, _yes(one.ratio <= 1),
            _yes(one.ratio <= 1.25), one.covered, _yes(COVERED[0] <= one.covered <= COVERED[1]), one.time,
            _yes(one.time is not None and one.time <= 0.1),
        )
        for one in judged
    ]  # fmt: skip
    return [f"The three are {', '.join(THREE)}.", "", *table(columns, rows)]


def _yes(so: bool) -> str:
    return "yes" if so else "no"


def _bayes(limits: Sequence[dict[str, Any]]) -> list[str]:
    if not limits:
        return [f"Not measured: {METHODS[OURS[1]].missing or 'the cells are not done'}."]
    columns = ("tasks of the TNP protocol", OURS[1], "exact Bayes", "gap", "standard error", "tasks")
    rows = [
        (one["data"], one["log_likelihood"], one["limit"], one["gap"], one["gap_error"], one["tasks"]) for one in limits
    ]
    text = (
        "Log-likelihood per target in nats. Exact Bayes knows the prior that the tasks come from and averages over its "
        "hyperparameters; *its own prior* are the Gaussian processes of what the weights learnt from, under Gaussian "
        "noise. In the table of log-likelihoods above, exact Bayes is on the series with gaps. A dash: its average has "
        "not settled when the settings of hyperparameters are doubled, so that it is no limit."
    )
    return [text, "", *table(columns, rows)]


def _methods(results: Results) -> list[str]:
    used = {name for of in results.values() for name in of}
    lines = [f"- **{name}**: {one.about}." for name, one in METHODS.items() if name in used]
    point = [(data, kind, of["linear"]) for (data, kind), of in results.items() if "linear" in of]
    shown = ", ".join(f"{data} {kind} {one['point']:.3f}" for data, kind, one in point if one["group"] != "prior")
    lines += [
        "",
        "Interpolation and the seasonal forecast give points, not distributions. They are scored with normal bands of "
        "their own: the deviation of what they miss when known points are left out in turn, growing with the root of "
        "the distance to what is known.",
    ]
    return [*lines[:-1], lines[-1] + (f" Scored as points (CRPS = |error|), linear has: {shown}." if shown else "")]


def _findings(judged: Sequence[Judged], limits: Sequence[dict[str, Any]]) -> list[str]:
    findings = []
    barred = [one for one in judged if one.kind in JUDGED]
    if barred:
        worst = max(barred, key=lambda one: one.ratio)
        inside = sum(COVERED[0] <= one.covered <= COVERED[1] for one in barred)
        findings.append(
            f"Real curves, points at random and blocks: {OURS[1]} is no worse than the **best** of {', '.join(THREE)} "
            f"in {sum(one.ratio <= 1 for one in barred)} of {len(barred)} cells; at worst its CRPS is "
            f"{worst.ratio:.2f} times that ({worst.data}, {worst.kind}). Its 95 % bands hold 90–98 % in {inside} of "
            f"them, and it takes at most {max(one.time or 0 for one in barred):.3f} of the time of {REFERENCE}."
        )
    findings += [
        f"{OURS[1]} is {one['gap']:.2f} ± {one['gap_error']:.2f} nats below exact Bayes on {one['data']}."
        for one in limits
        if one["gap"] is not None
    ]
    return findings


def _made(results: Results) -> str:
    masks = max((one["masks"] for of in results.values() for one in of.values()), default=0)
    spent = sum(one["seconds"] * one["masks"] for of in results.values() for one in of.values())
    return (
        f"{len(results)} pairs of a data set and a kind of gap, up to {masks} masks each, the same for every method; "
        f"{spent / 60:.0f} minutes in all on one thread. Hidden are 30 % of the points at random or in blocks of "
        "3–12 %, or the last 15 % (of series cut off at several places), of a field 40 % of the cells with a value. "
        "Series of priors are 64 points, a new function for every mask. Loading weights is not in the time."
    )
