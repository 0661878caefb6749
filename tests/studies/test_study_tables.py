"""The study `tables` ends in a report that says where ours is first and where not, and goes on where it was."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import fillin
from fillin_studies import get, open_work, work_on
from fillin_studies.report_files import write
from fillin_studies.tables import methods
from fillin_studies.tables.data import FEW
from fillin_studies.tables.findings import findings
from fillin_studies.tables.methods import ALONE, METHODS, OURS
from fillin_studies.tables.ranks import ACCURACY, RMSE, Results

pytest_plugins = ["support.study_tables"]

pandas = pytest.importorskip("pandas")


def results(group: str, key: str, values: dict[str, dict[str, list[float]]]) -> Results:
    """From set → method → a value each split."""
    return Results(
        group,
        [
            {"group": group, "data": data, "method": method, "split": split, key: value}
            for data, of in values.items()
            for method, each in of.items()
            for split, value in enumerate(each)
        ],
    )


def test_ranks_are_of_means_and_equals_share():
    each = results("regression", "rmse", {
        "a": {OURS: [1.0, 2.0], "MLP": [3.0, 4.0], "k-NN": [1.0, 2.0]},
        "b": {OURS: [5.0, 5.0], "MLP": [1.0, 1.0], "k-NN": [6.0, 6.0]},
    })  # fmt: skip
    ranks = each.ranks(RMSE)
    assert {name: mean.value for name, mean in ranks.items()} == {OURS: 1.75, "MLP": 2.0, "k-NN": 2.25}
    assert ranks["MLP"].error == pytest.approx(1.0)
    assert each.mean("a", OURS, RMSE) == (1.5, pytest.approx(0.5))
    more = results("classification", "accuracy", {"a": {OURS: [0.9], "MLP": [0.8]}})
    assert more.ranks(ACCURACY)[OURS].value == 1


def test_findings_say_where_ours_is_first_and_where_not():
    from fillin_studies.tables.findings import _by_set

    each = results("regression", "rmse", {
        "won": {OURS: [1.0, 1.1], "MLP": [2.0, 2.1]},
        "near": {OURS: [1.0, 1.3], "MLP": [1.1, 1.1]},
        "lost": {OURS: [5.0, 5.2], "MLP": [1.0, 1.1]},
    })  # fmt: skip
    words = _by_set(each, RMSE)
    assert words == "First on won; within a standard error of the first on near; behind on lost (5.100, MLP 1.050)."
    assert findings({}) == []


def test_ours_is_measured_again_where_its_code_changes_and_not_its_words(tmp_path, monkeypatch):
    def of(text: str) -> str:
        for name in methods.LEARNING:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        (tmp_path / "tables" / "net.py").write_text(text)
        methods.digest.cache_clear()
        return methods.digest()

    monkeypatch.setattr(fillin, "__file__", str(tmp_path / "__init__.py"))
    first = of('"""Words."""\ndef f():\n    """More."""\n    return 1\n')
    assert of('"""Other words."""\ndef f():  # why\n    return 1\n') == first
    assert of('"""Words."""\ndef f():\n    """More."""\n    return 2\n') != first
    methods.digest.cache_clear()


def smoke(folder: Path | None):
    """Two tiny sets, one split."""
    study = get("tables", folder, 1)
    some = {name: own for name, own in study.variants(True).items() if own["data"] in ("line", "iris")}
    return replace(study, variants=lambda quick: some)


def test_the_study_ends_in_a_report_and_goes_on_where_it_was(tmp_path, sets_folder, swift_tables, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(METHODS, "LightGBM", replace(METHODS["LightGBM"], needs="no_such_module"))
    study = smoke(sets_folder)
    assert not any("LightGBM" in name for name in study.variants(True))
    assert {f"{data}, {OURS}, split 0" for data in ("line", "iris")} <= set(study.variants(True))
    work = open_work(study, tmp_path / "out", quick=True)

    def stop(cell, share, loss, validation):
        if cell.variant.startswith("line, MLP"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work_on(work, stop)
    done = {cell.folder / "result.json" for cell in work.cells() if cell.done}
    before = {path: path.stat().st_mtime_ns for path in done}
    assert 0 < len(done) < len(work.cells())
    work_on(open_work(study, tmp_path / "out", quick=True))
    assert {path: path.stat().st_mtime_ns for path in done} == before
    page = write(work, ["fillin", "study", "tables"]).read_text()
    for part in (
        "Regression, RMSE: fillin has an average rank of", "Classification, AUROC", "## Regression: CRPS",
        "## Classification: calibration error", "protein is left out: it is large",
        "LightGBM is left out: no_such_module",
        "The 95 % intervals of fillin hold", "five-fold", "(ranks.png)",
    ):  # fmt: skip
        assert part in page, part
    assert str(tmp_path) not in page
    assert (tmp_path / "out" / "ranks.png").stat().st_size > 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(found["cells"]) == len(work.cells())
    numbers = {one["method"]: one for one in found["cells"] if one["data"] == "line"}
    assert {"rmse", "log_likelihood", "crps", "covered", "seconds", "settings"} <= set(numbers[OURS])
    assert numbers["Gaussian process"]["rmse"] < numbers["k-NN"]["rmse"]  # a line
    assert "weights" in numbers[OURS]["settings"]
    assert {path.name for path in tmp_path.iterdir()} == {"data", "out"}  # nobody writes where it was not asked to


def test_few_labels_are_reported_with_and_without_the_other_rows(tmp_path, swift_tables):
    study = get("tables", None, 1)
    name = f"breast_cancer, {FEW} labels"
    some = {
        key: own
        for key, own in study.variants(True).items()
        if own["data"] == name and own["method"] in (OURS, ALONE, "k-NN")
    }
    work = open_work(replace(study, variants=lambda quick: some), tmp_path, quick=True)
    work_on(work)
    page = write(work, ["fillin", "study", "tables"]).read_text()
    assert "What rows without a label are worth" in page
    assert f"**{ALONE}**, few labels" in page
    assert "Sets of UCI are left out: no --data DIR." in page


def test_every_cell_has_a_folder_of_its_own(tmp_path, sets_folder):
    cells = open_work(get("tables", sets_folder), tmp_path / "out", quick=False).cells()
    assert len({cell.folder for cell in cells}) == len(cells)
    own = [cell for cell in cells if cell.recipe["data"] == "line" and cell.recipe["method"] == OURS]
    assert [cell.recipe["split"] for cell in own] == [0, 1]
    assert sum(cell.recipe["data"] == "wine" for cell in cells) == 10 * sum(not m.missing for m in METHODS.values())
