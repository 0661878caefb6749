"""Series that inform each other: columns, groups, covariates, new rows and bad input."""

import numpy as np
import pandas as pd
import pytest
import torch

import fillin
from fillin.errors import FillinError, FillinWarning
from fillin.filling.plan import make_plan

N = 120


@pytest.fixture(scope="module")
def model():
    """A sheet model with random weights that predicts what its last guide does."""
    torch.manual_seed(0)
    model = fillin.create("sheet", size="small", layers=1).eval()
    with torch.no_grad():
        logits, *_ = model.head.out.bias.view(2, 3, model.head.anchors, 2).unbind(1)
        logits[:, -1] += 6
    return model


@pytest.fixture
def frame():
    """Two columns that go together, of which the first misses a block, and one of noise."""
    random = np.random.default_rng(0)
    level = np.cumsum(random.normal(size=N))
    a = level.copy()
    a[40:70] = np.nan
    return pd.DataFrame({"day": np.arange(N), "a": a, "b": 3 * level + 5, "c": random.normal(size=N)}), level


def error(filled, level) -> float:
    return float(np.sqrt(np.mean((filled["a_filled"] - level)[40:70] ** 2)))


def test_complete_columns_inform(frame, model):
    data, level = frame
    filled = fillin.fill(data, model=model)
    alone = fillin.fill(data, model=model, alone=True)
    assert error(filled, level) < 0.2 * error(alone, level)
    assert (filled["a_std"][40:70] < alone["a_std"][40:70]).all()
    assert list(filled.columns) == [*data.columns, "a_filled", "a_std", "a_low", "a_high"]
    assert filled["a_filled"].dropna().to_numpy()[:40].tolist() == data["a"][:40].tolist()


def test_covariates_are_never_filled_and_only_they_inform(frame, model):
    data, level = frame
    data.loc[5, "b"] = np.nan
    filled = fillin.fill(data, covariate="b", model=model)
    assert "b_filled" not in filled
    assert error(filled, level) < 0.2 * error(fillin.fill(data, covariate="c", y="a", model=model), level)


def test_groups_inform_each_other(frame, model):
    data, level = frame
    long = data[["day", "a", "b"]].melt("day", var_name="station", value_name="level")
    filled = fillin.fill(long.sample(frac=1, random_state=0), x="day", by="station", model=model).sort_index()
    missing = filled["level"].isna()
    assert missing.sum() == 30
    assert np.sqrt(np.mean((filled["level_filled"][missing] - level[40:70]) ** 2)) < 0.3


def test_groups_without_common_locations_are_filled(frame, model):
    data, _ = frame
    first, second = data[["day", "a"]].iloc[::2], data[["day", "a"]].iloc[1::2]
    long = pd.concat([first.assign(station="x"), second.assign(station="y")])
    filled = fillin.fill(long, x="day", by="station", model=model)
    assert filled["a_filled"].notna().all()


def test_new_rows_are_predicted_for_all_columns(frame, model):
    data, _ = frame
    filled = fillin.fill(data, every=1, until=N + 4, model=model)
    assert filled["day"].tolist() == list(range(N + 5))
    for name in "abc":
        assert filled[f"{name}_filled"].notna().all()
        assert (filled[f"{name}_std"][N:] > 0).all()


def test_a_covariate_known_in_the_future_informs_a_forecast(frame, model):
    data, level = frame
    data["a"] = level
    data.loc[100:, "a"] = np.nan
    filled = fillin.fill(data, covariate="b", y="a", model=model)
    assert np.abs(filled["a_filled"] - level)[100:].max() < 0.5


def test_bounds_hold_for_each_column(frame, model):
    data, _ = frame
    data["a"] -= data["a"].min()
    filled = fillin.fill(data, bounds={"a": (0, None)}, model=model)
    assert (filled["a_low"][40:70] >= 0).all()


def test_a_periodic_x_has_neighbours_across_its_ends(model):
    x = np.arange(0, 360, 3.0)
    a = np.cos(np.radians(x))
    data = pd.DataFrame({"angle": x, "a": a, "b": np.sin(np.radians(2 * x))})
    data.loc[:4, "a"] = np.nan
    filled = fillin.fill(data, period=360, model=model)
    assert np.abs(filled["a_filled"] - a)[:5].max() < 0.1


def test_errors_belong_to_the_filled_column(frame, model):
    data, _ = frame
    data["sigma"] = 0.1
    filled = fillin.fill(data, y="a", y_err="sigma", model=model)
    assert filled["a_filled"].notna().all()


@pytest.mark.parametrize("column", ["constant", "copy", "text", "gap"])
def test_odd_columns_do_no_harm(column, frame, model):
    data, level = frame
    plain = error(fillin.fill(data, y="a", model=model), level)
    data["odd"] = {"constant": 4.0, "copy": data["b"], "text": "word", "gap": np.nan}[column]
    assert error(fillin.fill(data, y="a", model=model), level) < 1.05 * plain + 0.02


def test_repeated_measurements_are_rows_of_their_own(frame, model):
    data, _ = frame
    data.loc[10, "day"] = 9
    with pytest.warns(FillinWarning, match="repeated measurements"):
        filled = fillin.fill(data, x="day", y="a", kind="series", model=model)
    assert filled["a_filled"].notna().all()
    assert len(filled) == N


def test_more_columns_than_rows(model):
    random = np.random.default_rng(0)
    values = random.normal(size=(10, 1)) + 0.1 * random.normal(size=(10, 40))
    values[3, 7] = np.nan
    data = pd.DataFrame(values, columns=[f"s{i}" for i in range(40)]).assign(t=np.arange(10))
    filled = fillin.fill(data, x="t", model=model)
    assert abs(filled["s7_filled"][3] - values[3, 8]) < 0.6


def test_long_records_are_filled_in_windows(frame, model):
    random = np.random.default_rng(0)
    level = np.cumsum(random.normal(size=3000))
    data = pd.DataFrame({"t": np.arange(3000), "a": level, "b": 2 * level})
    data.loc[random.random(3000) < 0.1, "a"] = np.nan
    data.loc[1000:1800, "a"] = np.nan
    filled = fillin.fill(data, model=model)
    assert np.sqrt(np.mean((filled["a_filled"] - level) ** 2)) < 0.3


def test_hold_out_scores_use_the_other_columns(frame, model):
    data, _ = frame
    plan = make_plan(data, {})
    prediction = plan.run(model)
    scores = plan.holdout(model, prediction)
    assert {score.name for score in scores} == {"points at random", "blocks"}
    assert all(score.skill > 0.8 for score in scores)
    alone = make_plan(data, {"alone": True})
    assert all(score.skill < 0.8 for score in alone.holdout(model, alone.run(model)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariate": "a", "y": "a"}, "cannot be a covariate and have another role"),
        ({"covariate": "day"}, "cannot be a covariate and have another role"),
        ({"covariate": "nothing"}, "nothing"),
        ({"covariate": "b", "alone": True}, "give one of them"),
        ({"covariate": "word"}, "a covariate must be numbers"),
    ],
)
def test_bad_covariates_are_errors(options, message, frame, model):
    data, _ = frame
    data["word"] = "x"
    with pytest.raises(FillinError, match=message):
        fillin.fill(data, model=model, **options)


def test_long_gaps_and_uncertain_values_stay_missing(frame, model):
    data, _ = frame
    data.loc[5, "a"] = np.nan
    filled = fillin.fill(data, max_gap=4, model=model)
    assert np.flatnonzero(filled["a_filled"].isna()).tolist() == list(range(40, 70))
    assert np.isfinite(filled["a_std"][5])
    everything = fillin.fill(data, model=model)
    limit = float(everything["a_std"][40:70].median())
    certain = fillin.fill(data, max_std=limit, model=model)
    assert (certain["a_filled"].isna() == (everything["a_std"] > limit)).all()


def test_a_gap_beyond_the_end_is_counted_from_the_last_observation(frame, model):
    data, level = frame
    data["a"] = np.where(np.arange(N) < 110, level, np.nan)
    filled = fillin.fill(data, max_gap=3, model=model)
    assert np.flatnonzero(filled["a_filled"].isna()).tolist() == list(range(113, N))


def test_the_command_reports_what_stays_missing(tmp_path, frame, model, capsys):
    from fillin.cli import main

    data, _ = frame
    data["day"] = pd.date_range("2024-01-01", periods=N, freq="h")
    data.to_csv(tmp_path / "log.csv", index=False)
    weights = str(fillin.save(model, tmp_path / "model"))
    assert main(["fill", str(tmp_path / "log.csv"), "--model", weights, "--max-gap", "5h"]) == 0
    assert "30 of 30 missing values stay missing: only gaps up to 5h are filled" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{"max_gap": "long"}, {"max_gap": -1}, {"max_std": 0.0}])
def test_bad_limits_are_errors(options, frame, model):
    with pytest.raises(FillinError, match=next(iter(options))):
        fillin.fill(frame[0], model=model, **options)


def test_the_report_names_the_sources_of_each_column(frame, model, tmp_path):
    data, _ = frame
    weights = str(fillin.save(model, tmp_path / "model"))
    plan = make_plan(data, {"model": weights})
    (line,) = [line for line in plan.assumptions() if line.startswith("a: ")]
    assert "most informative: b (" in line
    alone, joint = (float(part.split(" ")[0]) for part in (line.split("about ")[1], line.split("and ")[1]))
    assert joint < 0.2 * alone
    assert not any(line.startswith("a: ") for line in make_plan(data, {"model": weights, "alone": True}).assumptions())


def test_a_column_without_values_in_one_group_is_no_source(frame, model, tmp_path):
    """The report of such data is made without a warning, which would be an error here."""
    data, level = frame
    parts = [data[["day", "a"]].assign(b=level, station="x"), data[["day", "a"]].assign(b=np.nan, station="y")]
    weights = str(fillin.save(model, tmp_path / "model"))
    plan = make_plan(pd.concat(parts, ignore_index=True), {"model": weights, "by": "station", "x": "day"})
    assert set(plan.run(plan.load_model())) == {"a"}
    lines = [line for line in plan.assumptions() if "most informative" in line]
    assert [line.split(":")[0] for line in lines] == ["a of x", "a of y"]
    assert all(line.endswith("most informative: b of x (100%).") for line in lines)  # the other `a` lacks the same rows


def test_too_large_a_sheet_is_filled_column_by_column_and_the_report_says_so(frame, model, tmp_path, monkeypatch):
    monkeypatch.setattr("fillin.filling.series.sheet.MAX_SHEET_CELLS", 10)
    weights = str(fillin.save(model, tmp_path / "model"))
    plan = make_plan(frame[0], {"model": weights})
    assert [sheet.names for sheet in plan.sheets] == [[("a", "")]]
    assert "Each column and group is predicted from its own observed values only." in plan.assumptions()
