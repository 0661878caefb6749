"""A table understood: what is read of it, what is to be filled, and what to say of it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from fillin.errors import InputError, argument, option
from fillin.filling.detect_index import names_rows
from fillin.filling.diagnostics import Note, listed, sentinels, spelled
from fillin.filling.series.infer_roles import check_room
from fillin.filling.series.run import check_bounds
from fillin.filling.table.declared_types import as_said, codes, unread
from fillin.filling.table.detect_kind import guessed
from fillin.predictive import MOST_CLASSES
from fillin.runtime import require
from fillin.tabular.sheet import NUMBER, TEXT, TIME, Column, Sheet
from fillin.tabular.unread import check_units

if TYPE_CHECKING:
    from fillin.filling.bounds import Bounds

DAY = 86_400_000_000  # ticks of a clock
NUMBERS, CLASSES = ("filled", "std", "low", "high"), ("filled", "probability")  # what is added for a column
_LARGEST = 1e100  # squares of numbers must not overflow
_NAMES = 20  # different words, of a column that may be nothing but names of its rows


@dataclass(frozen=True, eq=False)
class TablePlan:
    """`reads` are the columns that teach, `fills` those whose blanks are filled: among `reads`, or the target alone.
    What has one value wherever it is known, `fixed`, is filled with that."""

    sheet: Sheet
    reads: list[Column]
    fills: list[Column]
    fixed: list[Column]
    target: Column | None
    notes: list[Note]
    level: float = 0.95
    seed: int = 0
    bounds: "dict[str, Bounds]" = field(default_factory=dict)
    index: Collection[str] = ()

    @property
    def line(self) -> str:
        """What was seen, in one line."""
        columns = [column for column in self.sheet.columns.values() if column.name not in self.index]
        kinds = Counter(column.kind for column in columns if not column.blank.all())
        words = (("number", NUMBER), ("class", TEXT), ("date", TIME))
        told = [_counted(kinds[kind], word) for word, kind in words if kinds[kind]]
        gaps = [int(column.blank.sum()) for column in columns if column.blank.any()]
        return (
            f"{self.sheet.name}: a table: {_counted(self.sheet.rows, 'row')}, {_counted(len(columns), 'column')} "
            f"({', '.join(told) or 'all blank'}), {_counted(sum(gaps), 'blank')}"
            + (f" in {_counted(len(gaps), 'column')}" if gaps else "")
        )

    @property
    def all_fills(self) -> list[Column]:
        """As they come in the table."""
        own = {column.name for column in (*self.fills, *self.fixed)}
        return [column for name, column in self.sheet.columns.items() if name in own]

    @property
    def places(self) -> int:
        """How many cells are to be filled."""
        return sum(int(column.blank.sum()) for column in self.all_fills)

    @property
    def blanks(self) -> int:
        """How many cells of the columns that were asked for are blank."""
        asked = [self.target] if self.target else self.sheet.columns.values()
        return sum(int(column.blank.sum()) for column in asked)

    @cached_property
    def frame(self) -> Any:
        """Everything that is read, and the target, as a frame of pandas: numbers (dates in days), and words."""
        every = [*self.reads, *([self.target] if self.target else [])]
        return require("pandas").DataFrame({column.name: numbers_of(column) for column in every})


def plan_table(
    sheet: Sheet, *, y: Sequence[str] = (), target: str | None = None, kind: str | None = None,
    classes: Sequence[str] = (), numbers: Sequence[str] = (), bounds: "Bounds | Mapping[str, Bounds] | None" = None,
    level: float = 0.95, seed: int = 0, index: Collection[str] = (),
) -> TablePlan:  # fmt: skip
    """What there is to do; whatever cannot be read is an error with its place. An index only names rows."""
    if not 0 < level < 1:
        raise InputError(argument("level") + f" is the share inside the band, between 0 and 1, got {level}")
    if not 0 <= seed < 2**32:
        raise InputError(argument("seed") + f" must be a whole number from 0 to 4294967295, got {seed}")
    if target is not None and y:
        raise InputError(argument("target") + " and " + argument("y") + " both say what to fill; give one of them")
    said = {*classes, *numbers}
    notes = [guessed(sheet, y)] if kind is None and target is None and not said else []
    sheet = as_said(sheet, classes, numbers)
    check_units(sheet)
    named = [sheet.column(name) for name in dict.fromkeys(y)] if target is None else [sheet.column(target)]
    for column in sheet.columns.values():
        _check(sheet, column)
        notes += [*sentinels(column), *spelled(column)] if column.kind == NUMBER else _spelled(column)
    wanted = named or list(sheet.columns.values())
    gaps = [column for column in wanted if column.blank.any()]
    reads, dropped = _read(sheet, named, said, index, notes)
    fills, fixed = [], []
    for column in gaps:
        if column in dropped:
            continue
        if different(column) == 1:
            fixed.append(column)
            notes.append(
                Note(f"{column.name} has one value wherever it is known: filled with that, how surely is open")
            )
        else:
            fills.append(column)
        check_room(sheet, column, endings(column))
    goal = sheet.column(target) if target is not None else None
    reads = [column for column in reads if column is not goal and different(column) > 1]
    if goal is not None and fills:
        _check_target(sheet, goal, reads)
    notes += [*unread(reads, said), *codes(fills, said, goal)]
    limits = _bounds(sheet, bounds, [*fills, *fixed])
    return TablePlan(sheet, reads, fills, fixed, goal, notes, level, seed, limits, index)


def _read(
    sheet: Sheet, named: list[Column], said: Collection[str], index: Collection[str], notes: list[Note]
) -> tuple[list[Column], list[Column]]:
    """Columns that can be read, and those that cannot; named ones must be. What was said of kinds is believed."""
    reads, dropped, empty = [], [], []
    for column in sheet.columns.values():
        why = ""
        if column.name in index:
            why = "is the index"
            notes += [] if column.unnamed else [Note(f"{column.name} {why}: not read")]
        elif column.blank.all():
            empty.append(column.name)
            why = f"is blank in all {sheet.rows:,} rows: nothing is known of it"
        elif column.name in said:
            pass
        elif column.counts or names_rows(column):
            why = "only numbers the rows" if column.counts else "only names the rows"
            notes.append(Note(f"{column.name} {why}: not read (" + option("numbers", [column.name]) + " reads it)"))
        elif _names(column):
            why = f"has {different(column):,} different words in {int((~column.blank).sum()):,} rows"
            left = ", and its blanks are left" if column.blank.any() else ""
            words = f"{column.name} {why}: taken for names, it is not read{left} ("
            notes.append(Note(words + option("classes", [column.name]) + " reads it)", doubtful=bool(left)))
        if why and column in named and column.blank.any():
            raise InputError(f"{sheet.name}: column '{column.name}' {why}; it cannot be filled, leave it out")
        (dropped if why else reads).append(column)
    if empty:
        notes.append(Note(f"nothing is known of {listed(empty)}: left blank", doubtful=True))
    return reads, dropped


def _check(sheet: Sheet, column: Column) -> None:
    if column.wrong is not None:
        why = column.wrong.why
        if "not finite" not in str(why) and option("numbers").python not in str(why):
            why = why + "; if the column has codes or words, say " + option("classes", [column.name])
        raise sheet.refuse(column.wrong.row, column.name, why)
    if column.kind == NUMBER and (large := np.abs(column.values) > _LARGEST).any():
        row = int(large.argmax())
        why = f"{column.values[row]:g} is beyond {_LARGEST:g}, where squares overflow; use other units"
        raise sheet.refuse(row, column.name, why)


def _bounds(sheet: Sheet, bounds: "Bounds | Mapping[str, Bounds] | None", fills: list[Column]) -> "dict[str, Bounds]":
    """Of each column of numbers that is filled, or named; what is known of it lies within."""
    if bounds is None:
        return {}
    require("scipy")
    from fillin.filling.bounds import bounds_of

    named = [name for name in bounds if name] if isinstance(bounds, Mapping) else []
    for name in named:
        if sheet.column(name).kind != NUMBER:
            why = f"{sheet.name}: column '{name}' has no numbers, and " + argument("bounds")
            raise InputError(why + " are of numbers; leave it out")
    wanted = [c for c in sheet.columns.values() if c.kind == NUMBER and (c in fills or c.name in named)]
    found = bounds_of([column.name for column in wanted], bounds)
    for column in wanted:
        check_bounds(sheet, column, found.get(column.name, (None, None)))
    return found


def _check_target(sheet: Sheet, goal: Column, reads: list[Column]) -> None:
    if not reads:
        raise InputError(
            f"{sheet.name}: no other column can tell '{goal.name}'; add columns, or fill all with "
            + option("y", goal.name)
        )
    if goal.kind == TEXT and different(goal) > MOST_CLASSES:
        raise InputError(
            f"{sheet.name}: column '{goal.name}' has {different(goal):,} classes, and at most {MOST_CLASSES} can be "
            "told apart; join rare ones, or fill the commonest with " + option("y", goal.name)
        )  # fmt: skip


def _spelled(column: Column) -> list[Note]:
    """Words that were taken for blanks, and may have been meant as words."""
    cells, rows = column.cells(), np.flatnonzero(column.blank)
    words = sorted({str(cells[row]).strip() for row in rows.tolist()} - {""}) if column.kind == TEXT else []
    if not words or column.blank.all():
        return []
    return [Note(f"{column.name} has {listed([repr(word) for word in words])}: read as blank", doubtful=True)]


def _names(column: Column) -> bool:
    """Words that hardly ever come again, such as names, tell nothing of other rows."""
    known = int((~column.blank).sum())
    return column.kind == TEXT and different(column) > _NAMES and 2 * different(column) > known


def endings(column: Column) -> tuple[str, ...]:
    return CLASSES if column.kind == TEXT else NUMBERS


def words_of(column: Column) -> ndarray:
    """The cells of a column of classes; None where blank."""
    cells = [None if blank else str(cell).strip() for cell, blank in zip(column.cells(), column.blank, strict=True)]
    return np.array(cells, dtype=object)


def numbers_of(column: Column) -> ndarray:
    """Numbers as they are, times in days since 1970, classes as words."""
    if column.kind == TEXT:
        return words_of(column)
    return np.where(column.blank, np.nan, column.values / (DAY if column.kind == TIME else 1))


def different(column: Column) -> int:
    """How many values are known."""
    values = numbers_of(column)[~column.blank]
    return len(set(values.tolist()))


def _counted(count: int, word: str) -> str:
    """
    >>> _counted(1, "class"), _counted(1200, "class"), _counted(0, "row")
    ('1 class', '1,200 classes', '0 rows')
    """
    return f"{count:,} {word}{'' if count == 1 else 'es' if word.endswith('s') else 's'}"
