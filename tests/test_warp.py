"""Scales rise, are undone exactly, carry densities over, and tame heavy tails."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fillin.warp import PiecewiseLinearWarp

NUMBERS = some.floats(-1e100, 1e100) | some.floats(-10, 10) | some.integers(-3, 3).map(float)
KNOWN = some.lists(NUMBERS, min_size=1, max_size=200)
HOW = some.sampled_from(["standard", "quantile"])


def part(scale: PiecewiseLinearWarp, y: np.ndarray) -> np.ndarray:
    return np.array(scale.widths)[np.searchsorted(scale.knots, y, side="right")]


@given(KNOWN, some.lists(NUMBERS, min_size=1), HOW)
@settings(max_examples=300)
def test_the_inverse_undoes_it_and_order_is_kept(known, other, how):
    scale = PiecewiseLinearWarp.fit(np.array(known), how)
    y = np.sort(np.array(known + other))
    z = scale.forward(y)
    assert np.isfinite(z).all()
    assert (np.diff(z) >= 0).all()
    # to the rounding of z and of y
    room = 1e-14 * (1 + np.abs(z)) * part(scale, y) + 1e-12 * np.maximum(np.abs(y), np.abs(scale.knots).max())
    assert (np.abs(scale.inverse(z) - y) <= room).all()
    assert (np.diff(scale.scores) > 0).all()
    assert (np.diff(scale.knots) > 0).all()
    assert np.isfinite(scale.log_slope(y)).all()


@pytest.mark.parametrize("how", ["standard", "quantile"])
@pytest.mark.parametrize("n", [1, 2, 3, 20, 1000])
def test_log_slope_carries_densities_over(how, n):
    """∫ φ(z(y)) dz/dy dy = 1, and ln dz/dy is the slope of forward."""
    random = np.random.default_rng(n)
    scale = PiecewiseLinearWarp.fit(random.gamma(0.3, size=n), how)
    y = np.unique([*scale.inverse(np.linspace(-9, 9, 20_001)), *scale.knots])
    middle, gap = (y[1:] + y[:-1]) / 2, np.diff(y)
    density = np.exp(-0.5 * scale.forward(middle) ** 2 + scale.log_slope(middle)) / np.sqrt(2 * np.pi)
    assert np.sum(density * gap) == pytest.approx(1, abs=1e-5)
    wide = gap > 1e-7 * np.abs(y[1:])  # where a difference has digits
    assert wide.sum() > 5000
    slope = np.diff(scale.forward(y)) / gap
    np.testing.assert_allclose(np.log(slope[wide]), scale.log_slope(middle)[wide], atol=1e-4)


def test_standard_is_mean_and_deviation_of_what_is_known():
    values = np.array([1.0, np.nan, 5.0, 6.0])
    scale = PiecewiseLinearWarp.fit(values)
    z = scale.forward(values)
    assert np.isnan(z[1])
    assert np.isnan(scale.log_slope(values)[1])
    assert (np.nanmean(z), np.nanstd(z)) == (pytest.approx(0), pytest.approx(1))


@pytest.mark.parametrize("how", ["standard", "quantile"])
@pytest.mark.parametrize(
    ("constant", "width"), [(0.0, 1.0), (-4.0, 4.0), (0.1, 0.1), (1e300, 1e300), (np.nan, 1.0), (5e-324, 1e-150)]
)
def test_a_column_that_does_not_vary(how, constant, width):
    scale = PiecewiseLinearWarp.fit(np.full(7, constant), how)
    assert scale.widths[0] == pytest.approx(width, abs=0)
    assert scale.forward(np.array([np.nan_to_num(constant)])).tolist() == [0]
    assert PiecewiseLinearWarp.fit(np.empty(0), how).forward(np.array([2.0])).tolist() == [2]


def test_quantiles_tame_heavy_tails():
    random = np.random.default_rng(0)
    known, new = random.standard_cauchy((2, 20_000))
    z = PiecewiseLinearWarp.fit(known, "quantile").forward(new)
    assert np.abs(PiecewiseLinearWarp.fit(known).forward(new)).max() > 20
    assert np.abs(z).max() < 6
    for score in (-2, -1, 0, 1, 2):  # as a normal sample has them
        wanted = {-2: 0.02275, -1: 0.1587, 0: 0.5, 1: 0.8413, 2: 0.97725}[score]
        assert (z < score).mean() == pytest.approx(wanted, abs=0.01)


def test_quantiles_are_few_ties_are_one_and_tails_go_on():
    random = np.random.default_rng(0)
    scale = PiecewiseLinearWarp.fit(random.exponential(size=50_000), "quantile")
    assert 40 < len(scale.knots) <= 64
    assert len(PiecewiseLinearWarp.fit(random.normal(size=20), "quantile").knots) <= 7  # no slope from two points
    ties = PiecewiseLinearWarp.fit(np.array([0.0] * 50 + [1.0] * 50), "quantile")
    assert ties.knots == (0.0, 1.0)
    np.testing.assert_allclose(ties.scores, [-0.6745, 0.6745], atol=1e-4)
    steep = PiecewiseLinearWarp.fit(np.array([0.0, 1.0, 2.0, 3.0, 4.0 - 1e-6, 4.0]), "quantile")
    assert steep.forward(np.array([5.0]))[0] < 5  # a little outside is not far away


def test_points_that_numbers_cannot_tell_apart_are_one():
    scale = PiecewiseLinearWarp.fit(np.array([0.0, 5e-324, 1.0, 1.0 + 2e-16, 2.0] * 20), "quantile")
    assert scale.knots == (0.0, 1.0, 2.0)


def test_scales_go_through_json_and_pickle():
    for how in ("standard", "quantile"):
        scale = PiecewiseLinearWarp.fit(np.random.default_rng(0).gamma(0.1, size=300), how)
        assert PiecewiseLinearWarp.from_dict(json.loads(json.dumps(scale.to_dict(), allow_nan=False))) == scale
        assert pickle.loads(pickle.dumps(scale)) == scale
