"""The choice of the kernels of Gaussian processes of columns, by their evidence.

Kernels compete on a grid that is refined around the best (`choose_kernels`): of few observations on all of them, of
many on subsets. Those of a long record compete with kernels that its parts choose (`choose_for_part`).
"""

import math
from dataclasses import replace
from itertools import product

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from fillin.models.covariance import KINDS, NO_TREND, SUBTRACTED, Trend, evaluate_kernels
from fillin.models.guides import take_rows
from fillin.models.periods import choose_periods
from fillin.models.processes import FEW_KERNELS, KERNELS, Kernels, Processes, flatten_columns, take_cells

SUBSET = 48  # rows that kernels compete on
LARGE_SUBSET = 320  # rows that the best of them compete on again
_NOISES = (0.01, 0.1, 0.6)  # σ, relative to the signal
_SMALL_NOISES = (3e-5, 1e-3)  # of smooth kernels as well
_REFINED = 2  # of the best kernels, per round
_STEPS = tuple((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)  # in length and noise
_ROUNDS = (0.5, 0.25)  # steps of the grid, relative to the first
_LENGTH_STEP, _NOISE_STEP = 2.0, 6.0
MAX_UNEXPLAINED = 0.9  # share of the variance that a regression on the other columns may leave, to be used
_SUMMED = 3  # of the best kernels, to which a second part is added: (ρ, c, λ)
_LONG_SCALES = tuple((share, 1e3, far) for share in (0.4, 0.8) for far in (0.3, 1.0, 3.0))  # a wave this wide is 1
_WAVES = tuple((share, cycle, far) for share in (0.3, 0.7, 0.95) for cycle in (0.25, 0.7, 1.8) for far in (1.5, 12.0))
_PERIODIC = tuple(
    (2.0, length, noise, *wave) for length in (0.4, 3.0) for noise in (0.03, 0.3) for wave in _WAVES if wave[0] != 0.7
)
_LOCAL_MARGIN = 3.0  # nats by which kernels of a part must be better than those of the whole record
_BLOCKS = (0.5, 0.1, 0.9)  # of a record, where kernels compete
_LONG = 1024


@torch.no_grad()
def choose_processes(
    u: Float[Tensor, "b n dx"],
    y: Float[Tensor, "b n d"],
    observed: Bool[Tensor, "b n d"],
    error: Float[Tensor, "b n d"] | None,
    across: Float[Tensor, "b n d"],
    period: Float[Tensor, "b d"],
    unit: Float[Tensor, "b 1 dx"],
    line: Float[Tensor, "b n d"],
) -> Processes:
    """Choose the kernels of standardised columns at locations u of width 4, `unit` times the locations plus a constant.
    `across` predicts each column from the others, observed cells from other rows; a column that it does not predict
    keeps its values. `line` is what was subtracted from y as a slope."""
    d = y.shape[-1]
    squares = (torch.where(observed, part, 0).square().sum(1, keepdim=True) for part in (y - across, y))
    informed = next(squares) < MAX_UNEXPLAINED * next(squares)
    across = torch.where(informed, across, 0)
    order = torch.where(observed.any(-1), u[..., 0], torch.inf).argsort(dim=1, stable=True)
    x = take_rows(u, order).double().repeat_interleave(d, 0)
    error = torch.zeros_like(y) if error is None else error
    values, rest, seen, errors = (flatten_columns(take_rows(part, order)) for part in (y, y - across, observed, error))
    period = period.flatten().double()
    values, rest, errors = (torch.where(seen, part.double(), 0) for part in (values, rest, errors))
    if u.shape[-1] == 1:
        subsets = choose_subsets(x, seen)

        def score(theta: Tensor, periods: Tensor) -> Tensor:
            taken = ((take_cells(rows, x, values, errors), there) for rows, there in subsets)
            parts = (evaluate_kernels(theta, periods, *cells, there=there) for cells, there in taken)
            return sum(parts, theta.new_zeros(theta.shape[:2]))

        period = choose_periods(x[..., 0], values, seen, period, score)
    if d == 1:
        lines = flatten_columns(take_rows(line, order)).double() if u.shape[-1] == 1 else None
        kernels = choose_kernels(x, values, seen, errors, period, line=lines)
        return Processes(kernels, None, unit.double(), informed)
    # other columns inform on level and slope
    alone, left = (choose_kernels(x, part, seen, errors, period, NO_TREND) for part in (values, rest))
    return Processes(alone, left, unit.double(), informed)


@torch.no_grad()
def choose_by_windows(
    x: Float[Tensor, "w n dx"],
    y: Float[Tensor, "w n"],
    observed: Bool[Tensor, "w n"],
    error: Float[Tensor, "w n"],
    unit: Float[Tensor, "1 1 dx"],
) -> Processes:
    """Choose the kernels of one long column from windows of it, in several dimensions: those that raise the evidence of
    the windows most, where each window weighs them by its own evidence."""
    u, period = x.double() * unit, x.new_zeros(len(x), dtype=torch.float64)
    y, error = (torch.where(observed, part.double(), 0) for part in (y, error))
    chosen = choose_kernels(u, y, observed, error, period)
    candidates = chosen.theta[:, :FEW_KERNELS].flatten(0, 1)
    if not chosen.drawn.any():
        evidence = evaluate_kernels(candidates.expand(len(x), -1, -1), period, u, y, error, observed)  # [w k]
        best, total = [], torch.full_like(evidence[:, :1], -torch.inf)
        for _ in range(FEW_KERNELS):
            gain = torch.logaddexp(total, evidence).sum(0)
            gain[best] = -torch.inf
            best.append(int(gain.argmax()))
            total = torch.logaddexp(total, evidence[:, best[-1:]])
        candidates = candidates[best]
    drawn = torch.zeros(1, dtype=torch.bool)
    alone = Kernels(candidates[None, :FEW_KERNELS], period[:1], drawn)
    return Processes(alone, None, unit.double(), torch.zeros(1, 1, 1, dtype=torch.bool))


@torch.no_grad()
def choose_for_part(
    whole: Processes,
    u: Float[Tensor, "1 n dx"],
    y: Float[Tensor, "1 n d"],
    observed: Bool[Tensor, "1 n d"],
    error: Float[Tensor, "1 n d"] | None,
    across: Float[Tensor, "1 n d"],
    period: Float[Tensor, "1 d"],
    unit: Float[Tensor, "1 1 dx"],
    line: Float[Tensor, "1 n d"],
) -> Processes:
    """Choose the kernels of a part of a record, in one dimension: those of the whole record, or, where they explain the
    part much better, kernels that are chosen by the part alone. Arguments are those of `choose_processes`."""
    x = u.double().repeat_interleave(y.shape[-1], 0)
    across = torch.where(whole.informed, across, 0)
    seen, error = flatten_columns(observed), torch.zeros_like(y) if error is None else error
    factor = float(unit.flatten()[0] / whole.unit.flatten()[0])
    values, rest, errors = (torch.where(seen, flatten_columns(part).double(), 0) for part in (y, y - across, error))
    lines = flatten_columns(line).double() if whole.rest is None else None
    alone = _choose_better(whole.alone, factor, x, values, seen, errors, period.flatten().double(), lines)
    if whole.rest is None:
        return replace(whole, alone=alone)
    rest = _choose_better(whole.rest, factor, x, rest, seen, errors, period.flatten().double())
    return replace(whole, alone=alone, rest=rest)


def _choose_better(
    whole: Kernels,
    factor: float,
    x: Tensor,
    y: Tensor,
    observed: Tensor,
    error: Tensor,
    period: Tensor,
    line: Tensor | None = None,
) -> Kernels:
    """Return the kernels of the whole record with those of a part where these are better. `factor` multiplies the
    locations of the record in the units of x."""
    columns = ((observed.sum(1) > SUBSET) & ~whole.drawn).nonzero()[:, 0]
    if not len(columns):
        return whole
    parts = (x[columns], y[columns], observed[columns], error[columns])
    line = None if line is None else line[columns]
    own = choose_kernels(*parts, period[columns], trend=whole.trend, line=line)
    before = Kernels(whole.theta[columns], whole.period[columns], whole.drawn[columns]).stretch(factor)
    rows, there = choose_large_subsets(parts[2])[0]
    taken = take_cells(rows, parts[0], parts[1], parts[3])
    some = {"there": there, "trend": whole.trend, "line": None if line is None else line.gather(1, rows)}
    size = whole.theta.shape[1]
    count = min(size, FEW_KERNELS)
    better = [
        evaluate_kernels(kernels.theta[:, :count], kernels.period, *taken, **some).logsumexp(1)
        for kernels in (own, before)
    ]
    winning = torch.zeros(len(whole.theta), dtype=torch.bool)
    winning[columns] = better[0] > better[1] + _LOCAL_MARGIN
    other = Kernels(whole.theta.clone(), whole.period.clone(), whole.drawn)
    own = own.stretch(1 / factor)
    other.theta[columns] = own.theta[:, torch.arange(size) % FEW_KERNELS]
    other.period[columns] = own.period
    return whole.replace_columns(winning, other)


@torch.no_grad()
def choose_kernels(
    x: Float[Tensor, "c n dx"],
    y: Float[Tensor, "c n"],
    observed: Bool[Tensor, "c n"],
    error: Float[Tensor, "c n"],
    period: Float[Tensor, "c"],
    trend: Trend = SUBTRACTED,
    line: Float[Tensor, "c n"] | None = None,
) -> Kernels:
    """Choose the kernels of each column by their likelihood: of all observations, or of subsets of them that are dense
    and that are spread. Rows are in the order of x; a period of 0 means none. With the `line` that was subtracted from
    y, kernels without a slope compete too."""
    slopes = (0, 1) if line is not None else (0,)  # 1: none
    line = torch.zeros_like(y) if line is None else line
    subsets = choose_subsets(x, observed)

    def score(theta: Tensor) -> Tensor:
        total = theta.new_zeros(theta.shape[:2])
        for rows, there in subsets:
            *parts, lines = take_cells(rows, x, y, error, line)
            total = total + evaluate_kernels(theta, period, *parts, there=there, trend=trend, line=lines)
        return total

    count = observed.sum(1, keepdim=True)
    # from the width of all locations to about the distance of two
    numbers = (1.4 * count.clamp_min(1)).log2().round().clamp_min(3)
    lengths = [4.0 / _LENGTH_STEP**i for i in range(1 + int(numbers.max()))]
    few = count <= SUBSET
    noises = [_SMALL_NOISES * bool(few.any()) + _NOISES] * 2 + [_NOISES] * 2
    grid = [
        (kind, length, noise, 0, 1, 1, no_slope)
        for kind, no_slope in product(range(len(KINDS)), slopes)
        for length, noise in product(lengths, noises[kind])
    ]
    theta = x.new_tensor(grid).expand(len(x), -1, -1)
    excluded = (theta[..., 1] < 3.9 / _LENGTH_STEP**numbers) | (theta[..., 2] < 0.9 * _NOISES[0]) & ~few
    evidence = score(theta).masked_fill(excluded, -torch.inf)
    for step in _ROUNDS:  # each kernel stands for a part of the plane of length and noise
        best = theta.gather(1, evidence.topk(_REFINED, 1).indices[..., None].expand(-1, -1, 7))
        moves = x.new_tensor([[0, a, b, 0, 0, 0, 0] for a, b in _STEPS])
        factors = x.new_tensor([1, _LENGTH_STEP**step, _NOISE_STEP**step, 1, 1, 1, 1]) ** moves
        near = (best[:, :, None] * factors).flatten(1, 2)
        theta = torch.cat([theta, near], 1)
        evidence = torch.cat([evidence, score(near) + 2 * math.log(step)], 1)
    best = theta.gather(1, evidence.topk(_SUMMED, 1).indices[..., None].expand(-1, -1, 7))
    sums = add_parts(best, _LONG_SCALES)
    added = [(sums, score(sums))]
    if x.shape[-1] == 1 and bool((period > 0).any()):
        periodic = x.new_tensor([(*kernel, no_slope) for no_slope in slopes for kernel in _PERIODIC])
        waves = torch.cat([add_parts(best, _WAVES), periodic.expand(len(x), -1, -1)], 1)
        added.append((waves, torch.where(period[:, None] > 0, score(waves), -torch.inf)))
    theta, evidence = (torch.cat(parts, 1) for parts in zip((theta, evidence), *added, strict=True))
    drawn = count[:, 0] <= SUBSET
    chosen = _choose_again(theta, evidence, (x, y, observed, error, line), period, trend)
    if drawn.any():  # systematically: the quantiles of the posterior
        shares = (torch.arange(KERNELS, device=x.device, dtype=x.dtype) + 0.5) / KERNELS
        masses = evidence.softmax(1).cumsum(1).contiguous()
        quantiles = torch.searchsorted(masses, shares.expand(len(x), -1).contiguous()).clamp_max(masses.shape[1] - 1)
        chosen = torch.where(drawn[:, None], quantiles, chosen.repeat(1, KERNELS // FEW_KERNELS))
    return Kernels(theta.gather(1, chosen[..., None].expand(-1, -1, 7)), period, drawn, trend)


def add_parts(kernels: Float[Tensor, "c k 7"], parts: tuple[tuple[float, ...], ...]) -> Float[Tensor, "c kp 7"]:
    """Return every kernel with every second part (ρ, c, λ)."""
    first = kernels[:, :, None, :3].expand(-1, -1, len(parts), -1)
    no_slope = kernels[:, :, None, 6:].expand(-1, -1, len(parts), -1)
    return torch.cat([first, kernels.new_tensor(parts).expand(*first.shape[:3], -1), no_slope], -1).flatten(1, 2)


def _choose_again(
    theta: Float[Tensor, "c k 7"],
    evidence: Float[Tensor, "c k"],
    columns: tuple[Tensor, ...],
    period: Tensor,
    trend: Trend,
) -> Int64[Tensor, "c f"]:
    """Return the best kernels of columns of many observations, by larger subsets: a dense part and a thin rest
    together."""
    x, y, observed, error, line = columns
    each = [  # the best of each kind, however poor it looks on small subsets
        evidence.masked_fill((theta[..., 0] != kind) | (theta[..., 3] > 0), -torch.inf).argmax(1, keepdim=True)
        for kind in range(len(KINDS))
    ]
    best = evidence.topk(FEW_KERNELS, 1).indices
    chosen = torch.cat([best, *each], 1)
    many = (observed.sum(1) > SUBSET).nonzero()[:, 0]
    if not len(many):
        return best
    some = theta[many].gather(1, chosen[many][..., None].expand(-1, -1, 7))
    parts, total = (x[many], y[many], error[many], line[many]), theta.new_zeros(len(many), chosen.shape[1])
    for rows, there in choose_large_subsets(observed[many]):
        *taken, lines = take_cells(rows, *parts)
        total = total + evaluate_kernels(some, period[many], *taken, there=there, trend=trend, line=lines)
    total = total.masked_fill(_repeated(chosen[many]), -torch.inf)
    best[many] = chosen[many].gather(1, total.topk(FEW_KERNELS, 1).indices)
    return best


def _repeated(numbers: Int64[Tensor, "c k"]) -> Bool[Tensor, "c k"]:
    """Return which numbers of each row came before."""
    same = numbers[:, :, None] == numbers[:, None]
    return same.tril(-1).any(-1)


def choose_large_subsets(observed: Bool[Tensor, "c n"]) -> list[tuple[Int64[Tensor, "c m"], Bool[Tensor, "c m"]]]:
    """Return up to LARGE_SUBSET observed rows, half of them dense and the others spread; several of a long record."""
    first = (~observed).to(torch.uint8).argsort(dim=1, stable=True)
    count = observed.sum(1, keepdim=True)
    largest = int(count.max())
    number = torch.arange(min(LARGE_SUBSET, largest), device=observed.device)
    dense = LARGE_SUBSET // 2
    subsets = []
    for share in _BLOCKS if largest > 2 * LARGE_SUBSET else _BLOCKS[:1]:
        start = (share * (count - dense).clamp_min(0)).long()
        step = (count - 1).clamp_min(0) / max(1, LARGE_SUBSET - dense - 1)
        rows = torch.where(number < dense, start + number, ((number - dense) * step).round().long())
        rows = torch.where(count <= LARGE_SUBSET, number, rows).clamp_max(largest - 1)
        inside = (number >= dense) & (rows >= start) & (rows < start + dense) & (count > LARGE_SUBSET)
        there = (rows < count) & ~inside
        if share != _BLOCKS[0]:
            there = there & (count > 2 * LARGE_SUBSET)
        subsets.append((first.gather(1, rows), there))
    return subsets


def choose_subsets(
    x: Float[Tensor, "c n dx"], observed: Bool[Tensor, "c n"]
) -> list[tuple[Int64[Tensor, "c m"], Bool[Tensor, "c m"]]]:
    """Return rows of each column that kernels compete on, and which of them are observed."""
    first = (~observed).to(torch.uint8).argsort(dim=1, stable=True)  # observed rows first, in order
    count = observed.sum(1, keepdim=True)
    largest = int(count.max())
    number = torch.arange(min(SUBSET, largest), device=x.device)
    spread = (count - 1).clamp_min(0) / max(1, SUBSET - 1)
    everywhere = torch.where(count <= SUBSET, number, (number * spread).round().long())
    subsets = [(everywhere, everywhere < count)]
    if largest > SUBSET and x.shape[-1] > 1:  # around an observed row
        middle = first.gather(1, (count // 2).clamp_max(largest - 1))
        centre = x.gather(1, middle[..., None].expand(-1, -1, x.shape[-1]))
        distance = (x - centre).square().sum(-1).masked_fill(~observed, torch.inf)
        near = distance.topk(len(number), largest=False)
        there = near.values.isfinite() & (count > SUBSET)
        return [(first.gather(1, everywhere.clamp_max(largest - 1)), subsets[0][1]), (near.indices, there)]
    if largest > SUBSET:
        blocks = [(share * (count - SUBSET).clamp_min(0)).long() + number for share in _BLOCKS]
        subsets += [(rows, (count > SUBSET).expand_as(rows)) for rows in blocks]
    if largest > _LONG:
        rows = (0.4 * count).long() + (number * spread / 16).round().long()
        subsets.append((rows, (count > _LONG).expand_as(rows)))
    return [(first.gather(1, rows.clamp_max(largest - 1)), there) for rows, there in subsets]
