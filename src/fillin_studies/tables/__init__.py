"""Tables: networks that learn one table against boosting, forests, an MLP, neighbours and a Gaussian process.

A cell is a data set × a method × a split; splits are the same for every method, and every method has its defaults.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fillin_studies.base import Scale, Settings, Study, Told
from fillin_studies.tables.data import Found, find
from fillin_studies.tables.methods import of
from fillin_studies.tables.report import report
from fillin_studies.tables.score import measure

QUICK, FULL = 2, 10  # splits at most


def variants(found: Found, most: tuple[int, int], quick: bool) -> Mapping[str, Settings]:
    """Every split, data set and method. Splits are outermost, so that a study that is stopped has every set once."""
    cells: dict[str, Settings] = {}
    for split in range(most[0] if quick else most[1]):
        for name, data in found.sets.items():
            for method, one in of(data.few).items():
                if split < data.splits and not one.missing:
                    own = {"data": name, "method": method, "split": split, **one.settings}
                    cells[f"{name}, {method}, split {split}"] = own
    return cells


def direct(found: Found, settings: Settings, told: Told) -> dict[str, Any]:
    """The result of one cell."""
    data = found.sets[settings["data"]]
    result = measure(data, settings["method"], settings["split"], of(data.few))
    told(1.0)
    return result


def configured(data: Path | None = None, masks: int | None = None) -> Study:
    """The study with the sets of a folder, and another number of splits than its budgets have."""
    found = find(data)
    quick, full = masks or QUICK, masks or FULL
    return Study(
        name="tables",
        line="predicting a column of a table, against boosting and others at their defaults",
        question="People predict tables with boosted trees; networks that look up rows like the one in question tell "
        "whole distributions. Which is nearer to the truth, which knows better how near it is, and what does it cost? "
        "All have default settings, the same splits, and one thread.",
        recipe={},
        variants=partial(variants, found, (quick, full)),
        quick=Scale({}, 1, f"quick: {quick} splits."),
        full=Scale({}, 1, f"full: {full} splits."),
        report=partial(report, found),
        direct=partial(direct, found),
    )


STUDY = configured()
