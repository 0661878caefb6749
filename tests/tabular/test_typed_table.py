"""Typed tables: what a file was read as reaches the estimators without being parsed again."""

import numpy as np
import pytest

from fillin.errors import InputError
from fillin.tabular.readers import parse_csv
from fillin.tabular.schema import Schema

TABLE = parse_csv(b"n,c,day\n1,x,2024-01-01\n2.5,7,\n,x,1970-01-02\n4,y,1970-01-03 12:00\n", "data.csv").table


def test_a_typed_table_is_encoded_by_its_own_kinds():
    schema, values = Schema.infer_encode(TABLE)
    assert [(c.name, c.kind, c.levels) for c in schema.columns] == [
        ("n", "number", ()), ("c", "class", ("x", "7", "y")), ("day", "date", ()),
    ]  # fmt: skip
    np.testing.assert_array_equal(values, [[1, 0, 19723], [2.5, 1, np.nan], [np.nan, 0, 1], [4, 2, 2.5]])
    np.testing.assert_array_equal(schema.encode(TABLE), values)


def test_rows_columns_and_cells_are_chosen():
    part = TABLE.take(np.array([3, 0])).select(["c", "n"])
    assert (part.n_rows, len(part.columns)) == (2, 2)
    assert part.column("c").labels.tolist() == ["y", "x"]
    assert part.location(0, "c") == "data.csv, line 5, column 'c'"
    masked = TABLE.mask({"c": np.array([True, False, True, False]), "n": np.array([False, False, False, True])})
    assert masked.column("c").labels.tolist() == [None, "7", None, "y"]
    np.testing.assert_array_equal(masked.column("n").features, [1, 2.5, np.nan, np.nan])
    assert TABLE.column("c").n_distinct == 3
    assert masked.column("c").n_distinct == 2


def test_an_error_names_the_file_the_line_and_the_column():
    error = TABLE.error_at(1, "c", "{cell!r} is {{odd}}", cell="7")
    assert str(error) == "data.csv, line 3, column 'c': '7' is {odd}"
    with pytest.raises(InputError, match=r"line 3"):
        raise error
