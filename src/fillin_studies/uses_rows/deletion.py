"""Deletion of context rows, different ones for each test row, until predictions change or become wrong."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin_studies.tables.data import TableSplit

MAX_CHANGE = 0.1  # of a prediction: standard deviations of a number, or probability of a class
DELETION_ROWS = 24  # test rows in the deletion one by one
SHARES_LEFT = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005)
ORDERS = ("least looked at first", "at random", "most looked at first")


class DeletableContext:
    """Predictions of fitted networks (not of the Gaussian process beside them), with a context for each test row."""

    def __init__(self, model: Any, split: TableSplit):
        self.fitted, self.split = model.learner_, split
        values = model.schema_.encode(split.X_test)
        self.test_rows = self._rows(self.fitted.with_rows(values, np.full((len(values), 1), np.nan)).table)
        with torch.no_grad():
            self.memory = self.fitted.net.remember(self._rows(self.fitted.table))
        self.classes = getattr(model, "classes_", None)

    def _rows(self, table: Any) -> Any:
        return table.rows(torch.arange(len(table)).expand(self.fitted.net_options["members"], -1))

    @torch.no_grad()
    def predict(self, keep: Bool[ndarray, "m n"]) -> tuple[Float[ndarray, "m v"], Float[ndarray, "m"]]:
        """Return class probabilities, or the mean of a number in standard units; and the unit of a change: 1, or the
        standard deviation."""
        net = self.fitted.net.eval()
        deleted = torch.as_tensor(~keep).expand(len(net.trust), -1, -1)
        [prediction] = net.predict(self.test_rows, self.memory, deleted)
        if self.classes is not None:
            probabilities = self.fitted.calibrations[0].probabilities(prediction.probs.double().numpy())
            return probabilities, np.ones(len(probabilities))
        mean, variance = prediction.mean.double().numpy(), prediction.variance.double().numpy()
        return mean.mean(0)[:, None], np.sqrt((variance + mean**2).mean(0) - mean.mean(0) ** 2)

    def score(self, keep: Bool[ndarray, "m n"]) -> float:
        """Return the RMSE in units of the target, or the accuracy."""
        predicted, _ = self.predict(keep)
        if self.classes is not None:
            return float((self.classes[predicted.argmax(1)] == self.split.y_test).mean())
        errors = self.fitted.scales[0].inverse(predicted[:, 0]) - self.split.y_test
        return float(np.sqrt(np.mean(errors**2)))


def delete_one_by_one(context: DeletableContext, distances: Float[ndarray, "m n"], seed: int) -> dict[str, Any]:
    """Delete rows in random order, for good where a prediction stays within MAX_CHANGE of that with all rows. Return
    quantiles of the distances (1: the mean) of the rows that are kept and of those that are deleted."""
    keep = np.ones(distances.shape, bool)
    first, unit = context.predict(keep)
    for row in np.random.default_rng(seed).permutation(distances.shape[1]):
        trial = keep.copy()
        trial[:, row] = False
        trial[trial.sum(1) == 0, row] = True  # at least one row is left
        change = np.abs(context.predict(trial)[0] - first).max(1) / unit
        keep[change < MAX_CHANGE, row] = trial[change < MAX_CHANGE, row]
    distances = distances / distances.mean(1, keepdims=True)
    kept, deleted = distances[keep], distances[~keep]
    nearer = [row[mask].mean() < row[~mask].mean() for row, mask in zip(distances, keep, strict=True) if not mask.all()]
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    return {
        "rows": distances.shape[1],
        "kept": float(keep.sum(1).mean()),
        "kept_far": np.quantile(kept, levels).round(4).tolist(),
        "deleted_far": np.quantile(deleted, levels).round(4).tolist() if len(deleted) else [],
        "kept_nearer": float(np.mean(nearer)) if nearer else None,
    }


def delete_in_order(context: DeletableContext, attention: Float[ndarray, "m n"], seed: int) -> dict[str, list[float]]:
    """Return the score with ever fewer rows left, deleted in three orders, for each test row its own."""
    n = attention.shape[1]
    noise = np.random.default_rng(seed).random(attention.shape)
    priorities = dict(zip(ORDERS, (attention, noise, -attention), strict=True))  # the highest are left
    scores: dict[str, list[float]] = {}
    for name, priority in priorities.items():
        rank = priority.argsort(1)[:, ::-1].argsort(1)
        scores[name] = [context.score(rank < max(1, round(share * n))) for share in SHARES_LEFT]
    return scores
