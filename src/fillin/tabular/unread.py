"""Cells that were meant as numbers and cannot be read as such: a line of units, 12 %, 1,234, 5 m."""

import re
from collections.abc import Collection

import numpy as np

from fillin.errors import InputError
from fillin.tabular.sheet import NUMBER, TEXT, TIME, Column, Sheet

_ALMOST = re.compile(r"[-+−<>~≈$€£]*\s*\d")


def check_units(sheet: Sheet) -> None:
    """A line of units below the header: words above numbers and times, and nothing else to read in it."""
    columns = [column for column in sheet.columns.values() if column.kind in (NUMBER, TIME)]
    units = [column for column in columns if _only_first_wrong(column)]
    if not units or sheet.rows < 3 or any(not column.blank[0] for column in columns if column not in units):
        return
    words = ", ".join(repr(str(column.cells()[0]).strip()) for column in units)
    raise InputError(
        f"{sheet.name}, {sheet.line(0)}: {words} look like units, and all rows below have numbers; remove that line"
    )


def _only_first_wrong(column: Column) -> bool:
    if column.wrong is None or column.wrong.row != 0 or re.search(r"\d", str(column.cells()[0])):
        return False
    unread = np.isnan(column.values) if column.kind == NUMBER else column.values == np.iinfo(np.int64).min  # NaT
    return int((unread & ~column.blank).sum()) == 1


def almost(sheet: Sheet, others: Collection[str]) -> InputError | None:
    """The first cell of a column of words that begins as a number does, and what to write instead."""
    for column in sheet.columns.values():
        if column.kind != TEXT or column.name in others:
            continue
        for row, cell in enumerate(column.cells()):
            if not column.blank[row] and _ALMOST.match(cell.strip()):
                return sheet.refuse(
                    row, column.name,
                    f"{cell.strip()!r} cannot be read as a number; write it as 1234.5, without %, units and separators "
                    "of thousands",
                )  # fmt: skip
    return None
