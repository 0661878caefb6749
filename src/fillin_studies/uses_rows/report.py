"""Report of the study: corruption by data set, the lookup task, deletion, and where other rows matter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fillin_studies.base import DataSets, StudyCell, StudyReport
from fillin_studies.report import Metric, format_table, with_minus
from fillin_studies.tables.methods import OURS
from fillin_studies.tables.report import ACCURACY, LIKELIHOOD, RMSE, MeanError
from fillin_studies.uses_rows import experiments
from fillin_studies.uses_rows.experiments import (
    ABOUT,
    CONTROLS,
    DELETION_ROWS,
    MAX_CHANGE,
    MODELS,
    ORDERS,
    SHARES_LEFT,
    TASKS,
)
from fillin_studies.uses_rows.figures import draw_figures

LookupResults = dict[str, dict[str, dict[str, Any]]]  # [task][model]
_MIN_EFFECT = {RMSE.key: 1.0, ACCURACY.key: -0.005}  # per cent of the RMSE, and accuracy


class CorruptionEffect:
    """Scores of one data set and model over splits, with the true context rows and with corrupted ones."""

    def __init__(self, cells: Sequence[dict[str, Any]]):
        self.cells = cells
        first = cells[0]
        self.data, self.rows, self.columns = first["data"], first["rows"], first["columns"]
        self.metric = RMSE if first["group"] == "regression" else ACCURACY

    def mean(self, metric: Metric, context: str) -> MeanError:
        return MeanError.of(cell[context][metric.key] for cell in self.cells)

    def change(self, metric: Metric, context: str = "corrupted") -> MeanError:
        """Return the change split by split: of RMSE in per cent, of others the difference."""
        pairs = [(cell["right"][metric.key], cell[context][metric.key]) for cell in self.cells]
        return MeanError.of(100 * (b / a - 1) if metric is RMSE else b - a for a, b in pairs)

    @property
    def matters(self) -> bool:
        """True if the score is worse by more than two standard errors, and by more than a minimal effect."""
        change, least = self.change(self.metric), _MIN_EFFECT[self.metric.key]
        sign = 1 if least > 0 else -1
        return sign * change.value > max(sign * least, 2 * change.error)

    @property
    def less_certain(self) -> bool:
        """True if the log-likelihood is worse by more than two standard errors."""
        change = self.change(LIKELIHOOD)
        return -change.value > max(0.01, 2 * change.error)

    def format_change(self, context: str = "corrupted") -> str:
        change = self.change(self.metric, context)
        value, error = ("+.0f", ".0f") if self.metric is RMSE else ("+.3f", ".3f")
        spread = f" ± {change.error:{error}}" if len(self.cells) > 1 else ""
        return with_minus(f"{change.value:{value}}{spread}{' %' if self.metric is RMSE else ''}")

    def __str__(self) -> str:
        return f"{self.data} ({self.metric.title} {self.format_change()})"


def corruption_effects(measured: Sequence[dict[str, Any]], model: str) -> list[CorruptionEffect]:
    """Group the cells of a model by data set."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for cell in measured:
        if cell["part"] == "sets" and cell["model"] == model:
            sets.setdefault(cell["data"], []).append(cell)
    return [CorruptionEffect(cells) for cells in sets.values()]


def lookup_results(measured: Sequence[dict[str, Any]]) -> LookupResults:
    results: LookupResults = {}
    for cell in measured:
        if cell["part"] == "lookup":
            results.setdefault(cell["task"], {})[cell["model"]] = cell
    return results


# Kossen et al. 2021 on their model: RMSE rises by so many per cent, accuracy falls by so much.
PAPER = {"yacht": "+52 %", "housing": "+20 %", "concrete": "+7 %", "breast_cancer": "−0.000"}
_MAX_RMSE_RATIO, _MAX_ACCURACY_LOSS = 1.1, 0.02  # of a score that holds while rows are deleted
_CORRUPTION_COLUMNS = [
    "corrupted rows", "rows × columns", "score", "true rows", "corrupted", "change", "targets alone",
    "log-likelihood", "its change", "Kossen et al. 2021",
]  # fmt: skip


def make_report(tables: DataSets, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
    measured = [cell.result for cell in cells]
    more = []
    if npt := tabulate_corruption(measured, "npt"):
        more += ["## Corruption: npt", "", *format_table(_CORRUPTION_COLUMNS, npt), ""]
    if tasks := lookup_results(measured):
        more += ["## Lookup", "", *format_table(*_tabulate_lookup(tasks)), ""]
    more += ["## Experiments", "", *_describe_experiments(measured)]
    findings, rows = [*summarise(measured), *tables.left_out], tabulate_corruption(measured, OURS)
    figures = draw_figures(measured, folder)
    return StudyReport(findings, _CORRUPTION_COLUMNS, rows, figures, more, _describe_procedure(measured))


def tabulate_corruption(measured: Sequence[dict[str, Any]], model: str) -> list[list[str]]:
    """Return a row for each data set: mean ± standard error over splits, where there are several."""
    several = any(cell["part"] == "sets" and cell["split"] for cell in measured)

    def show(mean: MeanError, sign: str = "") -> str:
        error = f" ± {mean.error:.3f}" if several else ""
        return with_minus(f"{mean.value:{sign}.3f}{error}")

    return [
        [
            f"**{effect.data}**" if effect.matters else effect.data, f"{effect.rows} × {effect.columns}",
            effect.metric.title, show(effect.mean(effect.metric, "right")),
            show(effect.mean(effect.metric, "corrupted")), effect.format_change(), effect.format_change("targets"),
            show(effect.mean(LIKELIHOOD, "right")), show(effect.change(LIKELIHOOD), "+"), PAPER.get(effect.data, "–"),
        ]
        for effect in corruption_effects(measured, model)
    ]  # fmt: skip


def _tabulate_lookup(tasks: LookupResults) -> tuple[list[str], list[list[Any]]]:
    """Return R² or accuracy: a row for each task and model."""
    keys = {
        "seen": "copies shown", "targets": "their targets shuffled", "corrupted": "all columns shuffled",
        "follows": "follows exchanged targets", "unseen": "copies not shown", "refitted": "refitted to the copies",
        "chance": "chance",
    }  # fmt: skip
    rows = [
        [f"{task}: {name}", *(cell.get(key) for key in keys)]
        for task, models in tasks.items()
        for name, cell in models.items()
    ]
    return ["R² or accuracy", *keys.values()], rows


def summarise(measured: Sequence[dict[str, Any]]) -> list[str]:
    """Say on which data sets other rows matter and on which not."""
    findings = _summarise_lookup(lookup_results(measured))
    for name in MODELS:
        if effects := corruption_effects(measured, name):
            findings += _summarise_corruption(name, effects)
    first = [cell for cell in measured if "attention" in cell]
    if first:
        findings += [_summarise_deletion(first), _summarise_kept(first), _summarise_attention(first)]
    return findings


def _summarise_lookup(tasks: LookupResults) -> list[str]:
    def results(name: str, key: str) -> str:
        values = [f"{models[name][key]:.2f} ({task})" for task, models in tasks.items() if name in models]
        return with_minus(", ".join(values))

    findings = []
    for name in (*MODELS, *CONTROLS):
        solved = [models[name].get("seen", 0) > 0.9 for models in tasks.values() if name in models]
        if not solved:
            continue
        if name in CONTROLS:
            findings.append(
                f"Lookup: {name}, which does not attend to rows, has {results(name, 'unseen')}; fitted to the "
                f"copies as well it memorises them as far as {results(name, 'refitted')}."
            )
            continue
        learns = "learns" if all(solved) else "learns in some tasks" if any(solved) else "does not learn"
        findings.append(
            f"Lookup: {name} {learns} to look up the copy of a new row: R² or accuracy {results(name, 'seen')}. With "
            f"the targets of the context rows shuffled: {results(name, 'targets')}; with every column shuffled: "
            f"{results(name, 'corrupted')}. Chance is 0 for numbers, 0.25 for classes; below 0 is worse than the mean. "
            "Where the targets of the copies are exchanged, predictions follow them with a correlation, or a share of "
            f"equal classes, of {results(name, 'follows')}."
        )
    return findings


def _summarise_corruption(name: str, effects: list[CorruptionEffect]) -> list[str]:
    worse, same = ([e for e in effects if e.matters is matters] for matters in (True, False))
    findings = []
    if worse:
        findings.append(f"Corrupting the other rows makes {name} worse on {', '.join(map(str, worse))}.")
    if same:
        findings.append(f"It makes no difference to the score of {name} on {', '.join(map(str, same))}.")
        changes = [f"{e.data} ({e.change(LIKELIHOOD).value:+.2f} nats)" for e in same if e.less_certain]
        if changes:
            findings.append(f"Of these, log-likelihood falls on {with_minus(', '.join(changes))}: less certain.")
    return findings


def smallest_share(cell: dict[str, Any], order: str) -> float:
    """Return the smallest share of the rows with which the score holds, as with all larger shares: within a tenth of
    the RMSE, or two hundredths of the accuracy."""
    first, *others = cell["deleted"][order]
    smallest = SHARES_LEFT[0]
    for share, score in zip(SHARES_LEFT[1:], others, strict=True):
        if cell["group"] == "regression":
            holds = score <= _MAX_RMSE_RATIO * first
        else:
            holds = score - first >= -_MAX_ACCURACY_LOSS
        if not holds:
            break
        smallest = share
    return smallest


def _summarise_deletion(first: list[dict[str, Any]]) -> str:
    orders = []
    for order in ORDERS:
        shares = ", ".join(f"{cell['data']} {100 * smallest_share(cell, order):g} %" for cell in first)
        orders.append(f"{order}: {shares}")
    return (
        "Deletion of context rows of the networks: the smallest share of the rows with which the score holds (within a "
        f"tenth of the RMSE, two hundredths of the accuracy), deleted {'; '.join(orders)}."
    )


def _summarise_kept(first: list[dict[str, Any]]) -> str:
    sets = []
    for cell in first:
        kept = cell["kept"]
        nearer = "" if kept["kept_nearer"] is None else f" (nearer for {kept['kept_nearer']:.0%})"
        sets.append(f"{cell['data']} {kept['kept']:.0f} of {kept['rows']}{nearer}")
    return (
        f"Deletion one by one, where predictions change by less than {MAX_CHANGE} standard deviations or {MAX_CHANGE} "
        "of probability: rows that are kept, and for how many test rows they are on average nearer than those deleted: "
        f"{'; '.join(sets)}."
    )


def _summarise_attention(first: list[dict[str, Any]]) -> str:
    correlations = [with_minus(f"{cell['data']} {cell['attention']['rank_correlation']:+.2f}") for cell in first]
    largest = [float(np.max(cell["attention"]["nearest"])) for cell in first]
    return (
        f"Attention against distance in features, rank correlation: {', '.join(correlations)}. The twentieth of the "
        f"rows with the most attention has {min(largest):.1f} to {max(largest):.1f} times uniform attention."
    )


def _describe_experiments(measured: Sequence[dict[str, Any]]) -> list[str]:
    used, noise = {cell["model"] for cell in measured}, TASKS["numbers, similar copies"].noise
    return [
        *(f"- **{name}**: {about}." for name, about in ABOUT.items() if name in used),
        "",
        f"Lookup: models are fitted to {experiments.PAIRS} pairs of rows of {experiments.COLUMNS} normal columns, both "
        f"with their target, a random normal number or one of {experiments.CLASSES} random classes. Then "
        f"{experiments.TEST_PAIRS} other pairs follow: one copy is in the context, the other is predicted. Similar "
        f"copies differ by {noise} standard deviations in every column. The weights stay as they are; the controls are "
        "also refitted with the copies shown.",
        "",
        "Corruption: every column of the context rows, the target included, is shuffled on its own, "
        f"{experiments.SHUFFLES} times; test rows stay as they are. In bold: sets where the score is worse by more "
        "than two standard errors over splits, by more than 1 % of the RMSE or half a point of accuracy. With one "
        "split there is no standard error. The figures of Kossen et al. 2021 are of their model, settings and splits.",
        "",
        f"Deletion, one by one: for {DELETION_ROWS} test rows each, in random order, a context row is deleted for good "
        f"where the prediction stays within {MAX_CHANGE} (of its standard deviation; of classes, of probability) of "
        "that with all rows. Distances are Euclidean, columns standardised and classes one-hot. Attention is the mean "
        "over networks and heads. Both are of the first split.",
    ]


def _describe_procedure(measured: Sequence[dict[str, Any]]) -> str:
    cells = [cell for cell in measured if cell["part"] == "sets"]
    splits = max((cell["split"] + 1 for cell in cells), default=0)
    size = measured[0]["settings"] if measured else {"members": 0, "steps": 0}
    return (
        f"{len({cell['data'] for cell in cells})} data sets, splits: up to {splits} each, those of the study `tables`; "
        f"estimators of {size['members']} members and at most {size['steps']} steps, on one thread. ± is the standard "
        "error over splits."
    )
