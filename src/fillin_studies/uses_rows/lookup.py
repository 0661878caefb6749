"""Every row comes twice, and its target is drawn at random: nothing tells it but the other copy.

A model is fitted to pairs with both targets. It is then asked for one copy of pairs that it never saw, and shown the
other: who has learnt to look rows up knows the answer, and who tells a row from its own cells cannot. Changing what the
copies hold then changes what is said.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fillin.runtime import require
from fillin_studies.tables.data import Case
from fillin_studies.tables.methods import METHODS
from fillin_studies.tables.score import ask
from fillin_studies.uses_rows.corrupt import corrupted
from fillin_studies.uses_rows.models import CONTROLS, Looking, fit, scores

PAIRS, ASKED, COLUMNS, CLASSES = 250, 100, 8, 4


@dataclass(frozen=True)
class Task:
    """`noise`: by how much copies differ, in deviations of a column; `classes`: of the target (0: a number)."""

    noise: float
    classes: int

    def draw(self, seed: int) -> tuple[Case, Case]:
        """Pairs to learn from (they ask what copies of other pairs hold, and are not shown them); and the same rows
        with those copies among them."""
        pandas, random = require("pandas"), np.random.default_rng(seed)
        x = random.normal(size=(PAIRS + ASKED, COLUMNS))
        y = random.integers(self.classes, size=len(x)).astype(float) if self.classes else random.normal(size=len(x))
        one, two = (pandas.DataFrame(x + self.noise * random.normal(size=x.shape)).add_prefix("x") for _ in range(2))
        asked, truth = two[PAIRS:], y[PAIRS:]
        both = pandas.concat([one[:PAIRS], two[:PAIRS]]), np.concatenate([y[:PAIRS]] * 2)
        shown = pandas.concat([both[0], one[PAIRS:]]), np.concatenate([both[1], truth])
        return Case(*both, asked, truth, self.classes), Case(*shown, asked, truth, self.classes)


TASKS = {
    "numbers, equal copies": Task(0.0, 0),
    "numbers, similar copies": Task(0.1, 0),
    "classes, equal copies": Task(0.0, CLASSES),
    "classes, similar copies": Task(0.1, CLASSES),
}


def measure(title: str, name: str, seed: int, size: dict[str, Any]) -> dict[str, Any]:
    """The result of one cell: R² or accuracy of the copies that are asked for, `unseen` without the other copies."""
    task = TASKS[title]
    learnt, shown = task.draw(seed)
    about = {"part": "lookup", "task": title, "model": name, "chance": 1 / task.classes if task.classes else 0.0}
    with require("threadpoolctl").threadpool_limits(1):
        if name in CONTROLS:
            unseen, refitted = (_score(ask(METHODS[name], case, seed), shown) for case in (learnt, shown))
            return {**about, "unseen": unseen, "refitted": refitted}
        model = fit(name, learnt, seed, **size)
        return {
            **about,
            "seen": _score(scores(model, shown), shown),
            "unseen": _score(scores(model, learnt), shown),
            "targets": _score(corrupted(model, shown, seed, features=False), shown),
            "corrupted": _score(corrupted(model, shown, seed), shown),
            "follows": follows(model, shown, seed),
        }


def _score(found: dict[str, float], case: Case) -> float:
    return found["accuracy"] if case.classes else 1 - found["rmse"] ** 2 / float(case.truth.var())


def follows(model: Any, case: Case, seed: int) -> float:
    """The targets of the copies are exchanged for others: the correlation of what is said with those, or how often it
    is the same class."""
    other = np.random.default_rng(seed).permutation(case.truth)
    y = np.concatenate([case.y[: -len(other)], other])
    said = Looking(model).fit(case.X, y).predict(replace(case, y=y).asked)
    return float(np.mean(said == other) if case.classes else np.corrcoef(said, other)[0, 1])
