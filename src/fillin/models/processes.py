"""Gaussian processes of the columns of a sheet, averaged over kernels: a guide of its model, in closed form.

With y ~ N(0, s² C), C = (1 − ρ) k(Δ/ℓ) + ρ exp(−2 sin²(πΔ/p) / c²) exp(−½ Δ²/λ²) + σ² I and s² ~ inverse gamma,

    ln p(y | kernel) = −½ ln |C| − ½ (n + ν) ln(ν + yᵀC⁻¹y) + constant

k is an RBF or a Matérn kernel. Kernels compete on a grid that is refined around the best; the predictions of the best
are averaged with weights p(y | kernel) (Rasmussen & Williams 2006, chapter 5). An observed cell is predicted from all
others (Sundararajan & Keerthi 2001), so that its error shows how far to trust the process.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.attention import kernel
from fillin.attention.kernel.ops import run_correlate, run_processes
from fillin.models.guides import take_rows

KINDS = ("rbf", "matern-5/2", "matern-3/2", "matern-1/2")
SUBSET = 48  # rows that kernels compete on
LARGE_SUBSET = 320  # rows that the best of them compete on again
KERNELS, FEW_KERNELS = 20, 4  # that are averaged over up to SUBSET rows, and beyond
_NOISES = (0.01, 0.1, 0.6)  # σ, relative to the signal
_REFINED = 2  # of the best kernels, per round
_STEPS = tuple((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)  # in length and noise
_ROUNDS = (0.5, 0.25)  # steps of the grid, relative to the first
_LENGTH_STEP, _NOISE_STEP = 2.0, 6.0
MAX_UNEXPLAINED = 0.9  # share of the variance that a regression on the other columns may leave, to be used
_SUMMED = 3  # of the best kernels, to which a second part is added: (ρ, c, λ)
_LONG_SCALES = tuple((share, 1e3, far) for share in (0.4, 0.8) for far in (0.3, 1.0, 3.0))  # a wave this wide is 1
_WAVES = tuple((share, cycle, far) for share in (0.3, 0.7, 0.95) for cycle in (0.7, 1.8) for far in (1.5, 12.0))
_PERIODIC = tuple(
    (2.0, length, noise, *wave) for length in (0.4, 3.0) for noise in (0.03, 0.3) for wave in _WAVES if wave[0] != 0.7
)
_FREEDOM = 3.0  # ν
_JITTER = 1e-8
_BLOCKS = (0.5, 0.1, 0.9)  # of a record, where kernels compete
_MAX_ENTRIES = 1 << 21  # of the covariances that are factored at once
_LONG = 1024


@dataclass(frozen=True)
class Kernels:
    """Kernels of c columns: kind, ℓ, σ, ρ, c and λ, and the period p of each column."""

    theta: Float[Tensor, "c k 6"]
    period: Float[Tensor, "c"]
    drawn: Bool[Tensor, "c"]  # from their posterior, so that they have equal weights; else the first FEW_KERNELS count

    def best(self, count: int) -> "Kernels":
        """Return the first kernels, where no column has all of them drawn."""
        return self if bool(self.drawn.any()) else replace(self, theta=self.theta[:, :count])

    def select(self, columns: Int64[Tensor, "m"] | int) -> "Kernels":
        """Return the kernels of some columns, all drawn or none."""
        columns = torch.as_tensor([columns] if isinstance(columns, int) else columns)
        drawn = self.drawn[columns]
        theta = self.theta[columns] if bool(drawn[0]) else self.theta[columns, :FEW_KERNELS]
        return Kernels(theta, self.period[columns], drawn)

    def repeat(self, count: int) -> "Kernels":
        return Kernels(self.theta.repeat(count, 1, 1), self.period.repeat(count), self.drawn.repeat(count))


@dataclass(frozen=True)
class ProcessPredictions:
    """Means and variances of the latent function in each cell, and the variance of the noise."""

    mean: Float[Tensor, "c n"]
    variance: Float[Tensor, "c n"]
    noise: Float[Tensor, "c n"]


@dataclass(frozen=True)
class Processes:
    """Kernels of the columns of each sheet, column by column: of their values, and of what a regression on the other
    columns leaves (None: there are none). Lengths are in the units of `unit` times a location."""

    alone: Kernels
    rest: Kernels | None
    unit: Float[Tensor, "b 1 dx"]
    informed: Bool[Tensor, "b 1 d"]  # columns that the regression on the others predicts

    def best(self, count: int) -> "Processes":
        """Return the processes with fewer kernels for columns of many observations."""
        rest = None if self.rest is None else self.rest.best(count)
        return replace(self, alone=self.alone.best(count), rest=rest)

    def split(self, informed: Bool[ndarray, "m"]) -> "list[tuple[Bool[ndarray, 'm'], Kernels]]":
        """Return the rows that other columns inform and those that they do not, where there are any, each with the
        kernels of the process that describes them."""
        if self.rest is None:
            return [(np.ones_like(informed), self.alone)]
        pairs = ((informed, self.rest), (~informed, self.alone))
        return [(rows, kernels) for rows, kernels in pairs if rows.any()]

    def repeat(self, count: int) -> "Processes":
        """Return the processes of as many windows of one sheet."""
        rest = None if self.rest is None else self.rest.repeat(count)
        return Processes(
            self.alone.repeat(count), rest, self.unit.repeat(count, 1, 1), self.informed.repeat(count, 1, 1)
        )


@torch.no_grad()
def choose_processes(
    u: Float[Tensor, "b n dx"],
    y: Float[Tensor, "b n d"],
    observed: Bool[Tensor, "b n d"],
    error: Float[Tensor, "b n d"] | None,
    across: Float[Tensor, "b n d"],
    period: Float[Tensor, "b d"],
    unit: Float[Tensor, "b 1 dx"],
) -> Processes:
    """Choose the kernels of standardised columns at locations u of width 4, `unit` times the locations plus a constant.
    `across` predicts each column from the others, observed cells from other rows; a column that it does not predict
    keeps its values."""
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
    alone = choose_kernels(x, values, seen, errors, period)
    return Processes(alone, choose_kernels(x, rest, seen, errors, period) if d > 1 else None, unit.double(), informed)


@torch.no_grad()
def predict_sheet(
    processes: Processes,
    x: Float[Tensor, "b n dx"],
    y: Float[Tensor, "b n d"],
    observed: Bool[Tensor, "b n d"],
    error: Float[Tensor, "b n d"] | None,
    across: Float[Tensor, "b n d"],
    queries: bool = True,
) -> tuple[Float[Tensor, "b n d 2"], Float[Tensor, "b n d 2"], Float[Tensor, "b n d 2"]]:
    """Predict every cell from its own column, and from what `across` leaves of it: means, and standard deviations of an
    observation and of the latent function. An observed cell is predicted from all others; without `queries`, only
    observed cells are predicted."""
    b, _, d = y.shape
    across = torch.where(processes.informed, across, 0)
    u = (x.double() * processes.unit).repeat_interleave(d, 0)
    error = torch.zeros_like(y) if error is None else error
    seen = flatten_columns(observed)
    missing = ~seen if queries else torch.zeros_like(seen)
    values, rest, errors = (torch.where(seen, flatten_columns(part).double(), 0) for part in (y, y - across, error))
    found = [predict_cells(processes.alone, u, values, seen, errors, missing)]
    if processes.rest is not None:
        found.append(predict_cells(processes.rest, u, rest, seen, errors, missing))
    else:
        found.append(found[0])
    means = torch.stack([part.mean for part in found], -1)
    latent = torch.stack([part.variance for part in found], -1)
    noise = torch.stack([part.noise for part in found], -1)
    means, total, latent = (
        part.unflatten(0, (b, d)).transpose(1, 2).to(y.dtype)
        for part in (means, (latent + noise).sqrt(), latent.sqrt())
    )
    if processes.rest is not None:
        means = torch.stack([means[..., 0], means[..., 1] + across], -1)
    return means, total, latent


def flatten_columns(part: Float[Tensor, "b n d"] | Bool[Tensor, "b n d"]) -> Tensor:
    return part.mT.flatten(0, 1)


@torch.no_grad()
def choose_kernels(
    x: Float[Tensor, "c n dx"],
    y: Float[Tensor, "c n"],
    observed: Bool[Tensor, "c n"],
    error: Float[Tensor, "c n"],
    period: Float[Tensor, "c"],
) -> Kernels:
    """Choose the kernels of each column by their likelihood: of all observations, or of subsets of them that are dense
    and that are spread. Rows are in the order of x; a period of 0 means none."""
    subsets = choose_subsets(x, observed)

    def score(theta: Tensor) -> Tensor:
        return sum(
            (_evidence(theta, period, *_take(rows, x, y, error), there) for rows, there in subsets),
            theta.new_zeros(theta.shape[:2]),
        )

    count = observed.sum(1, keepdim=True)
    # from the width of all locations to about the distance of two
    numbers = (1.4 * count.clamp_min(1)).log2().round().clamp_min(3)
    lengths = [4.0 / _LENGTH_STEP**i for i in range(1 + int(numbers.max()))]
    grid = [(kind, length, noise, 0, 1, 1) for kind in range(len(KINDS)) for length in lengths for noise in _NOISES]
    theta = x.new_tensor(grid).expand(len(x), -1, -1)
    evidence = score(theta).masked_fill(theta[..., 1] < 3.9 / _LENGTH_STEP**numbers, -torch.inf)
    for step in _ROUNDS:  # each kernel stands for a part of the plane of length and noise
        best = theta.gather(1, evidence.topk(_REFINED, 1).indices[..., None].expand(-1, -1, 6))
        moves = x.new_tensor([[0, a, b, 0, 0, 0] for a, b in _STEPS])
        factors = x.new_tensor([1, _LENGTH_STEP**step, _NOISE_STEP**step, 1, 1, 1]) ** moves
        near = (best[:, :, None] * factors).flatten(1, 2)
        theta = torch.cat([theta, near], 1)
        evidence = torch.cat([evidence, score(near) + 2 * math.log(step)], 1)
    best = theta.gather(1, evidence.topk(_SUMMED, 1).indices[..., None].expand(-1, -1, 6))
    sums = add_parts(best, _LONG_SCALES)
    added = [(sums, score(sums))]
    if x.shape[-1] == 1 and bool((period > 0).any()):
        waves = torch.cat([add_parts(best, _WAVES), x.new_tensor(_PERIODIC).expand(len(x), -1, -1)], 1)
        added.append((waves, torch.where(period[:, None] > 0, score(waves), -torch.inf)))
    theta, evidence = (torch.cat(parts, 1) for parts in zip((theta, evidence), *added, strict=True))
    drawn = count[:, 0] <= SUBSET
    chosen = _choose_again(theta, evidence, (x, y, observed, error), period)
    if drawn.any():  # systematically: the quantiles of the posterior
        shares = (torch.arange(KERNELS, device=x.device, dtype=x.dtype) + 0.5) / KERNELS
        masses = evidence.softmax(1).cumsum(1).contiguous()
        quantiles = torch.searchsorted(masses, shares.expand(len(x), -1).contiguous()).clamp_max(masses.shape[1] - 1)
        chosen = torch.where(drawn[:, None], quantiles, chosen.repeat(1, KERNELS // FEW_KERNELS))
    return Kernels(theta.gather(1, chosen[..., None].expand(-1, -1, 6)), period, drawn)


def add_parts(kernels: Float[Tensor, "c k 6"], parts: tuple[tuple[float, ...], ...]) -> Float[Tensor, "c kp 6"]:
    """Return every kernel with every second part (ρ, c, λ)."""
    first = kernels[:, :, None, :3].expand(-1, -1, len(parts), -1)
    return torch.cat([first, kernels.new_tensor(parts).expand(*first.shape[:3], -1)], -1).flatten(1, 2)


def _choose_again(
    theta: Float[Tensor, "c k 6"], evidence: Float[Tensor, "c k"], columns: tuple[Tensor, ...], period: Tensor
) -> Int64[Tensor, "c f"]:
    """Return the best kernels of columns of many observations, by larger subsets: a dense part and a thin rest
    together."""
    x, y, observed, error = columns
    each = [  # the best of each kind, however poor it looks on small subsets
        evidence.masked_fill((theta[..., 0] != kind) | (theta[..., 3] > 0), -torch.inf).argmax(1, keepdim=True)
        for kind in range(len(KINDS))
    ]
    best = evidence.topk(FEW_KERNELS, 1).indices
    chosen = torch.cat([best, *each], 1)
    many = (observed.sum(1) > SUBSET).nonzero()[:, 0]
    if not len(many):
        return best
    some = theta[many].gather(1, chosen[many][..., None].expand(-1, -1, 6))
    parts, total = (x[many], y[many], error[many]), theta.new_zeros(len(many), chosen.shape[1])
    for rows, there in choose_large_subsets(observed[many]):
        total = total + _evidence(some, period[many], *_take(rows, *parts), there)
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


@torch.no_grad()
def predict_cells(
    kernels: Kernels,
    x: Float[Tensor, "c n dx"],
    y: Float[Tensor, "c n"],
    observed: Bool[Tensor, "c n"],
    error: Float[Tensor, "c n"],
    queried: Bool[Tensor, "c n"],
) -> ProcessPredictions:
    """Predict observed cells, each from all others, and queried ones that are not observed; other cells are 0."""
    missing = queried & ~observed
    n_context, n_query = int(observed.sum(1).max()), int(missing.sum(1).max())
    rows = (~observed).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_context]
    queries = missing.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :n_query]
    there = observed.gather(1, rows)
    (x_rows, y_rows, error_rows), (x_queries, *_) = _take(rows, x, y, error), _take(queries, x, y, error)
    y_rows = torch.where(there, y_rows, 0)
    parts = torch.zeros(len(y), 3, rows.shape[1] + queries.shape[1], dtype=y.dtype, device=y.device)
    for columns in (kernels.drawn.nonzero()[:, 0], (~kernels.drawn).nonzero()[:, 0]):
        if len(columns):
            some = [part[columns] for part in (x_rows, y_rows, error_rows, there, x_queries)]
            parts[columns] = _average(kernels.select(columns), *some)
    at = torch.cat([rows, queries], 1)
    there = torch.cat([there, missing.gather(1, queries)], 1)
    parts = (torch.zeros_like(y).scatter_add(1, at, torch.where(there, part, 0)) for part in parts.unbind(1))
    return ProcessPredictions(*parts)


def _average(
    kernels: Kernels,
    x: Float[Tensor, "c n dx"],
    y: Float[Tensor, "c n"],
    error: Float[Tensor, "c n"],
    there: Bool[Tensor, "c n"],
    x_queries: Float[Tensor, "c q dx"],
) -> Float[Tensor, "c 3 nq"]:
    """Return means, variances and noise of the rows, each from the others, and of the queries."""
    if bool(kernels.drawn[0]) and kernel.is_available() and x.device.type == "cpu":
        distance = distances(torch.cat([x, x_queries], 1), x)
        sums = run_processes("predict", kernels.theta, kernels.period, distance, y, error, there, _FREEDOM, _JITTER)
        mean, second, noise = (sums / kernels.theta.shape[1]).unbind(1)
        return torch.stack([mean, (second - mean.square()).clamp_min(_JITTER), noise], 1)
    return average_predictions(kernels, x, y, error, there, x_queries)


def average_predictions(
    kernels: Kernels,
    x: Float[Tensor, "c n dx"],
    y: Float[Tensor, "c n"],
    error: Float[Tensor, "c n"],
    there: Bool[Tensor, "c n"],
    x_queries: Float[Tensor, "c q dx"],
) -> Float[Tensor, "c 3 nq"]:
    """Return the same without the native kernel: the reference."""
    means, variances, noises, weights = [], [], [], []
    for i in range(kernels.theta.shape[1]):
        theta = kernels.theta[:, i]
        own = correlate(theta, kernels.period, distances(x, x))
        covariance = _with_noise(own, theta, error, there)
        factor = torch.linalg.cholesky(covariance)
        inverse = torch.cholesky_inverse(factor)
        alpha = (inverse @ y[..., None])[..., 0]
        square = (y * alpha).sum(-1)
        count = there.sum(1)
        weights.append(_log_evidence(factor, square, count))
        scale = ((_FREEDOM + square) / (_FREEDOM + count))[:, None]
        noise = scale * theta[:, 2, None].square()
        precision = inverse.diagonal(dim1=-2, dim2=-1)
        left_out = 1 / precision
        cross = correlate(theta, kernels.period, distances(x_queries, x)) * there[:, None]
        mean = (cross @ alpha[..., None])[..., 0]
        variance = (1 - ((cross @ inverse) * cross).sum(-1)).clamp_min(_JITTER)
        own_noise = theta[:, 2, None].square() + error.square()
        means.append(torch.cat([y - alpha * left_out, mean], 1))
        variances.append(scale * torch.cat([(left_out - own_noise).clamp_min(_JITTER), variance], 1))
        noises.append(noise.expand(-1, x.shape[1] + x_queries.shape[1]))
    weight = torch.stack(weights).masked_fill(kernels.drawn, 0).softmax(0)[..., None]
    mean = (weight * torch.stack(means)).sum(0)
    variance = (weight * (torch.stack(variances) + (torch.stack(means) - mean).square())).sum(0)
    return torch.stack([mean, variance, (weight * torch.stack(noises)).sum(0)], 1)


def _take(rows: Int64[Tensor, "c m"], x: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
    return (x.gather(1, rows[..., None].expand(-1, -1, x.shape[-1])), *(part.gather(1, rows) for part in parts))


def distances(a: Float[Tensor, "c n dx"], b: Float[Tensor, "c m dx"]) -> Float[Tensor, "c n m"]:
    if a.shape[-1] == 1:
        return (a - b.mT).abs()
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def correlate(
    theta: Float[Tensor, "c 6"], period: Float[Tensor, "c"], distance: Float[Tensor, "c n m"]
) -> Float[Tensor, "c n m"]:
    """Return the correlation of the latent function at these distances."""
    if distance.numel() and distance.dtype == torch.float64 and distance.device.type == "cpu" and kernel.is_available():
        return run_correlate(theta, period, distance)
    return compute_correlation(theta, period, distance)


def compute_correlation(
    theta: Float[Tensor, "c 6"], period: Float[Tensor, "c"], distance: Float[Tensor, "c n m"]
) -> Float[Tensor, "c n m"]:
    """Return the same without the native kernel: the reference."""
    kind, length, _, share, cycle, decay = theta.unbind(-1)
    ratio = distance / length[:, None, None]
    out = torch.empty_like(ratio)
    for number in range(len(KINDS)):
        rows = (kind == number).nonzero()[:, 0]
        if len(rows):
            out[rows] = _decay(number, ratio if len(rows) == len(ratio) else ratio[rows])
    waves = (share > 0).nonzero()[:, 0]
    if len(waves):
        share, cycle, decay, p = (part[waves, None, None] for part in (share, cycle, decay, period))
        apart = distance[waves]
        wave = -2 * (torch.sin(torch.pi * apart / p.clamp_min(1e-9)) / cycle).square() - 0.5 * (apart / decay).square()
        out[waves] = (1 - share) * out[waves] + share * wave.exp()
    return out


def _decay(number: int, r: Tensor) -> Tensor:
    if number == 0:
        return (-0.5 * r.square()).exp()
    if number == 3:
        return (-r).exp()
    r = r * (5**0.5 if number == 1 else 3**0.5)
    return (1 + r + r.square() / 3) * (-r).exp() if number == 1 else (1 + r) * (-r).exp()


def _with_noise(own: Tensor, theta: Tensor, error: Float[Tensor, "c n"], there: Bool[Tensor, "c n"]) -> Tensor:
    """Return the covariance of the rows that are there, and of the others that of unrelated variables."""
    noise = torch.where(there, theta[:, 2, None].square() + error.square() + _JITTER, 0)
    covariance = own if bool(there.all()) else own * (there[:, None] & there[:, :, None])
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    diagonal.add_(torch.where(there, noise, 1))
    return covariance


def _log_evidence(factor: Tensor, square: Float[Tensor, "*c"], count: Tensor) -> Float[Tensor, "*c"]:
    half = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -half - 0.5 * (count + _FREEDOM) * (_FREEDOM + square).log()


def _evidence(
    theta: Float[Tensor, "c g 6"],
    period: Float[Tensor, "c"],
    x: Float[Tensor, "c m dx"],
    y: Float[Tensor, "c m"],
    error: Float[Tensor, "c m"],
    there: Bool[Tensor, "c m"],
) -> Float[Tensor, "c g"]:
    """Return the log likelihood of each kernel up to a constant."""
    if kernel.is_available() and x.device.type == "cpu":
        return run_processes("evidence", theta, period, distances(x, x), y, error, there, _FREEDOM, _JITTER)
    return compute_evidence(theta, period, x, y, error, there)


def compute_evidence(
    theta: Float[Tensor, "c g 6"],
    period: Float[Tensor, "c"],
    x: Float[Tensor, "c m dx"],
    y: Float[Tensor, "c m"],
    error: Float[Tensor, "c m"],
    there: Bool[Tensor, "c m"],
) -> Float[Tensor, "c g"]:
    """Return the same without the native kernel: the reference."""
    c, m = x.shape[:2]
    distance, y, count = distances(x, x), torch.where(there, y, 0), there.sum(1)
    parts = []
    for piece in theta.split(max(1, _MAX_ENTRIES // max(1, c * m * m)), 1):
        size = piece.shape[1]
        each = [part.repeat_interleave(size, 0) for part in (period, distance, error, there, y)]
        flat = piece.flatten(0, 1)
        covariance = _with_noise(correlate(flat, each[0], each[1]), flat, each[2], each[3])
        factor = torch.linalg.cholesky(covariance)
        white = torch.linalg.solve_triangular(factor, each[4][..., None], upper=False)[..., 0]
        evidence = _log_evidence(factor, white.square().sum(-1), count.repeat_interleave(size))
        parts.append(evidence.view(c, size))
    return torch.cat(parts, 1)
