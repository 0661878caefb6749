"""Slices of a field that inform each other: the background, where it is used, and that it does no harm."""

import dask
import numpy as np
import pytest
import xarray as xr
from scipy.ndimage import gaussian_filter
from support.fields_with_gaps import PARTS, read_dataset, write_dataset
from support.helpers import KernelMean

import fillin
from fillin.filling.grid.background import MIN_SLICES, SliceGroup, _group_slices, predict_slices
from fillin.filling.grid.holdout import holdout_fields
from fillin.filling.grid.layout import GridLayout, make_layout
from fillin.filling.grid.learn_background import choose_window
from fillin.filling.grid.sources import dataset_variable
from fillin.filling.holdout import score_holdout

pytest_plugins = ["support.field_command"]


def low_rank(times: int = 16, lat: int = 20, lon: int = 24, rank: int = 2, seed: int = 0) -> np.ndarray:
    """Rough climatology and a few rough patterns that vary in time: neighbours in space do not tell them."""
    random = np.random.default_rng(seed)
    patterns = random.standard_normal((1 + rank, lat, lon))
    amplitudes = np.concatenate([3 * np.ones((times, 1)), random.standard_normal((times, rank))], 1)
    return np.einsum("tk,kyx->tyx", amplitudes, patterns) + 5


def add_clouds(field: np.ndarray, every: int = 2, share: float = 0.3, width: float = 3, seed: int = 1) -> np.ndarray:
    """Remove connected regions of every second slice."""
    random, field = np.random.default_rng(seed), field.copy()
    for t in range(0, len(field), every):
        noise = gaussian_filter(random.standard_normal(field.shape[1:]), width, mode="wrap")
        field[t][noise > np.quantile(noise, 1 - share)] = np.nan
    return field


def as_dataset(values: np.ndarray, dims=("time", "y", "x")) -> xr.Dataset:
    return xr.Dataset(
        {"v": (dims, values)}, {dim: np.arange(n, dtype=float) for dim, n in zip(dims, values.shape, strict=True)}
    )


def lay_out(values: np.ndarray, dims=("time", "y", "x"), **options) -> GridLayout:
    return make_layout(dataset_variable(as_dataset(values, dims), "v", "here"), over=["y", "x"], **options)


def background(values: np.ndarray, **options):
    learned = lay_out(values, **options).settings.background
    assert learned is not None
    return learned


def test_a_field_of_low_rank_is_recovered():
    truth = low_rank()
    values = add_clouds(truth)
    missing = np.isnan(values)
    mean, std = background(values).fields(values)
    assert np.abs(mean - truth)[missing].mean() < 0.12 * truth.std()
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    alone, together = (fillin.fill(values, model=KernelMean(), alone=flag).filled for flag in (True, False))
    errors = [np.sqrt(np.mean((filled - truth)[missing] ** 2)) for filled in (alone, together)]
    assert errors[1] < 0.25 * errors[0]


def test_the_background_of_two_slices_is_the_conditional_distribution():
    group = SliceGroup(np.arange(3), np.ones(3, bool), np.array([1.0, 2.0, 3.0]), 0.5 * np.eye(3) + 0.5)
    z = np.array([[1.0, 0.0], [4.0, 4.0], [2.0, 2.0]])
    noise = np.array([[0.0, np.inf], [0.0, 0.0], [0.0, 1.0]])
    mean, std = predict_slices(group, z, noise)
    covariance, rest = group.covariance, z - group.mean[:, None]
    for cell, others in ((0, [1, 2]), (1, [1, 2])):
        matrix = covariance[np.ix_(others, others)] + np.diag(noise[others, cell])
        weights = np.linalg.solve(matrix, covariance[others, 0])
        assert mean[0, cell] == pytest.approx(1 + weights @ rest[others, cell])
        assert std[0, cell] ** 2 == pytest.approx(1 - weights @ covariance[others, 0])
    weight = 0.5 / 2.0  # the noisy third value predicts the second, which has no other source
    assert mean[1, 1] == pytest.approx(2 + weight * rest[2, 1])
    assert std[1, 1] ** 2 == pytest.approx(1 - 0.5 * weight)


@pytest.mark.parametrize(("offset", "scale"), [(273.15, 1.0), (0.0, 1e6), (-40.0, 1e-5)])
def test_the_background_follows_shift_and_scale(offset, scale):
    values = add_clouds(low_rank())
    plain, other = (
        lay_out(field).settings.background.fields(field)  # type: ignore[union-attr]
        for field in (values, scale * values + offset)
    )
    np.testing.assert_allclose(other[0], scale * plain[0] + offset, rtol=1e-5, atol=1e-5 * scale)
    np.testing.assert_allclose(other[1], scale * plain[1], rtol=1e-4)


def test_the_order_of_slices_does_not_matter():
    values = add_clouds(low_rank())
    order = np.random.default_rng(0).permutation(len(values))
    learned = background(values)
    mean, _ = learned.fields(values)
    np.testing.assert_allclose(learned.learned_again(values[order]).fields(values[order])[0], mean[order], atol=1e-6)


def test_slices_that_do_not_help_leave_each_alone(model):
    random = np.random.default_rng(0)
    smooth = np.stack([gaussian_filter(random.standard_normal((20, 24)), 4) for _ in range(12)])
    values = np.where(random.random(smooth.shape) < 0.2, np.nan, smooth)
    assert lay_out(values).settings.background is None
    together, alone = (fillin.fill(values, model=model, alone=flag) for flag in (False, True))
    for part in PARTS:
        np.testing.assert_array_equal(getattr(together, part), getattr(alone, part))


def test_few_slices_small_fields_and_alone_leave_each_alone():
    values = add_clouds(low_rank())
    assert lay_out(values).settings.background is not None
    assert lay_out(values, alone=True).settings.background is None
    assert lay_out(values[: MIN_SLICES - 1]).settings.background is None
    assert lay_out(values[:, :6, :8]).settings.background is None
    assert "each time separately" in lay_out(values, alone=True).summary
    assert "each time with the others" in lay_out(values).summary


def test_levels_and_members_inform_each_other_too():
    values = add_clouds(low_rank())
    member = background(values, dims=("member", "y", "x"))
    np.testing.assert_array_equal(member.fields(values)[0], background(values).fields(values)[0])
    both = values.reshape(4, 4, *values.shape[1:])
    data = xr.Dataset({"v": (("time", "level", "y", "x"), both)})
    layout = make_layout(dataset_variable(data, "v", "here"), over=["y", "x"])
    assert layout.settings.background is not None
    np.testing.assert_allclose(layout.settings.background.fields(values)[0], background(values).fields(values)[0])
    filled = fillin.fill(data, over=["y", "x"], model=KernelMean())
    assert filled["v_filled"].dims == ("time", "level", "y", "x")
    assert np.abs(filled["v_filled"].values.reshape(values.shape) - low_rank()).mean() < 0.1 * low_rank().std()


def test_empty_slices_land_and_constant_slices():
    values = add_clouds(low_rank())
    values[3], values[7] = np.nan, 2.0
    values[:, :4, :5] = np.nan
    result = fillin.fill(values, model=KernelMean())
    assert np.isnan(result.filled[3]).all()  # nothing is observed in it
    assert np.isnan(result.filled[:, :4, :5]).all()  # land
    sea = np.ones(values.shape[1:], bool)
    sea[:4, :5] = False
    others = np.delete(np.arange(len(values)), 3)
    for part in PARTS:
        assert np.isfinite(getattr(result, part)[others][:, sea]).all()
    missing = np.isnan(values[others]) & sea
    assert (result.std[others][missing] > 0).all()


def test_blocks_with_small_halos_and_wide_fields():
    """Blocks that cross the seam of a periodic axis, in a field too wide for one strip, with coarse cells beyond."""
    values = add_clouds(low_rank(times=8, lat=12, lon=140), width=2)
    data, options = as_dataset(values), {"over": ["y", "x"], "model": KernelMean(), "period": {"x": 140.0}}
    whole = fillin.fill(data, **options)["v_filled"].values
    with dask.config.set(scheduler="synchronous"):
        blocks = fillin.fill(data, chunks={"time": 8, "x": 35}, halo=12, **options)["v_filled"].values
    off = np.abs(blocks - whole)[np.isnan(values)]
    assert np.median(off) < 1e-6
    assert off.max() < 0.5 * values[np.isfinite(values)].std()


@pytest.mark.parametrize("periodic", [False, True])
def test_blocks_agree_with_the_whole_field(periodic):
    """The background of a cell depends on cells within its reach: blocks agree to 1e-6 where halos suffice."""
    values = add_clouds(low_rank(times=10, lat=24, lon=60), width=2)
    data, period = as_dataset(values), {"x": 60.0} if periodic else None
    options = {"over": ["y", "x"], "model": KernelMean(), "period": period}
    whole = fillin.fill(data, **options)
    assert lay_out(values).settings.background is not None
    blocks = fillin.fill(data, chunks={"time": 10, "y": 13, "x": 25}, halo=60, **options)
    with dask.config.set(scheduler="synchronous"):
        for part in PARTS:
            np.testing.assert_allclose(blocks[f"v_{part}"].values, whole[f"v_{part}"].values, rtol=1e-6, atol=1e-6)


def test_the_background_of_a_periodic_field_turns_with_it():
    values = add_clouds(low_rank(lon=32))
    learned = background(values, periods={"x": 32.0})
    mean, std = learned.fields(values, [False, True])
    turned = learned.fields(np.roll(values, 11, -1), [False, True])
    np.testing.assert_allclose(turned[0], np.roll(mean, 11, -1), atol=1e-9)
    np.testing.assert_allclose(turned[1], np.roll(std, 11, -1), atol=1e-9)


def test_a_long_record_is_divided():
    groups = _group_slices(200)
    predicted = np.sort(np.concatenate([slices[targets] for slices, targets in groups]))
    assert predicted.tolist() == list(range(200))
    for slices, targets in groups:
        assert len(slices) == 64
        assert slices.min() == 0  # far slices, too
        assert slices.max() == 199
        assert targets.sum() <= 24
    values = add_clouds(low_rank(times=80, lat=9, lon=10), every=5)
    mean, _ = background(values).fields(values)
    truth = low_rank(times=80, lat=9, lon=10)
    assert np.abs(mean - truth)[np.isnan(values)].mean() < 0.2 * truth.std()


def test_a_large_field_is_learned_from_a_window_and_a_sample():
    missing = np.zeros((80, 90))
    missing[50:70, 10:40] = 0.5
    rows, columns = choose_window(missing, 900)
    assert rows.stop - rows.start <= 30
    assert 40 <= rows.start <= 60
    assert columns.start <= 20
    values = add_clouds(low_rank(times=8, lat=70, lon=80), width=6)
    assert lay_out(values).settings.background is not None


def test_the_std_of_the_background_has_the_size_of_its_errors():
    truth = low_rank() + 0.3 * np.random.default_rng(5).standard_normal((16, 20, 24))
    values = add_clouds(truth)
    missing = np.isnan(values)
    learned = background(values)
    mean, std = learned.fields(values)
    standardised = ((truth - mean) / std)[missing] / learned.rest
    assert 0.5 < np.sqrt(np.mean(standardised**2)) < 2
    assert learned.widen(np.array([0.0]))[0] == 1
    assert learned.widen(np.array([1e9]))[0] == pytest.approx(learned.excess)
    fewer = values.copy()
    fewer[::3, :, :12] = np.nan  # less is observed of these cells in other slices
    _, wide = learned.fields(fewer)
    column = missing[1:2].sum() == 0
    assert column
    assert wide[1, :, :12].mean() > std[1, :, :12].mean()


def test_holdout_scores_use_the_background_without_the_held_out_cells():
    truth = low_rank()
    layouts = [lay_out(add_clouds(truth), alone=flag) for flag in (True, False)]
    alone, together = (score_holdout(holdout_fields(layout), KernelMean()) for layout in layouts)
    for before, after in zip(alone, together, strict=True):
        assert after.rmse < 0.5 * before.rmse
    (field, *_) = holdout_fields(layouts[1])
    held_out = field.choose("points at random", np.random.default_rng(0))
    before = field.predict(held_out, KernelMean(), lambda done: None)[0].mean
    cells = tuple((field.cells - field.start)[held_out].T)
    field.slices[(field.number, *cells)] = 1e3  # what is held out changes nothing
    after = field.predict(held_out, KernelMean(), lambda done: None)[0].mean
    np.testing.assert_array_equal(before, after)


def test_the_report_names_sources_and_alone_is_an_option(tmp_path, command):
    path = tmp_path / "field.nc"
    write_dataset(as_dataset(add_clouds(low_rank(times=9, lat=9, lon=10))), path)
    printed, _ = command(path, "--over", "y,x", "--report")
    assert "each time with the others" in printed
    page = (tmp_path / "field.filled.html").read_text()
    assert "Slices along time inform each other" in page
    assert "Slices that weigh most: time=" in page
    printed, _ = command(path, "--over", "y,x", "--alone", "-o", str(tmp_path / "alone.nc"))
    assert "each time separately" in printed
    one, other = (read_dataset(tmp_path / name)["v_filled"] for name in ("field.filled.nc", "alone.nc"))
    assert np.abs(one - other).max() > 0.01
