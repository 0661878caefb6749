"""Running a study in a folder, where it is interrupted and resumed at will.

    OUT/cells/VARIANT/SEED/          a training run and result.json (result.json alone where nothing is trained)
    OUT/results.json  report.md  *.png

Any number of processes and machines may share the folder: each locks the cell that it works on.
"""

import json
import math
import re
import time
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from fillin.errors import FillinError, InputError
from fillin.io import write_text
from fillin.train.loop import TrainingDiverged
from fillin.train.recipe import read_recipe
from fillin.train.runs import FolderLocked, lock_folder
from fillin_studies.base import RecipeSettings, Study, StudyCell, Watcher


@dataclass(frozen=True)
class StudyRun:
    """A study in a folder. `storage` is where Optuna keeps its trials (None: in the folder)."""

    study: Study
    folder: Path
    quick: bool
    storage: str | None = None

    def cell(self, variant: str, seed: int, settings: RecipeSettings) -> StudyCell:
        scale = self.study.scale(self.quick)
        folder = self.folder / "cells" / re.sub(r"[^\w.=-]+", "_", variant) / str(seed)
        settings = {**self.study.recipe, **scale.settings, **settings, "seed": seed}
        return self.study.make_cell(variant, seed, settings, folder)

    def cells(self) -> list[StudyCell]:
        """Return the declared cells. Seeds are outermost, so that an interrupted study has every variant once."""
        return list(self._declared)

    @cached_property
    def _declared(self) -> tuple[StudyCell, ...]:  # reading the recipes takes a while
        seeds, variants = range(self.study.scale(self.quick).seeds), self.study.variants(self.quick)
        return tuple(self.cell(name, seed, settings) for seed in seeds for name, settings in variants.items())

    def explored(self) -> list[StudyCell]:
        """Return the cells in the folder that `explore` has proposed."""
        declared = {cell.folder for cell in self.cells()}
        cells = []
        for path in sorted((self.folder / "cells").glob("*/*/result.json")) if self.study.searches else ():
            if path.parent not in declared:
                recipe = read_recipe(path.parent / "recipe.yaml")
                version = self.study.version
                cells.append(StudyCell(path.parent.parent.name, recipe["seed"], recipe, path.parent, version))
        return cells


def open_study(study: Study, folder: Path, quick: bool, storage: str | None = None) -> StudyRun:
    """Begin or continue a study in a folder. The folder records which study it holds, at which budget."""
    if study.searches and find_spec("optuna") is None:
        raise InputError(f"{study.name} searches with Optuna: pip install 'fillin[study]'")
    record = folder / "study.json"
    content = {"study": study.name, "budget": "quick" if quick else "full"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if record.exists() and (stored := json.loads(record.read_text())) != content:
            raise InputError(
                f"{folder} holds the study {stored['study']} at budget {stored['budget']}; choose another --out"
            )
        write_text(record, json.dumps(content) + "\n")
    except (OSError, ValueError) as error:
        if isinstance(error, FillinError):
            raise
        raise InputError(f"cannot work in {folder}: {error}; choose another --out") from error
    return StudyRun(study, folder, quick, storage)


def run_study(
    run: StudyRun, watch: Watcher | None = None, wait_seconds: float = 5.0, max_cells: int | None = None
) -> None:
    """Measure every cell that no other process works on; return when all are done, or after `max_cells` here."""
    for cell in run.cells():
        cell.discard_outdated()
    left = math.inf if max_cells is None else max_cells
    while missing := [cell for cell in run.cells() if not cell.done]:
        before = left
        for cell in missing:
            left -= run_cell(run, cell, watch)
            if left < 1:
                return
        if left == before:
            time.sleep(wait_seconds)  # all of them are with other processes
    for cell in run.study.explore(run):
        run_cell(run, cell, watch)


def run_cell(run: StudyRun, cell: StudyCell, watch: Watcher | None = None) -> bool:
    """Complete a cell unless it is done or another process works on it. Return True if this call completed it."""
    if cell.done:
        return False
    try:
        trained = run.study.train(cell, watch)
        with lock_folder(cell.folder):
            if cell.done:  # measured by another process between the two locks
                return False
            cell.write(run.study.measure_cell(cell, trained, run.quick, watch))
    except FolderLocked:
        return False
    except TrainingDiverged as error:  # it would diverge again
        cell.write({"diverged": str(error)})
    return True
