"""Muon: its steps are orthogonal, of the size of Adam's, and what is no matrix moves as AdamW moves it."""

import pytest
import torch
from torch import nn

from fillin.train.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 16, 48), (2, 48, 16)])
def test_singular_values_come_to_one_and_directions_stay(shape):
    m = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = orthogonal(m)
    u, _, v = torch.linalg.svd(m, full_matrices=False)
    assert torch.linalg.svdvals(got).sub(0.95).abs().max() < 0.3
    aligned = (u.mT @ got @ v.mT).diagonal(dim1=-2, dim2=-1)
    assert (aligned.square().sum() / got.square().sum()).item() == pytest.approx(1, abs=1e-9)


def test_matrices_of_one_shape_do_not_mix():
    m = torch.randn(4, 16, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(orthogonal(m)[2], orthogonal(m[2:3])[0])


def test_what_is_no_matrix_moves_as_in_adamw():
    torch.manual_seed(0)
    ours, theirs = (nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    thin = [p for p in theirs.parameters() if p.ndim != 2 or min(p.shape) < 16]
    steps = Muon(ours.parameters(), 1e-2, 0.1), torch.optim.AdamW(thin, 1e-2, weight_decay=0.1, fused=True)
    for _ in range(3):
        for model, optimiser in zip((ours, theirs), steps, strict=True):
            optimiser.zero_grad()
            for number, p in enumerate(model.parameters()):
                p.grad = torch.full_like(p, 0.1 * (number + 1))
            optimiser.step()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other) == (name != "0.weight"), name


def test_a_matrix_moves_by_about_the_rate():
    """Each entry by 0.2 · rate in the mean square, like Adam; decay shrinks it first."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 128, bias=False)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.randn_like(layer.weight)
    Muon(layer.parameters(), 1e-2, weight_decay=0.5).step()
    moved = layer.weight.detach() - before * (1 - 1e-2 * 0.5)
    assert 0.15e-2 < moved.square().mean().sqrt() < 0.25e-2


def test_one_that_got_no_gradient_stays():
    layer = nn.Linear(16, 16)
    before = layer.weight.detach().clone()
    layer.bias.grad = torch.ones_like(layer.bias)
    Muon(layer.parameters(), 1e-2).step()
    assert torch.equal(layer.weight, before)
