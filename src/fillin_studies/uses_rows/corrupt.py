"""What a score is worth where the other rows are wrong: every column shuffled on its own, as in Kossen et al. 2021."""

from dataclasses import replace
from typing import Any

import numpy as np

from fillin_studies.tables.data import Case
from fillin_studies.uses_rows.models import scores

TIMES = 3  # shuffles; scores are means over them


def shuffled(case: Case, random: np.random.Generator, features: bool = True) -> Case:
    """The case with other rows to look at: each column has its values, in an order of its own. Without `features` the
    targets alone are shuffled."""
    X = case.X
    if features:
        X = X.assign(**{name: X[name].to_numpy()[random.permutation(len(X))] for name in X})
    return replace(case, X=X, y=random.permutation(case.y))


def corrupted(model: Any, case: Case, seed: int, features: bool = True) -> dict[str, float]:
    """Mean scores of rows that look at shuffled ones."""
    random = np.random.default_rng(seed)
    each = [scores(model, shuffled(case, random, features)) for _ in range(TIMES)]
    return {key: float(np.mean([one[key] for one in each])) for key in each[0]}
