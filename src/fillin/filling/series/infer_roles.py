"""What a table is: which column orders its rows, which are to be filled, which groups are series of their own."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError, Words, choose, option
from fillin.filling.detect_index import Group, groups_of, nearly, no_order, ordered_by, ordering
from fillin.filling.diagnostics import Note, sentinels, spelled
from fillin.filling.series.duplicate_index import check_shared, hours_beside, join
from fillin.tabular.dates import SECOND
from fillin.tabular.sheet import NUMBER, TEXT, TIME, Column, Sheet
from fillin.tabular.unread import almost, check_units

KINDS = ("series", "table")


@dataclass(frozen=True)
class Seen:
    """A table understood as one series, or one for each group."""

    sheet: Sheet
    x: Column
    y: list[Column]
    groups: list[Group]
    by: tuple[str, ...]
    y_err: Column | None
    notes: list[Note]

    def places(self, native: ndarray) -> Float[ndarray, "n"]:
        """Values of the x column as numbers: times in seconds since the first."""
        if self.x.clock is None:
            return native
        return (native - self.x.values[~self.x.blank].min()) / SECOND

    @property
    def line(self) -> str:
        """In one line."""
        kind = "times" if self.x.kind == TIME else "numbers"
        groups = f", {len(self.groups):,} groups by {' and '.join(self.by)}" if self.by else ""
        blanks = [f"{column.name} ({count:,} blank{'s' * (count != 1)})" for column, count in self._blanks()]
        first, last = self.shown(np.array([self.x.values.min(), self.x.values.max()]))
        return (
            f"{self.sheet.name}: a series over {self.x.name} ({kind}, {first} … {last}), {self.sheet.rows:,} rows"
            f"{groups}; to fill: {', '.join(blanks) or 'nothing'}"
        )

    def _blanks(self) -> list[tuple[Column, int]]:
        return [(column, int(column.blank.sum())) for column in self.y]

    @property
    def blanks(self) -> int:
        return sum(count for _, count in self._blanks())

    def shown(self, native: ndarray) -> list[str]:
        """Values of the x column as text."""
        if self.x.clock is not None:
            return self.x.clock.show(native)
        if self.x.origin:
            return [f"{self.x.origin + Decimal(f'{value:.15g}'):f}" for value in native]
        texts = [f"{value:.15g}" for value in native]
        return [text.replace(".", ",") for text in texts] if self.x.comma else texts


def understand(
    sheet: Sheet,
    x: str | None = None,
    y: Sequence[str] = (),
    by: Sequence[str] = (),
    y_err: str | None = None,
    kind: str | None = None,
    new: bool = False,
) -> Seen:
    """`kind` is "series" or "table" where it is said and not guessed; `new` places are wanted, not only blanks."""
    if len(sheet.columns) < 2:
        remedy = "give it a column of places, or an index of them"
        if sheet.text:
            remedy = "if there are more, put a comma, a semicolon, a tab or | between cells"
        raise InputError(
            f"{sheet.name} has only one column, '{''.join(sheet.columns)}', and a series needs a place and a value; "
            + remedy
        )
    if kind is not None:
        choose("kind of table", kind, KINDS)
    for name in (*([x] if x else []), *y, *by, *([y_err] if y_err else [])):
        sheet.column(name)
    check_units(sheet)
    groups = groups_of(sheet, by)
    taken = {*y, *by, *([y_err] if y_err else [])}
    if x in taken:
        why = f"{sheet.name}: column '{x}' cannot be x and something else at once; name another with "
        raise InputError(why + option("x"))
    place = _find_x(sheet, x, taken, groups)
    _check_x(sheet, place)
    place = place.from_origin()
    rows = [group.rows for group in groups]
    hours, notes = hours_beside(sheet, place, rows, taken), []
    if not by and kind is None:
        _check_one_series(sheet, place, hours)
    if hours is not None:
        place, notes = join(sheet, place, hours, new)
    if new and place.clock is not None and place.clock.mixed:
        notes.append(Note(f"{place.name} has times with several offsets: new ones are written in UTC"))
    notes += check_shared(sheet, place, rows)
    chosen = _find_y(sheet, y, {place.name, *by, *([y_err] if y_err else [])}, new)
    if not chosen:  # a blank may be among words that were meant as numbers
        whole = [column.name for column in sheet.columns.values() if not column.blank.any()]
        unread = almost(sheet, {*whole, place.name, *by})
        notes += [] if unread is None else [Note(str(unread), doubtful=True)]
    looked_at = chosen if y else _numbers(sheet, {place.name, *by, *([y_err] if y_err else [])})
    notes += [note for column in looked_at for note in (*sentinels(column), *spelled(column))]
    errors = None if y_err is None else _check_errors(sheet, sheet.column(y_err), chosen)
    return Seen(sheet, place, chosen, groups, tuple(by), errors, notes)


def _find_x(sheet: Sheet, x: str | None, taken: set[str], groups: list[Group]) -> Column:
    found = sheet.column(x) if x is not None else ordering(sheet, taken, groups, ids=True)
    if found is None:
        raise InputError(_no_order(sheet, taken, groups))
    return found


def _no_order(sheet: Sheet, taken: Collection[str], groups: list[Group]) -> Words:
    """Of a table whose rows should have an order."""
    near = nearly(sheet, taken, groups)
    return (
        f"{sheet.name} looks like a table: {no_order(sheet, near)}. Groups, new places and series need one; if a "
        "column orders the rows, say which: " + ordered_by(near[0].name if near else "COLUMN")
        + "; if they are several series, say what tells them apart: " + option("by", "COLUMN")
    )  # fmt: skip


def _check_x(sheet: Sheet, x: Column) -> None:
    if x.kind == TEXT:
        why = f"{sheet.name}: column '{x.name}' has neither numbers nor times; name another with "
        raise InputError(why + option("x"))
    if x.wrong is not None:
        raise sheet.refuse(x.wrong.row, x.name, x.wrong.why)
    if x.blank.all():
        raise InputError(f"{sheet.name}: column '{x.name}' is blank in every row; name another with " + option("x"))
    if x.blank.any():
        raise sheet.refuse(
            int(x.blank.argmax()), x.name,
            "blank, and a row without a place cannot be part of a series; fill it in, remove the row, or name another "
            "column with " + option("x") + "; if the rows have no order, say " + option("kind", "table"),
        )  # fmt: skip


def _check_one_series(sheet: Sheet, x: Column, hours: Column | None) -> None:
    """Twice the same place may be two measurements, or two series that a column of words tells apart (or of numbers,
    unless times of day do)."""
    _, first, inverse, counts = np.unique(x.values, return_index=True, return_inverse=True, return_counts=True)
    if (counts == 1).all():
        return
    for column in sheet.columns.values():
        if column.name == x.name or not _may_name(column) or (hours is not None and column.kind == NUMBER):
            continue
        cells = np.unique(np.asarray(column.cells(), dtype=str), return_inverse=True)[1]
        both = np.unique(np.stack([cells, inverse]), axis=1).shape[1]
        if both == sheet.rows:
            row = next(row for row in range(sheet.rows) if first[inverse[row]] != row)
            raise sheet.refuse(
                row, x.name,
                f"the same place as in {sheet.line(int(first[inverse[row]]))}; are these several series? Then say what "
                "tells them apart: " + option("by", column.name) + "; if it is part of the time, join the two into one "
                "column; if they are one, say " + option("kind", "series"),
            )  # fmt: skip


def _may_name(column: Column) -> bool:
    """Words, or whole numbers that come again and again: what may tell several series apart."""
    if column.kind != NUMBER:
        return column.kind == TEXT
    whole = not column.blank.any() and column.wrong is None and bool((column.values % 1 == 0).all())
    return whole and 2 * len(np.unique(column.values)) <= len(column.values)


def _numbers(sheet: Sheet, others: set[str]) -> list[Column]:
    return [column for column in sheet.columns.values() if column.name not in others and column.kind == NUMBER]


def _find_y(sheet: Sheet, y: Sequence[str], others: set[str], new: bool) -> list[Column]:
    if y:
        chosen = [sheet.column(name) for name in dict.fromkeys(y)]
    else:
        numbers = _numbers(sheet, others)
        if not numbers:
            raise almost(sheet, others) or InputError(
                f"{sheet.name} has no number column to fill; its columns: {', '.join(sheet.columns)}; values must be "
                "written as 3.14"
            )
        values = [column for column in numbers if not column.counts] or numbers
        chosen = values if new else [column for column in numbers if column.blank.any()]
        for column in numbers:  # a cell that cannot be read may hide a blank
            if column.wrong is not None and column not in chosen:
                chosen.append(column)
    for column in chosen:
        if column.kind != NUMBER:
            raise almost(sheet, set(sheet.columns) - {column.name}) or InputError(
                f"{sheet.name}: column '{column.name}' has no numbers; fill can fill numbers only"
            )
        if column.wrong is not None:
            raise sheet.refuse(column.wrong.row, column.name, column.wrong.why)
        if column.blank.all():
            raise InputError(
                f"{sheet.name}: column '{column.name}' is blank in "
                f"{f'all {sheet.rows} rows' if sheet.rows > 1 else 'the only row'}: nothing is known of it; "
                "leave it out by naming the others with " + option("y")
            )
        check_room(sheet, column, ("filled", "std", "low", "high"))
    return chosen


def check_room(sheet: Sheet, column: Column, endings: Iterable[str]) -> None:
    """Columns that are added must not be there yet."""
    for ending in endings:
        if f"{column.name}_{ending}" in sheet.columns:
            raise InputError(
                f"{sheet.name} already has a column '{column.name}_{ending}'; rename it, or fill the original file"
            )


def _check_errors(sheet: Sheet, errors: Column, y: list[Column]) -> Column:
    if len(y) != 1:
        raise InputError(
            f"{sheet.name}: '{errors.name}' holds the errors of one column, and {len(y)} are to be filled; say which "
            "with " + option("y")
        )
    if errors.kind != NUMBER:
        raise InputError(f"{sheet.name}: column '{errors.name}' has no numbers; errors are standard deviations")
    if errors.wrong is not None:
        raise sheet.refuse(errors.wrong.row, errors.name, errors.wrong.why)
    negative = errors.values < 0
    if negative.any():
        raise sheet.refuse(
            int(negative.argmax()),
            errors.name,
            "an error is a standard deviation, at least 0; leave it blank if unknown",
        )
    return errors
