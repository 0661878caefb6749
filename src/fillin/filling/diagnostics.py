"""What a user should know of how a table was read; in Python what may have been meant otherwise is a warning."""

import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fillin.errors import FillinWarning, Words, both, option
from fillin.tabular.sheet import Column

_SENTINELS = (-99.0, -999.0, -9999.0, -99.99, -999.99, -9999.9, 9999.0, 99999.0)
_FEW = 3


@dataclass(frozen=True)
class Note:
    """`doubtful`: another reading is as likely, and gives other numbers. In Python that is a warning."""

    words: str | Words
    doubtful: bool = False

    @property
    def shell(self) -> str:
        return both(self.words).shell

    def __str__(self) -> str:
        return str(self.words)


def sentinels(column: Column) -> list[Note]:
    """A number that often stands for a blank, if it lies far from all others."""
    for sentinel in _SENTINELS:
        is_it = column.values == sentinel
        others = column.values[~is_it & ~column.blank]
        if is_it.any() and len(others) > 1:
            width = np.ptp(others) or 1.0
            if min(abs(sentinel - others.min()), abs(sentinel - others.max())) > 3 * width:
                number = int(sentinel) if sentinel.is_integer() else sentinel
                said = f"{column.name} is {number} {int(is_it.sum())} times: if that means a blank, say "
                return [Note(said + option("na", [number]), doubtful=True)]
    return []


def spelled(column: Column) -> list[Note]:
    """Words among the numbers that were taken for blanks, and nobody had said so."""
    if not column.spelled:
        return []
    words = listed([repr(word) for word in column.spelled])
    return [Note(f"{column.name} has {words} among its numbers: read as blank", doubtful=True)]


def listed(words: list[str]) -> str:
    """The first few."""
    return ", ".join(words[:_FEW]) + (" …" if len(words) > _FEW else "")


def warn(notes: Iterable[Note]) -> None:
    """Of each that is doubtful, once, at the line of whoever called fillin."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("fillin", "jaxtyping"):
        level, frame = level + 1, frame.f_back
    for note in notes:
        if note.doubtful:
            warnings.warn(str(note), FillinWarning, stacklevel=level)
