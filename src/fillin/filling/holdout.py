"""How well it does where the truth is known: some of what is known is hidden on purpose, filled, and compared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.filling.series.run import Asked, Series, Tick
from fillin.metrics import crps

if TYPE_CHECKING:
    from fillin.models import Process
    from fillin.predictive import GaussianMixture

WAYS = ("points at random", "blocks")
ROUNDS = 3
SHARE = 0.2  # hidden
FEWEST, _LONGEST = 8, 2000  # known points of a series that is looked at, and of which a stretch is enough
_SERIES = 12


@dataclass(frozen=True)
class Verdict:
    """Errors in deviations of the series: of ours, of linear interpolation; CRPS; the share inside 50 % and 95 %."""

    way: str
    points: int
    rmse: float
    rmse_linear: float
    crps: float
    inside_50: float
    inside_95: float

    @property
    def skill(self) -> float:
        """1 − RMSE / RMSE of linear interpolation: 0 is no better, 1 perfect."""
        return 1 - self.rmse / self.rmse_linear if self.rmse_linear else 0.0


@runtime_checkable
class Subject(Protocol):
    """What is known of one series or field, some of which can be hidden."""

    @property
    def y(self) -> Float[ndarray, "n"]: ...

    def hide(self, number: int, way: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
        """About so many of the known points, in one of the WAYS."""
        ...

    def guess(self, hidden: Bool[ndarray, "n"], tick: Tick) -> tuple["GaussianMixture", Float[ndarray, "m"]]:
        """What is believed of the hidden points from the others, and linear interpolation's word on them."""
        ...


@dataclass(frozen=True)
class SeriesSubject:
    one: Series
    model: "Process"
    asked: Asked

    @property
    def y(self) -> Float[ndarray, "n"]:
        return self.one.y

    def hide(self, number: int, way: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
        order = np.argsort(self.one.x, kind="stable")
        return hide(len(self.one.y), number, way, random)[np.argsort(order)]  # blocks are of neighbours

    def guess(self, hidden: Bool[ndarray, "n"], tick: Tick) -> tuple["GaussianMixture", Float[ndarray, "m"]]:
        one = self.one
        error = None if one.error is None else one.error[~hidden]
        rest = replace(one, x=one.x[~hidden], y=one.y[~hidden], error=error)
        belief = rest.ready(self.model, self.asked)(one.x[hidden], tick)
        sides = np.argsort(rest.x, kind="stable")
        return belief, np.interp(one.x[hidden], rest.x[sides], rest.y[sides], period=self.asked.period or None)


def judged(series: list[Series]) -> list[Series]:
    """Those with enough known points, the longest first, of long ones a stretch in the middle."""
    found = sorted((one for one in series if len(one.y) >= FEWEST), key=lambda one: -len(one.y))[:_SERIES]
    return [_stretch(one) for one in found]


def _stretch(one: Series) -> Series:
    order = np.argsort(one.x, kind="stable")
    start = max(0, (len(order) - _LONGEST) // 2)
    rows = order[start : start + _LONGEST]
    return replace(one, x=one.x[rows], y=one.y[rows], error=None if one.error is None else one.error[rows])


def subjects(series: list[Series], model: "Process", asked: Asked) -> list[SeriesSubject]:
    """The series that are judged."""
    return [SeriesSubject(one, model, asked) for one in judged(series)]


def judge(
    series: list[Series], model: "Process", asked: Asked, seed: int = 0, tick: Tick = lambda done: None
) -> list[Verdict]:
    """Of series: see `verdicts`."""
    return verdicts(subjects(series, model, asked), seed, tick)


def ticks(chosen: Sequence[Subject]) -> int:
    """How many points `verdicts` will ask for."""
    return sum(len(WAYS) * ROUNDS * _number(one) for one in chosen)


def verdicts(chosen: Sequence[Subject], seed: int = 0, tick: Tick = lambda done: None) -> list[Verdict]:
    """A verdict for each way of hiding; none where too little is known."""
    random = np.random.default_rng(seed)
    found = []
    for way in WAYS if chosen else ():
        parts = [_round(one, way, random, tick) for one in chosen for _ in range(ROUNDS)]
        error, linear, loss, half, most = np.concatenate(parts, axis=1)
        rmse, rmse_linear = (float(np.sqrt((e**2).mean())) for e in (error, linear))
        shares = (float(share.mean()) for share in (loss, half, most))
        found.append(Verdict(way, len(error), rmse, rmse_linear, *shares))
    return found


def _number(one: Subject) -> int:
    return max(1, round(SHARE * len(one.y)))


def _round(one: Subject, way: str, random: np.random.Generator, tick: Tick) -> Float[ndarray, "5 n"]:
    """Of each hidden point: error, that of linear interpolation, CRPS, whether the 50 % and 95 % bands hold it."""
    hidden = one.hide(_number(one), way, random)
    belief, linear = one.guess(hidden, tick)
    truth, unit = one.y[hidden], float(one.y.std()) or 1.0
    loss = crps(belief, truth)
    least, low, high, most = belief.quantiles(np.array([0.025, 0.25, 0.75, 0.975]))
    inside = (low <= truth) & (truth <= high), (least <= truth) & (truth <= most)
    mean = belief.moments()[0]
    return np.stack([(mean - truth) / unit, (linear - truth) / unit, loss / unit, *(i.astype(float) for i in inside)])


def hide(n: int, number: int, way: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
    """`number` of n points in a row: anywhere, or in blocks of 3 to 12 % each."""
    hidden = np.zeros(n, dtype=bool)
    if way == "points at random":
        hidden[random.permutation(n)[:number]] = True
        return hidden
    while hidden.sum() < number:
        length = min(max(1, round(n * random.uniform(0.03, 0.12))), number - int(hidden.sum()))
        start = int(random.integers(0, n - length + 1))
        hidden[start : start + length] = True
    return hidden
