"""Non-parametric transformers on tables: effects of permutations, masks, classes and other rows."""

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


def select_rows(cells: TableBatch, order) -> TableBatch:
    values, observed, queried = (part[:, order] for part in (cells.values, cells.observed, cells.queried))
    return replace(cells, values=values, observed=observed, queried=queried)


def kinds_of_attention(test):
    """Parametrise a test: attention between all rows or through pseudo-tokens, of columns or of whole rows."""
    return pytest.mark.parametrize("between", ["columns", "rows"])(pytest.mark.parametrize("pseudo", [0, 3])(test))


@kinds_of_attention
def test_predictions_are_equivariant_to_the_order_of_rows(between, pseudo):
    cells, order = random_cells(context=None), torch.randperm(9)
    model = npt(between, pseudo=pseudo)
    here, there = model.fill(cells), model.fill(select_rows(cells, order))
    assert_close(there.numbers.mean, here.numbers.mean[:, order])
    assert_close(there.numbers.stddev, here.numbers.stddev[:, order])
    assert_close(there.logits, here.logits[:, order])


@kinds_of_attention
def test_query_rows_do_not_affect_one_another(between, pseudo):
    cells, model = random_cells(context=6), npt(between, pseudo=pseudo)
    together = model.fill(cells).numbers.mean[:, 6:]
    for i in range(6, 9):
        alone = model.fill(select_rows(cells, [*range(6), i])).numbers.mean[:, 6:]
        assert_close(alone[:, 0], together[:, i - 6])


@kinds_of_attention
def test_masked_cells_are_ignored(between, pseudo):
    cells, model = random_cells(), npt(between, pseudo=pseudo)
    other = replace(cells, values=torch.where(cells.observed, cells.values, 1.0))
    assert_close(model.fill(other).numbers.mean, model.fill(cells).numbers.mean)
    assert_close(model.fill(other).logits, model.fill(cells).logits)


@kinds_of_attention
def test_predictions_depend_on_context_rows(between, pseudo):
    """The prediction depends on the row and on the data set: p(y* | x*, D)."""
    cells, model = random_cells(context=6), npt(between, pseudo=pseudo)
    changed = cells.values.clone()
    changed[:, 0, 0] += 3
    other = replace(cells, values=changed, observed=cells.observed | (torch.arange(9) == 0)[:, None])
    assert (model.fill(other).numbers.mean - model.fill(cells).numbers.mean)[:, 7].abs().max() > 1e-4


@kinds_of_attention
def test_padding_rows_are_ignored(between, pseudo):
    cells, model = random_cells(context=6), npt(between, pseudo=pseudo)
    rows, valid = select_rows(cells, [0, 1, 2, 3, 4, 5, 5, 5, 6, 7, 8]), torch.ones(2, 11, dtype=torch.bool)
    valid[:, 6:8] = False
    values = torch.where(valid[..., None], rows.values, 99.0)
    rows = replace(rows, values=values, observed=rows.observed & valid[..., None], context=8, valid=valid)
    here, there = model.fill(cells), model.fill(rows)
    assert_close(there.numbers.mean[:, 8:], here.numbers.mean[:, 6:])
    assert_close(there.logits[:, 8:], here.logits[:, 6:])


@pytest.mark.parametrize("between", ["columns", "rows"])
def test_pseudo_tokens_make_attention_linear_in_the_rows(between):
    """Queries × keys of a call between datapoints grow with the rows, not with their square."""

    def pairs(n):
        with record_weights() as records:
            npt(between, pseudo=3).fill(random_cells(n=n, context=None))
        return max(record.weights.shape[-1] * record.weights.shape[-2] for record in records)

    assert pairs(200) == 2 * pairs(100)


def test_an_empty_context_is_valid_for_pseudo_tokens():
    task = random_task(nc=0, dim_x=4)
    prediction = npt(pseudo=3)(*task.inputs)
    assert prediction.mean.isfinite().all()
    padded = npt(pseudo=3)(task.xt[:, :2], task.yt[:, :2], task.xt, torch.zeros(2, 2, dtype=torch.bool))
    assert_close(padded.mean, prediction.mean)


def test_every_parameter_of_pseudo_tokens_has_a_gradient():
    model = npt(pseudo=3).train()
    masked_reconstruction(model, random_cells()).sum().backward()
    untrained = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not untrained
    with pytest.raises(InputError, match="pseudo"):
        npt(pseudo=-1)


def test_predictions_are_equivariant_to_units_of_a_column():
    cells, model = random_cells(), npt()
    scaled = cells.values.clone()
    scaled[..., 0] = 1e5 * scaled[..., 0] - 7e6
    here, there = model.fill(cells), model.fill(replace(cells, values=scaled))
    assert_close(there.numbers.mean[..., 1:], here.numbers.mean[..., 1:])
    assert_close(there.numbers.mean[..., 0], 1e5 * here.numbers.mean[..., 0] - 7e6)
    assert_close(there.logits, here.logits)


def test_classes_that_a_column_lacks_have_probability_zero():
    cells = random_cells()
    prediction = npt().fill(cells)
    probabilities = prediction.logits.softmax(-1)[:, :, 3]
    assert probabilities.shape[-1] == CLASSES
    assert (probabilities[..., 3:] == 0).all()
    assert_close(probabilities.sum(-1), torch.ones_like(probabilities[..., 0]))
    assert_close(
        prediction.log_prob(cells.values)[:, :, 3].exp(),
        probabilities.gather(-1, cells.values[:, :, 3:4].long())[..., 0],
    )


def test_the_objective_equals_its_formula():
    """L = (1 − λ) targets + λ features, both means over the queried cells."""
    cells, model = random_cells(), npt()
    log = model.fill(cells).log_prob(cells.values).clamp_min(-100)  # the maximal loss of one cell
    for i, value in enumerate(masked_reconstruction(model, cells, features=0.3)):
        queried = cells.queried[i]
        target, feature = log[i, queried[:, -1], -1].mean(), log[i, :, :-1][queried[:, :-1]].mean()
        assert_close(value, 0.7 * target + 0.3 * feature)
    target_cells = cells.queried.clone()
    target_cells[:, :, :-1] = False
    objective = masked_reconstruction(model, replace(cells, queried=target_cells))
    assert_close(objective, torch.stack([log[i, target_cells[i, :, -1], -1].mean() for i in range(2)]))
    for targets in (0, 2):  # 0: all columns are features
        first = log.shape[2] - targets
        objective = masked_reconstruction(model, replace(cells, targets=targets), features=0.3)
        feature = torch.stack([log[i, :, :first][cells.queried[i, :, :first]].mean() for i in range(2)])
        if not targets:
            assert_close(objective, feature)
            continue
        target = torch.stack([log[i, :, first:][cells.queried[i, :, first:]].mean() for i in range(2)])
        assert_close(objective, 0.7 * target + 0.3 * feature)


def test_the_prediction_of_a_column_agrees_with_that_of_all_columns():
    cells = random_cells()
    prediction = npt().fill(cells)
    together = prediction.log_prob(cells.values)
    for j, classes in enumerate([0, 0, 0, 3, 0]):
        assert_close(prediction.column(j, classes).log_prob(cells.values[:, :, j]), together[:, :, j])


def test_too_many_classes_are_an_error():
    cells = random_cells()
    with pytest.raises(InputError, match=f"at most {CLASSES}"):
        npt().fill(replace(cells, classes=cells.classes * (CLASSES + 1)))


def test_attention_between_rows_needs_a_fixed_number_of_columns():
    with pytest.raises(InputError, match="between='columns'"):
        NPT(dim_x=None, between="rows")
    small, large = (
        sum(p.numel() for p in create("npt", dim_x=d, size="small", between="columns").parameters()) for d in (2, 20)
    )
    assert small == large


def test_ranks_are_those_of_the_context():
    values = torch.tensor([3.0, 1.0, 2.0, 2.0, 9.0, -5.0]).double().view(1, -1, 1)
    observed = torch.ones_like(values, dtype=torch.bool)
    observed[0, 5] = False
    units = ColumnStatistics.of(TableBatch(values, observed, ~observed, torch.zeros(1, 1, dtype=torch.long), 4))
    rank = torch.special.ndtr(units.rank(values))[0, :, 0] * 5 - 0.5
    assert_close(rank, torch.tensor([3.5, 0.5, 2.0, 2.0, 4.0, 0.0]).double())
    assert units.mean.item() == 2.0


def test_the_synthetic_prior_is_a_function_of_the_step():
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
