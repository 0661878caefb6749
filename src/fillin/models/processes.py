"""Gaussian processes of the columns of a sheet, averaged over kernels: a guide of its model, in closed form.

The predictions of the best kernels (`kernel_choice`) are averaged with weights p(y | kernel) (Rasmussen & Williams
2006, chapter 5). An observed cell is predicted from all others (Sundararajan & Keerthi 2001), so that its error shows
how far to trust the process.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.attention import kernel
from fillin.attention.kernel.ops import run_processes
from fillin.models.covariance import (
    FREEDOM,
    JITTER,
    SUBTRACTED,
    Trend,
    add_noise,
    correlate,
    distances,
    factorise,
    log_evidence,
    log_prior,
)

KERNELS, FEW_KERNELS = 20, 4  # that are averaged over few observations, and over many


@dataclass(frozen=True)
class Kernels:
    """Kernels of c columns: kind, ℓ, σ, ρ, c, λ and whether they have no slope, and the period p of each column."""

    theta: Float[Tensor, "c k 7"]
    period: Float[Tensor, "c"]
    drawn: Bool[Tensor, "c"]  # from their posterior, so that they have equal weights; else the first FEW_KERNELS count
    trend: Trend = SUBTRACTED  # of all columns

    def best(self, count: int) -> "Kernels":
        """Return the first kernels, where no column has all of them drawn."""
        return self if bool(self.drawn.any()) else replace(self, theta=self.theta[:, :count])

    def select(self, columns: Int64[Tensor, "m"] | int) -> "Kernels":
        """Return the kernels of some columns, all drawn or none."""
        columns = torch.as_tensor([columns] if isinstance(columns, int) else columns)
        drawn = self.drawn[columns]
        theta = self.theta[columns] if bool(drawn[0]) else self.theta[columns, :FEW_KERNELS]
        return Kernels(theta, self.period[columns], drawn, self.trend)

    @staticmethod
    def join(parts: "list[Kernels]") -> "Kernels":
        """Return the kernels of the columns of all."""
        joined = (torch.cat([getattr(part, name) for part in parts]) for name in ("theta", "period", "drawn"))
        return Kernels(*joined, trend=parts[0].trend)

    def stretch(self, factor: float) -> "Kernels":
        """Return the kernels of locations that are multiplied by `factor`."""
        return replace(
            self, theta=self.theta * self.theta.new_tensor([1, factor, 1, 1, 1, factor, 1]), period=self.period * factor
        )

    def replace_columns(self, columns: Bool[Tensor, "c"], other: "Kernels") -> "Kernels":
        """Return these kernels with those of other columns from `other`, of which as many are taken."""
        width = self.theta.shape[1]
        theta = other.theta[:, torch.arange(width) % min(width, FEW_KERNELS)]
        return Kernels(
            torch.where(columns[:, None, None], theta, self.theta),
            torch.where(columns, other.period, self.period),
            self.drawn,
            self.trend,
        )

    def repeat(self, count: int) -> "Kernels":
        return replace(
            self,
            theta=self.theta.repeat(count, 1, 1),
            period=self.period.repeat(count),
            drawn=self.drawn.repeat(count),
        )


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

    @staticmethod
    def join(parts: "list[Processes]") -> "Processes":
        """Return the processes of sheets of one batch."""
        rests = [part.rest for part in parts if part.rest is not None]
        return Processes(
            Kernels.join([part.alone for part in parts]),
            Kernels.join(rests) if rests else None,
            torch.cat([part.unit for part in parts]),
            torch.cat([part.informed for part in parts]),
        )

    def repeat(self, count: int) -> "Processes":
        """Return the processes of as many windows of one sheet."""
        rest = None if self.rest is None else self.rest.repeat(count)
        return Processes(
            self.alone.repeat(count), rest, self.unit.repeat(count, 1, 1), self.informed.repeat(count, 1, 1)
        )


@torch.no_grad()
def predict_sheet(
    processes: Processes,
    x: Float[Tensor, "b n dx"],
    y: Float[Tensor, "b n d"],
    observed: Bool[Tensor, "b n d"],
    error: Float[Tensor, "b n d"] | None,
    across: Float[Tensor, "b n d"],
    line: Float[Tensor, "b n d"] | None = None,
    queries: bool = True,
) -> tuple[Float[Tensor, "b n d 2"], Float[Tensor, "b n d 2"], Float[Tensor, "b n d 2"]]:
    """Predict every cell from its own column, and from what `across` leaves of it: means, and standard deviations of an
    observation and of the latent function. An observed cell is predicted from all others; without `queries`, only
    observed cells are predicted. `line` is what was subtracted from y as a slope."""
    b, _, d = y.shape
    across = torch.where(processes.informed, across, 0)
    u = (x.double() * processes.unit).repeat_interleave(d, 0)
    error = torch.zeros_like(y) if error is None else error
    seen = flatten_columns(observed)
    missing = ~seen if queries else torch.zeros_like(seen)
    values, rest, errors = (torch.where(seen, flatten_columns(part).double(), 0) for part in (y, y - across, error))
    lines = None if line is None else flatten_columns(line).double()
    found = [predict_cells(processes.alone, u, values, seen, errors, missing, lines)]
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
def predict_cells(
    kernels: Kernels,
    x: Float[Tensor, "c n dx"],
    y: Float[Tensor, "c n"],
    observed: Bool[Tensor, "c n"],
    error: Float[Tensor, "c n"],
    queried: Bool[Tensor, "c n"],
    line: Float[Tensor, "c n"] | None = None,
) -> ProcessPredictions:
    """Predict observed cells, each from all others, and queried ones that are not observed; other cells are 0."""
    missing = queried & ~observed
    n_context, n_query = int(observed.sum(1).max()), int(missing.sum(1).max())
    rows = (~observed).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_context]
    queries = missing.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :n_query]
    there = observed.gather(1, rows)
    (x_rows, y_rows, error_rows), (x_queries, *_) = take_cells(rows, x, y, error), take_cells(queries, x, y, error)
    y_rows = torch.where(there, y_rows, 0)
    line = torch.zeros_like(y) if line is None else line
    lines = torch.cat([line.gather(1, rows), line.gather(1, queries)], 1)
    parts = torch.zeros(len(y), 3, rows.shape[1] + queries.shape[1], dtype=y.dtype, device=y.device)
    for columns in (kernels.drawn.nonzero()[:, 0], (~kernels.drawn).nonzero()[:, 0]):
        if len(columns):
            some = [part[columns] for part in (x_rows, y_rows, lines, error_rows, there, x_queries)]
            parts[columns] = _average(kernels.select(columns), *some)
    at = torch.cat([rows, queries], 1)
    there = torch.cat([there, missing.gather(1, queries)], 1)
    parts = (torch.zeros_like(y).scatter_add(1, at, torch.where(there, part, 0)) for part in parts.unbind(1))
    return ProcessPredictions(*parts)


def _average(
    kernels: Kernels,
    x: Float[Tensor, "c n dx"],
    y: Float[Tensor, "c n"],
    line: Float[Tensor, "c nq"],
    error: Float[Tensor, "c n"],
    there: Bool[Tensor, "c n"],
    x_queries: Float[Tensor, "c q dx"],
) -> Float[Tensor, "c 3 nq"]:
    """Return means, variances and noise of the rows, each from the others, and of the queries."""
    if bool(kernels.drawn[0]) and kernel.is_available() and x.device.type == "cpu":
        distance = distances(torch.cat([x, x_queries], 1), x)
        trend = kernels.trend
        parts = (distance, y, line, error, there, trend.correlate(distance), trend.count(x, there), trend.prior)
        sums = run_processes("predict", kernels.theta, kernels.period, *parts)
        mean, second, noise = (sums / kernels.theta.shape[1]).unbind(1)
        return torch.stack([mean, (second - mean.square()).clamp_min(JITTER), noise], 1)
    return average_predictions(kernels, x, y, line, error, there, x_queries)


def average_predictions(
    kernels: Kernels,
    x: Float[Tensor, "c n dx"],
    y: Float[Tensor, "c n"],
    line: Float[Tensor, "c nq"],
    error: Float[Tensor, "c n"],
    there: Bool[Tensor, "c n"],
    x_queries: Float[Tensor, "c q dx"],
) -> Float[Tensor, "c 3 nq"]:
    """Return the same without the native kernel: the reference."""
    means, variances, noises, weights = [], [], [], []
    apart, across = distances(x, x), distances(x_queries, x)
    trend, cross_trend = kernels.trend.correlate(apart), kernels.trend.correlate(across)
    fixed, count = kernels.trend.count(x, there), there.sum(1)
    for i in range(kernels.theta.shape[1]):
        theta = kernels.theta[:, i]
        no_slope = theta[:, 6]
        values = y + torch.where(there, no_slope[:, None] * line[:, : y.shape[1]], 0)
        own = correlate(theta, kernels.period, apart) + kernels.trend.covary(no_slope, trend)
        covariance = add_noise(own, theta, error, there)
        factor = factorise(covariance)
        inverse = torch.cholesky_inverse(factor)
        alpha = (inverse @ values[..., None])[..., 0]
        square = (values * alpha).sum(-1)
        weights.append(log_evidence(factor, square, count, fixed.clamp_max(1)) + log_prior(theta))
        taken = kernels.trend.count_taken(no_slope, fixed)
        scale = ((FREEDOM + square) / (FREEDOM + (count - taken).clamp_min(0)))[:, None]
        noise = scale * theta[:, 2, None].square()
        precision = inverse.diagonal(dim1=-2, dim2=-1)
        left_out = 1 / precision
        cross = correlate(theta, kernels.period, across) + kernels.trend.covary(no_slope, cross_trend)
        cross = cross * there[:, None]
        mean = (cross @ alpha[..., None])[..., 0]
        variance = (1 + kernels.trend.level - ((cross @ inverse) * cross).sum(-1)).clamp_min(JITTER)
        own_noise = theta[:, 2, None].square() + error.square()
        means.append(torch.cat([values - alpha * left_out, mean], 1) - no_slope[:, None] * line)
        variances.append(scale * torch.cat([(left_out - own_noise).clamp_min(JITTER), variance], 1))
        noises.append(noise.expand(-1, x.shape[1] + x_queries.shape[1]))
    weight = torch.stack(weights).masked_fill(kernels.drawn, 0).softmax(0)[..., None]
    mean = (weight * torch.stack(means)).sum(0)
    variance = (weight * (torch.stack(variances) + (torch.stack(means) - mean).square())).sum(0)
    return torch.stack([mean, variance, (weight * torch.stack(noises)).sum(0)], 1)


def take_cells(rows: Int64[Tensor, "c m"], x: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
    return (x.gather(1, rows[..., None].expand(-1, -1, x.shape[-1])), *(part.gather(1, rows) for part in parts))
