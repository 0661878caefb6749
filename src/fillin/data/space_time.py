"""Fields that flow and diffuse on periodic grids, solved exactly in Fourier space.

Every Fourier coefficient f̂(k, t) of the equation of `AdvectionDiffusionKernel` has a closed-form transition, so that
fields at given times have no error of discretisation in time. The kernels "space-time", "gneiting" and
"advection-diffusion" (`fillin.data.kernels`) are the same kind of data at scattered points, with exact predictions.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from fillin.data.task import is_number
from fillin.errors import InputError


class Flow(NamedTuple):
    """Velocity along each axis of space, diffusivity κ, and the time after which a field has faded by 1/e.

    Units are those of the spacing of a grid and of its times.

    >>> Flow((0.5, 0.0), diffusivity=0.01)
    Flow(velocity=(0.5, 0.0), diffusivity=0.01, memory=inf)
    """

    velocity: tuple[float, ...]
    diffusivity: float = 0.0
    memory: float = math.inf


def evolve(
    initial: Float[Tensor, "*space"], times: Sequence[float], flow: Flow, spacing: float = 1.0
) -> Float[Tensor, "t *space"]:
    """Solve ∂f/∂t + v·∇f = κ∇²f − f/memory on a periodic grid, f(0) = `initial`.

    Parameters
    ----------
    initial : Tensor of shape (*space)
        The field at time 0, on a grid of one or more dimensions.
    times : sequence of float
        Times of the solution, in any order; diffusion cannot be undone, so that none is negative.
    flow : Flow
        Velocity, diffusivity and memory.
    spacing : float, default=1.0
        Distance of neighbouring cells along every axis.

    Returns
    -------
    Tensor of shape (t, *space)
        The field at each time, in float64.

    Notes
    -----
    f̂(k, t) = exp(−(i k·v + κ‖k‖² + 1/memory) t) f̂(k, 0). A field without diffusion moves by v·t; where that is no
    multiple of the spacing, the shift is the band-limited (trigonometric) interpolation.

    Examples
    --------
    >>> pulse = torch.zeros(6).index_fill(0, torch.tensor([1]), 1.0)
    >>> evolve(pulse, [0.0, 2.0], Flow((1.0,))).round().abs().int().tolist()
    [[0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]]
    """
    elapsed = _check_times(times).view(-1, *[1] * initial.ndim)
    modes = torch.fft.fftn(initial.double()) * torch.exp(-_decay_rates(tuple(initial.shape), flow, spacing) * elapsed)
    return torch.fft.ifftn(modes, dim=tuple(range(1, initial.ndim + 1))).real


def draw_fields(
    shape: Sequence[int],
    times: Sequence[float],
    flow: Flow,
    random: torch.Generator,
    length: float = 5.0,
    spacing: float = 1.0,
    forced: bool = True,
) -> Float[Tensor, "t *space"]:
    """Draw a random field that flows and diffuses, with standard deviation 1 and covariance exp(−½ r²/length²) at the
    first time.

    Parameters
    ----------
    shape : sequence of int
        Cells along each axis of space; the grid is periodic.
    times : sequence of float
        Increasing times.
    flow : Flow
        Velocity, diffusivity and memory.
    random : torch.Generator
        The source of all random numbers.
    length : float, default=5.0
        Length scale, at least that of one cell: finer fields are not resolved by the grid.
    spacing : float, default=1.0
        Distance of neighbouring cells along every axis.
    forced : bool, default=True
        Renew what diffuses and fades by random forcing, so that every time has the same distribution. False: the field
        of the first time evolves by itself, and gets smoother and weaker.

    Returns
    -------
    Tensor of shape (t, *space)
        The field at each time, in float64.

    Notes
    -----
    The first field has independent Fourier modes of variance S(k) ∝ exp(−½ length² ‖k‖²). Over a time Δ each decays
    and, if forced, is renewed as in an Ornstein–Uhlenbeck process:

        f̂ ← exp(−(i k·v + r) Δ) f̂ + √(1 − exp(−2 r Δ)) ŵ,    r = κ‖k‖² + 1/memory,    var ŵ = S(k)

    The covariance over space and time is then that of `AdvectionDiffusionKernel`, wrapped around the grid.

    Examples
    --------
    >>> random = torch.Generator().manual_seed(0)
    >>> draw_fields((32, 32), [0, 1, 2], Flow((1.0, 0.5), diffusivity=0.2), random).shape
    torch.Size([3, 32, 32])
    """
    steps = _check_times(times).diff()
    if len(steps) and steps.min() <= 0:
        raise InputError(f"draw_fields: times must increase, got {list(times)}; sort them and drop repeated ones")
    rate = _decay_rates(tuple(shape), flow, spacing)
    if not (is_number(length) and length >= spacing):
        raise InputError(
            f"draw_fields: length must be a number of at least the spacing of the grid, {spacing}, got {length!r}; use "
            "a finer grid or longer waves"
        )
    spectrum = torch.exp(-0.5 * length**2 * _wave_numbers(tuple(shape), spacing).square().sum(0))
    amplitude = (spectrum * spectrum.numel() / spectrum.sum()).sqrt()

    def draw_modes() -> Complex[Tensor, "*space"]:
        return amplitude * torch.fft.fftn(torch.randn(tuple(shape), generator=random, dtype=torch.float64))

    modes = [draw_modes()]
    for step in steps:
        moved = modes[-1] * torch.exp(-rate * step)
        renewed = (-torch.expm1(-2 * rate.real * step)).sqrt() * draw_modes() if forced else 0
        modes.append(moved + renewed)
    return torch.fft.ifftn(torch.stack(modes), dim=tuple(range(1, len(shape) + 1))).real


def _wave_numbers(shape: tuple[int, ...], spacing: float) -> Float[Tensor, "d *space"]:
    """Return the wave number k of every Fourier mode, in radians per unit."""
    along = [2 * math.pi * torch.fft.fftfreq(cells, spacing, dtype=torch.float64) for cells in shape]
    return torch.stack(torch.meshgrid(*along, indexing="ij"))


def _decay_rates(shape: tuple[int, ...], flow: Flow, spacing: float) -> Complex[Tensor, "*space"]:
    """Return i k·v + κ‖k‖² + 1/memory of every Fourier mode, after checking the arguments."""
    if not shape or any(type(cells) is not int or cells < 1 for cells in shape):
        raise InputError(f"a grid must have at least one cell along each axis of space, got the shape {shape!r}")
    if not (is_number(spacing) and spacing > 0):
        raise InputError(f"spacing must be a positive number, got {spacing!r}")
    if len(flow.velocity) != len(shape) or not all(is_number(v) for v in flow.velocity):
        raise InputError(f"velocity must be {len(shape)} numbers, one for each axis of space, got {flow.velocity!r}")
    if not (is_number(flow.diffusivity) and flow.diffusivity >= 0):
        raise InputError(f"diffusivity must be a number of at least 0, got {flow.diffusivity!r}")
    if flow.memory != math.inf and not (is_number(flow.memory) and flow.memory > 0):
        raise InputError(
            f"memory must be a positive time, or infinity for a field that does not fade, got {flow.memory!r}"
        )
    waves = _wave_numbers(shape, spacing)
    velocity = torch.tensor(flow.velocity, dtype=torch.float64)
    real = flow.diffusivity * waves.square().sum(0) + 1 / flow.memory
    return torch.complex(real, torch.tensordot(velocity, waves, 1))


def _check_times(times: Sequence[float]) -> Float[Tensor, "t"]:
    if not len(times) or not all(is_number(t) and t >= 0 for t in times):
        raise InputError(f"times must be numbers of at least 0, at least one, got {list(times)}")
    return torch.tensor(list(times), dtype=torch.float64)
