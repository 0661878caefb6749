"""Results by set and method: means over splits, their standard errors, and ranks."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fillin_studies.tables.methods import OURS


class Measure(NamedTuple):
    """A number of the results: its title, its digits, and whether more of it is better (None: neither)."""

    key: str
    title: str
    digits: int
    more: bool | None


LIKELIHOOD = Measure("log_likelihood", "log-likelihood", 3, True)
SECONDS = Measure("seconds", "seconds", 2, False)
RMSE = Measure("rmse", "RMSE", 3, False)
COVERED = Measure("covered", "share inside the 95 % interval", 3, None)
ACCURACY = Measure("accuracy", "accuracy", 3, True)
AUROC = Measure("auroc", "AUROC", 4, True)
_CLASSES = (ACCURACY, AUROC, LIKELIHOOD, Measure("calibration", "calibration error", 3, False), SECONDS)
MEASURES: dict[str, tuple[Measure, ...]] = {
    "regression": (RMSE, LIKELIHOOD, Measure("crps", "CRPS", 3, False), COVERED, SECONDS),
    "classification": _CLASSES,
    "few labels": _CLASSES,
}
RANKED = {"regression": (RMSE, LIKELIHOOD), "classification": _CLASSES[:3], "few labels": _CLASSES[:3]}


class Mean(NamedTuple):
    """Over splits, with the standard error of that."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Mean":
        each = np.fromiter(values, float)
        return cls(float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5) if len(each) > 1 else 0.0)


class Results:
    """Measured cells of one group of sets: [set][method][split]."""

    def __init__(self, group: str, cells: Sequence[dict[str, Any]]):
        self.group = group
        self.of: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
        for one in cells:
            if one["group"] == group:
                self.of.setdefault(one["data"], {}).setdefault(one["method"], {})[one["split"]] = one

    @property
    def methods(self) -> list[str]:
        """Those that were asked on every set."""
        first = next(iter(self.of.values()), {})
        return [name for name in first if all(name in methods for methods in self.of.values())]

    def only(self, sets: Sequence[str]) -> "Results":
        less = Results(self.group, [])
        less.of = {name: self.of[name] for name in sets}
        return less

    def mean(self, data: str, method: str, measure: Measure) -> Mean:
        return Mean.of(one[measure.key] for one in self.of[data][method].values())

    def best(self, data: str, measure: Measure, among: Sequence[str]) -> str:
        """By the mean over splits; of equals ours, else the first."""
        sign = -1 if measure.more else 1
        return min(among, key=lambda name: (sign * self.mean(data, name, measure).value, name != OURS))

    def behind(self, data: str, method: str, other: str, measure: Measure) -> Mean:
        """By how much a method is worse than another, split by split."""
        one, two = self.of[data][method], self.of[data][other]
        sign = -1 if measure.more else 1
        return Mean.of(sign * (one[s][measure.key] - two[s][measure.key]) for s in one if s in two)

    def ranks(self, measure: Measure) -> dict[str, Mean]:
        """Of each method, its mean rank over sets (1: the best mean over splits; equals share), with the standard
        error over sets."""
        from scipy.stats import rankdata

        names, sign = self.methods, -1 if measure.more else 1
        each = np.array([rankdata([sign * self.mean(data, name, measure).value for name in names]) for data in self.of])
        return {name: Mean.of(each[:, place]) for place, name in enumerate(names)}
