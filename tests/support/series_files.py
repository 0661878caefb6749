"""Series with missing values, as text and as frames, for tests."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd

SERIES = "date,y\n2024-01-01,1\n2024-01-02,\n2024-01-03,3\n"
TABLE = "x,y\n1,2\n3,\n2,4\n"


def csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False)


def waves(n=40, seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    x = np.arange(n, dtype=float)
    y = 10 + np.sin(x / 3) + 0.1 * random.standard_normal(n)
    y[random.permutation(n)[: n // 4]] = np.nan
    return pd.DataFrame({"x": x, "y": y.round(4)})


def days(n=30) -> pd.DataFrame:
    frame = waves(n)
    start = datetime(2024, 1, 1)
    return pd.DataFrame({"day": [f"{start + timedelta(days=i):%Y-%m-%d}" for i in range(n)], "level": frame["y"]})
