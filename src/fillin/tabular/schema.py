"""What the columns of a table are: kinds, levels, and the way from values to numbers and back."""

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from fillin.errors import FillinWarning, InputError, InputTypeError, UnknownName, choose
from fillin.tabular.reading import Distinct, Raw, listed, named, read
from fillin.tabular.values import OPPOSITE, READERS, TRUTH, WANTED, from_json, number_of, spelled, to_json

KINDS = ("number", "class", "boolean", "date")
_FIRST, _LAST = -719_162, 2_932_896  # the days of the years 1 and 9999 that a date may be
_NEARLY, _MANY = 0.9, 10  # a column with that share of numbers, of so many, was hardly meant as classes


@dataclass(frozen=True)
class Column:
    """A column of one kind. Of a class or a boolean code i stands for levels[i], and the code after them for any other
    value: what was not seen at `infer` is no error later. Levels go from the commonest to the rarest; those of a
    boolean are what stands for false and what for true."""

    name: str
    kind: str
    levels: tuple[Any, ...] = ()

    def __post_init__(self):
        choose(f"kind of column {self.name!r}", self.kind, KINDS)

    @property
    def classes(self) -> int:
        """How many codes there are, the one of any other value included; 0 for numbers and dates."""
        return len(self.levels) + 1 if self.kind in ("class", "boolean") else 0

    @cached_property
    def _codes(self) -> dict[Any, int]:
        return {level: code for code, level in enumerate(self.levels)}

    @cached_property
    def _spelled(self) -> dict[str, int]:
        return {spelled(level): code for code, level in reversed(list(enumerate(self.levels)))}

    def encode(self, raw: Raw) -> Float[ndarray, "n"]:
        """Numbers, days since 1970-01-01, or codes; NaN where missing."""
        if raw.sort == self.kind != "class" or (self.kind, raw.sort) == ("number", "boolean"):
            return raw.numbers
        distinct = raw.distinct
        if self.kind == "class":
            return distinct.spread([float(self._code(value)) for value in distinct.values])
        each = [READERS[self.kind](value) for value in distinct.values]
        if self.kind == "boolean":
            return distinct.spread([2.0 if truth is None else truth for truth in each])
        return raw.finite(distinct.spread(_all_read(raw, self.kind, each)))

    def _code(self, value: Any) -> int:
        code = self._codes.get(value)
        return self._spelled.get(spelled(value), len(self.levels)) if code is None else code

    def decode(self, values: Float[ndarray, "*n"]) -> Shaped[ndarray, "*n"]:
        """The way back, of any shape: numbers as they are, dates as datetime64, classes as their levels; None where a
        class is missing or any other value."""
        if self.kind == "number":
            return values
        if self.kind == "date":
            days = np.clip(np.nan_to_num(values), _FIRST, _LAST)
            ticks = np.rint(days % 1 * 86_400e6).astype(np.int64)  # apart from whole days, to the microsecond
            moments = np.floor(days).astype("datetime64[D]") + ticks.astype("timedelta64[us]")
            return np.where(np.isnan(values), np.datetime64("nat"), moments)
        codes = np.where(np.isnan(values), len(self.levels), values)
        wrong = (codes < 0) | (codes > len(self.levels)) | (codes % 1 != 0)
        if wrong.any():
            got, most = codes[wrong].flat[0], len(self.levels)
            raise InputError(f"column {self.name!r}: codes are whole numbers from 0 to {most}, got {got:g}")
        found = np.empty(len(self.levels) + 1, dtype=object)
        found[:-1] = self.levels
        found = found[codes.astype(np.int64)]
        if self.levels == (False, True) and self.kind == "boolean" and (codes < 2).all():
            return found.astype(bool)
        return found

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "levels": [to_json(level) for level in self.levels]}


@dataclass(frozen=True)
class Schema:
    """The columns of a table, learnt from one and applied to others.

    >>> fruit = np.array([["apple", 3], ["pear", None], ["apple", "4.5"]], dtype=object)
    >>> schema = Schema.infer(fruit)
    >>> [(column.name, column.kind, column.levels) for column in schema.columns]
    [('x0', 'class', ('apple', 'pear')), ('x1', 'number', ())]
    >>> schema.encode(np.array([["pear", 1], ["plum", 2]], dtype=object)).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    >>> schema.decode("x0", np.array([0.0, 2.0])).tolist()
    ['apple', None]
    """

    columns: tuple[Column, ...]

    @classmethod
    def infer(cls, data: Any, kinds: Mapping[str, str] | None = None) -> "Schema":
        """Numbers are numbers however few, booleans are booleans, text and categories are classes. Text that spells
        numbers, dates (2027-01-31) or booleans (true, false, yes, no) in every cell is those. `kinds` says otherwise:
        {"postcode": "class"}."""
        return cls(tuple(column for column, _ in infer(read(data), kinds)))

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownName("column", name, self.names)

    def encode(self, data: Any) -> Float[ndarray, "n d"]:
        """float64, NaN where missing. Columns of a frame are found by name, in any order and among others; those of an
        array by their place."""
        raws = self._match(read(data), isinstance(data, ndarray))
        return np.stack([column.encode(raw) for column, raw in zip(self.columns, raws, strict=True)], axis=1)

    def _match(self, raws: list[Raw], by_place: bool) -> list[Raw]:
        own = {raw.name: raw for raw in raws}
        absent = [name for name in self.names if name not in own]
        if not by_place and not absent:
            return [own[name] for name in self.names]
        if by_place or self.names == named(len(self.columns)):
            if len(raws) != len(self.columns):
                raise InputError(
                    f"the table has {len(raws)} columns, expected {len(self.columns)}: {listed(self.names)}; "
                    "give the same, in the same order"
                )
            return raws
        raise InputError(
            f"columns that are missing: {listed(absent)}; expected {listed(self.names)}, got {listed(list(own))}. "
            "Add them (cells may be blank), or rename those that are called otherwise"
        )

    def decode(self, column_name: str, values: Float[ndarray, "*n"]) -> Shaped[ndarray, "*n"]:
        """What the numbers of a column stand for; see `Column.decode`."""
        return self[column_name].decode(values)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"columns": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Schema":
        try:
            columns = [
                (c["name"], c["kind"], tuple(from_json(level) for level in c["levels"])) for c in data["columns"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is not what Schema.to_dict gave ({error!r}); save it again") from error
        return cls(tuple(Column(*column) for column in columns))


def infer(raws: list[Raw], kinds: Mapping[str, str] | None = None) -> list[tuple[Column, Float[ndarray, "n"]]]:
    """Each column and its values, encoded: what cannot be read is an error here."""
    kinds = {} if kinds is None else kinds
    if not isinstance(kinds, Mapping):
        raise InputTypeError(f"kinds is a dictionary such as {{'x0': 'class'}}, got {type(kinds).__name__}")
    for name, kind in kinds.items():
        if name not in {raw.name for raw in raws}:
            raise UnknownName("column in kinds", name, [raw.name for raw in raws])
        choose(f"kind of column {name!r}", kind, KINDS)
    found = []
    for raw in raws:
        column = _column(raw, kinds.get(raw.name) or _kind(raw))
        found.append((column, column.encode(raw)))
    return found


def _kind(raw: Raw) -> str:
    if raw.sort != "cells":
        return raw.sort
    distinct = raw.distinct
    if not distinct.values:
        return "number"  # nothing is known of it
    for kind, reader in READERS.items():
        if distinct.sorts <= {kind, "text"}:
            each = [reader(value) for value in distinct.values]
            if None not in each and any(value == value for value in each):
                return kind
    if distinct.sorts == {"text"}:
        _warn_of_nearly(raw)
        return "class"
    raise _mixed(raw, distinct)


def _column(raw: Raw, kind: str) -> Column:
    if kind == "class":
        values = zip(raw.distinct.values, raw.distinct.often, strict=True)
        order = sorted(values, key=lambda pair: (-pair[1], str(pair[0])))
        return Column(raw.name, kind, tuple(level for level, _ in order))
    if kind != "boolean":
        return Column(raw.name, kind)
    if raw.sort != "boolean":
        _all_read(raw, kind, [READERS[kind](value) for value in raw.distinct.values])
    return Column(raw.name, kind, (False, True) if raw.sort == "boolean" else _words(raw.distinct))


def _words(distinct: Distinct) -> tuple[Any, Any]:
    """What stands for false and what for true: the commonest word of each, where they are words."""
    words: dict[float, str] = {}
    for _, value in sorted(zip(distinct.often, distinct.values, strict=True), key=lambda pair: -pair[0]):
        word = str(value).strip()
        if word.lower() in TRUTH:
            words.setdefault(TRUTH[word.lower()], word)
    if not words or distinct.sorts != {"text"}:
        return False, True
    for truth, word in list(words.items()):
        other = OPPOSITE[word.lower()]
        words.setdefault(1 - truth, other.upper() if word.isupper() else other.title() if word.istitle() else other)
    return words[0.0], words[1.0]


def _all_read(raw: Raw, kind: str, each: list[float | None]) -> list[float]:
    if None in each:
        at = each.index(None)
        raise raw.wrong(
            raw.distinct.row(at),
            f"is {raw.distinct.values[at]!r}, expected {WANTED[kind]}; correct it, leave it blank, or fit with the "
            f"column as classes: kinds={{{raw.name!r}: 'class'}}",
        )
    return [np.nan if value is None else value for value in each]


def _mixed(raw: Raw, distinct: Distinct) -> InputError:
    """Names the first cell that is of another sort than most."""
    sorts = distinct.each_sort()
    most = Counter(sort for sort in sorts if sort).most_common(1)[0][0]
    row = next(row for row, sort in enumerate(sorts) if sort not in ("", most))
    return raw.wrong(
        row,
        f"is {distinct.cells[row]!r} ({sorts[row]}), but most of the column is {most}: mixed types; correct it, leave "
        f"it blank, or take the column as classes: kinds={{{raw.name!r}: 'class'}}",
    )


def _warn_of_nearly(raw: Raw) -> None:
    """A column of numbers with a word in it is one of classes: this is hardly what was meant."""
    wrong = [at for at, value in enumerate(raw.distinct.values) if number_of(value) is None]
    count = len(raw.distinct.values)
    if count < _MANY or len(wrong) > (1 - _NEARLY) * count:
        return
    row, word = raw.distinct.row(wrong[0]), raw.distinct.values[wrong[0]]
    warnings.warn(
        f"column {raw.name!r} is taken as classes: {count - len(wrong)} of its {count} different values are numbers, "
        f"but row {row} (counted from 0) is {word!r}; correct it, or say what it is: kinds={{{raw.name!r}: 'class'}}",
        FillinWarning,
        stacklevel=5,
    )
