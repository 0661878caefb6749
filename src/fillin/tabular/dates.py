"""Times as whole ticks (microseconds): read from text in one format and zone, stepped, written as they came.

A tick counts from 1970 on the column's own clock: on the wall where the zone is not known or is a fixed offset, in UTC
where it is a zone with summer time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
from numpy import ndarray

from fillin.errors import InputError, Words

SECOND = 1_000_000
MOST = 20_000_000  # steps
_EPOCH = datetime(1970, 1, 1)
_UNITS = {
    "us": 1, "ms": 1000, "s": SECOND, "sec": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND,
    "hour": 3600 * SECOND, "d": 86400 * SECOND, "day": 86400 * SECOND, "w": 7 * 86400 * SECOND,
    "week": 7 * 86400 * SECOND,
}  # fmt: skip
_DAYS = ("d", "day", "w", "week")
_MONTHS = {"mo": 1, "month": 1, "q": 3, "y": 12, "year": 12}
_OFFSET = re.compile(r"\s*(Z|[+-]\d\d(?::?\d\d)?)$")
_DATES = (
    "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d-%b-%Y",
    "%b %Y", "%b-%Y", "%d %B %Y", "%B %Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
)  # fmt: skip
_HOURS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
ISO = "ISO8601"
FORMATS = (ISO, *(date + hour for date in _DATES for hour in _HOURS), "%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
DIGITS = {"%Y%m%d": 8, "%Y%m": 6}  # looked for where the column is called a date: else they are numbers


@dataclass(frozen=True)
class Clock:
    """How a column tells time: the format of its text, the offset it is written with ("", "Z", "+01:00"), its zone."""

    format: str = ISO
    offset: str = ""
    sample: str = ""  # a cell, to write others like it
    zone: tzinfo | None = None
    mixed: bool = False  # the column has several offsets, as across summer time: it is told in UTC

    @property
    def hours(self) -> bool:
        """It tells a time of day and no date."""
        return self.format.startswith("%H")

    def show(self, ticks: ndarray) -> list[str]:
        """As the column writes them; with hours where days alone would not tell them apart."""
        moments = [_EPOCH + timedelta(microseconds=int(tick)) for tick in ticks]
        if self.zone is not None:
            moments = [moment.replace(tzinfo=UTC).astimezone(self.zone).replace(tzinfo=None) for moment in moments]
        return [self._text(moment) + self.offset for moment in moments]

    def _text(self, moment: datetime) -> str:
        if self.format != ISO:
            text = moment.strftime(self.format)
            if "%H" not in self.format and "%I" not in self.format and moment.time() != _EPOCH.time():
                text += moment.strftime(" %H:%M:%S")
            return text
        between = "T" if "T" in self.sample else " "
        if moment.microsecond:
            return moment.isoformat(between)
        if ":" not in self.sample and moment.time() == _EPOCH.time():
            return moment.strftime("%Y-%m") if self.sample.count("-") == 1 and moment.day == 1 else f"{moment:%Y-%m-%d}"
        minutes = self.sample.count(":") == 1 and not moment.second
        return moment.isoformat(between, "minutes" if minutes else "seconds")

    def read(self, text: str, what: str | Words) -> int:
        """One time, in the format of the column or as 2027-01-31 12:00."""
        from fillin.runtime import require

        found = _OFFSET.search(text) if ":" in text else None
        body = text[: found.start()] if found else text
        for form in (self.format, ISO):
            parsed = require("pandas").to_datetime(body.strip(), format=form, errors="coerce")
            if parsed == parsed:  # not NaT
                tick = int(parsed.to_datetime64().astype("datetime64[us]").astype(np.int64))
                return self._own(tick, found[1] if found else "", text, what)
        raise InputError(what + f": {text!r} is no date; write it as 2027-01-31, or 2027-01-31 12:00")

    def _own(self, tick: int, offset: str, text: str, what: str | Words) -> int:
        """From the wall clock of `offset` to this one."""
        if self.zone is not None:
            away = timedelta(microseconds=tick) + _EPOCH
            if not offset:
                return _ticks(away.replace(tzinfo=self.zone))
            return tick - seconds_east(offset) * SECOND
        if offset and not self.offset:
            raise InputError(what + f": {text!r} has a time zone, the column has none; write it without")
        return tick + (seconds_east(self.offset) - seconds_east(offset)) * SECOND if offset else tick

    def from_other(self, other: "Clock", ticks: ndarray, what: str) -> ndarray:
        """Ticks of another column on this clock."""
        if (self.zone is None and not self.offset) != (other.zone is None and not other.offset):
            raise InputError(f"{what}: one has a time zone and the other has none; write both in the same way")
        to_utc = 0 if other.zone is not None else -seconds_east(other.offset) * SECOND
        return ticks + to_utc + (0 if self.zone is not None else seconds_east(self.offset) * SECOND)

    def steps(self, first: int, last: int, every: str, what: str | Words) -> ndarray:
        """first, first + every, … up to last; days, weeks, months and years go by the calendar."""
        number, unit = _duration(every, what)
        months = _MONTHS.get(unit)
        if months is None and (self.zone is None or unit not in _DAYS):
            step = round(number * _UNITS[unit])
            if step < 1:
                raise InputError(what + f": {every!r} is less than a microsecond; ask for a longer step")
            if (last - first) // step > MOST:
                count = (last - first) // step
                raise InputError(what + f": {every!r} asks for {count:,} places; ask for longer steps")
            return np.arange(first, last + 1, step, dtype=np.int64)
        if number != int(number):
            raise InputError(what + f": {every!r} is no whole number of {unit}; ask for a whole one, or for hours")
        walk = self._calendar(first, last, int(number), unit)
        return np.fromiter(walk, dtype=np.int64)

    def _calendar(self, first: int, last: int, number: int, unit: str) -> Iterator[int]:
        start = _EPOCH + timedelta(microseconds=first)
        if self.zone is not None:
            start = start.replace(tzinfo=UTC).astimezone(self.zone)
        count = 0
        while True:
            try:
                moment = _later(start, count * number, unit)
            except (ValueError, OverflowError):  # the calendar ends with the year 9999
                return
            tick = _ticks(moment)
            if tick > last:
                return
            yield tick
            count += 1


def _later(start: datetime, number: int, unit: str) -> datetime:
    """`number` units later on the wall clock; from a 31st to the last day of a shorter month."""
    if unit not in _MONTHS:
        return start + number * timedelta(microseconds=_UNITS[unit])
    months = start.month - 1 + number * _MONTHS[unit]
    first = start.replace(year=start.year + months // 12, month=months % 12 + 1, day=1)
    end = (first.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
    return first.replace(day=min(start.day, end.day))


def _ticks(moment: datetime) -> int:
    return (moment.replace(tzinfo=None) - (moment.utcoffset() or timedelta()) - _EPOCH) // timedelta(microseconds=1)


def span(text: str, what: str | Words) -> int:
    """A length of time in ticks: "24h", "7d".

    >>> span("1.5h", "--period") // SECOND
    5400
    """
    number, unit = _duration(text, what)
    if unit in _MONTHS:
        raise InputError(what + f": months and years differ in length; write {text!r} in days")
    return round(number * _UNITS[unit])


def _duration(text: str, what: str | Words) -> tuple[float, str]:
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)?\s*([a-z]+?)\s*", str(text).lower())
    unit = found[2] if found else ""
    if unit not in _UNITS and unit not in _MONTHS:
        unit = unit.removesuffix("s")
    if not found or (unit not in _UNITS and unit not in _MONTHS) or float(found[1] or 1) <= 0:
        raise InputError(what + f": {text!r} is no length of time; write 10min, 1h, 1d, 1w, 1mo or 1y")
    return float(found[1] or 1), unit


def seconds_east(offset: str) -> int:
    """East of Greenwich; a blank before it is how a file writes it.

    >>> seconds_east("-03:30")
    -12600
    """
    offset = offset.strip()
    if offset in ("", "Z"):
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    return (1 if offset[0] == "+" else -1) * (3600 * int(digits[:2]) + 60 * int(digits[2:]))
