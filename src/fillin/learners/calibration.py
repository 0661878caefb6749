"""Calibration on held-out rows: how wide the predictions of an ensemble are, and how much of them is a GP's.

A mixture of members that disagree is too wide: it counts their disagreement V as error, but averaging removes it. With
σ² the variance of one member, calibrated by a factor t² on its held-out rows, the error of the mean of M members is

    t² σ² − (1 − 1/M) V

so each member's mixture is moved to the mean of all and narrowed by √(1 − (1 − 1/M) ρ), ρ = V / t²σ², estimated from
pairs of members that held out the same row (Ueda & Nakano 1996).

With a Gaussian process beside the members, the mean is (1 − w) of the members' and w of the GP's. With A the squared
error of the members' mean, B that of the GP, and C the mean product of the two errors (over held-out rows, weighted by
confidence), the squared error (1 − w)² A + w² B + 2 w (1 − w) C is least at

    w = (A − C) / (A + B − 2 C)

and t is fitted with each member moved there; averaging then removes (1 − w)² of V. Where held-out rows are not more
likely with it, w is 0. Where the GP is less certain than at any of its rows, predictions widen by the same factor.

One factor does not fit errors that are mostly small and occasionally large: where held-out rows are clearly more likely
so, a share of every prediction is one component that is several times as wide. Class probabilities are mixed at the w
of highest likelihood, where it is higher by more than chance.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import log_softmax

from fillin.predictive import Categorical, GaussianMixture, Predictive

_MIN_CELLS = 5  # held-out cells from which on a width is fitted
_MIN_PAIRS = 10  # pairs of members that held out the same row, to estimate their disagreement
_MIN_GP_CELLS, _MIN_GP_ROWS = 20, 100  # to fit the share of a GP: cells of numbers, rows of classes
_GP_SHARES, _GP_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 0.95), (2.0, 4.0, 8.0, 16.0)  # tried for classes
_TAIL_SHARES, _TAIL_FACTORS = (0.05, 0.1, 0.2), (2.0, 4.0)
_MIN_TAIL_GAIN = 2.0  # nats over all rows
_MAX_AVERAGED = 0.75  # the largest share of an error that averaging removes
_WIDTH_FACTORS = np.exp(np.linspace(np.log(0.2), np.log(3.0), 61))
_TEMPERATURES = np.exp(np.linspace(np.log(0.15), np.log(2.0), 41))
_FILE_KEYS = {"member": "one", "ensemble": "all", "gp_share": "guess", "gp_temperature": "heat", "gp_max_std": "reach",
              "tail_share": "tail", "tail_factor": "times"}  # fmt: skip


@dataclass(frozen=True)
class Calibration:
    """The calibration of one output column.

    `member` is the factor of the standard deviations of one member, `ensemble` that of the mean of all; for classes
    both are an inverse temperature. `gp_share` is the weight of the GP, `gp_temperature` (classes) its inverse
    temperature, `gp_max_std` its largest standard deviation at the rows of the table (0: not used). `tail_share` of
    the prediction is a component `tail_factor` times as wide.
    """

    member: float = 1.0
    ensemble: float = 1.0
    gp_share: float = 0.0
    gp_temperature: float = 1.0
    gp_max_std: float = 0.0
    tail_share: float = 0.0
    tail_factor: float = 1.0

    def mixture(self, members: GaussianMixture, gp: Float[ndarray, "n g"] | None) -> GaussianMixture:
        """One mixture [n m·k] of all members [m n k], in standard units; `gp` holds its mean and std."""
        centre, factor = members.mean.mean(0), np.asarray(self.ensemble)
        if gp is not None:
            centre = (1 - self.gp_share) * centre + self.gp_share * gp[:, 0]
            factor = factor * np.maximum(1.0, gp[:, 1] / self.gp_max_std if self.gp_max_std else 0.0)
        members = _add_tail(members, self.tail_share, self.tail_factor)
        moved = _scale_about_mean(members, factor, np.broadcast_to(centre, members.mean.shape))
        arrays = (moved.weights / len(moved.weights), moved.means, moved.stds)
        return untrimmed(*(np.moveaxis(part, 0, 1).reshape(part.shape[1], -1) for part in arrays))

    def probabilities(
        self, members: Float[ndarray, "m n k"], gp: Float[ndarray, "n g"] | None = None
    ) -> Float[ndarray, "n k"]:
        """The mean of the members' probabilities, each at the fitted temperature, mixed with the GP's."""
        mean = np.exp(log_softmax(self.ensemble * _log(members), -1)).mean(0)
        return mean if gp is None else self._mix(mean, gp)

    def _mix(self, probabilities: Float[ndarray, "*b k"], gp: Float[ndarray, "*b g"]) -> Float[ndarray, "*b k"]:
        logits = self.gp_temperature * gp[..., : probabilities.shape[-1]]
        return (1 - self.gp_share) * probabilities + self.gp_share * np.exp(log_softmax(logits, -1))

    def to_dict(self) -> dict[str, float]:
        """The calibration as saved files have it."""
        return {_FILE_KEYS[name]: value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Calibration":
        names = {key: name for name, key in _FILE_KEYS.items()}
        return cls(**{names[key]: value for key, value in data.items()})


@dataclass(frozen=True)
class HeldOut:
    """Held-out cells of each member: their values, which of them are observed, their row numbers, and the
    leave-one-out predictions of a GP (mean and std; one column per class)."""

    values: Float[ndarray, "m v"]
    observed: Bool[ndarray, "m v"]
    rows: Int[ndarray, "m v"]
    gp: Float[ndarray, "m v g"] | None = None


def untrimmed(
    weights: Float[ndarray, "*b k"], means: Float[ndarray, "*b k"], stds: Float[ndarray, "*b k"]
) -> GaussianMixture:
    """A mixture of many components, all of which count towards its moments however small their weights are."""
    return GaussianMixture(weights, means, stds, moment_weights=weights)


def fit_calibration(members: Predictive, held_out: HeldOut) -> Calibration:
    """Fit to the predictions [m v …] that each member makes of the rows it held out."""
    if held_out.observed.sum() < _MIN_CELLS:
        return Calibration()
    if isinstance(members, Categorical):
        return _fit_classes(members.probabilities, held_out)
    return _fit_numbers(members, held_out)


def _fit_numbers(members: GaussianMixture, held_out: HeldOut) -> Calibration:
    disagreement, pairs = _disagreement(members.mean, held_out)
    disagreement *= (1 - 1 / len(held_out.values)) * (pairs >= _MIN_PAIRS)
    gp_share, gp_max_std, centre = 0.0, 0.0, members.mean
    factor, fit = _fit_factor(members, centre, held_out)
    if held_out.gp is not None and held_out.observed.sum() >= _MIN_GP_CELLS:
        share = _fit_gp_share(members, held_out, disagreement)
        moved = (1 - share) * members.mean + share * held_out.gp[..., 0]
        moved_factor, moved_fit = _fit_factor(members, moved, held_out)
        if moved_fit > fit:  # moving would spoil a mixture with a spike at a value that many rows share
            gp_share, factor, fit, centre = share, moved_factor, moved_fit, moved
            gp_max_std = float(held_out.gp[..., 1][held_out.observed].max())
    factor, tail_share, tail_factor = _fit_tail(members, centre, held_out, factor, fit)
    variance = _add_tail(members, tail_share, tail_factor).std[held_out.observed] ** 2
    within = factor**2 * float(variance.mean())
    averaged = min(_MAX_AVERAGED, (1 - gp_share) ** 2 * disagreement / within) if within > 0 else 0.0
    ensemble = factor * float(np.sqrt(1 - averaged))
    return Calibration(
        factor, ensemble, gp_share, gp_max_std=gp_max_std, tail_share=tail_share, tail_factor=tail_factor
    )


def _add_tail(members: GaussianMixture, share: float, factor: float) -> GaussianMixture:
    """Give `share` of each mixture to a component about its mean that is `factor` times as wide as the mixture."""
    if not share:
        return members
    mean, wide = members.mean[..., None], factor * members.std[..., None]
    weights = np.concatenate([members.weights * (1 - share), np.full_like(mean, share)], -1)
    return untrimmed(weights, np.concatenate([members.means, mean], -1), np.concatenate([members.stds, wide], -1))


def _scale_about_mean(members: GaussianMixture, factor: Any, centre: Float[ndarray, "m n"]) -> GaussianMixture:
    """Narrow or widen each mixture about its mean, which moves to `centre`."""
    factor = np.asarray(factor)[..., None]
    means = centre[..., None] + factor * (members.means - members.mean[..., None])
    return replace(members, means=means, stds=factor * members.stds)


def _fit_tail(
    members: GaussianMixture, centre: Float[ndarray, "m v"], held_out: HeldOut, factor: float, fit: float
) -> tuple[float, float, float]:
    """t, and the share and width of a wide component that make held-out rows most likely, where they clearly are."""
    candidates = [
        (*_fit_factor(_add_tail(members, share, times), centre, held_out), share, times)
        for share in _TAIL_SHARES
        for times in _TAIL_FACTORS
    ]
    tail_factor, tail_fit, share, times = max(candidates, key=lambda candidate: candidate[1])
    n_rows = len(np.unique(held_out.rows[held_out.observed]))
    return (tail_factor, share, times) if n_rows * (tail_fit - fit) > _MIN_TAIL_GAIN else (factor, 0.0, 1.0)


def _fit_factor(members: GaussianMixture, centre: Float[ndarray, "m v"], held_out: HeldOut) -> tuple[float, float]:
    """t, the factor of highest likelihood when each member is moved to `centre`; and the mean ln p it gives."""
    fits = []
    for factor in _WIDTH_FACTORS:
        log_prob = _scale_about_mean(members, factor, centre).log_prob(held_out.values)
        fits.append(float(np.clip(log_prob[held_out.observed], -20, None).mean()))
    best = int(np.argmax(fits))
    return float(_WIDTH_FACTORS[best]), fits[best]


def _disagreement(means: Float[ndarray, "m v"], held_out: HeldOut) -> tuple[float, int]:
    """V = ½ E (μ_a − μ_b)² over rows that two members both held out, and the number of such pairs."""
    rows, means = held_out.rows[held_out.observed], means[held_out.observed]
    order = np.argsort(rows, kind="stable")
    rows, means = rows[order], means[order]
    is_pair = rows[1:] == rows[:-1]
    squares = (means[1:] - means[:-1])[is_pair] ** 2
    return float(0.5 * squares.mean()) if is_pair.any() else 0.0, int(is_pair.sum())


def _fit_gp_share(members: GaussianMixture, held_out: HeldOut, averaged: float) -> float:
    """w; `averaged` is the squared error that averaging the members removes."""
    assert held_out.gp is not None
    gp_mean, gp_std = held_out.gp[held_out.observed].T
    error = (members.mean - held_out.values)[held_out.observed]
    gp_error = gp_mean - held_out.values[held_out.observed]
    confidence = 1 / (members.std[held_out.observed] ** 2 + gp_std**2)
    a, b, c = (
        float((confidence * product).sum() / confidence.sum()) for product in (error**2, gp_error**2, error * gp_error)
    )
    a -= min(_MAX_AVERAGED, averaged / float((error**2).mean() + 1e-12)) * a
    denominator = a + b - 2 * c
    return float(np.clip((a - c) / denominator, 0, 1)) if denominator > 0 else 0.0


def _fit_classes(members: Float[ndarray, "m v k"], held_out: HeldOut) -> Calibration:
    logits, codes = _log(members[held_out.observed]), held_out.values[held_out.observed].astype(int)
    cells = np.arange(len(codes)), codes
    fits = [log_softmax(t * logits, -1)[cells].mean() for t in _TEMPERATURES]
    temperature = float(_TEMPERATURES[int(np.argmax(fits))])
    alone, rows = Calibration(temperature, temperature), held_out.rows[held_out.observed]
    if held_out.gp is None or len(np.unique(rows)) < _MIN_GP_ROWS:
        return alone
    probabilities, gp = np.exp(log_softmax(temperature * logits, -1)), held_out.gp[held_out.observed]

    def log_prob(calibration: Calibration) -> Float[ndarray, "c"]:
        return _log(calibration._mix(probabilities, gp))[cells]

    mixed = [Calibration(temperature, temperature, w, heat) for w in _GP_SHARES for heat in _GP_TEMPERATURES]
    best = max(mixed, key=lambda calibration: log_prob(calibration).mean())
    _, number = np.unique(rows, return_inverse=True)
    gain = np.bincount(number, log_prob(best) - log_prob(alone)) / np.bincount(number)  # cells of one row count once
    is_significant = float(gain.mean()) > 2 * float(gain.std()) / len(gain) ** 0.5
    return best if is_significant else alone


def _log(probabilities: Float[ndarray, "*b k"]) -> Float[ndarray, "*b k"]:
    """Finite logarithms of probabilities."""
    return np.log(np.maximum(probabilities, 1e-12))
