"""From how many pairs on the kernel is the fastest: what `backend="auto"` goes by.

Forward + backward of n points attending to one another, n growing, against every other back end that fits, with
windows and without, in one and two dimensions. The others read F(Δ) from a table where "auto" would have them do so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fillin.attention import MLP, RBF, DotProduct, Score
from fillin.attention.backends import fused, reference, streamed
from fillin.attention.problem import Problem
from fillin.attention.tabulate import tabulated
from fillin.evaluate.span_cost import HEADS, NATIVE, AttentionInputs, ball_radius, sample_locations, span_of_radius
from fillin.measure import Run, Tick, fastest
from fillin_studies.bench.plan import Plan

_BYTES = 2e9  # what a candidate may need
_COPIES = 4 * 4  # bytes a number, and how often a back end that stores pairs has it


@dataclass(frozen=True)
class Crossing:
    """One kind of problem. `milliseconds` are per size and back end; `pairs` (b · h · n · m) is the least number from
    which the kernel stays the fastest, None where it never is."""

    dim: int
    span: float | None
    score: str
    points: list[int]
    milliseconds: list[dict[str, float]]
    pairs: int | None


def kinds() -> list[tuple[int, float | None, str]]:
    """(dimensions, window, score)"""
    each: list[tuple[float | None, str]] = [(0.05, "dot product"), (0.2, "dot product"), (None, "rbf"), (None, "mlp")]
    return [(dim, share, score) for dim in (1, 2) for share, score in each]


def make_score(name: str, dim: int, seed: int = 0) -> Score:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        extra = {"rbf": RBF, "mlp": MLP}.get(name)
        return DotProduct() if extra is None else DotProduct() + extra(HEADS, dim)


def candidates(dim: int, share: float | None, score: str, points: int, seed: int = 0) -> dict[str, Run]:
    """The kernel and every other back end whose pairs are not gigabytes."""
    data = AttentionInputs(sample_locations("scattered", dim, points, seed), seed)
    made, span = make_score(score, dim, seed), None if share is None else span_of_radius(ball_radius(share, dim), dim)
    problem = Problem(data.q, data.k, data.v, data.x, data.x, made, span)
    learned = [made] if span is None else [made, span]
    runs = {
        NATIVE: data.attend(NATIVE, span, made),
        "streamed": data.run(lambda: streamed.run(tabulated(problem)).out, *learned),
    }
    if _COPIES * tabulated(problem).held <= _BYTES:
        runs["reference"] = data.run(lambda: reference.run(tabulated(problem)).out, *learned)
    if _COPIES * problem.held <= _BYTES:
        runs["fused"] = data.run(lambda: fused.run(problem).out, *learned)
    return runs


def measure_crossover(plan: Plan, seed: int = 0, tick: Tick = lambda: None) -> list[Crossing]:
    """Every kind at every size; ticks once a size."""
    found = []
    for kind in kinds():
        times = []
        for points in plan.crossover:
            runs = candidates(*kind, points, seed)
            for run in runs.values():
                run()  # warm
            times.append({name: 1e3 * s for name, s in fastest(runs, plan.rounds, turn=plan.turn).items()})
            tick()
        found.append(replace(Crossing(*kind, list(plan.crossover), times, None), pairs=crossing(plan.crossover, times)))
    return found


def crossing(points: Sequence[int], times: Sequence[dict[str, float]]) -> int | None:
    """The least h · n² measured from which on the kernel is the fastest at every size.

    >>> crossing([10, 20], [{"native": 2.0, "fused": 1.0}, {"native": 2.0, "fused": 3.0}])
    1600
    """
    least = None
    for n, took in zip(reversed(points), reversed(times), strict=True):
        if min(took, key=took.__getitem__) != NATIVE:
            break
        least = HEADS * n * n
    return least


def ticks_of(plan: Plan) -> int:
    return len(kinds()) * len(plan.crossover)
