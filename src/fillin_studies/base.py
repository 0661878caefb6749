"""Base classes of studies: those that train models, and those that compare methods and train nothing.

A study is variants × seeds. Each pair is a cell, measured on its own and stored in a folder.
"""

import copy
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch.nn import Module

from fillin.errors import InputError
from fillin.io import write_text
from fillin.models import Process
from fillin.train.log import LogLine, read_log
from fillin.train.recipe import Recipe, budget_fraction, read_recipe
from fillin.train.runs import Run, fit

if TYPE_CHECKING:
    from fillin_studies.run import StudyRun

RecipeSettings = Mapping[str, Any]  # flat: {"model.score": "rbf"}
ShareDone = Callable[[float], object]  # receives the share of a cell that is done


@dataclass(frozen=True)
class StudyScale:
    """Size of a study: settings that all cells share, number of seeds, a description, and trials of a search."""

    settings: RecipeSettings
    seeds: int = 1
    about: str = ""
    trials: int = 0


@dataclass(frozen=True)
class StudyCell:
    """A variant and a seed. The recipe of a study that trains nothing is its settings, flat."""

    variant: str
    seed: int
    recipe: Recipe
    folder: Path
    version: int | str = 1

    @property
    def done(self) -> bool:
        return (self.folder / "result.json").exists()

    @property
    def failed(self) -> bool:
        """True where the loss diverged: the cell counts as done and has no scores."""
        return self.done and "diverged" in self.result

    @property
    def result(self) -> dict[str, Any]:
        return json.loads((self.folder / "result.json").read_text())

    @property
    def lines(self) -> list[LogLine]:
        return read_log(self.folder)

    def model(self) -> Process:
        return Run(self.folder, self.recipe).model()

    def write(self, result: dict[str, Any]) -> None:
        content = {"variant": self.variant, "seed": self.seed, "version": self.version, **result}
        write_text(self.folder / "result.json", json.dumps(content, indent=2) + "\n")

    def discard_outdated(self) -> None:
        """Delete a stored result of another version, which is then measured again; refuse one of other settings."""
        if not self.done:
            return
        stored = self.result
        if stored.get("version") != self.version:
            (self.folder / "result.json").unlink(missing_ok=True)
        elif stored.get("settings", self.recipe) != self.recipe:
            raise self.conflict()

    def conflict(self) -> InputError:
        return InputError(f"{self.folder} holds results of other settings of this study; choose another --out")


Watcher = Callable[[StudyCell, float, float, float | None], None]  # cell, share of its budget, loss, validation


@dataclass(frozen=True)
class StudyReport:
    """Findings in sentences, a table, figures with their captions, and further lines of Markdown."""

    findings: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    figures: Mapping[str, str] = field(default_factory=dict)
    more: Sequence[str] = ()
    method: str = ""  # how the results were obtained (empty: the description of all trainings)


class Study(ABC):
    """A comparison: variants × seeds, a measurement of every cell, and a report."""

    name: str
    title: str
    question: str
    version: int = 1  # raised when what is measured changes: stored cells of another version are measured again
    recipe: ClassVar[RecipeSettings] = {}
    quick: StudyScale
    full: StudyScale
    classes: ClassVar[dict[str, Callable[..., "Study"]]] = {}  # every study by its name
    searches = False  # with Optuna
    reads_data = False  # from the folder of --data

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            Study.classes[cls.name] = cls

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        if not self.reads_data and (data is not None or repeats is not None):
            option = "--data" if data is not None else "--masks"
            raise InputError(f"the study {self.name} reads no data; leave {option} out")

    @abstractmethod
    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """Map the name of each variant to the settings that it changes."""

    @abstractmethod
    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        """Turn measured cells into findings, and draw figures in `folder`."""

    def explore(self, run: "StudyRun") -> Iterator[StudyCell]:
        """Propose further cells, one after another."""
        return iter(())

    def with_model(self, model: str) -> "Study":
        """Return the study with a model, weights or a run folder, in the place of the weights that ship."""
        raise InputError(f"the study {self.name} compares no model of a folder; leave --model out")

    def scale(self, quick: bool) -> StudyScale:
        return self.quick if quick else self.full

    def replaced(self, **attributes: Any) -> "Study":
        """Return a copy with other attributes, such as `variants` or `quick`."""
        other = copy.copy(self)
        vars(other).update(attributes)
        return other

    def with_settings(self, settings: RecipeSettings) -> "Study":
        """Return the study with these settings of its recipes in every cell, in place of its own."""
        raise InputError(
            f"the study {self.name} trains no recipes; leave {', '.join(f'--{key}' for key in settings)} out"
        )

    @abstractmethod
    def make_cell(self, variant: str, seed: int, settings: RecipeSettings, folder: Path) -> StudyCell:
        """Make a cell from the settings of a variant, together with those that all cells share."""

    def train(self, cell: StudyCell, watch: Watcher | None) -> Run | None:
        """Train the model of a cell, if the study trains any."""
        return None

    @abstractmethod
    def measure_cell(self, cell: StudyCell, trained: Run | None, quick: bool, watch: Watcher | None) -> dict[str, Any]:
        """Measure a cell; the result is stored as JSON."""


class TrainingStudy(Study):
    """A study that trains a model in every cell and measures it."""

    def with_settings(self, settings: RecipeSettings) -> Study:
        own = self.variants

        def variants(quick: bool) -> Mapping[str, RecipeSettings]:
            return {name: {**variant, **settings} for name, variant in own(quick).items()}

        return self.replaced(variants=variants)

    @abstractmethod
    def measure(self, model: Any, recipe: Recipe, quick: bool) -> dict[str, Any]:
        """Score a trained model."""

    def make_cell(self, variant: str, seed: int, settings: RecipeSettings, folder: Path) -> StudyCell:
        words = [word for key, value in settings.items() for word in (f"--{key}", json.dumps(value))]
        return StudyCell(variant, seed, read_recipe({"model": {"name": "te-tnp"}}, words), folder, self.version)

    def train(self, cell: StudyCell, watch: Watcher | None) -> Run:
        begun = (cell.folder / "recipe.yaml").exists()
        if begun and read_recipe(cell.folder / "recipe.yaml") != cell.recipe:
            raise cell.conflict()

        def report(step: int, elapsed: float, share: float, loss: float, validation: float | None) -> None:
            if watch:
                watch(cell, share, loss, validation)

        return fit(None if begun else cell.recipe, cell.folder, resume=begun, watch=report)

    def measure_cell(self, cell: StudyCell, trained: Run | None, quick: bool, watch: Watcher | None) -> dict[str, Any]:
        assert trained is not None
        state = trained.state
        if budget_fraction(trained.recipe, state.step, state.seconds) < 1:  # Ctrl-C was pressed, and the run is saved
            raise KeyboardInterrupt
        model = trained.model().eval()
        return {
            "steps": state.step,
            "seconds": state.seconds,
            "ms": 1000 * (state.seconds - state.validating) / state.step,
            "parameters": count_parameters(model),
            "validation": state.best,
            **self.measure(model, cell.recipe, quick),
        }


class MethodStudy(Study):
    """A study that trains nothing: methods × data sets × repeats, each cell measured from its settings."""

    quick = full = StudyScale({})
    reads_data = True
    repeats: tuple[int, int]  # splits or masks at the quick and at the full budget

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        super().__init__(data, repeats)
        if repeats is not None:
            self.repeats = repeats, repeats

    @abstractmethod
    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        """Measure a cell from its settings."""

    def version_of(self, settings: RecipeSettings) -> int | str:
        """Return the version of what a cell measures: that of its method, where methods have one."""
        return self.version

    def make_cell(self, variant: str, seed: int, settings: RecipeSettings, folder: Path) -> StudyCell:
        return StudyCell(variant, seed, dict(settings), folder, self.version_of(settings))

    def measure_cell(self, cell: StudyCell, trained: Run | None, quick: bool, watch: Watcher | None) -> dict[str, Any]:
        def progress(share: float) -> None:
            if watch:
                watch(cell, share, math.nan, None)

        result = self.measure(cell.recipe, progress)
        progress(1.0)
        return {"settings": cell.recipe, **result}


@dataclass(frozen=True)
class DataSets:
    """Data sets by name, and sentences on what is left out."""

    sets: dict[str, Any]
    left_out: tuple[str, ...] = ()


def count_parameters(model: Module) -> int:
    return sum(p.numel() for p in model.parameters())


def mean_over_seeds(cells: Sequence[StudyCell], key: str) -> dict[str, float]:
    """Return the mean of a measured number by variant, in the order of the cells."""
    values: dict[str, list[float]] = {}
    for cell in cells:
        if (value := cell.result.get(key)) is not None:
            values.setdefault(cell.variant, []).append(value)
    return {variant: sum(seeds) / len(seeds) for variant, seeds in values.items()}
