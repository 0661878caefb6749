"""What is added for each filled column, in every format alike."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.filling.series.run import Filled
from fillin.tabular.sheet import Column

ENDINGS = ("filled", "std", "low", "high")


def result(column: Column, filled: Filled | None, new: int) -> tuple[Float[ndarray, "n"], ...]:
    """Value, deviation and band in all rows, `new` ones last: of what is known the value itself, deviation 0; NaN where
    nothing is known to fill from."""
    value = np.concatenate([column.values, np.full(new, np.nan)])
    known = ~np.isnan(value)
    parts = value, np.where(known, 0.0, np.nan), value.copy(), value.copy()
    if filled is not None:
        for part, found in zip(parts, (filled.mean, filled.std, filled.low, filled.high), strict=True):
            part[filled.rows] = found
    return parts
