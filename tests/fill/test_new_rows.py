"""New rows: steps by the calendar and the wall clock, locations of another file, and dates written as they came."""

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from fillin.tabular.dates import Clock

pytest_plugins = ["support.fill_command"]


def test_steps_between_and_beyond(fill):
    ran = fill("t,y,z\n0,1,a\n2,,b\n4,3,c\n", "--every", "1", "--until", "6")
    result = ran.frame
    assert result["t"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert result["z"].isna().tolist() == [False, True, False, True, False, True, True]
    assert result["y_filled"].notna().all()
    assert (result["y_std"] == 0).tolist() == [True, False, False, False, True, False, False]
    assert "new rows: 4" in ran.stdout
    falling = fill("t,y\n4,1\n2,2\n0,3\n", "--every", "1", name="falling.csv").frame
    assert falling["t"].tolist() == [4, 3, 2, 1, 0]


def test_a_step_that_meets_all_rows_up_to_rounding_adds_none(fill):
    months = "".join(f"{1949 + i / 12:.8f},{i}\n" for i in range(40))
    result = fill("time,y\n" + months, "--every", "0.08333333", "--until", "1953").frame
    assert len(result) == 49
    assert np.diff(result["time"]).min() > 0.08


def test_months_follow_the_calendar(fill):
    result = fill("t,y\n2024-01-31,1\n2024-03-31,\n2024-05-31,2\n", "--every", "1mo", "--until", "2024-07-31").frame
    assert result["t"].tolist() == [
        f"2024-{d}" for d in ("01-31", "02-29", "03-31", "04-30", "05-31", "06-30", "07-31")
    ]


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
def test_times_are_written_in_the_format_of_the_input(fill, first, second, step, between):
    result = fill(f"date,y\n{first},1\n{second},3\n", "--every", step)
    assert result.code == 0, result.stderr
    assert [line.split(",")[0] for line in result.path.read_text().splitlines()] == ["date", first, between, second]


def test_offsets_that_differ_are_instants(fill):
    """As pandas writes a night of summer time: 01:59 is followed by 03:00."""
    times = pd.date_range("2024-03-31", periods=6, freq="h", tz="Europe/Berlin")
    values = [1, None, 2, None, 3, 1]
    ran = fill(pd.DataFrame({"t": times, "y": values}).to_csv(index=False))
    result, plain = ran.frame, pd.DataFrame({"t": times.tz_convert("UTC"), "y": values})
    assert result["t"].tolist() == [str(time) for time in times]
    straight = fill(plain.to_csv(index=False), name="utc.csv").frame
    np.testing.assert_allclose(result["y_filled"], straight["y_filled"])
    assert "UTC" not in ran.stdout
    ran = fill(pd.DataFrame({"t": times, "y": values}).to_csv(index=False), "--every", "30min", "--force")
    assert "t has dates with several UTC offsets: new ones are written in UTC" in ran.stdout
    assert ran.frame["t"][:5].tolist() == [
        "2024-03-31 00:00:00+01:00", "2024-03-30 23:30:00+00:00", "2024-03-31 01:00:00+01:00",
        "2024-03-31 00:30:00+00:00", "2024-03-31 03:00:00+02:00",
    ]  # fmt: skip
    assert len(ran.frame) == 11


def test_days_of_a_zone_with_daylight_saving_follow_the_wall_clock():
    zone = ZoneInfo("Europe/Berlin")
    clock = Clock(zone=zone)
    first = int(datetime(2024, 3, 30, 12, tzinfo=zone).timestamp() * 1e6)
    ticks = clock.steps(first, first + int(3 * 86400e6), "1d", "")
    assert (np.diff(ticks[:3]) / 3.6e9).tolist() == [23, 24]
    assert clock.to_text(ticks)[0].endswith("12:00:00") == clock.to_text(ticks)[1].endswith("12:00:00")


def test_locations_of_another_file(fill, tmp_path):
    locations = tmp_path / "locations.csv"
    locations.write_text("who,t\na,5\na,2\nb,7\n")
    result = fill("t,y,who\n1,1,a\n2,3,a\n1,2,b\n3,5,b\n", "--by", "who", "--at", str(locations)).frame
    assert list(zip(result["who"], result["t"], strict=True)) == [
        ("a", 1),
        ("a", 2),
        ("a", 5),
        ("b", 1),
        ("b", 3),
        ("b", 7),
    ]
    locations.write_text("when\n5\n")
    result = fill("t,y\n1,1\n2,3\n", "--at", str(locations), "--force").frame
    assert result["t"].tolist() == [1, 2, 5]
