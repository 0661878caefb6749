"""Methods of the study `fill`: finite predictions, coverage of linear interpolation, and absent packages."""

import numpy as np
import pytest
import xarray as xr
from support.helpers import KernelMean, make_monthly_series

import fillin
from fillin_studies.fill import FillStudy, methods
from fillin_studies.fill.data import GapCase, GapMask, make_mask
from fillin_studies.fill.interpolation import average_periods_away, find_period
from fillin_studies.fill.methods import METHODS, FillMethod
from fillin_studies.fill.scores import score_prediction


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if 1 in method.dims])
@pytest.mark.parametrize("series", ["wave", "constant", "zero", "two"])
def test_predictions_of_series_are_finite_and_near_the_data(name, series, monkeypatch):
    if METHODS[name].requires:
        pytest.importorskip(METHODS[name].requires)
    monkeypatch.setattr("fillin_studies.fill.methods._ADAM_STEPS", 20)
    x, y = make_monthly_series(36)
    if series == "two":
        x, y = x[[0, 20]], y[[0, 20]]
    else:
        y = {"wave": y, "constant": np.full_like(y, 7.0), "zero": np.zeros_like(y)}[series]
    observed = np.arange(len(y)) % 3 != 1
    queries = np.concatenate([x[~observed], [[x.max() + 1.0]]])
    prediction = METHODS[name].predict(x[observed], y[observed], queries)
    for part in (prediction.mean, prediction.std, prediction.log_prob(np.full(len(queries), y[0]))):
        assert part.shape == (len(queries),)
        assert np.isfinite(part).all()
    assert (prediction.std > 0).all()
    low, high = y.min() - 3 * (np.ptp(y) + 1), y.max() + 3 * (np.ptp(y) + 1)
    assert ((low < prediction.mean) & (prediction.mean < high)).all()
    if series in ("constant", "zero") and METHODS[name].weights is None:
        assert prediction.mean == pytest.approx(y[0], abs=1e-3)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if 2 in method.dims])
def test_predictions_of_fields_are_finite_and_near_the_data(name):
    if METHODS[name].requires:
        pytest.importorskip(METHODS[name].requires)
    if METHODS[name].missing:
        pytest.skip(METHODS[name].missing)
    x = np.stack(np.meshgrid(np.arange(8.0), np.arange(12.0), indexing="ij"), -1).reshape(-1, 2)
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1]
    held_out = make_mask("random", len(y), 0, share=0.4)
    case = GapCase(x, y, held_out)
    prediction = METHODS[name].predict(*case.query)
    assert np.isfinite(prediction.mean).all()
    assert (prediction.std > 0).all()
    assert score_prediction(prediction, case)["squared"] < 1


def test_linear_interpolation_has_the_variance_of_a_random_walk():
    """Between observed points at distances a and b the variance of a random walk is ab/(a + b)."""
    x, covered = np.arange(300.0)[:, None], []
    observed = (np.arange(300) < 100) | (np.arange(300) > 180)
    for seed in range(20):
        y = np.random.default_rng(seed).normal(size=300).cumsum()
        prediction = METHODS["linear"].predict(x[observed], y[observed], x[~observed])
        a = np.arange(1.0, 82.0)
        assert prediction.std == pytest.approx(np.sqrt(a * (82 - a) / 82), rel=0.2)
        covered.append(score_prediction(prediction, GapCase(x, y, GapMask(observed, ~observed)))["covered"])
    assert 0.88 < np.mean(covered) < 1


def test_the_period_is_detected_and_used():
    x, y = make_monthly_series()
    keep = make_mask("random", len(y), 0).observed
    assert find_period(x[keep, 0], y[keep]) == pytest.approx(1.0, rel=0.05)
    assert find_period(x[:5, 0], y[:5]) is None
    assert find_period(x[:, 0], np.full(len(x), 3.0)) is None
    row = np.arange(20.0)
    values, away = average_periods_away(row[:16], row[:16] % 4, row, 4.0)
    assert np.array_equal(values, row % 4)
    assert away.tolist() == [1.0] * 20
    alone, away = average_periods_away(row[:4], row[:4], np.array([9.0]), 4.0)
    assert (alone[0], away[0]) == (1.0, 2.0)
    assert np.isnan(average_periods_away(row[[0, 1, 3]], row[[0, 1, 3]], np.array([10.0]), 4.0)[0][0])


def test_an_absent_method_is_left_out_with_a_reason(monkeypatch):
    monkeypatch.setitem(METHODS, "ghost", FillMethod(METHODS["linear"].predict, "none", requires="no_such_module"))
    monkeypatch.setitem(METHODS, "spirit", FillMethod(METHODS["linear"].predict, "none", weights="no such weights"))
    assert "no_such_module is not installed" in str(METHODS["ghost"].missing)
    assert "no weights" in str(METHODS["spirit"].missing)
    used = {cell["method"] for cell in FillStudy().variants(True).values()}
    assert not used & {"ghost", "spirit"}


def test_surface_predicts_as_fill_does(monkeypatch):
    """A field of more cells than a context takes, with land: mean and std equal those of `fillin.fill`."""
    monkeypatch.setattr(methods, "load_once", lambda name: KernelMean())
    random = np.random.default_rng(0)
    truth = np.add.outer(np.sin(np.arange(18.0)), np.cos(np.arange(36) / 4))
    land = np.zeros(truth.shape, dtype=bool)
    land[4:8, 10:15] = land[:, 20:22] = land[11] = (
        True  # whole columns and a row too: the grid is recognised all the same
    )
    x = np.stack(np.meshgrid(np.arange(18.0), np.arange(36) * 10.0, indexing="ij"), -1)
    held_out = (random.random(truth.shape) < 0.4) & ~land
    observed = ~held_out & ~land
    prediction = METHODS["sheet-2d"].predict(x[observed], truth[observed], x[held_out])
    data = xr.DataArray(
        np.where(observed, truth, np.nan), {"lat": np.arange(18.0), "lon": np.arange(36) * 10.0}, name="v"
    )
    filled = fillin.fill(data, mask=held_out, model=KernelMean())
    np.testing.assert_allclose(prediction.mean, filled["v_filled"].values[held_out], rtol=1e-6)
    np.testing.assert_allclose(prediction.std, filled["v_std"].values[held_out], rtol=1e-6)
