"""How far rows are from one another, and how much each looks at each."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from fillin.attention import record_weights
from fillin_studies.tables.data import Case
from fillin_studies.tables.rivals import prepared

BINS = 20  # of the rows that are looked at, by how near they are
DOTS = 300  # pairs that are kept for a picture


def distances(case: Case) -> Float[ndarray, "m n"]:
    """√Σ (x_i − x_j)² over columns of deviation one, a column each class; from rows that are asked to those known."""
    from scipy.spatial.distance import cdist

    units = prepared("passthrough", scaled=True).fit(case.X)
    return cdist(units.transform(case.asked), units.transform(case.X))


def weights(model: Any, case: Case) -> Float[ndarray, "m n"]:
    """How much a row that is asked looks at each that is known: a mean over networks and heads; rows sum to 1."""
    with record_weights() as seen, torch.no_grad():
        (model.predict_proba if case.classes else model.predict)(case.asked)
    [every] = [one.weights for one in seen]
    return every.mean((0, 1)).double().numpy()


def against(looks: Float[ndarray, "m n"], far: Float[ndarray, "m n"], seed: int) -> dict[str, Any]:
    """Weights (1: as much as all others) against distances (1: as far as the mean): rank correlation within a row,
    mean over rows; the mean weight of the nearest 1/BINS of the rows, of the next, …; and some pairs."""
    from scipy.stats import rankdata

    looks, far = looks * looks.shape[1], far / far.mean(1, keepdims=True)
    each = [np.corrcoef(rankdata(one), rankdata(away))[0, 1] for one, away in zip(looks, far, strict=True)]
    order = far.argsort(1)
    sorted_looks, sorted_far = (np.take_along_axis(one, order, 1) for one in (looks, far))
    parts = np.array_split(np.arange(far.shape[1]), BINS)
    random = np.random.default_rng(seed)
    rank = (far.shape[1] * random.random(DOTS) ** 2).astype(int)  # the nearer, the more of them
    row = random.integers(len(far), size=DOTS)
    return {
        "rank_correlation": float(np.mean(each)),
        "nearest": [float(sorted_looks[:, part].mean()) for part in parts],
        "far": [float(sorted_far[:, part].mean()) for part in parts],
        "dots": np.round([sorted_far[row, rank], sorted_looks[row, rank]], 4).tolist(),
    }
