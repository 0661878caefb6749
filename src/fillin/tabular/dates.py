"""Dates and times as integer ticks (microseconds since 1970): parsed from text, stepped, formatted as they came.

Ticks count wall-clock time where the zone is unknown or a fixed UTC offset, and UTC where it has daylight saving time.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from fillin.errors import InputError, Message
from fillin.runtime import require

SECOND = 1_000_000
DAY = 86_400 * SECOND
MAX_STEPS = 20_000_000
_EPOCH = datetime(1970, 1, 1)
_UNITS = {
    "us": 1, "ms": 1000, "s": SECOND, "sec": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "hour": 3600 * SECOND,
    "d": DAY, "day": DAY, "w": 7 * DAY, "week": 7 * DAY,
}  # fmt: skip
_MONTHS = {"mo": 1, "month": 1, "q": 3, "y": 12, "year": 12}
_OFFSET = re.compile(r"\s*(Z|[+-]\d\d(?::?\d\d)?)$")
_DATES = (
    "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d-%b-%Y",
    "%b %Y", "%b-%Y", "%d %B %Y", "%B %Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
)  # fmt: skip
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
ISO = "ISO8601"
FORMATS = (ISO, *(date + time for date in _DATES for time in _TIMES), "%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
DIGITS = {"%Y%m%d": 8, "%Y%m": 6}  # tried only where the column has the name of a date: else they are numbers


@dataclass(frozen=True)
class Clock:
    """The format of a column of dates: of its text, its UTC offset ("", "Z", "+01:00") and its zone. `mixed`: the
    column has several offsets, as across daylight saving time; ticks are UTC."""

    format: str = ISO
    offset: str = ""
    sample: str = ""  # a cell, to format others like it
    zone: tzinfo | None = None
    mixed: bool = False

    @property
    def time_of_day(self) -> bool:
        """Whether the column has times without a date."""
        return self.format.startswith("%H")

    def to_text(self, ticks: ndarray) -> list[str]:
        """Format as the column does; with a time of day where dates alone would be ambiguous."""
        moments = [_EPOCH + timedelta(microseconds=int(tick)) for tick in ticks]
        if self.zone is not None:
            moments = [moment.replace(tzinfo=UTC).astimezone(self.zone).replace(tzinfo=None) for moment in moments]
        return [self._to_text(moment) + self.offset for moment in moments]

    def _to_text(self, moment: datetime) -> str:
        if self.format != ISO:
            text = moment.strftime(self.format)
            if "%H" not in self.format and "%I" not in self.format and moment.time() != _EPOCH.time():
                text += moment.strftime(" %H:%M:%S")
            return text
        separator = "T" if "T" in self.sample else " "
        if moment.microsecond:
            return moment.isoformat(separator)
        if ":" not in self.sample and moment.time() == _EPOCH.time():
            return moment.strftime("%Y-%m") if self.sample.count("-") == 1 and moment.day == 1 else f"{moment:%Y-%m-%d}"
        minutes = self.sample.count(":") == 1 and not moment.second
        return moment.isoformat(separator, "minutes" if minutes else "seconds")

    def parse(self, text: str, source: str | Message) -> int:
        """One date, in the format of the column or as 2027-01-31 12:00. Errors begin with `source`."""
        match = _OFFSET.search(text) if ":" in text else None
        body = text[: match.start()] if match else text
        for form in (self.format, ISO):
            parsed = require("pandas").to_datetime(body.strip(), format=form, errors="coerce")
            if parsed == parsed:  # not NaT
                tick = int(parsed.to_datetime64().astype("datetime64[us]").astype(np.int64))
                return self._from_wall(tick, match[1] if match else "", text, source)
        message = "{source}: {text!r} is not a date; write it as 2027-01-31, or 2027-01-31 12:00"
        raise InputError(message, source=source, text=text)

    def _from_wall(self, tick: int, offset: str, text: str, source: str | Message) -> int:
        """Convert wall-clock ticks at a UTC offset to ticks of this clock."""
        if self.zone is not None:
            if not offset:
                return _to_tick((timedelta(microseconds=tick) + _EPOCH).replace(tzinfo=self.zone))
            return tick - seconds_east(offset) * SECOND
        if offset and not self.offset:
            message = "{source}: {text!r} has a time zone, the column has none; write it without"
            raise InputError(message, source=source, text=text)
        return tick + (seconds_east(self.offset) - seconds_east(offset)) * SECOND if offset else tick

    def convert(self, other: "Clock", ticks: ndarray, source: str) -> ndarray:
        """Convert ticks of another column to ticks of this clock."""
        if (self.zone is None and not self.offset) != (other.zone is None and not other.offset):
            raise InputError(f"{source}: one has a time zone and the other has none; write both in the same way")
        to_utc = 0 if other.zone is not None else -seconds_east(other.offset) * SECOND
        return ticks + to_utc + (0 if self.zone is not None else seconds_east(self.offset) * SECOND)

    def steps(self, first: int, last: int, every: str, source: str | Message) -> Int[ndarray, "n"]:
        """first, first + every, … up to last. Months and years, and days of a zone, follow the calendar."""
        number, unit = _parse_duration(every, source)
        if unit not in _MONTHS and (self.zone is None or _UNITS[unit] < DAY):
            step = round(number * _UNITS[unit])
            if step < 1:
                message = "{source}: {every!r} is less than a microsecond; choose a longer step"
                raise InputError(message, source=source, every=every)
            count = (last - first) // step
            if count > MAX_STEPS:
                message = "{source}: {every!r} gives {count:,} rows; choose longer steps"
                raise InputError(message, source=source, every=every, count=count)
            return np.arange(first, last + 1, step, dtype=np.int64)
        if number != int(number):
            message = "{source}: {every!r} is not a whole number of {unit}; choose a whole one, or hours"
            raise InputError(message, source=source, every=every, unit=unit)
        return self._calendar_steps(first, last, int(number), unit)

    def _calendar_steps(self, first: int, last: int, number: int, unit: str) -> Int[ndarray, "n"]:
        """Steps on the wall clock; from a 31st to the last day of a shorter month."""
        start = _EPOCH + timedelta(microseconds=first)
        if self.zone is not None:
            start = start.replace(tzinfo=UTC).astimezone(self.zone)
        wall, end = np.datetime64(start.replace(tzinfo=None), "us"), np.datetime64(last + DAY, "us")
        if unit in _MONTHS:
            # pandas.date_range drifts: it goes on from the 29th once a February has cut the 31st
            month = np.arange(wall.astype("datetime64[M]"), end.astype("datetime64[M]") + 1, number * _MONTHS[unit])
            days = (month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")
            date = month.astype("datetime64[D]") + np.minimum(days, start.day) - 1
            moments = date.astype("datetime64[us]") + (wall - wall.astype("datetime64[D]"))
        else:
            moments = np.arange(wall, end + 1, np.timedelta64(number * _UNITS[unit], "us"))
        ticks = moments.astype(np.int64)
        if self.zone is not None:
            within = moments[moments < np.datetime64("9999-12-31")].tolist()  # where Python's calendar ends
            zoned = (moment.replace(tzinfo=self.zone, fold=start.fold) for moment in within)
            ticks = np.array([_to_tick(moment) for moment in zoned], dtype=np.int64)
        return ticks[ticks <= last]


def _to_tick(moment: datetime) -> int:
    return (moment.replace(tzinfo=None) - (moment.utcoffset() or timedelta()) - _EPOCH) // timedelta(microseconds=1)


def parse_duration(text: str, source: str | Message) -> int:
    """A length of time in ticks: "24h", "7d". Errors begin with `source`.

    >>> parse_duration("1.5h", "--period") // SECOND
    5400
    """
    number, unit = _parse_duration(text, source)
    if unit in _MONTHS:
        message = "{source}: months and years differ in length; write {text!r} in days"
        raise InputError(message, source=source, text=text)
    return round(number * _UNITS[unit])


def _parse_duration(text: str, source: str | Message) -> tuple[float, str]:
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)?\s*([a-z]+?)\s*", str(text).lower())
    unit = match[2] if match else ""
    if unit not in _UNITS and unit not in _MONTHS:
        unit = unit.removesuffix("s")
    if not match or (unit not in _UNITS and unit not in _MONTHS) or float(match[1] or 1) <= 0:
        message = "{source}: {text!r} is not a duration; write 10min, 1h, 1d, 1w, 1mo or 1y"
        raise InputError(message, source=source, text=text)
    return float(match[1] or 1), unit


def seconds_east(offset: str) -> int:
    """Seconds east of Greenwich of a UTC offset, which may begin with a space.

    >>> seconds_east("-03:30")
    -12600
    """
    offset = offset.strip()
    if offset in ("", "Z"):
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    return (1 if offset[0] == "+" else -1) * (3600 * int(digits[:2]) + 60 * int(digits[2:]))
