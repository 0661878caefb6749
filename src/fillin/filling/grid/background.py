"""Background of fields in slices: the prediction of every cell from the same cell in the other slices.

Over the cells of a field, the values of all slices have a mean m and a covariance C, both estimated from the observed
cells by expectation–maximisation. A cell is then predicted from its values in the other slices,

    μ_t = m_t + C_ts (C_ss + D)⁻¹ (y_s − m_s),

never from itself, with the variance of that prediction. C contains the climatology (all slices go together), seasons,
leading patterns (empirical orthogonal functions) and the likeness of neighbours in time; its shrinkage towards equal
correlations of all slices is chosen on held-out cells. Missing cells of the other slices are first completed by what
their neighbours in space differ from their own background, with the error D of that. The pretrained model fills the
differences y − μ, in units of their standard deviations.

A cell depends on its own values and on those within `REACH` cells, so that blocks compute the same background.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.ndimage import correlate1d, gaussian_filter1d

from fillin.warp import BoundsWarp

MIN_SLICES = 8
_NEAREST, _TARGETS, _THINNED = 48, 24, 16  # slices of a group, of which it predicts these, and more from all others
_ROUNDS = 6  # of expectation–maximisation
_RIDGE = 1e-6  # of the covariance
MIN_CELLS = 8  # observed ones that show the mean and the spread of a slice
_WIDTHS = (1, 2, 4, 8)  # of the weights of neighbours, in cells
_ENOUGH = 0.3  # share of observed cells, so weighted, from which on no wider mean is needed
_SMOOTHING_ROUNDS = 16
REACH = 3 * max(_WIDTHS) + _SMOOTHING_ROUNDS  # cells around a cell that its background depends on
_MAX_BATCH = 4_000_000  # numbers of the matrices that are inverted together


class SliceGroup(NamedTuple):
    """Slices with the mean and the covariance of their standardised values; `targets` are those that it predicts."""

    slices: Int[ndarray, "s"]
    targets: Bool[ndarray, "s"]
    mean: Float[ndarray, "s"]
    covariance: Float[ndarray, "s s"]


@dataclass(frozen=True)
class Background:
    """Covariances of slices, and the errors on held-out cells without and with them, in standard deviations.

    `rest` is the root mean square of the standardised differences from the background at observed cells, `excess` the
    same at held-out cells over it: the covariance fits the cells better that it was estimated from. `spread_error` is
    the share of the variance of a difference that remains when its neighbours in space predict it.
    """

    groups: tuple[SliceGroup, ...]
    centre: Float[ndarray, "t"]
    scale: Float[ndarray, "t"]
    shrinkage: float
    spread_error: float = 0.5
    error_alone: float = 0.0
    error: float = 0.0
    rest: float = 1.0
    excess: float = 1.0

    def fields(
        self, values: Float[ndarray, "t *cells"], periodic: Sequence[bool] = ()
    ) -> tuple[Float[ndarray, "t *cells"], Float[ndarray, "t *cells"]]:
        """Return the mean and the standard deviation of cells given their values in other slices, NaN where missing.

        Axes of the field may be periodic. A slice with hardly any observed cell has a constant background.
        """
        shape, t = values.shape, len(values)
        z = (values.reshape(t, -1) - self.centre[:, None]) / self.scale[:, None]
        mean, std = np.zeros(z.shape), np.ones(z.shape)
        for group in self.groups:
            part = z[group.slices]
            seen = np.isfinite(part)
            first, first_std = predict_slices(group, part, np.where(seen, 0.0, np.inf))
            field = len(group.slices), *shape[1:]
            rest, near = spread_to_neighbours(((part - first) / first_std).reshape(field), periodic)
            completed = np.where(seen, part, first + first_std * rest.reshape(part.shape))
            noise = np.where(near.reshape(part.shape), self.spread_error * first_std**2, np.inf)
            second, second_std = predict_slices(group, completed, np.where(seen, 0.0, noise))
            rows = group.slices[group.targets]
            mean[rows], std[rows] = second[group.targets], second_std[group.targets]
        mean, std = self.centre[:, None] + self.scale[:, None] * mean, self.scale[:, None] * std
        return mean.reshape(shape), std.reshape(shape)

    def learned_again(self, values: Float[ndarray, "t *cells"]) -> "Background":
        """Return the background with the same settings learned from these values, NaN where missing."""
        values = values.reshape(len(values), -1)
        return replace(self, **learn_groups(values, self.shrinkage))

    def widen(self, std: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
        """Return the factors by which standard deviations of standardised differences grow: by the excess far from
        observed cells, where they reach `rest`, and by nothing beside them."""
        share = np.minimum(1.0, np.square(std / self.rest))
        return np.sqrt(1 + (self.excess**2 - 1) * share)

    def sources(self, t: int, count: int = 3) -> list[tuple[int, float]]:
        """Return the other slices that weigh most in the prediction of slice t, and their shares of all weights."""
        for group in self.groups:
            at = np.flatnonzero((group.slices == t) & group.targets)
            if len(at):
                weights = np.abs(np.linalg.inv(group.covariance)[at[0]])
                weights[at[0]] = 0
                largest = np.argsort(-weights, kind="stable")[:count]
                return [(int(group.slices[i]), float(weights[i] / weights.sum())) for i in largest]
        return []

    def describe(self, slices: str) -> str:
        return (
            f"Slices along {slices} inform each other: each cell is first predicted from the same cell in the others, "
            f"by their covariance over all cells (shrunk by {self.shrinkage:g} towards equal correlations), and the "
            "model fills what differs from that. On held-out cells this reduces the error of linear interpolation from "
            f"{self.error_alone:.3f} to {self.error:.3f} standard deviations."
        )


def learn_groups(values: Float[ndarray, "t p"], shrinkage: float) -> dict:
    """Return `groups`, `centre` and `scale` of a background."""
    seen = np.isfinite(values)
    centre, scale = np.zeros(len(values)), np.ones(len(values))
    for t, (row, observed) in enumerate(zip(values, seen, strict=True)):
        if observed.sum() >= MIN_CELLS:
            centre[t], scale[t] = row[observed].mean(), row[observed].std()
    typical = np.median(scale[seen.sum(1) >= MIN_CELLS]) if (seen.sum(1) >= MIN_CELLS).any() else 1.0
    used = np.flatnonzero((seen.sum(1) >= MIN_CELLS) & (scale > 1e-9 * np.maximum(np.abs(centre), typical)))
    scale[scale <= 0] = 1.0
    groups = []
    if len(used) >= MIN_SLICES:
        z = (values - centre[:, None]) / scale[:, None]
        for slices, targets in _group_slices(len(used)):
            slices = used[slices]
            groups.append(SliceGroup(slices, targets, *_fit_covariance(z[slices], shrinkage)))
    return {"groups": tuple(groups), "centre": centre, "scale": scale}


def _group_slices(n: int) -> list[tuple[Int[ndarray, "s"], Bool[ndarray, "s"]]]:
    """Return the slices of each group, and which of them it predicts: all, or of many the nearest and a thinned sample
    of the rest."""
    if n <= _NEAREST + _THINNED:
        return [(np.arange(n), np.ones(n, dtype=bool))]
    groups = []
    for start in range(0, n, _TARGETS):
        first = min(max(0, start - (_NEAREST - _TARGETS) // 2), n - _NEAREST)
        near = np.arange(first, first + _NEAREST)
        others = np.setdiff1d(np.arange(n), near)
        thinned = others[np.linspace(0, len(others) - 1, _THINNED).round().astype(int)]
        slices = np.union1d(near, thinned)
        groups.append((slices, (slices >= start) & (slices < start + _TARGETS)))
    return groups


def _fit_covariance(z: Float[ndarray, "s p"], shrinkage: float) -> tuple[Float[ndarray, "s"], Float[ndarray, "s s"]]:
    """Return mean and covariance of slices over cells by expectation–maximisation, NaN where missing."""
    s = len(z)
    z = z[:, np.isfinite(z).any(0)]
    seen = np.isfinite(z)
    mean = np.where(seen, z, 0).sum(1) / seen.sum(1)
    rest = np.where(seen, z - mean[:, None], 0)
    values, vectors = np.linalg.eigh(rest @ rest.T / np.maximum(seen.astype(float) @ seen.T, 1))
    covariance = _shrink((vectors * np.maximum(values, _RIDGE * s)) @ vectors.T, shrinkage)
    patterns, which = np.unique(seen.T, axis=0, return_inverse=True)
    which, counts = which.ravel(), np.bincount(which.ravel())
    for _ in range(_ROUNDS if not seen.all() else 1):
        expected, precision = np.zeros_like(z), np.zeros((s, s))
        order = np.argsort(which, kind="stable")
        starts = np.concatenate([[0], np.cumsum(counts)])
        batch = max(1, _MAX_BATCH // s**2)
        rest = np.where(seen, z - mean[:, None], 0)
        for first in range(0, len(patterns), batch):
            inverses = _invert(covariance, np.where(patterns[first : first + batch], 0.0, np.inf))
            precision += np.einsum("g,gij->ij", counts[first : first + batch], inverses)
            for inverse, start, stop in zip(inverses, starts[first:], starts[first + 1 :], strict=False):
                cells = order[start:stop]
                expected[:, cells] = inverse @ rest[:, cells]
        expected = mean[:, None] + covariance @ expected
        mean = expected.mean(1)
        rest = expected - mean[:, None]
        moments = (rest @ rest.T) / z.shape[1] + covariance - covariance @ (precision / z.shape[1]) @ covariance
        covariance = _shrink((moments + moments.T) / 2, shrinkage)
    return mean, covariance


def _shrink(covariance: Float[ndarray, "s s"], shrinkage: float) -> Float[ndarray, "s s"]:
    """Return the covariance moved towards equal variances and equal correlations, with a small ridge."""
    s = len(covariance)
    variance = float(np.trace(covariance)) / s
    common = float(np.clip((covariance.sum() - s * variance) / (s * (s - 1)), 0, variance))
    target = np.full((s, s), common) + (variance - common) * np.eye(s)
    return (1 - shrinkage) * covariance + shrinkage * target + _RIDGE * variance * np.eye(s)


def _invert(covariance: Float[ndarray, "s s"], noise: Float[ndarray, "p s"]) -> Float[ndarray, "p s s"]:
    """Return the inverses of covariance + diag(noise) among the slices of finite noise, 0 for the others."""
    s = len(covariance)
    present = np.isfinite(noise)
    matrices = np.where(present[:, :, None] & present[:, None], covariance, 0.0)
    matrices[:, np.arange(s), np.arange(s)] += np.where(present, noise, 1.0)
    inverses = np.linalg.inv(matrices)
    inverses[:, np.arange(s), np.arange(s)] *= present
    return inverses


def predict_slices(
    group: SliceGroup, z: Float[ndarray, "s p"], noise: Float[ndarray, "s p"]
) -> tuple[Float[ndarray, "s p"], Float[ndarray, "s p"]]:
    """Return mean and standard deviation of each cell of each slice given the other slices.

    `noise` is the variance of the error of each value: 0 where observed, infinite where there is none.
    """
    mean, std = np.empty(z.shape), np.empty(z.shape)
    batch = max(1, _MAX_BATCH // len(z) ** 2)
    for first in range(0, z.shape[1], batch):
        cells = slice(first, first + batch)
        errors, present = noise[:, cells].T, np.isfinite(noise[:, cells].T)
        rest = np.where(present, z[:, cells].T - group.mean, 0.0)
        patterns, which = np.unique(errors, axis=0, return_inverse=True)
        inverses = _invert(group.covariance, patterns)[which.ravel()]
        weighted = np.einsum("pij,pj->pi", inverses, rest)
        diagonal = np.where(present, np.einsum("pii->pi", inverses), 1.0)
        variance = np.where(present, 1 / diagonal - np.where(present, errors, 0), 1.0)
        expected = np.where(present, rest - weighted / diagonal, weighted @ group.covariance)
        some = np.flatnonzero(~present.all(1))
        if len(some):
            explained = np.einsum("pij,ij->pi", group.covariance @ inverses[some], group.covariance)
            variance[some] = np.where(present[some], variance[some], np.diag(group.covariance) - explained)
        mean[:, cells] = group.mean[:, None] + expected.T
        std[:, cells] = np.sqrt(np.maximum(variance, _RIDGE)).T
    return mean, std


def spread_to_neighbours(
    rest: Float[ndarray, "s *cells"], periodic: Sequence[bool]
) -> tuple[Float[ndarray, "s *cells"], Bool[ndarray, "s *cells"]]:
    """Spread values, NaN where missing, to the cells around them: weighted means over growing distances, then means of
    neighbours. Return them, and where any value was near."""
    seen, axes = np.isfinite(rest), range(1, rest.ndim)
    rest = np.where(seen, rest, 0.0)
    modes = ["wrap" if i < len(periodic) and periodic[i] else "nearest" for i in range(rest.ndim - 1)]
    total, weight = np.zeros_like(rest), np.zeros_like(rest)
    for width in _WIDTHS:
        smooth = [rest, seen.astype(float)]
        for axis, mode in zip(axes, modes, strict=True):
            smooth = [gaussian_filter1d(part, width, axis=axis, mode=mode, radius=3 * width) for part in smooth]
        share = np.minimum(1 - weight, smooth[1] / _ENOUGH)
        total += share * smooth[0] / np.maximum(smooth[1], 1e-12)
        weight += share
    spread, near = np.where(seen, rest, total), weight > 0.5
    kernel = np.array([0.5, 0.0, 0.5])
    for _ in range(_SMOOTHING_ROUNDS):
        means = [correlate1d(spread, kernel, axis=axis, mode=mode) for axis, mode in zip(axes, modes, strict=True)]
        spread = np.where(seen | ~near, spread, np.mean(means, 0))
    return spread, near


def to_units(warp: BoundsWarp, values: ndarray) -> Float[ndarray, "..."]:
    """Return values in the units of the model, NaN where they are missing or outside the bounds."""
    with np.errstate(invalid="ignore", divide="ignore"):
        z = warp.forward(values.astype(float))
    return np.where(np.isfinite(z), z, np.nan)
