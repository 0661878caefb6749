"""What columns are, where it is said and not guessed: codes that are classes, and text that is numbers."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from fillin.errors import InputError, argument, option
from fillin.filling.diagnostics import Note, listed
from fillin.runtime import require
from fillin.tabular.sheet import NUMBER, TEXT, Column, Sheet, Wrong

_WRITTEN = re.compile(r"[-+−$€£]*\s*\d[\d.,'\s]*\s*[%€$£]?")
_PLAIN = re.compile(r"[-+]?\d+(\.\d*)?")
_FEW = 10  # different values of a column of codes
_ENOUGH = 2  # rows of each


def as_said(sheet: Sheet, classes: Sequence[str] = (), numbers: Sequence[str] = ()) -> Sheet:
    """The sheet with columns of the kinds that were said; categories of a frame are classes unless it is said."""
    both = [name for name in classes if name in numbers]
    if both:
        why = f"{sheet.name}: column '{both[0]}' is in both " + argument("classes") + " and " + argument("numbers")
        raise InputError(why + "; leave one out")
    for name in (*classes, *numbers):
        sheet.column(name)
    columns = dict(sheet.columns)
    for name, column in sheet.columns.items():
        if name in numbers:
            columns[name] = _as_number(column)
        elif name in classes or column.coded:
            columns[name] = _as_class(column, sheet.text)
    return replace(sheet, columns=columns)


def _as_class(column: Column, written: bool) -> Column:
    """Its cells as words. Of numbers 1 and 1.0 are one class; what was not written has no .0."""
    if column.kind == TEXT:
        return column
    words = [str(cell).strip() for cell in column.cells()]
    if column.kind == NUMBER:
        first: dict[float, str] = {}
        values = column.places.tolist()
        words = [word if written else word.removesuffix(".0") for word in words]
        words = [word if v != v else first.setdefault(v, word) for word, v in zip(words, values, strict=True)]
    return Column(column.name, TEXT, np.empty(0), column.blank, lambda: words)


def _as_number(column: Column) -> Column:
    """Its cells as numbers; the first that is none is told by its place."""
    if column.kind == NUMBER:
        return column
    pandas = require("pandas")
    text = pandas.Series([str(cell).strip() for cell in column.cells()], dtype="str")
    values = np.array(pandas.to_numeric(text.where(~column.blank), errors="coerce"), dtype=float)
    unread = ~np.isfinite(values) & ~column.blank
    wrong = None
    if unread.any():
        row = int(unread.argmax())
        why = f"{text.iloc[row]!r} is not a number; correct it, leave it blank, say that it means a blank: "
        wrong = Wrong(row, why + option("na", [text.iloc[row]]) + ", or leave out " + option("numbers", [column.name]))
    return Column(column.name, NUMBER, values, column.blank, column.cells, wrong=wrong)


def codes(fills: Collection[Column], said: Collection[str], target: Column | None) -> list[Note]:
    """Columns that are filled as numbers and may have been meant as classes; of a target that makes a difference."""
    found = [column for column in fills if column.name not in said and _may_be_codes(column)]
    if not found:
        return []
    names = [column.name for column in found]
    few = f"{listed(names)} {'has' if len(names) == 1 else 'have'} few different values, all of them whole: filled as "
    what = "a number; if they are" if len(names) == 1 else "numbers; if these are"
    words = few + what + " codes of classes, say " + option("classes", names[:1])
    return [Note(words, doubtful=target is not None)]


def unread(columns: Collection[Column], said: Collection[str]) -> list[Note]:
    """Columns of words, all of which are numbers written as they cannot be read: 12 %, 1,234.50, $5."""
    found = []
    for column in columns:
        if column.kind != TEXT or column.name in said or column.blank.all():
            continue
        words = [str(cell).strip() for cell, blank in zip(column.cells(), column.blank, strict=True) if not blank]
        # plain numbers among classes are categories of a frame: someone said so
        if all(_WRITTEN.fullmatch(word) for word in words) and not all(_PLAIN.fullmatch(word) for word in words):
            why = f"{column.name} has {words[0]!r}, which is read as a class; if it is a number, write it as 1234.5, "
            why += "without %, units and separators of thousands; if not, say "
            found.append(Note(why + option("classes", [column.name]), doubtful=True))
    return found


def _may_be_codes(column: Column) -> bool:
    if column.kind != NUMBER:
        return False
    values, often = np.unique(column.values[~column.blank], return_counts=True)
    return 1 < len(values) <= _FEW and bool((values % 1 == 0).all()) and int(often.sum()) >= _ENOUGH * _FEW
