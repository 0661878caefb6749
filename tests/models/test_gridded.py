"""The grid of pseudo-tokens: its attention equals dense attention under a mask, and is local."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import distance, random_task, tiny

from fillin.attention import expand_key_mask
from fillin.errors import InputError
from fillin.models import create
from fillin.models.base import Points, Targets
from fillin.models.gridded import group_by_cell, window_index


def make_points(b=2, n=9, dim_x=2) -> Points:
    x, y = torch.rand(b, n, dim_x).double(), torch.randn(b, n, 1).double()
    keep = torch.rand(b, n) > 0.3
    return Points(x, y, keep[..., None], keep)


@given(cells=st.integers(1, 7), window=st.integers(1, 8), dim_x=st.integers(1, 3), data=st.data())
def test_every_cell_is_in_one_window(cells, window, dim_x, data):
    shift = data.draw(st.integers(0, window - 1))
    index = window_index(cells, window, shift, dim_x)
    assert index.shape[1] == window**dim_x
    assert sorted(index[index >= 0].tolist()) == list(range(cells**dim_x))
    for row in index:  # the cells of a window are neighbours in every dimension
        inside = row[row >= 0]
        coordinates = torch.stack([inside // cells**k % cells for k in range(dim_x)])
        if len(inside):
            assert ((coordinates + shift) // window).unique(dim=1).shape[1] == 1


@given(b=st.integers(1, 3), n=st.integers(0, 12), cells=st.integers(1, 5))
def test_points_are_grouped_by_cell(b, n, cells):
    cell = torch.randint(0, cells + 1, (b, n))
    groups = group_by_cell(cell, cells)
    assert groups.shape[:2] == (b, cells)
    for task in range(b):
        for number in range(cells):
            points = groups[task, number]
            assert points[points >= 0].tolist() == (cell[task] == number).nonzero().flatten().tolist()


@pytest.mark.parametrize("dim_x", [1, 2])
def test_cells_read_the_points_inside_them(dim_x):
    """Gathering the points of a cell equals attention to all points under a mask, in value and in gradient."""
    model, points = tiny("gridded-tnp", dim_x), make_points(dim_x=dim_x)
    low, step = torch.zeros(2, 1, dim_x).double(), torch.full((2, 1, dim_x), 0.25).double()
    points.y.requires_grad_()
    got = model._gather_points(points, low, step)
    m = 4**dim_x
    centres = (
        torch.cartesian_prod(*[torch.arange(4).double() * 0.25 + 0.125] * dim_x).view(1, m, dim_x).expand(2, -1, -1)
    )
    cells = model.embed_cells(torch.cat([centres, torch.full_like(centres, 0.25)], -1))
    inside = ((points.x[:, None] - centres[:, :, None]).abs() <= 0.125).all(-1) & points.keep[:, None]
    expected = model.read_points(cells, model.tokens(points), mask=inside[:, None])
    assert distance(got, expected) < 1e-12
    weights = torch.randn_like(got)
    gradients = [torch.autograd.grad((t * weights).sum(), points.y)[0] for t in (got, expected)]
    assert distance(*gradients) < 1e-12


@pytest.mark.parametrize("dim_x", [1, 2])
def test_a_window_of_all_cells_is_full_attention(dim_x):
    model, points = tiny("gridded-tnp", dim_x, window=9, layers=2), make_points(dim_x=dim_x)
    encoded = model.encode(points, Targets(points.x[:, :0], None))
    tokens = model._gather_points(points, encoded.low, encoded.step)
    for block in model.blocks:
        tokens = block(tokens)
    assert distance(encoded.tokens, tokens) < 1e-12


def test_attention_is_within_windows_and_windows_move():
    """In eight cells with windows of four, a point in cell 0 reaches cells 0–3 in a layer, 4 and 5 in the next."""
    x = (torch.arange(9).double() / 8).view(1, 9, 1)  # the last point is in the last cell
    reached = {}
    for layers in (1, 2):
        torch.manual_seed(0)
        model = tiny("gridded-tnp", cells=8, window=4, layers=layers)
        y = torch.randn(1, 9, 1).double()
        flags = torch.ones(1, 9, 1, dtype=torch.bool)
        before = model.encode(Points(x, y, flags, None), Targets(x[:, :0], None)).tokens
        y = y.clone()
        y[0, 0] += 1
        after = model.encode(Points(x, y, flags, None), Targets(x[:, :0], None)).tokens
        reached[layers] = ((after - before).abs().amax(-1)[0] > 1e-9).nonzero().flatten().tolist()
    assert reached == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3, 4, 5]}


@pytest.mark.parametrize("dim_x", [1, 2])
def test_targets_attend_to_the_nearest_cells(dim_x):
    """With all cells near, a target attends to the whole grid; with fewer, only to those around it."""
    model, task = tiny("gridded-tnp", dim_x, nearest=4), random_task(dim_x=dim_x)
    context, targets = model.read(*task.inputs)
    encoded = model.encode(context, targets)
    tokens = model.tokens(targets.without_values(1))
    expected = model.features(model.read_grid(tokens, encoded.tokens, mask=expand_key_mask(None)))
    assert distance(model.decode(encoded, targets), expected) < 1e-12
    model.nearest = 1
    cell = model._flat(model.locate(targets.x, encoded.low, encoded.step))
    alone = encoded.tokens.gather(1, cell[..., None].expand(-1, -1, 32))
    expected = model.features(model.read_grid(tokens.flatten(0, 1)[:, None], alone.flatten(0, 1)[:, None]))
    assert distance(model.decode(encoded, targets).flatten(0, 1), expected[:, 0]) < 1e-12


def test_locations_outside_the_grid_have_the_nearest_cell():
    model = tiny("gridded-tnp")
    low, step = torch.tensor([[[2.0]]]).double(), torch.tensor([[[0.5]]]).double()
    x = torch.tensor([-9.0, 2.0, 2.49, 2.5, 3.99, 4.0, 50.0]).double().view(1, 7, 1)
    assert model.locate(x, low, step).flatten().tolist() == [0, 0, 0, 1, 3, 3, 3]
    assert model.locate(x, low, 0 * step).unique().tolist() == [0]  # a context at one location


def test_the_grid_does_not_depend_on_targets_or_masked_points():
    model, task = tiny("gridded-tnp"), random_task()
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[:, 2] = False
    far = task.xc.clone()
    far[:, 2] = 1e6
    grids = []
    for xc, xt in ((task.xc, task.xt), (far, task.xt + 1e3)):
        context, targets = model.read(xc, task.yc, xt, mask)
        grids.append(model.encode(context, targets))
    assert torch.equal(grids[0].low, grids[1].low)
    assert torch.equal(grids[0].step, grids[1].step)
    assert distance(grids[0].tokens, grids[1].tokens) < 1e-12


def test_a_grid_that_is_too_large_is_refused():
    with pytest.raises(InputError, match="is a grid of 16,777,216; choose fewer cells"):
        create("gridded-tnp", dim_x=3, cells=256)
    with pytest.raises(InputError, match="window must be a whole number of at least 1"):
        create("gridded-tnp", window=0)
