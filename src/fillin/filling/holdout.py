"""Hold-out scores: some observed values are left out, predicted from the others, and compared."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.metrics import crps
from fillin.runtime import Tick

if TYPE_CHECKING:
    from fillin.models import Process
    from fillin.predictive import GaussianMixture

PATTERNS = ("points at random", "blocks")
ROUNDS = 3
HELD_OUT_SHARE = 0.2
MIN_OBSERVED = 8  # values of a series or field that is scored


@dataclass(frozen=True)
class NumericScore:
    """Errors in standard deviations of the data, beside those of a baseline, and coverage of the 95 % interval."""

    name: str  # of a pattern or column
    n: int
    rmse: float
    baseline_rmse: float
    coverage_95: float

    def cells(self) -> dict[str, str]:
        """Return the score as a row of the report."""
        return {
            "numbers": self.name, "held out": f"{self.n:,}", "RMSE": f"{self.rmse:.3f}",
            "RMSE of the mean": f"{self.baseline_rmse:.3f}", "in 95 %": f"{self.coverage_95:.0%}",
        }  # fmt: skip


@dataclass(frozen=True)
class InterpolationScore(NumericScore):
    """Hold-out score compared with linear interpolation, with CRPS and coverage of the 50 % interval."""

    crps: float
    coverage_50: float

    @property
    def skill(self) -> float:
        """Return 1 − RMSE / RMSE of linear interpolation: 0 is no better, 1 perfect."""
        return 1 - self.rmse / self.baseline_rmse if self.baseline_rmse else 0.0

    def cells(self) -> dict[str, str]:
        return {
            "held out": self.name, "points": f"{self.n:,}", "skill": f"{self.skill:+.2f}", "RMSE": f"{self.rmse:.3f}",
            "RMSE linear": f"{self.baseline_rmse:.3f}", "CRPS": f"{self.crps:.3f}",
            "in 50 %": f"{self.coverage_50:.0%}", "in 95 %": f"{self.coverage_95:.0%}",
        }  # fmt: skip


@dataclass(frozen=True)
class ClassScore:
    """Accuracy beside that of the most frequent class, and the mean log probability of the truth."""

    name: str
    n: int
    accuracy: float
    baseline_accuracy: float
    log_prob: float

    def cells(self) -> dict[str, str]:
        """Return the score as a row of the report."""
        return {
            "classes": self.name, "held out": f"{self.n:,}", "accuracy": f"{self.accuracy:.0%}",
            "most frequent class": f"{self.baseline_accuracy:.0%}", "mean ln p": f"{self.log_prob:.3f}",
        }  # fmt: skip


class HoldoutData(ABC):
    """Observed values `y` of one series or field, some of which can be held out."""

    y: Float[ndarray, "n"]

    @property
    def n_held_out(self) -> int:
        return max(1, round(HELD_OUT_SHARE * len(self.y)))

    @abstractmethod
    def choose(self, pattern: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
        """Return which values to hold out: about `n_held_out`, in one of the PATTERNS."""

    @abstractmethod
    def predict(
        self, held_out: Bool[ndarray, "n"], model: "Process", tick: Tick
    ) -> "tuple[GaussianMixture, Float[ndarray, 'm']]":
        """Predict the held-out values from the others, by the model and by linear interpolation."""


def count_predictions(datasets: Sequence[HoldoutData]) -> int:
    """Return how many values `score_holdout` predicts."""
    return sum(len(PATTERNS) * ROUNDS * data.n_held_out for data in datasets)


def score_holdout(
    datasets: Sequence[HoldoutData], model: "Process", seed: int = 0, tick: Tick = lambda done: None
) -> list[InterpolationScore]:
    """Return the score of each pattern; none where too little is observed."""
    random = np.random.default_rng(seed)
    scores = []
    for pattern in PATTERNS if datasets else ():
        rounds = [_score_round(data, pattern, random, model, tick) for data in datasets for _ in range(ROUNDS)]
        error, linear, loss, inside_50, inside_95 = np.concatenate(rounds, axis=1)
        rmse, linear_rmse = (float(np.sqrt((e**2).mean())) for e in (error, linear))
        loss, coverage_50, coverage_95 = (float(values.mean()) for values in (loss, inside_50, inside_95))
        scores.append(InterpolationScore(pattern, len(error), rmse, linear_rmse, coverage_95, loss, coverage_50))
    return scores


def _score_round(
    data: HoldoutData, pattern: str, random: np.random.Generator, model: "Process", tick: Tick
) -> Float[ndarray, "5 n"]:
    """Return, for each held-out value, error, linear error, CRPS, and whether the 50 % and 95 % intervals hold it."""
    held_out = data.choose(pattern, random)
    prediction, linear = data.predict(held_out, model, tick)
    truth, unit = data.y[held_out], float(data.y.std()) or 1.0
    low_95, low_50, high_50, high_95 = prediction.quantiles(np.array([0.025, 0.25, 0.75, 0.975]))
    inside = (low_50 <= truth) & (truth <= high_50), (low_95 <= truth) & (truth <= high_95)
    mean = prediction.moments()[0]
    return np.stack(
        [
            (mean - truth) / unit,
            (linear - truth) / unit,
            crps(prediction, truth) / unit,
            *(i.astype(float) for i in inside),
        ]
    )


def choose_points(n: int, n_held_out: int, pattern: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
    """Return which of n points in a row to hold out: anywhere, or in blocks of 3 to 12 % each."""
    held_out = np.zeros(n, dtype=bool)
    if pattern == PATTERNS[0]:
        held_out[random.permutation(n)[:n_held_out]] = True
        return held_out
    while held_out.sum() < n_held_out:
        length = min(max(1, round(n * random.uniform(0.03, 0.12))), n_held_out - int(held_out.sum()))
        start = int(random.integers(0, n - length + 1))
        held_out[start : start + length] = True
    return held_out


def explain_scores(scores: Sequence[Any], unit: str, seed: int) -> str:
    """Return a paragraph that explains the interpolation scores of each `unit`, a series or a field."""
    if not scores:
        return "Too few values are observed to hold any out."
    return (
        f"In {ROUNDS} rounds per {unit}, a fifth of its observed values was held out (seed {seed}). Errors are in "
        f"standard deviations of the {unit}. Skill is 1 − RMSE / RMSE of linear interpolation: 0 is no better than "
        "linear interpolation, 1 is perfect. CRPS is the error of the whole predictive distribution. The last two "
        "columns give the share of held-out values inside intervals that should hold 50 % and 95 %."
    )
