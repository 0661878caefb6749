"""Tables and findings of the study `sheets`, from its measured cells."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fillin_studies.report import Metric, capitalise, format_table, with_minus
from fillin_studies.sheets.data import ADDED, SEVERAL, SINGLE
from fillin_studies.sheets.methods import ALONE, JOINT, LINEAR, METHODS, WITH_ADDED_COLUMNS
from fillin_studies.tables import MeanError, MethodResults

RMSE = Metric("rmse", "RMSE over the standard deviation of the column", 4, False)
MAE = Metric("mae", "MAE over the standard deviation of the column", 4, False)
CRPS = Metric("crps", "CRPS over the standard deviation of the column", 4, False)
COVERED = Metric("covered", "share of hidden cells inside the 95 % interval", 3, None)
SECONDS = Metric("seconds", "seconds of processor time a sheet, fit and prediction, one thread", 2, False)
METRICS = (RMSE, MAE, CRPS, COVERED, SECONDS)
ACCEPTED_COVERAGE = (0.92, 0.97)
MAX_LOSS = 1.05  # ratio to the best baseline up to which a cell counts as close
MAX_SERIES_LOSS = 1.02  # ratio to linear interpolation, of a column alone
Boards = Mapping[str, MethodResults]  # by pattern, and by pattern and added column


def name_board(pattern: str, added: str = "") -> str:
    return f"{pattern} + {added}" if added else pattern


def collect(measured: Sequence[dict[str, Any]]) -> dict[str, MethodResults]:
    """Group measured cells by pattern and added column."""
    return {name: MethodResults(name, measured) for name in dict.fromkeys(cell["group"] for cell in measured)}


def has(results: MethodResults, data: str, method: str, metric: Metric = RMSE) -> bool:
    return all(metric.key in cell for cell in results.sets[data].get(method, {0: {}}).values())


def find_baselines(results: MethodResults, data: str, metric: Metric = RMSE) -> list[str]:
    """Return the methods of others that were measured by that metric."""
    return [name for name, method in METHODS.items() if not method.ours and has(results, data, name, metric)]


class Comparison(NamedTuple):
    """A method on one sheet with one pattern, against the best baseline of the same run."""

    data: str
    pattern: str
    value: MeanError
    best: str
    best_value: MeanError
    error: float  # standard error of the ratio

    @property
    def ratio(self) -> float:
        return self.value.value / self.best_value.value

    @property
    def text(self) -> str:
        return f"{self.data}, {self.pattern} ({self.ratio:.2f} times {self.best})"


def compare(boards: Boards, method: str = JOINT, metric: Metric = RMSE) -> list[Comparison]:
    """Compare on every sheet and pattern of several columns that was measured, on the seeds of both methods."""
    comparisons = []
    for pattern, data, best in find_best(boards, metric):
        results = boards[pattern]
        if has(results, data, method, metric):
            cells = results.sets[data]
            seeds = sorted(cells[method].keys() & cells[best].keys())
            ours, other = (MeanError.of(cells[name][seed][metric.key] for seed in seeds) for name in (method, best))
            error = results.deficit(data, method, best, metric).error / other.value
            comparisons.append(Comparison(data, pattern, ours, best, other, error))
    return comparisons


def find_best(boards: Boards, metric: Metric = RMSE) -> list[tuple[str, str, str]]:
    """Return the best baseline of every pattern of several columns and sheet: that with the lowest mean over the seeds
    that all baselines were measured on."""
    return [
        (pattern, data, min(names, key=partial(_mean_over, boards[pattern].sets[data], names, metric)))
        for pattern in SEVERAL
        if pattern in boards
        for data in boards[pattern].sets
        if (names := find_baselines(boards[pattern], data, metric))
    ]


def _mean_over(cells: Mapping[str, Mapping[int, Any]], names: Sequence[str], metric: Metric, name: str) -> float:
    """Return the mean of a method over the seeds that all of `names` were measured on; over all of its own, if there is
    no such seed."""
    common = set.intersection(*(set(cells[other]) for other in names)) or set(cells[name])
    return float(np.mean([cells[name][seed][metric.key] for seed in common]))


def tabulate_comparisons(boards: Boards) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of the first table of the report."""
    columns = ["", JOINT, "best baseline", "its RMSE", "ratio", "CRPS ratio", "in the 95 % interval", "guides", ALONE]
    ratios, scores = ({(c.pattern, c.data): c for c in compare(boards, metric=metric)} for metric in (RMSE, CRPS))
    rows = []
    for pattern, data, best in find_best(boards):
        results, ours, score = boards[pattern], ratios.get((pattern, data)), scores.get((pattern, data))

        def mean(name: str, metric: Metric = RMSE, shown: str = ".4f", data=data, results=results) -> str:
            return f"{results.mean(data, name, metric).value:{shown}}" if has(results, data, name, metric) else "–"

        other = results.mean(data, best, RMSE)
        rows.append([
            f"{data}, {pattern}", f"{ours.value.value:.4f} ± {ours.value.error:.4f}" if ours else "–", best,
            f"{other.value:.4f} ± {other.error:.4f}", f"{ours.ratio:.3f} ± {ours.error:.3f}" if ours else "–",
            f"{score.ratio:.3f}" if score else "–", mean(JOINT, COVERED, ".1%"), mean("guides"), mean(ALONE),
        ])  # fmt: skip
    return columns, rows


def tabulate_pattern(results: MethodResults) -> list[str]:
    """Return tables of all metrics, each with standard errors over seeds."""
    lines = []
    for metric in METRICS:
        names = [name for name in METHODS if all(has(results, data, name, metric) for data in results.sets)]
        lines += [f"{capitalise(metric.title)}:", "", *format_table(*results.tabulate(metric, names)), ""]
    return lines[:-1]


class SeriesRatio(NamedTuple):
    """RMSE of a method on a column alone, over that of linear interpolation."""

    data: str
    column: str
    ratio: float


def compare_series(results: MethodResults, method: str) -> list[SeriesRatio]:
    """Compare on every column, by the mean RMSE over seeds."""
    ratios = []
    for data, methods in results.sets.items():
        if method in methods and LINEAR in methods:
            ours, linear = (_average_columns(methods[name].values()) for name in (method, LINEAR))
            ratios += [SeriesRatio(data, name, ours[name] / linear[name]) for name in ours if linear.get(name)]
    return ratios


def _average_columns(cells) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for cell in cells:
        for name, rmse in cell["columns"].items():
            values.setdefault(name, []).append(rmse)
    return {name: float(np.mean(column)) for name, column in values.items()}


def tabulate_series(results: MethodResults) -> list[str]:
    """Return the comparison of columns alone with linear interpolation, and the tables of all metrics."""
    columns = ("", "method", "series", "better", f"at most {MAX_SERIES_LOSS}", "median ratio", "worst ratio", "column")
    rows = []
    for method in (name for name in METHODS if METHODS[name].alone and name != LINEAR):
        ratios = compare_series(results, method)
        for data in dict.fromkeys(part.data for part in ratios):
            some = [part for part in ratios if part.data == data]
            worst = max(some, key=lambda part: part.ratio)
            rows.append((
                data, method, len(some), sum(part.ratio < 1 for part in some),
                sum(part.ratio <= MAX_SERIES_LOSS for part in some), float(np.median([part.ratio for part in some])),
                worst.ratio, worst.column,
            ))  # fmt: skip
    text = "Each column by itself, with a fifth of its values hidden: RMSE over that of linear interpolation."
    return [text, "", *format_table(columns, rows), "", *tabulate_pattern(results)]


class Change(NamedTuple):
    """The change of the RMSE of a method by a further column, in percent."""

    data: str
    pattern: str
    added: str
    method: str
    percent: MeanError


def find_changes(boards: Boards) -> list[Change]:
    """Compare with and without a further column, seed by seed."""
    changes = []
    for pattern in SEVERAL:
        for added in ADDED:
            with_column, without = boards.get(name_board(pattern, added)), boards.get(pattern)
            for data, methods in with_column.sets.items() if with_column and without else ():
                for method, cells in methods.items():
                    before = without.sets.get(data, {}).get(method, {}) if without else {}
                    ratios = [100 * (cells[s]["rmse"] / before[s]["rmse"] - 1) for s in cells if s in before]
                    if ratios:
                        changes.append(Change(data, pattern, added, method, MeanError.of(ratios)))
    return changes


def tabulate_changes(changes: Sequence[Change]) -> list[str]:
    keys = dict.fromkeys((c.data, c.pattern, c.added) for c in changes)
    values = {(c.data, c.pattern, c.added, c.method): c.percent for c in changes}
    rows = []
    for key in keys:
        cells = [values.get((*key, method)) for method in WITH_ADDED_COLUMNS]
        rows.append([", ".join(key), *(with_minus(f"{c.value:+z.1f} ± {c.error:.1f}") if c else "–" for c in cells)])
    text = "Change of the RMSE on the other columns in percent, when a column of noise or a copy of a column is added."
    return [text, "", *format_table(("", *WITH_ADDED_COLUMNS), rows)]


def summarise(boards: Boards) -> list[str]:
    """Summarise where fillin is better and where it loses."""
    findings = []
    comparisons = compare(boards)
    if best := Counter(name for _, _, name in find_best(boards)):
        counts = ", ".join(f"{name} {count}" for name, count in best.most_common())
        findings.append(f"The best baseline differs; pairs of a sheet and a pattern on which each is best: {counts}.")
    if comparisons:
        lost = sorted((c for c in comparisons if c.ratio > 1), key=lambda c: -c.ratio)
        far = [c for c in lost if c.ratio > MAX_LOSS]
        findings.append(
            f"The RMSE of {JOINT} is lower than that of the best baseline of the same run in "
            f"{len(comparisons) - len(lost)} of {len(comparisons)} pairs of a sheet and a pattern, and more than "
            f"{MAX_LOSS} times it in {len(far)}; the worst ratio is {max(c.ratio for c in comparisons):.2f}."
        )
        findings.append(
            f"{JOINT} loses on {'; '.join(c.text for c in lost)}." if lost else f"{JOINT} loses on none of them."
        )
        findings += _compare_parts(boards, comparisons)
        findings += _describe_distributions(boards)
    if SINGLE in boards:
        findings += _describe_series(boards[SINGLE])
    for added, title in zip(ADDED, ("an unrelated column of noise", "a copy of a column"), strict=True):
        changes = [c for c in find_changes(boards) if c.added == added and c.method == JOINT]
        if changes:
            worst = max(changes, key=lambda c: abs(c.percent.value))
            largest = with_minus(f"{worst.percent.value:+z.1f} ± {worst.percent.error:.1f}")
            findings.append(
                f"{capitalise(title)} changes the RMSE of {JOINT} by at most {largest} % ({worst.data}, "
                f"{worst.pattern}), and by more than 2 % in "
                f"{sum(abs(c.percent.value) > 2 for c in changes)} of {len(changes)}."
            )
    return findings


def _compare_parts(boards: Boards, comparisons: Sequence[Comparison]) -> list[str]:
    """Compare the joint prediction with what it is made of."""
    findings = []
    for other in ("guides", ALONE):
        pairs = [
            (c, c.value.value / boards[c.pattern].mean(c.data, other, RMSE).value)
            for c in comparisons
            if has(boards[c.pattern], c.data, other)
        ]
        if pairs:
            worst, ratio = max(pairs, key=lambda pair: pair[1])
            findings.append(
                f"{JOINT} has a lower RMSE than {other} in {sum(ratio < 1 for _, ratio in pairs)} of {len(pairs)}; at "
                f"worst {ratio:.2f} times it ({worst.data}, {worst.pattern})."
            )
    return findings


def _describe_distributions(boards: Boards) -> list[str]:
    scores = compare(boards, metric=CRPS)
    low, high = ACCEPTED_COVERAGE
    shares = {f"{c.data}, {c.pattern}": boards[c.pattern].mean(c.data, JOINT, COVERED).value for c in compare(boards)}
    outside = [f"{name} {share:.1%}" for name, share in shares.items() if not low <= share <= high]
    lost = [c.text for c in sorted(scores, key=lambda c: -c.ratio) if c.ratio > 1]
    findings = [
        f"The 95 % intervals of {JOINT} contain 92–97 % of the hidden cells in {len(shares) - len(outside)} of "
        f"{len(shares)}{'; not on ' + '; '.join(outside) if outside else ''}."
    ]
    if scores:
        findings.append(
            f"Its CRPS is lower than that of every baseline that predicts a distribution in {len(scores) - len(lost)} "
            f"of {len(scores)}{'; not on ' + '; '.join(lost) if lost else ''}."
        )
    return findings


def _describe_series(results: MethodResults) -> list[str]:
    findings = []
    for method in (name for name in METHODS if METHODS[name].alone and METHODS[name].ours):
        ratios = compare_series(results, method)
        if ratios:
            worst = max(ratios, key=lambda part: part.ratio)
            findings.append(
                f"One column, a fifth of it hidden at random: {method} is better than linear interpolation on "
                f"{sum(part.ratio < 1 for part in ratios)} of {len(ratios)} series, and at most {MAX_SERIES_LOSS} "
                f"times it on {sum(part.ratio <= MAX_SERIES_LOSS for part in ratios)}; at worst {worst.ratio:.2f} "
                f"times ({worst.data}, {worst.column})."
            )
    return findings


def count_seeds(boards: Boards) -> list[str]:
    """Name the methods that were measured with fewer seeds than others."""
    counts: dict[str, int] = {}
    for results in boards.values():
        for methods in results.sets.values():
            for name, cells in methods.items():
                counts[name] = min(counts.get(name, len(cells)), len(cells))
    most = max(counts.values(), default=0)
    return [f"{name} was measured with {count} of {most} seeds." for name, count in counts.items() if count < most]
