"""Places that all tasks share, and displacements of which there are few: the same answers, for less."""

from copy import deepcopy

import pytest
import torch
from support.helpers import distance

from fillin.attention import BACKENDS, SCORES, SIREN, GridEncoding, Span, attend, kernel, make_score
from fillin.attention.positional_encodings import find_distinct_displacements
from fillin.attention.problem import AttentionProblem
from fillin.attention.tabulate import find_grid_step, tabulate_grid


def solved(backend, tensors, xq, xk, score, span):
    """The output, and the gradients of something of it to tensors, places, score and span."""
    leaves = [*tensors, xq, xk, *score.parameters(), *([] if span is None else span.parameters())]
    at_q, at_k = (x.expand(len(tensors[0]), -1, -1) for x in (xq, xk))
    if backend == "each":  # the same places, but a copy of them for each task
        backend, at_q, at_k = "reference", at_q.clone(), at_k.clone()
    out = attend(*tensors, xq=at_q, xk=at_k, score=score, span=span, backend=backend)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    grads = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
    return [out, *(torch.zeros_like(leaf) if g is None else g for g, leaf in zip(grads, leaves, strict=True))]


@pytest.mark.parametrize("span", [None, {"init": 1.5}, {"init": 1.5, "modulate": "scores"}], ids=str)
@pytest.mark.parametrize("name", sorted(SCORES))
def test_places_that_are_shared_are_those_of_each(name, span):
    torch.manual_seed(0)
    score = make_score(name, 2, 4, 2).double()
    window = None if span is None else Span(2, 2, **span).double()
    tensors = [torch.randn(3, 2, size, 4, dtype=torch.float64, requires_grad=True) for size in (5, 7, 7)]
    xq, xk = (torch.randn(1, size, 2, dtype=torch.float64, requires_grad=True) for size in (5, 7))
    wanted = solved("each", tensors, xq, xk, score, window)
    shared = AttentionProblem(*tensors, xq.expand(3, -1, -1), xk.expand(3, -1, -1), score, window)
    assert shared.shared_locations
    for backend in sorted(BACKENDS):
        if BACKENDS[backend].unfit(shared) is None:
            found = solved(backend, tensors, xq, xk, score, window)
            assert all(distance(got, true, 0.1) < 1e-10 for got, true in zip(found, wanted, strict=True)), backend


def test_what_is_shared_is_held_once():
    """But for a score that looks at content and places together."""
    q, x = torch.zeros(6, 2, 9, 4), torch.zeros(1, 9, 2).expand(6, -1, -1)
    for name, once in (("relative-siren", True), ("mlp", True), ("joint", False)):
        score = make_score(name, 2, 4, 2)
        copied, shared = (AttentionProblem(q, q, q, at, at, score).n_stored for at in (x.clone(), x))
        assert copied / shared == (6 if once else 1), name


def even(size):
    return torch.linspace(-0.5, 0.5, size, dtype=torch.float64)


GRIDS = {
    "even": (even(9), even(12)),
    "with an odd edge": (torch.tensor([-0.5, -0.25, 0.0, 0.25, 0.4], dtype=torch.float64), even(8)),
    "a row": (even(81),),
}


@pytest.mark.parametrize("grid", GRIDS)
def test_features_of_distinct_displacements_are_those_of_all(grid):
    torch.manual_seed(0)
    x = torch.stack(torch.meshgrid(*GRIDS[grid], indexing="ij"), -1).flatten(0, -2)
    delta = (x[:, None] - x)[None]
    network = SIREN(x.shape[-1], 5).double()
    found = find_distinct_displacements(delta)
    assert found is not None
    assert len(found[0]) * 4 <= delta[..., 0].numel()
    assert distance(found[0][found[1]], delta) < 1e-12
    got, wanted = GridEncoding(network)(delta), network(delta)
    assert distance(got, wanted) < 1e-12
    weight = torch.randn_like(wanted)
    slopes = [torch.autograd.grad((made * weight).sum(), list(network.parameters())) for made in (got, wanted)]
    assert all(distance(a, b) < 1e-10 for a, b in zip(*slopes, strict=True))


def test_places_anywhere_have_no_few_displacements():
    x = torch.rand(30, 2)
    assert find_distinct_displacements((x[:, None] - x)[None]) is None


@pytest.mark.skipif(not kernel.is_available(), reason="fillin was installed without a C++ compiler")
@pytest.mark.parametrize(("batch", "width"), [(3, 4), (1, 16), (2, 20)])
@pytest.mark.parametrize("init", [0.2, None], ids=["window", "open"])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_kernel_reads_features_at_the_displacements_that_there_are(grid, init, batch, width):
    """In value and gradient. Of a rough SIREN too, of which a table for any Δ needs very many nodes; an uneven grid
    takes such a table."""
    torch.manual_seed(0)
    x = torch.stack(torch.meshgrid(*GRIDS[grid], indexing="ij"), -1).flatten(0, -2)
    dims = x.shape[-1]
    score = make_score("relative-siren", 2, width, dims)
    score.set_positions(GridEncoding(SIREN(dims, 32, bias=False, band=(1, 90))))
    score.v.data.normal_()
    span = None if init is None else Span(dims, 2, init=init)
    shared = x.float().expand(batch, -1, -1)
    reach = torch.ones(dims) if span is None else span.reach().detach().amax(0)
    table = tabulate_grid(score.tabulate_features, shared, shared, reach, 1e9)
    assert (table is None) == (grid == "with an odd edge")
    assert table is None or (table.exact and (table.nodes < 100 or span is None))
    tensors = [torch.randn(batch, 2, len(x), width, requires_grad=True) for _ in range(3)]
    found = alone("native", tensors, x, score, span)
    double = [t.detach().double().requires_grad_() for t in tensors]
    wanted = alone("reference", double, x, deepcopy(score).double(), deepcopy(span and span.double()))
    assert distance(found[0].double(), wanted[0]) < (1e-5 if table else 1e-3)
    for got, true in zip(found[1:], wanted[1:], strict=True):
        assert distance(got.double(), true, 0.1) < (1e-5 if table else 1e-2)


def alone(backend, tensors, x, score, span):
    """The output, and gradients to all but the places, which are on a grid."""
    at = x.to(tensors[0].dtype).expand(len(tensors[0]), -1, -1)
    out = attend(*tensors, xq=at, xk=at, score=score, span=span, backend=backend)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    leaves = [*tensors, *score.parameters(), *([] if span is None else span.parameters())]
    return [out, *torch.autograd.grad((out * weight).sum(), leaves)]


@pytest.mark.skipif(not kernel.is_available(), reason="fillin was installed without a C++ compiler")
def test_pixels_too_bright_for_floats_are_told_where_they_may_be_seen():
    """A feature without bounds spoils the queries that meet it and no others: those it is outside the window of."""
    torch.manual_seed(0)
    x = torch.stack(torch.meshgrid(even(6), even(6), indexing="ij"), -1).flatten(0, -2).float()
    tensors = [torch.randn(1, 2, 36, 4) for _ in range(3)]
    score = make_score("relative-siren", 2, 4, 2)
    score.set_positions(GridEncoding(SIREN(2, 32, bias=False)))
    with torch.no_grad():
        usual = attend(*tensors, xq=x[None], xk=x[None], score=score, span=Span(2, 2, init=0.1), backend="native")
        tensors[0][0, 0, 0] = torch.inf
        found = attend(*tensors, xq=x[None], xk=x[None], score=score, span=Span(2, 2, init=0.1), backend="native")
    assert not found[0, 0, 0].isfinite().all()
    assert distance(found[0, 1], usual[0, 1]) < 1e-6
    assert distance(found[0, 0, 1:], usual[0, 0, 1:]) < 1e-6


def test_a_table_of_displacements_is_as_long_as_each_axis_needs():
    """Of a strip few nodes across; none at all where there would be more nodes than pairs."""
    x = torch.stack(torch.meshgrid(even(3), even(40), indexing="ij"), -1).flatten(0, -2).float()[None]
    score = make_score("relative-siren", 2, 4, 2)
    found = tabulate_grid(score.tabulate_features, x, x, torch.ones(2), 1e6)
    assert found.values.shape[:3] == (2, 7, 81)
    assert tabulate_grid(score.tabulate_features, x, x, torch.ones(2), 500) is None


@pytest.mark.parametrize("bent", [0.0, 0.02])
def test_places_that_are_nearly_even_are_not(bent):
    """Gaps that grow by a little each add up to a whole step."""
    x = torch.linspace(0, 1, 200)
    x = (x + bent * x * (1 - x)).view(1, -1, 1)
    assert (find_grid_step(x, x) is None) == (bent > 0)
