"""Frames of pandas, polars and Arrow, and Parquet: each gives the same and keeps its types and its index."""

from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from support.fields_with_gaps import PARTS
from support.series_files import csv, waves

import fillin
from fillin.cli import main
from fillin.errors import InputError
from fillin.tabular.readers import TABLE_FORMATS, TableFormat, read_frame

pytest_plugins = ["support.fill_command"]


def test_frames_of_every_kind_give_the_same(small_filler, fill):
    frame = waves()
    expected = fillin.fill(frame, model=small_filler)
    text = fill(csv(frame)).frame
    np.testing.assert_allclose(text["y_filled"], expected["y_filled"], rtol=1e-3)
    lazy = pl.DataFrame(frame).with_columns(pl.col("y").fill_nan(None))
    polars = fillin.fill(lazy, model=small_filler)
    assert isinstance(polars, pl.DataFrame)
    assert polars["y"].null_count() == lazy["y"].null_count()
    arrow = fillin.fill(pa.table(lazy.to_arrow()), model=small_filler)
    assert isinstance(arrow, pa.Table)
    for other in (polars.to_pandas(), arrow.to_pandas()):
        pd.testing.assert_frame_equal(other, expected)
    pd.testing.assert_frame_equal(expected[["x", "y"]], frame)


def test_an_index_is_a_column_too(small_filler):
    frame = waves()
    series = pd.DataFrame(
        {"y": frame["y"].to_numpy()}, pd.date_range("2024-01-01", periods=40, freq="h", tz="Europe/Rome")
    )
    result = fillin.fill(series, every="30min", until="2024-01-03", model=small_filler)
    assert result.index.tz == series.index.tz
    assert result.index.name is None
    assert result.index.is_monotonic_increasing
    assert len(result) == 97
    pd.testing.assert_series_equal(result.loc[series.index, "y"], series["y"], check_freq=False)
    assert result["y_filled"].notna().all()


def test_periods_are_times(small_filler):
    months = pd.period_range("2024-01", periods=4, freq="M")
    frame = pd.DataFrame({"y": [1.0, None, 3.0, 2.0]}, months)
    result = fillin.fill(frame, model=small_filler)
    pd.testing.assert_index_equal(result.index, months)
    begin = fillin.fill(frame.set_axis(months.to_timestamp()), model=small_filler)
    pd.testing.assert_frame_equal(result.reset_index(drop=True), begin.reset_index(drop=True))
    column = frame.rename_axis("month").reset_index()
    longer = fillin.fill(column, every="1mo", until="2024-06", model=small_filler)
    assert longer["month"].tolist() == pd.period_range("2024-01", periods=6, freq="M").tolist()
    with pytest.raises(InputError, match="new rows lie between them"):
        fillin.fill(column, every="10d", model=small_filler)


def test_new_rows_keep_the_types_of_polars(small_filler):
    frame = pl.DataFrame(
        {
            "t": pl.datetime_range(
                datetime(2024, 1, 1), datetime(2024, 1, 3), "1d", time_zone="Asia/Tokyo", eager=True
            ),
            "y": [1.0, None, 3.0],
            "n": [1, 2, 3],
            "who": ["a", "a", "a"],
        }
    )
    result = fillin.fill(frame, y="y", by="who", every="12h", model=small_filler)
    assert result.schema["t"] == frame.schema["t"]
    assert result.schema["n"] == pl.Int64
    assert result["n"].to_list() == [1, None, 2, None, 3]
    assert result["who"].to_list() == ["a"] * 5
    halves = fillin.fill(frame.select(x=pl.col("n"), y=pl.col("y")), every=0.5, model=small_filler)
    assert halves["x"].to_list() == [1, 1.5, 2, 2.5, 3]


def test_a_file_format_is_one_entry(tmp_path, small_filler, monkeypatch, capsys):
    """A format that is entered in TABLE_FORMATS is read, written, and named in the help and in errors."""

    def read(path, na, date_format):
        return read_frame(pa.feather.read_table(path), path.name, na, date_format)

    monkeypatch.setitem(TABLE_FORMATS, ".feather", TableFormat(read, pa.feather.write_feather))
    frame, path = waves(), tmp_path / "data.feather"
    frame.to_feather(path)
    assert main(["fill", str(path), "--model", str(small_filler)]) == 0
    pd.testing.assert_frame_equal(pd.read_feather(tmp_path / "data.filled.feather")[list(frame)], frame)
    capsys.readouterr()
    assert main(["fill", "--help"]) == 0
    assert ".feather" in capsys.readouterr().out
    (tmp_path / "data.xyz").touch()
    assert main(["fill", str(tmp_path / "data.xyz")]) == 2
    assert ".feather" in capsys.readouterr().err


def test_parquet_in_parquet_out(tmp_path, small_filler, capsys):
    frame = pd.DataFrame({"t": pd.date_range("2024-01-01", periods=20, tz="UTC"), "y": waves(20)["y"], "k": range(20)})
    path = tmp_path / "data.parquet"
    frame.set_index("t").to_parquet(path)
    before = path.read_bytes()
    assert main(["fill", str(path), "--y", "y", "--model", str(small_filler)]) == 0
    assert path.read_bytes() == before
    result = pd.read_parquet(tmp_path / "data.filled.parquet")
    pd.testing.assert_frame_equal(result[["y", "k"]], frame.set_index("t"), check_freq=False)
    assert list(result.columns) == ["y", "k", *(f"y_{part}" for part in PARTS)]
    assert pq.read_schema(tmp_path / "data.filled.parquet").field("k").type == pa.int64()
    assert (tmp_path / "data.filled.png").exists()
