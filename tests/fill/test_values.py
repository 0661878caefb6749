"""What is filled in is the model's own answer, whatever the rows' order, units, groups and number."""

import numpy as np
import pandas as pd
import pytest
import torch
from support.fields_with_gaps import PARTS
from support.helpers import ExactProcess
from support.series_files import csv, days, waves

import fillin
from fillin.errors import InputError
from fillin.inference.context import Context

pytest_plugins = ["support.fill_command"]


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


@pytest.mark.parametrize("order", [["date", "time", "y"], ["time", "date", "y"]])
def test_dates_beside_times_of_day_are_one_time(fill, order):
    frame = waves(48)
    when = pd.date_range("2024-01-01", periods=48, freq="6h")
    apart = pd.DataFrame({"date": when.strftime("%Y-%m-%d"), "time": when.strftime("%H:%M"), "y": frame["y"]})
    ran = fill(csv(apart[order]))
    assert "date and time are read together, as one time" in ran.stdout
    assert "2024-01-01 … 2024-01-12 18:00:00" in ran.stdout
    whole = fill(csv(pd.DataFrame({"when": when, "y": frame["y"]})), name="whole.csv").frame
    parts = [f"y_{part}" for part in PARTS]
    pd.testing.assert_frame_equal(ran.frame[parts], whole[parts])
    by = pd.concat([apart.assign(who="a"), apart.assign(who="b")])
    both = fill(csv(by), "--by", "who", name="by.csv").frame
    pd.testing.assert_frame_equal(both[parts][:48], whole[parts])


def test_nanoseconds_are_as_far_apart_as_they_are(fill, small_filler):
    start, frame = 1_700_000_000_000_000_000, waves(24)
    large = pd.DataFrame({"t": start + np.arange(24) * 10, "y": frame["y"]})
    small = large.assign(t=large["t"] - start)
    wanted = fill(csv(small), "--every", "5", "--until", "250", name="small.csv").frame
    ran = fill(csv(large), "--every", "5", "--until", str(start + 250))
    assert [int(t) - start for t in pd.read_csv(ran.path, dtype=str)["t"]] == wanted["t"].tolist()
    np.testing.assert_array_equal(ran.frame["y_filled"], wanted["y_filled"])
    (ran.path.parent / "at.csv").write_text(f"t\n{start + 3}\n")
    at = fill(csv(large), "--at", str(ran.path.parent / "at.csv"), "--force")
    assert f"\n{start + 3}," in at.path.read_text()
    found = fillin.fill(large, every=5, until=start + 250, model=small_filler)
    assert (found["t"] - start).tolist() == wanted["t"].tolist()
    np.testing.assert_allclose(found["y_filled"], wanted["y_filled"], rtol=1e-3)


def test_a_few_rows_of_one_place_are_told(fill):
    ran = fill("date,y\n2024-01-01,1\n2024-01-01,2\n2024-01-02,\n2024-01-03,3\n")
    assert "2 rows share their location with another row: read as repeated measurements" in ran.stdout
    assert "share" not in fill("date,y\n2024-01-01,1\n2024-01-02,\n2024-01-03,3\n", "--force").stdout


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


def test_far_beyond_what_is_known_bands_widen_and_the_mean_stays(small_filler):
    x, y = np.linspace(0, 1, 20)[:, None], np.sin(7 * np.linspace(0, 1, 20))[:, None]
    far = np.array([4.0, 5, 10, 100, 1e6])[:, None]
    for side in (far, 1 - far):
        answer = Context(fillin.load(small_filler), x, y).predict(side)
        np.testing.assert_allclose(answer.mean, np.broadcast_to(answer.mean[:1], answer.mean.shape), rtol=1e-5)
        growth = np.sqrt(np.maximum(far[:, 0] - 1, 3) / 3)
        spread = answer.stds[:, 0] / answer.stds[:1, 0]
        np.testing.assert_allclose(spread, np.broadcast_to(growth[:, None], spread.shape), rtol=1e-5)


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e160, 1e290])
def test_deviations_of_any_size(small_filler, size):
    x, y = np.linspace(0, 1, 9)[:, None], np.cos(np.arange(9.0))[:, None]
    one, other = (Context(fillin.load(small_filler), x, scale * y).predict(x + 0.05) for scale in (1.0, size))
    np.testing.assert_allclose(other.std / size, one.std, rtol=1e-4)
    np.testing.assert_allclose(other.quantile(0.9) / size, one.quantile(0.9), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("unit", [1.0, 1e-30, -1e6])
def test_certainty_grows_from_one_value_to_a_constant(unit):
    """Of a model whose deviation is one unit of what it sees."""
    widths = []
    for known in ([7], [7, 8], [7, 7], [7] * 3, [7] * 12):
        y = unit * np.array([*known, np.nan])
        found = fillin.fill(pd.DataFrame({"x": np.arange(len(y)), "y": y}), x="x", y="y", model=Spy(length=1e-9))
        widths.append(found["y_std"].iloc[-1] / abs(unit))
    assert 5 < widths[0] < 10
    assert 1 < widths[1] < 5
    assert 0.01 < widths[2] < 0.1
    assert widths[2] >= widths[3] >= widths[4] > 0


@pytest.mark.parametrize("values", [[300.0, 300.0], [300.0, 300.0, 300.0], [0.1 + 0.2, 0.3, 0.3]])
def test_hardly_different_is_as_sure_as_the_same(values):
    """Two values that differ by nearly nothing, or any by rounding alone, are as good as equal."""
    frame = pd.DataFrame({"x": range(len(values) + 1), "y": [*values, None]})
    other = frame.assign(y=frame["y"].where(frame["x"] > 0, values[-1] * (1 + 1e-13)))
    one, two = (fillin.fill(f, x="x", y="y", model=Spy())["y_std"].iloc[-1] for f in (frame, other))
    assert one == pytest.approx(two, rel=1e-6)
    assert 0 < one < 0.02 * values[0]


def test_a_constant_stretch_of_a_long_series_is_told_in_its_units():
    """Where all of a context is the same, the rest of the series says how much it may vary."""
    y = np.zeros(3000)
    y[2500:] = 50 * np.random.default_rng(0).random(500)
    widths = []
    for unit in (1.0, 1e-3):
        answer = Context(Spy(length=1e-9), np.arange(3000.0)[:, None], unit * y[:, None]).predict(np.array([[200.5]]))
        widths.append(answer.std.item() / unit)
    assert widths[0] == pytest.approx(widths[1], rel=1e-5)
    assert 0 < widths[0] < 1


def test_values_without_room_are_refused(small_filler):
    with pytest.raises(InputError, match="overflow float64 arithmetic; rescale them"):
        Context(fillin.load(small_filler), np.zeros((1, 1)), np.full((1, 1), 1.7e308))
