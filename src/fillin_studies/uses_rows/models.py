"""What is examined: estimators that look at other rows. Another is one more entry."""

import copy
from typing import Any

from jaxtyping import Float
from numpy import ndarray, searchsorted

import fillin
from fillin_studies.tables.data import Case
from fillin_studies.tables.forecasts import whole
from fillin_studies.tables.methods import METHODS, OURS, Method
from fillin_studies.tables.score import ask

MODELS = {
    OURS: "TableRegressor, TableClassifier: attention between rows, over places that are learnt, beside a process",
    "npt": "TableRegressor(model='npt'), TableClassifier(model='npt'): attention between datapoints and between "
    "attributes in turn",
}
CONTROLS = ("MLP", "gradient boosting")  # which tell a row from its own cells alone
ABOUT = MODELS | {name: METHODS[name].about for name in CONTROLS}


def fit(name: str, case: Case, seed: int, members: int, steps: int) -> Any:
    """An estimator that has learnt the rows of a case."""
    kind = fillin.TableClassifier if case.classes else fillin.TableRegressor
    options: dict[str, Any] = {"members": members, "steps": steps, "random_state": seed}
    return kind(**options, model="npt" if name == "npt" else "rows").fit(case.X, case.y)


class Looking:
    """A fitted estimator whose `fit` is to be shown rows: it looks at these from then on, and learns nothing."""

    def __init__(self, model: Any):
        self.model = self.now = model

    def fit(self, X: Any, y: Float[ndarray, "n"]) -> "Looking":
        held = searchsorted(self.model.classes_, y).astype(float) if hasattr(self.model, "classes_") else y
        self.now = copy.copy(self.model)
        self.now.learner_ = self.model.learner_.with_rows(self.model.schema_.encode(X), held[:, None])
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


def scores(model: Any, case: Case) -> dict[str, float]:
    """Of a fitted estimator that looks at the rows of the case, of what it says of those that are asked for."""
    looking = Looking(model)
    method = Method(lambda seed: looking, lambda seed: looking, "", forecast=whole)
    return {key: value for key, value in ask(method, case, 0).items() if key != "seconds"}
