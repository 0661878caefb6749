"""Whether a row is told from other rows: what becomes of scores where those are wrong, changed, or gone.

A cell is a lookup task × a model × a seed, or a data set × a model × a split: a model is fitted once, and asked with
other rows to look at. Models are compared on nothing else here: that is the study `tables`.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fillin_studies.base import Scale, Settings, Study, Told
from fillin_studies.tables.data import Found, find
from fillin_studies.tables.methods import METHODS, OURS
from fillin_studies.uses_rows import lookup, sets
from fillin_studies.uses_rows.models import CONTROLS, MODELS
from fillin_studies.uses_rows.report import report

QUICK, FULL = 1, 3  # splits
SMALL, LARGE = {"members": 2, "steps": 150}, {"members": 4, "steps": 500}  # of the estimators
SLOW, WIDE, WIDEST = "npt", ("breast_cancer", "digits"), ("digits",)


def asked(model: str, title: str, split: int, quick: bool) -> bool:
    """Not what takes long: where it should be quick, npt and the widest table; of npt one split, and no wide tables."""
    if model == SLOW:
        return not quick and split == 0 and title not in WIDE
    return not (quick and title in WIDEST)


def variants(found: Found, most: tuple[int, int], quick: bool) -> Mapping[str, Settings]:
    """The lookup tasks, then every split of every set."""
    cells: dict[str, Settings] = {}
    ours = METHODS[OURS].settings
    for task in lookup.TASKS:
        for name in (*(name for name in MODELS if not quick or name != SLOW), *CONTROLS):
            own = ours if name in MODELS else {}
            cells[f"lookup, {task}, {name}"] = {"part": "lookup", "task": task, "model": name, **own}
    for split in range(most[0] if quick else most[1]):
        for name in (OURS, SLOW):
            for title, data in found.sets.items():
                if split < data.splits and asked(name, title, split, quick):
                    own = {"part": "sets", "data": title, "model": name, "split": split, **ours}
                    cells[f"{title}, {name}, split {split}"] = own
    return cells


def direct(found: Found, settings: Settings, told: Told) -> dict[str, Any]:
    """The result of one cell."""
    size = {key: settings[key] for key in SMALL}
    if settings["part"] == "lookup":
        result = lookup.measure(settings["task"], settings["model"], settings["seed"], size)
    else:
        result = sets.measure(found.sets[settings["data"]], settings["model"], settings["split"], size, told)
    told(1.0)
    return result


def configured(data: Path | None = None, masks: int | None = None) -> Study:
    """The study with the sets of a folder, and another number of splits than its budgets have."""
    every = find(data)
    found = Found({title: one for title, one in every.sets.items() if not one.few}, every.left_out)
    quick, full = masks or QUICK, masks or FULL
    return Study(
        name="uses-rows",
        line="whether a row is told from other rows",
        question="A network that sees the whole table can tell a row from rows that are like it, or learn to do "
        "without. Which does it do? Rows that it looks at are corrupted, changed and deleted, and the network, once "
        "fitted, stays as it is (after Kossen et al. 2021).",
        recipe={},
        variants=partial(variants, found, (quick, full)),
        quick=Scale(SMALL, 1, f"quick: splits: {quick}."),
        full=Scale(LARGE, 1, f"full: splits: {full}."),
        report=partial(report, found),
        direct=partial(direct, found),
    )


STUDY = configured()
