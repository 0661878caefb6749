"""`fillin fill` and `fillin.fill`: what is kept, what is added, and where."""

import csv as csvs
import io
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import ExactProcess

import fillin
from fillin.cli import main
from fillin.errors import InputError
from fillin.filling.answer import Answer
from fillin.filling.bounds import Belief, Bend
from fillin.filling.clock import Clock
from fillin.filling.frames import read_frame
from fillin.filling.hidden import WAYS, hide, judge
from fillin.filling.picture import draw
from fillin.filling.series import Asked, Filled, Series
from fillin.filling.verb import plan
from fillin.filling.write import written_as

pytest_plugins = ["filled"]
PARTS = ["filled", "std", "low", "high"]


def csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False)


def waves(n=40, seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    x = np.arange(n, dtype=float)
    y = 10 + np.sin(x / 3) + 0.1 * random.standard_normal(n)
    y[random.permutation(n)[: n // 4]] = np.nan
    return pd.DataFrame({"x": x, "y": y.round(4)})


def days(n=30) -> pd.DataFrame:
    frame = waves(n)
    start = datetime(2024, 1, 1)
    return pd.DataFrame({"day": [f"{start + timedelta(days=i):%Y-%m-%d}" for i in range(n)], "level": frame["y"]})


LAYOUTS = {
    "plain": "t,y\n1,2.50\n2,\n3,4\n4,5e0\n",
    "without a last line ending": "t,y\n1,2.50\n2,\n3,4",
    "semicolons": "t;y\n1;2.50\n2;\n3;4\n",
    "a decimal comma": "t;y\n1,5;2,50\n2,5;\n3,5;4,0\n",
    "tabs": "t\ty\n1\t2.50\n2\tNA\n3\t4\n",
    "bars": "t|y\n1|2.50\n2|n/a\n3|4\n",
    "Windows": "t,y\r\n1,2.50\r\n2,NaN\r\n3,4\r\n",
    "quotes": 't,y,note\n1,2.50,"a, ""b"""\n2,,"two\nlines"\n3,4," 5"" pipe"\n',
    "a comment": "# river, 2024\n#\nt,y\n1,2.50\n2,-\n3,4\n",
    "UTF-8": "t,y,Ort\n1,2.50,Köln\n2,,Zürich\n3,4,東京\n",
    "a mark": "\ufefft,y\n1,2.50\n2,\n3,4\n",
    "Latin-1": "t,y,Ort\n1,2.50,Köln\n2,,Zürich\n3,4,Genève\n".encode("latin-1"),
    "blanks of many kinds": "t,y\n1,2.5\n2,NULL\n3,?\n4,None\n5,--\n6, \n7,#N/A\n8,3\n",
    "names with blanks": "t , y\n1, 2.50\n2,\n3, 4\n",
    "falling": "t,y\n3,2.50\n2,\n1,4\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_byte_is_kept_and_four_columns_are_added(layout, fill):
    content = LAYOUTS[layout]
    ran = fill(content)
    assert ran.code == 0, ran.wrong
    before = content if isinstance(content, bytes) else content.encode()
    after = ran.path.read_bytes()
    encoding = "latin-1" if layout == "Latin-1" else "utf-8"
    ending = "\r\n" if layout == "Windows" else "\n"
    separator = next(mark for mark in ",;\t|" if mark in before.decode(encoding).split("t", 1)[1][:3])
    assert after.endswith(ending.encode())
    # taking what was added from each row gives the input back
    rows = list(csvs.reader(io.StringIO(after.decode(encoding), newline=""), delimiter=separator))
    was = list(csvs.reader(io.StringIO(before.decode(encoding), newline=""), delimiter=separator))
    comments = sum(row[0].startswith("#") for row in was)
    assert rows[:comments] == was[:comments]
    names = [f"y_{part}" for part in PARTS]
    assert rows[comments] == [*was[comments], *names]
    assert len(rows) == len(was)
    text = after.decode(encoding)
    for row, old in zip(rows[comments + 1 :], was[comments + 1 :], strict=True):
        assert row[:-4] == old
        mean, std, low, high = (float(cell.replace(",", ".")) for cell in row[-4:])
        if old[1].strip().lower() in ("", "na", "n/a", "nan", "-", "null", "?", "none", "--", "#n/a"):
            assert std > 0
            assert low < high
            assert np.isfinite([mean, low, high]).all()
        else:
            assert row[-4:] == [old[1].strip(), "0", old[1].strip(), old[1].strip()]
        text = text.replace(separator + separator.join(row[-4:]), "", 1)
    text = text.replace(separator + separator.join(names), "", 1)
    whole = before.decode(encoding)
    assert text == (whole if whole.endswith(ending) else whole + ending)


def test_it_says_what_it_saw(fill):
    said = fill("rownames,time,value\n1,1959,3\n2,1960,\n3,1961,4\n").said
    assert "data.csv: a series over time (numbers, 1959 … 1961), 3 rows; to fill: value (1 blank)" in said
    assert "data.filled.csv" in said
    said = fill("n,date,a,b,c\n3,2024-01-01,1,,x\n2,2024-01-02,,,y\n1,2024-01-03,3,4,z\n", "--force").said
    assert "over date (times, 2024-01-01 … 2024-01-03)" in said
    assert "a (1 blank), b (2 blanks)" in said
    said = fill("t,y,who\n1,1,a\n1,,b\n2,,a\n2,3,b\n", "--by", "who", "--force").said
    assert "2 groups by who" in said


def test_rows_are_filled_whatever_their_order(fill):
    frame = days()
    straight = fill(csv(frame)).frame.set_index("day")
    shuffled = fill(csv(frame.sample(frac=1, random_state=1)), name="shuffled.csv").frame.set_index("day")
    pd.testing.assert_frame_equal(straight, shuffled.loc[straight.index])


@pytest.mark.parametrize("factor", [1e30, 1e-30])
def test_units_do_not_matter(fill, factor):
    frame = waves()
    plain, scaled = fill(csv(frame)).frame, frame.assign(x=1e6 * frame["x"] + 5e6, y=factor * frame["y"])
    other = fill(csv(scaled), name="scaled.csv").frame
    for part in PARTS:
        np.testing.assert_allclose(other[f"y_{part}"] / factor, plain[f"y_{part}"], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("values", [[5, None, 5, 5], [0, None, 0, 0], [7, None, None, None]])
def test_a_constant_and_a_single_point_are_enough(fill, values):
    found = fill(csv(pd.DataFrame({"x": [1, 2, 3, 4], "y": values}))).frame
    assert np.isfinite(found[[f"y_{part}" for part in PARTS]]).all().all()


def test_groups_are_series_of_their_own(fill):
    one, other = waves().assign(who="a"), waves(seed=1).assign(who="b", y=lambda f: 100 * f["y"])
    mixed = pd.concat([one, other]).sort_values("x")
    both = fill(csv(mixed), "--by", "who").frame
    for name, frame in (("a", one), ("b", other)):
        alone = fill(csv(frame), name=f"{name}.csv").frame
        pd.testing.assert_frame_equal(both[both["who"] == name].reset_index(drop=True), alone)


def test_a_group_without_values_stays_blank_and_is_told(fill):
    ran = fill("t,y,who\n1,1,a\n2,,a\n1,,b\n2,,b\n", "--by", "who")
    assert "nothing is known of y of b" in ran.said
    assert ran.frame["y_filled"].isna().tolist() == [False, False, True, True]


def test_steps_between_and_beyond(fill):
    ran = fill("t,y,z\n0,1,a\n2,,b\n4,3,c\n", "--every", "1", "--until", "6")
    found = ran.frame
    assert found["t"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert found["z"].isna().tolist() == [False, True, False, True, False, True, True]
    assert found["y_filled"].notna().all()
    assert (found["y_std"] == 0).tolist() == [True, False, False, False, True, False, False]
    assert "new places: 4" in ran.said
    falling = fill("t,y\n4,1\n2,2\n0,3\n", "--every", "1", name="falling.csv").frame
    assert falling["t"].tolist() == [4, 3, 2, 1, 0]


def test_a_step_that_meets_what_is_there_but_for_rounding_adds_nothing(fill):
    months = "".join(f"{1949 + i / 12:.8f},{i}\n" for i in range(40))
    found = fill("time,y\n" + months, "--every", "0.08333333", "--until", "1953").frame
    assert len(found) == 49
    assert np.diff(found["time"]).min() > 0.08


def test_months_go_by_the_calendar(fill):
    found = fill("t,y\n2024-01-31,1\n2024-03-31,\n2024-05-31,2\n", "--every", "1mo", "--until", "2024-07-31").frame
    assert found["t"].tolist() == [f"2024-{d}" for d in ("01-31", "02-29", "03-31", "04-30", "05-31", "06-30", "07-31")]


@pytest.mark.parametrize(
    ("first", "second", "step", "between"),
    [
        ("2024-01-01", "2024-01-03", "1d", "2024-01-02"),
        ("2024-01-01T00:00:00Z", "2024-01-01T02:00:00Z", "1h", "2024-01-01T01:00:00Z"),
        ("2024-01-01 00:00 +01:00", "2024-01-01 02:00 +01:00", "1h", "2024-01-01 01:00 +01:00"),
        ("01.01.2024 00:00", "01.01.2024 02:00", "60min", "01.01.2024 01:00"),
        ("31/12/2023", "02/01/2024", "1d", "01/01/2024"),
        ("2024-01", "2024-03", "1mo", "2024-02"),
        ("10:00", "10:30", "15min", "10:15"),
        ("20240101", "20240103", "1d", "20240102"),
        ("2024-01-01", "2024-01-02", "12h", "2024-01-01 12:00:00"),
    ],
)
def test_times_are_written_as_they_came(fill, first, second, step, between):
    found = fill(f"date,y\n{first},1\n{second},3\n", "--every", step)
    assert found.code == 0, found.wrong
    assert [line.split(",")[0] for line in found.path.read_text().splitlines()] == ["date", first, between, second]


def test_days_of_a_zone_with_summer_time_go_by_the_wall():
    zone = ZoneInfo("Europe/Berlin")
    clock = Clock(zone=zone)
    first = int(datetime(2024, 3, 30, 12, tzinfo=zone).timestamp() * 1e6)
    ticks = clock.steps(first, first + int(3 * 86400e6), "1d", "")
    assert (np.diff(ticks[:3]) / 3.6e9).tolist() == [23, 24]
    assert clock.show(ticks)[0].endswith("12:00:00") == clock.show(ticks)[1].endswith("12:00:00")


def test_places_of_another_file(fill, tmp_path):
    places = tmp_path / "places.csv"
    places.write_text("who,t\na,5\na,2\nb,7\n")
    found = fill("t,y,who\n1,1,a\n2,3,a\n1,2,b\n3,5,b\n", "--by", "who", "--at", str(places)).frame
    assert list(zip(found["who"], found["t"], strict=True)) == [
        ("a", 1),
        ("a", 2),
        ("a", 5),
        ("b", 1),
        ("b", 3),
        ("b", 7),
    ]
    places.write_text("when\n5\n")
    found = fill("t,y\n1,1\n2,3\n", "--at", str(places), "--force").frame
    assert found["t"].tolist() == [1, 2, 5]


def test_bands_stay_within_bounds(fill):
    random = np.random.default_rng(0)
    share = np.where(random.random(60) < 0.3, 0.0, random.random(60).round(3))
    share[-5:] = 1
    frame = pd.DataFrame({"x": np.arange(60), "share": share, "count": 9 * share})
    frame.loc[10:30, ["share", "count"]] = None
    free = fill(csv(frame), "--every", "1", "--until", "90").frame
    bound = fill(
        csv(frame), "--every", "1", "--until", "90", "--bounds", "share=0:1", "--bounds", "count=0:", "--force"
    ).frame
    assert (free["share_low"] < 0).any() or (free["share_high"] > 1).any(), "the test asks for nothing"
    assert bound["share_low"].min() >= 0
    assert bound["share_high"].max() <= 1
    assert bound["count_low"].min() >= 0
    for name in ("share", "count"):
        assert (
            (bound[f"{name}_low"] <= bound[f"{name}_filled"]) & (bound[f"{name}_filled"] <= bound[f"{name}_high"])
        ).all()


@pytest.mark.parametrize("bounds", [(0.0, None), (None, 3.0), (0.0, 3.0), (None, None), (-1e30, 1e30)])
def test_a_bend_goes_there_and_back(bounds):
    low, high = (-5.0 if bounds[0] is None else max(bounds[0], -9)), (8.0 if bounds[1] is None else min(bounds[1], 9))
    y = np.linspace(low, high, 101)  # both bounds are allowed for
    bend = Bend.of(y, bounds)
    z = bend.to(y)
    assert np.isfinite(z).all()
    assert (np.diff(z) > 0).all()
    np.testing.assert_allclose(bend.back(z), y, atol=1e-9)
    inner, step = y[1:-1], 1e-5 * (high - low)
    slope = (bend.to(inner + step) - bend.to(inner - step)) / (2 * step)
    np.testing.assert_allclose(bend.slope(inner), slope, rtol=1e-3)
    far = bend.back(np.array([-1e40, 1e40]))
    assert far[0] == (-1e40 if bounds[0] is None else bounds[0])
    assert far[1] == (1e40 if bounds[1] is None else bounds[1])


def test_a_bend_leaves_what_is_far_from_the_bound_as_it_is():
    kelvin = 300 + 10 * np.random.default_rng(0).standard_normal(100)
    np.testing.assert_allclose(Bend.of(kelvin, (0.0, None)).to(kelvin) - kelvin, 0.2, atol=0.2)


@pytest.mark.parametrize("bounds", [(0.0, None), (None, 1.0), (0.0, 1.0)])
def test_moments_and_quantiles_are_those_of_what_is_bent(bounds):
    random = np.random.default_rng(0)
    bend = Bend.of(random.random(50), bounds)
    weights, means, deviations = np.array([[[0.7, 0.3]]]), np.array([[[-0.2, 0.5]]]), np.array([[[0.3, 0.8]]])
    belief = Belief(Answer(weights, means, deviations), bend)
    part = random.random(400_000) < 0.3
    y = bend.back(np.where(part, 0.5, -0.2) + np.where(part, 0.8, 0.3) * random.standard_normal(len(part)))
    mean, std = belief.moments()
    assert mean[0] == pytest.approx(y.mean(), abs=0.003)
    assert std[0] == pytest.approx(y.std(), abs=0.003)
    for q in (0.025, 0.5, 0.9):
        assert belief.quantile(q)[0] == pytest.approx(np.quantile(y, q), abs=0.005)


def test_a_coordinate_goes_round(fill):
    angle = np.arange(5, 360, 10.0)
    frame = pd.DataFrame({"angle": angle, "y": np.cos(np.radians(angle)).round(6)})
    frame.loc[[0, 20, 35], "y"] = None
    here = fill(csv(frame), "--period", "360").frame
    turned = frame.assign(angle=frame["angle"] + 720)
    there = fill(csv(turned), "--period", "360", name="turned.csv").frame
    np.testing.assert_allclose(there["y_filled"], here["y_filled"], rtol=1e-4, atol=1e-4)
    open_ended = fill(csv(frame), name="open.csv").frame
    assert abs(open_ended["y_filled"][0] - here["y_filled"][0]) > 1e-4


class Spy(ExactProcess):
    """A Gaussian process that remembers how it was asked."""

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        self.asked = [*getattr(self, "asked", []), (xc, yc, xt)]
        return super().forward(xc, yc, xt)


def test_a_period_copies_what_is_known_to_both_sides():
    spy = Spy()
    fillin.fill(pd.DataFrame({"a": [10.0, 100, 350], "y": [1.0, None, 3.0]}), period=360, model=spy)
    xc, yc, _ = spy.asked[-1]
    x = (xc - xc.min())[0, :, 0] * 1060  # their width is the unit: from 10 − 360 to 350 + 360
    assert [round(float(v)) for v in x.sort().values] == [0, 340, 360, 700, 720, 1060]
    assert yc.numel() == 6


def test_known_errors_reach_the_model(fill):
    frame = waves().assign(sigma=[0.5 if i % 2 else None for i in range(40)])
    without, given = fill(csv(frame), "--y", "y").frame, fill(csv(frame), "--y-err", "sigma", "--force").frame
    assert list(given.columns) == ["x", "y", "sigma", *(f"y_{part}" for part in PARTS)]
    assert not np.allclose(without["y_filled"], given["y_filled"])


def test_the_answer_is_the_models():
    """An exact Gaussian process fills as Gaussian-process regression does."""
    x = np.linspace(0, 1, 21)
    y = np.sin(6 * x)
    y[7:12] = np.nan
    y -= np.nanmean(y)
    y /= np.nanmax(np.abs(y))  # it sees them as they are
    process = ExactProcess(length=0.2, noise=0.05)
    found = fillin.fill(pd.DataFrame({"x": x, "y": y}), model=process, level=0.9)
    blank = np.isnan(y)
    as_tensor = lambda v: torch.tensor(v, dtype=torch.float32).view(1, -1, 1)  # noqa: E731
    exact = process(as_tensor(x[~blank]), as_tensor(y[~blank]), as_tensor(x[blank]))
    np.testing.assert_allclose(found["y_filled"][blank], exact.mean.flatten(), atol=1e-5)
    np.testing.assert_allclose(found["y_std"][blank], exact.stddev.flatten(), atol=1e-5)
    np.testing.assert_allclose(
        found["y_high"][blank] - found["y_filled"][blank], 1.6449 * found["y_std"][blank], rtol=1e-3
    )


def test_frames_of_every_kind_give_the_same(small_filler, fill):
    frame = waves()
    wanted = fillin.fill(frame, model=small_filler)
    text = fill(csv(frame)).frame
    np.testing.assert_allclose(text["y_filled"], wanted["y_filled"], rtol=1e-3)
    lazy = pl.DataFrame(frame).with_columns(pl.col("y").fill_nan(None))
    polars = fillin.fill(lazy, model=small_filler)
    assert isinstance(polars, pl.DataFrame)
    assert polars["y"].null_count() == lazy["y"].null_count()
    arrow = fillin.fill(pa.table(lazy.to_arrow()), model=small_filler)
    assert isinstance(arrow, pa.Table)
    for other in (polars.to_pandas(), arrow.to_pandas()):
        pd.testing.assert_frame_equal(other, wanted)
    pd.testing.assert_frame_equal(wanted[["x", "y"]], frame)


def test_an_index_is_a_column_too(small_filler):
    frame = waves()
    series = pd.DataFrame(
        {"y": frame["y"].to_numpy()}, pd.date_range("2024-01-01", periods=40, freq="h", tz="Europe/Rome")
    )
    found = fillin.fill(series, every="30min", until="2024-01-03", model=small_filler)
    assert found.index.tz == series.index.tz
    assert found.index.name is None
    assert found.index.is_monotonic_increasing
    assert len(found) == 97
    pd.testing.assert_series_equal(found.loc[series.index, "y"], series["y"], check_freq=False)
    assert found["y_filled"].notna().all()


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
    found = fillin.fill(frame, y="y", by="who", every="12h", model=small_filler)
    assert found.schema["t"] == frame.schema["t"]
    assert found.schema["n"] == pl.Int64
    assert found["n"].to_list() == [1, None, 2, None, 3]
    assert found["who"].to_list() == ["a"] * 5
    halves = fillin.fill(frame.select(x=pl.col("n"), y=pl.col("y")), every=0.5, model=small_filler)
    assert halves["x"].to_list() == [1, 1.5, 2, 2.5, 3]


def test_parquet_in_parquet_out(tmp_path, small_filler, capsys):
    frame = pd.DataFrame({"t": pd.date_range("2024-01-01", periods=20, tz="UTC"), "y": waves(20)["y"], "k": range(20)})
    path = tmp_path / "data.parquet"
    frame.set_index("t").to_parquet(path)
    before = path.read_bytes()
    assert main(["fill", str(path), "--y", "y", "--model", str(small_filler)]) == 0
    assert path.read_bytes() == before
    found = pd.read_parquet(tmp_path / "data.filled.parquet")
    pd.testing.assert_frame_equal(found[["y", "k"]], frame.set_index("t"), check_freq=False)
    assert list(found.columns) == ["y", "k", *(f"y_{part}" for part in PARTS)]
    assert pq.read_schema(tmp_path / "data.filled.parquet").field("k").type == pa.int64()
    assert (tmp_path / "data.filled.png").exists()


def test_a_number_may_mean_a_blank(fill, small_filler):
    found = fill("t,y\n1,5\n2,-999.90\n3,7\n4,-999.9\n", "--na", "-999.9").frame
    assert (found["y_std"] > 0).tolist() == [False, True, False, True]
    assert found["y_filled"].min() > -100
    found = fillin.fill(pd.DataFrame({"t": [1, 2, 3], "y": [5.0, -999, 7]}), na=[-999], model=small_filler)
    assert (found["y_std"] > 0).tolist() == [False, True, False]
    assert found["y"].tolist() == [5, -999, 7]


def test_nothing_missing_says_so_and_does_nothing(fill):
    ran = fill("t,y\n1,2\n2,3\n")
    assert ran.code == 0
    assert "nothing is missing" in ran.said
    assert not ran.path.exists()
    frame = pd.DataFrame({"t": [1, 2], "y": [2.0, 3.0]})
    pd.testing.assert_frame_equal(fillin.fill(frame), frame)


def test_more_points_than_one_context_in_bounded_pieces():
    """Far more places than are held at once are asked for, and no question is large."""
    spy = Spy(length=0.001, noise=0.01)
    n = 6000
    y = np.sin(np.arange(n) / 50)
    y[np.random.default_rng(0).permutation(n)[: n // 3]] = np.nan
    found = fillin.fill(pd.DataFrame({"x": np.arange(n), "y": y}), model=spy)
    assert max(xc.shape[1] for xc, _, _ in spy.asked) <= 512
    assert max(xt.shape[1] for _, _, xt in spy.asked) <= 1024
    assert np.abs(found["y_filled"] - np.sin(np.arange(n) / 50)).max() < 0.5


def test_a_picture_and_a_page_that_stands_alone(fill):
    frame = pd.concat([waves(30).assign(who="a"), waves(30, 1).assign(who="<b>")])
    ran = fill(csv(frame), "--by", "who", "--report", "--threads", "1", picture=True)
    picture, page = ran.path.with_suffix(".png").read_bytes(), ran.path.with_suffix(".html").read_text()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    assert "data:image/png;base64," in page
    assert "http" not in page
    assert "<b>" not in page
    for word in ("skill", "CRPS", "linear", "in 50 %", "in 95 %", *WAYS, "What was assumed", "2 groups by who"):
        assert word in page
    again = fill(csv(frame), "--by", "who", "--report", "--force", "--no-picture")
    same = again.path.with_suffix(".html").read_text()
    rows = lambda text: [line for line in text.splitlines() if line.startswith("<table")]  # noqa: E731
    assert rows(same) == rows(page), "the same seed hides the same points"
    other = fill(csv(frame), "--by", "who", "--report", "--force", "--no-picture", "--seed", "5")
    assert rows(other.path.with_suffix(".html").read_text()) != rows(page)


@pytest.mark.parametrize("gaps", ["many", "one"])
def test_a_picture_of_very_many_places_is_no_larger(gaps):
    n = 60_000
    y = np.where(np.arange(n) % 2 if gaps == "many" else np.arange(n) < n // 2, np.nan, 1.0)
    asked = plan(read_frame(pd.DataFrame({"x": np.arange(n), "y": y})).sheet)
    at = asked.series[0]
    filled = Filled(at.rows, *(np.full(len(at.rows), v) for v in (1.0, 0.1, 0.8, 1.2, 0.9, 1.1)))
    axes = draw(asked, {"y": filled}).axes[0]
    drawn = sum(len(path.vertices) for band in axes.collections[:2] for path in band.get_paths())
    assert n < drawn < 5 * n
    assert axes.get_legend_handles_labels()[1] == ["95%", "50%", "filled", "known"]


def test_the_verdict_on_an_exact_process():
    """Drawn from the process that fills: bands hold what they say, and it beats straight lines."""
    random = np.random.default_rng(0)
    x = np.sort(random.random(150))
    x[0], x[-1] = 0, 1
    kernel = np.exp(-0.5 * ((x[:, None] - x) / 0.05) ** 2) + 0.01 * np.eye(len(x))
    series = []
    for number in range(4):
        y = np.linalg.cholesky(kernel) @ random.standard_normal(len(x))
        series.append(Series("y", str(number), x, y / np.abs(y).max(), None, x[:0], np.empty(0, dtype=int)))
    scale = float(np.mean([one.y.std() for one in series]))
    found = judge(series, ExactProcess(length=0.05, scale=scale, noise=0.1 * scale), Asked())
    assert [verdict.way for verdict in found] == list(WAYS)
    assert all(verdict.points == 4 * 3 * 30 for verdict in found)
    assert found[0].skill > 0.05
    for verdict in found:
        assert 0.35 < verdict.inside_50 < 0.65
        assert 0.8 < verdict.inside_95 < 1
        assert verdict.crps < verdict.rmse


@pytest.mark.parametrize("way", WAYS)
def test_hiding_hides_as_many_as_asked(way):
    random = np.random.default_rng(0)
    for n, number in ((8, 2), (100, 20), (1000, 333)):
        assert hide(n, number, way, random).sum() == number
    runs = (np.diff(hide(1000, 200, way, random).astype(int)) == 1).sum()
    assert (runs < 20) == (way == "blocks")


def test_what_was_written_is_as_long_as_what_is_known():
    assert written_as(123456.789, 0.01) == "123456.789"
    assert written_as(-1.23456e-30, 2e-30) == "-1.235e-30"
    assert written_as(0.0, 0.0) == "0"
    assert written_as(3.25, 0.5, comma=True) == "3,25"


def test_killed_while_writing_leaves_no_half_file(tmp_path, small_filler):
    path = tmp_path / "data.csv"
    path.write_text(csv(waves(200)))
    before = path.read_bytes()
    code = (
        "import os, sys; from fillin.models import files; from fillin.cli import main\n"
        "def stop(path): os.kill(os.getpid(), 9)\n"
        "files.sync = stop  # the file beside is written, and not yet renamed\n"
        "main(sys.argv[1:])"
    )
    words = ["fill", str(path), "--model", str(small_filler), "--no-picture"]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ended.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert not (tmp_path / "data.filled.csv").exists()


def test_help_teaches(capsys):
    assert main(["fill", "--help"]) == 0
    said = capsys.readouterr().out
    for word in ("--every 1d --until", "--bounds 0:1", "NAME_filled", "--by station", "--report"):
        assert word in said


def test_without_the_extra_it_says_what_to_install(monkeypatch, fill):
    monkeypatch.setitem(sys.modules, "pandas", None)
    ran = fill("t,y\n1,2\n2,\n")
    assert ran.code == 2
    assert "pip install 'fillin[fill]'" in ran.wrong
    with pytest.raises(InputError, match="fillin\\[fill\\]"):
        fillin.fill(pl.DataFrame({"x": ["a"], "y": [1.0]}))
