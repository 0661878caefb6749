"""Results by data set: the effect of corrupted context rows, and the lookup task."""

from collections.abc import Sequence
from typing import Any

from fillin_studies.report import Metric, with_minus
from fillin_studies.tables.results import ACCURACY, LIKELIHOOD, RMSE, MeanError

LookupResults = dict[str, dict[str, dict[str, Any]]]  # [task][model]
_MIN_EFFECT = {RMSE.key: 1.0, ACCURACY.key: -0.005}  # per cent of the RMSE, and accuracy


class CorruptionEffect:
    """Scores of one data set and model over splits, with the true context rows and with corrupted ones."""

    def __init__(self, cells: Sequence[dict[str, Any]]):
        self.cells = cells
        first = cells[0]
        self.data, self.rows, self.columns = first["data"], first["rows"], first["columns"]
        self.metric = RMSE if first["group"] == "regression" else ACCURACY

    def mean(self, metric: Metric, context: str) -> MeanError:
        return MeanError.of(cell[context][metric.key] for cell in self.cells)

    def change(self, metric: Metric, context: str = "corrupted") -> MeanError:
        """Return the change split by split: of RMSE in per cent, of others the difference."""
        pairs = [(cell["right"][metric.key], cell[context][metric.key]) for cell in self.cells]
        return MeanError.of(100 * (b / a - 1) if metric is RMSE else b - a for a, b in pairs)

    @property
    def matters(self) -> bool:
        """True if the score is worse by more than two standard errors, and by more than a minimal effect."""
        change, least = self.change(self.metric), _MIN_EFFECT[self.metric.key]
        sign = 1 if least > 0 else -1
        return sign * change.value > max(sign * least, 2 * change.error)

    @property
    def less_certain(self) -> bool:
        """True if the log-likelihood is worse by more than two standard errors."""
        change = self.change(LIKELIHOOD)
        return -change.value > max(0.01, 2 * change.error)

    def format_change(self, context: str = "corrupted") -> str:
        change = self.change(self.metric, context)
        value, error = ("+.0f", ".0f") if self.metric is RMSE else ("+.3f", ".3f")
        spread = f" ± {change.error:{error}}" if len(self.cells) > 1 else ""
        return with_minus(f"{change.value:{value}}{spread}{' %' if self.metric is RMSE else ''}")

    def __str__(self) -> str:
        return f"{self.data} ({self.metric.title} {self.format_change()})"


def corruption_effects(measured: Sequence[dict[str, Any]], model: str) -> list[CorruptionEffect]:
    """Group the cells of a model by data set."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for cell in measured:
        if cell["part"] == "sets" and cell["model"] == model:
            sets.setdefault(cell["data"], []).append(cell)
    return [CorruptionEffect(cells) for cells in sets.values()]


def lookup_results(measured: Sequence[dict[str, Any]]) -> LookupResults:
    results: LookupResults = {}
    for cell in measured:
        if cell["part"] == "lookup":
            results.setdefault(cell["task"], {})[cell["model"]] = cell
    return results
