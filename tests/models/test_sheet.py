"""Attention over rows and columns: equivariances, closed-form guides, and windows of long records."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.helpers import distance, tiny

from fillin.data.task import SheetBatch
from fillin.inference import sheets
from fillin.inference.column_groups import MAX_COLUMNS, group_columns
from fillin.inference.sheets import SheetContext, make_windows
from fillin.models import guides, load
from fillin.models.guides import compute_guides, find_available, find_neighbours, regress
from fillin.models.sheet import Sheet
from fillin.objectives import queried_cells


def random_sheet(b=2, n=14, d=3, dtype=torch.float64, seed=0) -> SheetBatch:
    """Columns that share a random walk, a quarter of the cells missing."""
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(b, n, 1, generator=random, dtype=dtype).sort(1).values
    walk = torch.randn(b, n, 1, generator=random, dtype=dtype).cumsum(1)
    values = walk * torch.randn(b, 1, d, generator=random, dtype=dtype)
    values = values + 0.3 * torch.randn(b, n, d, generator=random, dtype=dtype)
    observed = torch.rand(b, n, d, generator=random) > 0.25
    return SheetBatch(x, values, observed, ~observed)


def predict(model, sheet) -> torch.Tensor:
    """Mean and standard deviation of every cell, of observations and of the latent function."""
    prediction = model.fill(sheet)
    latent = prediction.noise_free
    return torch.stack([prediction.mean, prediction.stddev, latent.mean, latent.stddev]).detach()


def permuted(sheet: SheetBatch, rows=slice(None), columns=slice(None)) -> SheetBatch:
    cells = [part[:, rows][:, :, columns] for part in (sheet.values, sheet.observed, sheet.queried)]
    return SheetBatch(sheet.x[:, rows], *cells)


def test_rows_and_columns_may_come_in_any_order():
    model, sheet = tiny("sheet"), random_sheet()
    rows, columns = torch.randperm(14), torch.randperm(3)
    got = predict(model, permuted(sheet, rows, columns))
    assert distance(got, predict(model, sheet)[:, :, rows][..., columns]) < 1e-9


def test_locations_may_be_shifted_and_columns_have_any_scale_and_offset():
    model, sheet = tiny("sheet"), random_sheet()
    scale, offset = torch.tensor([2.0, 1e3, 1e-3]).double(), torch.tensor([0.0, -5e2, 3.0]).double()
    got = predict(model, replace(sheet, x=3 * sheet.x + 100, values=scale * sheet.values + offset))
    expected = predict(model, sheet) * scale
    expected[[0, 2]] += offset
    assert distance(got / scale, expected / scale) < 1e-7


def test_missing_values_are_never_read():
    model, sheet = tiny("sheet"), random_sheet()
    hidden = torch.where(sheet.observed, sheet.values, torch.nan)
    assert distance(predict(model, replace(sheet, values=hidden)), predict(model, sheet)) == 0


def test_one_column_is_a_series_model():
    """With one column there is nothing between columns, and the weights of that attention have no effect."""
    model, sheet = tiny("sheet"), random_sheet(d=1)
    before = predict(model, sheet)
    with torch.no_grad():
        for layer in model.layers_of_cells:
            for parameter in layer.columns.parameters():
                parameter.add_(1)
    assert distance(predict(model, sheet), before) == 0


def test_a_column_informs_another():
    model, sheet = tiny("sheet"), random_sheet()
    changed = sheet.values.clone()
    changed[..., 0] += torch.randn(2, 14)
    got, before = (predict(model, part)[0, ..., 1:] for part in (replace(sheet, values=changed), sheet))
    assert distance(got, before) > 1e-3


def test_known_errors_widen_nothing_but_are_read():
    model, sheet = tiny("sheet"), random_sheet()
    errors = torch.full_like(sheet.values, 0.5)
    assert distance(predict(model, replace(sheet, error=errors)), predict(model, sheet)) > 1e-3


def test_a_training_step_reduces_the_loss_of_a_batch():
    model, sheet = tiny("sheet", dtype=torch.float32), random_sheet(b=4, dtype=torch.float32)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(30):
        loss = -queried_cells(model, replace(sheet, noise_free=sheet.values)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3


def standardised(sheet: SheetBatch):
    y = torch.where(sheet.observed, sheet.values, 0)
    count = sheet.observed.sum(1, keepdim=True)
    mean = y.sum(1, keepdim=True) / count
    return torch.where(sheet.observed, y - mean, 0)


def test_interpolation_is_that_of_numpy_between_observations():
    sheet = random_sheet(b=1, n=40)
    sheet.observed[..., 0] |= ~sheet.observed.any(-1)  # every row is in the context
    y, step = standardised(sheet), torch.ones(1, 1, 1).double()
    (neighbours,) = find_neighbours(sheet.x, sheet.observed, [1], step)
    near = neighbours.interpolate(y)
    for j in range(3):
        seen = sheet.observed[0, :, j].numpy()
        x, values = sheet.x[0, :, 0].numpy(), y[0, :, j].numpy()
        expected = np.interp(x[~seen], x[seen], values[seen])
        assert np.allclose(near[0, ~seen, j], expected)
        left_out = [
            np.interp(x[i], np.delete(x[seen], k), np.delete(values[seen], k))
            for k, i in enumerate(np.flatnonzero(seen))
        ]
        assert np.allclose(near[0, seen, j], left_out)


def test_regression_predicts_observed_cells_from_the_other_blocks(monkeypatch):
    monkeypatch.setattr(guides, "RIDGES", (1.0,))
    sheet = random_sheet(b=1, n=30)
    y, folds = standardised(sheet), (torch.arange(30) // 6)[None]
    available = find_available(sheet.observed)
    everywhere = regress(y, y, sheet.observed, available, folds)
    block = slice(6, 12)
    observed = sheet.observed.clone()
    observed[0, block, 0] = False
    left_out = regress(y, y, observed, available, folds)
    seen = sheet.observed[0, block, 0]
    assert torch.allclose(everywhere[0, block, 0][seen], left_out[0, block, 0][seen], atol=1e-9)
    assert distance(everywhere[..., 0], left_out[..., 0]) > 1e-3


def test_regression_in_parts_is_the_same(monkeypatch):
    sheet = random_sheet(d=5)
    y, folds = standardised(sheet), (torch.arange(14) // 3)[None].expand(2, -1)
    beside = y[:, None].expand(-1, 5, -1, -1) / 2
    available = find_available(sheet.observed)
    whole = regress(y, y, sheet.observed, available, folds, y, beside)
    monkeypatch.setattr(guides, "_MAX_ENTRIES", 1)
    assert torch.allclose(regress(y, y, sheet.observed, available, folds, y, beside), whole)


def test_rows_without_observations_have_no_effect_on_others():
    model, sheet = tiny("sheet"), random_sheet()
    added = torch.rand(2, 9, 1).double() * 1.4 - 0.2
    cells = torch.zeros(2, 9, 3, dtype=torch.bool)
    both = SheetBatch(
        torch.cat([added, sheet.x], 1), torch.cat([cells * torch.nan, sheet.values], 1),
        torch.cat([cells, sheet.observed], 1), torch.cat([~cells, sheet.queried], 1),
    )  # fmt: skip
    assert distance(predict(model, both)[:, :, 9:], predict(model, sheet)) < 1e-9


def test_guides_find_a_copy_and_distrust_noise():
    random = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 1, 200).double()[None, :, None]
    walk = torch.randn(1, 200, 1, generator=random, dtype=torch.float64).cumsum(1)
    y = torch.cat([walk, 2 * walk, torch.randn(1, 200, 1, generator=random, dtype=torch.float64)], -1)
    y = (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)
    observed = torch.ones_like(y, dtype=torch.bool)
    observed[:, 60:110, 0] = False
    found = compute_guides(x, y, observed, torch.full((1, 1, 1), 1 / 199).double())
    gap = found.values[0, 60:110, 0] - y[0, 60:110, [0]]
    along, across, both = gap.square().mean(0).sqrt().tolist()
    assert across < 0.02 < along
    assert both < 0.03
    assert (found.errors[0, 60:110, 0, 0] > 5 * found.errors[0, 60:110, 0, 2]).all()
    assert found.errors[0, :, 2, 2].min() > 0.8  # nothing predicts noise


def test_a_copy_that_lacks_the_same_cells_changes_nothing():
    sheet = random_sheet(b=1, n=60)
    y, step = standardised(sheet), torch.full((1, 1, 1), 1 / 59).double()
    alone = compute_guides(sheet.x, y, sheet.observed, step).values[..., 0, :]
    twice = [torch.cat([part, part[..., :1]], -1) for part in (y, sheet.observed)]
    assert (
        distance(compute_guides(sheet.x, *twice, step).values[..., 0, :], alone) < 0.05
    )  # ridge sees the copy elsewhere


@pytest.mark.parametrize("fill", [0, 1, 2])
def test_columns_with_few_values_have_guides(fill):
    sheet = random_sheet()
    observed = sheet.observed.clone()
    observed[:, fill:, 0] = False
    y, step = standardised(replace(sheet, observed=observed)), torch.ones(2, 1, 1).double()
    found = compute_guides(sheet.x, y, observed, step)
    assert found.values.isfinite().all()
    assert (found.errors[:, :, 0] == 1).all()


def test_windows_cover_every_query_once_and_hold_its_neighbours():
    random = np.random.default_rng(0)
    observed = random.random((3000, 2)) > 0.2
    observed[1000:1500] = False
    windows = list(make_windows(observed, ~observed))
    kept = np.concatenate([window.block for window in windows])
    assert sorted(kept) == sorted(set(kept))
    assert set(np.flatnonzero(~observed.all(1))) <= set(kept)
    for window in windows:
        assert set(window.block) <= set(window.rows)
        assert len(window.rows) <= sheets.MAX_ROWS
        for j in range(2):
            rows = np.flatnonzero(observed[:, j])
            before, after = rows[rows < window.block[0]], rows[rows > window.block[-1]]
            assert {*before[-1:], *after[:1]} <= set(window.rows)


def test_a_short_record_is_one_window():
    model, sheet = tiny("sheet", dtype=torch.float32), random_sheet(b=1, n=50, dtype=torch.float32)
    x, y = sheet.x[0, :, 0].double().numpy(), torch.where(sheet.observed, sheet.values, torch.nan)[0].double().numpy()
    order = np.random.default_rng(0).permutation(50)
    found = SheetContext(model, x[order], y[order]).predict(np.isnan(y[order]))
    expected = model.fill(sheet)
    for j, mixture in enumerate(found):
        missing = np.isnan(y[order][:, j])
        assert np.allclose(mixture.means.shape[0], missing.sum())
        cells = expected.mean[0, order, j].detach().numpy()[missing]
        weights = mixture.weights / mixture.weights.sum(-1, keepdims=True)
        assert np.allclose((weights * mixture.means).sum(-1), cells, atol=2e-4)


def test_many_columns_are_grouped_by_correlation():
    random = np.random.default_rng(0)
    sources = random.normal(size=(300, 4))
    y = np.repeat(sources, 10, axis=1) + 0.1 * random.normal(size=(300, 40))
    y[random.random(y.shape) < 0.1] = np.nan
    groups = group_columns(y)
    assert sorted(np.concatenate([targets for _, targets in groups])) == list(range(40))
    for columns, targets in groups:
        assert len(columns) <= MAX_COLUMNS
        assert set(targets) <= set(columns)
        assert len({*(targets // 10)}) == 1


def draw_fast_wave(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A record of 1,200 rows that is a wave of more cycles than are looked for, whose size changes."""
    random, rows = np.random.default_rng(seed), np.arange(1200.0)
    wave = np.sin(2 * np.pi * rows / random.uniform(6, 8) + random.uniform(0, 6))
    return rows, (1 + rows / 1200) * wave + 0.1 * random.normal(size=1200)


def test_the_rest_of_a_record_does_no_harm():
    """Cells in the middle of 1,200 rows are predicted about as well as from the 200 rows around them. Kernels of the
    whole record alone, which know no period, lose 0.7 nats."""
    model, changes = load("sheet").eval(), []
    assert isinstance(model, Sheet)
    for seed in range(3):
        rows, y = draw_fast_wave(seed)
        held = np.isin(rows, 560 + np.random.default_rng(seed).permutation(80)[:20])
        known, scores = np.where(held, np.nan, y)[:, None], []
        for part in (slice(500, 700), slice(None)):
            (mixture,) = SheetContext(model, rows[part], known[part]).predict(held[part][:, None])
            assert mixture is not None
            scores.append(mixture.log_prob(y[held]).mean())
        changes.append(scores[1] - scores[0])
    assert np.mean(changes) > -0.1


def test_columns_that_predict_one_together_are_grouped_with_it():
    """One column is the difference of two that are almost as large as each other, among many that correlate with it
    more; a copy that lacks the same cells predicts nothing."""
    random = np.random.default_rng(0)
    difference, large = random.normal(size=300), 6 * random.normal(size=300)
    noisy = difference[:, None] + 1.5 * random.normal(size=(300, 20))
    y = np.column_stack([difference, large, large - difference, noisy, difference])
    y[100:180, [0, -1]] = np.nan
    [(columns, _)] = [group for group in group_columns(y) if 0 in group[1]]
    assert {0, 1, 2} <= set(columns.tolist())
    assert y.shape[1] - 1 not in columns
