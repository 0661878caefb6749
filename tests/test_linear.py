"""Linear layers by oneDNN equal those of PyTorch in value and gradient, and step aside where they must."""

import pytest
import torch
from support.helpers import distance
from torch import nn

from fillin import linear as module
from fillin.attention import displacement
from fillin.attention.displacement import JointMLP
from fillin.linear import MIN_PRODUCTS, LinearLayer, linear, plain_products, prefers_onednn
from fillin.runtime import read_vendor

has_onednn = module._has_onednn()


@pytest.fixture
def onednn(monkeypatch):
    if not has_onednn:
        pytest.skip("PyTorch was built without oneDNN")
    monkeypatch.setattr(module, "_ONEDNN", True)


def count_calls(monkeypatch) -> list[tuple]:
    calls, multiply = [], module._multiply
    monkeypatch.setattr(module, "_multiply", lambda *parts: calls.append(parts) or multiply(*parts))
    return calls


# the last two: a gradient of narrow weights over many rows, and rows in two axes
SHAPES = [((512, 64), 64), ((600, 32), 96), ((300, 96), 48), ((9000, 16), 16), ((4, 300, 64), 64)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("shape", "out"), SHAPES)
def test_values_and_gradients_are_those_of_pytorch(onednn, monkeypatch, shape, out, bias):
    calls = count_calls(monkeypatch)
    torch.manual_seed(0)
    x = torch.randn(*shape, requires_grad=True)
    weight = torch.randn(out, shape[-1], requires_grad=True)
    parts = [x, weight, *([torch.randn(out, requires_grad=True)] if bias else [])]
    results = []
    for function in (linear, nn.functional.linear):
        value = function(*parts)
        results.append([value, *torch.autograd.grad(value.sin().sum(), parts)])
    assert len(calls) >= 2
    for got, expected in zip(*results, strict=True):
        assert distance(got, expected) < 1e-3 * float(expected.detach().abs().max())


def test_an_activation_may_replace_the_output(onednn):
    torch.manual_seed(0)
    network = nn.Sequential(LinearLayer(64, 64), nn.ReLU(inplace=True), LinearLayer(64, 64))
    x = torch.randn(2, 400, 64)
    network(x).square().sum().backward()
    gradients = [p.grad.clone() for p in network.parameters()]
    network.zero_grad()
    with plain_products():
        network(x).square().sum().backward()
    for got, expected in zip(gradients, network.parameters(), strict=True):
        assert distance(got, expected.grad) < 1e-3 * float(expected.grad.abs().max())


@pytest.mark.parametrize("case", ["few", "double", "plain", "compiled", "vmap"])
def test_pytorch_multiplies_where_onednn_would_not_do(onednn, monkeypatch, case):
    calls = count_calls(monkeypatch)
    x, weight = torch.randn(512, 64), torch.randn(64, 64)
    if case == "few":
        x = x[: MIN_PRODUCTS // 64**2 - 1]
    if case == "double":
        x, weight = x.double(), weight.double()
    if case == "compiled":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    if case == "vmap":
        torch.vmap(lambda part: linear(part, weight))(x[None])
    elif case == "plain":
        with plain_products():
            linear(x, weight)
    else:
        linear(x, weight)
    assert not calls


def test_the_gradient_may_be_differentiated_again(onednn):
    x, weight = torch.randn(512, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    second = []
    for function in (linear, nn.functional.linear):
        (first,) = torch.autograd.grad(function(x, weight).pow(3).sum(), x, create_graph=True)
        second.append(torch.autograd.grad(first.square().sum(), weight)[0])
    assert distance(*second) < 1e-3 * float(second[1].abs().max())


def test_the_processor_decides(tmp_path):
    """Nothing is timed, so that equal machines compute equal bytes."""
    described = tmp_path / "cpuinfo"
    described.write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\n")
    assert prefers_onednn(read_vendor(described), "AVX512")
    assert not prefers_onednn(read_vendor(described), "AVX2")
    assert not prefers_onednn("GenuineIntel", "AVX512")
    assert read_vendor(tmp_path / "nothing") is None


@pytest.mark.parametrize("score", [JointMLP(4, 2), displacement.MLP(4, 2)], ids=["joint", "mlp"])
def test_a_network_on_pairs_in_tiles_is_the_same(score, monkeypatch):
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 23, 8, requires_grad=True), torch.randn(2, 4, 19, 8, requires_grad=True)
    delta = torch.randn(2, 2, 23, 19, requires_grad=True)
    inputs = [delta, *score.parameters(), *([q, k] if isinstance(score, JointMLP) else [])]
    results = []
    for least, rows in ((1 << 40, 1), (1, 100)):
        monkeypatch.setattr(displacement, "_MIN_TILED", least)
        monkeypatch.setattr(displacement, "_TILE_ROWS", rows)
        value = score(q, k, delta)
        first = torch.autograd.grad(value.sin().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), inputs[1:], allow_unused=True)
        results.append([value, *first, *(part for part in second if part is not None)])
    for got, expected in zip(*results, strict=True):
        assert distance(got, expected) < 1e-4 * max(1.0, float(expected.detach().abs().max()))
