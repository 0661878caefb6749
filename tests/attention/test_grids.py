"""Locations that all tasks share, and grids with few distinct displacements: the same results at a lower cost."""

from copy import deepcopy

import pytest
import torch
from support.attention_problems import needs_kernel, output_and_gradients, parameters_of
from support.helpers import distance

from fillin.attention import BACKENDS, SCORES, SIREN, GridEncoding, Span, attend, make_score
from fillin.attention.positional_encodings import find_distinct_displacements
from fillin.attention.problem import AttentionProblem
from fillin.attention.tabulate import find_grid_step, tabulate_grid


def solve(backend, tensors, xq, xk, score, span, copied=False):
    """Output and gradients. All tasks share their locations, or have copies of them."""
    at_q, at_k = (x.expand(len(tensors[0]), -1, -1) for x in (xq, xk))
    at_q, at_k = (at_q.clone(), at_k.clone()) if copied else (at_q, at_k)
    out = attend(*tensors, xq=at_q, xk=at_k, score=score, span=span, backend=backend)
    return output_and_gradients(out, [*tensors, xq, xk, *parameters_of(score, span)])


@pytest.mark.parametrize("span", [None, {"init": 1.5}, {"init": 1.5, "modulate": "scores"}], ids=str)
@pytest.mark.parametrize("name", sorted(SCORES))
def test_shared_locations_give_the_result_of_copies(name, span):
    torch.manual_seed(0)
    score = make_score(name, 2, 4, 2).double()
    window = None if span is None else Span(2, 2, **span).double()
    tensors = [torch.randn(3, 2, size, 4, dtype=torch.float64, requires_grad=True) for size in (5, 7, 7)]
    xq, xk = (torch.randn(1, size, 2, dtype=torch.float64, requires_grad=True) for size in (5, 7))
    expected = solve("reference", tensors, xq, xk, score, window, copied=True)
    shared = AttentionProblem(*tensors, xq.expand(3, -1, -1), xk.expand(3, -1, -1), score, window)
    assert shared.shared_locations
    for backend in sorted(BACKENDS):
        if BACKENDS[backend].unfit(shared) is None:
            results = zip(solve(backend, tensors, xq, xk, score, window), expected, strict=True)
            assert all(distance(got, true, 0.1) < 1e-10 for got, true in results), backend


def test_shared_locations_are_scored_once():
    """Except by a score that mixes content and displacement."""
    q, x = torch.zeros(6, 2, 9, 4), torch.zeros(1, 9, 2).expand(6, -1, -1)
    for name, once in (("relative-siren", True), ("mlp", True), ("joint", False)):
        score = make_score(name, 2, 4, 2)
        copied, shared = (AttentionProblem(q, q, q, at, at, score).n_stored for at in (x.clone(), x))
        assert copied / shared == (6 if once else 1), name


def even_axis(size):
    return torch.linspace(-0.5, 0.5, size, dtype=torch.float64)


GRIDS = {
    "even": (even_axis(9), even_axis(12)),
    "uneven": (torch.tensor([-0.5, -0.25, 0.0, 0.25, 0.4], dtype=torch.float64), even_axis(8)),
    "a row": (even_axis(81),),
}


@pytest.mark.parametrize("grid", GRIDS)
def test_encoding_distinct_displacements_equals_encoding_all(grid):
    torch.manual_seed(0)
    x = torch.stack(torch.meshgrid(*GRIDS[grid], indexing="ij"), -1).flatten(0, -2)
    delta = (x[:, None] - x)[None]
    network = SIREN(x.shape[-1], 5).double()
    values, index = find_distinct_displacements(delta)
    assert len(values) * 4 <= delta[..., 0].numel()
    assert distance(values[index], delta) < 1e-12
    outputs = GridEncoding(network)(delta), network(delta)
    results = [output_and_gradients(out, parameters_of(network)) for out in outputs]
    assert distance(results[0][0], results[1][0]) < 1e-12
    assert all(distance(a, b) < 1e-10 for a, b in zip(*results, strict=True))


def test_scattered_locations_have_too_many_distinct_displacements():
    x = torch.rand(30, 2)
    assert find_distinct_displacements((x[:, None] - x)[None]) is None


@needs_kernel
@pytest.mark.parametrize(("batch", "width"), [(3, 4), (1, 16), (2, 20)])
@pytest.mark.parametrize("init", [0.2, None], ids=["window", "open"])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_kernel_reads_features_at_the_displacements_of_a_grid(grid, init, batch, width):
    """In value and gradient, for a rough SIREN, whose interpolated table needs many nodes. An uneven grid needs one."""
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
    assert (table is None) == (grid == "uneven")
    assert table is None or (table.exact and (table.nodes < 100 or span is None))
    tensors = [torch.randn(batch, 2, len(x), width, requires_grad=True) for _ in range(3)]
    out, *grads = solve("native", tensors, x.float()[None], x.float()[None], score, span)
    double = [t.detach().double().requires_grad_() for t in tensors]
    expected = solve("reference", double, x[None], x[None], deepcopy(score).double(), span and deepcopy(span).double())
    assert distance(out.double(), expected[0]) < (1e-5 if table else 1e-3)
    for got, true in zip(grads, expected[1:], strict=True):
        assert distance(got.double(), true, 0.1) < (1e-5 if table else 1e-2)


@needs_kernel
def test_infinite_queries_do_not_affect_other_queries():
    """An infinite query has a non-finite output; all others are unchanged."""
    torch.manual_seed(0)
    x = torch.stack(torch.meshgrid(even_axis(6), even_axis(6), indexing="ij"), -1).flatten(0, -2).float()
    tensors = [torch.randn(1, 2, 36, 4) for _ in range(3)]
    score = make_score("relative-siren", 2, 4, 2)
    score.set_positions(GridEncoding(SIREN(2, 32, bias=False)))
    with torch.no_grad():
        before = attend(*tensors, xq=x[None], xk=x[None], score=score, span=Span(2, 2, init=0.1), backend="native")
        tensors[0][0, 0, 0] = torch.inf
        after = attend(*tensors, xq=x[None], xk=x[None], score=score, span=Span(2, 2, init=0.1), backend="native")
    assert not after[0, 0, 0].isfinite().all()
    assert distance(after[0, 1], before[0, 1]) < 1e-6
    assert distance(after[0, 0, 1:], before[0, 0, 1:]) < 1e-6


def test_a_table_of_a_grid_has_the_nodes_that_each_axis_needs():
    """A strip needs few nodes across. There is no table beyond the maximal number of nodes."""
    x = torch.stack(torch.meshgrid(even_axis(3), even_axis(40), indexing="ij"), -1).flatten(0, -2).float()[None]
    score = make_score("relative-siren", 2, 4, 2)
    assert tabulate_grid(score.tabulate_features, x, x, torch.ones(2), 1e6).values.shape[:3] == (2, 7, 81)
    assert tabulate_grid(score.tabulate_features, x, x, torch.ones(2), 500) is None


@pytest.mark.parametrize("curvature", [0.0, 0.02])
def test_nearly_even_locations_are_no_grid(curvature):
    """Gaps that grow slightly add up to a whole step."""
    x = torch.linspace(0, 1, 200)
    x = (x + curvature * x * (1 - x)).view(1, -1, 1)
    assert (find_grid_step(x, x) is None) == (curvature > 0)
