"""Encoder and decoder: order, masks, kept keys and values, and the relative positions of Shaw et al. 2018."""

import math

import pytest
import torch
from support.helpers import distance

from fillin.attention import ClippedPosition, DotProduct, LearnedPositions, attend
from fillin.errors import InputError
from fillin.layers import Decoder, Encoder, MultiHeadAttention

CLIPS = [None, 2]


def positions(b: int, n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float64).view(1, n, 1).expand(b, n, 1)


def scramble(module: torch.nn.Module) -> torch.nn.Module:
    """The module in double precision, with weights large enough that every term matters."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_is_causal(norm, clip):
    decoder = scramble(Decoder(16, 4, 2, norm=norm, clip=clip))
    memory, x = torch.randn(2, 5, 16).double(), torch.randn(2, 6, 16).double()
    other = x.clone()
    other[:, 4:] = other[:, 4:].flip(-1)
    same, changed = (decoder(tokens, memory, positions=positions(2, 6)) for tokens in (x, other))
    assert distance(same[:, :4], changed[:, :4]) < 1e-12
    assert not torch.allclose(same[:, 4:], changed[:, 4:], atol=1e-2)
    flipped = decoder(x, memory.flip(-1), positions=positions(2, 6))
    assert not torch.allclose(flipped, same, atol=1e-3)  # and depends on the encoder


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_is_equivariant_and_masks_tokens(norm):
    encoder, x, order = Encoder(16, 4, 2, norm=norm), torch.randn(2, 6, 16), torch.randperm(6)
    assert distance(encoder(x[:, order]), encoder(x)[:, order]) < 1e-5
    mask = torch.tensor([[True] * 4 + [False] * 2] * 2)
    assert distance(encoder(x, mask)[:, :4], encoder(x[:, :4])) < 1e-5


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_relative_positions_break_the_symmetry_and_not_the_shift(norm):
    """With relative positions an encoder depends on the order of tokens, and not on where they start."""
    encoder, x, x0 = scramble(Encoder(16, 4, 2, norm=norm, clip=2)), torch.randn(2, 6, 16).double(), positions(2, 6)
    out = encoder(x, positions=x0)
    assert distance(encoder(x, positions=x0 + 100), out) < 1e-12
    order = torch.tensor([1, 0, 2, 3, 4, 5])
    assert distance(encoder(x[:, order], positions=x0[:, order]), out[:, order]) < 1e-12
    assert distance(encoder(x[:, order], positions=x0), out[:, order]) > 1e-3


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoding_with_kept_keys_and_values_equals_decoding_all_at_once(norm, clip):
    decoder = scramble(Decoder(16, 4, 2, norm=norm, clip=clip))
    x, memory = torch.randn(3, 5, 16).double(), torch.randn(3, 4, 16).double()
    mask = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    state, steps = decoder.start(memory, mask), []
    for i in range(5):
        out, state = decoder.step(x[:, i : i + 1], state, positions(3, i + 1))
        steps.append(out)
    assert distance(torch.cat(steps, 1), decoder(x, memory, mask, positions=positions(3, 5))) < 1e-12
    assert [kept.k.shape[2] for kept in state.past] == [5, 5]


def naive_shaw(attention: MultiHeadAttention, x: torch.Tensor, clip: int, keys: torch.Tensor) -> torch.Tensor:
    """Equations 3 and 4 of Shaw et al. 2018, pair by pair. Their displacement is j − i, that of the tables i − j."""
    b, n, dim = x.shape
    h, d = attention.heads, attention.head_dim
    (key_table,) = (term.positions.table for term in attention.score.terms if isinstance(term, ClippedPosition))
    q, k, v = (layer(x).view(b, n, h, d).transpose(1, 2) for layer in (attention.to_q, attention.to_k, attention.to_v))
    rows = []
    for task in range(b):
        for i in range(n):
            heads = []
            for head in range(h):
                allowed = [j for j in range(i + 1) if keys[task, j]]
                index = {j: max(-clip, min(clip, i - j)) + clip for j in allowed}
                logits = [q[task, head, i] @ (k[task, head, j] + key_table[index[j]]) / math.sqrt(d) for j in allowed]
                weights = torch.stack(logits).softmax(0)
                values = [v[task, head, j] + attention.relative_values.table[index[j]] for j in allowed]
                heads.append(sum(w * value for w, value in zip(weights, values, strict=True)))
            rows.append(attention.to_out(torch.cat(heads)))
    return torch.stack(rows).view(b, n, dim)


@pytest.mark.parametrize("clip", [1, 3, 20])
def test_shaws_terms_equal_a_double_loop_in_value_and_gradient(clip):
    """Learned clipped keys and values, causal, with a padded key, and sequences longer and shorter than the clip."""
    score = DotProduct() + ClippedPosition(clip, 4)
    attention = scramble(MultiHeadAttention(8, 2, 4, score=score, relative_values=LearnedPositions(-clip, clip, 4)))
    x, keys = torch.randn(2, 6, 8).double().requires_grad_(), torch.ones(2, 6, dtype=torch.bool)
    keys[1, 2] = False
    learned = [x, *attention.parameters()]
    out = attention(x, xq=positions(2, 6), mask=keys[:, None, None], causal=True)
    expected = naive_shaw(attention, x, clip, keys)
    assert distance(out, expected) < 1e-12
    upstream = torch.randn_like(out)
    for got, want in zip(
        torch.autograd.grad((out * upstream).sum(), learned),
        torch.autograd.grad((expected * upstream).sum(), learned),
        strict=True,
    ):
        assert want.abs().max() > 1e-6
        assert distance(got, want) < 1e-12


@pytest.mark.parametrize("backend", ["fused", "streamed", "auto"])
def test_clipped_positions_on_every_back_end(backend):
    """The reference in value and gradient; positions may differ between the sequences of a batch."""
    score = (DotProduct() + ClippedPosition(2, 4)).double()
    torch.nn.init.normal_(score.terms[1].positions.table)
    q, k, v = (torch.randn(2, 3, 5, 4).double().requires_grad_() for _ in range(3))
    x = torch.stack([torch.arange(5.0), torch.tensor([0.0, 0.0, 1.0, 4.0, 9.0])])[..., None].double()
    learned, results = [q, k, v, score.terms[1].positions.table], []
    for name in ("reference", backend):
        out = attend(q, k, v, xq=x, xk=x, score=score, backend=name)
        results.append([out, *torch.autograd.grad((out * torch.linspace(-1, 1, 4).double()).sum(), learned)])
    assert all(distance(got, want) < 1e-12 for want, got in zip(*results, strict=True))


def test_an_average_of_learned_positions_is_a_sum_over_pairs():
    table = LearnedPositions(-1, 2, 3).double()
    weights, delta = torch.rand(2, 4, 5, 6).double(), 3 * torch.randn(1, 1, 5, 6).double()
    expected = torch.einsum("bhnm,nmd->bhnd", weights, table(delta[0, 0, ..., None]))
    assert distance(table.average(weights, delta), expected) < 1e-12


def test_bad_relative_positions(unchecked):
    x, table = torch.randn(1, 4, 8), LearnedPositions(-2, 2, 4)
    with pytest.raises(InputError, match="relative_values: queries and keys must have locations; pass xq and xk"):
        MultiHeadAttention(8, 2, 4, relative_values=table)(x)
    with pytest.raises(InputError, match="offsets and relative_values cannot be combined"):
        MultiHeadAttention(8, 2, 4, relative_values=table, offsets=1)
    q = torch.randn(1, 2, 4, 4)
    with pytest.raises(InputError, match="one column, got 2 columns"):
        attend(q, q, q, xq=torch.rand(1, 4, 2), xk=torch.rand(1, 4, 2), score=ClippedPosition(2, 4))
    with pytest.raises(InputError, match="low must not exceed high, got 2 and -2"):
        LearnedPositions(2, -2, 4)
    with pytest.raises(InputError, match="does not return weights; use backend='auto'"):
        MultiHeadAttention(8, 2, 4, relative_values=table, backend="fused")(x, xq=torch.rand(1, 4, 1))
