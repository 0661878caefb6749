"""Use of other rows: scores of table estimators when the rows they attend to are corrupted, changed or deleted.

A cell is a lookup task × a model × a seed, or a data set × a model × a split: a model is fitted once, and predicts with
other rows as context. Accuracy is compared in the study `tables`, not here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fillin_studies.base import DataSets, MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport, StudyScale
from fillin_studies.tables.data import find_tables
from fillin_studies.tables.methods import METHODS, OURS
from fillin_studies.uses_rows.experiments import CONTROLS, MODELS, TASKS, measure_dataset, measure_lookup
from fillin_studies.uses_rows.report import make_report

SLOW_MODEL, WIDE_SETS, WIDEST_SET = "npt", ("breast_cancer", "digits"), "digits"


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
        tables = find_tables(data)
        sets = {title: table for title, table in tables.sets.items() if not table.few_labels}
        self.tables = DataSets(sets, tables.left_out)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """The lookup tasks, then every split of every data set."""
        cells: dict[str, RecipeSettings] = {}
        for task in TASKS:
            for model in (*(name for name in MODELS if not quick or name != SLOW_MODEL), *CONTROLS):
                cells[f"lookup, {task}, {model}"] = {"part": "lookup", "task": task, "model": model}
        for split in range(self.repeats[0 if quick else 1]):
            for model in (OURS, SLOW_MODEL):
                for title, table in self.tables.sets.items():
                    if split < table.n_splits and _fits_budget(model, title, split, quick):
                        settings = {"part": "sets", "data": title, "model": model, "split": split}
                        cells[f"{title}, {model}, split {split}"] = settings
        return cells

    def version_of(self, settings: RecipeSettings) -> str:
        method = OURS if settings["model"] in MODELS else settings["model"]
        return f"{self.version}.{METHODS[method].version}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        size = {key: settings[key] for key in ("members", "steps")}
        if settings["part"] == "lookup":
            result = measure_lookup(settings["task"], settings["model"], settings["seed"], size)
        else:
            table = self.tables.sets[settings["data"]]
            result = measure_dataset(table, settings["model"], settings["split"], size, progress)
        progress(1.0)
        return result

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        return make_report(self.tables, cells, folder)


def _fits_budget(model: str, title: str, split: int, quick: bool) -> bool:
    """Leave out what is slow: npt and the widest table at the quick budget; further splits and wide tables of npt."""
    if model == SLOW_MODEL:
        return not quick and split == 0 and title not in WIDE_SETS
    return not (quick and title == WIDEST_SET)


STUDY = RowUseStudy
