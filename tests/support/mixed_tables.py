"""Tables without an order, with missing values, for tests."""

from datetime import date, timedelta

import numpy as np
import pandas as pd

NUMBERS, CLASSES = ["filled", "std", "low", "high"], ["filled", "probability"]
A_OUTPUTS = [f"a_{ending}" for ending in NUMBERS]


def mixed(n: int = 40, n_missing: int = 4) -> pd.DataFrame:
    """Two numbers, a class, a boolean and a date that depend on each other; missing values in all."""
    random = np.random.default_rng(0)
    a = random.normal(size=n)
    frame = pd.DataFrame({
        "a": a.round(4), "b": (2 * a + 0.1 * random.normal(size=n)).round(4), "c": np.where(a > 0, "high", "low"),
        "yes": pd.Series(a > 0, dtype=object), "day": [date(2020, 1, 1) + timedelta(days=round(100 * v)) for v in a],
    })  # fmt: skip
    frame["day"] = pd.to_datetime(frame["day"])
    for j, column in enumerate(frame.columns):
        frame.loc[random.permutation(n)[: n_missing + j], column] = None
    return frame


def unordered(n: int = 30) -> pd.DataFrame:
    return mixed(n)[["a", "b", "c"]]
