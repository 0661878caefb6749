"""Span tool: points in the plane, an attention window around each, and the cost of attention with and without it.

Costs are those of `fillin bench span`: forward and backward, 4 heads of dimension 16, float32.
"""

import math
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from fillin.errors import InputError
from fillin.play import limits
from fillin.play.job_queue import Deadline
from fillin.play.limits import Seed, StrictRequest

if TYPE_CHECKING:
    from torch import Tensor

    from fillin.measure import Cost, Workload

router = APIRouter(prefix="/api/span", tags=["span"])
_SMALL_POINTS = 2_000  # of the run from which larger costs are extrapolated
_LEARNING_STEPS, _LEARNING_RATE = 40, 0.12
_MAX_LEARNING_POINTS = 4_000
Points = Annotated[int, Field(ge=2, le=limits.MAX_SPAN_POINTS)]


class SpanRequest(StrictRequest):
    """Number of points in the unit square, and the share of its area that a window covers."""

    points: Points = 4_000
    share: Annotated[float, Field(ge=0.0005, le=0.5, allow_inf_nan=False)] = 0.02
    seed: Seed = 0


class SpanLearningRequest(StrictRequest):
    """Number of points, waves of the surface across the square, and noise of the half that is observed."""

    points: Points = 2_000
    waves: Annotated[float, Field(ge=0.25, le=8, allow_inf_nan=False)] = 2.0
    noise: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 0.5
    seed: Seed = 0


class LocationsResponse(BaseModel):
    """Coordinates of the points."""

    x: list[float]
    y: list[float]


class CostResponse(BaseModel):
    """Cost of one forward and backward pass; `measured` is false if it is extrapolated from a smaller run."""

    name: str
    milliseconds: float
    megabytes: float | None
    measured: bool
    pairs: int
    description: str


class SpanResponse(BaseModel):
    """Radius at which the window ends, its width σ, and the fraction of all pairs that are inside a window."""

    radius: float
    sigma: float
    fraction_inside: float
    costs: list[CostResponse]
    machine: str


class SpanLearningResponse(BaseModel):
    """Radius of the window and mean squared error at each gradient step."""

    radius: list[float]
    error: list[float]


_small_costs: "dict[tuple[str, int], Cost]" = {}  # measured at the first request that needs them


@router.get("/points")
async def points(points: Points = 4_000, seed: Seed = 0) -> LocationsResponse:
    """Return the locations of the points."""
    x, y = _locations(points, seed)[0].T.double()
    return LocationsResponse(x=[round(v, 4) for v in x.tolist()], y=[round(v, 4) for v in y.tolist()])


@router.post("")
async def measure(span: SpanRequest, request: Request) -> SpanResponse:
    """Measure the cost of attention with this window and without."""
    queue = request.app.state.queues.background
    return await queue.run(lambda deadline: _measure(span, deadline), request.is_disconnected)


@router.post("/learn")
async def learn(learning: SpanLearningRequest, request: Request) -> SpanLearningResponse:
    """Learn the width of a window: the average of noisy points inside it predicts the other half of the points."""
    queue = request.app.state.queues.background
    return await queue.run(lambda deadline: _learn(learning, deadline), request.is_disconnected)


def _locations(points: int, seed: int = 0) -> "Tensor":
    from fillin.measure import sample_locations

    return sample_locations("scattered", 2, points, seed)


def _candidates(points: int, share: float, seed: int = 0) -> "dict[str, Workload]":
    """Forward and backward passes with the window in the kernel, with the window as a bias, and without it."""
    from fillin.measure import BIAS, FUSED, NATIVE, AttentionInputs, ball_radius, span_of_radius

    inputs, window = AttentionInputs(_locations(points, seed), seed), span_of_radius(ball_radius(share, 2), 2)
    return {NATIVE: inputs.attend("native", window), BIAS: inputs.bias(window), FUSED: inputs.fused()}


def _measure(span: SpanRequest, deadline: Deadline) -> SpanResponse:
    from fillin.attention import kernel
    from fillin.measure import BIAS, FUSED, NATIVE, THRESHOLD, ball_radius, fraction_inside, measure_costs

    if not kernel.is_available():
        raise InputError(
            "the C++ kernel is missing: fillin was installed without a compiler; install one, then reinstall fillin"
        )
    radius, all_pairs = ball_radius(span.share, 2), span.points**2
    fraction = fraction_inside(_locations(span.points, span.seed), radius, 1024)
    inside = round(fraction * all_pairs)
    is_small = {
        NATIVE: inside <= limits.MAX_KERNEL_PAIRS,
        BIAS: span.points <= limits.MAX_BIAS_POINTS,
        FUSED: span.points <= limits.MAX_FUSED_POINTS,
    }
    workloads = _candidates(span.points, span.share, span.seed)
    measured = measure_costs({name: workloads[name] for name in workloads if is_small[name]}, rounds=1, tick=deadline)
    responses = []
    for name, pairs, description in (
        (NATIVE, inside, "only the pairs inside the window are computed"),
        (BIAS, all_pairs, "the same window, added to the logits of every pair"),
        (FUSED, all_pairs, "torch's attention, without a window"),
    ):
        cost = measured.get(name) or _extrapolate(name, pairs, deadline)
        responses.append(
            CostResponse(
                name=name, pairs=pairs, description=description, measured=name in measured,
                milliseconds=round(1e3 * cost.seconds, 3),
                megabytes=None if cost.bytes is None else round(cost.bytes / 1e6, 2),
            )
        )  # fmt: skip
    sigma = radius / math.sqrt(-2 * math.log(THRESHOLD))
    return SpanResponse(
        radius=round(radius, 5), sigma=round(sigma, 5), fraction_inside=round(fraction, 6), costs=responses,
        machine="one thread",
    )  # fmt: skip


def _extrapolate(name: str, pairs: int, deadline: Deadline) -> "Cost":
    """Scale a small run up: time with the pairs, memory with the pairs if they are stored, else with the points."""
    from fillin.measure import BIAS, NATIVE, Cost, measure_costs

    share = 0.2 if name == NATIVE else 0.02
    points = limits.MAX_BIAS_POINTS if name == BIAS else _SMALL_POINTS
    if (name, points) not in _small_costs:
        workload = {name: _candidates(points, share)[name]}
        _small_costs[name, points] = measure_costs(workload, rounds=1, tick=deadline)[name]
    small = _small_costs[name, points]
    factor = pairs / round(points**2 * (share if name == NATIVE else 1.0))
    memory_factor = factor if name == BIAS else math.sqrt(factor)
    return Cost(small.seconds * factor, None if small.bytes is None else int(small.bytes * memory_factor))


def _learn(learning: SpanLearningRequest, deadline: Deadline) -> SpanLearningResponse:
    import torch

    from fillin.attention import Span, Uniform, attend

    if learning.points > _MAX_LEARNING_POINTS:
        raise InputError(f"points: a window is learned on at most {_MAX_LEARNING_POINTS:,} points; request fewer")
    x = _locations(learning.points, learning.seed)
    generator = torch.Generator().manual_seed(learning.seed)
    latent = (2 * math.pi * learning.waves * x).sin().prod(-1)
    noisy = latent + learning.noise * torch.randn(latent.shape, generator=generator)
    half = learning.points // 2
    targets, v = latent[:, half:], noisy[:, None, :half, None]
    xk, xq = x[:, :half].contiguous(), x[:, half:].contiguous()
    span = Span(2, 1, init=0.02, covariance="isotropic")
    optimiser = torch.optim.Adam(span.parameters(), lr=_LEARNING_RATE)
    radii, errors = [], []
    for _ in range(_LEARNING_STEPS):
        mean = attend(None, None, v, xq=xq, xk=xk, score=Uniform(), span=span)[:, 0, :, 0]
        error = (mean - targets).square().mean()
        radii.append(round(float(span.reach().detach()[0, 0]), 5))
        errors.append(round(float(error.detach()), 6))
        optimiser.zero_grad()
        error.backward()
        optimiser.step()
        deadline(1)
    return SpanLearningResponse(radius=radii, error=errors)
