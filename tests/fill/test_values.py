"""Filled values are the predictions of the model for any order, units, groups and number of rows."""

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


def test_predictions_do_not_depend_on_the_order_of_rows(fill):
    frame = days()
    straight = fill(csv(frame)).frame.set_index("day")
    shuffled = fill(csv(frame.sample(frac=1, random_state=1)), name="shuffled.csv").frame.set_index("day")
    pd.testing.assert_frame_equal(straight, shuffled.loc[straight.index])


@pytest.mark.parametrize("factor", [1e30, 1e-30])
def test_predictions_are_equivariant_to_units(fill, factor):
    frame = waves()
    plain, scaled = fill(csv(frame)).frame, frame.assign(x=1e6 * frame["x"] + 5e6, y=factor * frame["y"])
    other = fill(csv(scaled), name="scaled.csv").frame
    for part in PARTS:
        np.testing.assert_allclose(other[f"y_{part}"] / factor, plain[f"y_{part}"], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("values", [[5, None, 5, 5], [0, None, 0, 0], [7, None, None, None]])
def test_constant_and_single_points_give_finite_predictions(fill, values):
    result = fill(csv(pd.DataFrame({"x": [1, 2, 3, 4], "y": values}))).frame
    assert np.isfinite(result[[f"y_{part}" for part in PARTS]]).all().all()


def test_groups_are_filled_independently(fill):
    first, second = waves().assign(who="a"), waves(seed=1).assign(who="b", y=lambda f: 100 * f["y"])
    mixed = pd.concat([first, second]).sort_values("x")
    both = fill(csv(mixed), "--by", "who").frame
    for name, frame in (("a", first), ("b", second)):
        alone = fill(csv(frame), name=f"{name}.csv").frame
        pd.testing.assert_frame_equal(both[both["who"] == name].reset_index(drop=True), alone)


@pytest.mark.parametrize("order", [["date", "time", "y"], ["time", "date", "y"]])
def test_columns_of_dates_and_times_of_day_are_combined(fill, order):
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


def test_differences_of_nanoseconds_are_exact(fill, small_filler):
    start, frame = 1_700_000_000_000_000_000, waves(24)
    large = pd.DataFrame({"t": start + np.arange(24) * 10, "y": frame["y"]})
    small = large.assign(t=large["t"] - start)
    expected = fill(csv(small), "--every", "5", "--until", "250", name="small.csv").frame
    ran = fill(csv(large), "--every", "5", "--until", str(start + 250))
    assert [int(t) - start for t in pd.read_csv(ran.path, dtype=str)["t"]] == expected["t"].tolist()
    np.testing.assert_array_equal(ran.frame["y_filled"], expected["y_filled"])
    (ran.path.parent / "at.csv").write_text(f"t\n{start + 3}\n")
    at = fill(csv(large), "--at", str(ran.path.parent / "at.csv"), "--force")
    assert f"\n{start + 3}," in at.path.read_text()
    result = fillin.fill(large, every=5, until=start + 250, model=small_filler)
    assert (result["t"] - start).tolist() == expected["t"].tolist()
    np.testing.assert_allclose(result["y_filled"], expected["y_filled"], rtol=1e-3)


def test_repeated_locations_are_noted(fill):
    ran = fill("date,y\n2024-01-01,1\n2024-01-01,2\n2024-01-02,\n2024-01-03,3\n")
    assert "2 rows share their location with another row: read as repeated measurements" in ran.stdout
    assert "share" not in fill("date,y\n2024-01-01,1\n2024-01-02,\n2024-01-03,3\n", "--force").stdout


def test_a_coordinate_can_be_periodic(fill):
    angle = np.arange(5, 360, 10.0)
    frame = pd.DataFrame({"angle": angle, "y": np.cos(np.radians(angle)).round(6)})
    frame.loc[[0, 20, 35], "y"] = None
    here = fill(csv(frame), "--period", "360").frame
    turned = frame.assign(angle=frame["angle"] + 720)
    there = fill(csv(turned), "--period", "360", name="turned.csv").frame
    np.testing.assert_allclose(there["y_filled"], here["y_filled"], rtol=1e-4, atol=1e-4)
    open_ended = fill(csv(frame), name="open.csv").frame
    assert abs(open_ended["y_filled"][0] - here["y_filled"][0]) > 1e-4


class RecordingProcess(ExactProcess):
    """Gaussian process that records its inputs."""

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        self.inputs = [*getattr(self, "inputs", []), (xc, yc, xt)]
        return super().forward(xc, yc, xt)


def test_a_period_copies_observed_points_to_both_sides():
    process = RecordingProcess()
    fillin.fill(pd.DataFrame({"a": [10.0, 100, 350], "y": [1.0, None, 3.0]}), period=360, model=process)
    xc, yc, _ = process.inputs[-1]
    x = (xc - xc.min())[0, :, 0] * 1060  # their width is the unit: from 10 − 360 to 350 + 360
    assert [round(float(v)) for v in x.sort().values] == [0, 340, 360, 700, 720, 1060]
    assert yc.numel() == 6


def test_measurement_errors_are_used(fill):
    frame = waves().assign(sigma=[0.5 if i % 2 else None for i in range(40)])
    without, given = fill(csv(frame), "--y", "y").frame, fill(csv(frame), "--y-err", "sigma", "--force").frame
    assert list(given.columns) == ["x", "y", "sigma", *(f"y_{part}" for part in PARTS)]
    assert not np.allclose(without["y_filled"], given["y_filled"])


def test_filled_values_are_the_predictions_of_the_model():
    """Values filled by an exact Gaussian process equal Gaussian process regression."""
    x = np.linspace(0, 1, 21)
    y = np.sin(6 * x)
    y[7:12] = np.nan
    y -= np.nanmean(y)
    y /= np.nanmax(np.abs(y))  # the model receives them without rescaling
    process = ExactProcess(length=0.2, noise=0.05)
    result = fillin.fill(pd.DataFrame({"x": x, "y": y}), model=process, level=0.9)
    missing = np.isnan(y)
    as_tensor = lambda v: torch.tensor(v, dtype=torch.float32).view(1, -1, 1)  # noqa: E731
    exact = process(as_tensor(x[~missing]), as_tensor(y[~missing]), as_tensor(x[missing]))
    np.testing.assert_allclose(result["y_filled"][missing], exact.mean.flatten(), atol=1e-5)
    np.testing.assert_allclose(result["y_std"][missing], exact.stddev.flatten(), atol=1e-5)
    np.testing.assert_allclose(
        result["y_high"][missing] - result["y_filled"][missing], 1.6449 * result["y_std"][missing], rtol=1e-3
    )


def test_long_series_are_predicted_in_bounded_batches():
    """There are far more locations than one batch holds; contexts and targets stay small."""
    process = RecordingProcess(length=0.001, noise=0.01)
    n = 6000
    y = np.sin(np.arange(n) / 50)
    y[np.random.default_rng(0).permutation(n)[: n // 3]] = np.nan
    result = fillin.fill(pd.DataFrame({"x": np.arange(n), "y": y}), model=process)
    assert max(xc.shape[1] for xc, _, _ in process.inputs) <= 512
    assert max(xt.shape[1] for _, _, xt in process.inputs) <= 1024
    assert np.abs(result["y_filled"] - np.sin(np.arange(n) / 50)).max() < 0.5


def test_far_extrapolation_widens_intervals_and_keeps_the_mean(small_filler):
    x, y = np.linspace(0, 1, 20)[:, None], np.sin(7 * np.linspace(0, 1, 20))[:, None]
    far = np.array([4.0, 5, 10, 100, 1e6])[:, None]
    for side in (far, 1 - far):
        prediction = Context(fillin.load(small_filler), x, y).predict(side)
        np.testing.assert_allclose(
            prediction.mean, np.broadcast_to(prediction.mean[:1], prediction.mean.shape), rtol=1e-5
        )
        growth = np.sqrt(np.maximum(far[:, 0] - 1, 3) / 3)
        spread = prediction.stds[:, 0] / prediction.stds[:1, 0]
        np.testing.assert_allclose(spread, np.broadcast_to(growth[:, None], spread.shape), rtol=1e-5)


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e160, 1e290])
def test_standard_deviations_of_any_magnitude(small_filler, size):
    x, y = np.linspace(0, 1, 9)[:, None], np.cos(np.arange(9.0))[:, None]
    unit, scaled = (Context(fillin.load(small_filler), x, scale * y).predict(x + 0.05) for scale in (1.0, size))
    np.testing.assert_allclose(scaled.std / size, unit.std, rtol=1e-4)
    np.testing.assert_allclose(scaled.quantile(0.9) / size, unit.quantile(0.9), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("unit", [1.0, 1e-30, -1e6])
def test_uncertainty_falls_from_one_value_to_a_constant(unit):
    """The standard deviation of the model is one in the units of its input."""
    widths = []
    for observed in ([7], [7, 8], [7, 7], [7] * 3, [7] * 12):
        y = unit * np.array([*observed, np.nan])
        result = fillin.fill(
            pd.DataFrame({"x": np.arange(len(y)), "y": y}), x="x", y="y", model=RecordingProcess(length=1e-9)
        )
        widths.append(result["y_std"].iloc[-1] / abs(unit))
    assert 5 < widths[0] < 10
    assert 1 < widths[1] < 5
    assert 0.01 < widths[2] < 0.1
    assert widths[2] >= widths[3] >= widths[4] > 0


@pytest.mark.parametrize("values", [[300.0, 300.0], [300.0, 300.0, 300.0], [0.1 + 0.2, 0.3, 0.3]])
def test_nearly_equal_values_are_as_certain_as_equal_ones(values):
    """Two values that differ by rounding only are treated as equal."""
    frame = pd.DataFrame({"x": range(len(values) + 1), "y": [*values, None]})
    other = frame.assign(y=frame["y"].where(frame["x"] > 0, values[-1] * (1 + 1e-13)))
    equal, nearly_equal = (
        fillin.fill(f, x="x", y="y", model=RecordingProcess())["y_std"].iloc[-1] for f in (frame, other)
    )
    assert equal == pytest.approx(nearly_equal, rel=1e-6)
    assert 0 < equal < 0.02 * values[0]


def test_a_constant_stretch_of_a_long_series_is_predicted_in_its_units():
    """For a constant context, the scale comes from the rest of the series."""
    y = np.zeros(3000)
    y[2500:] = 50 * np.random.default_rng(0).random(500)
    widths = []
    for unit in (1.0, 1e-3):
        prediction = Context(RecordingProcess(length=1e-9), np.arange(3000.0)[:, None], unit * y[:, None]).predict(
            np.array([[200.5]])
        )
        widths.append(prediction.std.item() / unit)
    assert widths[0] == pytest.approx(widths[1], rel=1e-5)
    assert 0 < widths[0] < 1


def test_values_that_overflow_are_refused(small_filler):
    with pytest.raises(InputError, match="overflow float64 arithmetic; rescale them"):
        Context(fillin.load(small_filler), np.zeros((1, 1)), np.full((1, 1), 1.7e308))
