"""Number of pairs from which the kernel is the fastest back end: the threshold of `backend="auto"`.

Forward + backward of self-attention over n points, for growing n, against every other back end that fits, with windows
and without, in one and two dimensions. The others read F(Δ) from a table where "auto" would have them do so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fillin.attention import BACKENDS, MLP, RBF, DotProduct, Score
from fillin.attention.dispatch import tabulate_terms
from fillin.attention.problem import AttentionProblem
from fillin.measure import (
    HEADS,
    NATIVE,
    AttentionInputs,
    Workload,
    ball_radius,
    fastest_times,
    sample_locations,
    span_of_radius,
)
from fillin.runtime import Tick
from fillin_studies.bench.span import SpanPlan

_MAX_BYTES = 2e9  # of a candidate
_BYTES_A_PAIR = 4 * 4  # bytes a number, times the copies that a back end which stores pairs holds


@dataclass(frozen=True)
class CrossoverRow:
    """One kind of problem. `milliseconds` are per size and back end; `pairs` (b · h · n · m) is the least number from
    which on the kernel is the fastest, None where it never is."""

    dim: int
    span: float | None
    score: str
    points: list[int]
    milliseconds: list[dict[str, float]]
    pairs: int | None


def list_problems() -> list[tuple[int, float | None, str]]:
    """Return (dimensions, window, score) of every kind of problem."""
    kinds: list[tuple[float | None, str]] = [(0.05, "dot product"), (0.2, "dot product"), (None, "rbf"), (None, "mlp")]
    return [(dim, share, score) for dim in (1, 2) for share, score in kinds]


def make_seeded_score(name: str, dim: int, seed: int = 0) -> Score:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        displacement = {"rbf": RBF, "mlp": MLP}.get(name)
        return DotProduct() if displacement is None else DotProduct() + displacement(HEADS, dim)


def make_candidates(dim: int, share: float | None, score_name: str, points: int, seed: int = 0) -> dict[str, Workload]:
    """Return the kernel and every other back end whose pairs take no gigabytes."""
    inputs = AttentionInputs(sample_locations("scattered", dim, points, seed), seed)
    score = make_seeded_score(score_name, dim, seed)
    span = None if share is None else span_of_radius(ball_radius(share, dim), dim)
    problem = AttentionProblem(inputs.q, inputs.k, inputs.v, inputs.x, inputs.x, score, span)
    learned = [score] if span is None else [score, span]
    workloads = {
        NATIVE: inputs.attend(NATIVE, span, score),
        "streamed": inputs.run(lambda: BACKENDS["streamed"].run(tabulate_terms(problem)).out, *learned),
    }
    if _BYTES_A_PAIR * tabulate_terms(problem).n_stored <= _MAX_BYTES:
        workloads["reference"] = inputs.run(lambda: BACKENDS["reference"].run(tabulate_terms(problem)).out, *learned)
    if _BYTES_A_PAIR * problem.n_stored <= _MAX_BYTES:
        workloads["fused"] = inputs.run(lambda: BACKENDS["fused"].run(problem).out, *learned)
    return workloads


def measure_crossover(plan: SpanPlan, seed: int = 0, tick: Tick = lambda: None) -> list[CrossoverRow]:
    """Measure every kind of problem at every size; ticks once a size."""
    rows = []
    for problem in list_problems():
        times = []
        for points in plan.crossover:
            workloads = make_candidates(*problem, points, seed)
            for run in workloads.values():
                run()  # warm up
            seconds = fastest_times(workloads, plan.rounds, turn=plan.turn)
            times.append({name: 1e3 * s for name, s in seconds.items()})
            tick()
        rows.append(CrossoverRow(*problem, list(plan.crossover), times, find_crossover(plan.crossover, times)))
    return rows


def find_crossover(points: Sequence[int], times: Sequence[dict[str, float]]) -> int | None:
    """Return the least h · n² from which on the kernel is the fastest at every size.

    >>> find_crossover([10, 20], [{"native": 2.0, "fused": 1.0}, {"native": 2.0, "fused": 3.0}])
    1600
    """
    least = None
    for n, milliseconds in zip(reversed(points), reversed(times), strict=True):
        if min(milliseconds, key=milliseconds.__getitem__) != NATIVE:
            break
        least = HEADS * n * n
    return least
