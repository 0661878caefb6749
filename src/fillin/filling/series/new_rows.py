"""Rows to add to a series: at the locations of another table, or in equal steps, between observations or beyond."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError, Message, argument, option, render
from fillin.filling.diagnostics import RowGroup
from fillin.filling.plan import Source
from fillin.filling.series.infer_roles import NewRows, SeriesRoles, check_valid
from fillin.runtime import require
from fillin.tabular.dates import MAX_STEPS
from fillin.tabular.readers import read_frame
from fillin.tabular.table import DATE, NUMBER, TypedTable

if TYPE_CHECKING:
    from fillin.filling.series.plan import SeriesOptions

MAX_NEW_ROWS = 500_000  # about 3 GB of memory
_SAME_LOCATION = 1e-3  # of a step: closer numbers are one location, as 1949.0833 and 1949.08333333 are


def make_new_rows(roles: SeriesRoles, options: "SeriesOptions") -> NewRows:
    """Return the rows requested by `every` and `until`, or `at`."""
    at, until = options.at, options.until
    if options.every is not None:
        return rows_by_step(roles, str(options.every), None if until is None else str(until))
    if isinstance(at, Path):
        return rows_from_table(roles, Source(at, {"na": options.na, "date_format": options.date_format}).tabular.table)
    if not hasattr(at, "columns") and not hasattr(at, "schema"):  # what NumPy makes an array of
        pandas = require("pandas")
        at = pandas.DataFrame({options.x or "at": pandas.Series(at)})
    return rows_from_table(roles, read_frame(at, "at").table)


def rows_by_step(roles: SeriesRoles, every: str, until: str | None = None) -> NewRows:
    """Return rows at first, first + every … up to `until` (default: the last) of each group, where it has none."""
    clock = roles.x.clock
    if clock is not None:
        last = None if until is None else clock.parse(str(until), argument("until"))
        _check_until(roles, until, last)
        option_name, choose_end = argument("every"), lambda end: int(end if last is None else last)
        return _collect(roles, lambda first, end: clock.steps(int(first), choose_end(end), every, option_name))
    expected = render("a step of the x column, which has numbers: {example}", example=option("every", 0.5))
    step = _parse_number(every, "every", expected)
    stop = None if until is None else _parse_number(until, "until", "a number, as in the x column", roles.x.origin)
    _check_until(roles, until, stop)
    if step <= 0:
        raise InputError("{every}: a step must be more than 0, got {value}", every=argument("every"), value=every)

    def walk(first: float, end: float) -> ndarray:
        count = ((end if stop is None else stop) - first) / step
        if count > MAX_STEPS:
            raise InputError(
                "{every}: {value} gives {count} rows; choose larger steps",
                every=argument("every"), value=every, count=f"{count:,.0f}" if count < 1e15 else f"{count:g}",
            )  # fmt: skip
        n_steps = max(0, int(count + _SAME_LOCATION)) + 1 if count > -_SAME_LOCATION else 0
        return first + step * np.arange(n_steps)

    return _collect(roles, walk, _SAME_LOCATION * step)


def _check_until(roles: SeriesRoles, until: str | None, end: float | None) -> None:
    if end is not None and end < roles.x.values.min():
        raise InputError(
            "{until} {value} lies before the first location of {table}, {first}; choose a later one",
            until=argument("until"), value=until, table=roles.table.name,
            first=roles.format_x(roles.x.values.min()[None])[0],
        )  # fmt: skip


def rows_from_table(roles: SeriesRoles, at: TypedTable) -> NewRows:
    """Return rows at the locations of another table: its column named as x, or its only one, in the groups it has."""
    name = roles.x.name if len(at.columns) > 1 or roles.x.name in at.columns else next(iter(at.columns))
    column = at.column(name)
    check_valid(at, column)
    if column.missing.any():
        raise at.error_at(int(column.missing.argmax()), name, "missing; every row must have a location")
    if column.kind != roles.x.kind:
        expected = {NUMBER: "numbers", DATE: "dates"}[roles.x.kind]
        raise InputError(
            f"{at.name}: column '{name}' must have {expected}, as column '{roles.x.name}' of {roles.table.name}"
        )
    values = column.shifted(roles.x.origin).values
    if roles.x.clock is not None and column.clock is not None:
        values = roles.x.clock.convert(column.clock, values, f"{at.name}, column '{name}'")
    if not roles.by or not all(by in at.columns for by in roles.by):
        return _collect(roles, lambda first, end: values)
    keys = [", ".join(key) for key in zip(*(at.column(by).cells() for by in roles.by), strict=True)]
    names = {group.name for group in roles.groups}
    for row, key in enumerate(keys):
        if key not in names:
            message = "{table} has no group '{group}'; remove the row, or add observations of the group"
            raise at.error_at(row, roles.by[0], message, table=roles.table.name, group=key)
    of_group = {group: values[[key == group for key in keys]] for group in names}
    return _collect(roles, lambda first, end: values, of_group=lambda group: of_group[group.name])


def _collect(
    roles: SeriesRoles, walk: Callable, tolerance: float = 0.0, of_group: Callable[[RowGroup], ndarray] | None = None
) -> NewRows:
    """Return the locations of each group that the table does not have, and their positions among its rows."""
    x, groups, positions = [], [], []
    for number, group in enumerate(roles.groups):
        present = roles.x.values[group.rows]
        added = np.unique(of_group(group) if of_group else walk(present.min(), present.max())).astype(present.dtype)
        ordered = np.sort(present)
        after = np.searchsorted(ordered, added)
        above, below = ordered[np.minimum(after, len(ordered) - 1)], ordered[np.maximum(after - 1, 0)]
        added = added[np.minimum(np.abs(above - added), np.abs(below - added)) > tolerance]
        x.append(added)
        groups.append(np.full(len(added), number))
        positions.append(_positions(added, present, group.rows, roles.table.n_rows))
    if (count := sum(map(len, x))) > MAX_NEW_ROWS:
        raise InputError(f"{count:,} new rows are requested, the limit is {MAX_NEW_ROWS:,}; request fewer")
    return NewRows(np.concatenate(x), np.concatenate(groups), np.concatenate(positions))


def _positions(added: ndarray, present: ndarray, rows: ndarray, n_rows: int) -> Float[ndarray, "m"]:
    """Return positions in order where the rows of the group are one sorted block, else after all rows."""
    if rows[-1] - rows[0] != len(rows) - 1:
        return np.full(len(added), float(n_rows))
    step = np.diff(present)
    if (step >= 0).all():
        return rows[0] + np.searchsorted(present, added, side="right") - 0.5
    if (step <= 0).all():  # of two new ones in one gap the later is written first
        behind = np.searchsorted(-present, -added, side="right")
        return rows[0] + behind - 0.5 - 0.25 * np.linspace(0, 1, len(added))
    return np.full(len(added), float(n_rows))


def _parse_number(text: str | float, name: str, expected: str | Message, origin: int = 0) -> float:
    if origin and str(text).strip().lstrip("-").isdecimal():
        return float(int(text) - origin)
    try:
        number = -origin + float(str(text).replace(",", "."))
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise InputError("{name}: {text!r} is not {expected}", name=argument(name), text=text, expected=expected)
    return number
