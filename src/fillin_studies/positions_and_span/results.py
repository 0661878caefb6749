"""Cells of one way taken together, and the thesis's tests of one against another."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fillin_studies.positions_and_span.variants import CUT, CUT_HARD, CUT_SCORES, FADED, FADED_SCORES, SINUSOID, SIREN
from fillin_studies.positions_and_span.variants import THESIS as OWN

SURE = 0.05  # a p-value below it is taken for a difference, as in the thesis

Key = tuple[int, str]  # dimensions, name of a way


@dataclass(frozen=True)
class Group:
    """What was measured of one way on one set of images, seed by seed."""

    data: str
    dims: int
    name: str
    cells: list[dict[str, Any]]

    @property
    def accuracies(self) -> list[float]:
        return [cell["accuracy"] for cell in self.cells]

    @property
    def deviation(self) -> float:
        """Over seeds; of one there is none."""
        return statistics.stdev(self.accuracies) if len(self.cells) > 1 else 0.0

    def mean(self, key: str = "accuracy") -> float:
        return statistics.fmean(cell[key] for cell in self.cells)

    @property
    def shares(self) -> list[float]:
        """Of pairs that each layer computes, on average over seeds."""
        return [statistics.fmean(layer) for layer in zip(*(cell["shares"] for cell in self.cells), strict=True)]

    @property
    def sigmas(self) -> list[float] | None:
        """σ of each layer: the geometric mean over heads, axes and seeds."""
        if any(layer is None for cell in self.cells for layer in cell["sigma"]):
            return None
        layers = zip(*(cell["sigma"] for cell in self.cells), strict=True)
        return [
            math.exp(statistics.fmean(math.log(s) for seed in layer for head in seed for s in head)) for layer in layers
        ]

    @property
    def title(self) -> str:
        return f"{self.dims}-D, {self.name}"


def grouped(measured: Sequence[dict[str, Any]]) -> dict[str, dict[Key, Group]]:
    """By set of images, then by dimensions and way, in the order of the cells."""
    found: dict[str, dict[Key, Group]] = {}
    for cell in measured:
        data, dims, name = cell["variant"].split(", ", 2)
        key = int(dims[0]), name
        found.setdefault(data, {}).setdefault(key, Group(data, *key, [])).cells.append(cell)
    return found


@dataclass(frozen=True)
class Comparison:
    """Welch's t-test of H₁, that the first is more accurate than the second, against H₀, that they are alike."""

    one: Group
    other: Group
    p: float | None

    @property
    def points(self) -> float:
        return 100 * (self.one.mean() - self.other.mean())

    @property
    def verdict(self) -> str:
        if self.p is None:
            return "no test"
        return "higher" if self.p < SURE else "lower" if self.p > 1 - SURE else "no difference shown"


HYPOTHESES: tuple[tuple[Key, Key], ...] = (
    ((1, SIREN), (1, SINUSOID)),
    ((2, SIREN), (2, SINUSOID)),
    ((2, SIREN), (1, SIREN)),
    ((1, FADED), (1, SIREN)),
    ((1, FADED_SCORES), (1, SIREN)),
    ((1, CUT), (1, FADED)),
    ((1, OWN), (1, FADED_SCORES)),
    ((2, FADED), (2, SIREN)),
    ((2, FADED_SCORES), (2, SIREN)),
    ((2, CUT), (2, FADED)),
    ((2, OWN), (2, FADED_SCORES)),
    ((2, CUT), (2, SIREN)),
    ((2, CUT), (2, CUT_SCORES)),
    ((2, CUT), (2, CUT_HARD)),
)


def compared(groups: dict[Key, Group]) -> list[Comparison]:
    """Every hypothesis of which both sides were measured."""
    return [compare(groups[one], groups[other]) for one, other in HYPOTHESES if one in groups and other in groups]


def compare(one: Group, other: Group) -> Comparison:
    """With one seed, or with no spread at all, there is nothing to test."""
    from scipy.stats import ttest_ind

    if min(len(one.cells), len(other.cells)) < 2 or one.deviation == other.deviation == 0:
        return Comparison(one, other, None)
    found: Any = ttest_ind(one.accuracies, other.accuracies, equal_var=False, alternative="greater")
    return Comparison(one, other, float(found.pvalue))
