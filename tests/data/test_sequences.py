"""Vocabularies and dates in words."""

import datetime
import re

import pytest
import torch

from fillin.data.sequences import END, FORMATS, PADDING, Dates, Vocabulary, spell_ordinal, spell_year, write_date
from fillin.errors import FillinError

PARTS = ("train", "validation", "dates", "formats")


def test_encoding_and_decoding_are_inverse():
    dates = Dates(batch=200)
    for part in PARTS:
        pairs = Dates(batch=200, part=part).pairs(3)
        sources, written = zip(*pairs, strict=True)
        assert dates.target.decode(dates.target.encode(written, end=True)) == list(written)
        names = [" ".join(dates.source.split(text)) for text in sources]
        assert dates.source.decode(dates.source.encode(sources)) == names


def test_tokens_are_padded_and_end():
    words = Vocabulary(("a", "b"))
    assert words.encode(["ab", "", "b"]).tolist() == [[3, 4], [PADDING, PADDING], [4, PADDING]]
    assert words.encode(["ab", ""], end=True).tolist() == [[3, 4, END], [END, PADDING, PADDING]]
    assert words.encode([]).shape == (0, 0)
    assert words.decode(torch.tensor([[1, 3, END, 4, 4], [0, 4, 0, 3, 0]])) == ["a", "ba"]


def test_splitting():
    assert Vocabulary(("ab", "b")).split("ab,12 B") == ["ab", ",", "1", "2", "b"]
    assert Vocabulary(("a", "b")).split("ab 1") == ["a", "b", "1"]
    assert Vocabulary(("a", " ")).split("a a") == ["a", " ", "a"]


def test_case():
    assert Vocabulary(("may",)).encode(["May MAY"]).tolist() == [[3, 3]]
    assert Vocabulary(("M", "m")).encode(["M", "m"]).tolist() == [[3], [4]]


def test_unknown_symbols_are_named():
    with pytest.raises(FillinError, match="unknown symbol of 'the thrid of may': 'thrid'; did you mean 'third'"):
        Dates().source.encode(["the thrid of may"])
    with pytest.raises(FillinError, match="the symbol 'a' is there more than once"):
        Vocabulary(("a", "b", "a"))


# ---- dates


def test_ordinals_and_years_by_hand():
    ordinals = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 11: "eleventh", 12: "twelfth"}
    ordinals |= {13: "thirteenth", 20: "twentieth", 22: "twenty-second", 30: "thirtieth", 31: "thirty-first"}
    assert {number: spell_ordinal(number) for number in ordinals} == ordinals
    years = {1600: "sixteen hundred", 1605: "sixteen oh five", 2000: "two thousand", 2009: "two thousand nine"}
    years |= {2010: "twenty ten", 2399: "twenty-three ninety-nine", 1066: "ten sixty-six"}
    assert {year: spell_year(year) for year in years} == years


def test_texts_identify_their_date():
    """Every text of every date of two years belongs to that date alone."""
    seen: dict[str, datetime.date] = {}
    for ordinal in range(datetime.date(1999, 1, 1).toordinal(), datetime.date(2000, 12, 31).toordinal() + 1):
        date = datetime.date.fromordinal(ordinal)
        for form in FORMATS:
            assert seen.setdefault(write_date(date, form), date) == date
    vocabulary = Dates().source
    assert vocabulary.encode(seen).min() >= 0  # every word has a token
    assert len({spell_year(year) for year in range(1001, 9999)}) == 9999 - 1001


def test_weekdays_and_suffixes_are_right():
    assert write_date(datetime.date(2000, 2, 29), (3, 0, 0, 0)) == "tuesday, 29 february 2000"
    texts = [
        write_date(datetime.date(2020, 1, day), (1, 1, 0, 0)).split()[0] for day in (1, 2, 3, 4, 11, 12, 13, 21, 31)
    ]
    assert texts == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "31st"]


def test_parts_share_no_dates_and_no_formats():
    days = {part: set(Dates(part=part).days.tolist()) for part in PARTS}
    assert days["dates"] == days["formats"]
    whole = days["train"] | days["validation"] | days["dates"]
    assert len(whole) == sum(len(days[part]) for part in ("train", "validation", "dates"))
    assert sorted(whole) == list(range(min(whole), max(whole) + 1))
    assert 0.09 < len(days["dates"]) / len(whole) < 0.11
    formats = {part: set(Dates(part=part).formats) for part in PARTS}
    assert formats["train"] == formats["validation"] == formats["dates"]
    assert formats["train"] | formats["formats"] == set(FORMATS)
    assert not formats["train"] & formats["formats"]
    for axis in range(4):  # every part of a held-out format is in the training data
        assert {f[axis] for f in formats["formats"]} <= {f[axis] for f in formats["train"]}


def test_held_out_dates_do_not_depend_on_seed_or_years():
    narrow, wide = Dates(first_year=1990, last_year=2010, seed=7, part="dates"), Dates(part="dates")
    assert set(narrow.days.tolist()) < set(wide.days.tolist())


def test_a_batch_is_a_function_of_seed_and_step():
    dates = Dates(batch=16, seed=3)
    first = dates.task(5)
    assert torch.equal(first.source, Dates(batch=16, seed=3).task(5).source)
    assert not torch.equal(first.target, dates.task(6).target)
    assert not torch.equal(first.target, Dates(batch=16, seed=4).task(5).target)
    assert first.rows(slice(0, 2)).target.shape == (2, 11)
    assert dates.validation_stream(9).part == "validation"
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", target) for _, target in dates.pairs(5))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"batch": 0}, "batch must be a whole number of at least 1"), ({"part": "test"}, "unknown part 'test'"),
     ({"first_year": 900}, "first_year must be a whole number of at least 1001"),
     ({"last_year": 1500}, "last_year must be a whole number from first_year=1600 to 9999, got 1500")],
)  # fmt: skip
def test_bad_settings(options, message):
    with pytest.raises(FillinError, match=message):
        Dates(**options)
