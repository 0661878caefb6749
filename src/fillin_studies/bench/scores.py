"""What each score of a translation-equivariant transformer costs, against a transformer that uses none."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fillin.attention import SCORES, Score, attend
from fillin.attention.backends import fused
from fillin.attention.problem import Problem
from fillin.attention.tabulate import tabulated
from fillin.measure import Tick
from fillin.models import Process
from fillin_studies.bench.models import REFERENCE, Size, compare, make, megabytes

SLOW = "joint"  # an MLP on every pair: longer than all the others together
AT = Size(256, 512, batch=2, rounds=3)


@dataclass(frozen=True)
class ScoreRow:
    """`how` it is computed: "folded" into queries and keys, read from a "table", or on every one of the "pairs".

    `error` is ‖auto − reference‖/‖reference‖ of attention's output, where the score is read from a table.
    """

    score: str
    how: str
    milliseconds: float
    to_reference: float
    megabytes: float | None
    memory_to_reference: float | None
    error: float | None


def names(everything: bool = False) -> list[str]:
    return [name for name in SCORES if everything or name != SLOW]


def measure_scores(
    scores: Sequence[str],
    at: Size = AT,
    *,
    size: str = "base",
    seed: int = 0,
    tick: Tick = lambda: None,
) -> list[ScoreRow]:
    """te-tnp with each score, and tnp-d as the first row."""
    models = {REFERENCE: make(REFERENCE, seed, size=size)}
    models |= {f"te-tnp {name}": make("te-tnp", seed, size=size, score=name) for name in scores}
    found = compare(models, at, seed=seed, tick=tick)
    base = found[REFERENCE]
    rows = []
    for name, model in models.items():
        how, error = _accuracy(model, at, seed)
        cost = found[name]
        more = None if cost.bytes is None or not base.bytes else cost.bytes / base.bytes
        row = ScoreRow(
            name.removeprefix("te-tnp "), how, 1e3 * cost.seconds, cost.seconds / base.seconds,
            megabytes(cost.bytes), more, error,
        )  # fmt: skip
        rows.append(row)
    return rows


@torch.no_grad()
def _accuracy(model: Process, at: Size, seed: int) -> tuple[str, float | None]:
    """How the model's first layer is computed at this size and, where by a table, how far off that is."""
    attention = model.blocks[0].attention  # type: ignore[index, union-attr]
    score: Score = attention.score  # type: ignore[assignment]
    heads, width, n = attention.heads, attention.head_dim, at.context + at.targets
    random = torch.Generator().manual_seed(seed)

    def normal(points: int) -> Tensor:
        return torch.randn(at.batch, heads, points, width, generator=random)  # type: ignore[arg-type]

    q, k, v = normal(n), normal(at.context), normal(at.context)
    xq = 4 * torch.rand(at.batch, n, 1, generator=random) - 2
    xk = xq[:, : at.context]
    problem = Problem(q, k, v, xq, xk, score)
    if None not in fused.folds(problem):
        return "folded", None
    if tabulated(problem) is problem:
        return "pairs", None
    exact = attend(q, k, v, xq=xq, xk=xk, score=score, backend="reference")
    fast = attend(q, k, v, xq=xq, xk=xk, score=score)
    return "table", float((fast - exact).norm() / exact.norm())
