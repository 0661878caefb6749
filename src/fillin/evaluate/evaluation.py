"""The interface of an evaluation, and what every kind of evaluation shares."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fillin.errors import InputError
from fillin.train import Run, open_run


class ResultTable(NamedTuple):
    """A table to print. Its first column names the rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


class Evaluation(ABC):
    """A model and the tasks that it is scored on. Each kind of data has a subclass."""

    model: Any

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Describe the `data` and the `budget`, for JSON."""

    @abstractmethod
    def score(self, show_progress: bool = False) -> Any:
        """Return a dataclass of scores, or a list of them."""

    @abstractmethod
    def draw(self, folder: Path, scores: Any) -> list[Path]:
        """Save the figures into a folder and return their paths."""

    @abstractmethod
    def tables(self, name: str, scores: Any) -> list[ResultTable]:
        """Arrange the scores of the model `name` for printing."""


def find_run(path: Path) -> Run | None:
    """Return the run in a folder, or None if it holds no run. A run without weights is an error."""
    if not (path / "recipe.yaml").exists():
        return None
    run = open_run(path)
    if not (path / "best").exists():
        raise InputError(f"{path} has no weights yet; continue its training: fillin train --resume {path}")
    return run


def format_score(value: float | None) -> str:
    """Format with three decimals; a dash for None."""
    return "–" if value is None else f"{value:.3f}"


def format_estimate(value: float, standard_error: float) -> str:
    return f"{value:.3f} ± {standard_error:.3f}"


def format_percent(share: float | None, decimals: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{decimals}f}"
