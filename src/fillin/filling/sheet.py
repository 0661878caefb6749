"""A table as fill sees it: columns of numbers, times and words, and for each cell the place that an error can name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from fillin.errors import InputError, UnknownName
from fillin.filling.clock import Clock

NUMBER, TIME, TEXT = "number", "time", "text"


@dataclass(frozen=True)
class Wrong:
    """The first cell that is not like the others of its column, and what to do about it."""

    row: int
    why: str


@dataclass(frozen=True)
class Column:
    """`values` are float64 with NaN where it is blank, or, for times, int64 in the ticks of its `clock`.

    `cells` gives the column as words: to tell groups apart, and to repeat what is known as it was written.
    """

    name: str
    kind: str
    values: ndarray
    blank: Bool[ndarray, "n"]
    cells: Callable[[], Sequence[str]]
    clock: Clock | None = None
    wrong: Wrong | None = None
    comma: bool = False  # 3,14

    @property
    def counts(self) -> bool:
        """It only numbers the rows: 1, 2, 3 …"""
        whole = self.kind == NUMBER and len(self.values) > 1 and not self.blank.any()
        return whole and self.values[0] in (0, 1) and bool((np.diff(self.values) == 1).all())


@dataclass(frozen=True)
class Sheet:
    """`name` is that of the file, `line(row)` where a row is: "line 7"."""

    name: str
    columns: dict[str, Column]
    rows: int
    line: Callable[[int], str]

    def column(self, name: str) -> Column:
        if name not in self.columns:
            raise UnknownName(f"column of {self.name}", name, self.columns)
        return self.columns[name]

    def place(self, row: int, column: str) -> str:
        return f"{self.name}, {self.line(int(row))}, column '{column}'"

    def refuse(self, row: int, column: str, why: str) -> InputError:
        """An error about one cell."""
        return InputError(f"{self.place(row, column)}: {why}")
