"""Tables: fillin's table estimators against boosting, forests, an MLP, neighbours and a Gaussian process.

A cell is a data set × a method × a split. Splits are the same for every method, and every method has its defaults.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fillin_studies.base import MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport
from fillin_studies.curves import drawing, line_style
from fillin_studies.report import Metric, capitalise, format_row, format_sections, format_table
from fillin_studies.tables.data import FEW_LABELS, find_tables
from fillin_studies.tables.methods import FEW_LABEL_METHODS, LABELLED_ONLY, METHODS, OURS, select_methods

LIKELIHOOD = Metric("log_likelihood", "log-likelihood", 3, True)
SECONDS = Metric("seconds", "seconds", 2, False)
RMSE = Metric("rmse", "RMSE", 3, False)
COVERED = Metric("covered", "share inside the 95 % interval", 3, None)
ACCURACY = Metric("accuracy", "accuracy", 3, True)
AUROC = Metric("auroc", "AUROC", 4, True)
_CLASS_METRICS = (ACCURACY, AUROC, LIKELIHOOD, Metric("calibration", "calibration error", 3, False), SECONDS)
METRICS: dict[str, tuple[Metric, ...]] = {
    "regression": (RMSE, LIKELIHOOD, Metric("crps", "CRPS", 3, False), COVERED, SECONDS),
    "classification": _CLASS_METRICS,
    "few labels": _CLASS_METRICS,
}
RANKED = {"regression": (RMSE, LIKELIHOOD), "classification": _CLASS_METRICS[:3], "few labels": _CLASS_METRICS[:3]}
UCI_FIVE = ("airfoil", "autompg", "concrete", "housing", "yacht")  # whose ranks other papers report
ACCEPTED_COVERAGE = (0.92, 0.97)  # acceptable share of values inside 95 % intervals


class MeanError(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "MeanError":
        sample = np.fromiter(values, float)
        error = float(sample.std(ddof=1) / len(sample) ** 0.5) if len(sample) > 1 else 0.0
        return cls(float(sample.mean()), error)


def format_means(metric: Metric, names: Sequence[str], means: Mapping[str, MeanError]) -> list[str]:
    values, errors = ({name: mean[part] for name, mean in means.items()} for part in (0, 1))
    return format_row(metric, names, values, errors)


class MethodResults:
    """Measured cells of one group of data sets: sets[data set][method][split]."""

    def __init__(self, group: str, cells: Sequence[dict[str, Any]]):
        self.group = group
        self.sets: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
        for cell in cells:
            if cell["group"] == group:
                self.sets.setdefault(cell["data"], {}).setdefault(cell["method"], {})[cell["split"]] = cell

    @property
    def methods(self) -> list[str]:
        """Methods that were measured on every data set."""
        first = next(iter(self.sets.values()), {})
        return [name for name in first if all(name in methods for methods in self.sets.values())]

    def select(self, names: Sequence[str]) -> "MethodResults":
        selected = MethodResults(self.group, [])
        selected.sets = {name: self.sets[name] for name in names}
        return selected

    def mean(self, data: str, method: str, metric: Metric) -> MeanError:
        return MeanError.of(cell[metric.key] for cell in self.sets[data][method].values())

    def means(self, method: str, metric: Metric) -> dict[str, float]:
        return {data: self.mean(data, method, metric).value for data in self.sets}

    def best(self, data: str, metric: Metric, methods: Sequence[str]) -> str:
        """Return the method with the best mean over splits; of equals fillin, else the first."""
        sign = -1 if metric.higher_is_better else 1
        return min(methods, key=lambda name: (sign * self.mean(data, name, metric).value, name != OURS))

    def deficit(self, data: str, method: str, other: str, metric: Metric) -> MeanError:
        """Return by how much a method is worse than another, split by split."""
        a, b = self.sets[data][method], self.sets[data][other]
        sign = -1 if metric.higher_is_better else 1
        return MeanError.of(sign * (a[s][metric.key] - b[s][metric.key]) for s in a if s in b)

    def ranks(self, metric: Metric) -> dict[str, MeanError]:
        """Return the mean rank of each method over sets (1: the best mean over splits; equals share a rank)."""
        from scipy.stats import rankdata

        names, sign = self.methods, -1 if metric.higher_is_better else 1
        ranks = [rankdata([sign * self.mean(data, name, metric).value for name in names]) for data in self.sets]
        return {name: MeanError.of(column) for name, column in zip(names, np.transpose(ranks), strict=True)}

    def tabulate(
        self, metric: Metric, order: Sequence[str] = tuple(FEW_LABEL_METHODS)
    ) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows: mean ± standard error over splits by set and method, the best of a row in bold."""
        names = [name for name in order if any(name in methods for methods in self.sets.values())]
        rows = []
        for data, methods in self.sets.items():
            means = {name: self.mean(data, name, metric) for name in names if name in methods}
            rows.append([data, *format_means(metric, names, means)])
        return ["", *names], rows


def _describe_methods(measured: Sequence[dict[str, Any]]) -> list[str]:
    used = {cell["method"] for cell in measured}
    few = {cell["method"] for cell in measured if cell["group"] == "few labels"}
    lines = [f"- **{name}**: {method.about}." for name, method in METHODS.items() if name in used]
    lines += [
        f"- **{name}**, few labels: {FEW_LABEL_METHODS[name].about}." for name in (OURS, LABELLED_ONLY) if name in few
    ]
    return [
        *lines,
        "",
        "Log-likelihoods are per row, in nats, of values in their units, of classes with probabilities of at least "
        "10⁻⁶. Methods that predict points are given normal distributions with the RMSE of a five-fold "
        "cross-validation on their training rows; fillin and the Gaussian process predict distributions. AUROC "
        "is the mean over classes, each against the rest; the calibration error is that of the most probable class, in "
        "15 bins. Text is one-hot encoded; missing values are left to "
        "methods that handle them (the boosted trees except scikit-learn's, the random forest, fillin) and are imputed "
        "by the mean or the most frequent value for all others. Seconds are processor time of one fit and its "
        "predictions, without the cross-validation.",
        "",
        f"Few labels: {FEW_LABELS} rows are labelled, stratified by class; the others are training rows without a "
        "label (for fillin, which learns from them) and the test rows.",
    ]


def summarise(boards: dict[str, MethodResults]) -> list[str]:
    """Summarise where fillin is first and where not."""
    findings = []
    for name, results in boards.items():
        if OURS not in results.methods:
            continue
        findings += [f"{name}, {metric.title}: {_describe_rank(results, metric)}" for metric in RANKED[results.group]]
        if name == "regression":
            low, high = ACCEPTED_COVERAGE
            shares = results.means(OURS, COVERED)
            outside = [f"{data} {share:.1%}" for data, share in shares.items() if not low <= share <= high]
            findings.append(
                f"The 95 % intervals of {OURS} contain 92–97 % of the values on {len(results.sets) - len(outside)} of "
                + _count_sets(results)
                + (f"; not on {', '.join(outside)}." if outside else ".")
            )
        if LABELLED_ONLY in results.methods:
            without = results.means(LABELLED_ONLY, ACCURACY)
            parts = [
                f"{data} {mean:.3f} with unlabelled rows, {without[data]:.3f} without them"
                for data, mean in results.means(OURS, ACCURACY).items()
            ]
            findings.append(f"accuracy gained from unlabelled rows: {'; '.join(parts)}.")
        if name == results.group:
            longest = {method: max(results.means(method, SECONDS).values()) for method in results.methods}
            ours = longest.pop(OURS)
            longest.pop(LABELLED_ONLY, None)
            slowest = max(longest, key=longest.__getitem__, default=None)
            beside = f"; the slowest other, {slowest}, {longest[slowest]:.1f}" if slowest else ""
            findings.append(f"{name}, time: {OURS} takes up to {ours:.1f} seconds a split{beside}.")
    return [capitalise(line) for line in findings]


def _count_sets(results: MethodResults) -> str:
    return f"{len(results.sets)} set{'' if len(results.sets) == 1 else 's'}"


def _describe_rank(results: MethodResults, metric: Metric) -> str:
    ranks = results.ranks(metric)
    ours = ranks[OURS]
    ahead = [name for name, mean in ranks.items() if mean.value < ours.value]
    others = {name: mean for name, mean in ranks.items() if name not in (OURS, LABELLED_ONLY)}
    best = min(others, key=lambda name: others[name].value) if others else None
    position = "first" if not ahead else f"behind {', '.join(ahead)}"
    beside = f"; {best} has {others[best].value:.2f} ± {others[best].error:.2f}" if best else ""
    return (
        f"{OURS} has an average rank of {ours.value:.2f} ± {ours.error:.2f} of {len(ranks)} over "
        f"{_count_sets(results)}, {position}{beside}. {describe_sets(results, metric)}"
    )


def describe_sets(results: MethodResults, metric: Metric) -> str:
    """Name the sets on which fillin is first, within a standard error of the first, and behind."""
    first, near, behind = [], [], []
    for data in results.sets:
        best = results.best(data, metric, results.methods)
        deficit = results.deficit(data, OURS, best, metric)
        ours, other = (results.mean(data, name, metric).value for name in (OURS, best))
        if best == OURS:
            first.append(data)
        elif deficit.value <= deficit.error:
            near.append(data)
        else:
            behind.append(f"{data} ({ours:.{metric.digits}f}, {best} {other:.{metric.digits}f})")
    parts = [("first on", first), ("within a standard error of the first on", near), ("behind on", behind)]
    return capitalise("; ".join(f"{words} {', '.join(names)}" for words, names in parts if names)) + "."


def _draw_ranks(boards: dict[str, MethodResults], folder: Path) -> dict[str, str]:
    """Draw average ranks: a panel for each group of sets, a row for each method, a mark for each metric."""
    if not boards:
        return {}
    size = {"width": 1.2 + 3.2 * len(boards), "height": 3.2}
    with drawing(folder / "ranks.png", 1, len(boards), **size) as (_, [row]):
        for panel, (name, results) in zip(row, boards.items(), strict=True):
            methods = [method for method in FEW_LABEL_METHODS if method in results.methods]
            metrics = RANKED[results.group]
            for number, metric in enumerate(metrics):
                ranks = results.ranks(metric)
                y = np.arange(len(methods)) + 0.5 * ((number + 0.5) / len(metrics) - 0.5)
                panel.errorbar(
                    [ranks[method].value for method in methods], y, xerr=[ranks[method].error for method in methods],
                    fmt="os^"[number % 3], color=line_style(number)[0], markersize=4, linewidth=1, label=metric.title,
                )  # fmt: skip
            panel.set_yticks(range(len(methods)), methods)
            for label, method in zip(panel.get_yticklabels(), methods, strict=True):
                label.set_fontweight("bold" if method.startswith(OURS) else "normal")
            panel.invert_yaxis()
            panel.set(xlim=(0.5, len(methods) + 0.5), title=f"{name} ({len(results.sets)})", xlabel="average rank")
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(metrics))
    return {"ranks.png": "Average ranks over sets (their number), with standard errors; 1 is best."}


class TableStudy(MethodStudy):
    name = "tables"
    title = "predicting a column of a table, against boosting and others at their defaults"
    question = (
        "Tables are mostly predicted with boosted trees; networks that attend to similar rows predict whole "
        "distributions. Which is more accurate, which is better calibrated, and what does it cost? All have default "
        "settings, the same splits, and one thread."
    )
    repeats = 2, 10  # splits at most

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        super().__init__(data, repeats)
        self.tables = find_tables(data)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """Every split, data set and method. Splits are outermost: an interrupted study has every set once."""
        return {
            f"{title}, {name}, split {split}": {"data": title, "method": name, "split": split}
            for split in range(self.repeats[0 if quick else 1])
            for title, table in self.tables.sets.items()
            for name, method in select_methods(table.few_labels).items()
            if split < table.n_splits and not method.missing
        }

    def version_of(self, settings: RecipeSettings) -> str:
        methods = select_methods(self.tables.sets[settings["data"]].few_labels)
        return f"{self.version}.{methods[settings['method']].version}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        table, method, split = self.tables.sets[settings["data"]], settings["method"], settings["split"]
        scores = select_methods(table.few_labels)[method].evaluate(table.split(split), split)
        return {"data": table.title, "group": table.group, "method": method, "split": split, **scores}

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        measured = [cell.result for cell in cells]
        groups = {name: results for name in METRICS if (results := MethodResults(name, measured)).sets}
        boards = dict(groups)
        if "regression" in groups and set(UCI_FIVE) < set(groups["regression"].sets):
            boards = {"regression, five of UCI": groups["regression"].select(UCI_FIVE), **groups}
        sections = {
            f"{group.capitalize()}: {metric.title}": format_table(*results.tabulate(metric))
            for group, results in groups.items()
            for metric in METRICS[group]
        }
        more = format_sections({**sections, "Methods": _describe_methods(measured)})
        missing = [f"{name} is left out: {method.missing}." for name, method in METHODS.items() if method.missing]
        findings, figures = [*summarise(boards), *self.tables.left_out, *missing], _draw_ranks(boards, folder)
        splits = max((cell["split"] + 1 for cell in measured), default=0)
        procedure = (
            f"{len({cell['data'] for cell in measured})} data sets, up to {splits} splits each, the same for every "
            "method: the given masks; for the sets of scikit-learn ten-fold cross-validation (for digits five random "
            "splits), stratified by class. Fitting and predicting took "
            f"{sum(cell['seconds'] for cell in measured) / 60:.0f} minutes in all, each on one thread, "
            "cross-validation apart. ± is the standard error over splits, of ranks over sets."
        )
        ranks = {f"{name}: {metric.title}": r.ranks(metric) for name, r in boards.items() for metric in RANKED[r.group]}
        names = [name for name in FEW_LABEL_METHODS if any(name in column for column in ranks.values())]
        columns = [format_means(Metric("", title, 2, False), names, column) for title, column in ranks.items()]
        rows = [list(row) for row in zip(names, *columns, strict=True)]
        return StudyReport(findings, ["average rank", *ranks], rows, figures, more, procedure)
