"""The study `tables`: ranks, findings, resuming, and the report."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fillin_studies import get, open_study, run_study
from fillin_studies.report import write_report
from fillin_studies.tables import ACCURACY, RMSE, MethodResults, describe_sets, summarise
from fillin_studies.tables.data import FEW_LABELS
from fillin_studies.tables.methods import LABELLED_ONLY, METHODS, OURS

pytest_plugins = ["support.study_tables"]

pandas = pytest.importorskip("pandas")


def results(group: str, key: str, values: dict[str, dict[str, list[float]]]) -> MethodResults:
    """Results from set → method → one value per split."""
    return MethodResults(
        group,
        [
            {"group": group, "data": data, "method": method, "split": split, key: value}
            for data, by_method in values.items()
            for method, by_split in by_method.items()
            for split, value in enumerate(by_split)
        ],
    )


def test_ranks_are_of_means_and_ties_share_a_rank():
    regression = results("regression", "rmse", {
        "a": {OURS: [1.0, 2.0], "MLP": [3.0, 4.0], "k-NN": [1.0, 2.0]},
        "b": {OURS: [5.0, 5.0], "MLP": [1.0, 1.0], "k-NN": [6.0, 6.0]},
    })  # fmt: skip
    ranks = regression.ranks(RMSE)
    assert {name: mean.value for name, mean in ranks.items()} == {OURS: 1.75, "MLP": 2.0, "k-NN": 2.25}
    assert ranks["MLP"].error == pytest.approx(1.0)
    assert regression.mean("a", OURS, RMSE) == (1.5, pytest.approx(0.5))
    classification = results("classification", "accuracy", {"a": {OURS: [0.9], "MLP": [0.8]}})
    assert classification.ranks(ACCURACY)[OURS].value == 1


def test_findings_name_the_sets_where_ours_is_first_near_and_behind():
    regression = results("regression", "rmse", {
        "won": {OURS: [1.0, 1.1], "MLP": [2.0, 2.1]},
        "near": {OURS: [1.0, 1.3], "MLP": [1.1, 1.1]},
        "lost": {OURS: [5.0, 5.2], "MLP": [1.0, 1.1]},
    })  # fmt: skip
    text = describe_sets(regression, RMSE)
    assert text == "First on won; within a standard error of the first on near; behind on lost (5.100, MLP 1.050)."
    assert summarise({}) == []


def test_only_a_method_of_another_version_is_measured_again(tmp_path, sets_folder, monkeypatch):
    study = get("tables", sets_folder, 1)
    few = {
        name: settings
        for name, settings in study.variants(True).items()
        if name.startswith(("line, k-NN", "line, MLP"))
    }
    study = study.replaced(variants=lambda quick: few)
    run_study(open_study(study, tmp_path / "out", quick=True))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/cells/*/*/result.json")}
    monkeypatch.setitem(METHODS, "k-NN", replace(METHODS["k-NN"], version=2))
    run_study(open_study(study, tmp_path / "out", quick=True))
    changed = [path for path, time in before.items() if path.stat().st_mtime_ns != time]
    assert [path.parent.parent.name for path in changed] == ["line_k-NN_split_0"]
    assert json.loads(changed[0].read_text())["version"] == "1.2"


def smoke(folder: Path | None):
    """Two tiny sets, one split."""
    study = get("tables", folder, 1)
    variants = study.variants(True).items()
    some = {name: settings for name, settings in variants if settings["data"] in ("line", "iris")}
    return study.replaced(variants=lambda quick: some)


@pytest.mark.slow
def test_an_interrupted_study_resumes_and_ends_in_a_report(tmp_path, sets_folder, fast_table_methods, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(METHODS, "LightGBM", replace(METHODS["LightGBM"], requires="no_such_module"))
    study = smoke(sets_folder)
    assert not any("LightGBM" in name for name in study.variants(True))
    assert {f"{data}, {OURS}, split 0" for data in ("line", "iris")} <= set(study.variants(True))
    run = open_study(study, tmp_path / "out", quick=True)

    def stop(cell, share, loss, validation):
        if cell.variant.startswith("line, MLP"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(run, stop)
    done = {cell.folder / "result.json" for cell in run.cells() if cell.done}
    before = {path: path.stat().st_mtime_ns for path in done}
    assert 0 < len(done) < len(run.cells())
    run_study(open_study(study, tmp_path / "out", quick=True))
    assert {path: path.stat().st_mtime_ns for path in done} == before
    page = write_report(run, ["fillin", "study", "tables"]).read_text()
    for part in (
        "Regression, RMSE: fillin has an average rank of", "Classification, AUROC", "## Regression: CRPS",
        "## Classification: calibration error", "protein is left out: it is large",
        "LightGBM is left out: no_such_module",
        "The 95 % intervals of fillin contain", "five-fold", "(ranks.png)",
    ):  # fmt: skip
        assert part in page, part
    assert str(tmp_path) not in page
    assert (tmp_path / "out" / "ranks.png").stat().st_size > 0
    stored = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(stored["cells"]) == len(run.cells())
    numbers = {cell["method"]: cell for cell in stored["cells"] if cell["data"] == "line"}
    assert {"rmse", "log_likelihood", "crps", "covered", "seconds", "settings"} <= set(numbers[OURS])
    assert numbers["Gaussian process"]["rmse"] < numbers["k-NN"]["rmse"]  # a line
    assert numbers[OURS]["version"] == "1.1"
    assert {path.name for path in tmp_path.iterdir()} == {"data", "out"}  # no method writes elsewhere


@pytest.mark.slow
def test_few_labels_are_reported_with_and_without_the_other_rows(tmp_path, fast_table_methods):
    study = get("tables", None, 1)
    name = f"breast_cancer, {FEW_LABELS} labels"
    some = {
        key: settings
        for key, settings in study.variants(True).items()
        if settings["data"] == name and settings["method"] in (OURS, LABELLED_ONLY, "k-NN")
    }
    run = open_study(study.replaced(variants=lambda quick: some), tmp_path, quick=True)
    run_study(run)
    page = write_report(run, ["fillin", "study", "tables"]).read_text()
    assert "Accuracy gained from unlabelled rows" in page
    assert f"**{LABELLED_ONLY}**, few labels" in page
    assert "UCI data sets are left out: no --data DIR." in page


def test_every_cell_has_its_folder(tmp_path, sets_folder):
    cells = open_study(get("tables", sets_folder), tmp_path / "out", quick=False).cells()
    assert len({cell.folder for cell in cells}) == len(cells)
    line = [cell for cell in cells if cell.recipe["data"] == "line" and cell.recipe["method"] == OURS]
    assert [cell.recipe["split"] for cell in line] == [0, 1]
    assert sum(cell.recipe["data"] == "wine" for cell in cells) == 10 * sum(not m.missing for m in METHODS.values())
