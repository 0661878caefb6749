"""The study of wide gaps: its functions, exact predictions, sample paths, and its report."""

from functools import partial

import numpy as np
import pytest

from fillin.cli import main
from fillin.errors import InputError
from fillin.predictive import GaussianMixture
from fillin_studies import get, open_study, run_study, wide_gaps
from fillin_studies.fill.interpolation import make_normal
from fillin_studies.fill.methods import METHODS, OURS
from fillin_studies.report import write_report
from fillin_studies.wide_gaps import cases, find_changes, find_methods
from fillin_studies.wide_gaps.cases import EXACT, FUNCTIONS, GAPS, HIGH, LOW, draw_gap, draw_record, measure_cases


def ignore(share: float) -> None:
    pass


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("gap", GAPS)
def test_gaps_are_as_wide_as_they_say(function, gap):
    case = draw_gap(function, 0.1, gap, 3)
    xc, xt = case.x[case.observed], case.x[~case.observed]
    assert (len(xc), len(xt)) == (2 * cases.SIDE_POINTS, cases.TARGETS)
    assert LOW <= xc.min() < xc.max() <= HIGH
    if gap == "beyond":
        assert (xt >= HIGH).all()
        assert (xt <= HIGH + (HIGH - LOW) / 2).all()
    else:
        half = GAPS[gap] * (HIGH - LOW) / 2
        assert (np.abs(xt) <= half).all()
        assert (np.abs(xc) >= half).all()
        assert (xc < 0).sum() == (xc > 0).sum() == cases.SIDE_POINTS
    assert np.array_equal(case.y, draw_gap(function, 0.1, gap, 3).y)
    assert not np.array_equal(case.y, draw_gap(function, 0.1, gap, 4).y)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_more_rows_are_more_of_the_same_function(function):
    few, many = (draw_record(function, rows, 40, 1) for rows in (10, 40))
    assert np.array_equal(few.truth, many.truth)
    assert np.array_equal(few.query[1], many.query[1][:10])
    assert (few.observed.sum(), many.observed.sum()) == (10, 40)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_exact_predictions_cover_what_they_claim(noise):
    draws = [partial(draw_gap, "rbf", noise, gap, number) for gap in GAPS for number in range(15)]
    measured = measure_cases(draws, EXACT, False, ignore)
    assert measured["covered"] == pytest.approx(0.95, abs=3 * measured["covered_error"] + 0.01)
    assert measured["functions"] == len(measured["by_function"]) == 60


def test_sample_paths_agree_with_predictions():
    if (missing := METHODS[OURS[1]].missing) is not None:
        pytest.skip(missing)
    draws = [partial(draw_gap, "matern-5/2", 0.1, "1/2", number) for number in range(2)]
    measured = measure_cases(draws, OURS[1], True, ignore)
    assert measured["sample_ratio"] == pytest.approx(1, abs=0.15)
    assert 0 <= measured["mean_covered"] <= 1


def test_changes_are_those_of_the_same_functions():
    sheet = wide_gaps.SHEET
    records = {
        ("rbf", 50): {sheet: {"by_function": [0.0, 5.0]}},
        ("prior", 50): {sheet: {"by_function": [1.0, 1.0]}},
        ("rbf", 200): {sheet: {"by_function": [1.0, 6.2]}, EXACT: {"by_function": [9.0, 9.0]}},
        ("prior", 200): {sheet: {"by_function": [0.0, 0.0]}},
    }
    changes = find_changes(records)
    assert list(changes) == [("rbf", 200), ("prior", 200)]
    assert changes["rbf", 200] == pytest.approx((1.1, 0.1))
    assert changes["prior", 200] == pytest.approx((-1, 0))
    [finding] = wide_gaps.describe_results({}, records)
    assert "falls, by more than its standard error, in 1 of 2 steps (prior, 200 rows: -1.000 ± 0.000)" in finding


def test_a_function_of_the_prior_has_no_exact_prediction():
    assert EXACT not in find_methods("prior")
    assert EXACT in find_methods("rbf")
    assert draw_gap("prior", 0.0, "1/5", 0).exact is None


@pytest.mark.slow
def test_the_study_ends_in_a_report(tmp_path, monkeypatch):
    def predict(case, method) -> GaussianMixture:
        return make_normal(np.zeros(len(case.truth)), np.full(len(case.truth), 0.1 if method == "curve" else 1.0))

    paths = {"sample_ratio": 1.02, "mean_covered": 1.0}
    monkeypatch.setattr(cases, "predict", predict)
    monkeypatch.setattr(cases, "compare_draws", lambda *_: paths)
    monkeypatch.setattr(cases, "load_once", lambda name: None)
    monkeypatch.setattr(wide_gaps, "ROWS", {True: (5, 10), False: ()})
    study = get("wide-gaps", None, 2)
    some = {
        name: cell
        for name, cell in study.variants(True).items()
        if cell["function"] != "matern-5/2" and cell.get("gap") in (None, "4/5", "beyond")
    }
    run = open_study(study.replaced(variants=lambda quick: some), tmp_path / "out", quick=True)
    run_study(run)
    page = write_report(run, ["fillin", "study", "wide-gaps"]).read_text()
    assert "| rbf, noise 0, gap of 4/5 |" in page
    assert "Sample paths have 1.02 to 1.02 times" in page
    assert "## More observations" in page
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {"coverage.png", "observations.png"}


def test_the_study_reads_no_data(tmp_path, capsys):
    with pytest.raises(InputError, match="draws its functions; leave --data out"):
        get("wide-gaps", tmp_path)
    assert main(["study", "wide-gaps", "--data", str(tmp_path)]) == 2
    assert "leave --data out" in capsys.readouterr().err


def test_every_cell_has_a_folder(tmp_path):
    run = open_study(get("wide-gaps"), tmp_path / "out", quick=False)
    assert len({cell.folder for cell in run.cells()}) == len(run.cells())
