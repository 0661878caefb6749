"""Scattered observations: unchanged input, invariances, new rows, repeats and groups."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from support.scattered_points import BOUND_COLUMNS, surface, wells

import fillin
from fillin.filling.plan import make_plan
from fillin.filling.scattered.plan import ScatteredPlan
from fillin.filling.series.plan import SeriesPlan

pytest_plugins = ["support.field_command"]
X = ["lon", "lat"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return wells()


def test_missing_values_are_predicted_and_observed_ones_kept(frame):
    filled = fillin.fill(frame, x=X, y="nitrate")
    missing = frame["nitrate"].isna()
    pd.testing.assert_frame_equal(filled[frame.columns.tolist()], frame)
    assert filled.columns.tolist() == [*frame.columns, *BOUND_COLUMNS]
    assert (filled.loc[~missing, "nitrate_std"] == 0).all()
    np.testing.assert_array_equal(filled.loc[~missing, "nitrate_filled"], frame.loc[~missing, "nitrate"])
    truth = surface(frame.loc[missing, X].to_numpy())
    assert np.sqrt(np.mean((filled.loc[missing, "nitrate_filled"] - truth) ** 2)) < 0.1
    assert (filled.loc[missing, "nitrate_low"] < truth).mean() > 0.8
    assert filled.attrs["fillin"][0].startswith("the frame: scattered observations over lon (")


@pytest.mark.parametrize("n", [120, 700])
def test_the_order_of_rows_changes_nothing(model, n):
    frame = wells(n)
    order = np.random.default_rng(1).permutation(n)
    straight = fillin.fill(frame, x=X, model=model)
    shuffled = fillin.fill(frame.iloc[order].reset_index(drop=True), x=X, model=model)
    pd.testing.assert_frame_equal(shuffled, straight.iloc[order].reset_index(drop=True), check_exact=False, rtol=1e-6)


@pytest.mark.parametrize("n", [120, 700])
def test_shifted_coordinates_change_nothing(model, n):
    frame = wells(n)
    shifted = frame.assign(lon=frame["lon"] + 512, lat=frame["lat"] - 64)
    one, other = (fillin.fill(data, x=X, model=model) for data in (frame, shifted))
    np.testing.assert_allclose(one[BOUND_COLUMNS], other[BOUND_COLUMNS], rtol=1e-4, atol=1e-6)


def test_units_of_a_coordinate_change_little():
    frame = wells(500, 50)
    scaled = frame.assign(lon=frame["lon"] * 1000)
    one, other = (fillin.fill(data, x=X)[BOUND_COLUMNS] for data in (frame, scaled))
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_a_prediction_does_not_depend_on_the_other_queries(model):
    frame, random = wells(700), np.random.default_rng(2)
    at = pd.DataFrame(random.random((60, 2)).round(6), columns=X)
    everything = fillin.fill(frame, x=X, at=at, model=model)[-60:]
    alone = pd.concat([fillin.fill(frame, x=X, at=at[i : i + 1], model=model)[-1:] for i in range(0, 60, 12)])
    np.testing.assert_allclose(alone[BOUND_COLUMNS], everything[BOUND_COLUMNS][::12], rtol=1e-5)


def test_repeated_observations_of_one_location():
    """The mean of many observations decides, and they do not crowd out other locations."""
    frame, random = wells(300), np.random.default_rng(0)
    repeats = pd.DataFrame({"well": "R", "lon": 0.5, "lat": 0.5, "nitrate": 10.5 + 0.3 * random.standard_normal(1000)})
    query = pd.DataFrame({"well": "Q", "lon": [0.5, 0.51], "lat": 0.5, "nitrate": np.nan})
    filled = fillin.fill(pd.concat([frame, repeats, query], ignore_index=True), x=X, y="nitrate")
    assert np.isfinite(filled["nitrate_filled"]).all()
    assert np.abs(filled["nitrate_filled"][-2:] - 10.5).max() < 0.3
    alone = fillin.fill(frame, x=X, y="nitrate")
    far = frame["nitrate"].isna() & (np.hypot(frame["lon"] - 0.5, frame["lat"] - 0.5) > 0.4)
    rows = np.flatnonzero(far)
    np.testing.assert_allclose(
        filled["nitrate_filled"].to_numpy()[rows], alone["nitrate_filled"].to_numpy()[rows], atol=0.1
    )


def test_a_row_that_is_doubled_with_another_value_is_sensible(frame):
    double = frame.dropna()[:1].assign(nitrate=lambda row: row["nitrate"] + 0.1)
    filled = fillin.fill(pd.concat([frame, double], ignore_index=True), x=X, y="nitrate")
    once = fillin.fill(frame, x=X, y="nitrate")
    np.testing.assert_allclose(filled["nitrate_filled"][: len(frame)], once["nitrate_filled"], atol=0.2)


def test_new_rows_follow_in_the_order_of_their_table(frame, model):
    first = frame[X].iloc[[3]]
    at = pd.concat([pd.DataFrame({"lon": [0.9, 0.1, 0.9], "lat": [0.1, 0.2, 0.1]}), first])
    filled = fillin.fill(frame, x=X, at=at, model=model)
    assert len(filled) == len(frame) + 2  # neither the repeated location nor that of a row
    assert filled[X][-2:].to_numpy().tolist() == [[0.9, 0.1], [0.1, 0.2]]
    assert filled["well"][-2:].isna().all()
    assert (filled["nitrate_std"][-2:] > 0).all()
    array = fillin.fill(frame, x=X, at=at.to_numpy(), model=model)
    pd.testing.assert_frame_equal(array, filled)


def test_groups_are_filled_separately(frame, model):
    both = pd.concat([frame.assign(aquifer="a"), frame.assign(aquifer="b", nitrate=frame["nitrate"] + 50)])
    both = both.sample(frac=1, random_state=0).reset_index(drop=True)
    filled = fillin.fill(both, x=X, y="nitrate", by="aquifer", model=model)
    alone = fillin.fill(frame, x=X, y="nitrate", model=model).set_index("well")
    for name, offset in (("a", 0), ("b", 50)):
        part = filled[filled["aquifer"] == name].set_index("well").loc[alone.index]
        np.testing.assert_allclose(part["nitrate_filled"] - offset, alone["nitrate_filled"], rtol=1e-4)
    at = pd.DataFrame({"lon": [0.9], "lat": [0.1], "aquifer": ["b"]})
    assert fillin.fill(both, x=X, y="nitrate", by="aquifer", at=at, model=model)["aquifer"].tolist()[-1] == "b"
    lonely = pd.concat([both, both[:1].assign(aquifer="c"), both[:1].assign(aquifer="c", nitrate=np.nan)])
    with pytest.warns(match="fewer than 2 values of nitrate of c are observed: left missing"):
        filled = fillin.fill(lonely, x=X, y="nitrate", by="aquifer", model=model)
    assert np.isnan(filled["nitrate_filled"].iloc[-1])


def test_rows_without_a_coordinate_are_noted_and_not_used(frame, model):
    incomplete = frame.copy()
    row, gap = int(frame["nitrate"].first_valid_index()), int(np.flatnonzero(frame["nitrate"].isna())[0])
    incomplete.loc[row, "lat"] = np.nan
    incomplete.loc[gap, "lon"] = np.nan
    with pytest.warns(match="2 rows have no lon or no lat"):
        filled = fillin.fill(incomplete, x=X, y="nitrate", model=model)
    assert np.isnan(filled["nitrate_filled"][gap])
    assert filled["nitrate_filled"][row] == frame["nitrate"][row]
    without = fillin.fill(frame.drop(index=[row, gap]), x=X, y="nitrate", model=model)
    rest = filled.drop(index=[row, gap])
    np.testing.assert_allclose(rest["nitrate_filled"], without["nitrate_filled"], rtol=1e-6)


def test_uncertain_values_stay_missing(frame):
    filled = fillin.fill(frame, x=X, y="nitrate")
    limit = float(filled["nitrate_std"][frame["nitrate"].isna()].median())
    certain = fillin.fill(frame, x=X, y="nitrate", max_std=limit)
    assert (certain["nitrate_filled"].isna() == (filled["nitrate_std"] > limit)).all()


def test_bounds_hold(frame):
    low = frame.assign(nitrate=np.maximum(frame["nitrate"] - 10, 0))
    filled = fillin.fill(low, x=X, y="nitrate", bounds=(0, None))
    assert (filled[["nitrate_filled", "nitrate_low"]].min() >= 0).all()


def test_errors_of_the_values_are_used(frame):
    sure, unsure = (fillin.fill(frame.assign(e=e), x=X, y="nitrate", y_err="e") for e in (0.001, 0.5))
    missing = frame["nitrate"].isna()
    assert not np.allclose(sure["nitrate_filled"][missing], unsure["nitrate_filled"][missing])


def test_a_periodic_coordinate(frame):
    """A cell beside the seam is predicted as if the seam were elsewhere."""
    random = np.random.default_rng(0)
    x = random.random((400, 2)) * [360, 90]
    y = np.sin(np.deg2rad(x[:, 0])) + x[:, 1] / 90
    data = pd.DataFrame({"lon": x[:, 0], "lat": x[:, 1], "v": y})
    at = pd.DataFrame({"lon": [0.1, 359.9, 90.0], "lat": [45.0, 45.0, 45.0]})
    period = {"lon": 360}
    filled = fillin.fill(data, x=X, at=at, period=period)[-3:]["v_filled"]
    assert abs(filled.iloc[0] - filled.iloc[1]) < 0.02
    shifted = data.assign(lon=(data["lon"] + 123) % 360)
    there = fillin.fill(shifted, x=X, at=at.assign(lon=(at["lon"] + 123) % 360), period=period)[-3:]["v_filled"]
    np.testing.assert_allclose(filled, there, atol=0.03)


def test_time_as_a_third_coordinate():
    frame = wells(200, 20)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(200) % 40, "D")
    frame = frame.assign(day=days, nitrate=frame["nitrate"] + 0.05 * (np.arange(200) % 40))
    filled = fillin.fill(frame, x=[*X, "day"], y="nitrate", at=pd.DataFrame({
        "lon": [0.4], "lat": [0.4], "day": [pd.Timestamp("2024-01-05 12:00")]
    }))  # fmt: skip
    assert filled["nitrate_filled"].notna().all()
    assert filled["day"].iloc[-1] == pd.Timestamp("2024-01-05 12:00")
    text = frame.assign(day=frame["day"].dt.strftime("%d.%m.%Y"))
    same = fillin.fill(text, x=[*X, "day"], y="nitrate")
    np.testing.assert_allclose(same["nitrate_filled"], filled["nitrate_filled"][:-1], rtol=1e-5)


def test_polars_and_one_column_in_a_list(frame, model):
    filled = fillin.fill(pl.from_pandas(frame), x=X, y="nitrate", model=model)
    assert isinstance(filled, pl.DataFrame)
    assert filled["nitrate_filled"].null_count() == 0
    one = {"x": ["lon"], "y": "nitrate", "kind": "series"}
    assert isinstance(make_plan(frame, one), SeriesPlan)
    assert isinstance(make_plan(frame, {"x": X, "y": "nitrate"}), ScatteredPlan)


def test_hold_out_scores(frame):
    plan = make_plan(wells(200, 10), {"x": X, "y": "nitrate"})
    prediction, ticks = plan.run(model := plan.load_model()), []
    scores = plan.holdout(model, prediction, ticks.append)
    assert [score.name for score in scores] == ["points at random", "blocks"]
    assert sum(ticks) == plan.n_holdout_steps
    assert scores[0].rmse < 0.5
    assert scores[0].coverage_95 > 0.8


def test_ticks_count_every_query_once(model):
    plan, ticks = make_plan(wells(700, 60), {"x": X, "y": "nitrate", "grid": 0.1}), []
    plan.run(model, ticks.append)
    assert sum(ticks) == plan.n_steps


def test_a_table_with_names_of_coordinates_is_noted(frame):
    notes = [note.shell for note in make_plan(frame, {}).notes]
    assert any("pass --x lon --x lat" in note for note in notes)
    plain = frame.rename(columns={"lon": "a", "lat": "b"})
    assert not any("--x a --x b" in note.shell for note in make_plan(plain, {}).notes)
