"""The schema of a table: the kind and the levels of each column, and the encoding to numbers and back."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from fillin.errors import InputError, InputTypeError, UnknownName, choose, warn
from fillin.tabular.dates import DAY
from fillin.tabular.source import (
    STRICT_PARSERS,
    TRUTH,
    SourceColumn,
    default_names,
    quote_names,
    read_columns,
    to_number,
)
from fillin.tabular.table import BOOLEAN, CLASS, COLUMN_KINDS, DATE, NUMBER

_EXPECTED = {NUMBER: "a number", BOOLEAN: "true or false", DATE: "a date like 2027-01-31"}
_OPPOSITE = {"true": "false", "false": "true", "yes": "no", "no": "yes"}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999, the limits of a date
_MOSTLY_NUMBERS, _MIN_VALUES = 0.9, 10  # share of numbers, and number of distinct values, that a warning needs


@dataclass(frozen=True)
class Column:
    """A column of one kind. Code i of a class or a boolean stands for levels[i], the code after them for any other
    value: a value that was not seen at `infer` is no error later. Levels are sorted from the most to the least
    frequent; those of a boolean are the values of false and of true."""

    name: str
    kind: str
    levels: tuple[Any, ...] = ()

    def __post_init__(self):
        choose(f"kind of column {self.name!r}", self.kind, COLUMN_KINDS)

    @property
    def n_codes(self) -> int:
        """Number of codes, the one of any other value included; 0 for numbers and dates."""
        return len(self.levels) + 1 if self.kind in (CLASS, BOOLEAN) else 0

    def encode(self, source: SourceColumn) -> Float[ndarray, "n"]:
        """Numbers, days since 1970-01-01, or codes; NaN where missing."""
        if source.kind == self.kind != CLASS or (self.kind, source.kind) == (NUMBER, BOOLEAN):
            return source.numbers
        distinct = source.distinct
        if self.kind == CLASS:
            codes = {level: code for code, level in enumerate(self.levels)}
            by_text = {_spell(level): code for level, code in reversed(codes.items())}
            other = [by_text.get(_spell(value), len(codes)) for value in distinct.values]
            return distinct.spread([float(codes.get(v, code)) for v, code in zip(distinct.values, other, strict=True)])
        parsed = [STRICT_PARSERS[self.kind](value) for value in distinct.values]
        if self.kind == BOOLEAN:
            return distinct.spread([2.0 if truth is None else truth for truth in parsed])
        return source.check_finite(distinct.spread(_check_parsed(source, self.kind, parsed)))

    def decode(self, values: Float[ndarray, "*n"]) -> Shaped[ndarray, "*n"]:
        """Invert `encode`, for any shape: numbers as they are, dates as datetime64, classes as their levels; None where
        a class is missing or any other value."""
        if self.kind == NUMBER:
            return values
        if self.kind == DATE:
            days = np.clip(np.nan_to_num(values), _FIRST_DAY, _LAST_DAY)
            ticks = np.rint(days % 1 * DAY).astype(np.int64)  # apart from whole days, to the microsecond
            moments = np.floor(days).astype("datetime64[D]") + ticks.astype("timedelta64[us]")
            return np.where(np.isnan(values), np.datetime64("nat"), moments)
        codes = np.where(np.isnan(values), len(self.levels), values)
        wrong = (codes < 0) | (codes > len(self.levels)) | (codes % 1 != 0)
        if wrong.any():
            limit, code = len(self.levels), codes[wrong].flat[0]
            raise InputError(f"column {self.name!r}: codes are whole numbers from 0 to {limit}, got {code:g}")
        levels = np.empty(len(self.levels) + 1, dtype=object)
        levels[:-1] = self.levels
        decoded = levels[codes.astype(np.int64)]
        is_bool = self.kind == BOOLEAN and self.levels == (False, True) and (codes < 2).all()
        return decoded.astype(bool) if is_bool else decoded


@dataclass(frozen=True)
class Schema:
    """The columns of a table, inferred from one and applied to others.

    >>> fruit = np.array([["apple", 3], ["pear", None], ["apple", "4.5"]], dtype=object)
    >>> schema = Schema.infer(fruit)
    >>> [(column.name, column.kind, column.levels) for column in schema.columns]
    [('x0', 'class', ('apple', 'pear')), ('x1', 'number', ())]
    >>> schema.encode(np.array([["pear", 1], ["plum", 2]], dtype=object)).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    >>> schema["x0"].decode(np.array([0.0, 2.0])).tolist()
    ['apple', None]
    """

    columns: tuple[Column, ...]

    @classmethod
    def infer(cls, data: Any, kinds: Mapping[str, str] | None = None) -> "Schema":
        """Infer the schema of a frame, an array or a typed table.

        Numbers are numbers however few, booleans are booleans, text and categories are classes. Text that spells
        numbers, dates (2027-01-31) or booleans (true, false, yes, no) in every cell is of that kind. `kinds` overrides:
        {"postcode": "class"}.
        """
        return cls.infer_encode(data, kinds)[0]

    @classmethod
    def infer_encode(cls, data: Any, kinds: Mapping[str, str] | None = None) -> tuple["Schema", Float[ndarray, "n d"]]:
        """Infer the schema and encode the data, which is read once."""
        sources = read_columns(data)
        kinds = {} if kinds is None else kinds
        if not isinstance(kinds, Mapping):
            raise InputTypeError(f"kinds is a dictionary such as {{'x0': 'class'}}, got {type(kinds).__name__}")
        names = [source.name for source in sources]
        for name, kind in kinds.items():
            if name not in names:
                raise UnknownName("column in kinds", name, names)
            choose(f"kind of column {name!r}", kind, COLUMN_KINDS)
        columns = [_infer_column(source, kinds.get(source.name) or _infer_kind(source)) for source in sources]
        values = [column.encode(source) for column, source in zip(columns, sources, strict=True)]
        return cls(tuple(columns)), np.stack(values, axis=1)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownName("column", name, self.names)

    def encode(self, data: Any) -> Float[ndarray, "n d"]:
        """Encode as float64, NaN where missing. Columns of a frame are matched by name, those of an array by
        position."""
        sources = self._match(read_columns(data), isinstance(data, ndarray))
        return np.stack([column.encode(source) for column, source in zip(self.columns, sources, strict=True)], axis=1)

    def _match(self, sources: list[SourceColumn], by_position: bool) -> list[SourceColumn]:
        """The source of each column, by name; by position where the data or the schema has no names."""
        by_name = {source.name: source for source in sources}
        absent = [name for name in self.names if name not in by_name]
        if not by_position and not absent:
            return [by_name[name] for name in self.names]
        if by_position or self.names == default_names(len(self.columns)):
            if len(sources) != len(self.columns):
                raise InputError(
                    f"the table has {len(sources)} columns, expected {len(self.columns)}: {quote_names(self.names)}; "
                    "give the same, in the same order"
                )
            return sources
        raise InputError(
            f"columns that are missing: {quote_names(absent)}; expected {quote_names(self.names)}, got "
            f"{quote_names(list(by_name))}. Add them (cells may be missing), or rename those that are called otherwise"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict."""
        columns = [(column.name, column.kind, list(map(_to_json, column.levels))) for column in self.columns]
        return {"columns": [dict(zip(("name", "kind", "levels"), column, strict=True)) for column in columns]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Schema":
        try:
            columns = [(c["name"], c["kind"], tuple(map(_from_json, c["levels"]))) for c in data["columns"]]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is not what Schema.to_dict gave ({error!r}); save it again") from error
        return cls(tuple(Column(*column) for column in columns))


def _infer_kind(source: SourceColumn) -> str:
    if source.kind is not None:
        return source.kind
    distinct = source.distinct
    if not distinct.values:
        return NUMBER
    for kind, parse in STRICT_PARSERS.items():
        if distinct.types <= {kind, "text"}:
            parsed = [parse(value) for value in distinct.values]
            if None not in parsed and any(value == value for value in parsed):
                return kind
    if distinct.types == {"text"}:
        _warn_mostly_numbers(source)
        return CLASS
    types = distinct.cell_types()
    common = Counter(kind for kind in types if kind).most_common(1)[0][0]
    row = next(row for row, kind in enumerate(types) if kind not in ("", common))
    raise source.error_at(
        row,
        f"is {distinct.cells[row]!r} ({types[row]}), but most of the column is {common}: mixed types; correct it, "
        f"leave it missing, or declare the column as classes: kinds={{{source.name!r}: 'class'}}",
    )


def _infer_column(source: SourceColumn, kind: str) -> Column:
    if kind == CLASS:
        values = zip(source.distinct.values, source.distinct.counts, strict=True)
        order = sorted(values, key=lambda pair: (-pair[1], str(pair[0])))
        return Column(source.name, kind, tuple(level for level, _ in order))
    if kind != BOOLEAN:
        return Column(source.name, kind)
    if source.kind == BOOLEAN:
        return Column(source.name, kind, (False, True))
    distinct, words = source.distinct, dict[float, str]()
    _check_parsed(source, kind, [STRICT_PARSERS[kind](value) for value in distinct.values])
    for _, value in sorted(zip(distinct.counts, distinct.values, strict=True), key=lambda pair: -pair[0]):
        word = str(value).strip()
        if word.lower() in TRUTH:  # the levels are the most frequent word of each truth
            words.setdefault(TRUTH[word.lower()], word)
    if not words or distinct.types != {"text"}:
        return Column(source.name, kind, (False, True))
    for truth, word in list(words.items()):
        other = _OPPOSITE[word.lower()]
        words.setdefault(1 - truth, other.upper() if word.isupper() else other.title() if word.istitle() else other)
    return Column(source.name, kind, (words[0.0], words[1.0]))


def _check_parsed(source: SourceColumn, kind: str, parsed: list[float | None]) -> list[float]:
    if None in parsed:
        at = parsed.index(None)
        raise source.error_at(
            source.distinct.first_row(at),
            f"is {source.distinct.values[at]!r}, expected {_EXPECTED[kind]}; correct it, leave it missing, or fit with "
            f"the column as classes: kinds={{{source.name!r}: 'class'}}",
        )
    return [np.nan if value is None else value for value in parsed]


def _warn_mostly_numbers(source: SourceColumn) -> None:
    """Warn of a class column in which almost all values are numbers."""
    values = source.distinct.values
    words = [at for at, value in enumerate(values) if to_number(value) is None]
    if len(values) < _MIN_VALUES or len(words) > (1 - _MOSTLY_NUMBERS) * len(values):
        return
    row, word = source.distinct.first_row(words[0]), values[words[0]]
    warn(
        f"column {source.name!r} is read as classes: {len(values) - len(words)} of its {len(values)} distinct values "
        f"are numbers, but row {row} (counted from 0) is {word!r}; correct it, or declare the kind: "
        f"kinds={{{source.name!r}: 'class'}}"
    )


def _spell(value: Any) -> str:
    """A level as text, by which it is matched in another type: 1.0, 1 and "1" are one.

    >>> _spell(1.0), _spell(" 1"), _spell(0.5), _spell(datetime(2027, 1, 31))
    ('1', '1', '0.5', '2027-01-31')
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip().removesuffix(" 00:00:00") if isinstance(value, datetime) else str(value).strip()


def _to_json(level: Any) -> Any:
    """A level as JSON; dates are marked, to tell them from text."""
    if isinstance(level, datetime):
        return {"datetime": level.isoformat()}
    return {"date": level.isoformat()} if isinstance(level, date) else level


def _from_json(level: Any) -> Any:
    """Invert `_to_json`.

    >>> _from_json(_to_json(date(2027, 1, 31))), _from_json(_to_json("2027-01-31"))
    (datetime.date(2027, 1, 31), '2027-01-31')
    """
    if not isinstance(level, dict):
        return level
    ((kind, text),) = level.items()
    return (datetime if kind == "datetime" else date).fromisoformat(text)
