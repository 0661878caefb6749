"""The period of a series, and the forecast of those who trust it: what was one period ago."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

_FEWEST = 8
_PER_CYCLE = 5  # frequencies looked at between n and n + 1 cycles


def period(x: Float[ndarray, "n"], y: Float[ndarray, "n"]) -> float | None:
    """The strongest of Lomb and Scargle's periodogram without the linear trend, from two cycles over the width to one
    in two typical steps; None where there is nothing to see."""
    from scipy.signal import lombscargle

    width = float(np.ptp(x))
    if len(x) < _FEWEST or width == 0:
        return None
    u = (x - x.mean()) / width
    rest = y - np.polyval(np.polyfit(u, y, 1), u)
    if rest.std() <= 1e-9 * max(1e-300, np.abs(y).max()):
        return None
    ordered = np.unique(u)
    most = 1 / (2 * float(np.median(ordered[1:] - ordered[:-1])))
    cycles = np.arange(2, max(3.0, most), 1 / _PER_CYCLE)
    power = lombscargle(u, rest, 2 * np.pi * cycles)
    return width / float(cycles[int(np.argmax(power))])


def one_period_away(
    x: Float[ndarray, "n"], y: Float[ndarray, "n"], asked: Float[ndarray, "m"], length: float
) -> tuple[Float[ndarray, "m"], Float[ndarray, "m"]]:
    """The mean of what is known k periods before and after, for the smallest k where there is any (within half a step
    or an eighth of a period), and that k; NaN and 0 where there is none."""
    step = float(np.median(np.diff(x))) if len(x) > 1 else 0.0
    near = min(0.51 * step, length / 8)
    found, away = np.full(len(asked), np.nan), np.zeros(len(asked))
    reach = max(np.ptp(x), asked.max() - x[0], x[-1] - asked.min())
    for k in range(1, int(reach / length) + 2):
        total, count = np.zeros(len(asked)), np.zeros(len(asked))
        for place in (asked - k * length, asked + k * length):
            after = np.clip(np.searchsorted(x, place), 1, len(x) - 1)
            nearest = np.where(place - x[after - 1] < x[after] - place, after - 1, after)
            there = np.abs(x[nearest] - place) <= near
            total, count = total + np.where(there, y[nearest], 0), count + there
        new = np.isnan(found) & (count > 0)
        found[new], away[new] = total[new] / count[new], k
    return found, away
