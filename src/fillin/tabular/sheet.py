"""A table as fill sees it: columns of numbers, times and words, and for each cell the place that an error can name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from fillin.errors import InputError, UnknownName, Words
from fillin.tabular.dates import Clock

NUMBER, TIME, TEXT = "number", "time", "text"


@dataclass(frozen=True)
class Wrong:
    """The first cell that is not like the others of its column, and what to do about it."""

    row: int
    why: str | Words


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
    spelled: tuple[str, ...] = ()  # words that were read as blanks
    exact: Int[ndarray, "n"] | None = None  # whole numbers that float64 cannot tell apart, as nanoseconds since 1970
    origin: int = 0  # what was taken from each of `values`
    coded: bool = False  # it came as categories, whatever these look like
    unnamed: bool = False  # the index of a frame, without a name

    @property
    def counts(self) -> bool:
        """It only numbers the rows: 1, 2, 3 …"""
        whole = self.kind == NUMBER and len(self.values) > 1 and not self.blank.any()
        return whole and self.values[0] in (0, 1) and bool((np.diff(self.values) == 1).all())

    @property
    def labels(self) -> bool:
        """It may be what rows are called: whole numbers, each of them once."""
        whole = self.kind == NUMBER and self.wrong is None and not self.blank.any()
        return whole and bool((self.values % 1 == 0).all()) and len(np.unique(self.places)) == len(self.places)

    @property
    def places(self) -> ndarray:
        """Values that can be compared."""
        return self.values if self.exact is None else self.exact

    def from_origin(self, origin: int | None = None) -> "Column":
        """Large whole numbers less the smallest (or `origin`): as far apart as they are."""
        if self.exact is None:
            return self if not origin else replace(self, values=self.values - origin, origin=origin)
        origin = int(self.exact.min()) if origin is None else origin
        return replace(self, values=(self.exact - origin).astype(float), origin=origin, exact=None)


def too_large(whole: ndarray) -> bool:
    """Whether they are whole numbers, some of which float64 would round."""
    return whole.dtype.kind == "i" and len(whole) > 0 and int(np.abs(whole).max()) > 2**53


@dataclass(frozen=True)
class Sheet:
    """`name` is that of the file, `line(row)` where a row is: "line 7"."""

    name: str
    columns: dict[str, Column]
    rows: int
    line: Callable[[int], str]
    text: bool = False  # cells are told apart by what stands between them

    def column(self, name: str) -> Column:
        if name not in self.columns:
            raise UnknownName(f"column of {self.name}", name, self.columns)
        return self.columns[name]

    def place(self, row: int, column: str) -> str:
        return f"{self.name}, {self.line(int(row))}, column '{column}'"

    def refuse(self, row: int, column: str, why: str | Words) -> InputError:
        """An error about one cell."""
        return InputError(f"{self.place(row, column)}: " + why)
