"""The study `sheets`: patterns of gaps, methods, scores, comparisons, resuming, and the report."""

import gzip
import os
import signal
import sys
import time
from types import ModuleType

import numpy as np
import pytest
from support.helpers import tiny

import fillin
from fillin.cli import main
from fillin.errors import InputError
from fillin_studies import get, open_study, run_study
from fillin_studies.base import DataSets
from fillin_studies.fill.interpolation import make_normal
from fillin_studies.report import write_report
from fillin_studies.sheets import baselines, methods, results
from fillin_studies.sheets.data import (
    MAX_COLUMNS,
    PATTERNS,
    SheetCase,
    SheetDataset,
    draw_hidden,
    find_sheets,
    make_sheets,
    read_sheet,
)
from fillin_studies.sheets.figures import find_longest_gap
from fillin_studies.sheets.methods import METHODS, SHEET, SheetMethod, score_sheet

BASELINES = ("linear", "iterative", "k-NN", "SVD", "GP, RBF", "GP, composed")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A folder with an untrained sheet model."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    fillin.save(tiny("sheet").float(), folder)
    return str(folder)


@pytest.fixture
def line() -> SheetCase:
    """Three columns that a regression and an interpolation predict, in other units."""
    x = np.linspace(0, 1, 60)
    y = np.stack([x, 1e6 + 1e3 * np.sin(6 * x), 5 - 2 * np.sin(6 * x)], 1)
    return SheetCase(("a", "b", "c"), y, draw_hidden("cells", 60, 3, 0))


# Data


def test_patterns_hide_what_they_say():
    cells = draw_hidden("cells", 1000, 5, 0)
    assert cells.mean() == pytest.approx(0.2, abs=0.02)
    blocks = draw_hidden("blocks", 1000, 50, 0)
    assert (blocks.sum(0) >= 30).all()
    assert (blocks.sum(0) <= 320).all()
    counts = (np.diff(blocks, axis=0, prepend=0) > 0).sum(0)
    assert counts.max() == 4
    column = draw_hidden("column", 1000, 5, 0)
    assert column.any(0).sum() == 1
    assert np.diff(np.flatnonzero(column.any(1))).max() == 1
    assert column.sum() == 250
    for pattern in PATTERNS:
        assert np.array_equal(draw_hidden(pattern, 90, 4, 3), draw_hidden(pattern, 90, 4, 3))
        assert not np.array_equal(draw_hidden(pattern, 90, 4, 3), draw_hidden(pattern, 90, 4, 4))


def test_columns_alone_are_all_columns():
    sheet = SheetDataset("wide", tuple(f"s{j}" for j in range(15)), np.random.default_rng(0).normal(size=(50, 15)))
    assert len(sheet.case("cells", 0).columns) == MAX_COLUMNS
    assert len(sheet.case("single", 0).columns) == 15


def test_added_columns_are_not_scored_and_copies_hide_the_same_cells(line):
    noise, copy = line.add("noise", 0), line.add("duplicate", 0)
    assert not noise.hidden[:, 3].any()
    assert noise.columns == copy.columns == line.columns
    source = next(j for j in range(3) if np.array_equal(copy.y[:, 3], line.y[:, j]))
    assert np.array_equal(copy.hidden[:, 3], line.hidden[:, source])
    assert np.isnan(copy.observed[:, 3]).sum() == line.hidden[:, source].sum()
    wrong_there = np.where(np.arange(4) == 3, 1e9, copy.y)
    assert score_sheet(wrong_there, copy)["rmse"] == 0


def test_sheets_are_read_without_the_number_of_the_step_and_text(tmp_path):
    folder = tmp_path / "sheets"
    folder.mkdir()
    lines = [f"{i},{i % 7},w,{'' if i == 3 else i % 5}" for i in range(50)]
    with gzip.open(folder / "weather.csv.gz", "wt") as file:
        file.write("step,wind,sky,rain\n" + "\n".join(lines))
    for where in (tmp_path, folder):
        sheet = find_sheets(where).sets["weather"]
        assert sheet.columns == ("wind", "rain")
        assert sheet.values.shape == (50, 2)
    case = sheet.case("cells", 0)
    assert not case.hidden[3, 1]  # missing in the file: predicted, not scored
    assert np.isnan(case.observed[3, 1])
    filled = baselines.fill_each_column(lambda x, y, xt: make_normal(np.full(len(xt), y.mean()), np.ones(len(xt))))
    assert np.isfinite(score_sheet(filled(case.observed), case)["crps"])


def test_errors_of_invalid_folders(tmp_path, capsys):
    for where, message in ((tmp_path / "nowhere", "no such folder"), (tmp_path, "contains neither")):
        with pytest.raises(InputError, match=message):
            find_sheets(where)
    with gzip.open(tmp_path / "short.csv.gz", "wt") as file:
        file.write("step,a,b\n1,2,3\n2,3,1\n")
    with pytest.raises(InputError, match="2 rows and 2 series"):
        find_sheets(tmp_path)
    (tmp_path / "short.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_sheet(tmp_path / "short.csv.gz")
    assert main(["study", "te-scores", "--model", "curve"]) == 2
    assert "leave --model out" in capsys.readouterr().err


def test_sheets_are_made_without_a_folder():
    data = find_sheets(None)
    assert set(data.sets) == {"mixed", "independent", "lagged"}
    assert "no --data DIR" in data.left_out[0]
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(make_sheets(), make_sheets(), strict=True))


# Methods and scores


@pytest.mark.parametrize("name", ["fillin joint", "fillin alone", "guides", *BASELINES])
def test_methods_fill_hidden_cells_near_the_data(name, line, model):
    scores = methods.measure(line, METHODS[name], model)
    assert np.isfinite([scores[key] for key in ("rmse", "mae", "seconds")]).all()
    assert scores["rmse"] < 1.2
    assert set(scores["columns"]) == {"a", "b", "c"}
    assert ("crps" in scores) == ("covered" in scores) == (name not in ("iterative", "k-NN", "SVD"))
    if name in ("guides", "linear", "GP, RBF", "GP, composed"):
        assert scores["rmse"] < 0.1


def test_scores_are_in_standard_deviations_of_each_column(line):
    off = line.y + 0.5 * line.unit
    scores = score_sheet(off, line)
    assert scores["rmse"] == pytest.approx(0.5)
    assert scores["mae"] == pytest.approx(0.5)
    wide = [make_normal(off[rows, j], np.full(rows.sum(), line.unit[j])) for j, rows in enumerate(line.hidden.T)]
    scores = score_sheet(list(wide), line)
    assert scores["rmse"] == pytest.approx(0.5)
    assert scores["covered"] == 1
    assert 0.2 < scores["crps"] < 0.5
    assert scores["columns"] == pytest.approx({"a": 0.5, "b": 0.5, "c": 0.5})


def test_the_rank_is_that_of_the_sheet():
    random = np.random.default_rng(0)
    z = random.normal(size=(200, 2)) @ random.normal(size=(2, 6))
    hidden = random.random(z.shape) < 0.05
    filled = baselines.fill_by_svd(np.where(hidden, np.nan, z))
    assert np.sqrt(((filled - z)[hidden] ** 2).mean()) < 0.2
    assert np.array_equal(filled[~hidden], z[~hidden])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_cells_that_choose_the_rank_are_observed(pattern, monkeypatch):
    """Numbers of the same seed as a pattern's would choose hidden cells alone."""
    chosen = []

    def complete(z, seen, rank):
        chosen.append(seen)
        return np.nan_to_num(z)

    monkeypatch.setattr(baselines, "complete_low_rank", complete)
    for seed in range(5):
        observed = SheetDataset("made", ("a", "b"), make_sheets()[0][1][:200, :2]).case(pattern, seed).observed
        baselines.fill_by_svd(observed)
        held_out = ~chosen[-2] & chosen[-1]  # the last call uses all observed cells
        assert held_out.mean() > 0.03


def install_network(monkeypatch, network: type) -> None:
    """Put a network in the place of those of PyPOTS."""
    packages = {name: ModuleType(name) for name in ("pypots", "pypots.imputation", "pypots.optim")}
    packages["pypots.imputation"].Made = network  # type: ignore[attr-defined]
    packages["pypots.optim"].Adam = lambda lr: f"Adam {lr}"  # type: ignore[attr-defined]
    for name, package in packages.items():
        monkeypatch.setitem(sys.modules, name, package)


def test_the_network_receives_windows_and_its_predictions_are_averaged(monkeypatch):
    z = np.random.default_rng(0).normal(size=(234, 2))
    z[[0, 120, 233], 1] = np.nan
    held_out = []

    class Made:
        def __init__(self, length, columns, device, verbose, epochs, batch_size, optimizer, size):
            assert (length, columns, batch_size, optimizer, size) == (48, 2, 7, "Adam 0.1", 3)

        def fit(self, training, validation):
            assert np.array_equal(training["X"], validation["X"], equal_nan=True)
            held_out.append(np.isnan(training["X"]) & ~np.isnan(validation["X_ori"]))
            assert not (np.isnan(validation["X_ori"]) & ~np.isnan(training["X"])).any()
            assert np.isnan(validation["X_ori"][0, 0]).tolist() == [False, True]

        def predict(self, data):
            assert np.isnan(data["X"]).sum() < held_out[0].sum()  # all observed cells are seen
            return {"imputation": np.nan_to_num(data["X"], nan=7.0)}

    install_network(monkeypatch, Made)
    filled = baselines.fill_by_network(z, "Made", stride=10, batch=7, rate=0.1, size=3)
    assert filled[[0, 120, 233], 1] == pytest.approx(7)
    assert np.array_equal(filled[:, 0], z[:, 0])
    assert held_out[0].mean() == pytest.approx(0.1, abs=0.03)


def test_an_interrupted_training_is_no_result(monkeypatch, line):
    """PyPOTS catches a KeyboardInterrupt and goes on with the network that it has."""

    class Made:
        def __init__(self, *arguments, **options):
            pass

        def fit(self, training, validation):
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                pass

    install_network(monkeypatch, Made)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        baselines.fill_by_network(line.observed, "Made", stride=10, batch=7, rate=0.1)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SAITS", "BRITS"])
def test_networks_of_pypots_learn_from_the_sheet(name, monkeypatch):
    pytest.importorskip("pypots", reason="optional", exc_type=ImportError)
    monkeypatch.setattr(baselines, "NETWORK_EPOCHS", 20)
    case = SheetDataset("mixed", tuple("abcdef"), make_sheets()[0][1][:300]).case("cells", 0)
    scores = methods.measure(case, METHODS[name], SHEET)
    assert scores["rmse"] < 0.7
    assert "crps" not in scores


def test_absent_packages_and_weights_are_named(monkeypatch):
    absent = SheetMethod(METHODS["linear"].fill, "", module="no_such_package")
    assert "pip install no_such_package" in (absent.find_missing(SHEET) or "")
    monkeypatch.setattr(methods, "names", lambda: [])
    assert "give a run folder by --model" in (METHODS["fillin joint"].find_missing("nothing") or "")
    assert METHODS["linear"].find_missing("nothing") is None
    for name, message in (("nothing", "no such weights"), ("te-tnp-rbf", "not a sheet model")):
        with pytest.raises(InputError, match=message):
            methods.load_sheet_model(name)


# Comparisons


def cell(group: str, data: str, method: str, rmse: list[float], **columns: float) -> list[dict]:
    scores = {"crps": 0.5, "covered": 0.95, "mae": 0.1, "seconds": 0.1, "columns": columns}
    return [
        {"group": group, "data": data, "method": method, "split": seed, "rmse": value, **scores}
        for seed, value in enumerate(rmse)
    ]


def test_findings_say_where_the_joint_prediction_loses():
    boards = results.collect([
        *cell("cells", "won", "fillin joint", [1.0, 1.2]), *cell("cells", "won", "linear", [2.0, 2.2]),
        *cell("cells", "won", "guides", [0.5, 0.5]), *cell("cells", "lost", "fillin joint", [3.0, 3.0]),
        *cell("cells", "lost", "linear", [2.0, 2.0]), *cell("cells", "lost", "SVD", [1.0, 2.0]),
    ])  # fmt: skip
    won, lost = results.compare(boards)
    assert (won.best, lost.best) == ("linear", "SVD")  # guides are no baseline
    assert won.ratio == pytest.approx(1.1 / 2.1)
    assert (lost.ratio, lost.error) == (2.0, pytest.approx(0.5 / 1.5))
    text = " ".join(results.summarise(boards))
    assert "lower than that of the best baseline of the same run in 1 of 2" in text
    assert "fillin joint loses on lost, cells (2.00 times SVD)." in text
    assert "lower RMSE than guides in 0 of 1" in text
    assert "the worst ratio is 2.00" in text
    assert "on which each is best: linear 1, SVD 1." in text
    columns, rows = results.tabulate_comparisons(boards)
    assert len({len(columns), *map(len, rows)}) == 1
    assert [row[2] for row in rows] == ["linear", "SVD"]


def test_a_method_is_compared_on_the_seeds_that_both_were_measured_on():
    boards = results.collect([
        *cell("cells", "a", "fillin joint", [1.0, 1.0, 4.0]), *cell("cells", "a", "linear", [2.0, 2.0]),
    ])  # fmt: skip
    assert results.compare(boards)[0].ratio == 0.5
    assert results.count_seeds(boards) == ["linear was measured with 2 of 3 seeds."]


def test_the_best_baseline_is_that_on_common_seeds():
    """One that was measured on the easiest seed alone is not best for that."""
    boards = results.collect([
        *cell("column", "a", "BRITS", [0.2]), *cell("column", "a", "linear", [0.1, 1.0]),
        *cell("column", "a", "SVD", [0.3, 0.1]),
    ])  # fmt: skip
    assert results.find_best(boards) == [("column", "a", "linear")]


def test_baselines_alone_are_compared_without_fillin():
    boards = results.collect([*cell("cells", "a", "linear", [1.0]), *cell("cells", "a", "SVD", [0.5])])
    _, [row] = results.tabulate_comparisons(boards)
    assert row[:5] == ["a, cells", "–", "SVD", "0.5000 ± 0.0000", "–"]
    assert len(results.summarise(boards)) == 1


def test_a_further_column_changes_scores_in_percent():
    boards = results.collect([
        *cell("cells", "a", "fillin joint", [1.0, 2.0]), *cell("cells + noise", "a", "fillin joint", [1.1, 2.0]),
    ])  # fmt: skip
    [change] = results.find_changes(boards)
    assert change.percent == (pytest.approx(5), pytest.approx(5))
    text = " ".join(results.summarise(boards))
    assert "An unrelated column of noise changes the RMSE of fillin joint by at most +5.0 ± 5.0 % (a, cells)" in text


def test_columns_alone_are_compared_one_by_one():
    boards = results.collect([
        *cell("single", "a", "fillin alone", [1.0], x=1.0, y=3.0), *cell("single", "a", "linear", [1.0], x=2.0, y=2.0),
    ])  # fmt: skip
    assert [part.ratio for part in results.compare_series(boards["single"], "fillin alone")] == [0.5, 1.5]
    text = " ".join(results.summarise(boards))
    assert "better than linear interpolation on 1 of 2 series" in text
    assert "at worst 1.50 times (a, y)" in text


def test_the_longest_gap():
    hidden = np.zeros((20, 2), dtype=bool)
    hidden[[0, 1, 5, 6, 7, 19], 1] = hidden[18:, 0] = True
    assert find_longest_gap(hidden) == (1, 5, 8)


# The study


def small(monkeypatch, model: str | None, seeds: int = 1):
    """A sheet of 60 rows and all methods that take little time."""
    monkeypatch.setattr("fillin_studies.sheets.data.MAX_ROWS", 60)
    for name in ("curve alone", "SAITS", "BRITS"):
        monkeypatch.delitem(METHODS, name)
    study = get("sheets", None, seeds, model)
    study.sheets = DataSets({"mixed": study.sheets.sets["mixed"]}, study.sheets.left_out)
    return study


@pytest.mark.slow
def test_the_study_ends_in_a_report(tmp_path, monkeypatch, model):
    run = open_study(small(monkeypatch, model, 2), tmp_path, quick=True)
    run_study(run)
    page = write_report(run, ["fillin", "study", "sheets"]).read_text()
    for part in ("Pattern `blocks`", "One column", "A further column", "| mixed, column |", "fillin joint loses on"):
        assert part in page
    assert str(tmp_path) not in page
    assert model not in page
    figures = {path.name for path in tmp_path.glob("*.png")}
    assert figures == {"rmse.png", "methods.png", "examples.png"}
    assert all(f"({name})" in page for name in figures)


def test_the_study_runs_without_weights_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "names", lambda: [])
    monkeypatch.setattr(methods, "locate", lambda name: tmp_path / "absent")
    study = small(monkeypatch, None)
    some = {name: part for name, part in study.variants(True).items() if part["method"] in ("linear", "guides")}
    study = study.replaced(variants=lambda quick: some)
    run = open_study(study, tmp_path, quick=True)
    seen = set()

    def stop(cell, share, loss, validation):
        seen.add(cell.variant)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(run, stop)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*/*/result.json")}
    assert len(before) == 2
    run_study(run)
    assert all(cell.done for cell in run.cells())
    assert {path: path.stat().st_mtime_ns for path in before} == before
    page = write_report(run, ["fillin", "study", "sheets"]).read_text()
    assert "fillin joint is left out: this version ships no weights 'sheet'" in page
    assert "Sheets are made instead" in page


def test_cells_of_retrained_weights_have_another_version(tmp_path, monkeypatch, model):
    study = small(monkeypatch, model)
    settings = {"data": "mixed", "pattern": "cells", "added": "", "seed": 0}
    versions = {name: study.version_of({**settings, "method": name}) for name in ("fillin joint", "linear")}
    assert versions["linear"] == "1.1"
    assert versions["fillin joint"].startswith("1.2, weights ")


def test_the_command_hides_the_folder_of_the_model(tmp_path, monkeypatch, model, capsys):
    from fillin_studies import Study

    study = small(monkeypatch, model)
    some = {name: part for name, part in study.variants(True).items() if name == "mixed, column, linear"}
    study = study.replaced(variants=lambda quick: some)
    monkeypatch.setitem(Study.classes, "sheets", lambda data, repeats: study)
    monkeypatch.chdir(tmp_path)
    assert main(["study", "sheets", "--model", model, "--masks", "1", "--workers", "1"]) == 0
    page = (tmp_path / "out" / "sheets" / "report.md").read_text()
    assert "fillin study sheets --model MODEL --masks 1" in page
    assert model not in page
