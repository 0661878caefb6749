"""Which points are hidden: a mask is a function of its kind, its number and how many points there are, so that every
method is asked the same."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

KINDS = ("random", "blocks", "end")
SHARE, END = 0.3, 0.15  # hidden at random and in blocks; at the end
BLOCK = (0.03, 0.12)  # of all points, each
_SHORTEST = 0.6  # of a series, whose end is hidden


@dataclass(frozen=True)
class Mask:
    """Of points in a row. Some may be neither known nor hidden: what comes after an end."""

    known: Bool[ndarray, "n"]
    hidden: Bool[ndarray, "n"]


def mask(kind: str, n: int, number: int, share: float = SHARE) -> Mask:
    """The mask of that number for n points.

    - "random": a `share` of all points, anywhere;
    - "blocks": as many, in blocks of 3 to 12 % of all points each with something known between them;
    - "end": of the first 60 to 100 % of the points (number 0: of all) the last 15 %: ends differ.
    """
    random = np.random.default_rng([KINDS.index(kind), n, number])
    hidden = np.zeros(n, dtype=bool)
    if kind == "end":
        used = n if number == 0 else round(n * random.uniform(_SHORTEST, 1))
        hidden[used - max(1, round(END * used)) : used] = True
        return Mask(~hidden & (np.arange(n) < used), hidden)
    count = max(1, round(share * n))
    if kind == "random":
        hidden[random.permutation(n)[:count]] = True
    else:
        lengths = block_lengths(n, count, random)
        slots = np.sort(random.permutation(n - count + 1)[: len(lengths)])  # known points before each block: all differ
        for slot, before, length in zip(slots, np.cumsum(lengths) - lengths, lengths, strict=True):
            hidden[slot + before : slot + before + length] = True
    return Mask(~hidden, hidden)


def block_lengths(n: int, count: int, random: np.random.Generator) -> Int64[ndarray, "blocks"]:
    """Lengths that add up to `count`, each between 3 and 12 % of n (at least one point): drawn until they do."""
    low, high = max(1, int(np.ceil(BLOCK[0] * n))), max(1, int(BLOCK[1] * n))
    while True:
        lengths = []
        while (rest := count - sum(lengths)) >= low:
            lengths.append(min(rest, int(random.integers(low, high + 1))))
        if rest == 0:
            return np.array(lengths, dtype=np.int64)
