"""New places that are asked for: from another table, or in even steps, between what is known or beyond its end."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, Words, argument, option
from fillin.filling.detect_index import Group
from fillin.filling.series.infer_roles import Seen
from fillin.tabular.dates import MOST
from fillin.tabular.sheet import NUMBER, TIME, Sheet

_SAME = 1e-3  # of a step: numbers that differ by less are one place, as 1949.0833 and 1949.08333333 are


@dataclass(frozen=True)
class New:
    """Rows to add: where (as the x column has it), in which group, and before or after which row of the table."""

    x: ndarray
    group: Int[ndarray, "m"]
    key: Float[ndarray, "m"]

    def order(self, rows: int) -> Int[ndarray, "n"]:
        """All rows as they are written: those of the table as they come, new ones (n, n + 1 …) where they belong."""
        return np.argsort(np.concatenate([np.arange(rows), self.key]), kind="stable")


def none(seen: Seen) -> New:
    return New(seen.x.values[:0], np.empty(0, dtype=int), np.empty(0))


def stepped(seen: Seen, every: str, until: str | None = None) -> New:
    """first, first + every … of each group, up to `until` (default: its last place), without those that are there."""
    clock = seen.x.clock
    if clock is not None:
        last = None if until is None else clock.read(str(until), argument("until"))
        _not_before(seen, until, last)
        what = argument("every")
        return _new(
            seen, lambda first, end: clock.steps(int(first), int(end) if last is None else last, every, what), 0
        )
    step = _number(every, "every", "a step of the x column, which has numbers: " + option("every", 0.5))
    end_at = None if until is None else _number(until, "until", "a number, as the x column has", seen.x.origin)
    _not_before(seen, until, end_at)
    if step <= 0:
        raise InputError(argument("every") + f": a step must be more than 0, got {every}")

    def walk(first: float, end: float) -> ndarray:
        count = ((end if end_at is None else end_at) - first) / step
        if count > MOST:
            number = f"{count:,.0f}" if count < 1e15 else f"{count:g}"
            raise InputError(argument("every") + f": {every} asks for {number} places; ask for larger steps")
        return first + step * np.arange(max(0, int(count + _SAME)) + 1) if count > -_SAME else np.empty(0)

    return _new(seen, walk, _SAME * step)


def _not_before(seen: Seen, until: str | None, end: float | None) -> None:
    if end is not None and end < seen.x.values.min():
        first = seen.shown(seen.x.values.min()[None])[0]
        where = f" {until} lies before the first place of {seen.sheet.name}, {first}; name a later one"
        raise InputError(argument("until") + where)


def of_table(seen: Seen, at: Sheet) -> New:
    """The places of another table: its column named as x is (or its only one), in the groups that it names."""
    name = seen.x.name if len(at.columns) > 1 or seen.x.name in at.columns else next(iter(at.columns))
    column = at.column(name)
    if column.wrong is not None:
        raise at.refuse(column.wrong.row, name, column.wrong.why)
    if column.blank.any():
        raise at.refuse(int(column.blank.argmax()), name, "blank; every row must name a place")
    if column.kind != seen.x.kind:
        what = {NUMBER: "numbers", TIME: "times"}[seen.x.kind]
        raise InputError(f"{at.name}: column '{name}' must have {what}, as column '{seen.x.name}' of {seen.sheet.name}")
    values = column.from_origin(seen.x.origin).values
    if seen.x.clock is not None and column.clock is not None:
        values = seen.x.clock.from_other(column.clock, values, f"{at.name}, column '{name}'")
    if not seen.by or not all(by in at.columns for by in seen.by):
        return _new(seen, lambda first, end: values, 0)
    keys = [", ".join(key) for key in zip(*(at.column(by).cells() for by in seen.by), strict=True)]
    known = {group.name for group in seen.groups}
    for row, key in enumerate(keys):
        if key not in known:
            raise at.refuse(row, seen.by[0], f"{seen.sheet.name} knows no group '{key}'; nothing is known of it")
    own = {group: values[[key == group for key in keys]] for group in known}
    return _new(seen, lambda first, end: values, 0, lambda group: own[group.name])


def _new(seen: Seen, walk: Callable, same: float, of_group: Callable[[Group], ndarray] | None = None) -> New:
    """What is asked of each group, less what is there, at its place among the rows."""
    x, group, key = [], [], []
    for number, one in enumerate(seen.groups):
        own = seen.x.values[one.rows]
        asked = np.unique(of_group(one) if of_group else walk(own.min(), own.max())).astype(own.dtype)
        asked = asked[_far(asked, np.sort(own), same)]
        x.append(asked)
        group.append(np.full(len(asked), number))
        key.append(_keys(asked, own, one.rows, seen.sheet.rows))
    if sum(map(len, x)) > MOST:
        raise InputError(f"{sum(map(len, x)):,} new places are asked for; ask for fewer")
    return New(np.concatenate(x), np.concatenate(group), np.concatenate(key))


def _far(asked: ndarray, own: ndarray, same: float) -> ndarray:
    """Which are no places that are there."""
    after = np.searchsorted(own, asked)
    near = np.minimum(
        np.abs(own[np.minimum(after, len(own) - 1)] - asked), np.abs(own[np.maximum(after - 1, 0)] - asked)
    )
    return near > same


def _keys(asked: ndarray, own: ndarray, rows: ndarray, total: int) -> Float[ndarray, "m"]:
    """In order where the rows of the group are one block in order, else after all rows."""
    if rows[-1] - rows[0] != len(rows) - 1:
        return np.full(len(asked), float(total))
    step = np.diff(own)
    if (step >= 0).all():
        return rows[0] + np.searchsorted(own, asked, side="right") - 0.5
    if (step <= 0).all():  # of two new ones in one gap the later is written first
        behind = np.searchsorted(-own, -asked, side="right")
        return rows[0] + behind - 0.5 - 0.25 * np.linspace(0, 1, len(asked))
    return np.full(len(asked), float(total))


def _number(text: str | float, name: str, expected: str | Words, origin: int = 0) -> float:
    if origin and str(text).strip().lstrip("-").isdecimal():
        return float(int(text) - origin)
    try:
        number = -origin + float(str(text).replace(",", "."))
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise InputError(argument(name) + f": {text!r} is not " + expected)
    return number
