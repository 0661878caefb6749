"""On which sets other rows matter and on which not, in sentences."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fillin_studies.tables.methods import OURS
from fillin_studies.tables.ranks import LIKELIHOOD
from fillin_studies.uses_rows.delete import BOUND, LEFT, ORDERS
from fillin_studies.uses_rows.models import CONTROLS, MODELS
from fillin_studies.uses_rows.results import Changes, by_set, looked_up, minus

_WORSE = {"regression": 1.1, "classification": -0.02}  # of a score that broke: a factor, or a difference


def findings(measured: Sequence[dict[str, Any]]) -> list[str]:
    tasks, ours = looked_up(measured), by_set(measured, OURS)
    first = [one for one in measured if "attention" in one]
    said = _lookup(tasks) if tasks else []
    for name in MODELS:
        if changes := by_set(measured, name):
            said += _matters(name, changes)
    if first:
        said += [_deleted(first), _kept(first), _attention(first)]
    return said if ours or tasks else []


def _each(tasks: dict[str, dict[str, dict[str, Any]]], name: str, key: str) -> str:
    found = [f"{models[name][key]:.2f} ({task})" for task, models in tasks.items() if name in models]
    return minus(", ".join(found))


def _lookup(tasks: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    said = []
    for name in MODELS:
        if any(name in models for models in tasks.values()):
            said.append(
                f"Lookup: of rows it never saw, shown their copies, {name} {_finds(tasks, name)}: R² or accuracy "
                f"{_each(tasks, name, 'seen')}. With the targets of the rows that it looks at shuffled: "
                f"{_each(tasks, name, 'targets')}; with every column shuffled: {_each(tasks, name, 'corrupted')}. "
                "Chance is 0 for numbers, 0.25 for classes; below 0 is worse than the mean. Where the targets of the "
                "copies are exchanged, what it says goes with them by a correlation, or a share of the same class, of "
                f"{_each(tasks, name, 'follows')}."
            )
    for name in CONTROLS:
        if any(name in models for models in tasks.values()):
            said.append(
                f"Lookup: {name}, which cannot look, has {_each(tasks, name, 'unseen')}; fitted to the copies as well "
                f"it knows them by heart as far as {_each(tasks, name, 'refitted')}."
            )
    return said


def _finds(tasks: dict[str, dict[str, dict[str, Any]]], name: str) -> str:
    each = [models[name]["seen"] > 0.9 for models in tasks.values() if name in models]
    return "finds the rule" if all(each) else "finds the rule in some" if any(each) else "does not find the rule"


def _matters(name: str, changes: list[Changes]) -> list[str]:
    yes = [f"{one.data} ({one.measure.title} {one.word()})" for one in changes if one.matters]
    no = [f"{one.data} ({one.measure.title} {one.word()})" for one in changes if not one.matters]
    said = []
    if yes:
        said.append(f"Corrupting the other rows makes {name} worse on {', '.join(yes)}.")
    if no:
        said.append(f"It makes no difference to the score of {name} on {', '.join(no)}.")
        sure = [
            minus(f"{one.data} ({one.change(LIKELIHOOD).value:+.2f} nats)")
            for one in changes
            if one.surer and not one.matters
        ]
        if sure:
            said.append(f"Of these, log-likelihood falls on {', '.join(sure)}: right, but less sure.")
    return said


def broken(one: dict[str, Any], order: str) -> float:
    """The smallest share of the rows with which the score is still what it was: within a tenth of the RMSE, or two
    hundredths of the accuracy, and so with all larger shares."""
    first, *rest = one["deleted"][order]
    left = LEFT[0]
    for share, score in zip(LEFT[1:], rest, strict=True):
        worse = (
            score > _WORSE["regression"] * first
            if one["group"] == "regression"
            else (score - first < _WORSE["classification"])
        )
        if worse:
            break
        left = share
    return left


def _deleted(first: list[dict[str, Any]]) -> str:
    def held(order: str) -> str:
        return ", ".join(f"{one['data']} {100 * broken(one, order):g} %" for one in first)

    each = [f"{order}: {held(order)}" for order in ORDERS]
    return (
        "Deletion, of what networks look at: the smallest share of the rows with which the score holds (within a tenth "
        f"of the RMSE, two hundredths of the accuracy), deleted {'; '.join(each)}."
    )


def _kept(first: list[dict[str, Any]]) -> str:
    each = [
        f"{one['data']} {one['kept']['kept']:.0f} of {one['kept']['rows']}"
        + (f" (nearer for {one['kept']['kept_nearer']:.0%})" if one["kept"]["kept_nearer"] is not None else "")
        for one in first
    ]
    return (
        f"Deletion one by one, where what is said moves by less than {BOUND} deviations or {BOUND} of probability: "
        f"rows that are kept, and of how many asked rows they are on average nearer than those deleted: "
        f"{'; '.join(each)}."
    )


def _attention(first: list[dict[str, Any]]) -> str:
    each = [minus(f"{one['data']} {one['attention']['rank_correlation']:+.2f}") for one in first]
    most = [float(np.max(one["attention"]["nearest"])) for one in first]
    return (
        f"Attention against distance in features, rank correlation: {', '.join(each)}. The twentieth of the rows that "
        f"is looked at most has {min(most):.1f} to {max(most):.1f} times the weight of an even look."
    )
