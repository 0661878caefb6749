"""How wide the answer of all members is, and how much of it a process has, from rows that they held out.

A mixture of members that disagree is too wide: it counts their disagreement V as error, where averaging takes it away.
With σ² the variance of one member, calibrated by a factor t² on what it held out, the mean of M of them is off by

    t² σ² − (1 − 1/M) V

so each member's mixture is moved to the mean of all, and narrowed by √(1 − (1 − 1/M) ρ), ρ = V / t²σ², which pairs of
members that both held out a row tell (Ueda & Nakano 1996).

Where a process guesses too, the mean is (1 − w) of the members' and w of its own. With A the square error of the mean
of all members, B of the guess, and C the mean product of the two errors (of held-out rows, those that are told surely
counting more), the square error (1 − w)² A + w² B + 2 w (1 − w) C is least at

    w = (A − C) / (A + B − 2 C)

and t is found with each member moved there; averaging then takes away (1 − w)² of V. Where rows are not likelier with
it, w is 0. Beyond where it has rows a process is less sure than it was of any, and the answer is as many times wider.

One factor does not do for errors that are mostly small and now and then large: where rows are clearly likelier so, a
share of every answer is in one part that is several times as wide. Of classes, chances are mixed, at the w that is
likeliest, where it is so by more than chance.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.learners.member_predictions import Members, Said, log_odds, log_softmax
from fillin.predictive import Answer

_FEWEST = 5  # cells that tell how wide
_PAIRS = 10  # of members, that tell how far they disagree
_GUESSED, _LABELLED = 20, 100  # cells that tell how good a guess at a number is, and rows with a class
_SHARES, _HEATS = (0.2, 0.4, 0.6, 0.8, 0.95), (2.0, 4.0, 8.0, 16.0)  # of a process that guesses classes
_TAILS, _TIMES = (0.05, 0.1, 0.2), (2.0, 4.0)  # shares of what is wide, and how wide
_CLEARLY = 2.0  # nats, over all rows
_MOST_AVERAGED = 0.75  # of an error that averaging takes away


@dataclass(frozen=True)
class Widths:
    """Of one told column: a factor of the deviations of one member, and one for the mean of all. Of classes the first
    is an inverse temperature. `guess` is the share of a process in the answer, `heat` (of classes) how sure it is;
    `reach` is its largest deviation where it has rows (0: it does not matter); `tail` the share of what is `times` as
    wide."""

    one: float = 1.0
    all: float = 1.0
    guess: float = 0.0
    heat: float = 1.0
    reach: float = 0.0
    tail: float = 0.0
    times: float = 1.0

    def numbers(self, said: Members, guess: Float[ndarray, "n g"] | None) -> Answer:
        """All as one, in standard units; of the guess the first column is its mean."""
        centre, factor = said.mean.mean(0), self.all
        if guess is not None:
            centre = (1 - self.guess) * centre + self.guess * guess[:, 0]
            factor = factor * np.maximum(1.0, guess[:, 1] / self.reach if self.reach else 0.0)
        return said.tailed(self.tail, self.times).around(centre, factor)

    def chances(self, said: Float[ndarray, "m n k"], guess: Float[ndarray, "n g"] | None = None):
        """The mean of the members' probabilities, each at the temperature that fits, and the share of the guess."""
        chances = np.exp(log_softmax(self.all * log_odds(said))).mean(0)
        return chances if guess is None else self._mixed(chances, guess)

    def _mixed(self, chances: Float[ndarray, "*b k"], guess: Float[ndarray, "*b g"]) -> Float[ndarray, "*b k"]:
        return (1 - self.guess) * chances + self.guess * np.exp(
            log_softmax(self.heat * guess[..., : chances.shape[-1]])
        )


@dataclass(frozen=True)
class HeldOut:
    """Of each member: what the rows that it held out hold, where that is known, the numbers of those rows, and what a
    process that did not know it guesses (mean and deviation; of classes one number each)."""

    value: Float[ndarray, "m v"]
    there: Bool[ndarray, "m v"]
    rows: Int[ndarray, "m v"]
    guess: Float[ndarray, "m v g"] | None = None


def widths_of(said: Said, held: HeldOut) -> Widths:
    if held.there.sum() < _FEWEST:
        return Widths()
    return _of_numbers(said, held) if isinstance(said, Members) else _of_classes(said, held)


def _of_numbers(said: Members, held: HeldOut) -> Widths:
    apart, pairs = _disagreement(said.mean, held)
    apart *= (1 - 1 / len(held.value)) * (pairs >= _PAIRS)
    share, reach, centre, (one, fit) = 0.0, 0.0, said.mean, _factor(said, said.mean, held)
    if held.guess is not None and held.there.sum() >= _GUESSED:
        wanted = _share(said, held, apart)
        there = (1 - wanted) * said.mean + wanted * held.guess[..., 0]
        moved, better = _factor(said, there, held)
        if better > fit:  # mixtures may be of values that many rows have, which moving would spoil
            share, one, fit, centre = wanted, moved, better, there
            reach = float(held.guess[..., 1][held.there].max())
    one, tail, times = _tail(said, centre, held, one, fit)
    within = one**2 * float(said.tailed(tail, times).variance[held.there].mean())
    ratio = min(_MOST_AVERAGED, (1 - share) ** 2 * apart / within) if within > 0 else 0.0
    return Widths(one, one * float(np.sqrt(1 - ratio)), share, reach=reach, tail=tail, times=times)


def _tail(
    said: Members, centre: Float[ndarray, "m v"], held: HeldOut, one: float, fit: float
) -> tuple[float, float, float]:
    """t, and the share and width of a wide part with which rows are likeliest, where they clearly are."""
    each = [(*_factor(said.tailed(share, times), centre, held), share, times) for share in _TAILS for times in _TIMES]
    factor, better, share, times = max(each, key=lambda found: found[1])
    rows = len(np.unique(held.rows[held.there]))
    return (factor, share, times) if rows * (better - fit) > _CLEARLY else (one, 0.0, 1.0)


def _factor(said: Members, centre: Float[ndarray, "m v"], held: HeldOut) -> tuple[float, float]:
    """t: how much wider, moved there, each member is likeliest; and its mean ln p."""
    factors = np.exp(np.linspace(np.log(0.2), np.log(3.0), 61))
    fits = []
    for t in factors:
        scaled = said.scaled(t, centre)
        log = Answer(scaled.weights, scaled.means, scaled.deviations).log_prob(held.value)
        fits.append(float(np.clip(log[held.there], -20, None).mean()))
    best = int(np.argmax(fits))
    return float(factors[best]), fits[best]


def _disagreement(mean: Float[ndarray, "m v"], held: HeldOut) -> tuple[float, int]:
    """V = ½ E (μ_a − μ_b)² over rows that two members both held out, and how many such pairs there are."""
    flat, said = held.rows[held.there], mean[held.there]
    order = np.argsort(flat, kind="stable")
    flat, said = flat[order], said[order]
    twins = flat[1:] == flat[:-1]
    return float(0.5 * ((said[1:] - said[:-1])[twins] ** 2).mean()) if twins.any() else 0.0, int(twins.sum())


def _share(said: Members, held: HeldOut, averaged: float) -> float:
    """w; `averaged` is what the mean of all members is better by than one of them, in squares."""
    assert held.guess is not None
    mean, deviation = held.guess[held.there].T
    ours, its = (said.mean - held.value)[held.there], mean - held.value[held.there]
    sure = 1 / (said.variance[held.there] + deviation**2)
    a, b, both = (float((sure * product).sum() / sure.sum()) for product in (ours**2, its**2, ours * its))
    a -= min(_MOST_AVERAGED, averaged / float((ours**2).mean() + 1e-12)) * a
    apart = a + b - 2 * both
    return float(np.clip((a - both) / apart, 0, 1)) if apart > 0 else 0.0


def _of_classes(said: Float[ndarray, "m v k"], held: HeldOut) -> Widths:
    odds, codes = log_odds(said[held.there]), held.value[held.there].astype(int)
    here = np.arange(len(codes)), codes
    factors = np.exp(np.linspace(np.log(0.15), np.log(2.0), 41))
    one = float(factors[int(np.argmax([log_softmax(t * odds)[here].mean() for t in factors]))])
    alone, rows = Widths(one, one), held.rows[held.there]
    if held.guess is None or len(np.unique(rows)) < _LABELLED:
        return alone
    chances, guess = np.exp(log_softmax(one * odds)), held.guess[held.there]

    def log_chance(each: Widths) -> Float[ndarray, "c"]:
        return log_odds(each._mixed(chances, guess))[here]

    mixed = [Widths(one, one, w, heat) for w in _SHARES for heat in _HEATS]
    best = max(mixed, key=lambda each: log_chance(each).mean())
    return best if _surely(log_chance(best) - log_chance(alone), rows) else alone


def _surely(gain: Float[ndarray, "c"], rows: Int[ndarray, "c"]) -> bool:
    """Whether a gain is more than two standard errors, cells of one row counting once."""
    _, number = np.unique(rows, return_inverse=True)
    each = np.bincount(number, gain) / np.bincount(number)
    return float(each.mean()) > 2 * float(each.std()) / len(each) ** 0.5
