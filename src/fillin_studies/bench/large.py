"""A te-tnp with a learned span where points are many: a training step, and a fill of more places than that."""

from dataclasses import dataclass

import torch

from fillin.evaluate.span_cost import neighbour_radius, sample_locations, span_of_radius
from fillin.measure import Cost, Tick, costs, ticks
from fillin.models import create
from fillin_studies.bench.plan import Plan
from fillin_studies.bench.span import Figure, figure


@dataclass(frozen=True)
class Large:
    """`step`: forward + backward on `context` points and a tenth as many targets. `fill`: a prediction at `targets`."""

    dim: int
    context: int
    targets: int
    neighbours: int
    step: Figure
    fill: Figure


def measure_large(plan: Plan, seed: int = 0, tick: Tick = lambda: None) -> list[Large]:
    return [_large(dim, plan, seed, tick) for dim in (1, 2)]


def _large(dim: int, plan: Plan, seed: int, tick: Tick) -> Large:
    context, targets = plan.large
    random = torch.Generator().manual_seed(seed)
    xc, xt = sample_locations("scattered", dim, context, seed), torch.rand(1, targets, dim, generator=random)
    yc = torch.sin(9 * xc.sum(-1, keepdim=True)) + 0.1 * torch.randn(1, context, 1, generator=random)
    sigma = float(span_of_radius(neighbour_radius(xc, plan.neighbours), dim).log_sigma.detach().exp().mean())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = create("te-tnp", dim_x=dim, size="small", span=sigma)
    few = xt[:, : context // 10]

    def step() -> object:
        loss = -model(xc, yc, few).log_prob(yc[:, : few.shape[1]]).mean()
        return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)

    @torch.no_grad()
    def fill() -> object:
        return model(xc, yc, xt).mean

    found: dict[str, Cost] = costs({"step": step, "fill": fill}, plan.rounds, tick)
    return Large(dim, context, targets, plan.neighbours, figure(found["step"]), figure(found["fill"]))


def ticks_of(plan: Plan) -> int:
    return 2 * ticks(2, plan.rounds)
