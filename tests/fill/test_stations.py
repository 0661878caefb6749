"""Stations that inform each other by distance: what distances change, stations without observations, bad input."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

import fillin
from fillin.cli import main
from fillin.errors import FillinError, FillinWarning
from fillin.filling.plan import make_plan
from fillin.inference.column_groups import group_columns
from fillin.inference.sheets import SheetContext
from fillin.inference.spatial import Stations, fit_correlation
from fillin.inference.stations import krige

N, D = 90, 8


@pytest.fixture(scope="module")
def model():
    """A sheet model with random weights that predicts what its last guide does."""
    torch.manual_seed(0)
    model = fillin.create("sheet", size="small", layers=1).eval()
    with torch.no_grad():
        logits, *_ = model.head.out.bias.view(2, 3, model.head.anchors, 2).unbind(1)
        logits[:, -1] += 6
    return model


def make_stations(seed: int = 0, length: float = 300.0, n: int = N):
    """Longitudes, latitudes and values of a process that is independent from row to row, with levels and scales."""
    random = np.random.default_rng(seed)
    lon, lat = random.uniform(0, 8, D), random.uniform(45, 50, D)
    distance = Stations.on_sphere(lon, lat, np.zeros(D, int)).distances()
    factor = np.linalg.cholesky(np.exp(-distance / length) + 1e-9 * np.eye(D))
    return lon, lat, 10 + random.normal(size=D) + (1 + random.random(D)) * (random.normal(size=(n, D)) @ factor.T)


def to_frame(lon, lat, y) -> pd.DataFrame:
    rows = [
        {"day": t, "station": f"s{j}", "lon": lon[j], "lat": lat[j], "level": y[t, j]}
        for j in range(y.shape[1])
        for t in range(len(y))
    ]
    return pd.DataFrame(rows)


def test_great_circles_do_not_end_at_the_date_line():
    lon, lat = np.array([179.0, -179.0, 181.0, 0.0]), np.array([0.0, 0.0, 0.0, 0.0])
    distance = Stations.on_sphere(lon, lat, np.zeros(4, int)).distances()
    assert distance[0, 1] == pytest.approx(222.4, abs=0.1)
    assert distance[1, 2] == pytest.approx(0, abs=1e-3)


def test_kriging_finds_the_correlation_by_distance():
    lon, lat, y = make_stations(n=2_000)
    stations = Stations.on_sphere(lon, lat, np.zeros(D, int))
    z = (y - y.mean(0)) / y.std(0)
    found = fit_correlation(stations, z, np.zeros_like(z))
    assert np.abs(found - np.exp(-stations.distances() / 300)).max() < 0.08
    assert np.linalg.eigvalsh(found).min() > 0


def test_a_cell_is_predicted_without_its_own_value():
    lon, lat, y = make_stations()
    stations, x = Stations.on_sphere(lon, lat, np.zeros(D, int)), np.arange(float(N))
    first = krige(x, y, stations)
    changed = y.copy()
    changed[7, 2] += 1e-3
    assert abs(krige(x, changed, stations).mean[7, 2] - first.mean[7, 2]) < 1e-4


def test_order_and_units_of_stations_do_not_matter():
    lon, lat, y = make_stations()
    y[np.random.default_rng(1).random(y.shape) < 0.2] = np.nan
    order, x = np.random.default_rng(2).permutation(D), np.arange(float(N))
    first = krige(x, y, Stations.on_sphere(lon, lat, np.zeros(D, int)))
    other = krige(x, 7 * y[:, order] - 3, Stations.on_sphere(lon[order], lat[order], np.zeros(D, int)))
    assert np.allclose(other.mean, 7 * first.mean[:, order] - 3, atol=1e-3)
    assert np.allclose(other.std, 7 * first.std[:, order], rtol=1e-3)


def test_kriging_beats_the_mean_and_its_errors_are_as_large_as_it_says():
    lon, lat, y = make_stations(seed=3, n=400)
    found = krige(np.arange(400.0), y, Stations.on_sphere(lon, lat, np.zeros(D, int)))
    assert np.square(found.mean - y).mean() < 0.8 * np.square(y - y.mean(0)).mean()
    assert np.square((found.mean - y) / found.std).mean() == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    "y",
    [
        np.ones((20, 4)),  # equal
        np.full((20, 4), np.nan),
        np.where(np.arange(4) == 2, np.arange(20.0)[:, None], np.nan),  # one station is observed
        np.where(np.arange(80).reshape(20, 4) == 7, 1.0, np.nan),  # one value
        np.where(np.arange(20)[:, None] % 4 == np.arange(4), np.arange(80.0).reshape(20, 4), np.nan),  # no common rows
        np.random.default_rng(0).normal(size=(1, 4)),
        1e200 * np.random.default_rng(0).normal(size=(20, 4)),
        1e-200 * np.random.default_rng(0).normal(size=(20, 4)),
    ],
)
@pytest.mark.parametrize("place", [0.0, 1.0])
def test_odd_values_have_finite_predictions(y, place):
    points = place * np.random.default_rng(1).random((4, 2))  # 0: all at one
    found = krige(np.arange(float(len(y))), y, Stations(points, np.zeros(4, int)))
    assert np.isfinite(found.mean).all()
    assert (np.isfinite(found.std) & (found.std > 0)).all()


def test_variables_are_processes_of_their_own():
    lon, lat, y = make_stations()
    both = np.concatenate([y, np.random.default_rng(0).normal(size=y.shape)], 1)
    stations = Stations.on_sphere(np.tile(lon, 2), np.tile(lat, 2), np.repeat([0, 1], D))
    found, alone = (
        krige(np.arange(float(N)), both, stations),
        krige(np.arange(float(N)), y, Stations.on_sphere(lon, lat, np.zeros(D, int))),
    )
    assert np.allclose(found.mean[:, :D], alone.mean)
    assert not found.correlation[:D, D:].any()


def test_columns_of_a_group_are_near_stations_where_few_rows_are_common():
    """Each station is observed in rows of its own, so that only distances tell which are alike."""
    d = 20
    y = np.full((10 * d, d), np.nan)
    for j in range(d):
        y[10 * j : 10 * j + 10, j] = np.random.default_rng(j).normal(size=10)
    points = np.stack([np.arange(d, dtype=float), np.zeros(d)], 1)
    correlation = np.exp(-Stations(points, np.zeros(d, int)).distances() / 5)
    for columns, targets in group_columns(y, correlation):
        assert {0, 19}.isdisjoint(targets) or np.ptp(columns) <= len(columns)


def test_a_station_of_few_observations_is_filled_from_its_neighbours(model):
    lon, lat, y = make_stations(length=2_000.0)
    seen = y.copy()
    seen[10:, 0] = np.nan
    frame = to_frame(lon, lat, seen)
    near = fillin.fill(frame, x="day", by="station", station_at=["lon", "lat"], model=model)
    without = fillin.fill(frame.drop(columns=["lon", "lat"]), x="day", by="station", model=model)
    missing = frame["level"].isna()
    error, other = (np.square(f["level_filled"][missing] - y[10:, 0]).mean() for f in (near, without))
    assert error < 1.02 * other
    assert near[["lon", "lat"]].equals(frame[["lon", "lat"]])
    assert not [c for c in near.columns if c.startswith(("lon_", "lat_"))]


def test_a_station_without_observations_is_predicted_from_those_around(model):
    lon, lat, y = make_stations(length=2_000.0)
    y = y - y.mean(0) + 10
    seen = y.copy()
    seen[:, 0] = np.nan
    frame = to_frame(lon, lat, seen)
    options = {"x": "day", "by": "station", "model": model}
    with pytest.warns(FillinWarning, match="level of s0 is observed: predicted from the stations around"):
        filled = fillin.fill(frame, station_at=("lon", "lat"), draws=3, **options)
    inside = filled["station"] == "s0"
    assert np.square(filled["level_filled"][inside] - y[:, 0]).mean() < 0.6 * np.var(y[:, 0])
    assert ((filled["level_low"] < y.T.ravel()) & (y.T.ravel() < filled["level_high"]))[inside].mean() > 0.8
    draws = filled[["level_draw1", "level_draw2", "level_draw3"]][inside].to_numpy()
    assert np.isfinite(draws).all()
    assert np.ptp(draws, 1).min() > 0
    with pytest.warns(FillinWarning, match="left missing"):
        left = fillin.fill(frame.drop(columns=["lon", "lat"]), **options)
    assert left["level_filled"][inside].isna().all()


def test_bounds_hold_at_a_station_without_observations(model):
    lon, lat, y = make_stations()
    y = np.exp(0.3 * y - 3)
    y[:, 0] = np.nan
    with pytest.warns(FillinWarning):
        filled = fillin.fill(
            to_frame(lon, lat, y), x="day", by="station", station_at=("lon", "lat"), bounds=(0, None), model=model
        )
    assert (filled["level_low"] >= 0).all()


def test_new_rows_have_the_location_of_their_station(model, tmp_path):
    lon, lat, y = make_stations(n=20)
    frame = to_frame(lon, lat, y)
    filled = fillin.fill(
        frame, x="day", by="station", station_at=["lon", "lat"], every=1, until=21, y="level", model=model
    )
    added = filled[filled["day"] >= 20]
    assert added["level_filled"].notna().all()
    assert (added.groupby("station")["lon"].first() == frame.groupby("station")["lon"].first()).all()


def test_stations_that_say_nothing_of_each_other_change_little(model):
    random = np.random.default_rng(5)
    y = np.cumsum(random.normal(size=(60, 6)), 0)
    truth, x = y[20:23, 0].copy(), np.arange(60.0)
    y[20:23, 0] = np.nan
    stations = Stations(random.uniform(size=(6, 2)), np.zeros(6, int))
    alone, near = (SheetContext(model, x, y, None, s).predict(np.isnan(y))[0] for s in (None, stations))
    assert np.abs(near.mean - alone.mean).max() < 0.5 * np.abs(alone.std).max()
    assert (np.abs(near.mean - truth) < 4 * near.std).all()


def test_all_at_one_location_is_noted(model):
    lon, lat, y = make_stations(n=30)
    y[5, 0] = np.nan
    frame = to_frame(0 * lon, 0 * lat, y)
    with pytest.warns(FillinWarning, match="all stations are at one location: distances are not used"):
        found = fillin.fill(frame, x="day", by="station", station_at=("lon", "lat"), model=model)
    plain = fillin.fill(frame.drop(columns=["lon", "lat"]), x="day", by="station", model=model)
    assert np.allclose(found["level_filled"], plain["level_filled"])


def test_a_third_coordinate_and_planes_are_read(model):
    lon, lat, y = make_stations(n=30)
    y[5, 0] = np.nan
    frame = to_frame(lon, lat, y).rename(columns={"lon": "east", "lat": "north"})
    frame["height"] = frame["east"] * 3 + 1
    plan = make_plan(frame, {"x": "day", "by": "station", "station_at": ("east", "north", "height"), "model": model})
    (sheet,) = plan.sheets
    assert sheet.stations is not None
    assert sheet.stations.unit == ""
    assert sheet.stations.height is not None
    assert np.isfinite(fillin.fill(frame, **plan.source.options)["level_filled"]).all()


def test_the_report_states_distances(model, tmp_path):
    lon, lat, y = make_stations(n=30)
    y[5:25, 0] = np.nan
    y[:, 3] = np.nan
    fillin.save(model, tmp_path / "model")
    to_frame(lon, lat, y).to_csv(tmp_path / "stations.csv", index=False)
    options = ["--x", "day", "--by", "station", "--station-at", "lon,lat", "--model", str(tmp_path / "model")]
    assert main(["fill", str(tmp_path / "stations.csv"), *options, "--report"]) == 0
    report = (tmp_path / "stations.filled.html").read_text()
    assert "distances are along great circles" in report
    assert re.search(r"level of s0: .* most informative: level of s\d \(\d+%, [\d.,]+ km\)", report)
    assert "level of s3: hardly observed, predicted from the stations around it" in report


def move(frame, column="lon", rows=5, value=1.0):
    frame = frame.copy()
    frame.loc[rows, column] = value
    return frame


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda f: move(f), {}, "station 's0' has two locations"),
        (lambda f: f.assign(lon=f["lon"].where(f["station"] != "s1")), {}, "location of station 's1' is missing"),
        (lambda f: f, {"by": None}, "name the column that identifies the station too: by="),
        (lambda f: f, {"alone": True}, "give one of them"),
        (lambda f: f, {"station_at": ("lon", "latt")}, "latt"),
        (lambda f: f.assign(lat="north"), {}, "column 'lat' has no numbers"),
        (lambda f: f, {"station_at": "lon"}, "must name two or three different columns"),
        (lambda f: f, {"station_at": ("lon", "lon")}, "must name two or three different columns"),
        (lambda f: f, {"station_at": ("lon", "level"), "y": "level"}, "have another role"),
        (lambda f: f.assign(lat=f["lat"] + 60), {}, "is no latitude in degrees"),
        (lambda f: f, {"model": "curve"}, "station_at needs a model that fills sheets"),
    ],
)
def test_bad_locations_are_errors(change, options, message, model):
    lon, lat, y = make_stations(n=12)
    y[3, 0] = np.nan
    given = {"x": "day", "by": "station", "station_at": ("lon", "lat"), "model": model, **options}
    with pytest.raises(FillinError, match=message):
        fillin.fill(change(to_frame(lon, lat, y)), **given)


def test_too_many_stations_are_refused(model):
    frame = pd.DataFrame({"day": np.tile([0, 1], 501), "station": np.repeat(np.arange(501), 2), "level": 1.0})
    frame["lon"], frame["lat"] = frame["station"] / 10, 0.0
    with pytest.raises(FillinError, match="has 501 stations, more than 500"):
        fillin.fill(frame, x="day", by="station", station_at=("lon", "lat"), model=model)


def test_a_location_known_in_some_rows_is_enough(model):
    lon, lat, y = make_stations(n=12)
    y[3, 0] = np.nan
    frame = to_frame(lon, lat, y)
    frame.loc[frame["day"] > 0, ["lon", "lat"]] = np.nan
    filled = fillin.fill(frame, x="day", by="station", station_at=("lon", "lat"), model=model)
    assert filled["level_filled"].notna().all()
    assert filled["lon"].isna().any()
