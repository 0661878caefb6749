"""Pseudo-tokens: permutations, chunks that add up, and locations that move with the data."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import distance, random_task, tiny

from fillin.attention import record_weights
from fillin.errors import InputError
from fillin.layers import CMAB, ISAB, PMA, Block, LatentBottleneck, MultiHeadAttention, PseudoTokens


def test_pooling_is_permutation_invariant():
    tokens, order = torch.randn(2, 7, 16), torch.randperm(7)
    pool = PMA(3, 16, lambda dim, cross: Block(dim, 4, cross=cross))
    assert pool(tokens).shape == (2, 3, 16)
    assert distance(pool(tokens[:, order]), pool(tokens)) < 1e-5


def test_induced_attention_is_permutation_equivariant():
    def block(dim, cross):
        return Block(dim, 4, cross=cross)

    tokens, latents, order = torch.randn(2, 7, 16), torch.randn(2, 3, 16), torch.randperm(7)
    isab = ISAB(16, block)
    out, read = isab(latents, tokens)
    out_permuted, read_permuted = isab(latents, tokens[:, order])
    assert distance(out_permuted, out[:, order]) < 1e-5
    assert distance(read_permuted, read) < 1e-5


def test_the_bottleneck_never_attends_between_all_points():
    block = LatentBottleneck(16, lambda dim, cross=False: Block(dim, 4, cross=cross))
    with record_weights() as records:
        block(torch.randn(1, 3, 16), torch.randn(1, 50, 16))
    assert [tuple(record.weights.shape[-2:]) for record in records] == [(3, 50), (3, 3)]


@given(cuts=st.lists(st.integers(0, 20), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_chunks_give_the_result_of_all_data_for_one_block(cuts, seed):
    """c' = logaddexp(c, c_new), o' = e^(c − c')o + e^(c_new − c')o_new."""
    torch.manual_seed(seed)
    block = CMAB(4, 16, lambda dim, cross=False: Block(dim, 4, cross=cross)).double()
    tokens = torch.randn(2, 20, 16).double()
    mask = torch.rand(2, 20) > 0.2
    state = block.start(2)
    edges = [0, *sorted(cuts), 20]
    for start, stop in pairwise(edges):
        state = block.update(state, tokens[:, start:stop], mask=mask[:, start:stop])
    whole = block.update(block.start(2), tokens, mask=mask)
    assert distance(state.out, whole.out) < 1e-12
    assert distance(state.lse, whole.lse) < 1e-12


@pytest.mark.parametrize("name", ["cmanp", "te-cmanp"])
@pytest.mark.parametrize("radial", [False, True])
def test_chunks_give_the_result_of_all_data_for_a_model(name, radial):
    """Constant memory and the same prediction. The first chunk determines the latents' locations of a te-model."""
    if radial and name == "cmanp":
        return
    model, task = tiny(name, **({"radial": True} if radial else {})), random_task(nc=12, nt=5)
    pieces = [(task.xc[:, a:b], task.yc[:, a:b]) for a, b in ((0, 3), (3, 4), (4, 12))]
    state, sizes = None, []
    for piece in pieces:
        state = model.update(state, *piece)
        sizes.append(sum(t.numel() for layer in state.layers for t in layer))
    assert len(set(sizes)) == 1  # constant memory
    again = model.update(model.update(None, *pieces[0]), *(torch.cat(p, 1) for p in zip(*pieces[1:], strict=True)))
    got, expected = model.predict(state, task.xt), model.predict(again, task.xt)
    assert distance(got.mean, expected.mean) < 1e-11
    at_once = model.predict(model.update(None, task.xc, task.yc), task.xt)
    assert distance(at_once.mean, model(*task.inputs).mean) < 1e-12
    if name == "cmanp":  # without locations the order of chunks does not matter
        assert distance(got.mean, at_once.mean) < 1e-11


def test_a_task_without_points_in_the_first_chunk_is_located_by_the_next():
    model, task = tiny("te-cmanp"), random_task(nc=6)
    mask = torch.ones(2, 3, dtype=torch.bool)
    mask[0] = False
    state = model.update(None, task.xc[:, :3], task.yc[:, :3], mask)
    state = model.update(state, task.xc[:, 3:], task.yc[:, 3:])
    alone = model(task.xc[:1, 3:], task.yc[:1, 3:], task.xt[:1])
    assert distance(model.predict(state, task.xt).mean[:1], alone.mean) < 1e-11


@pytest.mark.parametrize("kind", ["mean", "attention"])
def test_locations_of_pseudo_tokens_move_with_the_data(kind):
    pseudo, tokens, x = PseudoTokens(3, 8, kind, dim_x=2), torch.randn(2, 5, 8), torch.randn(2, 5, 2)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    _, locations = pseudo(tokens, x, mask)
    _, moved = pseudo(tokens, x + 4, mask)
    assert locations.shape == (2, 3, 2)
    assert torch.allclose(moved, locations + 4, atol=1e-5)


def test_widths_are_independent():
    """Token width, head width and head count."""
    for dim, heads, width in ((24, 5, 7), (16, 1, 64), (10, 3, 2)):
        attention = MultiHeadAttention(dim, heads, width)
        assert attention(torch.randn(2, 4, dim)).shape == (2, 4, dim)
        assert attention(torch.randn(2, 4, dim), torch.randn(2, 6, dim)).shape == (2, 4, dim)
    values = MultiHeadAttention(12, 2, dim_keys=5, dim_values=3)
    assert values(torch.randn(2, 4, 12), torch.randn(2, 6, 5), torch.randn(2, 6, 3)).shape == (2, 4, 12)


@pytest.mark.parametrize("seeds", [-1, 0, 1.5, True])
def test_invalid_numbers_of_seeds(seeds, unchecked):
    with pytest.raises(InputError, match="seeds must be a whole number of at least 1"):
        PMA(seeds, 8)
