"""The study `fill`: data sets, equal queries of every method, resuming, and the report."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.helpers import ExactProcess, make_monthly_series

from fillin.cli import main
from fillin.data import bayes_limit
from fillin.errors import InputError
from fillin_studies import Study, get, open_study, run_study
from fillin_studies.fill import methods, scores
from fillin_studies.fill.data import (
    GAP_KINDS,
    CurveFile,
    NetcdfField,
    PriorSeries,
    find_gap_data,
    read_curve,
    read_field,
)
from fillin_studies.fill.interpolation import make_normal
from fillin_studies.fill.methods import EARLIER, METHODS, OURS, FillMethod
from fillin_studies.report import write_report

CHEAP = ("curve", "sheet-2d", "linear", "seasonal naive")


@pytest.fixture
def stand_in(monkeypatch):
    """An exact process where the weights are; methods that take no time."""
    models = {name: ExactProcess() for name in (*OURS.values(), EARLIER)}
    for module in (methods, scores):
        monkeypatch.setattr(module, "load_once", models.__getitem__)

    def predict_mean(x, y, xt):
        return make_normal(np.full(len(xt), y.mean()), np.full(len(xt), y.std() + 1e-3))

    for name, method in METHODS.items():
        method = replace(method, weights=None)
        if name not in CHEAP:
            method = replace(method, predict=predict_mean, requires=None)
        monkeypatch.setitem(METHODS, name, replace(method, predict=predict_mean) if name in OURS.values() else method)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two curves and a field, laid out as --data expects."""
    x, y = make_monthly_series()
    (tmp_path / "data" / "curves").mkdir(parents=True)
    lines = [f"{i},{a!r},{b!r}" for i, (a, b) in enumerate(zip(x[:, 0].tolist(), y.tolist(), strict=True))]
    (tmp_path / "data" / "curves" / "months.csv").write_text("rownames,time,value\n" + "\n".join(lines) + "\n")
    rows = [f"{i},{1900 + i},{i % 7},{9 - i % 3}" for i in range(40)]
    rows[3] = "3,1903,NA,5"
    (tmp_path / "data" / "curves" / "pelt.csv").write_text("rownames,Year,Hare,Lynx\n" + "\n".join(rows) + "\n")
    return tmp_path / "data"


def with_field(folder: Path) -> np.ndarray:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    values = np.add.outer(np.arange(6.0), np.sin(np.arange(20.0)))
    values[2:4, 5:9] = np.nan  # land
    coordinates = {"time": [0.0, 1.0], "lat": np.linspace(-5, 5, 6), "lon": np.linspace(0, 90, 20)}
    data = xarray.Dataset({"t": (("time", "lat", "lon"), np.stack([values, 0 * values]))}, coordinates)
    (folder / "fields").mkdir()
    data.to_netcdf(folder / "fields" / "sea.nc", engine="netcdf4")
    return values


def test_every_method_receives_the_same_queries(monkeypatch, stand_in):
    queries: dict[str, list] = {}

    def spy(name):
        def predict(x, y, xt):
            queries.setdefault(name, []).append((x.tobytes(), y.tobytes(), xt.tobytes()))
            return make_normal(np.zeros(len(xt)), np.ones(len(xt)))

        return predict

    for name in ("linear", "GP, composed", "curve"):
        monkeypatch.setitem(METHODS, name, FillMethod(spy(name), "a spy"))
        for kind in GAP_KINDS:
            scores.measure(PriorSeries("rbf"), kind, name, 2, lambda share: None)
    assert queries["linear"] == queries["GP, composed"] == queries["curve"]
    assert len(set(queries["linear"])) == 6


# Data


def test_a_prior_is_a_stream_with_a_bayes_limit():
    for kind in GAP_KINDS:
        case, data = PriorSeries("rbf").case(kind, 3), PriorSeries("rbf")
        task = data.stream(kind, 3).task(3)
        assert np.array_equal(case.query[1], task.yc[0, :, 0].double().numpy())
        assert np.array_equal(case.truth, task.yt[0, :, 0].double().numpy())
        assert (np.diff(case.x[:, 0]) >= 0).all()
        assert bayes_limit(data.stream(kind, 3), 3, 16) is not None
    assert not np.array_equal(PriorSeries("rbf").case("random", 0).y, PriorSeries("rbf").case("random", 1).y)


def test_curves_are_read_from_their_first_two_columns(folder):
    x, y = read_curve(folder / "curves" / "pelt.csv")
    assert len(x) == 39  # the row without a value is none
    assert 1903 not in x
    assert y.max() == 6
    assert len(CurveFile(folder / "curves" / "months.csv").case("blocks", 0).truth) == round(0.3 * 48)


def test_land_is_left_out_of_fields(folder):
    values = with_field(folder)
    rows, columns, read = read_field(folder / "fields" / "sea.nc")
    assert np.array_equal(read, values, equal_nan=True)
    case = NetcdfField(folder / "fields" / "sea.nc").case("random", 0)
    assert len(case.y) == np.isfinite(values).sum()
    assert case.mask.held_out.sum() == round(0.4 * len(case.y))
    at = [(np.flatnonzero(rows == a)[0], np.flatnonzero(columns == b)[0]) for a, b in case.x]
    assert np.array_equal(case.y, [values[i, j] for i, j in at])


def test_errors_of_invalid_data(tmp_path, folder, capsys):
    for where, message in ((tmp_path / "nowhere", "no such folder"), (tmp_path, "neither curves")):
        with pytest.raises(InputError, match=message):
            find_gap_data(where)
    (folder / "curves" / "bad.csv").write_text("time,value\n1,2\n2,two\n")
    with pytest.raises(InputError, match=r"bad.csv, line 3, column value: 'two'"):
        read_curve(folder / "curves" / "bad.csv")
    (folder / "curves" / "bad.csv").write_text("time\n1\n")
    with pytest.raises(InputError, match="a column for x and one for y"):
        read_curve(folder / "curves" / "bad.csv")
    (folder / "curves" / "bad.csv").write_text("time,value\n1,2\n")
    with pytest.raises(InputError, match="too few"):
        read_curve(folder / "curves" / "bad.csv")
    (folder / "curves" / "bad.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_curve(folder / "curves" / "bad.csv")
    assert main(["study", "fill", "--data", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["study", "te-scores", "--data", str(folder)]) == 2
    assert "leave --data out" in capsys.readouterr().err


def test_without_a_folder_or_xarray_the_other_sets_remain(folder, monkeypatch):
    assert set(find_gap_data(None).sets) == {"rbf", "matern-5/2", "periodic"}
    assert "no --data DIR" in find_gap_data(None).left_out[0]
    (folder / "fields").mkdir()
    (folder / "fields" / "a.nc").touch()
    monkeypatch.setattr("fillin_studies.fill.data.find_spec", lambda name: None)
    data = find_gap_data(folder)
    assert {"months", "pelt"} <= set(data.sets)
    assert "a" not in data.sets
    assert "xarray" in data.left_out[0]


# The study


def small(folder: Path | None = None):
    """One mask, one prior."""
    study = get("fill", folder, 1)
    some = {
        name: settings
        for name, settings in study.variants(True).items()
        if settings["data"] not in ("matern-5/2", "periodic", scores.BROAD_PRIOR)
        and (settings["kind"], settings["method"]) != ("limit", EARLIER)
        and settings["method"] != scores.BAYES
    }
    return study.replaced(variants=lambda quick: some)


@pytest.mark.slow
def test_the_study_ends_in_a_report(tmp_path, folder, stand_in):
    with_field(folder)
    run = open_study(small(folder), tmp_path / "out", quick=True)
    run_study(run)
    page = write_report(run, ["fillin", "study", "fill"]).read_text()
    for part in (
        "months, blocks",
        "sea, random",
        "Against the best of three",
        "Coverage by distance",
        "Against exact Bayes",
    ):
        assert part in page
    row = next(line for line in page.splitlines() if line.startswith("| sea, random | linear"))
    assert [bool(cell.strip()) for cell in row.split("|")[1:-1]] == [True] * 8
    assert "| field | method | CRPS | MAE | RMSE |" in page
    assert "sea, a field: the CRPS of sheet-2d is" in page
    assert str(tmp_path) not in page
    figures = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert figures == {"crps.png", "examples.png", "field-sea.png"}
    assert all(f"({name})" in page for name in figures)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(results["cells"]) == len(run.cells())
    pelt = next(cell for cell in results["cells"] if cell["data"] == "pelt")
    assert {"log_likelihood", "crps", "crps_error", "rmse", "covered", "seconds", "masks"} <= set(pelt)


def test_an_interrupted_study_resumes(tmp_path, stand_in):
    run = open_study(small(), tmp_path, quick=True)
    seen = []

    def stop(cell, share, loss, validation):
        seen.append(cell.variant)
        if len(set(seen)) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(run, stop)
    done = {cell.variant: cell.folder / "result.json" for cell in run.cells() if cell.done}
    assert len(done) == 2
    before = {name: path.stat().st_mtime_ns for name, path in done.items()}
    run_study(open_study(small(), tmp_path, quick=True))
    assert all(cell.done for cell in run.cells())
    assert {name: path.stat().st_mtime_ns for name, path in done.items()} == before


def test_cells_of_other_masks_are_refused(tmp_path, stand_in):
    run_study(open_study(small(), tmp_path, quick=True))
    more = get("fill", None, 2)
    with pytest.raises(InputError, match="results of other settings of this study"):
        run_study(open_study(more, tmp_path, quick=True))


def test_only_retrained_weights_are_measured_again(tmp_path, stand_in, monkeypatch):
    monkeypatch.setattr(methods, "digest_weights", lambda name: "first")
    monkeypatch.setattr(methods, "names", lambda: ["curve"])
    monkeypatch.setitem(METHODS, "curve", replace(METHODS["curve"], weights="curve"))
    variants = small().variants(True).items()
    few = {name: settings for name, settings in variants if settings["kind"] == "end" and settings["data"] == "rbf"}
    study = small().replaced(variants=lambda quick: few)
    run_study(open_study(study, tmp_path, quick=True))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*/*/result.json")}
    stored = {path.parent.parent.name: json.loads(path.read_text())["version"] for path in before}
    assert stored["rbf_end_curve"] == "2.1, weights first"
    assert stored["rbf_end_linear"] == "2.1"
    monkeypatch.setattr(methods, "digest_weights", lambda name: "second")
    run_study(open_study(study, tmp_path, quick=True))
    changed = [path for path, time in before.items() if path.stat().st_mtime_ns != time]
    assert [path.parent.parent.name for path in changed] == ["rbf_end_curve"]


def test_reports_name_no_path_of_this_machine(tmp_path, folder, stand_in, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (folder / "curves" / "months.csv").unlink()
    study = small(folder)
    variants = study.variants(True).items()
    few = {name: settings for name, settings in variants if (settings["data"], settings["kind"]) == ("pelt", "end")}
    study = study.replaced(variants=lambda quick: few)
    monkeypatch.setitem(Study.classes, "fill", lambda data, repeats: study)
    assert main(["study", "fill", "--data", str(folder), "--masks", "1", "--workers", "1"]) == 0
    assert "report.md" in capsys.readouterr().out
    for name in ("report.md", "results.json"):
        text = (tmp_path / "out" / "fill" / name).read_text()
        assert "DIR" in text
        assert str(folder) not in text


def test_every_pair_of_data_and_method_has_a_folder(tmp_path, folder):
    cells = open_study(get("fill", folder), tmp_path / "out", quick=False).cells()
    assert len({cell.folder for cell in cells}) == len(cells)
    assert {cell.recipe["masks"] for cell in cells} == {20}
