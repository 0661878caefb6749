"""Tables: fillin's table estimators against boosting, forests, an MLP, neighbours and a Gaussian process.

A cell is a data set × a method × a split. Splits are the same for every method, and every method has its defaults.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fillin_studies.base import MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport
from fillin_studies.tables.data import find_tables
from fillin_studies.tables.methods import select_methods
from fillin_studies.tables.report import make_report


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
        progress(1.0)
        return {"data": table.title, "group": table.group, "method": method, "split": split, **scores}

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        return make_report(self.tables, cells, folder)


STUDY = TableStudy
