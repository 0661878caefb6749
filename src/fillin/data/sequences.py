"""Sequences of tokens: vocabularies, batches of source and target, and dates in words with their ISO notation.

>>> dates = Dates(batch=2)
>>> dates.task(0)
SequenceBatch(source=[2, 8], target=[2, 11])
>>> dates.pairs(0)[0]
('fifteenth apr sixteen twenty-nine', '1629-04-15')
"""

import calendar
import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from fillin.data.task import Batch, check_counts, make_generator
from fillin.errors import InputError, UnknownName, choose

PADDING, START, END = SPECIAL = 0, 1, 2  # tokens with a meaning in every vocabulary; symbols follow from 3 on


@dataclass(frozen=True, repr=False)
class SequenceBatch(Batch):
    """Source and target sequences of tokens. Targets end with the end token; padding is 0."""

    source: Int64[Tensor, "b m"]
    target: Int64[Tensor, "b n"]

    @property
    def decoder_input(self) -> Int64[Tensor, "b n"]:
        """The start token and the target without its last token: what the decoder reads in teacher forcing."""
        return torch.cat([torch.full_like(self.target[:, :1], START), self.target[:, :-1]], 1)


@dataclass(frozen=True)
class Vocabulary:
    """Symbols that texts consist of: words, single digits and single marks, or characters. Symbol i is token i + 3.

    Texts are split into characters where every symbol is one, otherwise into words, digits and marks. Their case does
    not matter, unless a symbol has capital letters. `joint` joins symbols to a text.

    >>> words = Vocabulary(("may", "1", "2"), joint=" ")
    >>> words.encode(["May 21", "2"])
    tensor([[3, 5, 4],
            [5, 0, 0]])
    >>> words.decode(words.encode(["May 21"], end=True))
    ['may 2 1']
    """

    symbols: tuple[str, ...]
    joint: str = ""

    def __post_init__(self):
        repeated = sorted({symbol for symbol in self.symbols if self.symbols.count(symbol) > 1})
        if repeated:
            raise InputError(f"Vocabulary: the symbol {repeated[0]!r} is there more than once; list each once")

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def _tokens(self) -> dict[str, int]:
        return {symbol: len(SPECIAL) + i for i, symbol in enumerate(self.symbols)}

    @cached_property
    def _capitals(self) -> bool:
        return any(symbol != symbol.lower() for symbol in self.symbols)

    def split(self, text: str) -> list[str]:
        """Split a text into its words, digits and marks, or into its characters.

        >>> Vocabulary(("may",)).split("May 3rd, 21")
        ['may', '3', 'rd', ',', '2', '1']
        >>> Vocabulary(("X", "V", "I")).split("XIV")
        ['X', 'I', 'V']
        """
        text = text if self._capitals else text.lower()
        if all(len(symbol) == 1 for symbol in self.symbols):
            return [character for character in text if character in self._tokens or not character.isspace()]
        return re.findall(r"[^\W\d_]+|\S", text)

    def encode(self, texts: Iterable[str], end: bool = False) -> Int64[Tensor, "b n"]:
        """Return the tokens of texts, padded to the longest; `end` appends the end token to each, as targets need."""
        rows = [self._look_up(text) + [END] * end for text in texts]
        tokens = torch.full((len(rows), max(map(len, rows), default=0)), PADDING)
        for row, numbers in zip(tokens, rows, strict=True):
            row[: len(numbers)] = torch.tensor(numbers, dtype=torch.long)
        return tokens

    def _look_up(self, text: str) -> list[int]:
        symbols = self.split(text)
        for symbol in symbols:
            if symbol not in self._tokens:
                raise UnknownName(f"symbol of {text!r}:", symbol, self.symbols)
        return [self._tokens[symbol] for symbol in symbols]

    def decode(self, tokens: Int64[Tensor, "b n"]) -> list[str]:
        """Return the texts of token sequences up to their end."""
        return [self.joint.join(self.name_tokens(row)) for row in tokens.tolist()]

    def name_tokens(self, tokens: Sequence[int]) -> list[str]:
        """Return the symbols of one sequence up to its end, without padding and start."""
        tokens = list(tokens)
        tokens = tokens[: tokens.index(END)] if END in tokens else tokens
        return [self.symbols[token - len(SPECIAL)] for token in tokens if token >= len(SPECIAL)]


_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth",
}  # fmt: skip
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def spell_number(number: int) -> str:
    """Spell a number from 1 to 99: `twenty-one`.

    >>> spell_number(21), spell_number(40), spell_number(7)
    ('twenty-one', 'forty', 'seven')
    """
    if number < 20:
        return _UNITS[number]
    tens, units = divmod(number, 10)
    return _TENS[tens] + (f"-{_UNITS[units]}" if units else "")


def spell_ordinal(number: int) -> str:
    """Spell the ordinal of a number from 1 to 99: `twenty-first`.

    >>> spell_ordinal(21), spell_ordinal(30), spell_ordinal(4)
    ('twenty-first', 'thirtieth', 'fourth')
    """
    head, dash, last = spell_number(number).rpartition("-")
    return head + dash + _ORDINALS.get(last, last + "th")


def spell_year(year: int) -> str:
    """Spell a year from 1001 to 9999 as it is spoken.

    >>> spell_year(1984), spell_year(1900), spell_year(1905)
    ('nineteen eighty-four', 'nineteen hundred', 'nineteen oh five')
    >>> spell_year(2000), spell_year(2005), spell_year(2021)
    ('two thousand', 'two thousand five', 'twenty twenty-one')
    """
    century, rest = divmod(year, 100)
    if century % 10 == 0 and rest < 10:
        return f"{spell_number(century // 10)} thousand" + (f" {spell_number(rest)}" if rest else "")
    spoken = "hundred" if rest == 0 else f"oh {spell_number(rest)}" if rest < 10 else spell_number(rest)
    return f"{spell_number(century)} {spoken}"


_ORDERS = (
    "the {day} of {month} {year}", "{day} {month} {year}", "{month} {day}, {year}", "{weekday}, {day} {month} {year}",
)  # fmt: skip
_DAYS = ("3", "3rd", "third")
_MONTH_STYLES = ("may", "sep")
_YEARS = ("2021", "twenty twenty-one")
FORMATS = tuple(product(range(len(_ORDERS)), range(len(_DAYS)), range(len(_MONTH_STYLES)), range(len(_YEARS))))
_HELD_OUT_FORMATS = FORMATS[3::7]  # each of their parts also occurs in other formats


def write_date(date: datetime.date, form: tuple[int, int, int, int]) -> str:
    """Write a date in words, in lower case. `form` chooses the order, the day, the month and the year in `FORMATS`.

    >>> write_date(datetime.date(2021, 5, 3), (0, 2, 0, 0)), write_date(datetime.date(1984, 9, 21), (3, 1, 1, 1))
    ('the third of may 2021', 'friday, 21st sep nineteen eighty-four')
    """
    order, day, month, year = form
    number, name = date.day, _MONTHS[date.month - 1]
    suffix = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return _ORDERS[order].format(
        day=(str(number), f"{number}{suffix}", spell_ordinal(number))[day],
        month=(name, name[:3])[month],
        year=(str(date.year), spell_year(date.year))[year],
        weekday=_WEEKDAYS[calendar.weekday(date.year, date.month, date.day)],
    )


_SOURCE_SYMBOLS = tuple(sorted({
    *"0123456789,-", *_UNITS[1:], *_TENS[1:], *_MONTHS, *(month[:3] for month in _MONTHS), *_WEEKDAYS,
    *(spell_ordinal(number) for number in (*range(1, 21), 30)),
    "the", "of", "hundred", "thousand", "oh", "st", "nd", "rd", "th",
}))  # fmt: skip
PARTS = ("train", "validation", "dates", "formats")


@dataclass(frozen=True)
class Dates:
    """Dates in words and their ISO notation, from `first_year` to `last_year`: 48 formats, which combine four orders,
    three ways to write the day, two for the month and two for the year.

    A tenth of the dates is held out for validation and another tenth for the test. Seven formats are held out as well:
    their parts are in the training data, their combinations are not. `part` is "train", "validation", "dates" (test
    dates in formats of the training data) or "formats" (test dates in the held-out formats).

    >>> Dates(batch=1, seed=1).pairs(0)
    [('january 8, twenty-one seventy-one', '2171-01-08')]
    """

    batch: int = 64
    first_year: int = 1600
    last_year: int = 2399
    seed: int = 0
    part: str = "train"

    source = Vocabulary(_SOURCE_SYMBOLS, joint=" ")
    target = Vocabulary(tuple("0123456789-"))

    def __post_init__(self):
        check_counts(self, "dates", batch=1, seed=0, first_year=1001)
        choose("part", self.part, PARTS)
        if type(self.last_year) is not int or not self.first_year <= self.last_year <= 9999:
            raise InputError(
                f"dates: last_year must be a whole number from first_year={self.first_year} to 9999, got "
                f"{self.last_year!r}"
            )

    @property
    def dim_x(self) -> int:
        return len(self.source)

    @property
    def dim_y(self) -> int:
        return len(self.target)

    @cached_property
    def days(self) -> np.ndarray:
        """The days of this part, counted as `datetime.date.toordinal` does."""
        first, last = datetime.date(self.first_year, 1, 1), datetime.date(self.last_year, 12, 31)
        days = np.arange(first.toordinal(), last.toordinal() + 1)
        tenth = (days * 2654435761 % 2**32 >> 16) % 10  # the same for every seed and range of years
        return days[{"train": tenth > 1, "validation": tenth == 1}.get(self.part, tenth == 0)]

    @cached_property
    def formats(self) -> tuple[tuple[int, int, int, int], ...]:
        """The formats of this part."""
        if self.part == "formats":
            return _HELD_OUT_FORMATS
        return tuple(form for form in FORMATS if form not in _HELD_OUT_FORMATS)

    def pairs(self, step: int) -> list[tuple[str, str]]:
        """Return the texts of batch `step`, source and target."""
        random = make_generator(self.seed, step)
        days = self.days[torch.randint(0, len(self.days), (self.batch,), generator=random).numpy()]
        forms = torch.randint(0, len(self.formats), (self.batch,), generator=random).tolist()
        dates = [datetime.date.fromordinal(int(day)) for day in days]
        return [(write_date(date, self.formats[f]), date.isoformat()) for date, f in zip(dates, forms, strict=True)]

    def task(self, step: int) -> SequenceBatch:
        sources, targets = zip(*self.pairs(step), strict=True)
        return SequenceBatch(self.source.encode(sources), self.target.encode(targets, end=True))

    def validation_stream(self, seed: int) -> "Dates":
        return replace(self, seed=seed, part="validation")
