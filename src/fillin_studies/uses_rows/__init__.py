"""Use of other rows: scores of table estimators when the rows they attend to are corrupted, changed or deleted.

A cell is a lookup task × a model × a seed, or a data set × a model × a split. Models are fitted once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fillin_studies.base import MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport, StudyScale
from fillin_studies.report import format_sections, format_table, with_minus
from fillin_studies.tables import LIKELIHOOD, MeanError
from fillin_studies.tables.data import find_tables
from fillin_studies.tables.methods import METHODS, OURS
from fillin_studies.uses_rows import experiments, results
from fillin_studies.uses_rows.experiments import ABOUT, CONTROLS, MODELS, ORDERS, SHARES_LEFT, TASKS
from fillin_studies.uses_rows.results import corruption_effects, lookup_results

# Kossen et al. 2021 on their model: RMSE rises by so many per cent, accuracy falls by so much.
PAPER = {"yacht": "+52 %", "housing": "+20 %", "concrete": "+7 %", "breast_cancer": "−0.000"}
SLOW_MODEL, WIDE_SETS, WIDEST_SET = "npt", ("breast_cancer", "digits"), "digits"
_MAX_RMSE_RATIO, _MAX_ACCURACY_LOSS = 1.1, 0.02  # of a score that holds while rows are deleted
_CORRUPTION_COLUMNS = [
    "corrupted rows", "rows × columns", "score", "true rows", "corrupted", "change", "targets alone",
    "log-likelihood", "its change", "Kossen et al. 2021",
]  # fmt: skip
_LOOKUP_COLUMNS = {
    "seen": "copies shown", "targets": "their targets shuffled", "corrupted": "all columns shuffled",
    "follows": "follows exchanged targets", "unseen": "copies not shown", "refitted": "refitted to the copies",
    "chance": "chance",
}  # fmt: skip


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


def summarise(measured: Sequence[dict[str, Any]]) -> list[str]:
    """Summarise on which data sets other rows matter and on which not."""
    tasks, findings = lookup_results(measured), []

    def lookup(name: str, key: str) -> str:
        values = [f"{models[name][key]:.2f} ({task})" for task, models in tasks.items() if name in models]
        return with_minus(", ".join(values))

    for name in (*MODELS, *CONTROLS):
        solved = [models[name].get("seen", 0) > 0.9 for models in tasks.values() if name in models]
        learns = "learns" if all(solved) else "learns in some tasks" if any(solved) else "does not learn"
        if solved and name in CONTROLS:
            findings.append(
                f"Lookup: {name}, which does not attend to rows, has {lookup(name, 'unseen')}; fitted to the copies as "
                f"well it memorises them as far as {lookup(name, 'refitted')}."
            )
        elif solved:
            findings.append(
                f"Lookup: {name} {learns} to look up the copy of a new row: R² or accuracy {lookup(name, 'seen')}. "
                f"With the targets of the context rows shuffled: {lookup(name, 'targets')}; with every column "
                f"shuffled: {lookup(name, 'corrupted')}. Chance is 0 for numbers, 0.25 for classes; below 0 is worse "
                "than the mean. Where the targets of the copies are exchanged, predictions follow them with a "
                f"correlation, or a share of equal classes, of {lookup(name, 'follows')}."
            )
    for name in MODELS:
        effects = corruption_effects(measured, name)
        worse, same = ([e for e in effects if e.matters is matters] for matters in (True, False))
        if worse:
            findings.append(f"Corrupting the other rows makes {name} worse on {', '.join(map(str, worse))}.")
        if same:
            findings.append(f"It makes no difference to the score of {name} on {', '.join(map(str, same))}.")
        if changes := [f"{e.data} ({e.change(LIKELIHOOD).value:+.2f} nats)" for e in same if e.less_certain]:
            findings.append(f"Of these, log-likelihood falls on {with_minus(', '.join(changes))}: less certain.")
    first = [cell for cell in measured if "attention" in cell]
    return [*findings, *_summarise_attention(first)] if first else findings


def smallest_share(cell: dict[str, Any], order: str) -> float:
    """Return the smallest share of the rows with which the score holds, as with all larger shares: within a tenth of
    the RMSE, or two hundredths of the accuracy."""
    first, *others = cell["deleted"][order]
    regression = cell["group"] == "regression"
    held = [s <= _MAX_RMSE_RATIO * first if regression else s - first >= -_MAX_ACCURACY_LOSS for s in others]
    return SHARES_LEFT[[*held, False].index(False)]


def _summarise_attention(first: list[dict[str, Any]]) -> list[str]:
    """Return findings on deletion, on rows that are kept, and on attention, from the first split of each data set."""
    orders = []
    for order in ORDERS:
        shares = ", ".join(f"{cell['data']} {100 * smallest_share(cell, order):g} %" for cell in first)
        orders.append(f"{order}: {shares}")
    sets = []
    for cell in first:
        kept = cell["kept"]
        nearer = "" if kept["kept_nearer"] is None else f" (nearer for {kept['kept_nearer']:.0%})"
        sets.append(f"{cell['data']} {kept['kept']:.0f} of {kept['rows']}{nearer}")
    correlations = [with_minus(f"{cell['data']} {cell['attention']['rank_correlation']:+.2f}") for cell in first]
    largest = [max(cell["attention"]["nearest"]) for cell in first]
    return [
        "Deletion of context rows of the networks: the smallest share of the rows with which the score holds (within a "
        f"tenth of the RMSE, two hundredths of the accuracy), deleted {'; '.join(orders)}.",
        f"Deletion one by one, where predictions change by less than {experiments.MAX_CHANGE} standard deviations or "
        f"{experiments.MAX_CHANGE} of probability: rows that are kept, and for how many test rows they are on average "
        f"nearer than those deleted: {'; '.join(sets)}.",
        f"Attention against distance in features, rank correlation: {', '.join(correlations)}. The twentieth of the "
        f"rows with the most attention has {min(largest):.1f} to {max(largest):.1f} times uniform attention.",
    ]


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
        f"Deletion, one by one: for {experiments.DELETION_ROWS} test rows each, in random order, a context row is "
        f"deleted for good where the prediction stays within {experiments.MAX_CHANGE} (of its standard deviation; of "
        "classes, of probability) of that with all rows. Distances are Euclidean, columns standardised and classes "
        "one-hot. Attention is the mean over networks and heads. Both are of the first split.",
    ]


class RowUseStudy(MethodStudy):
    name = "uses-rows"
    title = "use of other rows by table estimators"
    question = (
        "A network that sees the whole table can predict a row from similar rows, or ignore them. Which does it do? "
        "The rows that it attends to are corrupted, changed and deleted, and the fitted network stays as it is (after "
        "Kossen et al. 2021)."
    )
    quick = StudyScale({"members": 2, "steps": 150})
    full = StudyScale({"members": 4, "steps": 500})
    repeats = 1, 3  # splits

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        super().__init__(data, repeats)
        self.tables = find_tables(data, few_labels=False)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """The lookup tasks, then every split of every data set, without what is slow: npt and the widest table at the
        quick budget; further splits and wide tables of npt."""
        cells: dict[str, RecipeSettings] = {}
        for task in TASKS:
            for model in (*(name for name in MODELS if not quick or name != SLOW_MODEL), *CONTROLS):
                cells[f"lookup, {task}, {model}"] = {"part": "lookup", "task": task, "model": model}
        for split in range(self.repeats[0 if quick else 1]):
            for model in (OURS, SLOW_MODEL):
                for title, table in self.tables.sets.items():
                    slow = quick and title == WIDEST_SET
                    if model == SLOW_MODEL:
                        slow = quick or split > 0 or title in WIDE_SETS
                    if split < table.n_splits and not slow:
                        settings = {"part": "sets", "data": title, "model": model, "split": split}
                        cells[f"{title}, {model}, split {split}"] = settings
        return cells

    def version_of(self, settings: RecipeSettings) -> str:
        method = OURS if settings["model"] in MODELS else settings["model"]
        return f"{self.version}.{METHODS[method].version}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        size = {key: settings[key] for key in ("members", "steps")}
        if settings["part"] == "lookup":
            return experiments.measure_lookup(settings["task"], settings["model"], settings["seed"], size)
        table = self.tables.sets[settings["data"]]
        return experiments.measure_dataset(table, settings["model"], settings["split"], size, progress)

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        measured = [cell.result for cell in cells]
        sections: dict[str, list[str]] = {}
        if npt := tabulate_corruption(measured, "npt"):
            sections["Corruption: npt"] = format_table(_CORRUPTION_COLUMNS, npt)
        if tasks := lookup_results(measured):
            rows = [
                [f"{task}: {name}", *(cell.get(key) for key in _LOOKUP_COLUMNS)]
                for task, models in tasks.items()
                for name, cell in models.items()
            ]
            sections["Lookup"] = format_table(["R² or accuracy", *_LOOKUP_COLUMNS.values()], rows)
        sections["Experiments"] = _describe_experiments(measured)
        findings, rows = [*summarise(measured), *self.tables.left_out], tabulate_corruption(measured, OURS)
        figures, more = results.draw_figures(measured, folder), format_sections(sections)
        names = {cell["data"] for cell in measured if cell["part"] == "sets"}
        splits = max((cell["split"] + 1 for cell in measured if cell["part"] == "sets"), default=0)
        size = measured[0]["settings"] if measured else {"members": 0, "steps": 0}
        procedure = (
            f"{len(names)} data sets, splits: up to {splits} each, those of the study `tables`; estimators of "
            f"{size['members']} members and at most {size['steps']} steps, on one thread. ± is the standard error over "
            "splits."
        )
        return StudyReport(findings, _CORRUPTION_COLUMNS, rows, figures, more, procedure)
