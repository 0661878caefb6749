"""Wide gaps and dense records of one column: coverage in gaps of up to 4/5 of the range and beyond the end, agreement
of sample paths with predictions, and the likelihood of held-out points as more of a function is observed."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator

from fillin.errors import InputError
from fillin.plots import AMBER, BLUE, FAINT, GREEN, ORANGE
from fillin_studies.base import MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport
from fillin_studies.curves import drawing
from fillin_studies.fill.methods import EARLIER, METHODS, OURS
from fillin_studies.report import format_sections, format_table, with_minus
from fillin_studies.wide_gaps.cases import (
    DENSE_NOISE,
    DENSE_POINTS,
    DRAWS,
    EXACT,
    FUNCTIONS,
    GAPS,
    NOISES,
    SIDE_POINTS,
    TARGETS,
    draw_gap,
    draw_record,
    measure_cases,
)

SHEET, FITTED = OURS[1], "GP, RBF + white"
COLOURS = {SHEET: BLUE, EARLIER: ORANGE, FITTED: AMBER, EXACT: GREEN}
ROWS = {True: (50, 200, 1000), False: (50, 100, 200, 500, 1000, 2000)}  # observed, quick and full
RECORDS = {True: 5, False: 20}  # functions of each number of rows
MIN_COVERAGE, MAX_SAMPLE_LOSS = 0.90, 0.15  # of 95 % intervals; of the standard deviation of sample paths
GAP, RECORD = "gap", "rows"
Measured = Mapping[tuple[Any, ...], Mapping[str, dict[str, Any]]]  # of a kind of case: method → numbers


def find_methods(function: str) -> list[str]:
    """Return the methods that can be measured: a function of the prior has no exact prediction."""
    every = [name for name in (SHEET, EARLIER, FITTED) if not METHODS[name].missing]
    return every if function == "prior" else [*every, EXACT]


def group_cells(measured: Sequence[dict[str, Any]], part: str, *keys: str) -> Measured:
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for cell in measured:
        if cell["part"] == part:
            groups.setdefault(tuple(cell[key] for key in keys), {})[cell["method"]] = cell
    return groups


def name_case(function: str, noise: float, gap: str) -> str:
    return f"{function}, noise {noise:g}, {gap if gap == 'beyond' else f'gap of {gap}'}"


def tabulate_gaps(gaps: Measured, key: str) -> tuple[list[str], list[list[str | None]]]:
    """Return columns and rows: a row for each kind of gap, a column for each method."""
    names = [name for name in COLOURS if any(name in methods for methods in gaps.values())]

    def describe(cell: dict[str, Any] | None) -> str | None:
        return None if cell is None else f"{cell[key]:.3f} ± {cell[f'{key}_error']:.3f}"

    return ["", *names], [
        [name_case(*case), *(describe(methods.get(name)) for name in names)] for case, methods in gaps.items()
    ]


def tabulate_paths(gaps: Measured) -> list[str]:
    rows = [
        (name_case(*case), methods[SHEET]["sample_ratio"], methods[SHEET]["mean_covered"], methods[SHEET]["functions"])
        for case, methods in gaps.items()
        if SHEET in methods
    ]
    text = (
        f"{DRAWS} sample paths of each function: their standard deviation over that of the predictions, and how often "
        "the mean of the values in the gap lies in the 95 % interval of that of the paths."
    )
    columns = ("", "standard deviation, paths / predictions", "mean of the gap in its interval", "functions")
    return [text, "", *format_table(columns, rows)]


def tabulate_records(records: Measured) -> list[str]:
    """Return a table of log-likelihoods; that of `sheet` with its change from the number of rows before."""
    changes, names, rows = find_changes(records), (SHEET, EARLIER, EXACT), []
    for (function, n), methods in records.items():
        values = (methods.get(name, {}).get("log_likelihood") for name in names)
        change = changes.get((function, n))
        shown = None if change is None else with_minus(f"{change[0]:+.3f} ± {change[1]:.3f}")
        rows.append((function, n, *values, shown, methods.get(SHEET, {}).get("seconds")))
    text = (
        f"Log-likelihood of {DENSE_POINTS} held-out points of a function with noise {DENSE_NOISE:g}, anywhere in the "
        f"range, and its change from the number of observed points before, on the same functions. Seconds: of {SHEET}."
    )
    columns = ("", "observed", *names, f"change of {SHEET}", "seconds")
    return [text, "", *format_table(columns, rows)]


def find_changes(records: Measured) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return how much the log-likelihood of `sheet` grows from the number of rows before, on the same functions, and
    the standard error of that."""
    changes, before = {}, {}
    for (function, n), methods in records.items():
        if SHEET not in methods:
            continue
        values = np.array(methods[SHEET]["by_function"])
        if function in before:
            change = values - before[function]
            error = change.std(ddof=1) / len(change) ** 0.5 if len(change) > 1 else 0.0
            changes[function, n] = float(change.mean()), float(error)
        before[function] = values
    return changes


def describe_results(gaps: Measured, records: Measured) -> list[str]:
    findings = []
    ours = {case: methods[SHEET] for case, methods in gaps.items() if SHEET in methods}
    if ours:
        short = [
            f"{name_case(*case)}: {cell['covered']:.1%} ± {cell['covered_error']:.1%}"
            for case, cell in ours.items()
            if cell["covered"] < MIN_COVERAGE
        ]
        ratios = [cell["sample_ratio"] for cell in ours.values()]
        apart = sum(abs(ratio - 1) > MAX_SAMPLE_LOSS for ratio in ratios)
        findings += [
            f"95 % intervals of {SHEET} contain {np.mean([c['covered'] for c in ours.values()]):.1%} on average over "
            f"{len(ours)} kinds of gaps, and at least {MIN_COVERAGE:.0%} in {len(ours) - len(short)} of them"
            + (f" (not: {'; '.join(short)})." if short else "."),
            f"Sample paths have {min(ratios):.2f} to {max(ratios):.2f} times the standard deviation of the "
            f"predictions; in {apart} of {len(ours)} kinds they differ by more than {MAX_SAMPLE_LOSS:.0%}.",
        ]
    changes = find_changes(records)
    falls = [
        f"{function}, {n:,} rows: {change:.3f} ± {error:.3f}"
        for (function, n), (change, error) in changes.items()
        if change < -error
    ]
    if changes:
        findings.append(
            f"With more observations the log-likelihood of {SHEET} falls, by more than its standard error, in "
            f"{len(falls)} of {len(changes)} steps" + (f" ({'; '.join(falls)})." if falls else ".")
        )
    return findings


def draw_coverage(gaps: Measured, path: Path) -> None:
    """Draw a panel for each kind of function: the coverage of each method in each gap; open marks are without noise."""
    functions = [name for name in FUNCTIONS if any(case[0] == name for case in gaps)]
    with drawing(path, 1, len(functions), width=10.5, height=3.0, sharey=True) as (_, [axes]):
        for panel, function in zip(axes, functions, strict=True):
            for (number, (method, colour)), noise in product(enumerate(COLOURS.items()), NOISES):
                found = [gaps.get((function, noise, gap), {}).get(method) for gap in GAPS]
                at = [i + 0.16 * (number - 1.5) + 0.05 * (noise > 0) for i, cell in enumerate(found) if cell]
                cells = [cell for cell in found if cell]
                panel.errorbar(
                    at, [c["covered"] for c in cells], [c["covered_error"] for c in cells], fmt="o", color=colour,
                    markersize=4, linewidth=1, markerfacecolor=colour if noise else "white",
                    label=method if noise and cells else None,
                )  # fmt: skip
            panel.axhline(0.95, color=FAINT, linewidth=0.7)
            panel.set(title=function, xlim=(-0.5, len(GAPS) - 0.5))
            panel.set_xticks(range(len(GAPS)), list(GAPS))
        axes[0].set_ylabel("inside the 95 % interval")
        axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_likelihood(records: Measured, path: Path) -> None:
    functions = [name for name in FUNCTIONS if any(case[0] == name for case in records)]
    with drawing(path, 1, len(functions), width=10.5, height=3.0) as (_, [axes]):
        for panel, function in zip(axes, functions, strict=True):
            for method, colour in COLOURS.items():
                points = [(n, methods[method]) for (name, n), methods in records.items()
                          if name == function and method in methods]  # fmt: skip
                if points:
                    line = [cell["log_likelihood"] for _, cell in points]
                    panel.plot([n for n, _ in points], line, "o-", color=colour, markersize=4, label=method)
            panel.set(title=function, xscale="log", xlabel="observed points")
            panel.set_xticks(ticks := sorted({n for _, n in records}), [f"{n:,}" for n in ticks])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.margins(x=0.04)
        axes[0].set_ylabel("log-likelihood of held-out points")
        axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(1.0, 1.0))


class WideGapsStudy(MethodStudy):
    name = "wide-gaps"
    title = "calibration in wide gaps and beyond the end, and likelihood with more observations"
    question = (
        "In a gap that is wider than the length scale of a function, intervals should contain the values as often as "
        "elsewhere, and the more of a function is observed, the better it should be predicted. Do the pretrained "
        "weights do so, without fitting anything?"
    )
    repeats = 20, 200  # functions of each kind of gap

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        if data is not None:
            raise InputError(f"the study {self.name} draws its functions; leave --data out")
        super().__init__(None, repeats)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        cells: dict[str, RecipeSettings] = {}
        count = self.repeats[0 if quick else 1]
        for function, noise, gap in product(FUNCTIONS, NOISES, GAPS):
            for method in find_methods(function):
                case = {"part": GAP, "function": function, "noise": noise, "gap": gap, "functions": count}
                cells[f"{name_case(function, noise, gap)}, {method}"] = {**case, "method": method}
        for function, n in product(FUNCTIONS, ROWS[quick]):
            for method in find_methods(function):
                if method != FITTED:  # cubic in the number of rows, for every step of its search
                    case = {"part": RECORD, "function": function, "rows": n, "largest": ROWS[quick][-1]}
                    case |= {"functions": min(count, RECORDS[quick]), "method": method}
                    cells[f"{function}, {n} rows, {method}"] = case
        return cells

    def version_of(self, settings: RecipeSettings) -> str:
        method = METHODS.get(settings["method"])
        return f"{self.version}.{method.stamp if method else 1}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        function, method = settings["function"], settings["method"]
        if settings["part"] == GAP:
            draw = partial(draw_gap, function, settings["noise"], settings["gap"])
        else:
            draw = partial(draw_record, function, settings["rows"], settings["largest"])
        cases = [partial(draw, number) for number in range(settings["functions"])]
        paths = settings["part"] == GAP and method == SHEET
        return {**settings, **measure_cases(cases, method, paths, progress)}

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        measured = [cell.result for cell in cells]
        gaps = group_cells(measured, GAP, "function", "noise", "gap")
        records = group_cells(measured, RECORD, "function", "rows")
        figures = {}
        if gaps:
            draw_coverage(gaps, folder / "coverage.png")
            figures["coverage.png"] = (
                "Share of values in the gap inside the 95 % interval, with standard errors over functions; open marks: "
                "without noise. The line is 95 %."
            )
        if records:
            draw_likelihood(records, folder / "observations.png")
            figures["observations.png"] = "Log-likelihood of held-out points against the number of observed points."
        columns, rows = tabulate_gaps(gaps, "covered")
        sections = {
            "CRPS in the gap": format_table(*tabulate_gaps(gaps, "crps")),
            "Sample paths": tabulate_paths(gaps),
            "More observations": tabulate_records(records),
        }
        counts = sorted({cell["functions"] for cell in measured})
        procedure = (
            f"Functions of Gaussian processes with a standard deviation of 1 and lengths log-uniform from 1/40 to 1/2 "
            f"of the range, or of the prior that the weights were trained on. {SIDE_POINTS} observed points on each "
            f"side of a gap in the middle, {TARGETS} targets in it; beyond: {2 * SIDE_POINTS} observed points in the "
            f"range, and {TARGETS} targets up to half of it after its end. Values and targets have noise. *{EXACT}* "
            f"knows the hyperparameters, *{FITTED}* is fitted to each function. Functions of each cell: "
            f"{' or '.join(map(str, counts))}, the same for every method. The table above is the share of targets "
            "inside the 95 % interval ± its standard error over functions."
        )
        return StudyReport(
            describe_results(gaps, records), columns, rows, figures, format_sections(sections), procedure
        )
