"""Rows are taken from memory, of each asked row others, until what is said changes, or is wrong."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin_studies.tables.data import Case

BOUND = 0.1  # of what is said: deviations of a number, or probability of a class
ROWS = 24  # that are asked while others are deleted one by one
LEFT = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005)  # shares of the rows
ORDERS = ("least looked at first", "at random", "most looked at first")


class Memory:
    """Answers of fitted networks (not of the process beside them) to asked rows, each of which sees rows of its own."""

    def __init__(self, model: Any, case: Case):
        self.fitted, self.case = model.learner_, case
        values = model.schema_.encode(case.asked)
        self.asked = self._rows(self.fitted.with_rows(values, np.full((len(values), 1), np.nan)).table)
        with torch.no_grad():
            self.memory = self.fitted.net.remember(self._rows(self.fitted.table))
        self.classes = getattr(model, "classes_", None)

    def _rows(self, table: Any) -> Any:
        return table.rows(torch.arange(len(table)).expand(self.fitted.net_options["members"], -1))

    @torch.no_grad()
    def told(self, keep: Bool[ndarray, "m n"]) -> tuple[Float[ndarray, "m v"], Float[ndarray, "m"]]:
        """Of each asked row the probabilities of classes, or the mean of a number in standard units; and the unit in
        which a change of it is felt: 1, or its deviation."""
        net = self.fitted.net.eval()
        gone = torch.as_tensor(~keep).expand(len(net.trust), -1, -1)
        [found] = net.predict(self.asked, self.memory, gone)
        if self.classes is not None:
            said = self.fitted.calibrations[0].probabilities(found.probs.double().numpy())
            return said, np.ones(len(said))
        mean, variance = found.mean.double().numpy(), found.variance.double().numpy()
        return mean.mean(0)[:, None], np.sqrt((variance + mean**2).mean(0) - mean.mean(0) ** 2)

    def score(self, keep: Bool[ndarray, "m n"]) -> float:
        """RMSE in units of the target, or accuracy."""
        said, _ = self.told(keep)
        if self.classes is not None:
            return float((self.classes[said.argmax(1)] == self.case.truth).mean())
        missed = self.fitted.scales[0].inverse(said[:, 0]) - self.case.truth
        return float(np.sqrt(np.mean(missed**2)))


def one_by_one(memory: Memory, far: Float[ndarray, "m n"], seed: int) -> dict[str, Any]:
    """In an order at random a row is deleted for good where what is said moves by less than BOUND from what was said
    with all of them. Distances (1: the mean) of those that are kept and of those that are deleted."""
    keep = np.ones(far.shape, bool)
    first, unit = memory.told(keep)
    for row in np.random.default_rng(seed).permutation(far.shape[1]):
        trial = keep.copy()
        trial[:, row] = False
        trial[trial.sum(1) == 0, row] = True  # one at least is left
        moved = np.abs(memory.told(trial)[0] - first).max(1) / unit
        keep[moved < BOUND, row] = trial[moved < BOUND, row]
    far = far / far.mean(1, keepdims=True)
    kept, deleted = far[keep], far[~keep]
    nearer = [one[here].mean() < one[~here].mean() for one, here in zip(far, keep, strict=True) if not here.all()]
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    return {
        "rows": far.shape[1],
        "kept": float(keep.sum(1).mean()),
        "kept_far": np.quantile(kept, levels).round(4).tolist(),
        "deleted_far": np.quantile(deleted, levels).round(4).tolist() if len(deleted) else [],
        "kept_nearer": float(np.mean(nearer)) if nearer else None,
    }


def in_order(memory: Memory, looks: Float[ndarray, "m n"], seed: int) -> dict[str, list[float]]:
    """The score with ever fewer rows left, deleted in three orders, of each asked row its own."""
    n = looks.shape[1]
    noise = np.random.default_rng(seed).random(looks.shape)
    worth = dict(zip(ORDERS, (looks, noise, -looks), strict=True))  # what is worth most is left
    found: dict[str, list[float]] = {}
    for name, value in worth.items():
        rank = value.argsort(1)[:, ::-1].argsort(1)
        found[name] = [memory.score(rank < max(1, round(share * n))) for share in LEFT]
    return found
