"""`fillin fill` of unordered tables: added columns, and unchanged input."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from support.mixed_tables import A_OUTPUTS, CLASSES, NUMBERS, mixed, unordered

import fillin
from fillin.cli import main
from fillin.filling.table import impute as learn

pytest_plugins = ["support.table_command"]
pytestmark = pytest.mark.usefixtures("quick_tables")


def test_every_byte_is_kept_and_every_missing_cell_is_filled(fill_table):
    table = mixed()
    code, printed, out = fill_table(table, "--as", "table")
    assert code == 0, printed
    assert "a table: 40 rows, 5 columns (2 numbers, 2 classes, 1 date), 30 missing values in 5 columns" in printed
    before, after = table.to_csv(index=False).encode().splitlines(), out.splitlines()
    assert all(new.startswith(old + b",") for old, new in zip(before, after, strict=True))
    kinds = {"a": NUMBERS, "b": NUMBERS, "c": CLASSES, "yes": CLASSES, "day": NUMBERS}
    expected = [f"{column}_{ending}" for column, endings in kinds.items() for ending in endings]
    assert after[0].decode().split(",")[5:] == expected
    cells = pd.read_csv("data.filled.csv", dtype=str, keep_default_na=False)
    original = pd.read_csv("data.csv", dtype=str, keep_default_na=False)
    for column, endings in kinds.items():
        missing = original[column] == ""
        assert (cells[f"{column}_filled"] != "").all()
        assert (cells[f"{column}_filled"][~missing] == original[column][~missing]).all()
        uncertainty = cells[f"{column}_{endings[1]}"].astype(float)
        assert (uncertainty[~missing] == (0 if endings is NUMBERS else 1)).all()
        assert (uncertainty[missing] > 0).all()
        if endings is CLASSES:
            assert (uncertainty[missing] <= 1).all()
            assert set(cells[f"{column}_filled"]) <= set(original[column][~missing])
        else:
            parse = pd.to_datetime if column == "day" else pd.to_numeric
            low, middle, high = (parse(cells[f"{column}_{e}"]) for e in ("low", "filled", "high"))
            assert (low[missing] < middle[missing]).all()
            assert (middle[missing] < high[missing]).all()
            assert (low[~missing] == high[~missing]).all()


@pytest.mark.parametrize("make", [lambda f: f, pl.from_pandas, lambda f: pl.from_pandas(f).to_arrow()])
def test_results_have_the_type_of_the_input_frame(make):
    table = mixed()
    frame = make(table)
    result = fillin.fill(frame, kind="table")
    assert type(result) is type(frame)
    filled = result if isinstance(result, pd.DataFrame) else result.to_pandas()
    if isinstance(result, pd.DataFrame):
        pd.testing.assert_frame_equal(result[list(table.columns)], table)
        assert result.attrs["fillin"][0].startswith("the frame: a table: 40 rows")
    assert filled["yes_filled"].dtype == bool
    assert filled["day_filled"].dtype.kind == "M"
    assert not filled[[name for name in filled.columns if name not in table.columns]].isna().any(axis=None)


def test_a_seed_determines_the_result():
    table = unordered()
    first, again, other = (fillin.fill(table, kind="table", seed=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    assert not first["a_filled"].equals(other["a_filled"])


def test_intervals_widen_with_the_level():
    table = unordered()
    narrow, wide = (fillin.fill(table, kind="table", y="a", level=level) for level in (0.5, 0.99))
    missing = table["a"].isna()
    assert (narrow["a_low"] > wide["a_low"])[missing].all()
    assert (narrow["a_high"] < wide["a_high"])[missing].all()
    assert narrow["a_std"].equals(wide["a_std"])


@pytest.mark.parametrize("target", ["a", "c", "day"])
def test_only_the_target_is_filled(fill_table, target):
    table = mixed()
    code, printed, out = fill_table(table, "--target", target)
    assert code == 0, printed
    endings = CLASSES if target == "c" else NUMBERS
    assert out.splitlines()[0].decode() == ",".join([*table.columns, *(f"{target}_{e}" for e in endings)])
    assert pd.read_csv("data.filled.csv")[f"{target}_filled"].notna().all()


def test_a_target_is_predicted_from_other_columns(monkeypatch):
    monkeypatch.setattr(learn, "FULL", learn.EnsembleSize(2, 150))
    table = mixed(120, 12)[["a", "b", "c"]]
    truth = mixed(120, 0)
    for target in ("b", "c"):
        result = fillin.fill(table, target=target)
        missing = table[target].isna() & table["a"].notna() & truth[target].notna()
        if target == "b":
            error = (result["b_filled"] - truth["b"])[missing]
            assert np.sqrt((error**2).mean()) < 0.5 * truth["b"].std()
        else:
            assert (result["c_filled"] == truth["c"])[missing].mean() > 0.8


def test_only_requested_columns_are_filled(fill_table):
    code, _, out = fill_table(unordered(), "--y", "a", "--y", "c")
    assert code == 0
    assert out.splitlines()[0].decode() == ",".join(["a", "b", "c", *A_OUTPUTS, "c_filled", "c_probability"])


def test_a_column_with_one_value_is_filled_with_it(fill_table):
    code, printed, _ = fill_table("a,k,w\n1,5.0,x\n3,,x\n2,5.0,\n,5.0,x\n")
    assert code == 0
    assert "k has one observed value" in printed
    result = pd.read_csv("data.filled.csv")
    assert (result["k_filled"] == 5).all()
    assert (result["w_filled"] == "x").all()
    assert result.loc[1, ["k_std", "k_low", "k_high"]].isna().all()
    assert np.isnan(result.loc[2, "w_probability"])
    assert result["a_std"][3] > 0


def test_an_empty_column_is_left_missing_with_a_note(fill_table):
    code, printed, out = fill_table("a,b,none\n1,2,\n3,,\n2,4,\n")
    assert code == 0
    assert "none: no value is observed, left missing" in printed
    assert b"none_filled" not in out


def test_decimal_commas_time_zones_and_date_formats(fill_table):
    text = "when;x;who\n01.02.2024;1,5;ä\n15.03.2024;2,25;b\n;1,0;ä\n20.01.2024;;b\n03.02.2024;2,5;\n"
    code, printed, out = fill_table(text.encode("latin-1"), "--as", "table")
    assert code == 0, printed
    assert "line 2 is not UTF-8: the file is read, and written, as Latin-1" in printed
    rows = [line.split(";") for line in out.decode("latin-1").splitlines()]
    names = rows[0]
    assert re.fullmatch(r"\d\d\.\d\d\.\d{4}", rows[3][names.index("when_filled")])
    assert re.fullmatch(r"-?\d+(,\d+)?", rows[4][names.index("x_filled")])
    assert rows[5][names.index("who_filled")] in ("ä", "b")
    zoned = mixed()
    zoned["day"] = zoned["day"].dt.tz_localize("Europe/Berlin")
    result = fillin.fill(zoned, kind="table", y="day")
    assert result["day_filled"].dtype == zoned["day"].dtype
    assert (result["day_filled"] == result["day"])[zoned["day"].notna()].all()


def test_parquet_files_are_filled(tmp_path, capsys):
    path = tmp_path / "data.parquet"
    table = mixed()
    table.to_parquet(path)
    raw = path.read_bytes()
    assert main(["fill", str(path), "--as", "table", "--no-picture"]) == 0, capsys.readouterr().err
    result = pd.read_parquet(tmp_path / "data.filled.parquet")
    pd.testing.assert_frame_equal(result[list(table.columns)], pd.read_parquet(path))
    assert result["c_filled"].notna().all()
    assert path.read_bytes() == raw
