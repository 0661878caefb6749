"""Non-parametric transformers on tables: what a permutation, a mask, a class or another row does and does not do."""

from dataclasses import replace

import pytest
import torch
from support.helpers import random_cells, random_task, tiny
from torch.testing import assert_close

from fillin.attention import record_weights
from fillin.data.table_prior import SyntheticTables
from fillin.data.task import TableBatch
from fillin.errors import InputError
from fillin.models import create
from fillin.models.npt import CLASSES, NPT, ColumnStatistics
from fillin.objectives import masked_reconstruction


def npt(between="columns", **options) -> NPT:
    torch.manual_seed(0)
    model = tiny("npt", dim_x=4, between=between, **options).eval()
    assert isinstance(model, NPT)
    return model


def both(cells: TableBatch, order) -> TableBatch:
    values, observed, queried = (part[:, order] for part in (cells.values, cells.observed, cells.queried))
    return replace(cells, values=values, observed=observed, queried=queried)


def kinds_of_attention(test):
    """Between all rows, and through pseudo-tokens; column by column, and of rows joined."""
    return pytest.mark.parametrize("between", ["columns", "rows"])(pytest.mark.parametrize("pseudo", [0, 3])(test))


@kinds_of_attention
def test_rows_have_no_order(between, pseudo):
    cells, order = random_cells(context=None), torch.randperm(9)
    model = npt(between, pseudo=pseudo)
    here, there = model.fill(cells), model.fill(both(cells, order))
    assert_close(there.numbers.mean, here.numbers.mean[:, order])
    assert_close(there.numbers.stddev, here.numbers.stddev[:, order])
    assert_close(there.logits, here.logits[:, order])


@kinds_of_attention
def test_rows_that_ask_do_not_see_one_another(between, pseudo):
    cells, model = random_cells(context=6), npt(between, pseudo=pseudo)
    together = model.fill(cells).numbers.mean[:, 6:]
    for i in range(6, 9):
        alone = model.fill(both(cells, [*range(6), i])).numbers.mean[:, 6:]
        assert_close(alone[:, 0], together[:, i - 6])


@kinds_of_attention
def test_what_is_masked_is_not_read(between, pseudo):
    cells, model = random_cells(), npt(between, pseudo=pseudo)
    other = replace(cells, values=torch.where(cells.observed, cells.values, 1.0))
    assert_close(model.fill(other).numbers.mean, model.fill(cells).numbers.mean)
    assert_close(model.fill(other).logits, model.fill(cells).logits)


@kinds_of_attention
def test_another_row_matters(between, pseudo):
    """The distribution is of a row and of the data set: p(y* | x*, D)."""
    cells, model = random_cells(context=6), npt(between, pseudo=pseudo)
    changed = cells.values.clone()
    changed[:, 0, 0] += 3
    other = replace(cells, values=changed, observed=cells.observed | (torch.arange(9) == 0)[:, None])
    assert (model.fill(other).numbers.mean - model.fill(cells).numbers.mean)[:, 7].abs().max() > 1e-4


@kinds_of_attention
def test_rows_that_are_padding_are_not_seen(between, pseudo):
    cells, model = random_cells(context=6), npt(between, pseudo=pseudo)
    rows, real = both(cells, [0, 1, 2, 3, 4, 5, 5, 5, 6, 7, 8]), torch.ones(2, 11, dtype=torch.bool)
    real[:, 6:8] = False
    values = torch.where(real[..., None], rows.values, 99.0)
    rows = replace(rows, values=values, observed=rows.observed & real[..., None], context=8, valid=real)
    here, there = model.fill(cells), model.fill(rows)
    assert_close(there.numbers.mean[:, 8:], here.numbers.mean[:, 6:])
    assert_close(there.logits[:, 8:], here.logits[:, 6:])


@pytest.mark.parametrize("between", ["columns", "rows"])
def test_with_pseudo_tokens_no_pair_of_rows_is_made(between):
    """Queries × keys of a call between datapoints grow with the rows, not with their square."""

    def pairs(n):
        with record_weights() as seen:
            npt(between, pseudo=3).fill(random_cells(n=n, context=None))
        return max(one.weights.shape[-1] * one.weights.shape[-2] for one in seen)

    assert pairs(200) == 2 * pairs(100)


def test_no_context_is_a_context_for_pseudo_tokens():
    task = random_task(nc=0, dim_x=4)
    found = npt(pseudo=3)(*task.inputs)
    assert found.mean.isfinite().all()
    padded = npt(pseudo=3)(task.xt[:, :2], task.yt[:, :2], task.xt, torch.zeros(2, 2, dtype=torch.bool))
    assert_close(padded.mean, found.mean)


def test_every_weight_of_pseudo_tokens_learns():
    model = npt(pseudo=3).train()
    masked_reconstruction(model, random_cells()).sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not still
    with pytest.raises(InputError, match="pseudo"):
        npt(pseudo=-1)


def test_units_of_a_column_do_not_matter():
    cells, model = random_cells(), npt()
    scaled = cells.values.clone()
    scaled[..., 0] = 1e5 * scaled[..., 0] - 7e6
    here, there = model.fill(cells), model.fill(replace(cells, values=scaled))
    assert_close(there.numbers.mean[..., 1:], here.numbers.mean[..., 1:])
    assert_close(there.numbers.mean[..., 0], 1e5 * here.numbers.mean[..., 0] - 7e6)
    assert_close(there.logits, here.logits)


def test_classes_beyond_those_of_a_column_are_impossible():
    cells = random_cells()
    found = npt().fill(cells)
    odds = found.logits.softmax(-1)[:, :, 3]
    assert odds.shape[-1] == CLASSES
    assert (odds[..., 3:] == 0).all()
    assert_close(odds.sum(-1), torch.ones_like(odds[..., 0]))
    assert_close(found.log_prob(cells.values)[:, :, 3].exp(), odds.gather(-1, cells.values[:, :, 3:4].long())[..., 0])


def test_the_objective_is_that_of_the_paper():
    """L = (1 − λ) targets + λ features, each a mean over the cells asked for."""
    cells, model = random_cells(), npt()
    log = model.fill(cells).log_prob(cells.values).clamp_min(-100)  # the most that one cell may cost
    for i, value in enumerate(masked_reconstruction(model, cells, features=0.3)):
        asked = cells.queried[i]
        target, feature = log[i, asked[:, -1], -1].mean(), log[i, :, :-1][asked[:, :-1]].mean()
        assert_close(value, 0.7 * target + 0.3 * feature)
    only = cells.queried.clone()
    only[:, :, :-1] = False
    alone = masked_reconstruction(model, replace(cells, queried=only))
    assert_close(alone, torch.stack([log[i, only[i, :, -1], -1].mean() for i in range(2)]))
    for targets in (0, 2):  # none: all are features
        first = log.shape[2] - targets
        found = masked_reconstruction(model, replace(cells, targets=targets), features=0.3)
        feature = torch.stack([log[i, :, :first][cells.queried[i, :, :first]].mean() for i in range(2)])
        if not targets:
            assert_close(found, feature)
            continue
        target = torch.stack([log[i, :, first:][cells.queried[i, :, first:]].mean() for i in range(2)])
        assert_close(found, 0.7 * target + 0.3 * feature)


def test_a_column_alone_is_what_all_columns_say():
    cells = random_cells()
    found = npt().fill(cells)
    together = found.log_prob(cells.values)
    for j, classes in enumerate([0, 0, 0, 3, 0]):
        assert_close(found.column(j, classes).log_prob(cells.values[:, :, j]), together[:, :, j])


def test_more_classes_than_it_tells_apart_are_an_error():
    cells = random_cells()
    with pytest.raises(InputError, match=f"at most {CLASSES}"):
        npt().fill(replace(cells, classes=cells.classes * (CLASSES + 1)))


def test_rows_joined_are_of_one_width():
    with pytest.raises(InputError, match="between='columns'"):
        NPT(dim_x=None, between="rows")
    small, large = (
        sum(p.numel() for p in create("npt", dim_x=d, size="small", between="columns").parameters()) for d in (2, 20)
    )
    assert small == large


def test_ranks_are_those_of_the_context():
    values = torch.tensor([3.0, 1.0, 2.0, 2.0, 9.0, -5.0]).double().view(1, -1, 1)
    seen = torch.ones_like(values, dtype=torch.bool)
    seen[0, 5] = False
    units = ColumnStatistics.of(TableBatch(values, seen, ~seen, torch.zeros(1, 1, dtype=torch.long), 4))
    rank = torch.special.ndtr(units.rank(values))[0, :, 0] * 5 - 0.5
    assert_close(rank, torch.tensor([3.5, 0.5, 2.0, 2.0, 4.0, 0.0]).double())
    assert units.mean.item() == 2.0


def test_the_synthetic_prior_is_a_stream():
    stream = SyntheticTables(rows=(12, 40), columns=(2, 6), cells=600)
    for step in range(12):
        cells, again = stream.task(step), stream.task(step)
        assert_close(cells.values, again.values, rtol=0, atol=0)
        b, n, d = cells.values.shape
        assert 12 <= n <= 40
        assert 2 <= d <= 6
        assert cells.values.isfinite().all()
        assert not (cells.observed & cells.queried).any()
        assert not cells.observed[:, cells.context :, -1].any()
        coded = (cells.classes > 0)[:, None].expand(b, n, d)
        codes = cells.values[coded]
        assert (codes == codes.round()).all()
        assert (cells.values < cells.classes[:, None])[coded].all()
    assert not torch.equal(stream.task(0).values, stream.validation_stream(5).task(0).values)
    with pytest.raises(InputError, match="rows"):
        SyntheticTables(rows=(2, 1))
