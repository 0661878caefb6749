"""Points, and a model with random weights, for tests of the regressor."""

import numpy as np
import torch

from fillin.models.filler import Filler
from support.helpers import tiny


def filler(dim_x: int = 1, **options) -> Filler:
    torch.manual_seed(0)
    return tiny("filler", dim_x, dtype=torch.float32, **options)


def draw_points(n: int = 30, dim_x: int = 1, seed: int = 0):
    random = np.random.default_rng(seed)
    X = random.uniform(0, 5, (n, dim_x))
    return X, np.sin(2 * X).sum(1) + 0.1 * random.standard_normal(n)


def unit_data():
    """Points over [0, 1] with values in [−1, 1]: a model receives them without rescaling."""
    x = np.array([0.0, 0.15, 0.2, 0.8, 1.0])[:, None]
    return x, np.array([0.3, -1.0, -0.2, 1.0, -0.1])


X, Y = draw_points()
Q = np.linspace(-1, 7, 9)[:, None]
