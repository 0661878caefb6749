"""Scattered observations with missing values, as frames, for tests."""

import numpy as np
import pandas as pd

BOUND_COLUMNS = ["nitrate_filled", "nitrate_std", "nitrate_low", "nitrate_high"]


def wells(n: int = 120, missing: int = 15, seed: int = 0) -> pd.DataFrame:
    """Clustered points in the plane, a smooth surface under noise, and `missing` values without order. Coordinates are
    multiples of 1/1024, so that shifts of them are exact."""
    random = np.random.default_rng(seed)
    centres = random.random((6, 2))
    x = centres[random.integers(6, size=n)] + 0.08 * random.standard_normal((n, 2))
    x = np.round(x * 1024) / 1024
    y = surface(x) + 0.05 * random.standard_normal(n)
    y[random.permutation(n)[:missing]] = np.nan
    return pd.DataFrame({"well": [f"W{i}" for i in range(n)], "lon": x[:, 0], "lat": x[:, 1], "nitrate": y.round(3)})


def surface(x: np.ndarray) -> np.ndarray:
    return 10 + np.sin(3 * x[:, 0]) * np.cos(4 * x[:, 1])
