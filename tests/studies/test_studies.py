"""Every study, in miniature: its cells train, resume, are shared, and end in a report with figures."""

import json
import os
import signal

import pytest

from fillin.cli import main
from fillin.errors import InputError
from fillin.models import list_options
from fillin.train import dump_recipe, log
from fillin.train.log import read_log
from fillin_studies import (  # fmt: skip
    STUDIES,
    conv_or_transformer,
    curves,
    dimensions,
    get,
    images,
    open_study,
    recent_models,
    run_study,
    select_variants,
    sizes,
)
from fillin_studies.base import MethodStudy, Study, StudyCell, StudyReport, StudyScale, mean_over_seeds
from fillin_studies.report import format_table, write_report
from fillin_studies.run import lock_folder, run_cell

TINY = {
    "model.width": 16, "model.heads": 2, "model.layers": 1, "model.hidden": 16, "model.pseudo_tokens": 4,
    "model.samples": 2, "model.depth": 1, "budget.steps": 4, "budget.time": None, "keep.log": 2, "keep.validations": 2,
    "keep.batches": 1, "data.batch": 2,
}  # fmt: skip


def small(settings: dict) -> dict:
    """The same settings for the smallest model, four steps."""
    options = list_options(settings.get("model.name", "te-tnp"))
    sizes = {k: v for k, v in TINY.items() if not k.startswith("model.") or k.removeprefix("model.") in options}
    return {**settings, **sizes}


def miniature(name: str, n_variants: int | None = None) -> Study:
    study = get(name)
    settings = {key: small({**study.recipe, **variant}) for key, variant in study.variants(True).items()}
    some = dict(list(settings.items())[:n_variants])
    return study.replaced(
        variants=lambda quick: some, quick=StudyScale({}, 1, "tiny."), searches=False, explore=lambda run: iter(())
    )


@pytest.fixture
def quick_measures(monkeypatch):
    """Scores on two batches, limits over few settings, inference at two sizes, and no learning curves (drawn in other
    tests)."""
    monkeypatch.setattr(log, "draw_learning_curve", lambda *arguments, **options: None)
    real = curves.evaluate
    monkeypatch.setattr(curves, "evaluate", lambda *a, **k: real(*a, **{**k, "batches": 2}))
    score_shifted = curves.score_shifted
    monkeypatch.setattr(
        dimensions, "score_shifted", lambda *a, **k: {**score_shifted(*a, **{**k, "limit_samples": 0}), "limit": 1.0}
    )
    monkeypatch.setattr(conv_or_transformer, "CONTEXT_SIZES", (100, 1000))
    monkeypatch.setattr(images, "QUICK_BATCHES", 1)
    monkeypatch.setattr(recent_models, "evaluate", lambda *a, **k: real(*a, **{**k, "batches": 2}))
    monkeypatch.setattr(recent_models, "CONTEXT_SIZES", (8, 12))
    monkeypatch.setattr(recent_models, "REPORTED_SIZE", 8)


TESTED_ELSEWHERE = ("positions-and-span",)  # as are the studies that train nothing


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "te-scores" else pytest.mark.slow)  # one that trains in `make test`
        for name in STUDIES
        if not isinstance(get(name), MethodStudy) and name not in TESTED_ELSEWHERE
    ],
)
def test_every_study_ends_in_a_report(name, tmp_path, quick_measures):
    run = open_study(miniature(name), tmp_path, quick=True)
    run_study(run)
    page = write_report(run, ["fillin", "study", name]).read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["cells"]) == len(run.cells())
    assert {cell["variant"] for cell in results["cells"]} == set(run.study.variants(True))
    assert results["findings"]
    figures = sorted(path.name for path in tmp_path.glob("*.png"))
    assert figures
    assert all(f"({figure})" in page for figure in figures)
    assert f"fillin study {name}" in page
    if name == "te-scores":  # the report of a single variant, as --only and --cells leave it
        for cell in run.cells():
            report = run.study.report([cell], tmp_path)
            assert len(report.rows) == 1
            assert report.findings


def test_an_interrupted_study_resumes(tmp_path, quick_measures):
    run = open_study(miniature("te-scores", n_variants=3), tmp_path, quick=True)
    seen = []

    def stop(cell, share, loss, validation):
        seen.append(cell.variant)
        if len(set(seen)) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(run, stop)
    done = [cell for cell in run.cells() if cell.done]
    assert len(done) == 1
    before = (done[0].folder / "result.json").stat().st_mtime_ns
    run_study(open_study(miniature("te-scores", n_variants=3), tmp_path, quick=True))
    assert all(cell.done for cell in run.cells())
    assert (done[0].folder / "result.json").stat().st_mtime_ns == before


def test_a_cell_that_was_interrupted_is_not_measured(tmp_path, quick_measures):
    """On SIGINT the run is saved without a result, and the next call finishes it."""
    run = open_study(miniature("te-scores", n_variants=1), tmp_path, quick=True)
    (cell,) = run.cells()
    pressed = []

    def press(cell, share, loss, validation):
        if not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_study(run, press)
    assert not cell.done
    run_study(run)
    assert cell.result["steps"] == 4


def test_a_cell_that_diverges_is_left_out(tmp_path, quick_measures):
    study = miniature("te-scores")
    broken = {
        key: {**settings, "optimiser.rate": 1e30} if key == "mlp, equal time" else settings
        for key, settings in study.variants(True).items()
    }
    run = open_study(study.replaced(variants=lambda quick: broken), tmp_path, quick=True)
    run_study(run)
    failed = [cell.variant for cell in run.cells() if cell.failed]
    assert failed == ["mlp, equal time"]
    assert "mlp, equal time, seed 0, diverged" in write_report(run, ["x"]).read_text()


def test_a_cell_of_another_version_is_refused(tmp_path, quick_measures):
    run = open_study(miniature("te-scores", n_variants=1), tmp_path, quick=True)
    (cell,) = run.cells()
    other = {**cell.recipe, "seed": 9}
    cell.folder.mkdir(parents=True)
    (cell.folder / "recipe.yaml").write_text(dump_recipe(other))
    with pytest.raises(InputError, match="results of other settings of this study"):
        run_study(run)


def test_a_cell_locked_by_another_process_is_skipped(tmp_path, quick_measures):
    run = open_study(miniature("te-scores", n_variants=1), tmp_path, quick=True)
    (cell,) = run.cells()
    cell.folder.mkdir(parents=True)
    with lock_folder(cell.folder):
        assert not run_cell(run, cell)
    assert not cell.done
    assert run_cell(run, cell)
    assert not run_cell(run, cell)  # nothing left to do


def test_seeds_differ_and_variants_share_their_data(tmp_path, quick_measures):
    study = miniature("te-scores", n_variants=2).replaced(quick=StudyScale({}, 2, "tiny."))
    run = open_study(study, tmp_path, quick=True)
    cells = run.cells()
    assert [cell.seed for cell in cells] == [0, 0, 1, 1]
    assert cells[0].recipe["data"] == cells[1].recipe["data"]
    run_study(run)
    losses = [read_log(cell.folder)[0].loss for cell in cells]
    assert losses[0] != losses[2]
    assert mean_over_seeds(cells, "log_likelihood").keys() == set(study.variants(True))


@pytest.mark.slow
def test_the_search_over_sizes_keeps_the_number_of_parameters(tmp_path, quick_measures, monkeypatch):
    monkeypatch.setattr(sizes, "PARAMETERS", 30_000)
    monkeypatch.setattr(sizes, "SEARCH", {"width": (16, 32), "head_dim": (4, 8), "heads": (1, 2)})
    study = get("sizes").replaced(
        variants=lambda quick: {}, quick=StudyScale(small({}) | {"model.size": "small"}, 1, "tiny.", 3)
    )
    run = open_study(study, tmp_path, quick=True)
    run_study(run)
    explored = run.explored()
    assert 1 <= len(explored) <= 3  # the same numbers may be proposed twice
    for cell in explored:
        assert 10_000 < cell.result["parameters"] < 60_000
    again = open_study(study, tmp_path, quick=True)
    run_study(again)
    assert len(again.explored()) == len(explored)  # the trials are stored


def test_the_report_on_sizes_separates_declared_and_searched_models(tmp_path):
    def cell(name: str, score: float, **numbers):
        model = {**sizes.BASE, "layers": 5, **numbers}
        folder = tmp_path / name
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps({"log_likelihood": score, "parameters": 10_000, "steps": 100}))
        return StudyCell(name, 0, {"model": model}, folder)

    declared = list(get("sizes").variants(True))
    assert sizes.name_size({**sizes.BASE, "heads": 1}) == declared.pop(8)  # as if it had diverged
    cells = [cell(name, 0.01 * number) for number, name in enumerate(declared)]
    cells += [cell(f"1m_heads={h}_layers=9", score, heads=h, layers=9) for h, score in ((2, 0.5), (3, -0.5), (4, 0.05))]
    report = get("sizes").report(cells, tmp_path)
    assert [row[1] for row in report.rows] == ["declared"] * 11 + ["searched"] * 3
    for rows in (report.rows[:11], report.rows[11:]):
        assert list(rows) == sorted(rows, key=lambda row: -row[4])
    assert "11 declared models" in report.findings[0]
    assert report.findings[0].endswith("(10,000 parameters, 0.000).")
    for part in ("3 searched models", "best is **160 × 2 heads of 16, 9 layers", "worst 160 × 3 heads of 16, 9 layers"):
        assert part in report.findings[1]
    assert "searched" not in "".join(get("sizes").report(cells[:11], tmp_path).findings)


def test_a_folder_holds_one_study(tmp_path):
    open_study(get("te-scores"), tmp_path, quick=True)
    with pytest.raises(InputError, match="holds the study te-scores"):
        open_study(get("sizes"), tmp_path, quick=True)
    with pytest.raises(InputError, match="budget quick"):
        open_study(get("te-scores"), tmp_path, quick=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot work in"):
        open_study(get("te-scores"), tmp_path / "file", quick=True)


@pytest.mark.slow
def test_every_cell_of_every_scale_is_a_valid_recipe(tmp_path):
    for name in STUDIES:
        for quick in (True, False):
            cells = open_study(get(name), tmp_path / name / str(quick), quick).cells()
            assert len({cell.folder for cell in cells}) == len(cells) >= 8


def test_the_command_lists_studies_and_names_the_nearest(capsys):
    assert main(["study"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in STUDIES)
    assert main(["study", "te-score"]) == 2
    assert "did you mean 'te-scores'" in capsys.readouterr().err


def test_variants_are_selected_by_name(tmp_path):
    """Variants are selected by name or ending; for any other name the error lists those that exist."""
    some = select_variants(get("images"), ["digits, np", "convcnp"])
    assert list(some.variants(True)) == ["digits, np", "digits, convcnp"]
    assert len(open_study(some, tmp_path, quick=True).cells()) == 2 * some.quick.seeds
    with pytest.raises(InputError, match=r"no variant 'cnp'; it has digits, np; digits, anp"):
        select_variants(get("images"), ["np", "cnp"])


def test_tables_show_a_dash_for_unknown_values():
    lines = format_table(("a", "b"), [("x", 1234), ("y", 0.12345), ("z", None)])
    assert lines[2:] == ["| x | 1,234 |", "| y | 0.123 |", "| z | – |"]


def test_a_report_of_cells_without_a_standard_error(tmp_path):
    run = open_study(get("te-scores").replaced(report=lambda cells, folder: StudyReport([], ["a"], [])), tmp_path, True)
    for cell, scores in zip(run.cells(), ({}, {"standard_error": 0.25}), strict=False):
        cell.folder.mkdir(parents=True)
        cell.write({"seconds": 60.0, **scores})
        page = write_report(run, ["fillin"]).read_text()
        assert ("a standard error of about 0.250" in page) == bool(scores)
