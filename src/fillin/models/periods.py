"""Periods of the columns of a sheet: candidates of the periodogram compete by their marginal likelihood.

The periodogram of few or unevenly spaced values is often highest at twice a period, or at a part of it. A Gaussian
process with a periodic part weighs the whole shape of a cycle, so the candidates of a column, their halves and doubles
compete under a small set of kernels (Rasmussen & Williams 2006, chapter 5), and the best is refined.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.models.filler import explain_by_waves, periodogram

if TYPE_CHECKING:
    from collections.abc import Callable

    Score = Callable[[Tensor, Tensor], Tensor]  # kernels [c k 7] and periods [c] to ln p(y) [c k]

_PEAKS = 3  # of the periodogram
_MIN_CYCLES = 1.5  # over the width; a slower wave is a trend
_MAX_ROWS = 4096  # of a long record, in which candidates are sought
_MIN_OBSERVED = 8  # of a column, below which no period is sought
_FINE = tuple(step / 96 for step in range(-24, 25))  # cycles around a peak, whose waves are fitted by least squares
_REFINED = ((-0.12, -0.06, -0.03, 0.03, 0.06, 0.12), (-0.02, -0.01, 0.01, 0.02))  # cycles around the best candidate
_KERNELS = tuple(
    (2.0, length, noise, share, cycle, far, 0.0)
    for length, share in ((0.3, 0.6), (3.0, 0.9))
    for noise in (0.05, 0.4)
    for cycle in (0.3, 1.0)
    for far in (2.0, 12.0)
)


@torch.no_grad()
def choose_periods(
    u: Float[Tensor, "c n"],
    y: Float[Tensor, "c n"],
    observed: Bool[Tensor, "c n"],
    period: Float[Tensor, "c"],
    score: "Score",
) -> Float[Tensor, "c"]:
    """Choose the period of each column of standardised values at locations u of width 4, by the evidence that `score`
    returns; `period` is that of the periodogram (0: none). Columns of few values keep it."""
    many = (observed.sum(1) >= _MIN_OBSERVED).nonzero()[:, 0]
    if not len(many) or u.shape[1] < 2 * _MIN_CYCLES:
        return period
    few = torch.linspace(0, u.shape[1] - 1, min(u.shape[1], _MAX_ROWS), device=u.device).round().long()
    phase, values, seen = (u[:, few] + 2) / 4, torch.where(observed, y, 0)[:, few], observed[:, few]
    cycles = find_candidates(phase, values, seen, period)  # [c k]
    kernels = u.new_tensor(_KERNELS).double().expand(len(u), -1, -1)

    def evidence(candidates: Float[Tensor, "c k"], chosen: Float[Tensor, "c m 7"]) -> Float[Tensor, "c k m"]:
        return torch.stack([score(chosen, 4 / part) for part in candidates.double().unbind(1)], 1)

    each = evidence(cycles, kernels)
    best = each.logsumexp(-1).argmax(1, keepdim=True)
    cycles = cycles.gather(1, best)
    within = each.gather(1, best[..., None].expand(-1, -1, each.shape[-1]))[:, 0]
    top = kernels.gather(1, within.topk(2, 1).indices[..., None].expand(-1, -1, 7))
    for steps in _REFINED:
        near = (cycles + cycles.new_tensor((0.0, *steps))).clamp_min(_MIN_CYCLES)
        cycles = near.gather(1, evidence(near, top).logsumexp(-1).argmax(1, keepdim=True))
    return torch.where(observed.sum(1) >= _MIN_OBSERVED, 4 / cycles[:, 0].to(period.dtype), period)


def find_candidates(
    phase: Float[Tensor, "c n"], values: Float[Tensor, "c n"], observed: Bool[Tensor, "c n"], period: Float[Tensor, "c"]
) -> Float[Tensor, "c k"]:
    """Return candidates in cycles over the width: `period`, the highest peaks of the periodogram, and the halves and
    doubles of the first two."""
    fast = (observed.sum(1, keepdim=True) / 2).floor().clamp_min(2)
    grid, power = periodogram(phase, values[..., None], observed[..., None])
    power = torch.where((grid >= _MIN_CYCLES) & (grid <= fast), power[:, 0], -1.0)
    neighbours = torch.nn.functional.max_pool1d(power[:, None], 3, 1, 1)[:, 0]
    peaks = torch.where(power >= neighbours, power, -1.0).topk(min(_PEAKS, len(grid)), 1).indices
    fine = grid.new_tensor(_FINE)
    near = (grid[peaks][..., None] + fine).flatten(1)
    explained = explain_by_waves(phase, values, near, observed).unflatten(1, (peaks.shape[1], -1))
    peaks = near.unflatten(1, (peaks.shape[1], -1)).gather(2, explained.argmax(2, keepdim=True))[..., 0]
    voted = torch.where(period > 0, 4 / period.clamp_min(1e-6), peaks[:, 0])[:, None]
    first = torch.cat([voted, peaks], 1)
    return (
        torch.cat([first, first[:, :2] / 2, first[:, :2] * 2], 1).clamp_min(_MIN_CYCLES).minimum(fast.to(first.dtype))
    )
