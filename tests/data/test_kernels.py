"""Covariances equal their formulas, and hyperparameters fill their ranges."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import distance

from fillin.data import KERNELS, curves
from fillin.data.kernels import LinearKernel, PeriodicKernel, RBFKernel, within

FORMULAS = {  # of Δ [n m dx] and the hyperparameters, at scale 1
    "rbf": lambda d, h: torch.exp(-(d**2).sum(-1) / (2 * h["length"] ** 2)),
    "matern-1/2": lambda d, h: torch.exp(-d.norm(dim=-1) / h["length"]),
    "matern-3/2": lambda d, h: (
        (1 + 3**0.5 * d.norm(dim=-1) / h["length"]) * torch.exp(-(3**0.5) * d.norm(dim=-1) / h["length"])
    ),
    "matern-5/2": lambda d, h: (
        (1 + 5**0.5 * d.norm(dim=-1) / h["length"] + 5 * (d**2).sum(-1) / (3 * h["length"] ** 2))
        * torch.exp(-(5**0.5) * d.norm(dim=-1) / h["length"])
    ),
    "periodic": lambda d, h: torch.exp(-2 * (torch.sin(math.pi * d / h["period"]) ** 2).sum(-1) / h["length"] ** 2),
    "weakly-periodic": lambda d, h: FORMULAS["periodic"](d, h) * torch.exp(-(d**2).sum(-1) / (2 * h["drift"] ** 2)),
    "space-time": lambda d, h: gneiting(d, {**h, "interaction": torch.zeros(())}),
    "gneiting": lambda d, h: gneiting(d, h),
    "advection-diffusion": lambda d, h: advection_diffusion(d, h),
    "rational-quadratic": lambda d, h: (1 + (d**2).sum(-1) / (2 * h["mix"] * h["length"] ** 2)) ** -h["mix"],
}


def gneiting(d, h):
    """Gneiting 2002, equation 14, with a = 1/memory², α = 1, c = 1/(2 length²), γ = 1, times the temporal covariance
    (a u² + 1)^−(1 − β·dims/2) that makes the total power of the first factor 1 (dims ≤ 2)."""
    a, c, beta, dims = h["memory"] ** -2, 0.5 * h["length"] ** -2, h["interaction"], d.shape[-1] - 1
    psi = (a * d[..., 0] ** 2 + 1) ** beta
    equation_14 = psi ** (-dims / 2) * torch.exp(-c * (d[..., 1:] ** 2).sum(-1) / psi)
    return equation_14 * (a * d[..., 0] ** 2 + 1) ** -(1 - beta * dims / 2)


def advection_diffusion(d, h):
    """The inverse Fourier transform of the spectrum at every lag, S(k) exp(−(κ‖k‖² + 1/memory)|u| − i k·v u), as a
    product of sums over wave numbers along each axis of space."""
    lag, velocity = d[..., 0], h["speed"] * torch.stack([h["direction"].cos(), h["direction"].sin()])
    k = torch.linspace(-60, 60, 2001, dtype=torch.float64)
    spectrum = torch.exp(-0.5 * h["length"] ** 2 * k**2)
    value = torch.exp(-lag.abs() / h["memory"])
    for i in range(d.shape[-1] - 1):
        phase = k * (d[..., 1 + i] - velocity[i] * lag)[..., None]
        decay = torch.exp(-h["diffusivity"] * k**2 * lag.abs()[..., None])
        value = value * (spectrum * decay * phase.cos()).sum(-1) / spectrum.sum()
    return value


def points(b: int, n: int, dim_x: int) -> torch.Tensor:
    return 4 * torch.rand(b, n, dim_x, dtype=torch.float64) - 2


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_a_kernel_is_symmetric_positive_definite_and_equals_its_formula(name, dim_x):
    kernel, x = KERNELS[name](), points(4, 20, dim_x)
    theta = kernel.from_uniform(torch.rand(4, kernel.size, dtype=torch.float64))
    gram = kernel(x, x, theta)
    assert distance(gram, gram.mT) < 1e-15
    assert torch.linalg.eigvalsh(gram).min() > -1e-10 * gram.max()
    assert distance(kernel(x, x[:, :7], theta), gram[..., :7]) < 1e-12
    for x_, g, row in zip(x, gram, theta, strict=True):
        hyper = dict(zip(kernel.hyperparameters, row, strict=True))
        delta = x_[:, None] - x_[None]
        expected = 1 + x_ @ x_.T / hyper["length"] ** 2 if name == "linear" else FORMULAS[name](delta, hyper)
        assert distance(g, hyper["scale"] ** 2 * expected) < 1e-10


@pytest.mark.parametrize("dim_x", [1, 3])
def test_sums_and_products_of_kernels(dim_x):
    a, b, c = RBFKernel(), PeriodicKernel(), LinearKernel()
    combined, x = (a + b) * c, points(3, 9, dim_x)
    theta = combined.from_uniform(torch.rand(3, combined.size, dtype=torch.float64))
    theta_a, theta_b, theta_c = theta.split([a.size, b.size, c.size], -1)
    expected = (a(x, x, theta_a) + b(x, x, theta_b)) * c(x, x, theta_c)
    assert distance(combined(x, x, theta), expected) < 1e-12
    parsed = curves("rbf + periodic * linear").function.kernel  # * binds more tightly
    theta_parsed = parsed.from_uniform(torch.rand(3, parsed.size, dtype=torch.float64))
    theta_a, theta_b, theta_c = theta_parsed.split([a.size, b.size, c.size], -1)
    assert distance(parsed(x, x, theta_parsed), a(x, x, theta_a) + b(x, x, theta_b) * c(x, x, theta_c)) < 1e-12


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("logarithmic", [False, True])
def test_hyperparameters_fill_their_ranges(name, logarithmic):
    kernel = KERNELS[name](length=(0.2, 5.0), scale=(0.5, 2.0), logarithmic=logarithmic)
    theta = kernel.from_uniform(torch.rand(4000, kernel.size, dtype=torch.float64))
    for column, hyper in zip(theta.T, kernel.hyperparameters, strict=True):
        low, high = getattr(kernel, hyper)
        assert low <= column.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < column.max() <= high
        middle = math.sqrt(low * high) if logarithmic and hyper not in kernel.uniform else (low + high) / 2
        assert abs((column < middle).double().mean() - 0.5) < 0.04


@given(st.floats(0.01, 10), st.floats(1, 100), st.floats(0, 1), st.booleans())
def test_within_stays_within(low, ratio, u, logarithmic):
    value = within(torch.tensor(u, dtype=torch.float64), (low, low * ratio), logarithmic)
    assert low * (1 - 1e-12) <= value <= low * ratio * (1 + 1e-12)
