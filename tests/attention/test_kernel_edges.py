"""Edge cases of the kernel: degenerate sets of points, non-finite numbers, threads and builds."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.attention_problems import (
    kernel_errors,
    largest_error,
    needs_kernel,
    random_problem,
    random_span,
    run,
    solve,
)
from support.helpers import distance

from fillin.attention import DotProduct, Laplace, Score, ScoreTraits, Span, attend, make_score
from fillin.attention.kernel import library, ops

pytestmark = needs_kernel
dims = pytest.mark.parametrize("dim_x", [1, 2, 3])
SPANS = [{}, {"modulate": "scores"}, {"cut": "hard"}, {"shape": "box"}, {"covariance": "full"}, {"threshold": 0.0}]


# sets of points


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**16), dim_x=st.integers(1, 3), options=st.sampled_from(SPANS), score=st.sampled_from([0, 1])
)
def test_permuted_points_give_permuted_results(seed, dim_x, options, score):
    torch.manual_seed(seed)
    score = DotProduct() + Laplace(2, dim_x) if score else DotProduct()
    p = random_problem(2, 2, 83, 70, dim_x, score=score, span=random_span(dim_x, **options))
    i, j, d_out = torch.randperm(83), torch.randperm(70), torch.randn(2, 2, 83, 5)
    shuffled = replace(p, q=p.q[:, :, i], k=p.k[:, :, j], v=p.v[:, :, j], xq=p.xq[:, i], xk=p.xk[:, j])
    learned = [*p.score.parameters(), *p.span.parameters()]
    (out, lse), (permuted_out, permuted_lse) = run(p), run(shuffled)
    assert distance(permuted_out, out[:, :, i]) < 1e-6
    assert distance(permuted_lse.exp(), lse.exp()[:, :, i]) < 2e-6
    before, after = torch.autograd.grad(out, learned, d_out), torch.autograd.grad(permuted_out, learned, d_out[:, :, i])
    assert all(distance(a, b, 1.0) < 1e-5 for a, b in zip(after, before, strict=True))


@dims
@pytest.mark.parametrize("name", ["nothing", "laplace", "relative-sinusoid"])
def test_a_shift_by_a_hundred_ranges_costs_only_the_rounding_of_x(dim_x, name):
    """Compared with the reference at the shifted locations in float32."""
    for options in SPANS:
        score = make_score(name, 2, 8, dim_x)
        p = random_problem(1, 2, 70, 80, dim_x, score=score, span=random_span(dim_x, **options))
        p = replace(p, xq=p.xq + 200, xk=p.xk + 200)
        assert largest_error(p) < 1e-5


def line(dim_x):
    return torch.linspace(0, 2, 70)[None, :, None] * torch.linspace(0.5, 1, dim_x)


LOCATIONS = {
    "identical": lambda dim_x: torch.full((1, 70, dim_x), 0.3),
    "in pairs": lambda dim_x: torch.rand(1, 35, dim_x).repeat(1, 2, 1),
    "on a line": line,
    "on an axis": lambda dim_x: line(dim_x) * torch.eye(dim_x)[-1],
    "on a grid": lambda dim_x: torch.cartesian_prod(*[torch.arange(5.0)] * dim_x).view(1, -1, dim_x)[:, :70] / 4,
    "one point": lambda dim_x: torch.rand(1, 1, dim_x),
    "two far apart": lambda dim_x: torch.tensor([-1e6, 1e6])[None, :, None].expand(1, 2, dim_x),
}


@dims
@pytest.mark.parametrize("where", sorted(LOCATIONS))
def test_degenerate_locations(where, dim_x):
    x = LOCATIONS[where](dim_x)
    for options in SPANS:
        p = random_problem(1, 2, x.shape[1], x.shape[1], dim_x, span=random_span(dim_x, **options))
        assert largest_error(replace(p, xq=x, xk=x.clone())) < 1e-5


@dims
def test_an_empty_window_gives_zeros_and_no_nan(dim_x):
    for options in SPANS[:-1]:
        p = random_problem(2, 2, 40, 50, dim_x, span=random_span(dim_x, **options))
        solution = solve(replace(p, xk=p.xk + 100))
        assert (solution.lse == -math.inf).all()
        assert not solution.flatten().any()


@dims
@pytest.mark.parametrize("init", [1e6, 1e-6])
def test_huge_and_tiny_windows(init, dim_x):
    """A huge window has no effect. In a tiny one a point attends to itself alone."""
    for options in SPANS[:-1]:
        p = random_problem(1, 2, 50, 50, dim_x, span=Span(dim_x, 2, init=init, **options))
        p = replace(p, xk=p.xq.clone())
        assert largest_error(p) < 1e-5
        if init == 1e-6:
            assert distance(run(p)[0], p.v) < 1e-6
        elif options.get("modulate") != "scores":
            assert distance(run(p)[0], run(replace(p, span=None))[0]) < 1e-5


@pytest.mark.parametrize("count", range(1, 35))
def test_every_number_of_points_and_width(count):
    """Tiles of 4, 8 or 16 keys and blocks of 64 queries that are partly filled, and all widths of heads."""
    for n, m, d, e in ((count, 64, count, 3), (33, count, 3, count), (count + 64, count + 32, 8, 8)):
        assert largest_error(random_problem(1, 1, n, m, 2, d, e, span=random_span(heads=1))) < 1e-5


# non-finite numbers

NON_FINITE = [math.nan, math.inf, -math.inf, 3e38, -3e38]
non_finite = st.sampled_from(NON_FINITE)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**16), dim_x=st.integers(1, 3), options=st.sampled_from(SPANS),
    bad=st.lists(st.tuples(st.booleans(), st.integers(0, 69), st.integers(0, 2), non_finite), max_size=40),
)  # fmt: skip
@example(seed=0, dim_x=2, options={"shape": "box"}, bad=[(True, 5, 0, math.nan), (True, 6, 1, math.inf)])
def test_non_finite_locations_are_outside_of_all_windows(seed, dim_x, options, bad):
    """For all other points it is as if they were masked."""
    torch.manual_seed(seed)
    p = random_problem(1, 2, 70, 70, dim_x, span=random_span(dim_x, **options))
    for key, point, d, value in bad:
        (p.xk if key else p.xq)[0, point, d % dim_x] = value
    good_q, good_k = (x.isfinite().all(-1)[0] for x in (p.xq, p.xk))
    got, true = solve(p), solve(replace(p, xk=p.xk.nan_to_num(0, 0, 0), mask=good_k[None, None, None]))
    for result, expected in ((got.out, true.out), (got.lse, true.lse), (got.q, true.q)):
        assert torch.allclose(result[:, :, good_q], expected[:, :, good_q], atol=1e-5)
    assert (got.out[:, :, ~good_q] == 0).all()
    assert not got.flatten().isnan().any()


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**16), dim_x=st.integers(1, 3), radial=st.booleans(), wide=st.booleans(),
    options=st.none() | st.sampled_from(SPANS), share=st.sampled_from([0.1, 0.5, 1.0]),
    axis=st.sampled_from([1e-3, 1.0, 1e30, math.inf, math.nan]),
)  # fmt: skip
def test_tables_are_not_read_out_of_bounds(seed, dim_x, radial, wide, options, share, axis):
    """For all locations and axes; `make sanitize` checks the addresses."""
    torch.manual_seed(seed)
    p = random_problem(1, 2, 40, 45, dim_x, span=None if options is None else random_span(dim_x, **options))
    for x in (p.xq, p.xk):
        at = torch.rand(x.shape) < share
        x[at] = torch.tensor(NON_FINITE)[torch.randint(len(NON_FINITE), (int(at.sum()),))]
    nodes = (5,) if radial else (2, 3, 4)[:dim_x]
    table = torch.randn(2, *nodes, *([8] if wide else []), requires_grad=True)
    axes = torch.tensor([[-axis] * len(nodes), [axis] * len(nodes)])
    settings = ops.KernelSettings(radial=radial, features_radial=radial)
    if options is not None:
        settings = settings.with_span("weights", "continuous", "ball", 0.1, options.get("covariance", "diagonal"))
    inverse = None if p.span is None else p.span.inverse(dim_x).contiguous()
    tables = (None, p.q, table) if wide else (table, None, None)
    inputs = ops.DifferentiableInputs(p.q, p.k, p.v, p.xq, p.xk, inverse, *tables)
    orders = ops.spatial_order(p.xq), ops.spatial_order(p.xk)
    out, _ = ops.run_attention(inputs, ops.FixedInputs(*orders, None, None, axes, axes), settings)
    out.sum().backward()
    assert out.shape == (1, 2, 40, 5)


@pytest.mark.parametrize("options", [None, *SPANS], ids=str)
@pytest.mark.parametrize("which", ["q", "k"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e25])
def test_non_finite_scores_reach_the_output(which, value, options):
    """The outputs of queries that attend to such a key, or are such a query, are NaN; others are not."""
    torch.manual_seed(0)
    p = random_problem(1, 2, 90, 90, 2, span=None if options is None else random_span(2, **options))
    tensor = getattr(p, which)
    tensor[0, 0, 7] = value * tensor[0, 0, 7].sign()
    native, reference = solve(p), solve(p, "reference")
    for got, expected in zip(native[:2], reference[:2], strict=True):
        assert torch.equal(got.isnan(), expected.isnan())
        assert distance(got.nan_to_num(0, 0, 0), expected.nan_to_num(0, 0, 0)) < 1e-4
    assert native.out.isnan().any() == (value != 1e25)
    # more gradients of the reference are NaN: it multiplies keys outside by 0, and 0 · NaN is NaN
    assert [g.isnan().any() for g in native[2:5]] == [g.isnan().any() for g in reference[2:5]]


# threads and builds


@pytest.fixture
def threads():
    """A function that sets the number of threads of torch, which is restored afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def battery(seed=0):
    """Problems that together cover every part of the kernel."""
    torch.manual_seed(seed)
    for dim_x, options in product((1, 2, 3), SPANS):
        span, mask = random_span(dim_x, 3, **options), torch.rand(90) > 0.2
        yield random_problem(1, 3, 70, 90, dim_x, 18, 18, span=span, mask=mask)
    for name, radial in product(("laplace", "relative-siren"), (False, True)):
        score = make_score(name, 1, 8, 2, radial)
        yield random_problem(2, 1, 90, 90, 2, extent=0.1, score=score, span=random_span(2, 1))
    yield random_problem(1, 1, 130, 90, 2)


def test_results_are_deterministic_and_independent_of_the_number_of_threads(threads):
    for p in battery():
        results = {}
        for count in (1, 2, 3):
            threads(count)
            results[count] = solve(p).flatten()
            assert torch.equal(results[count], solve(p).flatten())
        assert max(distance(results[count], results[1]) for count in (2, 3)) < 1e-6


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_every_build_that_this_processor_can_run(lanes):
    if lanes not in library.find_builds():
        pytest.skip(f"no build of {lanes} lanes runs here")
    with library.use_build(lanes):
        assert library.lanes() == lanes
        for p in battery():
            errors = kernel_errors(p, through_lse=False)
            assert errors.pop("score") < 1e-3
            assert max(errors.values()) < (1e-5 if isinstance(p.score, DotProduct) else 1e-4)
        for count in (1, 3, 4, 5, 15, 16, 17, 31, 32, 33):
            p = random_problem(1, 1, count, 70 - count, 2, count, count, span=random_span(2, 1))
            assert largest_error(p) < 1e-5


def test_a_custom_score_falls_back_to_streamed():
    """The kernel takes neither its columns nor a table of it."""

    class Squared(Score):
        traits = ScoreTraits(content=True)

        def forward(self, q, k, delta):
            return (q @ k.mT).square() / 10

    q, x = torch.randn(1, 2, 50, 4), torch.rand(1, 50, 1)
    got, reference = (
        attend(q, q, q, xq=x, xk=x, score=Squared(), span=Span(1), backend=b) for b in ("native", "reference")
    )
    assert distance(got, reference) < 1e-5
