"""Covariances of the Gaussian processes of columns, and the evidence of their kernels.

With y ~ N(0, s² C), C = (1 − ρ) k(Δ/ℓ) + ρ exp(−2 sin²(πΔ/p) / c²) exp(−½ Δ²/λ²) + T + σ² I and s² ~ inverse gamma,

    ln p(y | kernel) = −½ ln |C| − ½ (n − 1 + ν) ln(ν + yᵀC⁻¹y) + constant

k is an RBF or a Matérn kernel. T is the covariance of the level and the slope of y, which have been subtracted, but are
not known: they take up d of the n values, as in restricted maximum likelihood (Patterson & Thompson 1971). A kernel
without a slope has a level alone, and its y are the values before the slope was subtracted: its forecasts return to the
level. Both compete; a slope, which was fitted, has a penalty in nats.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.attention import kernel
from fillin.attention.kernel.ops import half_wave, run_correlate, run_processes

KINDS = ("rbf", "matern-5/2", "matern-3/2", "matern-1/2")
FREEDOM = 1.0  # ν: more would draw the scale to that of what is left, which is far too small beside a wide gap
_LEVEL = 1.0  # variance of the level, relative to that of the process
SLOPE_PENALTY = 3.0  # nats
_TREND_SCALE = 3.0  # distance over which the trend is correlated: a slope has a standard deviation of a third per unit
JITTER = 1e-10  # of the variance; like σ it is relative to the scale, and more would bound that of smooth functions
_NO_SLOPE, _FLAT = 3, 1e-9  # rows from which no slope is subtracted; a spread of rows, squared, that is none
_RESCUE = 1e-7  # added to the diagonal of a matrix that is not positive definite in floating point
_MAX_ENTRIES = 1 << 21  # of the covariances that are factored at once


@dataclass(frozen=True)
class Trend:
    """The level and the slope that have been subtracted from a column: T = `level` exp(−½ Δ²/3²)."""

    level: float

    def count_taken(self, no_slope: Float[Tensor, "*c"], fixed: Float[Tensor, "*c"]) -> Float[Tensor, "*c"]:
        """Return d of each kernel, of which `fixed` is that of one with a slope."""
        return torch.where(no_slope > 0, fixed.clamp_max(1), fixed)

    def covary(self, no_slope: Float[Tensor, "c"], trend: Float[Tensor, "c n m"]) -> Float[Tensor, "c n m"]:
        """Return T of kernels without a slope or with one; `trend` is that of the latter."""
        return torch.where(no_slope[:, None, None] > 0, self.level, trend)

    def count(self, x: Float[Tensor, "c n dx"], there: Bool[Tensor, "c n"]) -> Float[Tensor, "c"]:
        """Return d, the number of values that a level and a slope take up: no slope along which all rows are at one
        location, nor of three rows or fewer, from which none is subtracted."""
        if not self.level:
            return x.new_zeros(len(x))
        n = there.sum(1)
        centred = (x - (x * there[..., None]).sum(1, keepdim=True) / n.clamp_min(1)[:, None, None]) * there[..., None]
        spread = torch.linalg.eigvalsh(centred.mT @ centred)
        directions = (spread > _FLAT * spread[:, -1:].clamp_min(_FLAT)).sum(1)
        return torch.where(n > _NO_SLOPE, 1 + directions, n.clamp_max(1)).to(x.dtype)

    @property
    def prior(self) -> tuple[float, float, float]:
        """The arguments of the native kernel: T at distance 0, ν, and the jitter."""
        return self.level, FREEDOM, JITTER

    def correlate(self, distance: Float[Tensor, "c n m"]) -> Float[Tensor, "c n m"]:
        """Return T, in units of s²."""
        return self.level * (-0.5 * (distance / _TREND_SCALE).square()).exp() if self.level else 0 * distance


SUBTRACTED, NO_TREND = Trend(_LEVEL), Trend(0.0)


def distances(a: Float[Tensor, "c n dx"], b: Float[Tensor, "c m dx"]) -> Float[Tensor, "c n m"]:
    if a.shape[-1] == 1:
        return (a - b.mT).abs()
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def correlate(
    theta: Float[Tensor, "c 7"], period: Float[Tensor, "c"], distance: Float[Tensor, "c n m"]
) -> Float[Tensor, "c n m"]:
    """Return the correlation of the latent function at these distances."""
    if distance.numel() and distance.dtype == torch.float64 and distance.device.type == "cpu" and kernel.is_available():
        return run_correlate(theta, period, distance)
    return compute_correlation(theta, period, distance)


def compute_correlation(
    theta: Float[Tensor, "c 7"], period: Float[Tensor, "c"], distance: Float[Tensor, "c n m"]
) -> Float[Tensor, "c n m"]:
    """Return the same without the native kernel: the reference."""
    kind, length, _, share, cycle, decay, _ = theta.unbind(-1)
    ratio = distance / length[:, None, None]
    out = torch.empty_like(ratio)
    for number in range(len(KINDS)):
        rows = (kind == number).nonzero()[:, 0]
        if len(rows):
            out[rows] = _decay(number, ratio if len(rows) == len(ratio) else ratio[rows])
    waves = (share > 0).nonzero()[:, 0]
    if len(waves):
        p = period[waves]
        share, cycle, decay = (part[waves, None, None] for part in (share, cycle, decay))
        apart = distance[waves]
        wave = -2 * half_wave(apart, p) / cycle.square() - 0.5 * (apart / decay).square()
        out[waves] = (1 - share) * out[waves] + share * wave.exp()
    return out


def _decay(number: int, r: Tensor) -> Tensor:
    if number == 0:
        return (-0.5 * r.square()).exp()
    if number == 3:
        return (-r).exp()
    r = r * (5**0.5 if number == 1 else 3**0.5)
    return (1 + r + r.square() / 3) * (-r).exp() if number == 1 else (1 + r) * (-r).exp()


def add_noise(own: Tensor, theta: Tensor, error: Float[Tensor, "c n"], there: Bool[Tensor, "c n"]) -> Tensor:
    """Return the covariance of the rows that are there, and of the others that of unrelated variables."""
    noise = torch.where(there, theta[:, 2, None].square() + error.square() + JITTER, 0)
    covariance = own if bool(there.all()) else own * (there[:, None] & there[:, :, None])
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    diagonal.add_(torch.where(there, noise, 1))
    return covariance


def factorise(covariance: Float[Tensor, "*c n n"]) -> Float[Tensor, "*c n n"]:
    """Return the Cholesky factor, of a matrix with more on its diagonal where rounding has left it indefinite."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    for i in failed.nonzero()[:, 0].tolist():
        factor[i] = torch.linalg.cholesky(covariance[i] + _RESCUE * torch.eye(len(factor[i])).to(factor))
    return factor


def log_evidence(factor: Tensor, square: Float[Tensor, "*c"], count: Tensor, taken: Tensor) -> Float[Tensor, "*c"]:
    half = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -half - 0.5 * ((count - taken).clamp_min(0) + FREEDOM) * (FREEDOM + square).log()


def log_prior(theta: Float[Tensor, "*c 7"]) -> Float[Tensor, "*c"]:
    """Return the logarithm of the prior of kernels, up to a constant."""
    return -SLOPE_PENALTY * (theta[..., 6] == 0).to(theta.dtype)


def evaluate_kernels(
    theta: Float[Tensor, "c g 7"],
    period: Float[Tensor, "c"],
    x: Float[Tensor, "c m dx"],
    y: Float[Tensor, "c m"],
    error: Float[Tensor, "c m"],
    there: Bool[Tensor, "c m"],
    trend: Trend = SUBTRACTED,
    line: Float[Tensor, "c m"] | None = None,
) -> Float[Tensor, "c g"]:
    """Return the log likelihood of each kernel up to a constant. `line` is what was subtracted from y as a slope."""
    if kernel.is_available() and x.device.type == "cpu":
        distance = distances(x, x)
        parts = (distance, y, line, error, there, trend.correlate(distance), trend.count(x, there), trend.prior)
        return run_processes("evidence", theta, period, *parts) + log_prior(theta)
    return compute_evidence(theta, period, x, y, error, there, trend, line)


def compute_evidence(
    theta: Float[Tensor, "c g 7"],
    period: Float[Tensor, "c"],
    x: Float[Tensor, "c m dx"],
    y: Float[Tensor, "c m"],
    error: Float[Tensor, "c m"],
    there: Bool[Tensor, "c m"],
    trend: Trend = SUBTRACTED,
    line: Float[Tensor, "c m"] | None = None,
) -> Float[Tensor, "c g"]:
    """Return the same without the native kernel: the reference."""
    c, m = x.shape[:2]
    distance, y, count = distances(x, x), torch.where(there, y, 0), there.sum(1)
    line = torch.zeros_like(y) if line is None else torch.where(there, line, 0)
    taken, parts = trend.count(x, there).clamp_max(1), []  # the same of all kernels: their values are compared
    for piece in theta.split(max(1, _MAX_ENTRIES // max(1, c * m * m)), 1):
        size = piece.shape[1]
        each = [part.repeat_interleave(size, 0) for part in (period, distance, error, there, y, line)]
        flat = piece.flatten(0, 1)
        no_slope = flat[:, 6]
        own = correlate(flat, each[0], each[1]) + trend.covary(no_slope, trend.correlate(each[1]))
        covariance = add_noise(own, flat, each[2], each[3])
        factor = factorise(covariance)
        values = each[4] + no_slope[:, None] * each[5]
        white = torch.linalg.solve_triangular(factor, values[..., None], upper=False)[..., 0]
        evidence = log_evidence(
            factor, white.square().sum(-1), count.repeat_interleave(size), taken.repeat_interleave(size)
        )
        parts.append(evidence.view(c, size))
    return torch.cat(parts, 1) + log_prior(theta)
