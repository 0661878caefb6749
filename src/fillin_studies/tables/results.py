"""Results by data set and method: means over splits, their standard errors, ranks and tables."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fillin_studies.report import Metric, format_row
from fillin_studies.tables.methods import FEW_LABEL_METHODS, OURS

LIKELIHOOD = Metric("log_likelihood", "log-likelihood", 3, True)
SECONDS = Metric("seconds", "seconds", 2, False)
RMSE = Metric("rmse", "RMSE", 3, False)
COVERED = Metric("covered", "share inside the 95 % interval", 3, None)
ACCURACY = Metric("accuracy", "accuracy", 3, True)
AUROC = Metric("auroc", "AUROC", 4, True)
_CLASS_METRICS = (ACCURACY, AUROC, LIKELIHOOD, Metric("calibration", "calibration error", 3, False), SECONDS)
METRICS: dict[str, tuple[Metric, ...]] = {
    "regression": (RMSE, LIKELIHOOD, Metric("crps", "CRPS", 3, False), COVERED, SECONDS),
    "classification": _CLASS_METRICS,
    "few labels": _CLASS_METRICS,
}
RANKED = {"regression": (RMSE, LIKELIHOOD), "classification": _CLASS_METRICS[:3], "few labels": _CLASS_METRICS[:3]}
UCI_FIVE = ("airfoil", "autompg", "concrete", "housing", "yacht")  # whose ranks other papers report


class MeanError(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "MeanError":
        sample = np.fromiter(values, float)
        error = float(sample.std(ddof=1) / len(sample) ** 0.5) if len(sample) > 1 else 0.0
        return cls(float(sample.mean()), error)


class MethodResults:
    """Measured cells of one group of data sets: sets[data set][method][split]."""

    def __init__(self, group: str, cells: Sequence[dict[str, Any]]):
        self.group = group
        self.sets: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
        for cell in cells:
            if cell["group"] == group:
                self.sets.setdefault(cell["data"], {}).setdefault(cell["method"], {})[cell["split"]] = cell

    @property
    def methods(self) -> list[str]:
        """Methods that were measured on every data set."""
        first = next(iter(self.sets.values()), {})
        return [name for name in first if all(name in methods for methods in self.sets.values())]

    def select(self, names: Sequence[str]) -> "MethodResults":
        selected = MethodResults(self.group, [])
        selected.sets = {name: self.sets[name] for name in names}
        return selected

    def mean(self, data: str, method: str, metric: Metric) -> MeanError:
        return MeanError.of(cell[metric.key] for cell in self.sets[data][method].values())

    def best(self, data: str, metric: Metric, methods: Sequence[str]) -> str:
        """Return the method with the best mean over splits; of equals fillin, else the first."""
        sign = -1 if metric.higher_is_better else 1
        return min(methods, key=lambda name: (sign * self.mean(data, name, metric).value, name != OURS))

    def deficit(self, data: str, method: str, other: str, metric: Metric) -> MeanError:
        """Return by how much a method is worse than another, split by split."""
        a, b = self.sets[data][method], self.sets[data][other]
        sign = -1 if metric.higher_is_better else 1
        return MeanError.of(sign * (a[s][metric.key] - b[s][metric.key]) for s in a if s in b)

    def ranks(self, metric: Metric) -> dict[str, MeanError]:
        """Return the mean rank of each method over sets (1: the best mean over splits; equals share a rank)."""
        from scipy.stats import rankdata

        names, sign = self.methods, -1 if metric.higher_is_better else 1
        ranks = [rankdata([sign * self.mean(data, name, metric).value for name in names]) for data in self.sets]
        return {name: MeanError.of(column) for name, column in zip(names, np.transpose(ranks), strict=True)}

    def tabulate(
        self, metric: Metric, order: Sequence[str] = tuple(FEW_LABEL_METHODS)
    ) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows: mean ± standard error over splits by set and method, the best of a row in bold."""
        names = [name for name in order if any(name in methods for methods in self.sets.values())]
        rows = []
        for data, methods in self.sets.items():
            means = {name: self.mean(data, name, metric) for name in names if name in methods}
            values = {name: mean.value for name, mean in means.items()}
            rows.append([data, *format_row(metric, names, values, {name: mean.error for name, mean in means.items()})])
        return ["", *names], rows
