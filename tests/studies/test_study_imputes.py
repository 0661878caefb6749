"""The study `imputes`: held-out cells are scored in standard deviations, and the study ends in a report."""

import numpy as np
import pandas as pd
import pytest

from fillin import TableImputer
from fillin_studies import get, imputes, open_study, run_study
from fillin_studies.report import write_report


@pytest.fixture
def values():
    random = np.random.default_rng(0)
    a = random.normal(size=400)
    return np.stack([1e6 + 1e3 * a, a + 0.01 * random.normal(size=400), random.normal(size=400)], 1)


def test_the_mean_has_an_rmse_of_one_and_ridge_finds_a_line(values):
    assert imputes.score_imputation(values, "mean", 0)["rmse"] == pytest.approx(1, abs=0.1)
    rmse = imputes.score_imputation(values, "iterative", 0)["rmse"]
    assert rmse == pytest.approx(
        np.sqrt((1 + 2 * 0.2) / 3), abs=0.1
    )  # a fifth of two columns are without the other one


def test_observed_cells_are_not_scored(values, monkeypatch):
    missing = imputes.draw_mask(values.shape, 3)

    def impute(observed, seed):
        truth = (values - np.nanmean(np.where(missing, np.nan, values), 0)) / np.nanstd(
            np.where(missing, np.nan, values), 0
        )
        assert (np.isnan(observed) == missing).all()
        return np.where(missing, truth + 0.5, 1e9), np.full(observed.shape, 0.5 / 1.9)

    monkeypatch.setitem(imputes.METHODS, "half off", impute)
    scores = imputes.score_imputation(values, "half off", 3)
    assert scores["rmse"] == pytest.approx(0.5)
    assert scores["mae"] == pytest.approx(0.5)
    assert scores["covered"] == 1


@pytest.mark.slow
def test_the_study_ends_in_a_report(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "line"
    folder.mkdir(parents=True)
    x = np.random.default_rng(0).normal(size=40)
    pd.DataFrame({"a": x, "b": 2 * x, "c": -x}).to_csv(folder / "data.csv.gz", header=False, index=False)
    pd.DataFrame({"s": np.arange(40) < 4}).astype(int).to_csv(folder / "test_mask.csv.gz", header=False, index=False)
    quick = lambda X, seed: TableImputer(members=2, steps=5, random_state=seed).fit(X).fill(X)  # noqa: E731
    monkeypatch.setitem(imputes.METHODS, imputes.OURS, quick)
    monkeypatch.delitem(imputes.METHODS, "iterative, forests")
    monkeypatch.setattr("fillin_studies.tables.data.SHIPPED", ("iris",))
    run = open_study(get("imputes", tmp_path / "data", 1), tmp_path / "out", quick=True)
    run_study(run)
    results = {cell.variant: cell.result for cell in run.cells()}
    assert results["line, iterative, mask 0"]["rmse"] < 0.6 < results["line, mean, mask 0"]["rmse"]
    page = write_report(run, ["fillin", "study", "imputes"]).read_text()
    assert "| line |" in page
    assert "| iris |" in page
    assert "sets" in page
