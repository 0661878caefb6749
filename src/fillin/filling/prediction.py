"""Predictions of missing values: numbers with their uncertainty, classes with their probability."""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.tabular.table import TypedColumn

SUFFIXES = ("filled", "std", "low", "high")  # of the columns, variables or arrays added for one filled with numbers


@dataclass(frozen=True)
class NumericPrediction:
    """Mean, standard deviation, prediction interval and quartiles of numbers, and samples of images.

    `rows` are row numbers of a table, those of new rows last, or ... for all cells of a grid or pixels of an image,
    observed ones included. Arrays are NumPy's, or dask's where those of the data are.
    """

    rows: Any
    mean: Any
    std: Any
    low: Any
    high: Any
    lower_quartile: Any = None
    upper_quartile: Any = None
    samples: Any = None

    def __repr__(self) -> str:
        samples = "" if self.samples is None else f", samples={len(self.samples)}"
        return f"NumericPrediction(mean={list(self.mean.shape)}{samples})"

    @classmethod
    def concatenate(cls, parts: "list[NumericPrediction]") -> "NumericPrediction":
        """Join predictions of different rows."""
        if not parts:
            return cls(np.empty(0, dtype=int), *(np.empty(0) for _ in range(6)))
        names = [field.name for field in fields(cls) if field.name != "samples"]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @property
    def interval(self) -> tuple[Any, Any, Any, Any]:
        """Return mean, standard deviation, lower and upper end, in the order of `SUFFIXES`."""
        return self.mean, self.std, self.low, self.high


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
        for part, values in zip(parts, prediction.interval, strict=True):
            part[prediction.rows] = values
    return parts


def format_number(value: float, std: float, comma: bool = False) -> str:
    """Return a number as text, to the fourth significant digit of its standard deviation.

    >>> format_number(315.421356, 0.30125), format_number(0.30125, 0.30125), format_number(float("nan"), 1.0)
    ('315.4214', '0.3013', '')
    """
    if math.isnan(value):
        return ""
    digits = 4
    if value and std > 0:
        digits = min(max(4 + math.floor(math.log10(abs(value))) - math.floor(math.log10(std)), 1), 17)
    text = f"{value:.{digits}g}"
    text = "0" if text == "-0" else text
    return text.replace(".", ",") if comma else text
