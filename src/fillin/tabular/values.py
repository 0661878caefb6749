"""What one cell says: whether it is missing, and the number, truth or date that it is or spells."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

BLANK = frozenset(["", "na", "n/a", "nan", "nat", "null", "none", "?", "-", "<na>"])  # among numbers, truths and dates
TRUTH = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
OPPOSITE = {"true": "false", "false": "true", "yes": "no", "no": "yes"}
_EPOCH, _DAY, _ORDINAL = datetime(1970, 1, 1), timedelta(days=1), date(1970, 1, 1).toordinal()
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d.*)?")


def is_missing(value: Any) -> bool:
    """None, NaN, NaT, pandas' NA, and text without a letter in it.

    >>> [is_missing(value) for value in (None, float("nan"), np.datetime64("nat"), " ", 0, "NA")]
    [True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return not value.strip()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.generic | Decimal) and bool(value != value)


def plain(value: Any) -> Any:
    """The same as Python's own bool, int, float, str, date or datetime; TypeError where it is none of them."""
    if type(value) in (str, float, int, bool):
        return value
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item()
    if isinstance(value, np.generic):
        value = value.item()
    if hasattr(value, "to_pydatetime"):  # pandas' Timestamp
        return value.to_pydatetime(warn=False)
    if isinstance(value, bool | date):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral | Real | Decimal):
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(type(value).__name__)


def sort_of(value: Any) -> str:
    """Of a plain value: "boolean", "number", "text" or "date"."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "date"


def number_of(value: Any) -> float | None:
    """The number that it is or spells; NaN where it spells a blank, None where it is no number.

    >>> [number_of(value) for value in (3, True, " 1e3 ", "n/a", "1_000", "three")]
    [3.0, 1.0, 1000.0, nan, None, None]
    """
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in BLANK:
            return np.nan
        if "_" in text:  # to Python 1_000 is a number
            return None
    elif not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:  # a whole number of more than 308 digits
        return np.inf


def truth_of(value: Any) -> float | None:
    """0 or 1, whether it is True, a number or a word; NaN where it spells a blank, None where it is something else.

    >>> [truth_of(value) for value in (True, 0, "Yes", "1", "?", "maybe", 2)]
    [1.0, 0.0, 1.0, 1.0, nan, None, None]
    """
    if isinstance(value, str) and value.strip().lower() in TRUTH:
        return TRUTH[value.strip().lower()]
    number = number_of(value)
    return number if number is None or number in (0, 1) or number != number else None


def days_of(value: Any) -> float | None:
    """Days since 1970-01-01 (of UTC, where a time zone is given); NaN where it spells a blank, None for no date.

    >>> [days_of(value) for value in (date(1970, 1, 3), "1970-01-02 12:00", "1970-01-02T12:00+12:00", "n/a", 3)]
    [2.0, 1.5, 1.0, nan, None]
    """
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in BLANK:
            return np.nan
        if not _ISO.fullmatch(text):
            return None
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            return None
    if isinstance(value, datetime):
        naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return (naive - _EPOCH) / _DAY
    return float(value.toordinal() - _ORDINAL) if isinstance(value, date) else None


READERS = {"number": number_of, "boolean": truth_of, "date": days_of}
WANTED = {"number": "a number", "boolean": "true or false", "date": "a date like 2027-01-31"}


def spelled(value: Any) -> str:
    """How a level is told where another type of the same thing comes: 1.0, 1 and "1" are one.

    >>> spelled(1.0), spelled(" 1"), spelled(0.5), spelled(datetime(2027, 1, 31))
    ('1', '1', '0.5', '2027-01-31')
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip().removesuffix(" 00:00:00") if isinstance(value, datetime) else str(value).strip()


def to_json(level: Any) -> Any:
    """A level as JSON has it; dates are told from text."""
    if isinstance(level, datetime):
        return {"datetime": level.isoformat()}
    return {"date": level.isoformat()} if isinstance(level, date) else level


def from_json(level: Any) -> Any:
    """
    >>> from_json(to_json(date(2027, 1, 31))), from_json(to_json("2027-01-31"))
    (datetime.date(2027, 1, 31), '2027-01-31')
    """
    if not isinstance(level, dict):
        return level
    ((kind, text),) = level.items()
    return (datetime if kind == "datetime" else date).fromisoformat(text)
