"""Results by set, and what changed."""

from collections.abc import Sequence
from typing import Any

from fillin_studies.tables.ranks import ACCURACY, LIKELIHOOD, RMSE, Mean, Measure

# What the paper reports of its own model: RMSE that rises by so many per cent, accuracy that falls by so much.
PAPER = {"yacht": "+52 %", "housing": "+20 %", "concrete": "+7 %", "breast_cancer": "−0.000"}
_LEAST = {RMSE.key: 1.0, ACCURACY.key: -0.005}  # a change that is one


def minus(word: str) -> str:
    """A number with the sign that is as wide as a plus."""
    return word.replace("-", "−")


class Changes:
    """The splits of one set and model, with the right rows and with corrupted ones."""

    def __init__(self, cells: Sequence[dict[str, Any]]):
        self.cells = cells
        first = cells[0]
        self.data, self.rows, self.columns = first["data"], first["rows"], first["columns"]
        self.measure = RMSE if first["group"] == "regression" else ACCURACY

    def mean(self, measure: Measure, where: str) -> Mean:
        return Mean.of(one[where][measure.key] for one in self.cells)

    def change(self, measure: Measure, where: str = "corrupted") -> Mean:
        """Split by split: of RMSE in per cent, of others the difference."""
        both = [(one["right"][measure.key], one[where][measure.key]) for one in self.cells]
        return Mean.of(100 * (b / a - 1) if measure is RMSE else b - a for a, b in both)

    @property
    def matters(self) -> bool:
        """Whether the score is worse by more than two standard errors, and by more than nothing much."""
        change, least = self.change(self.measure), _LEAST[self.measure.key]
        sign = 1 if least > 0 else -1
        return sign * change.value > max(sign * least, 2 * change.error)

    @property
    def surer(self) -> bool:
        """Whether the log-likelihood is worse by more than two standard errors."""
        change = self.change(LIKELIHOOD)
        return -change.value > max(0.01, 2 * change.error)

    def word(self, where: str = "corrupted") -> str:
        """The change of the score."""
        change = self.change(self.measure, where)
        one, two = ("+.0f", ".0f") if self.measure is RMSE else ("+.3f", ".3f")
        error = f" ± {change.error:{two}}" if len(self.cells) > 1 else ""  # one split tells nothing of others
        return minus(f"{change.value:{one}}{error}{' %' if self.measure is RMSE else ''}")


def by_set(measured: Sequence[dict[str, Any]], model: str) -> list[Changes]:
    """In the order of the cells."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in measured:
        if one["part"] == "sets" and one["model"] == model:
            found.setdefault(one["data"], []).append(one)
    return [Changes(cells) for cells in found.values()]


def looked_up(measured: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """[task][model]"""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in measured:
        if one["part"] == "lookup":
            found.setdefault(one["task"], {})[one["model"]] = one
    return found
