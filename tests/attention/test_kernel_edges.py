"""The kernel at the edges: odd sets of points, places that are no numbers, threads and builds."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.attention_problems import Solved, built, errors, run, scattered, solve, window
from support.helpers import distance

from fillin.attention import DotProduct, Laplace, Score, ScoreTraits, Span, attend, make_score
from fillin.attention.kernel import library, ops

dims = pytest.mark.parametrize("dim_x", [1, 2, 3])
SPANS = [{}, {"modulate": "scores"}, {"cut": "hard"}, {"shape": "box"}, {"covariance": "full"}, {"threshold": 0.0}]


def flat(solved: Solved) -> torch.Tensor:
    """Everything that was found, in one vector."""
    parts = (*solved[:5], *solved.score, solved.window)
    return torch.cat([t.nan_to_num(0, neginf=0).flatten() for t in parts])


# sets of points


@built
@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**16), dim_x=st.integers(1, 3), options=st.sampled_from(SPANS), score=st.sampled_from([0, 1])
)
def test_the_order_of_points_does_not_matter(seed, dim_x, options, score):
    torch.manual_seed(seed)
    score = DotProduct() + Laplace(2, dim_x) if score else DotProduct()
    p = scattered(2, 2, 83, 70, dim_x, score=score, span=window(dim_x, **options))
    i, j, d_out = torch.randperm(83), torch.randperm(70), torch.randn(2, 2, 83, 5)
    shuffled = replace(p, q=p.q[:, :, i], k=p.k[:, :, j], v=p.v[:, :, j], xq=p.xq[:, i], xk=p.xk[:, j])
    learned = [*p.score.parameters(), *p.span.parameters()]
    (out, lse), (again, sums) = run(p), run(shuffled)
    assert distance(again, out[:, :, i]) < 1e-6
    assert distance(sums.exp(), lse.exp()[:, :, i]) < 2e-6
    before, after = torch.autograd.grad(out, learned, d_out), torch.autograd.grad(again, learned, d_out[:, :, i])
    assert all(distance(a, b, 1.0) < 1e-5 for a, b in zip(after, before, strict=True))


@built
@dims
@pytest.mark.parametrize("score", ["nothing", "laplace", "relative-sinusoid"])
def test_a_shift_by_a_hundred_ranges_costs_the_rounding_of_x(dim_x, score):
    """Held to the reference at the very places that float32 has there."""
    for options in SPANS:
        score_ = make_score(score, 2, 8, dim_x)
        p = scattered(1, 2, 70, 80, dim_x, score=score_, span=window(dim_x, **options))
        p = replace(p, xq=p.xq + 200, xk=p.xk + 200)
        assert max(errors(p).values()) < 1e-5


def line(dim_x):
    return torch.linspace(0, 2, 70)[None, :, None] * torch.linspace(0.5, 1, dim_x)


PLACES = {
    "all at one place": lambda dim_x: torch.full((1, 70, dim_x), 0.3),
    "in pairs": lambda dim_x: torch.rand(1, 35, dim_x).repeat(1, 2, 1),
    "on a line": line,
    "on an axis": lambda dim_x: line(dim_x) * torch.eye(dim_x)[-1],
    "on a grid": lambda dim_x: torch.cartesian_prod(*[torch.arange(5.0)] * dim_x).view(1, -1, dim_x)[:, :70] / 4,
    "one point": lambda dim_x: torch.rand(1, 1, dim_x),
    "two far apart": lambda dim_x: torch.tensor([-1e6, 1e6])[None, :, None].expand(1, 2, dim_x),
}


@built
@dims
@pytest.mark.parametrize("where", sorted(PLACES))
def test_points_that_stand_oddly(where, dim_x):
    x = PLACES[where](dim_x)
    for options in SPANS:
        p = scattered(1, 2, x.shape[1], x.shape[1], dim_x, span=window(dim_x, **options))
        assert max(errors(replace(p, xq=x, xk=x.clone())).values()) < 1e-5


@built
@dims
def test_nothing_inside_gives_zeros_and_no_nan(dim_x):
    for options in SPANS[:-1]:
        p = scattered(2, 2, 40, 50, dim_x, span=window(dim_x, **options))
        found = solve(replace(p, xk=p.xk + 100))
        assert (found.lse == -math.inf).all()
        assert not flat(found).any()


@built
@dims
@pytest.mark.parametrize("init", [1e6, 1e-6])
def test_windows_that_are_huge_or_tiny(init, dim_x):
    """Huge: as if there were none. Tiny: a point sees itself alone."""
    for options in SPANS[:-1]:
        p = scattered(1, 2, 50, 50, dim_x, span=Span(dim_x, 2, init=init, **options))
        p = replace(p, xk=p.xq.clone())
        assert max(errors(p).values()) < 1e-5
        if init == 1e-6:
            assert distance(run(p)[0], p.v) < 1e-6
        elif options.get("modulate") != "scores":
            assert distance(run(p)[0], run(replace(p, span=None))[0]) < 1e-5


@built
@pytest.mark.parametrize("count", range(1, 35))
def test_numbers_of_points_that_are_multiples_of_nothing(count):
    """Tiles of 4, 8 or 16 keys and blocks of 32 queries, full to every degree; so with widths of heads."""
    for n, m, d, e in ((count, 64, count, 3), (33, count, 3, count), (count + 64, count + 32, 8, 8)):
        assert max(errors(scattered(1, 1, n, m, 2, d, e, span=window(heads=1))).values()) < 1e-5


# numbers that are none

BAD = [math.nan, math.inf, -math.inf, 3e38, -3e38]


@built
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**16), dim_x=st.integers(1, 3), options=st.sampled_from(SPANS),
    bad=st.lists(st.tuples(st.booleans(), st.integers(0, 69), st.integers(0, 2), st.sampled_from(BAD)), max_size=40),
)  # fmt: skip
@example(seed=0, dim_x=2, options={"shape": "box"}, bad=[(True, 5, 0, math.nan), (True, 6, 1, math.inf)])
def test_places_that_are_no_numbers_meet_nobody(seed, dim_x, options, bad):
    """Nobody is inside of their windows, nor they in others'; for all others it is as if they were masked."""
    torch.manual_seed(seed)
    p = scattered(1, 2, 70, 70, dim_x, span=window(dim_x, **options))
    for key, point, d, value in bad:
        (p.xk if key else p.xq)[0, point, d % dim_x] = value
    good_q, good_k = (x.isfinite().all(-1)[0] for x in (p.xq, p.xk))
    got, true = solve(p), solve(replace(p, xk=p.xk.nan_to_num(0, 0, 0), mask=good_k[None, None, None]))
    for one, other in ((got.out, true.out), (got.lse, true.lse), (got.q, true.q)):
        assert torch.allclose(one[:, :, good_q], other[:, :, good_q], atol=1e-5)
    assert (got.out[:, :, ~good_q] == 0).all()
    assert not flat(got).isnan().any()


@built
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**16), dim_x=st.integers(1, 3), radial=st.booleans(), wide=st.booleans(),
    options=st.none() | st.sampled_from(SPANS), share=st.sampled_from([0.1, 0.5, 1.0]),
    axis=st.sampled_from([1e-3, 1.0, 1e30, math.inf, math.nan]),
)  # fmt: skip
def test_no_table_is_read_outside_of_itself(seed, dim_x, radial, wide, options, share, axis):
    """Whatever places and axes are: the sanitizers of `make sanitize` look on."""
    torch.manual_seed(seed)
    p = scattered(1, 2, 40, 45, dim_x, span=None if options is None else window(dim_x, **options))
    for x in (p.xq, p.xk):
        at = torch.rand(x.shape) < share
        x[at] = torch.tensor(BAD)[torch.randint(len(BAD), (int(at.sum()),))]
    nodes = (5,) if radial else (2, 3, 4)[:dim_x]
    table = torch.randn(2, *nodes, *([8] if wide else []), requires_grad=True)
    axes = torch.tensor([[-axis] * len(nodes), [axis] * len(nodes)])
    settings = ops.KernelSettings(radial=radial, features_radial=radial)
    if options is not None:
        settings = settings.with_span("weights", "continuous", "ball", 0.1)
    inverse = None if p.span is None else p.span.inverse(dim_x).contiguous()
    tables = (None, p.q, table) if wide else (table, None, None)
    inputs = ops.DifferentiableInputs(p.q, p.k, p.v, inverse, *tables)
    orders = ops.spatial_order(p.xq), ops.spatial_order(p.xk)
    out, _ = ops.run_attention(inputs, ops.FixedInputs(p.xq, p.xk, *orders, None, axes, axes), settings)
    out.sum().backward()
    assert out.shape == (1, 2, 40, 5)


@built
@pytest.mark.parametrize("options", [None, *SPANS], ids=str)
@pytest.mark.parametrize("which", ["q", "k"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e25])
def test_scores_that_are_no_numbers_are_not_swallowed(which, value, options):
    """Whoever attends to such a key, or asks by such a query, hears of it; nobody else does."""
    torch.manual_seed(0)
    p = scattered(1, 2, 90, 90, 2, span=None if options is None else window(2, **options))
    tensor = getattr(p, which)
    tensor[0, 0, 7] = value * tensor[0, 0, 7].sign()
    found, true = solve(p), solve(p, "reference")
    for got, wanted in zip(found[:2], true[:2], strict=True):
        assert torch.equal(got.isnan(), wanted.isnan())
        assert distance(got.nan_to_num(0, 0, 0), wanted.nan_to_num(0, 0, 0)) < 1e-4
    assert found.out.isnan().any() == (value != 1e25)
    # of the gradients the reference has more: it multiplies what is outside by 0, and 0 · NaN is NaN
    assert [g.isnan().any() for g in found[2:5]] == [g.isnan().any() for g in true[2:5]]


# threads and builds


@pytest.fixture
def threads():
    """torch's number of threads, to be set; afterwards it is what it was."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def battery(seed=0):
    """A few problems that between them touch every part of the kernel."""
    torch.manual_seed(seed)
    for dim_x, options in product((1, 2, 3), SPANS):
        yield scattered(1, 3, 70, 90, dim_x, 18, 18, span=window(dim_x, 3, **options), mask=torch.rand(90) > 0.2)
    for name, radial in product(("laplace", "relative-siren"), (False, True)):
        yield scattered(2, 1, 90, 90, 2, extent=0.1, score=make_score(name, 1, 8, 2, radial), span=window(2, 1))
    yield scattered(1, 1, 130, 90, 2)


@built
def test_the_number_of_threads_does_not_matter_and_the_same_number_gives_the_same_bytes(threads):
    for p in battery():
        found = {}
        for count in (1, 2, 3):
            threads(count)
            found[count] = flat(solve(p))
            assert torch.equal(found[count], flat(solve(p)))
        assert max(distance(found[count], found[1]) for count in (2, 3)) < 1e-6


@built
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_every_build_that_this_processor_can_run(lanes, monkeypatch):
    if lanes not in library.find_builds():
        pytest.skip(f"no build of {lanes} lanes runs here")
    loaded = library.open_library(library.find_builds()[lanes])
    assert loaded.fillin_lanes() == lanes
    monkeypatch.setattr(library, "load_library", lambda: loaded)
    for p in battery():
        found = errors(p, sums=False)
        assert found.pop("score") < 1e-3
        assert max(found.values()) < (1e-5 if isinstance(p.score, DotProduct) else 1e-4)
    for count in (1, 3, 4, 5, 15, 16, 17, 31, 32, 33):
        assert max(errors(scattered(1, 1, count, 70 - count, 2, count, count, span=window(2, 1))).values()) < 1e-5


@built
def test_a_score_of_someone_elses_is_not_dropped():
    """What is neither columns nor a function of Δ goes through `streamed`."""

    class Squared(Score):
        traits = ScoreTraits(content=True)

        def forward(self, q, k, delta):
            return (q @ k.mT).square() / 10

    q, x = torch.randn(1, 2, 50, 4), torch.rand(1, 50, 1)
    got, wanted = (
        attend(q, q, q, xq=x, xk=x, score=Squared(), span=Span(1), backend=b) for b in ("native", "reference")
    )
    assert distance(got, wanted) < 1e-5
