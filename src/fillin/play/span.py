"""Span: points in the plane, a window around each, and what attention with it costs, dense and by our kernel.

What is measured is what `fillin bench span` measures: forward + backward, 4 heads of 16, in float32.
"""

import math
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from fillin.errors import InputError
from fillin.play import limits
from fillin.play.job_queue import Deadline
from fillin.play.schema import Asked, Seed

router = APIRouter(prefix="/api/span", tags=["span"])
_BASE = 1_000  # points on which the cost of what is too dear is measured, to be scaled from there
_STEPS, _RATE = 40, 0.12  # of learning a window
_LEARNT = 4_000  # points it is learnt on
_CHEAP: dict[str, tuple[float, int | None, int]] = {}  # what `_once` found
Points = Annotated[int, Field(ge=2, le=limits.SCATTERED)]


class SpanAsked(Asked):
    """So many points in the unit square, and a window around each whose disc is a `share` of the square."""

    points: Points = 4_000
    share: Annotated[float, Field(ge=0.0005, le=0.5, allow_inf_nan=False)] = 0.02
    seed: Seed = 0


class LearnAsked(Asked):
    """So many points, of a surface of so many waves across the square, half of them seen with `noise` added."""

    points: Points = 2_000
    waves: Annotated[float, Field(ge=0.25, le=8, allow_inf_nan=False)] = 2.0
    noise: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 0.5
    seed: Seed = 0


class Places(BaseModel):
    x: list[float]
    y: list[float]


class Cost(BaseModel):
    """Of one forward + backward. `measured` is false where it was not run: then it is scaled up from one that was."""

    name: str
    milliseconds: float
    megabytes: float | None
    measured: bool
    pairs: int
    about: str


class SpanTold(BaseModel):
    """`radius` is where the window ends, σ its width; `inside` is the share of all pairs that are within a window."""

    radius: float
    sigma: float
    inside: float
    costs: list[Cost]
    machine: str


class Learnt(BaseModel):
    """Where the window ends after each step, and the error of what it tells."""

    radius: list[float]
    error: list[float]


@router.get("/points")
async def points(points: Points = 4_000, seed: Seed = 0) -> Places:
    """The places of the points."""
    from fillin.evaluate.span_cost import sample_locations

    x, y = sample_locations("scattered", 2, points, seed)[0].T.double()
    return Places(x=[round(v, 4) for v in x.tolist()], y=[round(v, 4) for v in y.tolist()])


@router.post("")
async def measure(asked: SpanAsked, request: Request) -> SpanTold:
    """What attention costs with this window, and without."""
    return await request.app.state.lanes.slow.run(lambda deadline: _measure(asked, deadline), request.is_disconnected)


@router.post("/learn")
async def learn(asked: LearnAsked, request: Request) -> Learnt:
    """A window that learns its own width: half of the points tell the other half, by an average within it."""
    return await request.app.state.lanes.slow.run(lambda deadline: _learn(asked, deadline), request.is_disconnected)


def _measure(asked: SpanAsked, deadline: Deadline) -> SpanTold:
    from fillin.evaluate.span_cost import (
        BIAS,
        FUSED,
        NATIVE,
        AttentionInputs,
        ball_radius,
        fraction_inside,
        sample_locations,
        span_of_radius,
    )
    from fillin.measure import measure_costs

    _check_kernel()
    x, r = sample_locations("scattered", 2, asked.points, asked.seed), ball_radius(asked.share, 2)
    span, share, every = span_of_radius(r, 2), fraction_inside(x, r, 1024), asked.points**2
    within = round(share * every)
    data = AttentionInputs(x, asked.seed)
    small = {NATIVE: within <= limits.PAIRS, BIAS: asked.points <= limits.DENSE, FUSED: asked.points <= limits.FUSED}
    runs = {NATIVE: data.attend("native", span), BIAS: data.bias(span), FUSED: data.fused()}
    about = {
        NATIVE: (within, "only the pairs inside the window are computed"),
        BIAS: (every, "the same window, added to the logits of every pair"),
        FUSED: (every, "torch's own attention, without any window"),
    }
    found = measure_costs({name: run for name, run in runs.items() if small[name]}, rounds=1, tick=deadline)
    told = []
    for name, (pairs, words) in about.items():
        if name in found:
            seconds, size = found[name].seconds, found[name].bytes
        else:
            once = _once(name, deadline)
            times = pairs / once[2]
            seconds, size = once[0] * times, None if once[1] is None else int(once[1] * _growth(name, times))
        told.append(
            Cost(
                name=name,
                milliseconds=round(1e3 * seconds, 3),
                megabytes=None if size is None else round(size / 1e6, 2),
                measured=name in found,
                pairs=pairs,
                about=words,
            )
        )
    sigma = r / math.sqrt(-2 * math.log(span.threshold))
    return SpanTold(radius=round(r, 5), sigma=round(sigma, 5), inside=round(share, 6), costs=told, machine="one thread")


def _growth(name: str, times: float) -> float:
    """What stores every pair needs memory as pairs grow; torch's own attention and the kernel as points do."""
    from fillin.evaluate.span_cost import BIAS

    return times if name == BIAS else math.sqrt(times)


def _once(name: str, deadline: Deadline) -> tuple[float, int | None, int]:
    """Seconds, bytes and pairs of a candidate at a size that is cheap; measured when it is first asked for."""
    if name not in _CHEAP:
        _CHEAP[name] = _cheaply(name, deadline)
    return _CHEAP[name]


def _cheaply(name: str, deadline: Deadline) -> tuple[float, int | None, int]:
    from fillin.evaluate.span_cost import (
        BIAS,
        FUSED,
        NATIVE,
        AttentionInputs,
        ball_radius,
        sample_locations,
        span_of_radius,
    )
    from fillin.measure import measure_costs

    share = 0.2 if name == NATIVE else 0.02
    number = limits.DENSE if name == BIAS else 2 * _BASE
    data, span = AttentionInputs(sample_locations("scattered", 2, number)), span_of_radius(ball_radius(share, 2), 2)
    run = {NATIVE: lambda: data.attend("native", span), BIAS: lambda: data.bias(span), FUSED: data.fused}[name]()
    found = measure_costs({name: run}, rounds=1, tick=deadline)[name]
    return found.seconds, found.bytes, round(number**2 * (share if name == NATIVE else 1.0))


def _learn(asked: LearnAsked, deadline: Deadline) -> Learnt:
    import torch

    from fillin.attention import Span, Uniform, attend
    from fillin.evaluate.span_cost import sample_locations

    if asked.points > _LEARNT:
        raise InputError(f"points: a window is learnt on at most {_LEARNT:,} here; ask for fewer")
    x = sample_locations("scattered", 2, asked.points, asked.seed)
    random = torch.Generator().manual_seed(asked.seed)
    truth = (2 * math.pi * asked.waves * x).sin().prod(-1)
    seen = truth + asked.noise * torch.randn(truth.shape, generator=random)
    half = asked.points // 2
    told, v = truth[:, half:], seen[:, None, :half, None]
    xk, xq = x[:, :half].contiguous(), x[:, half:].contiguous()
    span = Span(2, 1, init=0.02, covariance="isotropic")
    optimiser = torch.optim.Adam(span.parameters(), lr=_RATE)
    radii, errors = [], []
    for _ in range(_STEPS):
        found = attend(None, None, v, xq=xq, xk=xk, score=Uniform(), span=span)[:, 0, :, 0]
        error = (found - told).square().mean()
        radii.append(round(float(span.reach().detach()[0, 0]), 5))
        errors.append(round(float(error.detach()), 6))
        optimiser.zero_grad()
        error.backward()
        optimiser.step()
        deadline(1)
    return Learnt(radius=radii, error=errors)


def _check_kernel() -> None:
    from fillin.attention import kernel

    if not kernel.is_available():
        raise InputError(
            "fillin was installed without a C++ compiler, so there is no kernel; install one, and fillin anew"
        )
