"""Predictions of missing values: numbers with their uncertainty, classes with their probability."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.tabular.table import TypedColumn

SUFFIXES = ("filled", "std", "low", "high")  # of the columns, variables or arrays added for one filled with numbers


@dataclass(frozen=True)
class NumericPrediction:
    """Mean, standard deviation, prediction interval and quartiles at `rows`: those of the data, then new ones."""

    rows: Int[ndarray, "n"]
    mean: Float[ndarray, "n"]
    std: Float[ndarray, "n"]
    low: Float[ndarray, "n"]
    high: Float[ndarray, "n"]
    lower_quartile: Float[ndarray, "n"]
    upper_quartile: Float[ndarray, "n"]

    @classmethod
    def concatenate(cls, parts: "list[NumericPrediction]") -> "NumericPrediction":
        """Join predictions of different rows."""
        names = [field.name for field in fields(cls)]
        empty = np.empty(0, dtype=int), *(np.empty(0) for _ in names[1:])
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names) if parts else empty)


@dataclass(frozen=True)
class ClassPrediction:
    """The most probable class at `rows`, and its probability."""

    rows: Int[ndarray, "n"]
    labels: ndarray
    probability: Float[ndarray, "n"]


ColumnPrediction = NumericPrediction | ClassPrediction
Prediction = dict[str, Any]  # a ColumnPrediction by the name of each filled column


def complete_column(
    column: TypedColumn, prediction: NumericPrediction | None, new: int
) -> tuple[Float[ndarray, "n"], ...]:
    """Return value, standard deviation and interval of all rows, the `new` ones last.

    An observed value is its own interval, with standard deviation 0. All are NaN where nothing could be predicted.
    """
    value = np.concatenate([column.values, np.full(new, np.nan)])
    parts = value, np.where(np.isnan(value), np.nan, 0.0), value.copy(), value.copy()
    if prediction is not None:
        predicted = prediction.mean, prediction.std, prediction.low, prediction.high
        for part, values in zip(parts, predicted, strict=True):
            part[prediction.rows] = values
    return parts
