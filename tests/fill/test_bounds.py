"""Bounds: intervals stay within them, and warped predictions have the moments and quantiles of their samples."""

import numpy as np
import pandas as pd
import pytest
from support.series_files import csv

from fillin.predictive import GaussianMixture
from fillin.warp import BoundsWarp

pytest_plugins = ["support.fill_command"]


def test_intervals_stay_within_bounds(fill):
    random = np.random.default_rng(0)
    share = np.where(random.random(60) < 0.3, 0.0, random.random(60).round(3))
    share[-5:] = 1
    frame = pd.DataFrame({"x": np.arange(60), "share": share, "count": 9 * share})
    frame.loc[10:30, ["share", "count"]] = None
    free = fill(csv(frame), "--every", "1", "--until", "90").frame
    bound = fill(
        csv(frame), "--every", "1", "--until", "90", "--bounds", "share=0:1", "--bounds", "count=0:", "--force"
    ).frame
    assert (free["share_low"] < 0).any() or (free["share_high"] > 1).any(), "the bounds change nothing"
    assert bound["share_low"].min() >= 0
    assert bound["share_high"].max() <= 1
    assert bound["count_low"].min() >= 0
    for name in ("share", "count"):
        assert (
            (bound[f"{name}_low"] <= bound[f"{name}_filled"]) & (bound[f"{name}_filled"] <= bound[f"{name}_high"])
        ).all()


@pytest.mark.parametrize("bounds", [(0.0, None), (None, 3.0), (0.0, 3.0), (None, None), (-1e30, 1e30)])
def test_a_warp_is_inverted(bounds):
    low, high = (-5.0 if bounds[0] is None else max(bounds[0], -9)), (8.0 if bounds[1] is None else min(bounds[1], 9))
    y = np.linspace(low, high, 101)  # close to both bounds
    warp = BoundsWarp.fit(y, bounds)
    z = warp.forward(y)
    assert np.isfinite(z).all()
    assert (np.diff(z) > 0).all()
    np.testing.assert_allclose(warp.inverse(z), y, atol=1e-9)
    inner, step = y[1:-1], 1e-5 * (high - low)
    slope = (warp.forward(inner + step) - warp.forward(inner - step)) / (2 * step)
    np.testing.assert_allclose(warp.slope(inner), slope, rtol=1e-3)
    far = warp.inverse(np.array([-1e40, 1e40]))
    assert far[0] == (-1e40 if bounds[0] is None else bounds[0])
    assert far[1] == (1e40 if bounds[1] is None else bounds[1])


def test_a_warp_is_a_shift_far_from_the_bound():
    kelvin = 300 + 10 * np.random.default_rng(0).standard_normal(100)
    np.testing.assert_allclose(BoundsWarp.fit(kelvin, (0.0, None)).forward(kelvin) - kelvin, 0.2, atol=0.2)


@pytest.mark.parametrize("bounds", [(0.0, None), (None, 1.0), (0.0, 1.0)])
def test_moments_and_quantiles_are_those_of_warped_samples(bounds):
    random = np.random.default_rng(0)
    warp = BoundsWarp.fit(random.random(50), bounds)
    weights, means, stds = np.array([[0.7, 0.3]]), np.array([[-0.2, 0.5]]), np.array([[0.3, 0.8]])
    mixture = GaussianMixture(weights, means, stds, warp=warp)
    part = random.random(400_000) < 0.3
    y = warp.inverse(np.where(part, 0.5, -0.2) + np.where(part, 0.8, 0.3) * random.standard_normal(len(part)))
    mean, std = mixture.moments()
    assert mean[0] == pytest.approx(y.mean(), abs=0.003)
    assert std[0] == pytest.approx(y.std(), abs=0.003)
    for q in (0.025, 0.5, 0.9):
        assert mixture.quantile(q)[0] == pytest.approx(np.quantile(y, q), abs=0.005)
