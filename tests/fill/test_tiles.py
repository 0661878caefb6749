"""Tiles of a field overlap: shares add up and change smoothly, answers mix as mixtures do, wide gaps have no seams."""

from dataclasses import replace

import numpy as np
import pytest
from support.fields_with_gaps import waves
from support.helpers import Mean

import fillin
from fillin.filling.grid.axes import index_axis
from fillin.filling.grid.tiles import Tiles, blend
from fillin.inference.context import Context
from fillin.predictive import GaussianMixture


def axes(*sizes: int, length: float = 0.0):
    return tuple(replace(index_axis(str(i), n), period=length) for i, n in enumerate(sizes))


def shares(tiles: Tiles, cells: np.ndarray) -> dict[tuple[float, ...], np.ndarray]:
    """By the middle of each tile, its share in every cell."""
    found = {}
    for piece in tiles.pieces(cells):
        own = np.zeros(len(cells))
        own[piece.rows] = piece.share
        assert len(set(piece.rows)) == len(piece.rows), "a tile answers a cell once"
        found[tuple(piece.middle)] = own
    return found


@pytest.mark.parametrize("length", [0.0, 1.0])
@pytest.mark.parametrize(
    ("shape", "size"), [((30,), (7,)), ((19, 41), (5, 8)), ((9, 8, 10), (4, 8, 3)), ((5, 3), (9, 1))]
)
def test_shares_add_up_and_change_smoothly(shape, size, length):
    turns = tuple(np.array(shape) * length)
    own = tuple(axes(n, length=turn)[0] for n, turn in zip(shape, turns, strict=True))
    cells = np.argwhere(np.ones(shape))
    found = shares(Tiles(own, size), cells)
    total = sum(found.values())
    np.testing.assert_allclose(total, 1)
    for middle, share in found.items():
        grid = share.reshape(shape)
        for i, (n, step) in enumerate(zip(shape, size, strict=True)):
            if round(n / step) > 1:
                around = np.concatenate([grid, grid.take([0], i)], i) if length else grid
                assert np.abs(np.diff(around, axis=i)).max() <= 2.2 / step, "no jump, nor where it goes round"
        if all(n >= step > 1 for n, step in zip(shape, size, strict=True)):
            assert grid[tuple(round(m) for m in middle)] > 0.5, "most of what is in its middle is a tile's own"


def test_a_part_of_the_cells_has_the_same_shares():
    """However a field is split: tiles belong to all of it."""
    tiles = Tiles(axes(23, 31), (6, 7))
    cells = np.argwhere(np.ones((23, 31)))
    some = np.flatnonzero((cells[:, 0] > 9) & (cells[:, 1] < 17))
    whole, part = shares(tiles, cells), shares(tiles, cells[some])
    for middle, share in part.items():
        np.testing.assert_array_equal(share, whole[middle][some])
    assert set(part) == {middle for middle, share in whole.items() if share[some].any()}


def test_answers_are_mixed_with_their_spread():
    """Mean Σ sₜ mₜ, variance Σ sₜ(σₜ² + mₜ²) − mean²; the cdf is the same mixture's, and rows keep all of it."""
    cells = np.arange(24)[:, None]
    pieces = list(Tiles(axes(24), (6,)).pieces(cells))
    random, given, counts = np.random.default_rng(0), {}, []

    def ask(piece):
        n = len(piece.rows)
        part = random.uniform(0.2, 1, (n, 2))
        found = GaussianMixture(
            part / part.sum(-1, keepdims=True), random.normal(1e4, 1, (n, 2)), 0.1 + random.random((n, 2))
        )
        given[piece.middle[0]] = piece, found
        return found

    mixed = blend(pieces, ask, 24, counts.append)
    mean, square, below = np.zeros(24), np.zeros(24), np.zeros(24)
    for piece, found in given.values():
        own = found.mean - 1e4
        mean[piece.rows] += piece.share * own
        square[piece.rows] += piece.share * (own**2 + found.std**2)
        below[piece.rows] += piece.share * found.cdf(np.full(len(own), 1e4))
    np.testing.assert_allclose(mixed.mean - 1e4, mean, atol=1e-8)
    np.testing.assert_allclose(mixed.std, np.sqrt(square - mean**2), rtol=1e-6)
    np.testing.assert_allclose(mixed.cdf(np.full(24, 1e4)), below)
    np.testing.assert_allclose(mixed.cdf(mixed.quantile(0.3)), 0.3, atol=1e-6)
    np.testing.assert_allclose(mixed[5:7].mean, mixed.mean[5:7])
    assert sum(counts) == 24


def test_what_is_rare_in_its_tile_stays_so_whatever_the_share():
    """A component that is likely in its tile is not dropped where the tile's share is small: no step, no seam."""
    cells = np.arange(200)[:, None]
    pieces = list(Tiles(axes(200), (100,)).pieces(cells))

    def ask(piece):
        n, at = len(piece.rows), float(piece.middle[0] > 100)
        row = np.array([0.995, 0.005])
        parts = row, np.array([at, 1e6]), np.array([0.1, 1e6])
        return GaussianMixture(*(np.broadcast_to(part, (n, 2)) for part in parts))

    mean = blend(pieces, ask, 200).mean
    assert mean.min() == 0
    assert mean.max() == pytest.approx(1)
    assert np.diff(mean).max() < 0.03


def test_no_seam_in_a_wide_gap(monkeypatch):
    """A stand-in that answers with the mean of its context differs from tile to tile: between cells it must not."""

    class Flat(Mean):
        def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
            return super().forward(xc, yc, 0 * xt + xc.mean(1, keepdim=True))

    truth = waves(60, 60, share=0) + np.arange(60)
    values = np.where(np.random.default_rng(0).random((60, 60)) < 0.3, np.nan, truth)
    values[15:45, 15:45] = np.nan
    asked = []
    at = Context.predict
    monkeypatch.setattr(Context, "predict", lambda self, x, **more: asked.append(at(self, x, **more)) or asked[-1])
    found = fillin.fill(values, model=Flat()).filled[15:45, 15:45]
    answers = np.array([one.mean.mean() for one in asked])
    assert np.ptp(answers) > 20, "tiles differ"
    steps = max(np.abs(np.diff(found, axis=axis)).max() for axis in (0, 1))
    assert steps < 0.15 * np.ptp(answers)
    assert np.ptp(found) > 10
