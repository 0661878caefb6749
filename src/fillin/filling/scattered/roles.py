"""Roles of the columns of scattered observations, and rows to add at the locations of another table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.errors import InputError, Message, UnknownName, argument, option
from fillin.filling.diagnostics import (
    Note,
    RowGroup,
    check_no_units_row,
    find_number_like,
    note_missing_words,
    note_sentinels,
    split_groups,
)
from fillin.filling.frames import format_locations
from fillin.filling.plan import Source, as_names
from fillin.filling.series.infer_roles import NewRows, check_errors, check_valid, find_filled, note_unobserved
from fillin.runtime import require
from fillin.tabular.dates import MAX_STEPS, SECOND
from fillin.tabular.readers import read_frame
from fillin.tabular.table import CLASS, DATE, NUMBER, TypedColumn, TypedTable

if TYPE_CHECKING:
    from fillin.filling.scattered.plan import ScatteredOptions


@dataclass(frozen=True)
class ScatteredRoles:
    """A table whose rows are points: `locations` hold their coordinates, `y` are filled, in each group by itself."""

    table: TypedTable
    locations: list[TypedColumn]
    y: list[TypedColumn]
    groups: list[RowGroup]
    by: tuple[str, ...]
    y_err: TypedColumn | None
    notes: list[Note]
    located: Bool[ndarray, "n"]  # rows with all coordinates

    @property
    def group_columns(self) -> tuple[str, ...]:
        """Names of the columns that are constant in each group."""
        return self.by

    def coordinates(self, columns: Sequence[ndarray]) -> Float[ndarray, "n dx"]:
        """Return values of the coordinate columns as numbers; dates as seconds since the first."""
        parts = []
        for column, values in zip(self.locations, columns, strict=True):
            first = column.values[self.located].min() if column.clock is not None else 0
            parts.append((values - first) / SECOND if column.clock is not None else values)
        return np.stack(parts, 1).astype(float)

    @property
    def x(self) -> Float[ndarray, "n dx"]:
        """Coordinates of all rows; they mean nothing where a row is not `located`."""
        return self.coordinates([column.values for column in self.locations])

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.locations]

    @property
    def summary(self) -> str:
        """One line on what was read."""
        extents = []
        for column in self.locations:
            values = column.values[self.located]
            first, last = format_locations(column, np.array([values.min(), values.max()]))
            extents.append(f"{column.name} ({first} … {last})")
        groups = f", {len(self.groups):,} groups by {' and '.join(self.by)}" if self.by else ""
        missing = [f"{column.name} ({int(column.missing.sum()):,} missing)" for column in self.y]
        return (
            f"{self.table.name}: scattered observations over {', '.join(extents)}, {self.table.n_rows:,} rows{groups}; "
            f"to fill: {', '.join(missing) or 'nothing'}"
        )


def infer_scattered_roles(table: TypedTable, options: "ScatteredOptions", new: bool) -> ScatteredRoles:
    """Check the columns that are named, and infer those to fill; `new`: rows or a map are to be predicted."""
    names, y, by = as_names(options.x), as_names(options.y), as_names(options.by)
    for name in (*names, *y, *by, *([options.y_err] if options.y_err else [])):
        table.column(name)
    taken = {*y, *by, *([options.y_err] if options.y_err else [])}
    for i, name in enumerate(names):
        flaw = "is named twice" if name in names[:i] else "cannot be a coordinate and have another role"
        if name in taken or name in names[:i]:
            raise InputError(
                "{table}: column '{x}' {flaw}; name each coordinate once with {option}",
                table=table.name, x=name, flaw=flaw, option=option("x"),
            )  # fmt: skip
    check_no_units_row(table)
    locations = [_check_location(table, table.column(name)).shifted() for name in names]
    located = ~np.logical_or.reduce([column.missing for column in locations])
    if not located.any():
        raise InputError(
            "{table}: no row has all coordinates ({x}); name other columns with {option}",
            table=table.name, x=", ".join(names), option=option("x"),
        )  # fmt: skip
    filled = find_filled(table, y, {*names, *by, *taken} - set(y), new)
    notes = [note for column in filled for note in (*note_sentinels(column), *note_missing_words(column))]
    notes += note_unobserved(table, y, filled, {*names, *by})
    if not located.all():
        rows = np.flatnonzero(~located)
        count = "1 row has" if len(rows) == 1 else f"{len(rows):,} rows have"
        text = f"{count} no {' or no '.join(names)} (first: {table.row_label(int(rows[0]))}): not used, and not filled"
        notes.append(Note(text, doubtful=True))
    errors = None if options.y_err is None else check_errors(table, table.column(options.y_err), filled)
    roles = ScatteredRoles(table, locations, filled, split_groups(table, by), by, errors, notes, located)
    _check_extents(roles)
    return roles


def _check_location(table: TypedTable, column: TypedColumn) -> TypedColumn:
    if column.kind == CLASS or column.missing.all():
        if (unread := find_number_like(table, set(table.columns) - {column.name})) is not None:
            raise unread
        flaw = "is missing in every row" if column.missing.all() else "has neither numbers nor dates"
        raise InputError(
            "{table}: column '{x}' {flaw}, so it cannot be a coordinate; name another with {option}, or the groups "
            "that it distinguishes with {by}",
            table=table.name, x=column.name, flaw=flaw, option=option("x"), by=option("by", column.name),
        )  # fmt: skip
    check_valid(table, column)
    return column


def _check_extents(roles: ScatteredRoles) -> None:
    """Refuse columns whose observations are too few, at one location, or on a line along which a coordinate is
    constant."""
    x, table = roles.x, roles.table
    for column in roles.y:
        observed = roles.located & ~column.missing
        if observed.sum() < 2:
            n = int(observed.sum())
            raise InputError(
                "{table}: column '{column}' has {n} observed value{s} with a location, and at least 2 are needed; "
                "leave it out by naming the others with {y}",
                table=table.name, column=column.name, n=n, s="s" * (n != 1), y=option("y"),
            )  # fmt: skip
        constant = np.ptp(x[observed], 0) == 0
        if constant.all():
            where = ", ".join(f"{c.name} {format_locations(c, c.values[observed][:1])[0]}" for c in roles.locations)
            raise InputError(
                "{table}: all observed values of '{column}' are at one location ({where}), so nothing shows how they "
                "change; name other coordinates with {x}, or read the rows as a table with {kind}, without {x}",
                table=table.name, column=column.name, where=where, x=option("x"), kind=option("kind", "table"),
            )  # fmt: skip
        if constant.any():
            name = roles.locations[int(constant.argmax())]
            raise InputError(
                "{table}: '{name}' is {value} wherever '{column}' is observed, so nothing shows how values change "
                "along it; leave it out of {x}",
                table=table.name, name=name.name, column=column.name, x=option("x"),
                value=format_locations(name, name.values[observed][:1])[0],
            )  # fmt: skip


def read_new_rows(roles: ScatteredRoles, options: "ScatteredOptions") -> NewRows:
    """Return rows at the locations of `at` that the table does not have, in the order of that table."""
    at = options.at
    if isinstance(at, Path):
        table = Source(at, {"na": options.na, "date_format": options.date_format}).tabular.table
    else:
        if not hasattr(at, "columns") and not hasattr(at, "schema"):  # what NumPy makes an array of
            values = np.asarray(at)
            if values.ndim != 2 or values.shape[1] != len(roles.names):
                raise InputError(
                    f"at: expected a frame, or an array with a column for each of {', '.join(roles.names)}, got the "
                    f"shape {values.shape}"
                )
            at = require("pandas").DataFrame(dict(zip(roles.names, values.T, strict=True)))
        table = read_frame(at, "at").table
    values = np.stack([_read_location(roles, column, table) for column in roles.locations], 1)
    x, groups = [], []
    keys = None
    if roles.by and all(by in table.columns for by in roles.by):
        keys = np.array([", ".join(key) for key in zip(*(table.column(by).cells() for by in roles.by), strict=True)])
        names = [group.name for group in roles.groups]
        for row, key in enumerate(keys):
            if key not in names:
                message = "{table} has no group '{group}'; remove the row, or add observations of the group"
                raise table.error_at(row, roles.by[0], message, table=roles.table.name, group=key)
    for number, group in enumerate(roles.groups):
        rows = np.arange(len(values)) if keys is None else np.flatnonzero(keys == group.name)
        present = np.stack([column.values[group.rows] for column in roles.locations], 1)[roles.located[group.rows]]
        new = values[rows]
        _, first, same = np.unique(np.concatenate([present, new]), axis=0, return_index=True, return_inverse=True)
        added = first[same.ravel()[len(present) :]] == np.arange(len(present), len(present) + len(new))
        x.append(new[added])
        groups.append(np.full(int(added.sum()), number))
    joined, group = np.concatenate(x), np.concatenate(groups)
    if len(joined) > MAX_STEPS:
        raise InputError(f"{len(joined):,} new rows are requested, the limit is {MAX_STEPS:,}; request fewer")
    return NewRows(joined, group, np.full(len(joined), float(roles.table.n_rows)))


def _read_location(roles: ScatteredRoles, column: TypedColumn, at: TypedTable) -> Float[ndarray, "m"]:
    """Return a coordinate of the new rows, in the units of the column of the table."""
    other = at.column(column.name)
    check_valid(at, other)
    if other.kind != column.kind:
        expected = {NUMBER: "numbers", DATE: "dates"}[column.kind]
        raise InputError(f"{at.name}: column '{other.name}' must have {expected}, as in {roles.table.name}")
    if other.missing.any():
        raise at.error_at(int(other.missing.argmax()), other.name, "missing; every row must have all coordinates")
    values = other.shifted(column.origin).values
    if column.clock is not None and other.clock is not None:
        values = column.clock.convert(other.clock, values, f"{at.name}, column '{other.name}'")
    return values.astype(float)


def read_periods(roles: ScatteredRoles, period: Any) -> Float[ndarray, "dx"] | None:
    """Return the period of each coordinate, 0 where it is not periodic; None where none is."""
    if period is None:
        return None
    name = roles.names[0]
    example = Message(f"--period {name}=360", f"period={{{name!r}: 360}}")
    if not isinstance(period, Mapping):
        raise InputError(
            "{period}: name the coordinate that is periodic, such as {example}",
            period=argument("period"), example=example,
        )  # fmt: skip
    periods = np.zeros(len(roles.names))
    for name, length in period.items():
        if name not in roles.names:
            raise UnknownName("coordinate, in {period},", name, roles.names, period=argument("period"))
        column = roles.locations[roles.names.index(name)]
        if column.clock is not None or not 0 < length < np.inf:
            raise InputError(
                "{period}: '{name}' needs a column of numbers and a period of more than 0, such as {example}",
                period=argument("period"), name=name, example=example,
            )  # fmt: skip
        extent = np.ptp(column.values[roles.located])
        if extent > length * (1 + 1e-6):
            raise InputError(
                "{period}: '{name}' extends over {extent:g}, more than one period of {length:g}; correct the column, "
                "or declare a longer one",
                period=argument("period"), name=name, extent=extent, length=length,
            )  # fmt: skip
        periods[roles.names.index(name)] = length
    return periods
