"""Positional encodings: sinusoids, the relative scores built on them, and a SIREN that needs no tuning."""

import copy
import math

import pytest
import torch
from support.helpers import distance
from torch.func import functional_call, stack_module_state, vmap

from fillin.attention import SIREN, LearnedPositions, RelativePosition, Sinusoid, attend


def test_sinusoids_of_vaswani_et_al():
    dim, x = 6, 3.0
    expected = [
        math.sin(x / 10_000 ** (j / dim)) if j % 2 == 0 else math.cos(x / 10_000 ** ((j - 1) / dim)) for j in range(dim)
    ]
    assert torch.allclose(Sinusoid(dim)(torch.tensor([[x]]))[0], torch.tensor(expected), atol=1e-6)


def test_sinusoids_in_n_dimensions():
    """Added: f(x) = f₁(x₁) + f₁(x₂). Concatenated: fewer features for each dimension."""
    x = torch.randn(5, 2)
    f = Sinusoid(8)
    assert torch.allclose(Sinusoid(8, 2)(x), f(x[:, :1]) + f(x[:, 1:]), atol=1e-6)
    half = Sinusoid(4)
    both = torch.cat([half(x[:, :1]), half(x[:, 1:])], -1)
    assert torch.allclose(Sinusoid(8, 2, combine="concat")(x), both, atol=1e-6)


@pytest.mark.parametrize("combine", ["add", "concat"])
@pytest.mark.parametrize("dim_x", [1, 2])
def test_transformer_xl_terms_and_their_fold(combine, dim_x):
    """logit = [(q + u)·k + (q + v)·W r(Δ)]/√d, pair by pair; folded, the same without pairs."""
    h, d, n, m = 2, 4, 5, 6
    score = RelativePosition(h, d, Sinusoid(8, dim_x, base=50.0, combine=combine), 8).double()
    torch.nn.init.normal_(score.u)
    torch.nn.init.normal_(score.v)
    q, k = torch.randn(1, h, n, d).double(), torch.randn(1, h, m, d).double()
    xq, xk = torch.randn(1, n, dim_x).double(), torch.randn(1, m, dim_x).double()
    delta = (xq[:, :, None] - xk[:, None]).movedim(-1, 1)
    logits = score(q, k, delta)
    for head, i, j in ((0, 1, 2), (1, 4, 0)):
        r = score.positions(xq[0, i] - xk[0, j]) @ score.weight[head]
        by_hand = (q[0, head, i] + score.u[head, 0]) @ k[0, head, j] + (q[0, head, i] + score.v[head, 0]) @ r
        assert torch.allclose(logits[0, head, i, j], by_hand / 2)
    query, key = score.fold(q, k, xq, xk)
    assert distance(query @ key.mT, logits) < 1e-12


def test_shaws_positions_are_clipped():
    """A learned vector per displacement, the same for all displacements beyond the clip."""
    table = LearnedPositions(-2, 2, 3)
    score = RelativePosition(1, 4, table, 3, biases=False)
    x = torch.arange(6.0).view(1, 6, 1)
    q = k = v = torch.randn(1, 1, 6, 4)
    _, weights = attend(q, k, v, xq=x, xk=x, score=score, return_weights=True)
    assert weights.shape == (1, 1, 6, 6)
    assert torch.equal(table(torch.tensor([[-5.0]])), table(torch.tensor([[-2.0]])))
    assert not torch.equal(table(torch.tensor([[-1.0]])), table(torch.tensor([[-2.0]])))


OMEGAS = (1.0, 3.0, 10.0, 30.0, 100.0)
FUNCTIONS = {
    "bump": (1, lambda x: torch.exp(-8 * (x[..., 0] - 0.2) ** 2) - 0.5 * x[..., 0]),
    "chirp": (1, lambda x: torch.sin(2 * math.pi * x[..., 0]) + 0.5 * torch.sin(11 * x[..., 0] ** 2 + 1)),
    "ring": (2, lambda x: torch.exp(-(((x.norm(dim=-1) - 0.6) / 0.2) ** 2)) * (1 + 0.5 * x[..., 0])),
}


def held_out_r2(stable: bool, dim_x: int, function) -> torch.Tensor:
    """R² on held-out points of 5 ω × 5 seeds, fitted in parallel: 256 points, 200 steps of Adam at 5e-3."""
    networks, x, held_out = [], [], []
    for omega in OMEGAS:
        for seed in range(5):
            torch.manual_seed(seed)
            x.append(2 * torch.rand(256, dim_x) - 1)
            held_out.append(2 * torch.rand(512, dim_x) - 1)
            networks.append(SIREN(dim_x, 1, hidden=32, layers=3, omega=omega, stable=stable))
    x, held_out = torch.stack(x), torch.stack(held_out)
    parameters, buffers = stack_module_state(networks)
    skeleton = copy.deepcopy(networks[0]).to("meta")
    run = vmap(lambda p, b, at: functional_call(skeleton, (p, b), (at,))[..., 0])
    adam = torch.optim.Adam(parameters.values(), lr=5e-3)
    for _ in range(200):
        adam.zero_grad()
        (run(parameters, buffers, x) - function(x)).square().mean(-1).sum().backward()
        adam.step()
    with torch.no_grad():
        true = function(held_out)
        return 1 - (run(parameters, buffers, held_out) - true).square().mean(-1) / true.var(-1, correction=0)


@pytest.mark.slow
def test_the_stable_siren_needs_no_tuning(capsys):
    """Over ω₀, three functions and five seeds R² varies by at most 0.1, with a median of at least 0.95."""
    results = {}
    for stable in (True, False):
        r2 = torch.cat([held_out_r2(stable, dim_x, function) for dim_x, function in FUNCTIONS.values()])
        results[stable] = (r2.max() - r2.min()).item(), r2.median().item()
    with capsys.disabled():
        text = "\nSIREN R² spread, median: stable {:.3f}, {:.3f}; original {:.3f}, {:.3f}"
        print(text.format(*results[True], *results[False]))
    spread, median = results[True]
    assert spread <= 0.1
    assert median >= 0.95
    assert results[False][0] > spread


def test_weight_decay_does_not_change_a_siren_with_a_band():
    """A SIREN with a band decays to its initial weights; without one every frequency falls."""
    x = torch.linspace(-1, 1, 50)[:, None]
    for band, unchanged in (((0.1, 100.0), True), (None, False)):
        network = SIREN(1, 4, band=band)
        before = network(x).detach()
        optimiser = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.1)
        for _ in range(50):
            optimiser.zero_grad(set_to_none=False)
            (0 * network(x)).sum().backward()
            optimiser.step()
        assert (distance(network(x), before) < 1e-6) == unchanged


def test_a_siren_with_a_band_learns_and_is_restored():
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 200)[:, None]
    target = torch.sin(20 * x) * torch.exp(-3 * x.square())
    network = SIREN(1, 1, band=(0.1, 60.0))
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        (network(x) - target).square().mean().backward()
        optimiser.step()
    assert (network(x) - target).square().mean() < 0.02 * target.square().mean()
    other = SIREN(1, 1, band=(0.1, 60.0))
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(x), network(x))
