"""Tables and the kinds of their columns: as detected, and as declared."""

import re

import numpy as np
import pandas as pd
import pytest
from support.mixed_tables import A_OUTPUTS, mixed, unordered

import fillin
from fillin.errors import FillinError, FillinWarning

pytest_plugins = ["support.table_command"]
pytestmark = pytest.mark.usefixtures("quick_tables")


def test_a_table_is_detected(fill_table):
    code, printed, out = fill_table(unordered())
    assert code == 0, printed
    assert re.search("no column contains dates.*read as a table. .*name it: --as series --x COLUMN", printed)
    assert out is not None
    assert fill_table("t,y\n1,1\n3,\n2,2\n5,3\n", "--force")[0] == 0
    with pytest.warns(FillinWarning, match=r"'t' breaks in row 2\).*kind='series', x='t'"):
        fillin.fill(pd.DataFrame({"t": [1, 3, 2, 5], "y": [1, None, 2, 3]}))


def test_an_index_is_kept():
    frame = unordered().set_index(pd.Index([f"row {i}" for i in range(30)], name="who"))
    result = fillin.fill(frame, kind="table")
    assert result.index.equals(frame.index)
    shuffled = unordered().set_index(pd.Index(np.random.default_rng(1).permutation(30)))
    result, plain = (fillin.fill(table, kind="table") for table in (shuffled, unordered()))
    assert result.index.equals(shuffled.index)
    assert np.array_equal(result["a_filled"], plain["a_filled"])  # the name of a row carries no information
    assert list(result.columns[:3]) == ["a", "b", "c"]


def test_row_numbers_and_names_are_not_used(fill_table):
    table = unordered()
    table.insert(0, "PassengerId", np.arange(1, 31))
    table["name"] = [f"Mr {i}" for i in range(30)]
    table.loc[3, "name"] = None
    code, printed, out = fill_table(table)
    assert code == 0, printed
    assert "PassengerId only numbers the rows: not used" in printed
    assert "name has 29 distinct words in 29 rows: read as names, not used, and its missing values are left" in printed
    assert b"name_filled" not in out
    again = table.assign(name=table["name"].fillna("x")[::-1].to_numpy(), PassengerId=np.arange(30))
    left = fillin.fill(again, kind="table")
    assert np.allclose(left["a_filled"], pd.read_csv("data.filled.csv")["a_filled"], rtol=1e-3, atol=1e-3)


def test_numbers_as_text_are_numbers():
    table = unordered()
    words = table.assign(a=[None if np.isnan(value) else f"{value}" for value in table["a"]])
    pd.testing.assert_frame_equal(
        fillin.fill(words, kind="table")[A_OUTPUTS], fillin.fill(table, kind="table")[A_OUTPUTS], check_dtype=False
    )


# Indices and names of rows


def years(first: int) -> pd.DataFrame:
    return unordered().set_index(pd.Index(np.arange(first, first + 60, 2)))


def test_a_filtered_frame_is_a_table():
    table = unordered(60)
    some = table[table["b"] > table["b"].median()]
    assert some.index.is_monotonic_increasing
    result = fillin.fill(some)
    assert result.index.equals(some.index)
    assert not [name for name in result.columns if name.startswith("index")]
    line, why, *_ = result.attrs["fillin"]
    assert re.match(r"the frame: a table: \d\d rows, 3 columns \(2 numbers, 1 class\)", line)
    assert "'index' only identifies the rows, and no other column contains dates" in why
    assert why.endswith("kind='series', x='index'")
    renumbered = fillin.fill(some.reset_index(drop=True))
    assert np.array_equal(result["a_filled"], renumbered["a_filled"])


def test_an_index_that_may_be_years_is_a_warning():
    with pytest.warns(FillinWarning, match="'index' only identifies the rows.*kind='series', x='index'"):
        fillin.fill(years(1960))
    fillin.fill(years(0))
    fillin.fill(unordered(60)[30:])


@pytest.mark.parametrize("index", [
    pd.date_range("2024-01-01", periods=30), pd.Index(np.arange(30) / 4), pd.Index(np.arange(1, 61, 2), name="depth"),
])  # fmt: skip
def test_times_halves_and_names_make_an_index_a_location(index):
    model = fillin.create("filler", size="small", layers=1, width=16, heads=2, hidden=16)
    result = fillin.fill(unordered().set_index(index), model=model)
    assert result.attrs["fillin"][0].startswith(f"the frame: a series over {index.name or 'index'} (")


def test_an_index_is_a_location_where_declared_or_nothing_else_is_there():
    model = fillin.create("filler", size="small", layers=1, width=16, heads=2, hidden=16)
    table = unordered(60)[["a", "b"]]
    some = table[table["b"] > 0]
    declared = fillin.fill(some, kind="series", x="index", model=model)
    alone = fillin.fill(some[["a"]], model=model)
    assert declared.attrs["fillin"][0].startswith("the frame: a series over index (numbers, ")
    assert np.array_equal(declared["a_filled"], alone["a_filled"])


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "id", "PassengerId"])
def test_an_index_that_was_saved_is_no_location(fill_table, name):
    table = unordered(60)
    some = table[table["b"] > table["b"].median()]
    code, printed, out = fill_table(some.to_csv(index_label=name))
    assert code == 0, printed
    assert f"'{name}' only identifies the rows" in printed
    assert f"{name} only identifies the rows: not used (--number" in printed
    assert b"c_probability" in out


def test_an_index_that_pandas_keeps_in_parquet_is_no_location(tmp_path, capsys):
    from fillin.cli import main

    table = unordered(60)
    table[table["b"] > table["b"].median()].to_parquet(tmp_path / "data.parquet")
    assert main(["fill", str(tmp_path / "data.parquet"), "--no-figure"]) == 0
    assert "'__index_level_0__' only identifies the rows" in capsys.readouterr().out


# Declared kinds


def codes(n: int = 60) -> pd.DataFrame:
    table = mixed(n)[["a", "b", "c"]]
    table["stage"] = np.where(table["c"].isna(), np.nan, (table["c"] == "low") * 2.0)
    return table.drop(columns="c")


def test_codes_are_classes_where_declared(fill_table):
    table = codes()
    with pytest.warns(FillinWarning, match=r"stage has few distinct values.*as a number;.*pass classes=\['stage'\]"):
        number = fillin.fill(table, target="stage")
    assert set(number.columns) - set(table.columns) == {
        f"stage_{ending}" for ending in ("filled", "std", "low", "high")
    }
    for options in ({"target": "stage"}, {"y": "stage"}):
        result = fillin.fill(table, classes="stage", **options)
        assert set(result.columns) - set(table.columns) == {"stage_filled", "stage_probability"}
        assert result["stage_filled"].dtype == table["stage"].dtype
        assert set(result["stage_filled"]) == {0.0, 2.0}
        assert result["stage_probability"].between(1 / 3, 1).all()
        words = fillin.fill(table.assign(stage=table["stage"].map({0.0: "0", 2.0: "2"})), classes="stage", **options)
        assert np.array_equal(words["stage_probability"], result["stage_probability"])
    code, printed, _ = fill_table(table, "--target", "stage", "--class", "stage")
    assert code == 0, printed
    assert "(2 numbers, 1 class)" in printed
    assert set(pd.read_csv("data.filled.csv", dtype=str)["stage_filled"]) == {"0.0", "2.0"}  # as they are written


def test_one_number_is_one_class_however_it_is_written(fill_table):
    code, printed, _ = fill_table("a,k\n1,1\n3,1.0\n2,2\n5,01\n4,\n", "--class", "k")
    assert code == 0, printed
    assert set(pd.read_csv("data.filled.csv", dtype=str)["k_filled"]) == {"1", "2"}


def test_categories_are_classes_unless_they_are_numbers():
    table = codes()
    frame = table.assign(stage=table["stage"].astype("category"))
    assert "stage_probability" in fillin.fill(frame)
    assert "stage_std" in fillin.fill(frame, numbers="stage")
    with pytest.raises(FillinError, match=r"row \d+, column 'c': '\w+' is not a number;.*leave out numbers=\['c'\]"):
        fillin.fill(unordered(), numbers=["c"])


def test_columns_declared_as_numbers_or_classes_are_used():
    table = unordered().assign(id=np.random.default_rng(0).permutation(30) + 7, name=[f"Mr {i}" for i in range(30)])
    plain, read, named = (fillin.fill(table, **options) for options in ({}, {"numbers": "id"}, {"classes": "name"}))
    assert "id only identifies the rows: not used (numbers=['id'] uses it)" in plain.attrs["fillin"]
    assert any("names, not used (classes=['name'] uses it)" in note for note in plain.attrs["fillin"])
    assert not any(note.startswith("id ") for note in read.attrs["fillin"])
    assert not plain["a_filled"].equals(read["a_filled"])
    assert not plain["a_filled"].equals(named["a_filled"])


DECLARED = {
    "no such class": ({"classes": ["bb"]}, "unknown column of the frame 'bb'; did you mean 'b'"),
    "no such number": ({"numbers": "cc"}, "unknown column of the frame 'cc'; did you mean 'c'"),
    "both": ({"classes": "a", "numbers": ["a", "b"]}, "column 'a' is in both classes and numbers; leave one out"),
    "of a series": ({"classes": "a", "kind": "series"}, "classes does not apply to a series; .*with kind='table'"),
    "bounds of words": (
        {"bounds": {"c": (0, 1)}},
        "column 'c' has no numbers, and bounds apply to numbers; leave it out",
    ),
    "bounds of no column": ({"bounds": {"bb": (0, 1)}}, "unknown column of the frame 'bb'; did you mean 'b'"),
    "bounds that are broken": (
        {"bounds": {"b": (0, None)}},
        r"row \d+, column 'b': -.* lies outside bounds 0:; correct",
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_invalid_declarations(case):
    options, message = DECLARED[case]
    with pytest.raises(FillinError, match=message):
        fillin.fill(unordered(), **options)


def test_nothing_is_filled_beyond_bounds(fill_table):
    table = mixed(40)[["a", "b", "c"]]
    table["a"] = table["a"].clip(-0.1, 0.1)
    free, held = (fillin.fill(table, bounds=bounds) for bounds in (None, {"a": (-0.1, 0.1), "b": (None, 99)}))
    missing = table["a"].isna()
    assert (free["a_low"] < -0.1)[missing].any()
    assert (free["a_high"] > 0.1)[missing].any()
    for ending in ("filled", "low", "high"):
        assert held[f"a_{ending}"].between(-0.1, 0.1).all()
    assert (held["a_low"] <= held["a_filled"]).all()
    assert (held["a_filled"] <= held["a_high"]).all()
    assert (held["a_std"] < free["a_std"])[missing].all()
    np.testing.assert_allclose(
        held["b_filled"], free["b_filled"], rtol=1e-5
    )  # a bound that is far away changes nothing
    np.testing.assert_allclose(held["b_std"], free["b_std"], rtol=1e-5)
    code, printed, _ = fill_table(table, "--bounds", "a=-0.1:0.1")
    assert code == 0, printed
    np.testing.assert_allclose(pd.read_csv("data.filled.csv")["a_high"], held["a_high"], atol=1e-3)


@pytest.mark.parametrize("cell", ["{} %", "1,{:03d}.5", "${}"])
def test_numbers_that_cannot_be_read_are_a_warning(cell):
    table = unordered().assign(p=[cell.format(i % 7) for i in range(30)])
    with pytest.warns(FillinWarning, match="p has .*, which is read as a class; if it is a number, write it as 1234.5"):
        fillin.fill(table)
    fillin.fill(table, classes="p")


def with_classes(order: dict, remarks: bool = False) -> pd.DataFrame:
    """Rows with a class that some lack, and a column that may order them; or remarks, which are of no class."""
    random = np.random.default_rng(0)
    words = np.where(random.random(40) < 0.2, None, random.choice(["clay", "sand"], 40))
    if remarks:
        words = np.array([f"it rained on day {i}" if i % 3 else None for i in range(40)], object)
    y = np.where(random.random(40) < 0.2, np.nan, random.normal(size=40))
    return pd.DataFrame({**order, "soil": words, "y": y})


DAYS = pd.Series(pd.date_range("2021-03-01", periods=40))


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"sample": np.arange(1, 41)}, "'sample' only identifies the rows"),
        ({"sown": DAYS.mask(DAYS.index == 7)}, "'sown' is missing in some rows"),
        ({"sown": DAYS.dt.floor("5D")}, "'sown' is missing in some rows, or repeats"),
    ],
)
def test_missing_classes_and_a_doubtful_index_make_a_table(order, reason, fill_table):
    code, printed, out = fill_table(with_classes(order))
    assert code == 0, printed
    assert reason in printed
    assert out is not None
    assert b"soil_filled" in out


def test_remarks_and_a_clear_index_make_a_series():
    assert "soil_filled" not in fillin.fill(with_classes({"day": DAYS}))
    assert "soil_filled" not in fillin.fill(with_classes({"sample": np.arange(1, 41)}, remarks=True))
