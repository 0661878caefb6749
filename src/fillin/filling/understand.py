"""What a table is: which column orders its rows, which are to be filled, which groups are series of their own."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, Words, choose, option
from fillin.filling.clock import SECOND
from fillin.filling.notes import Note, sentinels, spelled
from fillin.filling.sharing import check_shared, distinct, hours_beside, join
from fillin.filling.sheet import NUMBER, TEXT, TIME, Column, Sheet
from fillin.filling.unread import almost, check_units

KINDS = ("series", "table")
_ID = re.compile(r"(?i:(^|[^a-z])id$)|[a-z]I[dD]$|^(Unnamed: \d+|__index_level_\d+__)?$")  # or as pandas saves an index
_AGAIN = 4  # times that a class is there, on average
_PLACES = ("time", "date", "year", "x", "t", "depth", "distance", "position", "day", "month", "hour", "lon", "lat")


@dataclass(frozen=True)
class Group:
    """Rows of one series, as they come in the table."""

    name: str
    rows: Int[ndarray, "n"]


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
    groups = _groups(sheet, by)
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


def _groups(sheet: Sheet, by: Sequence[str]) -> list[Group]:
    if not by:
        return [Group("", np.arange(sheet.rows))]
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*(sheet.column(name).cells() for name in by), strict=True)):
        rows.setdefault(key, []).append(row)
    return [Group(", ".join(key), np.array(own)) for key, own in rows.items()]


def _find_x(sheet: Sheet, x: str | None, taken: set[str], groups: list[Group]) -> Column:
    found = sheet.column(x) if x is not None else ordering(sheet, taken, groups, ids=True)
    if found is None:
        raise InputError(_no_order(sheet, taken, groups))
    return found


def ordering(
    sheet: Sheet, taken: Collection[str] = (), groups: list[Group] | None = None, ids: bool = False
) -> Column | None:
    """The column that says where each row belongs; None where the rows have no order: a table, not a series. What only
    names the rows counts where `ids` may, or where there is but one more column."""
    groups = _groups(sheet, ()) if groups is None else groups
    free = [column for column in sheet.columns.values() if column.name not in taken]
    if not ids and any(_class_with_blanks(column) for column in free):  # which no series can fill
        free = [column for column in free if not hardly_orders(column)]
    times = [column for column in free if column.kind == TIME]
    if times:  # a date tells more than a time of day
        return min(times, key=lambda column: column.clock is not None and column.clock.hours)
    ids = ids or sum(not names_rows(column) for column in sheet.columns.values()) < 2
    complete = [column for column in _complete(free) if ids or not names_rows(column)]
    ordered = [column for column in complete if _disorder(column, groups) is None]
    best = min(ordered, key=_rank) if ordered else None
    return _gappy(free, groups, best) or best


def _class_with_blanks(column: Column) -> bool:
    """Words of which there are few, again and again, and not in every row; remarks differ, or are mostly blank."""
    known = [cell for cell, blank in zip(column.cells(), column.blank, strict=True) if not blank]
    return column.kind == TEXT and len(column.blank) > len(known) >= max(
        _AGAIN * len(set(known)), len(column.blank) / 2
    )


def hardly_orders(column: Column) -> bool:
    """A time that rows lack or share, or what numbers them, by whatever name."""
    if column.kind == TIME:
        return bool(column.blank.any()) or len(np.unique(column.places)) < len(column.places)
    return column.counts and not says_place(column)


def _complete(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if column.kind == NUMBER and not column.blank.any() and column.wrong is None]


def names_rows(column: Column) -> bool:
    """It tells rows apart and no more: an index of whole numbers that has no name, as of a frame that was filtered, or
    a column whose name says so: id, PassengerId, row_id."""
    return (column.unnamed or _ID.search(column.name) is not None) and column.labels


def _rank(column: Column) -> tuple[bool, bool]:
    """First a name that says that it is a place, then anything that does more than number the rows."""
    return not says_place(column), column.counts


def says_place(column: Column) -> bool:
    """By its name."""
    words = column.name.lower().replace("_", " ").replace("(", " ").split()
    return any(word in _PLACES for word in words)


def _gappy(free: list[Column], groups: list[Group], best: Column | None) -> Column | None:
    """A column that would order the rows but for blank cells or such as cannot be read, of which an error tells."""
    for column in free:
        known = ~np.isnan(column.values) if column.kind == NUMBER else np.zeros(1, dtype=bool)
        if known.all() or 2 * known.sum() <= len(known) or _disorder(column, groups) is not None:
            continue
        first, named = column is free[0], not _rank(column)[0]
        if (first and named and (best is None or _rank(best)[0])) or (best is None and (first or named)):
            return column
    return None


def nearly(sheet: Sheet, taken: Collection[str], groups: list[Group] | None = None) -> tuple[Column, int] | None:
    """The column that comes nearest to ordering the rows, and the row where it fails."""
    groups = _groups(sheet, ()) if groups is None else groups
    free = [column for column in _complete(sheet.columns.values()) if column.name not in taken]
    enough = [column for column in free if 2 * distinct(column, [group.rows for group in groups]) > sheet.rows]
    broken = [(column, row) for column in enough if (row := _disorder(column, groups)) is not None]
    return min(broken, key=lambda pair: _rank(pair[0])) if broken else None


def no_order(sheet: Sheet, near: tuple[Column, int] | None, names: Column | None = None) -> str:
    """What is said of a table; of `names` that they only tell its rows apart."""
    but = "no column"
    if names is not None:
        does = "is not there in every row, or the same in some" if names.kind == TIME else "only names the rows"
        but = f"'{names.name}' {does}, and no other column"
    breaks = f" (the order of '{near[0].name}' breaks in {sheet.line(near[1])})" if near else ""
    return f"{but} has times, or numbers that only rise or only fall{breaks}"


def _no_order(sheet: Sheet, taken: Collection[str], groups: list[Group]) -> Words:
    """Of a table whose rows should have an order."""
    near = nearly(sheet, taken, groups)
    return (
        f"{sheet.name} looks like a table: {no_order(sheet, near)}. Groups, new places and series need one; if a "
        "column orders the rows, say which: " + ordered_by(near[0].name if near else "COLUMN")
        + "; if they are several series, say what tells them apart: " + option("by", "COLUMN")
    )  # fmt: skip


def ordered_by(name: str) -> Words:
    return option("kind", "series") + Words(" ", ", ") + option("x", name)


def _disorder(column: Column, groups: list[Group]) -> int | None:
    """The first row whose value is not strictly between those that a monotone column may have; None if it is one."""
    for group in groups:
        rows = group.rows[~np.isnan(column.values[group.rows])]
        step = np.diff(column.places[rows])
        if not len(step):
            continue
        wrong = step <= 0 if (step > 0).sum() >= (step < 0).sum() else step >= 0
        if wrong.any():
            return int(rows[1 + wrong.argmax()])
    return None


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
