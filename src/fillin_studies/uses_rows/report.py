"""What the study found: corruption set by set, the lookup task, and where other rows matter and where not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fillin_studies.base import Cell, Report
from fillin_studies.report_files import table
from fillin_studies.tables.data import Found
from fillin_studies.tables.methods import OURS
from fillin_studies.tables.ranks import LIKELIHOOD, Mean
from fillin_studies.uses_rows.corrupt import TIMES
from fillin_studies.uses_rows.delete import BOUND, ROWS
from fillin_studies.uses_rows.figures import draw
from fillin_studies.uses_rows.findings import findings
from fillin_studies.uses_rows.lookup import ASKED, CLASSES, COLUMNS, PAIRS, TASKS
from fillin_studies.uses_rows.models import ABOUT
from fillin_studies.uses_rows.results import PAPER, by_set, looked_up, minus

_COLUMNS = [
    "corrupted rows", "rows × columns", "score", "right rows", "corrupted", "change", "targets alone",
    "log-likelihood", "its change", "the paper's NPT",
]  # fmt: skip


def report(found: Found, cells: Sequence[Cell], folder: Path) -> Report:
    measured = [cell.result for cell in cells]
    more = []
    if other := corruption(measured, "npt"):
        more += ["## Corruption: npt", "", *table(_COLUMNS, other), ""]
    if tasks := looked_up(measured):
        more += ["## Lookup", "", *table(*lookup(tasks)), ""]
    more += ["## What was done", "", *_about(measured)]
    said = [*findings(measured), *found.left_out]
    return Report(said, _COLUMNS, corruption(measured, OURS), draw(measured, folder), more, _made(measured))


def corruption(measured: Sequence[dict[str, Any]], model: str) -> list[list[str]]:
    """A row each set: mean ± standard error over splits, where there are several."""
    several = any(one["part"] == "sets" and one["split"] for one in measured)

    def word(mean: Mean, signed: bool = False) -> str:
        error = f" ± {mean.error:.3f}" if several else ""
        return minus(f"{mean.value:{'+' if signed else ''}.3f}{error}")

    return [
        [
            f"**{one.data}**" if one.matters else one.data, f"{one.rows} × {one.columns}", one.measure.title,
            word(one.mean(one.measure, "right")), word(one.mean(one.measure, "corrupted")), one.word(),
            one.word("targets"), word(one.mean(LIKELIHOOD, "right")), word(one.change(LIKELIHOOD), True),
            PAPER.get(one.data, "–"),
        ]
        for one in by_set(measured, model)
    ]  # fmt: skip


def lookup(tasks: dict[str, dict[str, dict[str, Any]]]) -> tuple[list[str], list[list[Any]]]:
    """A row each task and model: R² or accuracy."""
    keys = {
        "seen": "copies shown", "targets": "their targets shuffled", "corrupted": "all columns shuffled",
        "follows": "follows exchanged targets", "unseen": "copies not shown", "refitted": "refitted to the copies",
        "chance": "chance",
    }  # fmt: skip
    rows = [
        [f"{task}: {name}", *(one.get(key) for key in keys)]
        for task, models in tasks.items()
        for name, one in models.items()
    ]
    return ["R² or accuracy", *keys.values()], rows


def _about(measured: Sequence[dict[str, Any]]) -> list[str]:
    used, noise = {one["model"] for one in measured}, TASKS["numbers, similar copies"].noise
    return [
        *(f"- **{name}**: {about}." for name, about in ABOUT.items() if name in used),
        "",
        f"Lookup: {PAIRS} pairs of rows of {COLUMNS} normal columns are learnt, both with their target, a normal "
        f"number or one of {CLASSES} classes at random. {ASKED} other pairs follow: one copy is among the rows that "
        f"are looked at, the other is asked for. Similar copies differ by {noise} deviations in every column. The "
        "weights stay as they are; what cannot look is also refitted with the copies shown.",
        "",
        f"Corruption: every column of the rows that are looked at, the target too, is shuffled on its own, {TIMES} "
        "times; asked rows stay as they are. In bold: sets where the score is worse by more than two standard errors "
        "over splits, by more than 1 % of the RMSE or half a point of accuracy. With one split there is no standard "
        "error. The paper's figures are of its own model, settings and splits.",
        "",
        f"Deletion, one by one: of {ROWS} asked rows each, in an order at random, a row is deleted for good where what "
        f"is said stays within {BOUND} (of its deviation; of classes, of probability) of what it was with all rows. "
        "Distances are Euclidean, over columns of deviation one, a column each class. Attention is the mean over "
        "networks and heads. Both are of the first split.",
    ]


def _made(measured: Sequence[dict[str, Any]]) -> str:
    sets = {one["data"] for one in measured if one["part"] == "sets"}
    splits = max((one["split"] + 1 for one in measured if one["part"] == "sets"), default=0)
    size = measured[0]["settings"] if measured else {"members": 0, "steps": 0}
    return (
        f"{len(sets)} sets, splits: up to {splits} each, those of the study `tables`; estimators of {size['members']} "
        f"members and at most {size['steps']} steps, on one thread. ± is the standard error over splits."
    )
