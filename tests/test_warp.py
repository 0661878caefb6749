"""Warps are increasing and invertible, transform densities, and make heavy tails normal."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fillin.warp import PiecewiseLinearWarp

NUMBERS = st.floats(-1e100, 1e100) | st.floats(-10, 10) | st.integers(-3, 3).map(float)
OBSERVED = st.lists(NUMBERS, min_size=1, max_size=200)
METHODS = st.sampled_from(["standard", "quantile"])


def segment_width(warp: PiecewiseLinearWarp, y: np.ndarray) -> np.ndarray:
    return np.array(warp.widths)[np.searchsorted(warp.knots, y, side="right")]


@given(OBSERVED, st.lists(NUMBERS, min_size=1), METHODS)
@settings(max_examples=300)
def test_the_inverse_is_exact_and_order_is_kept(observed, other, method):
    warp = PiecewiseLinearWarp.fit(np.array(observed), method)
    y = np.sort(np.array(observed + other))
    z = warp.forward(y)
    assert np.isfinite(z).all()
    assert (np.diff(z) >= 0).all()
    # up to the rounding of z and of y
    tolerance = 1e-14 * (1 + np.abs(z)) * segment_width(warp, y) + 1e-12 * np.maximum(
        np.abs(y), np.abs(warp.knots).max()
    )
    assert (np.abs(warp.inverse(z) - y) <= tolerance).all()
    assert (np.diff(warp.scores) > 0).all()
    assert (np.diff(warp.knots) > 0).all()
    assert np.isfinite(warp.log_slope(y)).all()


@pytest.mark.parametrize("method", ["standard", "quantile"])
@pytest.mark.parametrize("n", [1, 2, 3, 20, 1000])
def test_log_slope_transforms_densities(method, n):
    """∫ φ(z(y)) dz/dy dy = 1, and ln dz/dy is the slope of forward."""
    random = np.random.default_rng(n)
    warp = PiecewiseLinearWarp.fit(random.gamma(0.3, size=n), method)
    y = np.unique([*warp.inverse(np.linspace(-9, 9, 20_001)), *warp.knots])
    middle, gap = (y[1:] + y[:-1]) / 2, np.diff(y)
    density = np.exp(-0.5 * warp.forward(middle) ** 2 + warp.log_slope(middle)) / np.sqrt(2 * np.pi)
    assert np.sum(density * gap) == pytest.approx(1, abs=1e-5)
    wide = gap > 1e-7 * np.abs(y[1:])  # where a difference is exact enough
    assert wide.sum() > 5000
    slope = np.diff(warp.forward(y)) / gap
    np.testing.assert_allclose(np.log(slope[wide]), warp.log_slope(middle)[wide], atol=1e-4)


def test_standard_uses_mean_and_std_of_the_observed_values():
    values = np.array([1.0, np.nan, 5.0, 6.0])
    warp = PiecewiseLinearWarp.fit(values)
    z = warp.forward(values)
    assert np.isnan(z[1])
    assert np.isnan(warp.log_slope(values)[1])
    assert (np.nanmean(z), np.nanstd(z)) == (pytest.approx(0), pytest.approx(1))


@pytest.mark.parametrize("method", ["standard", "quantile"])
@pytest.mark.parametrize(
    ("constant", "width"), [(0.0, 1.0), (-4.0, 4.0), (0.1, 0.1), (1e300, 1e300), (np.nan, 1.0), (5e-324, 1e-150)]
)
def test_a_constant_column(method, constant, width):
    warp = PiecewiseLinearWarp.fit(np.full(7, constant), method)
    assert warp.widths[0] == pytest.approx(width, abs=0)
    assert warp.forward(np.array([np.nan_to_num(constant)])).tolist() == [0]
    assert PiecewiseLinearWarp.fit(np.empty(0), method).forward(np.array([2.0])).tolist() == [2]


def test_quantiles_make_heavy_tails_normal():
    random = np.random.default_rng(0)
    observed, new = random.standard_cauchy((2, 20_000))
    z = PiecewiseLinearWarp.fit(observed, "quantile").forward(new)
    assert np.abs(PiecewiseLinearWarp.fit(observed).forward(new)).max() > 20
    assert np.abs(z).max() < 6
    for score in (-2, -1, 0, 1, 2):  # shares of a normal distribution
        expected = {-2: 0.02275, -1: 0.1587, 0: 0.5, 1: 0.8413, 2: 0.97725}[score]
        assert (z < score).mean() == pytest.approx(expected, abs=0.01)


def test_knots_are_few_ties_share_one_and_tails_are_not_too_steep():
    random = np.random.default_rng(0)
    warp = PiecewiseLinearWarp.fit(random.exponential(size=50_000), "quantile")
    assert 40 < len(warp.knots) <= 64
    assert len(PiecewiseLinearWarp.fit(random.normal(size=20), "quantile").knots) <= 7  # no slope from two points
    ties = PiecewiseLinearWarp.fit(np.array([0.0] * 50 + [1.0] * 50), "quantile")
    assert ties.knots == (0.0, 1.0)
    np.testing.assert_allclose(ties.scores, [-0.6745, 0.6745], atol=1e-4)
    steep = PiecewiseLinearWarp.fit(np.array([0.0, 1.0, 2.0, 3.0, 4.0 - 1e-6, 4.0]), "quantile")
    assert steep.forward(np.array([5.0]))[0] < 5  # a value a little outside stays near


def test_knots_closer_than_float64_precision_are_merged():
    warp = PiecewiseLinearWarp.fit(np.array([0.0, 5e-324, 1.0, 1.0 + 2e-16, 2.0] * 20), "quantile")
    assert warp.knots == (0.0, 1.0, 2.0)


def test_warps_survive_json_and_pickle():
    for method in ("standard", "quantile"):
        warp = PiecewiseLinearWarp.fit(np.random.default_rng(0).gamma(0.1, size=300), method)
        assert PiecewiseLinearWarp.from_dict(json.loads(json.dumps(warp.to_dict(), allow_nan=False))) == warp
        assert pickle.loads(pickle.dumps(warp)) == warp
