"""Functions without a kernel, and mixtures."""

import math

import pytest
import torch

from fillin.data import GaussianProcessPrior, MixturePrior, curves
from fillin.data.functions import PredatorPrey, Sawtooth
from fillin.errors import FillinError


def test_a_sawtooth_is_in_0_1_with_the_slope_of_its_frequency():
    wave, x = Sawtooth((2.0, 4.0)), torch.linspace(-2, 2, 40_001, dtype=torch.float64).view(1, -1, 1)
    for seed in range(20):
        y = wave.draw(x, torch.Generator().manual_seed(seed))[0]
        assert 0 <= y.min() <= y.max() < 1
        slope = (y.diff(dim=1) / 1e-4).flatten()
        steep = slope.abs().median()
        assert 2 <= steep <= 4
        smooth = slope[slope.abs() < 5]
        assert torch.allclose(smooth, smooth.median().expand_as(smooth), atol=1e-3)
        assert abs(len(slope) - len(smooth) - 4 * steep) <= 1  # one jump per period


def test_a_sawtooth_stays_below_1_in_float32():
    phases = torch.tensor([-1e-18, 1 - 1e-12, -1e-9, 3.0], dtype=torch.float64)
    assert Sawtooth()._wave(phases).float().tolist() == [1 - 2**-24, 1 - 2**-24, 1 - 2**-24, 0]


def test_a_square_wave_has_two_values():
    task = curves("square-wave", protocol="sawtooth").task(1)
    assert sorted(set(task.yt.flatten().tolist())) == [0, 1]
    assert 0.4 < task.yt.mean() < 0.6


def test_predator_prey_populations_oscillate():
    x = torch.linspace(-2, 2, 1001, dtype=torch.float64).view(1, -1, 1).expand(8, -1, 1)
    y, _ = PredatorPrey().draw(x, torch.Generator().manual_seed(0))
    assert y.shape == (8, 1001, 2)
    assert y.min() > 0
    again = PredatorPrey().draw(x[:, ::10], torch.Generator().manual_seed(0))[0]
    assert torch.allclose(again, y[:, ::10])  # the path does not depend on the locations
    log_ratio = 0.01 + (y.amax(1) / y.amin(1)).log()
    assert (log_ratio > 0.5).all()  # both populations oscillate


def test_predator_prey_covers_any_range():
    for options in ({"shift": 4.0}, {"target_range": (2.0, 6.0)}):
        assert curves("predator-prey").at(**options).task(0).yt.std(1).min() > 0.01


def test_shares_of_a_mixture():
    stream = curves(
        "3 rbf | sawtooth", noise=0.0, scale=(10.0, 10.0), batch=2000, points=8, context=(1, 1), targets=(6, 6)
    )
    _, unknowns = stream.draw(0)
    counts = {type(member).__name__: len(rows) for rows, member, _ in unknowns}
    assert sum(counts.values()) == 2000
    assert abs(counts["GaussianProcessPrior"] - 1500) < 4 * math.sqrt(2000 * 0.75 * 0.25)
    teeth = next(rows for rows, member, _ in unknowns if isinstance(member, Sawtooth))
    assert stream.task(0).yt[teeth].min() >= 0
    assert stream.task(0).yt[teeth].max() < 1


def test_weights_of_a_mixture():
    with pytest.raises(FillinError, match="a positive weight for each of 2"):
        MixturePrior((GaussianProcessPrior(), GaussianProcessPrior()), (1.0, 0.0))
