"""The prior of sheets: reproducible, of order one, with every kind of missing cells."""

import math

import pytest
import torch

from fillin.data.gaussian_sheets import GaussianSheets
from fillin.data.sheet_prior import SheetPrior, draw_columns, draw_missing
from fillin.data.task import make_generator
from fillin.errors import InputError


def test_a_batch_is_a_function_of_seed_and_step():
    stream = SheetPrior(cells=800)
    first, again, other = stream.task(3), stream.task(3), SheetPrior(cells=800, seed=1).task(3)
    assert torch.equal(first.values, again.values)
    assert first.values.shape != other.values.shape or not torch.equal(first.values, other.values)


@pytest.mark.parametrize("dim_x", [1, 2])
def test_sheets_are_finite_and_have_queries(dim_x):
    stream, columns = SheetPrior(dim_x=dim_x, cells=800, rows=(8, 64)), set()
    for step in range(25):
        sheet = stream.task(step)
        assert all(part.isfinite().all() for part in (sheet.x, sheet.values, sheet.error, sheet.noise_free))
        assert sheet.queried.flatten(1).any(1).all()
        assert not (sheet.queried & sheet.observed).any()
        assert sheet.x.shape[-1] == dim_x
        columns.add(sheet.values.shape[2])
    assert 1 in columns
    assert len(columns) > 3


def test_columns_have_unit_scale_and_many_are_related():
    random = make_generator(0)
    x = torch.linspace(-2, 2, 100, dtype=torch.float64)[None, :, None].expand(40, -1, -1)
    f = draw_columns(x, 4, random)
    std = f.std(1)
    assert torch.isclose(std, torch.ones_like(std), atol=0.01).float().mean() > 0.95  # the others are constant
    correlation = torch.stack([torch.corrcoef(columns.T) for columns in f]).abs().nan_to_num()
    largest = (correlation - torch.eye(4)).amax(-1).flatten()
    assert (largest > 0.9).float().mean() > 0.2
    assert (largest < 0.5).float().mean() > 0.1


def test_cells_are_missing_in_every_way():
    x = torch.linspace(-2, 2, 60, dtype=torch.float64)[None, :, None].expand(400, -1, -1)
    missing = draw_missing(x, 3, make_generator(0))
    whole_rows = missing.all(2).sum(1) > 20
    one_column = (missing.float().mean(1) > 0.5).sum(1) == 1
    scattered = (missing.diff(dim=1) != 0).sum((1, 2)) > 50
    for pattern in (whole_rows, one_column, scattered):
        assert 0.05 < pattern.float().mean() < 0.8


@pytest.mark.parametrize("options", [{"single": 1.5}, {"rows": (2, 8)}, {"columns": (1, 3)}, {"plain": -0.1}])
def test_bad_options_are_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        SheetPrior(**options)


def test_exact_inference_gains_from_other_columns():
    stream = GaussianSheets(batch=32)
    alone, joint = stream.limits(0)
    assert joint.mean() > alone.mean() + 0.05
    assert torch.equal(stream.task(1).values, stream.task(1).values)
    one = GaussianSheets(columns=1, latent=1)
    assert torch.allclose(*one.limits(0))


def test_the_limit_of_independent_noise_is_its_entropy():
    """With columns of noise alone, the limit is the density of the noise, and other columns gain nothing."""
    stream = GaussianSheets(noise=(50.0, 50.0), batch=64)
    alone, joint = stream.limits(0)
    expected = -0.5 * (1 + math.log(2 * math.pi * 2500))
    assert abs(float(joint.mean()) - expected) < 0.05
    assert torch.allclose(alone, joint, atol=0.02)
