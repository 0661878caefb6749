"""Long series in the study `fill`: masks, comparisons, and their part of the report."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from support.helpers import make_monthly_series

from fillin_studies import get, open_study, run_study
from fillin_studies.fill.interpolation import make_normal
from fillin_studies.fill.long_series import LONG, LONG_METHODS, compare_long, describe_long, find_long_series
from fillin_studies.fill.methods import METHODS, OURS
from fillin_studies.report import write_report
from fillin_studies.sheets.data import find_sheets


@pytest.fixture
def folder(tmp_path):
    """A curve, and a sheet of two columns of which one has a missing value."""
    for name in ("curves", "sheets"):
        (tmp_path / name).mkdir()
    x, y = make_monthly_series()
    lines = [f"{a!r},{b!r}" for a, b in zip(x[:, 0].tolist(), y.tolist(), strict=True)]
    (tmp_path / "curves" / "months.csv").write_text("time,value\n" + "\n".join(lines) + "\n")
    lines = [f"{i},{np.sin(i / 9):.4f},{'' if i == 3 else i % 5}" for i in range(80)]
    with gzip.open(tmp_path / "sheets" / "weather.csv.gz", "wt") as file:
        file.write("step,wind,rain\n" + "\n".join(lines))
    return tmp_path


def test_masks_are_those_of_columns_alone_in_the_study_sheets(folder):
    series = find_long_series(folder)
    assert list(series) == ["weather wind", "weather rain"]
    sheet = find_sheets(folder).sets["weather"].case("single", 2)
    for j, data in enumerate(series.values()):
        case = data.case("fifth", 2)
        assert np.isfinite(case.y).all()
        hidden = sheet.hidden[~np.isnan(sheet.y[:, j]), j]
        assert np.array_equal(case.mask.held_out, hidden)
        assert np.array_equal(case.mask.observed, ~hidden)
    assert 3 not in series["weather rain"].case("fifth", 0).x


def test_without_sheets_there_are_no_long_series(folder):
    assert find_long_series(None) == {}
    assert find_long_series(folder / "curves") == {}


def test_methods_are_compared_with_linear_interpolation_on_common_series():
    def cell(method: str, data: str, rmse: float, group: str = LONG) -> dict:
        return {"method": method, "data": data, "rmse": rmse, "group": group}

    ours = OURS[1]
    [comparison] = compare_long([
        cell(ours, "a", 0.5), cell(ours, "b", 1.01), cell(ours, "c", 3.0), cell(ours, "d", 9.0), cell("linear", "a", 1),
        cell("linear", "b", 1), cell("linear", "c", 1), cell("linear", "d", 1, "curve"),
    ])  # fmt: skip
    assert dict(comparison.ratios) == {"a": 0.5, "b": 1.01, "c": 3.0}
    assert (comparison.better, comparison.close, comparison.worst) == (1, 2, "c")
    [text] = describe_long([comparison])
    assert "better than linear interpolation on 1 of 3, and at most 1.02 times it on 2; at worst 3.00 times (c)" in text


def test_the_report_has_a_section_on_long_series(folder, monkeypatch):
    def predict_mean(x, y, xt):
        return make_normal(np.full(len(xt), y.mean()), np.full(len(xt), y.std() + 1e-3))

    monkeypatch.setitem(METHODS, OURS[1], replace(METHODS[OURS[1]], predict=predict_mean, weights=None))
    study = get("fill", folder, 1)
    some = {name: part for name, part in study.variants(True).items() if part["kind"] == "fifth"}
    assert {part["method"] for part in some.values()} == set(LONG_METHODS)
    run = open_study(study.replaced(variants=lambda quick: some), folder / "out", quick=True)
    run_study(run)
    page = write_report(run, ["fillin", "study", "fill"]).read_text()
    section = page.split("## Long series")[1].split("## ")[0]
    assert "| cubic spline | 2 |" in section
    assert f"| {OURS[1]} | 2 |" in section
    assert "| weather wind, fifth |" not in page
