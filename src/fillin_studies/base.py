"""A study: variants × seeds × a recipe, each cell a run that can be interrupted and resumed.

    OUT/cells/VARIANT/SEED/          a run folder, and result.json once it is measured (where nothing is trained: that)
    OUT/results.json  report.md  *.png

Any number of processes, on one machine or on several that share the folder, may work on one study: a cell is locked
by whoever is at it, and the lock goes with the process.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fillin.errors import FillinError, InputError
from fillin.io import write_text
from fillin.models import Process
from fillin.train.lock import FolderLocked, lock_folder
from fillin.train.log import LogLine, read_log
from fillin.train.loop import TrainingDiverged
from fillin.train.recipe import Recipe, budget_fraction, read_recipe
from fillin.train.runs import Run, fit

Settings = Mapping[str, Any]  # of a recipe, flat: {"model.score": "rbf"}
Measure = Callable[[Process, Recipe, bool], dict[str, Any]]  # of a trained model; True: the quick way
Told = Callable[[float], object]  # the share of a cell that is done
Direct = Callable[[Settings, Told], dict[str, Any]]  # of a cell's settings, where there is nothing to train


@dataclass(frozen=True)
class Scale:
    """How much of a study: settings that all cells share, how many seeds, how long it takes (for people), and how many
    trials where it searches."""

    settings: Settings
    seeds: int
    about: str
    trials: int = 0


@dataclass(frozen=True)
class Cell:
    """One run of a study: a variant and a seed. Where nothing is trained its recipe is its settings, flat."""

    variant: str
    seed: int
    recipe: Recipe
    folder: Path

    @property
    def done(self) -> bool:
        return (self.folder / "result.json").exists()

    @property
    def failed(self) -> bool:
        """Whether its loss diverged: it counts as done, and has no scores."""
        return self.done and "diverged" in self.result

    @property
    def result(self) -> dict[str, Any]:
        return json.loads((self.folder / "result.json").read_text())

    @property
    def lines(self) -> list[LogLine]:
        return read_log(self.folder)

    def model(self) -> Process:
        return Run(self.folder, self.recipe).model()


@dataclass(frozen=True)
class Report:
    """What a study found: sentences, a table (columns, rows), pictures that were drawn, with their captions, and more
    lines of Markdown below them. `made` says how (without it: what all trainings have to say of that)."""

    findings: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    pictures: Mapping[str, str] = field(default_factory=dict)
    more: Sequence[str] = ()
    made: str = ""


@dataclass(frozen=True)
class Study:
    """A comparison, declared.

    `variants(quick)` maps names to what each changes in `recipe`; `measure` scores a trained model; `report` turns
    measured cells into findings and pictures in a folder. `explore`, where given, proposes further cells (Optuna).
    A study that trains nothing has `direct` instead of `measure`: from the settings of a cell to its result.
    """

    name: str
    line: str
    question: str
    recipe: Settings
    variants: Callable[[bool], Mapping[str, Settings]]
    quick: Scale
    full: Scale
    report: Callable[[Sequence[Cell], Path], Report]
    measure: Measure | None = None
    direct: Direct | None = None
    explore: Callable[["Work"], Iterator[Cell]] | None = None

    def scale(self, quick: bool) -> Scale:
        return self.quick if quick else self.full


@dataclass(frozen=True)
class Work:
    """A study under way in a folder."""

    study: Study
    folder: Path
    quick: bool
    storage: str | None = None  # where Optuna keeps its trials; None: in the folder

    def cell(self, variant: str, seed: int, settings: Settings) -> Cell:
        scale = self.study.scale(self.quick)
        flat = {**self.study.recipe, **scale.settings, **settings, "seed": seed}
        folder = self.folder / "cells" / re.sub(r"[^\w.=-]+", "_", variant) / str(seed)
        if self.study.direct:
            return Cell(variant, seed, flat, folder)
        words = [word for key, value in flat.items() for word in (f"--{key}", json.dumps(value))]
        return Cell(variant, seed, read_recipe({"model": {"name": "te-tnp"}}, words), folder)

    def cells(self) -> list[Cell]:
        """The declared ones. Seeds are outermost, so that a study that is stopped has every variant once."""
        return list(self._declared)

    @cached_property
    def _declared(self) -> tuple[Cell, ...]:  # each reads a recipe, and they are asked for again and again
        seeds, variants = range(self.study.scale(self.quick).seeds), self.study.variants(self.quick)
        return tuple(self.cell(name, seed, own) for seed in seeds for name, own in variants.items())

    def explored(self) -> list[Cell]:
        """Cells in the folder that `explore` has proposed."""
        if not self.study.explore:
            return []
        known = {cell.folder for cell in self.cells()}
        found = []
        for path in sorted((self.folder / "cells").glob("*/*/result.json")):
            if path.parent not in known:
                recipe = read_recipe(path.parent / "recipe.yaml")
                found.append(Cell(path.parent.parent.name, recipe["seed"], recipe, path.parent))
        return found


def open_work(study: Study, folder: Path, quick: bool, storage: str | None = None) -> Work:
    """Begin, or go on with, a study in a folder; the folder remembers which one and at what scale."""
    if study.explore and find_spec("optuna") is None:
        raise InputError(f"{study.name} searches with Optuna: pip install 'fillin[study]'")
    mark = folder / "study.json"
    this = {"study": study.name, "budget": "quick" if quick else "full"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if mark.exists() and (was := json.loads(mark.read_text())) != this:
            raise InputError(f"{folder} holds the study {was['study']} at budget {was['budget']}; choose another --out")
        write_text(mark, json.dumps(this) + "\n")
    except (OSError, ValueError) as error:
        if isinstance(error, FillinError):
            raise
        raise InputError(f"cannot work in {folder}: {error}; choose another --out") from error
    return Work(study, folder, quick, storage)


Watch = Callable[[Cell, float, float, float | None], None]  # cell, share of its budget, loss, validation


def work_on(work: Work, watch: Watch | None = None, patience: float = 5.0) -> None:
    """Train and measure every cell that nobody else has; return when all are done, by whomever."""
    for cell in work.cells() if work.study.direct else ():
        if cell.done and (was := cell.result["settings"]) != cell.recipe:
            if {**was, "weights": None} != {**cell.recipe, "weights": None}:
                raise _other_version(cell)
            (cell.folder / "result.json").unlink()  # of weights that have been replaced since
    while True:
        open_cells = [cell for cell in work.cells() if not cell.done]
        if not open_cells:
            break
        did = [attempt(work, cell, watch) for cell in open_cells]
        if not any(did):
            time.sleep(patience)  # all of them are with other processes
    if work.study.explore:
        for cell in work.study.explore(work):
            attempt(work, cell, watch)


def attempt(work: Work, cell: Cell, watch: Watch | None = None) -> bool:
    """Bring one cell to its end, unless another process is at it. Whether it was we who did."""
    if cell.done:
        return False
    try:
        run = None if work.study.direct else _train(cell, watch)
        with lock_folder(cell.folder):
            if cell.done:  # someone measured it between our two locks
                return False
            _write(cell, _measured(work, cell, run, watch))
    except FolderLocked:
        return False
    except TrainingDiverged as error:  # it would do so again
        _write(cell, {"diverged": str(error)})
    return True


def _train(cell: Cell, watch: Watch | None) -> Run:
    begun = (cell.folder / "recipe.yaml").exists()
    if begun and read_recipe(cell.folder / "recipe.yaml") != cell.recipe:
        raise _other_version(cell)

    def told(step: int, elapsed: float, share: float, loss: float, validation: float | None) -> None:
        if watch:
            watch(cell, share, loss, validation)

    return fit(None if begun else cell.recipe, cell.folder, resume=begun, watch=told)


def _measured(work: Work, cell: Cell, run: Run | None, watch: Watch | None) -> dict[str, Any]:
    study = work.study
    if run is None or study.measure is None:
        assert study.direct is not None, f"the study {study.name} has neither measure nor direct"
        found = study.direct(cell.recipe, lambda share: watch and watch(cell, share, math.nan, None))
        return {"settings": cell.recipe, **found}
    state = run.state
    if budget_fraction(run.recipe, state.step, state.seconds) < 1:  # someone pressed Ctrl-C: it was saved
        raise KeyboardInterrupt
    model = run.model().eval()
    return {
        "steps": state.step,
        "seconds": state.seconds,
        "ms": 1000 * (state.seconds - state.validating) / state.step,
        "parameters": sum(p.numel() for p in model.parameters()),
        "validation": state.best,
        **study.measure(model, cell.recipe, work.quick),
    }


def _other_version(cell: Cell) -> InputError:
    return InputError(f"{cell.folder} was made by another version of this study; choose another --out")


def _write(cell: Cell, found: dict[str, Any]) -> None:
    text = json.dumps({"variant": cell.variant, "seed": cell.seed, **found}, indent=2) + "\n"
    write_text(cell.folder / "result.json", text)


def average(cells: Sequence[Cell], key: str) -> dict[str, float]:
    """The mean over seeds of a measured number, by variant, in the order of the cells."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        value = cell.result.get(key)
        if value is not None:
            found.setdefault(cell.variant, []).append(value)
    return {variant: sum(values) / len(values) for variant, values in found.items()}
