"""Windows by FlexAttention: equal to the reference, and no block with a pair inside the window is skipped."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import distance

from fillin.attention import Span, attend
from fillin.attention.backends import flex
from fillin.errors import FillinError

SPANS = [
    {}, {"cut": "hard"}, {"modulate": "scores"}, {"modulate": "scores", "cut": "hard"}, {"shape": "box"},
    {"covariance": "full"},
]  # fmt: skip


@pytest.mark.parametrize("options", SPANS, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_forward_equals_the_reference(options, masked, unchecked):
    span = Span(2, 3, init=0.4, **options)
    q, k, v = torch.randn(2, 3, 150, 8), torch.randn(2, 3, 170, 8), torch.randn(2, 3, 170, 5)
    xq, xk = 3 * torch.rand(2, 150, 2), 3 * torch.rand(2, 170, 2)
    mask = torch.rand(2, 1, 1, 170) > 0.5 if masked else None

    def run(backend):
        with torch.no_grad():
            return attend(q, k, v, xq=xq, xk=xk, span=span, mask=mask, backend=backend, return_lse=True)

    for got, reference in zip(run("flex"), run("reference"), strict=True):
        assert distance(got.nan_to_num(neginf=0), reference.nan_to_num(neginf=0)) < 1e-5


@given(seed=st.integers(0, 1000), dim_x=st.integers(1, 3), n=st.integers(1, 400), m=st.integers(1, 400))
def test_blocks_of_all_pairs_inside_are_visited(seed, dim_x, n, m):
    rng = torch.Generator().manual_seed(seed)
    xq, xk = (torch.rand(1, size, dim_x, generator=rng) for size in (n, m))
    reach = 0.02 + torch.rand(2, dim_x, generator=rng) * 0.3
    (xq, xk) = (x.gather(1, flex.sort_along_curve(x)[..., None].expand_as(x)) for x in (xq, xk))
    inside = ((xq[:, :, None] - xk[:, None]).abs() <= reach[:, None, None, None]).all(-1)  # [h 1 n m]
    visited = flex.find_near_blocks(xq, xk, reach)[0]  # [h q k]
    h, i, j = inside[:, 0].nonzero(as_tuple=True)
    assert visited[h, i // 128, j // 128].all()


def test_the_curve_is_a_permutation():
    x = torch.rand(2, 300, 3)
    assert torch.equal(flex.sort_along_curve(x).sort(1).values, torch.arange(300).expand(2, -1))
    assert flex.sort_along_curve(torch.zeros(1, 5, 2)).shape == (1, 5)


def test_unfit_problems_are_refused_with_a_reason():
    x, v = torch.rand(1, 4, 1), torch.rand(1, 1, 4, 2)
    with pytest.raises(FillinError, match="needs a window"):
        attend(v, v, v, xq=x, xk=x, backend="flex")
    with pytest.raises(FillinError, match="causal"):
        attend(v, v, v, xq=x, xk=x, span=Span(1), causal=True, backend="flex")
