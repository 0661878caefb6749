"""A column of text as what it says: numbers (3.14 or 3,14), times in one format, or words."""

import re
from collections.abc import Collection
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.errors import Words, option
from fillin.runtime import require
from fillin.tabular.dates import DIGITS, FORMATS, SECOND, Clock, seconds_east
from fillin.tabular.sheet import NUMBER, TEXT, TIME, Column, Wrong, too_large

BLANK = frozenset(
    ["", "na", "n/a", "nan", "null", "none", "nil", "-", "--", "?", ".", "#n/a", "<na>", "missing", "nat"]
)
_MOST = 0.5  # of the cells: what this share of them is, the column is meant to be
_DATE_NAME = re.compile(r"date|time|day|month|datum|jahr", re.IGNORECASE)
_ZONED = r"(:\d\d(?:[.,]\d+)?)(\s*(?:Z|[+-]\d\d(?::?\d\d)?))$"


def read_cells(
    name: str, cells: Any, na: Collection[Any] = (), comma: bool = False, date_format: str | None = None
) -> Column:
    """`cells` is a pandas Series of text; `na` are further spellings of a blank, `comma` allows 3,14 for 3.14."""
    text = cells.str.strip()
    blank = np.asarray(text.str.lower().isin([*BLANK, *(str(one).strip().lower() for one in na)]), dtype=bool)
    there = text[~blank]
    best: Column | None = None
    for found in (
        _numbers(name, cells, text, there, blank, na, comma),
        _times(name, cells, there, blank, date_format),
    ):
        if found is not None and found.wrong is None:
            return found
        best = best or found
    if best is not None:
        return best
    return Column(name, TEXT, np.empty(0), blank, lambda: cells)


def stands_for_blank(values: Float[ndarray, "n"], na: Collection[Any]) -> Bool[ndarray, "n"]:
    """Where a number is one of those of `na`, however it is written: −999.9 and −999.90 are one."""
    numbers = require("pandas").to_numeric(
        require("pandas").Series([str(one) for one in na], dtype="str"), errors="coerce"
    )
    return np.isin(values, numbers.dropna())


def _numbers(name: str, cells, text, there, blank: ndarray, na: Collection[Any], comma: bool) -> Column | None:
    pandas = require("pandas")
    if _digits(name, there) is not None:
        return None
    number = pandas.to_numeric(there, errors="coerce")
    with_comma = False
    if comma and number.isna().any():
        other = pandas.to_numeric(
            there.where(~there.str.contains(".", regex=False), "x").str.replace(",", "."), "coerce"
        )
        with_comma = bool(other.notna().sum() > number.notna().sum())
        number = other if with_comma else number
    whole = np.asarray(number)
    known = np.asarray(number, dtype=float)
    if len(known) and np.isnan(known).mean() > _MOST:
        return None
    values = np.full(len(text), np.nan)
    values[~blank] = known
    means_blank = stands_for_blank(values, na)
    wrong = None
    if np.isnan(known).any():
        row = int(np.flatnonzero(~blank)[np.isnan(known).argmax()])
        why = f"{text.iloc[row]!r} is not a number; correct it, leave it blank, or say that it means a blank: "
        wrong = Wrong(row, why + option("na", [text.iloc[row]]))
    elif np.isinf(known).any():
        row = int(np.flatnonzero(~blank)[np.isinf(known).argmax()])
        wrong = Wrong(row, f"{text.iloc[row]!r} is not finite; correct it, or leave it blank")
    values[means_blank] = np.nan
    exact = whole if too_large(whole) and not (blank | means_blank).any() else None
    return Column(
        name, NUMBER, values, blank | means_blank, lambda: cells, wrong=wrong, comma=with_comma, exact=exact,
        spelled=_spelled(text[blank], na),
    )  # fmt: skip


def _spelled(blank, na: Collection[Any]) -> tuple[str, ...]:
    """The words that stand for a blank, without those that were told."""
    told = {"", *(str(one).strip().lower() for one in na)}
    return tuple(word for word in blank.unique() if word.lower() not in told)


def _times(name: str, cells, there, blank: ndarray, date_format: str | None) -> Column | None:
    if not len(there) or not there.iloc[[0, len(there) // 2, -1]].str.contains(r"\d").any():
        return None
    offsets = there.str.extract(_ZONED)[1] if there.str.contains(":", regex=False).any() else None
    zoned = None if offsets is None or offsets.isna().all() else offsets.fillna("")
    body = there if zoned is None else there.str.replace(_ZONED, r"\1", regex=True)
    form = date_format or _format(name, body)
    parsed = _dates(body, form) if form else np.full(1, np.datetime64("nat"))
    if form is None or np.isnat(parsed).mean() > _MOST:
        return None
    ticks = np.zeros(len(blank), dtype=np.int64)
    ticks[~blank] = parsed.astype(np.int64)
    offset, mixed = "" if zoned is None else zoned.mode().iloc[0], False
    first = int((~np.isnat(parsed)).argmax())
    where: int | None = None
    why: str | Words = ""
    if np.isnat(parsed).any():
        where = int(np.isnat(parsed).argmax())
        why = f"is not written like {there.iloc[first]!r}, as most of the column is; write all times in one format, "
        why += "for example 2027-01-31 12:00"
    elif zoned is not None and (zoned == "").any():
        where = int(np.asarray(zoned == "").argmax())
        why = f"has no time zone, and {there[zoned != ''].iloc[0]!r} has one; write all times with one, or all without"
    elif zoned is not None and (zoned != offset).any():  # instants all the same: told in UTC
        seconds = zoned.map({one: seconds_east(one) for one in zoned.unique()})
        ticks[~blank] -= np.asarray(seconds, dtype=np.int64) * SECOND
        offset, mixed = offset[: len(offset) - len(offset.lstrip())] + "+00:00", True
    elif not date_format and (twin := _twin(form, body, parsed)) is not None:
        where, other = twin
        why = "may be day first or month first, and no date tells; " + Words(
            f"say which: --date-format '{form}' or '{other}'",
            f"read it with pandas.to_datetime, format='{form}' or '{other}'",
        )
    wrong = None if where is None else Wrong(int(np.flatnonzero(~blank)[where]), f"{there.iloc[where]!r} " + why)
    return Column(name, TIME, ticks, blank, lambda: cells, Clock(form, offset, body.iloc[first], mixed=mixed), wrong)


def _digits(name: str, there) -> str | None:
    """20240131 and 202401 are dates where the column is called one and all of them can be."""
    if not len(there) or not _DATE_NAME.search(name) or not there.str.isdigit().all():
        return None
    for form, length in DIGITS.items():
        if (there.str.len() == length).all() and not np.isnat(_dates(there, form)).any():
            return form
    return None


def _format(name: str, body) -> str | None:
    """The format that reads most of the cells."""
    form = _digits(name, body)
    if form is not None or not body.iloc[[0, len(body) // 2, -1]].str.contains(r"[-/.: ]").any():
        return form
    few = body.iloc[np.unique(np.linspace(0, len(body) - 1, 9).astype(int))]
    likely = sorted(FORMATS, key=lambda form: np.isnat(_dates(few, form)).sum())[:4]
    return min(likely, key=lambda form: (np.isnat(_dates(body, form)).sum(), FORMATS.index(form)))


def _twin(form: str, body, parsed: ndarray) -> tuple[int, str] | None:
    """A cell that says something else month first, where all cells could be read so; and that format."""
    for one, other in (("%d/%m", "%m/%d"), ("%d-%m", "%m-%d")):
        twin = form.replace(one, other)
        if twin != form:
            found = _dates(body, twin)
            differs = found != parsed
            return (int(differs.argmax()), twin) if not np.isnat(found).any() and differs.any() else None
    return None


def _dates(text, form: str) -> ndarray:
    found = require("pandas").to_datetime(text, format=form, errors="coerce")
    return np.asarray(found, dtype="datetime64[us]")
