"""Typed tables: columns of numbers, dates and classes that keep the original text and row numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from fillin.errors import InputError, Message, UnknownName, render
from fillin.tabular.dates import DAY, Clock

NUMBER, CLASS, BOOLEAN, DATE = KINDS = ("number", "class", "boolean", "date")


@dataclass(frozen=True)
class InvalidCell:
    """The first cell that cannot be read as the rest of its column, and the remedy."""

    row: int
    message: str | Message
    may_be_class: bool = True  # the cell is text, and could be read as a class


@dataclass(frozen=True, eq=False)
class TypedColumn:
    """One column of a table. `values` are float64 with NaN where missing; of dates, int64 in ticks of the `clock`;
    of classes, empty.

    `cells` gives the original text, to tell groups apart and to write observed values as they came.
    """

    name: str
    kind: str
    values: ndarray
    missing: Bool[ndarray, "n"]
    cells: Callable[[], Sequence[str]]
    clock: Clock | None = None
    invalid: InvalidCell | None = None
    decimal_comma: bool = False  # 3,14
    missing_words: tuple[str, ...] = ()  # words that were read as missing values
    exact: Int[ndarray, "n"] | None = None  # integers that float64 would round, such as nanoseconds since 1970
    origin: int = 0  # the offset subtracted from `values`
    categorical: bool = False  # categories of a frame: classes, whatever they look like
    unnamed_index: bool = False  # the index of a frame, without a name

    @property
    def numbers_rows(self) -> bool:
        """Whether the column only counts the rows: 1, 2, 3 …"""
        complete = self.kind == NUMBER and len(self.values) > 1 and not self.missing.any()
        return complete and self.values[0] in (0, 1) and bool((np.diff(self.values) == 1).all())

    @property
    def has_unique_integers(self) -> bool:
        """Whether the values may be names of rows: integers, each of them once."""
        complete = self.kind == NUMBER and self.invalid is None and not self.missing.any()
        return complete and bool((self.values % 1 == 0).all()) and len(np.unique(self.exact_values)) == len(self.values)

    @property
    def exact_values(self) -> ndarray:
        """Values that can be compared without rounding."""
        return self.values if self.exact is None else self.exact

    def shifted(self, origin: int | None = None) -> "TypedColumn":
        """Large integers minus the smallest (or `origin`), which keeps their differences exact."""
        if self.exact is None:
            return self if not origin else replace(self, values=self.values - origin, origin=origin)
        origin = int(self.exact.min()) if origin is None else origin
        return replace(self, values=(self.exact - origin).astype(float), origin=origin, exact=None)

    @cached_property
    def labels(self) -> ndarray:
        """The cells as class labels; None where missing."""
        cells = [None if gone else str(cell).strip() for cell, gone in zip(self.cells(), self.missing, strict=True)]
        return np.array(cells, dtype=object)

    @cached_property
    def features(self) -> ndarray:
        """Numbers, dates as days since 1970-01-01, or class labels; NaN or None where missing."""
        if self.kind == CLASS:
            return self.labels
        return np.where(self.missing, np.nan, self.values / (DAY if self.kind == DATE else 1))

    @cached_property
    def n_distinct(self) -> int:
        return len(set(self.features[~self.missing].tolist()))

    def take(self, rows: Int[ndarray, "m"]) -> "TypedColumn":
        return replace(
            self,
            values=self.values[rows] if len(self.values) else self.values,
            missing=self.missing[rows],
            cells=lambda: np.asarray(self.cells(), dtype=object)[rows],
            exact=None if self.exact is None else self.exact[rows],
            invalid=None,
        )


def exceeds_float64(integers: ndarray) -> bool:
    """Whether these are integers, some of which float64 would round."""
    return integers.dtype.kind == "i" and len(integers) > 0 and int(np.abs(integers).max()) > 2**53


@dataclass(frozen=True)
class TypedTable:
    """The typed columns of one file or frame. `row_label(row)` locates a row in it: "line 7"."""

    name: str
    columns: dict[str, TypedColumn]
    n_rows: int
    row_label: Callable[[int], str]
    from_text: bool = False  # read from a delimited text file

    def column(self, name: str) -> TypedColumn:
        if name not in self.columns:
            raise UnknownName(f"column of {self.name}", name, self.columns)
        return self.columns[name]

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, len(self.columns)

    def select(self, names: Iterable[str]) -> "TypedTable":
        return replace(self, columns={name: self.column(name) for name in names})

    def take(self, rows: Int[ndarray, "m"]) -> "TypedTable":
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return replace(self, columns=columns, n_rows=len(rows), row_label=lambda row: self.row_label(int(rows[row])))

    def hide(self, cells: Mapping[str, Bool[ndarray, "n"]]) -> "TypedTable":
        """The table without the values of some cells, given as a mask for each column."""
        columns = dict(self.columns)
        for name, mask in cells.items():
            columns[name] = replace(columns[name], missing=columns[name].missing | mask)
        return replace(self, columns=columns)

    def location(self, row: int, column: str) -> str:
        return f"{self.name}, {self.row_label(int(row))}, column '{column}'"

    def error_at(self, row: int, column: str, message: str | Message, **fields: object) -> InputError:
        """An error about one cell, to be raised. `message` and `fields` are those of `FillinError`."""
        return InputError("{location}: {what}", location=self.location(row, column), what=render(message, **fields))
