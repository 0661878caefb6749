"""Muon: its steps are orthogonal and of the size of Adam's, and parameters other than matrices follow AdamW."""

import pytest
import torch
from torch import nn

from fillin.train.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 16, 48), (2, 48, 16)])
def test_singular_values_become_one_and_singular_vectors_are_kept(shape):
    m = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    orthogonalised = orthogonal(m)
    u, _, v = torch.linalg.svd(m, full_matrices=False)
    assert torch.linalg.svdvals(orthogonalised).sub(0.95).abs().max() < 0.3
    aligned = (u.mT @ orthogonalised @ v.mT).diagonal(dim1=-2, dim2=-1)
    assert (aligned.square().sum() / orthogonalised.square().sum()).item() == pytest.approx(1, abs=1e-9)


def test_stacked_matrices_are_independent():
    m = torch.randn(4, 16, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(orthogonal(m)[2], orthogonal(m[2:3])[0])


def test_other_parameters_follow_adamw():
    torch.manual_seed(0)
    muon_model, adamw_model = (nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)) for _ in range(2))
    adamw_model.load_state_dict(muon_model.state_dict())
    vectors = [p for p in adamw_model.parameters() if p.ndim != 2 or min(p.shape) < 16]
    optimisers = (
        Muon(muon_model.parameters(), 1e-2, 0.1),
        torch.optim.AdamW(vectors, 1e-2, weight_decay=0.1, fused=True),
    )
    for _ in range(3):
        for model, optimiser in zip((muon_model, adamw_model), optimisers, strict=True):
            optimiser.zero_grad()
            for number, p in enumerate(model.parameters()):
                p.grad = torch.full_like(p, 0.1 * (number + 1))
            optimiser.step()
    for (name, ours), theirs in zip(muon_model.named_parameters(), adamw_model.parameters(), strict=True):
        assert torch.equal(ours, theirs) == (name != "0.weight"), name


def test_the_update_of_a_matrix_is_of_the_size_of_the_rate():
    """The RMS update of an entry is 0.2 · rate, like Adam's, after weight decay."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 128, bias=False)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.randn_like(layer.weight)
    Muon(layer.parameters(), 1e-2, weight_decay=0.5).step()
    update = layer.weight.detach() - before * (1 - 1e-2 * 0.5)
    assert 0.15e-2 < update.square().mean().sqrt() < 0.25e-2


def test_a_parameter_without_gradient_is_unchanged():
    layer = nn.Linear(16, 16)
    before = layer.weight.detach().clone()
    layer.bias.grad = torch.ones_like(layer.bias)
    Muon(layer.parameters(), 1e-2).step()
    assert torch.equal(layer.weight, before)
