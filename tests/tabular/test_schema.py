"""Schemas of frames and arrays: kinds, levels, unseen values, and exact decoding."""

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fillin.errors import FillinWarning
from fillin.tabular.schema import Column, Schema

NAN = np.nan
CELLS = {
    "height": [1.5, None, -2.25],
    "count": [3, 5, 7],
    "big": [0, 2**40, None],
    "alive": [True, None, False],
    "fruit": ["pear", "apple", "pear"],
    "spelled": ["1.5", None, " 2e3 "],
    "answer": ["yes", "no", None],
    "born": [datetime(1970, 1, 2, 12), None, datetime(1969, 12, 31)],
    "day": [date(1970, 1, 2), date(2000, 2, 29), None],
    "iso": ["1970-01-02", None, "1970-01-01T06:00"],
    "nothing": [None, None, None],
}
KINDS = {
    "height": "number", "count": "number", "big": "number", "alive": "boolean", "fruit": "class", "spelled": "number",
    "answer": "boolean", "born": "date", "day": "date", "iso": "date", "nothing": "number",
}  # fmt: skip
ENCODED = {
    "height": [1.5, NAN, -2.25], "count": [3, 5, 7], "big": [0, 2.0**40, NAN], "alive": [1, NAN, 0],
    "fruit": [0, 1, 0], "spelled": [1.5, NAN, 2000], "answer": [1, 0, NAN], "born": [1.5, NAN, -1],
    "day": [1, 11016, NAN], "iso": [1, NAN, 0.25], "nothing": [NAN] * 3,
}  # fmt: skip
FRAMES = {
    "pandas": pandas.DataFrame,
    "pandas, other index": lambda cells: pandas.DataFrame(cells, index=[7, 7, 1]),
    "pandas, nullable": lambda cells: pandas.DataFrame(cells).convert_dtypes(),
    "pandas, of Arrow": lambda cells: pandas.DataFrame(cells).convert_dtypes(dtype_backend="pyarrow"),
    "pandas, of objects": lambda cells: pandas.DataFrame(cells, dtype=object),
    "polars": polars.DataFrame,
    "Arrow": pyarrow.table,
    "NumPy": lambda cells: np.array(list(cells.values()), dtype=object).T,
}


def encoded(data, kinds=None) -> tuple[Schema, np.ndarray]:
    """The schema of a table, and its values as numbers and codes."""
    schema = Schema.infer(data, kinds)
    return schema, schema.encode(data)


def same(got, expected):
    np.testing.assert_array_equal(got, expected)  # NaN is NaN, and codes and days are exact


@pytest.mark.parametrize("frame", FRAMES)
def test_every_frame_is_the_same_table(frame):
    data = FRAMES[frame](CELLS)
    schema, values = encoded(data)
    if frame != "NumPy":
        assert schema.names == list(CELLS)
    assert [column.kind for column in schema.columns] == list(KINDS.values())
    same(values, np.array(list(ENCODED.values())).T)
    assert values.dtype == np.float64


@pytest.mark.parametrize("frame", FRAMES)
def test_decoding_undoes_encoding(frame):
    schema, values = encoded(FRAMES[frame](CELLS))
    back = {name: schema.columns[j].decode(values[:, j]) for j, name in enumerate(CELLS)}
    assert back["fruit"].tolist() == CELLS["fruit"]
    assert back["alive"].tolist() == CELLS["alive"]
    assert back["answer"].tolist() == CELLS["answer"]
    assert back["born"].dtype.kind == back["day"].dtype.kind == "M"
    assert back["born"].tolist() == CELLS["born"]
    assert back["iso"].tolist() == [datetime(1970, 1, 2), None, datetime(1970, 1, 1, 6)]
    same(back["height"], [1.5, NAN, -2.25])


def test_levels_go_from_common_to_rare_then_by_text():
    column = Schema.infer(pandas.DataFrame({"a": ["z", "b", "a", "z", "c", "c", None]}))["a"]
    assert column.levels == ("c", "z", "a", "b")
    assert column.n_codes == 5
    assert Column("a", "number").n_codes == Column("a", "date").n_codes == 0


def test_unseen_levels_have_a_code_of_their_own():
    schema = Schema.infer(pandas.DataFrame({"a": ["x", "y", "x"], "b": [True, False, True]}))
    later = pandas.DataFrame({"b": ["true", "perhaps", None], "a": ["new", None, "y"]}, dtype=object)
    same(schema.encode(later), [[2, 1], [NAN, 2], [1, NAN]])
    assert schema["a"].decode(np.array([2.0, NAN, 1.0])).tolist() == [None, None, "y"]
    assert schema["b"].decode(np.array([2.0, 1.0])).tolist() == [None, True]
    assert schema["b"].decode(np.array([[0.0, 1.0]])).dtype == bool


def test_declared_kinds_override_inferred_ones():
    data = pandas.DataFrame({"n": [3, 1, 3], "t": ["1", "2", "1"], "z": [0, 1, 1], "m": [1, "a", "a"]})
    schema = Schema.infer(data, {"n": "class", "t": "class", "z": "boolean", "m": "class"})
    assert [(c.kind, c.levels) for c in schema.columns] == [
        ("class", (3, 1)), ("class", ("1", "2")), ("boolean", (False, True)), ("class", ("a", 1)),
    ]  # fmt: skip
    same(schema.encode(data), [[0, 0, 0, 1], [1, 1, 1, 0], [0, 0, 1, 0]])
    whole = Schema.infer(pandas.DataFrame({"n": [0, 1, 1]}))
    assert whole["n"].kind == "number"  # two whole numbers are numbers


def test_categories_are_classes_whatever_they_are_made_of():
    data = pandas.DataFrame({"a": pandas.Categorical(["1", "2", "2"]), "b": pandas.Categorical([1.5, 0.5, None])})
    schema = Schema.infer(data)
    assert [(c.kind, c.levels) for c in schema.columns] == [("class", ("2", "1")), ("class", (0.5, 1.5))]
    enum = polars.DataFrame({"a": polars.Series(["1", "2", "2"], dtype=polars.Enum(["1", "2", "3"]))})
    assert Schema.infer(enum)["a"] == schema["a"]


def test_a_class_is_recognised_in_another_type():
    """Codes that were text among letters come as numbers where no letter is among them."""
    text = Schema.infer(pandas.DataFrame({"a": ["1", "2", "x", "1"]}))
    same(text.encode(pandas.DataFrame({"a": [2, 1, 9]})), [[1], [0], [3]])
    same(text.encode(pandas.DataFrame({"a": [2.0, NAN, 1.5]})), [[1], [NAN], [3]])
    number = Schema.infer(pandas.DataFrame({"a": [7, 7, 8]}), {"a": "class"})
    same(number.encode(pandas.DataFrame({"a": ["8", "7.0", "7"]})), [[1], [2], [0]])
    large = Schema.infer(pandas.DataFrame({"a": [2**60, 2**60 + 1, 2**60 + 1]}), {"a": "class"})
    same(large.encode(pandas.DataFrame({"a": [2**60, 2**60 + 1]})), [[1], [0]])  # not one number in float64


def test_numbers_dates_and_booleans_may_be_text_in_later_tables():
    schema = Schema.infer(pandas.DataFrame({"a": [1.5], "d": [datetime(2000, 1, 1)], "b": [True], "c": [0.5]}))
    later = pandas.DataFrame({"a": ["2", "NA"], "d": ["1970-01-01", "?"], "b": ["No", "n/a"], "c": [True, False]})
    same(schema.encode(later), [[2, 0, 0, 1], [NAN, NAN, NAN, 0]])


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_columns_are_found_by_name_and_those_of_arrays_by_position(frame):
    schema = Schema.infer(frame({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    expected = [[1, 3], [2, 4]]
    same(schema.encode(frame({"b": [3.0, 4.0], "extra": ["inf", "x"], "a": [1.0, 2.0]})), expected)
    same(schema.encode(np.array(expected, dtype=np.float32)), expected)
    same(schema.encode(np.array(expected)), expected)
    same(Schema.infer(np.array(expected)).encode(frame({"a": [1.0, 2.0], "b": [3.0, 4.0]})), expected)
    same(Schema.infer(np.array(expected)).encode(frame({"x1": [3.0, 4.0], "x0": [1.0, 2.0]})), expected)


def test_an_extra_column_that_cannot_be_read_is_ignored():
    schema = Schema.infer(pandas.DataFrame({"a": [1.0]}))
    same(schema.encode(pandas.DataFrame({"a": [2.0], "b": [np.inf], "c": [[1]], "d": [1j]})), [[2]])


@pytest.mark.parametrize("cells", [np.array([[True], [False]]), np.array([["a"], ["b"]]), np.array([[1], [2]], "uint8"),
                                   np.array([["2000-01-01"], ["nat"]], "datetime64[D]")])  # fmt: skip
def test_arrays_of_other_types(cells):
    schema, encodings = encoded(cells)
    assert schema.names == ["x0"]
    expected = {"b": ([1, 0], "boolean"), "U": ([0, 1], "class"), "u": ([1, 2], "number"), "M": ([10957, NAN], "date")}
    values, kind = expected[cells.dtype.kind]
    assert schema["x0"].kind == kind
    same(encodings[:, 0], values)
    assert (
        schema["x0"].decode(encodings[:, 0]).tolist()
        == cells[:, 0].astype({"u": float, "M": "datetime64[us]"}.get(cells.dtype.kind, cells.dtype)).tolist()
    )


def test_cells_of_every_sort_that_is_missing_or_a_number():
    cells = [
        None,
        NAN,
        np.float32("nan"),
        pandas.NA,
        pandas.NaT,
        Decimal("nan"),
        " ",
        Decimal("1.5"),
        np.int8(2),
        "n/a",
    ]
    same(encoded(np.array(cells, dtype=object)[:, None])[1][:, 0], [NAN] * 7 + [1.5, 2, NAN])
    masked = np.ma.masked_array([[1.0, 2.0]], mask=[[False, True]])
    same(encoded(masked)[1], [[1, NAN]])


def test_a_missing_word_among_words_is_a_word():
    schema = Schema.infer(pandas.DataFrame({"a": ["NA", "DE", "", "none"]}))
    assert schema["a"].levels == ("DE", "NA", "none")
    assert Schema.infer(pandas.DataFrame({"a": ["none", "none"]}))["a"].levels == ("none",)


@pytest.mark.parametrize(
    ("words", "levels"),
    [
        (["Yes", "Yes"], ("No", "Yes")),
        (["TRUE", "false", "TRUE"], ("false", "TRUE")),
        (["no", "NO", "no"], ("no", "yes")),
        (["true", "1"], ("false", "true")),
        ([True, "no"], (False, True)),
    ],
)
def test_booleans_in_words_are_decoded_to_those_words(words, levels):
    data = pandas.DataFrame({"a": words}, dtype=object)
    column = Schema.infer(data)["a"]
    assert (column.kind, column.levels) == ("boolean", levels)
    for word, code in zip(words, Schema.infer(data).encode(data)[:, 0], strict=True):
        assert code == (str(word).lower() in ("yes", "true", "1"))


def test_dates_with_a_time_zone_are_encoded_in_utc():
    aware = datetime(2000, 1, 1, 12, tzinfo=UTC)
    for data in (pandas.DataFrame({"a": [aware]}), polars.DataFrame({"a": [aware]}),
                 pandas.DataFrame({"a": pandas.Series([aware]).dt.tz_convert("Asia/Tokyo")}),
                 pandas.DataFrame({"a": ["2000-01-01T21:00+09:00"]})):  # fmt: skip
        same(encoded(data)[1], [[10957.5]])


@given(some.datetimes(datetime(1800, 1, 1), datetime(2140, 1, 1)))
@settings(max_examples=100)
def test_dates_are_decoded_to_the_microsecond(moment):
    schema, values = encoded(pandas.DataFrame({"a": [moment]}, dtype=object))
    assert schema["a"].decode(values[:, 0]).tolist() == [moment]


def test_dates_beyond_the_calendar_stay_in_it():
    column = Column("a", "date")
    first, last, none = column.decode(np.array([-1e300, 1e300, NAN]))
    assert (str(first)[:10], str(last)[:10], str(none)) == ("0001-01-01", "9999-12-31", "NaT")


CELL = some.text(max_size=3) | some.none() | some.integers() | some.floats(allow_infinity=False)


@given(some.lists(CELL, min_size=1, max_size=20))
@settings(max_examples=100)
def test_any_values_can_be_classes(cells):
    array = np.empty((len(cells), 1), dtype=object)
    array[:, 0] = cells
    schema, values = encoded(array, {"x0": "class"})
    back = schema["x0"].decode(values[:, 0]).tolist()
    missing = [cell is None or cell != cell or not str(cell).strip() for cell in cells]
    assert back == [None if gone else cell for gone, cell in zip(missing, cells, strict=True)]
    same(np.isnan(values[:, 0]), np.array(missing))


def test_ten_thousand_categories():
    names = [f"name {i}" for i in range(10_000)]
    schema, values = encoded(pandas.DataFrame({"a": names}))
    assert schema["a"].n_codes == 10_001
    assert schema["a"].decode(values[:, 0]).tolist() == names


def test_schemas_go_through_json_and_pickle():
    cells = {
        **CELLS,
        "mixed": [1, "1", 2.5],
        "dates": [date(2000, 1, 1), datetime(2000, 1, 1, 3), None],
        "t": [True, 1, "t"],
    }
    data = pandas.DataFrame(cells, dtype=object)
    schema = Schema.infer(data, {"mixed": "class", "dates": "class", "t": "class"})
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict(), allow_nan=False)))
    assert again == schema
    assert [type(level) for level in again["mixed"].levels] == [type(level) for level in schema["mixed"].levels]
    same(again.encode(data), schema.encode(data))
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_the_data_are_neither_changed_nor_shared():
    values = np.array([[1.0, NAN]])
    encoded(values)[1][:] = 0
    same(values, [[1.0, NAN]])


def test_a_word_among_many_numbers_is_a_warning():
    cells = pandas.DataFrame({"a": [*map(str, range(30)), "3o"]})
    with pytest.warns(FillinWarning, match=r"'a' is read as classes.*30 of its 31.*row 30.*'3o'.*kinds="):
        assert Schema.infer(cells)["a"].kind == "class"
    assert Schema.infer(cells, {"a": "class"})["a"].kind == "class"
