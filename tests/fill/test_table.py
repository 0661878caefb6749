"""`fillin fill` of tables without an order: what is added, and what is kept."""

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


def test_every_byte_is_kept_and_every_blank_is_filled(fill_table):
    table = mixed()
    code, said, out = fill_table(table, "--as", "table")
    assert code == 0, said
    assert "a table: 40 rows, 5 columns (2 numbers, 2 classes, 1 date), 30 missing values in 5 columns" in said
    before, after = table.to_csv(index=False).encode().splitlines(), out.splitlines()
    assert all(new.startswith(old + b",") for old, new in zip(before, after, strict=True))
    kinds = {"a": NUMBERS, "b": NUMBERS, "c": CLASSES, "yes": CLASSES, "day": NUMBERS}
    wanted = [f"{column}_{ending}" for column, endings in kinds.items() for ending in endings]
    assert after[0].decode().split(",")[5:] == wanted
    cells = pd.read_csv("data.filled.csv", dtype=str, keep_default_na=False)
    written = pd.read_csv("data.csv", dtype=str, keep_default_na=False)
    for column, endings in kinds.items():
        blank = written[column] == ""
        assert (cells[f"{column}_filled"] != "").all()
        assert (cells[f"{column}_filled"][~blank] == written[column][~blank]).all()
        sure = cells[f"{column}_{endings[1]}"].astype(float)
        assert (sure[~blank] == (0 if endings is NUMBERS else 1)).all()
        assert (sure[blank] > 0).all()
        if endings is CLASSES:
            assert (sure[blank] <= 1).all()
            assert set(cells[f"{column}_filled"]) <= set(written[column][~blank])
        else:
            as_is = pd.to_datetime if column == "day" else pd.to_numeric
            low, middle, high = (as_is(cells[f"{column}_{e}"]) for e in ("low", "filled", "high"))
            assert (low[blank] < middle[blank]).all()
            assert (middle[blank] < high[blank]).all()
            assert (low[~blank] == high[~blank]).all()


@pytest.mark.parametrize("make", [lambda f: f, pl.from_pandas, lambda f: pl.from_pandas(f).to_arrow()])
def test_frames_come_back_as_what_they_were(make):
    table = mixed()
    frame = make(table)
    found = fillin.fill(frame, kind="table")
    assert type(found) is type(frame)
    back = found if isinstance(found, pd.DataFrame) else found.to_pandas()
    if isinstance(found, pd.DataFrame):
        pd.testing.assert_frame_equal(found[list(table.columns)], table)
        assert found.attrs["fillin"][0].startswith("the frame: a table: 40 rows")
    assert back["yes_filled"].dtype == bool
    assert back["day_filled"].dtype.kind == "M"
    assert not back[[name for name in back.columns if name not in table.columns]].isna().any(axis=None)


def test_a_seed_is_exact_and_rows_keep_their_order():
    table = unordered()
    first, again, other = (fillin.fill(table, kind="table", seed=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    assert not first["a_filled"].equals(other["a_filled"])


def test_a_wider_level_is_a_wider_band():
    table = unordered()
    half, most = (fillin.fill(table, kind="table", y="a", level=level) for level in (0.5, 0.99))
    blank = table["a"].isna()
    assert (half["a_low"] > most["a_low"])[blank].all()
    assert (half["a_high"] < most["a_high"])[blank].all()
    assert half["a_std"].equals(most["a_std"])


@pytest.mark.parametrize("target", ["a", "c", "day"])
def test_one_target_and_nothing_else(fill_table, target):
    table = mixed()
    code, said, out = fill_table(table, "--target", target)
    assert code == 0, said
    endings = CLASSES if target == "c" else NUMBERS
    assert out.splitlines()[0].decode() == ",".join([*table.columns, *(f"{target}_{e}" for e in endings)])
    assert pd.read_csv("data.filled.csv")[f"{target}_filled"].notna().all()


def test_a_target_is_told_from_the_others(monkeypatch):
    monkeypatch.setattr(learn, "FULL", learn.EnsembleSize(2, 150))
    table = mixed(120, 12)[["a", "b", "c"]]
    truth = mixed(120, 0)
    for target in ("b", "c"):
        found = fillin.fill(table, target=target)
        blank = table[target].isna() & table["a"].notna() & truth[target].notna()
        if target == "b":
            error = (found["b_filled"] - truth["b"])[blank]
            assert np.sqrt((error**2).mean()) < 0.5 * truth["b"].std()
        else:
            assert (found["c_filled"] == truth["c"])[blank].mean() > 0.8


def test_some_columns(fill_table):
    code, _, out = fill_table(unordered(), "--y", "a", "--y", "c")
    assert code == 0
    assert out.splitlines()[0].decode() == ",".join(["a", "b", "c", *A_OUTPUTS, "c_filled", "c_probability"])


def test_one_value_is_filled_with_it(fill_table):
    code, said, _ = fill_table("a,k,w\n1,5.0,x\n3,,x\n2,5.0,\n,5.0,x\n")
    assert code == 0
    assert "k has one observed value" in said
    found = pd.read_csv("data.filled.csv")
    assert (found["k_filled"] == 5).all()
    assert (found["w_filled"] == "x").all()
    assert found.loc[1, ["k_std", "k_low", "k_high"]].isna().all()
    assert np.isnan(found.loc[2, "w_probability"])
    assert found["a_std"][3] > 0


def test_all_blank_is_left_and_said(fill_table):
    code, said, out = fill_table("a,b,none\n1,2,\n3,,\n2,4,\n")
    assert code == 0
    assert "none: no value is observed, left missing" in said
    assert b"none_filled" not in out


def test_commas_zones_and_formats(fill_table):
    text = "when;x;who\n01.02.2024;1,5;ä\n15.03.2024;2,25;b\n;1,0;ä\n20.01.2024;;b\n03.02.2024;2,5;\n"
    code, said, out = fill_table(text.encode("latin-1"), "--as", "table")
    assert code == 0, said
    assert "line 2 is not UTF-8: the file is read, and written, as Latin-1" in said
    rows = [line.split(";") for line in out.decode("latin-1").splitlines()]
    names = rows[0]
    assert re.fullmatch(r"\d\d\.\d\d\.\d{4}", rows[3][names.index("when_filled")])
    assert re.fullmatch(r"-?\d+(,\d+)?", rows[4][names.index("x_filled")])
    assert rows[5][names.index("who_filled")] in ("ä", "b")
    zoned = mixed()
    zoned["day"] = zoned["day"].dt.tz_localize("Europe/Berlin")
    found = fillin.fill(zoned, kind="table", y="day")
    assert found["day_filled"].dtype == zoned["day"].dtype
    assert (found["day_filled"] == found["day"])[zoned["day"].notna()].all()


def test_parquet(tmp_path, capsys):
    path = tmp_path / "data.parquet"
    table = mixed()
    table.to_parquet(path)
    raw = path.read_bytes()
    assert main(["fill", str(path), "--as", "table", "--no-picture"]) == 0, capsys.readouterr().err
    found = pd.read_parquet(tmp_path / "data.filled.parquet")
    pd.testing.assert_frame_equal(found[list(table.columns)], pd.read_parquet(path))
    assert found["c_filled"].notna().all()
    assert path.read_bytes() == raw
