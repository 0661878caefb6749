"""Tiles of a field overlap: shares add up and change smoothly, predictions blend as mixtures, gaps have no seams."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial import KDTree
from support.fields_with_gaps import waves
from support.helpers import KernelMean

import fillin
from fillin.filling.grid.layout import FieldSettings, blend
from fillin.filling.grid.variable import index_axis
from fillin.inference.context import Context, nearest_rows, surrounding_rows
from fillin.predictive import GaussianMixture
from fillin.warp import BoundsWarp


def axes(*sizes: int, length: float = 0.0):
    return tuple(replace(index_axis(str(i), n), period=length) for i, n in enumerate(sizes))


def tiled(axes, size) -> FieldSettings:
    return FieldSettings("field", tuple(axes), (1.0,) * len(size), size, 128, BoundsWarp(), 0.95)


def shares(settings: FieldSettings, cells: np.ndarray) -> dict[tuple[float, ...], np.ndarray]:
    """By the centre of each tile, its share in every cell."""
    by_centre = {}
    for tile in settings.tiles(cells):
        share = np.zeros(len(cells))
        share[tile.rows] = tile.share
        assert len(set(tile.rows)) == len(tile.rows), "a tile predicts a cell once"
        by_centre[tuple(settings.centre(tile))] = share
    return by_centre


@pytest.mark.parametrize("length", [0.0, 1.0])
@pytest.mark.parametrize(
    ("shape", "size"), [((30,), (7,)), ((19, 41), (5, 8)), ((9, 8, 10), (4, 8, 3)), ((5, 3), (9, 1))]
)
def test_shares_add_up_and_change_smoothly(shape, size, length):
    periods = tuple(np.array(shape) * length)
    field_axes = tuple(axes(n, length=period)[0] for n, period in zip(shape, periods, strict=True))
    cells = np.argwhere(np.ones(shape))
    by_centre = shares(tiled(field_axes, size), cells)
    total = sum(by_centre.values())
    np.testing.assert_allclose(total, 1)
    for centre, share in by_centre.items():
        grid = share.reshape(shape)
        for i, (n, step) in enumerate(zip(shape, size, strict=True)):
            if round(n / step) > 1:
                around = np.concatenate([grid, grid.take([0], i)], i) if length else grid
                assert np.abs(np.diff(around, axis=i)).max() <= 2.2 / step, "no jump, also across a period"
        if all(n >= step > 1 for n, step in zip(shape, size, strict=True)):
            assert grid[tuple(round(m) for m in centre)] > 0.5, "a tile has the largest share in its centre"


def test_a_part_of_the_cells_has_the_same_shares():
    """However a field is split: tiles belong to all of it."""
    settings = tiled(axes(23, 31), (6, 7))
    cells = np.argwhere(np.ones((23, 31)))
    some = np.flatnonzero((cells[:, 0] > 9) & (cells[:, 1] < 17))
    whole, part = shares(settings, cells), shares(settings, cells[some])
    for centre, share in part.items():
        np.testing.assert_array_equal(share, whole[centre][some])
    assert set(part) == {centre for centre, share in whole.items() if share[some].any()}


def test_tiles_are_blended_as_a_mixture():
    """Mean Σ sₜ mₜ, variance Σ sₜ(σₜ² + mₜ²) − mean²; the cdf is the same mixture's, and rows keep all of it."""
    cells = np.arange(24)[:, None]
    settings = tiled(axes(24), (6,))
    tiles = settings.tiles(cells)
    random, given, counts = np.random.default_rng(0), {}, []

    def predict(tile):
        n = len(tile.rows)
        part = random.uniform(0.2, 1, (n, 2))
        mixture = GaussianMixture(
            part / part.sum(-1, keepdims=True), random.normal(1e4, 1, (n, 2)), 0.1 + random.random((n, 2))
        )
        given[settings.centre(tile)[0]] = tile, mixture
        return mixture

    mixed = blend(tiles, lambda some: [predict(tile) for tile in some], 24, counts.append)
    mean, square, below = np.zeros(24), np.zeros(24), np.zeros(24)
    for tile, mixture in given.values():
        tile_mean = mixture.mean - 1e4
        mean[tile.rows] += tile.share * tile_mean
        square[tile.rows] += tile.share * (tile_mean**2 + mixture.std**2)
        below[tile.rows] += tile.share * mixture.cdf(np.full(len(tile_mean), 1e4))
    np.testing.assert_allclose(mixed.mean - 1e4, mean, atol=1e-8)
    np.testing.assert_allclose(mixed.std, np.sqrt(square - mean**2), rtol=1e-6)
    np.testing.assert_allclose(mixed.cdf(np.full(24, 1e4)), below)
    np.testing.assert_allclose(mixed.cdf(mixed.quantile(0.3)), 0.3, atol=1e-6)
    np.testing.assert_allclose(mixed[5:7].mean, mixed.mean[5:7])
    assert sum(counts) == 24


def test_rare_components_of_a_tile_stay_rare_in_the_blend():
    """A component that is likely in its tile is not dropped where the tile's share is small: no step, no seam."""
    cells = np.arange(200)[:, None]
    settings = tiled(axes(200), (100,))
    tiles = settings.tiles(cells)

    def predict(tile):
        n, at = len(tile.rows), float(settings.centre(tile)[0] > 100)
        row = np.array([0.995, 0.005])
        parts = row, np.array([at, 1e6]), np.array([0.1, 1e6])
        return GaussianMixture(*(np.broadcast_to(part, (n, 2)) for part in parts))

    mean = blend(tiles, lambda some: [predict(tile) for tile in some], 200).mean
    assert mean.min() == 0
    assert mean.max() == pytest.approx(1)
    assert np.diff(mean).max() < 0.03


def test_no_seam_in_a_wide_gap(monkeypatch):
    """A stand-in that predicts the mean of its context differs from tile to tile, but not from cell to cell."""

    class Flat(KernelMean):
        def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
            return super().forward(xc, yc, 0 * xt + xc.mean(1, keepdim=True))

    truth = waves(60, 60, share=0) + np.arange(60)
    values = np.where(np.random.default_rng(0).random((60, 60)) < 0.3, np.nan, truth)
    values[15:45, 15:45] = np.nan
    predictions = []
    predict = Context._predict
    monkeypatch.setattr(Context, "_predict", lambda *more: predictions.extend(predict(*more)) or predictions[-1:])
    filled = fillin.fill(values, model=Flat()).filled[15:45, 15:45]
    means = np.array([prediction.mean.mean() for prediction in predictions])
    assert np.ptp(means) > 20, "tiles differ"
    steps = max(np.abs(np.diff(filled, axis=axis)).max() for axis in (0, 1))
    assert steps < 0.15 * np.ptp(means)
    assert np.ptp(filled) > 10


@pytest.mark.parametrize("period", [None, np.array([20.0, 0.0])])
def test_a_context_beside_a_gap_lies_on_all_sides(period):
    """Around a point near one edge of a wide gap, the nearest points alone lie on one side; half of a context lies in
    all sectors, and a turn or a shift of everything changes nothing."""
    lattice = np.argwhere(np.ones((20, 40))).astype(float)
    gap = np.abs(lattice - [10, 20]).max(1) < 7
    points, middle = lattice[~gap], np.array([10.0, 22.6])
    tree = KDTree(points, boxsize=period)
    near = points[nearest_rows(tree, middle, 48)]
    around = points[surrounding_rows(tree, middle, 48, period)]
    assert len(np.unique(around, axis=0)) == 48
    assert not (near[:, 1] < 20).any()
    assert (around[:, 1] < 20).sum() >= 8
    distance = np.linalg.norm(points - middle, axis=1)
    closest = points[np.argsort(distance)[:20]]
    assert all((around == point).all(1).any() for point in closest)
    if period is None:
        turned = KDTree(points[:, ::-1] * [1, -1] + 100)
        again = points[surrounding_rows(turned, np.array([22.6, -10.0]) + 100, 48)]
        assert {*map(tuple, again)} == {*map(tuple, around)}
