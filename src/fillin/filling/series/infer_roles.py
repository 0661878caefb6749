"""Roles of the columns of a series: which is the index x, which are filled, which identify the series."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument, choose, option
from fillin.filling.diagnostics import (
    TABLE_KINDS,
    Note,
    RowGroup,
    check_no_units_row,
    count_locations,
    explain_no_index,
    find_index,
    find_nearest_index,
    find_number_like,
    index_option,
    list_names,
    note_missing_words,
    note_sentinels,
    split_groups,
)  # fmt: skip
from fillin.filling.frames import format_locations
from fillin.filling.prediction import SUFFIXES
from fillin.filling.series.station_locations import StationLocations, note_locations, read_locations
from fillin.tabular.dates import DAY, SECOND
from fillin.tabular.table import CLASS, DATE, NUMBER, TypedColumn, TypedTable

GroupRows = list[Int[ndarray, "_"]]


@dataclass(frozen=True)
class SeriesRoles:
    """A table read as one series, or as one for each group: `y` are filled over `x`, from `informing` columns too."""

    table: TypedTable
    x: TypedColumn
    y: list[TypedColumn]
    groups: list[RowGroup]
    by: tuple[str, ...]
    y_err: TypedColumn | None
    notes: list[Note]
    informing: list[TypedColumn]
    locations_of_stations: StationLocations | None = None

    @property
    def group_columns(self) -> tuple[str, ...]:
        """Names of the columns that are constant in each group."""
        return (*self.by, *(self.locations_of_stations.names if self.locations_of_stations else ()))

    @property
    def by_distance(self) -> bool:
        """Whether groups inform each other by their distance."""
        return self.locations_of_stations is not None and self.locations_of_stations.distinct

    def coordinates(self, values: ndarray) -> Float[ndarray, "n"]:
        """Values of the x column as numbers; dates as seconds since the first."""
        if self.x.clock is None:
            return values
        return (values - self.x.values[~self.x.missing].min()) / SECOND

    @property
    def summary(self) -> str:
        """One line on what was read."""
        kind = "dates" if self.x.kind == DATE else "numbers"
        groups = f", {len(self.groups):,} groups by {' and '.join(self.by)}" if self.by else ""
        missing = [f"{column.name} ({int(column.missing.sum()):,} missing)" for column in self.y]
        first, last = self.format_x(np.array([self.x.values.min(), self.x.values.max()]))
        return (
            f"{self.table.name}: a series over {self.x.name} ({kind}, {first} … {last}), {self.table.n_rows:,} rows"
            f"{groups}; to fill: {', '.join(missing) or 'nothing'}"
        )

    def format_x(self, values: ndarray) -> list[str]:
        """Values of the x column as text, in the format of the file."""
        return format_locations(self.x, values)

    @property
    def locations(self) -> list[TypedColumn]:
        return [self.x]


@dataclass(frozen=True)
class NewRows:
    """Rows to add: x [m] or [m dx] in the units of its columns, the group, and the position among the rows of the
    table."""

    x: ndarray
    group: Int[ndarray, "m"]
    position: Float[ndarray, "m"]  # k + 0.5: between rows k and k + 1

    @property
    def locations(self) -> list[ndarray]:
        """The values of each column of x."""
        return [self.x] if self.x.ndim == 1 else list(self.x.T)

    def order(self, n_rows: int) -> Int[ndarray, "n"]:
        """All rows in the order of writing; new ones are numbered from `n_rows`."""
        return np.argsort(np.concatenate([np.arange(n_rows), self.position]), kind="stable")


def infer_roles(
    table: TypedTable,
    x: str | None = None,
    y: Sequence[str] = (),
    by: Sequence[str] = (),
    y_err: str | None = None,
    kind: str | None = None,
    new: bool = False,
    covariates: Sequence[str] = (),
    station_at: Sequence[str] = (),
) -> SeriesRoles:
    """Infer the roles that are not given. `kind` is "series" where given; `new`: rows are to be added; `covariates` are
    never filled; `station_at` are the coordinates of each group."""
    if len(table.columns) < 2:
        remedy = "add a column of locations, or an index of them"
        if table.from_text:
            remedy = "if there are more, separate the cells by a comma, a semicolon, a tab or |"
        raise InputError(
            "{table} has only one column, '{column}', and a series needs a location and a value; {remedy}",
            table=table.name, column="".join(table.columns), remedy=remedy,
        )  # fmt: skip
    if kind is not None:
        choose("kind of table", kind, TABLE_KINDS)
    for name in (*([x] if x else []), *y, *by, *([y_err] if y_err else []), *covariates, *station_at):
        table.column(name)
    check_no_units_row(table)
    groups = split_groups(table, by)
    for name in station_at:
        if name in {x, y_err, *y, *by, *covariates}:
            raise InputError(
                "{table}: column '{column}' cannot be a location of {station_at} and have another role; leave it out "
                "of one of them",
                table=table.name, column=name, station_at=argument("station_at"),
            )  # fmt: skip
    others = {*by, *station_at, *([y_err] if y_err else [])}
    taken = {*y, *others}
    if x in taken:
        raise InputError(
            "{table}: column '{x}' cannot be x and have another role; name another column with {option}",
            table=table.name, x=x, option=option("x"),
        )  # fmt: skip
    index = _find_x(table, x, taken, groups)
    _check_x(table, index)
    index = index.shifted()
    rows = [group.rows for group in groups]
    times, notes = _find_time_of_day(table, index, rows, taken), []
    if not by and kind is None:
        _check_one_series(table, index, times)
    if times is not None and new:
        raise InputError(
            f"{table.name}: '{index.name}' and '{times.name}' are one time in two columns, and new rows can be written "
            "to one only; join them into one column, such as 2027-01-31 12:00"
        )
    if times is not None:
        index, notes = (
            _with_times(index, times),
            [Note(f"{index.name} and {times.name} are read together, as one time")],
        )
    if new and index.clock is not None and index.clock.mixed:
        notes.append(Note(f"{index.name} has dates with several UTC offsets: new ones are written in UTC"))
    notes += _check_duplicates(table, index, rows)
    others.add(index.name)
    filled = find_filled(table, y, {*others, *covariates}, new)
    notes += note_unobserved(table, y, filled, {*others, *covariates})
    if not filled:  # a missing value may be among words that were meant as numbers
        complete = [column.name for column in table.columns.values() if not column.missing.any()]
        unread = find_number_like(table, {*complete, index.name, *by})
        notes += [] if unread is None else [Note(str(unread), doubtful=True)]
    numbers = [column for column in table.columns.values() if column.name not in others and column.kind == NUMBER]
    for column in filled if y else numbers:
        notes += [*note_sentinels(column), *note_missing_words(column)]
    errors = None if y_err is None else check_errors(table, table.column(y_err), filled)
    informing = _find_informing(table, filled, others, covariates)
    locations = read_locations(table, station_at, groups) if station_at else None
    notes += [] if locations is None else note_locations(locations)
    return SeriesRoles(table, index, filled, groups, tuple(by), errors, notes, informing, locations)


def _find_x(table: TypedTable, x: str | None, taken: set[str], groups: list[RowGroup]) -> TypedColumn:
    index = table.column(x) if x is not None else find_index(table, taken, groups, allow_row_ids=True)
    if index is not None:
        return index
    nearest = find_nearest_index(table, taken, groups)
    raise InputError(
        "{table} looks like a table: {reason}. Groups, new rows and series need an index; if a column orders the rows, "
        "name it: {index}; if they are several series, name the column that identifies the series: {by}",
        table=table.name, reason=explain_no_index(table, nearest), by=option("by", "COLUMN"),
        index=index_option(nearest[0].name if nearest else "COLUMN"),
    )  # fmt: skip


def _check_x(table: TypedTable, x: TypedColumn) -> None:
    if x.kind == CLASS or x.missing.all():
        flaw = "has neither numbers nor dates" if x.kind == CLASS else "is missing in every row"
        raise InputError(
            "{table}: column '{x}' {flaw}; name another with {option}",
            table=table.name, x=x.name, flaw=flaw, option=option("x"),
        )  # fmt: skip
    check_valid(table, x)
    if x.missing.any():
        raise table.error_at(
            int(x.missing.argmax()), x.name,
            "missing, and a row without a location cannot be part of a series; fill it in, remove the row, or name "
            "another column with {x}; if the rows have no order, pass {table}",
            x=option("x"), table=option("kind", "table"),
        )  # fmt: skip


def check_valid(table: TypedTable, column: TypedColumn) -> None:
    """Raise the error of the first cell that cannot be read."""
    if column.invalid is not None:
        raise table.error_at(column.invalid.row, column.name, column.invalid.message)


def _check_one_series(table: TypedTable, x: TypedColumn, times: TypedColumn | None) -> None:
    """Refuse duplicate locations that another column distinguishes: several series, not repeated measurements."""
    _, first, inverse, counts = np.unique(x.values, return_index=True, return_inverse=True, return_counts=True)
    if (counts == 1).all():
        return
    for column in table.columns.values():
        if column.name == x.name or not _may_name_groups(column) or (times is not None and column.kind == NUMBER):
            continue
        cells = np.unique(np.asarray(column.cells(), dtype=str), return_inverse=True)[1]
        if np.unique(np.stack([cells, inverse]), axis=1).shape[1] < table.n_rows:
            continue
        row = next(row for row in range(table.n_rows) if first[inverse[row]] != row)
        raise table.error_at(
            row, x.name,
            "the same location as in {first}; if these are several series, name the column that identifies the series: "
            "{by}; if that is part of the time, join the two into one column; if they are one series, pass {series}",
            first=table.row_label(int(first[inverse[row]])), by=option("by", column.name),
            series=option("kind", "series"),
        )  # fmt: skip


def _may_name_groups(column: TypedColumn) -> bool:
    """Test for words, or integers that repeat."""
    if column.kind != NUMBER:
        return column.kind == CLASS
    whole = not column.missing.any() and column.invalid is None and bool((column.values % 1 == 0).all())
    return whole and 2 * len(np.unique(column.values)) <= len(column.values)


def _find_time_of_day(
    table: TypedTable, x: TypedColumn, groups: GroupRows, taken: Collection[str]
) -> TypedColumn | None:
    """Return the column of times of day that distinguishes rows of one date, where x has dates only."""
    if x.kind != DATE or x.missing.any() or x.invalid is not None or (x.values % DAY).any():
        return None
    if count_locations(x, groups) == table.n_rows:
        return None
    for column in table.columns.values():
        times = column.clock is not None and column.clock.time_of_day and column.name not in taken
        usable = times and column is not x and not column.missing.any() and column.invalid is None
        if usable and 2 * count_locations(_with_times(x, column), groups) > table.n_rows:
            return column
    return None


def _with_times(dates: TypedColumn, times: TypedColumn) -> TypedColumn:
    return replace(dates, values=dates.values + times.values % DAY)


def _check_duplicates(table: TypedTable, x: TypedColumn, groups: GroupRows) -> list[Note]:
    """Return a note for few duplicate locations; raise for many."""
    n_locations = count_locations(x, groups)
    if n_locations == table.n_rows:
        return []
    sharing, row, earlier = 0, -1, -1
    for rows in groups:
        _, first, inverse, counts = np.unique(
            x.exact_values[rows], return_index=True, return_inverse=True, return_counts=True
        )
        sharing += int(counts[counts > 1].sum())
        if row < 0 and (counts > 1).any():
            second = int((first[inverse] != np.arange(len(rows))).argmax())
            row, earlier = int(rows[second]), int(rows[first[inverse[second]]])
    if 2 * n_locations > table.n_rows:
        text = f"{sharing:,} rows share their location with another row: read as repeated measurements"
        return [Note(text, doubtful=True)]
    raise table.error_at(
        row, x.name,
        "the same location as in {earlier}: {rows:,} rows have only {locations:,} location{plural}. If a date and a "
        "time of day are in two columns, join them into one; if they are several series, name the column that "
        "identifies the series: {by}; if another column orders the rows, name it with {x}; average repeated "
        "measurements; if the rows have no order, pass {table}",
        earlier=table.row_label(earlier), rows=table.n_rows, locations=n_locations, plural="s" * (n_locations != 1),
        by=option("by", "COLUMN"), x=option("x"), table=option("kind", "table"),
    )  # fmt: skip


def find_filled(table: TypedTable, y: Sequence[str], others: set[str], new: bool) -> list[TypedColumn]:
    if y:
        chosen = [table.column(name) for name in dict.fromkeys(y)]
    else:
        numbers = [column for column in table.columns.values() if column.name not in others and column.kind == NUMBER]
        if not numbers:
            raise find_number_like(table, others) or InputError(
                f"{table.name} has no number column to fill; its columns: {', '.join(table.columns)}; values must be "
                "written as 3.14"
            )
        values = [column for column in numbers if not column.numbers_rows] or numbers
        chosen = values if new else [column for column in numbers if column.missing.any()]
        # a cell that cannot be read may hide a missing value
        chosen += [column for column in numbers if column.invalid is not None and column not in chosen]
        chosen = [column for column in chosen if not column.missing.all()] or chosen
    for column in chosen:
        if column.kind != NUMBER:
            raise find_number_like(table, set(table.columns) - {column.name}) or InputError(
                f"{table.name}: column '{column.name}' has no numbers, and only numbers can be filled"
            )
        check_valid(table, column)
        if column.missing.all():
            raise InputError(
                "{table}: column '{column}' is missing in {rows}; leave it out by naming the others with {y}",
                table=table.name, column=column.name, y=option("y"),
                rows=f"all {table.n_rows} rows" if table.n_rows > 1 else "the only row",
            )  # fmt: skip
        check_new_columns(table, column, SUFFIXES)
    return chosen


def note_unobserved(table: TypedTable, y: Sequence[str], filled: list[TypedColumn], others: set[str]) -> list[Note]:
    """Return a note on the columns that are left as they are, since they have no value."""
    names = {column.name for column in filled} | others
    dead = (column for column in table.columns.values() if column.kind == NUMBER and column.missing.all())
    empty = [column.name for column in dead if column.name not in names]
    if y or not empty:
        return []
    one = len(empty) == 1
    outcome = "has no value, and is left as it is" if one else "have no value, and are left as they are"
    return [Note(f"{list_names(empty)} {outcome}", doubtful=True)]


def _find_informing(
    table: TypedTable, filled: list[TypedColumn], others: set[str], covariates: Sequence[str]
) -> list[TypedColumn]:
    """Return the columns of numbers that are not filled but inform: the covariates, or all that vary and do not number
    the rows."""
    names = {column.name for column in filled}
    if covariates:
        chosen = [table.column(name) for name in dict.fromkeys(covariates)]
        for column in chosen:
            if column.name in names or column.name in others:
                raise InputError(
                    "{table}: column '{column}' cannot be a covariate and have another role; leave it out of {option}",
                    table=table.name, column=column.name, option=option("covariate"),
                )  # fmt: skip
            if column.kind != NUMBER:
                raise InputError(f"{table.name}: column '{column.name}' has no numbers; a covariate must be numbers")
            check_valid(table, column)
        return chosen
    return [
        column
        for column in table.columns.values()
        if column.name not in {*names, *others} and column.kind == NUMBER and column.invalid is None
        and not column.numbers_rows and not column.unnamed_index and _varies(column)
    ]  # fmt: skip


def _varies(column: TypedColumn) -> bool:
    observed = column.values[~column.missing]
    return len(observed) > 0 and bool((observed != observed[0]).any())


def check_new_columns(table: TypedTable, column: TypedColumn, suffixes: Iterable[str]) -> None:
    """Refuse to add a column that the table has already."""
    for suffix in suffixes:
        if f"{column.name}_{suffix}" in table.columns:
            raise InputError(
                f"{table.name} already has a column '{column.name}_{suffix}'; rename it, or fill the original file"
            )


def check_errors(table: TypedTable, errors: TypedColumn, y: list[TypedColumn]) -> TypedColumn:
    if len(y) != 1:
        raise InputError(
            "{table}: '{errors}' holds the errors of one column, and {count} are to be filled; name the one with {y}",
            table=table.name, errors=errors.name, count=len(y), y=option("y"),
        )  # fmt: skip
    if errors.kind != NUMBER:
        raise InputError(f"{table.name}: column '{errors.name}' has no numbers; errors are standard deviations")
    check_valid(table, errors)
    negative = errors.values < 0
    if negative.any():
        message = "an error is a standard deviation, at least 0; leave it empty if unknown"
        raise table.error_at(int(negative.argmax()), errors.name, message)
    return errors
