"""Blanks in what is read: a row is completed as rows that are like it are, and what is told is told of all of these.

    p(y | what is seen) = ∫ p(y | seen, blank) p(blank | seen) ≈ 1/K Σ_k p(y | seen, blanks as in row k)

over the K rows of the table that are most like it in what is seen (a hot deck; Rubin 1987), so that bands widen with
what is not known. Where nothing is seen these are any rows, and the answer is about what the column holds. Networks
can also learn what blanks are worth, and must where a blank itself says something: rows that were held out choose.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.learners.member_predictions import Joined
from fillin.learners.predictions import Classes, Numbers, Told

LIKE = 24  # rows that a row is completed by
_FEWEST, _SHARE = 10, 0.05  # blanks of a column from which on networks may have learnt them, and of its rows
_USUAL = 0.98  # of rows at fit have at most as many blanks
_ROWS = 2_000  # of the table, that are compared
_TOGETHER = 1 << 24  # differences at a time


@dataclass(frozen=True)
class Blanks:
    """Blanks.of(rows), then which rows are `lost` to the networks, and these `completed`. `most` is how many blanks a
    row may have that they are asked about as it is."""

    rows: Float[ndarray, "r d"]  # in an order that says nothing
    scale: Float[ndarray, "d"]
    coded: Bool[ndarray, "d"]
    learnt: Bool[ndarray, "d"]  # columns with enough blanks to learn from
    most: int

    @classmethod
    def of(cls, rows: Float[ndarray, "n d"], scale: Float[ndarray, "d"], coded: Bool[ndarray, "d"]) -> "Blanks":
        gone = np.isnan(rows)
        learnt = gone.sum(0) >= np.maximum(_FEWEST, _SHARE * len(rows))
        order = np.random.default_rng(0).permutation(len(rows))[:_ROWS]
        return cls(rows[order], scale, coded, learnt, int(np.quantile(gone.sum(1), _USUAL)))

    def up_to(self, most: int) -> "Blanks":
        return replace(self, most=most)

    def lost(self, values: Float[ndarray, "n d"]) -> Bool[ndarray, "n"]:
        """A blank where there was hardly one, or more blanks than rows had."""
        gone = np.isnan(values)
        many = gone.sum(1)
        return (many > self.most) | ((gone & ~self.learnt).any(1) & (self.most < len(self.learnt)))

    def completed(self, values: Float[ndarray, "n d"], like: int = LIKE) -> Float[ndarray, "n k d"]:
        """With the cells of each of the rows that are most like it."""
        some = max(1, _TOGETHER // max(1, self.rows.size))
        each = [self._like(values[i : i + some])[:, :like] for i in range(0, len(values), some)]
        return np.where(np.isnan(values)[:, None], self.rows[np.concatenate(each)], values[:, None])

    def _like(self, values: Float[ndarray, "n d"]) -> Int[ndarray, "n r"]:
        """Numbers of rows, the most alike first: in deviations, another class being two of them. A row that has what
        is blank comes before one that has not."""
        gone = np.isnan(values)[:, None]
        off = (values[:, None] - self.rows) / self.scale
        far = np.where(self.coded, 4.0 * (off != 0), np.minimum(off**2, 25.0))
        far = np.where(np.isnan(off), 2.0, far)  # as far as any
        return np.argsort(np.where(gone, 25.0 * np.isnan(self.rows), far).sum(-1), axis=1, kind="stable")


def put_back(told: Told, lost: Bool[ndarray, "n"], draws: int) -> Told:
    """Of rows that are not lost, and after them of so many completions of each that is: of all, in their order."""
    kept = len(lost) - int(lost.sum())
    if isinstance(told, Classes):
        chances = told.chances[kept:].reshape(-1, draws, told.chances.shape[1]).mean(1)
        return Classes(_put(told.chances[:kept], chances, lost))
    every = [part[:, 0] for part in (told.answer.weights, told.answer.means, told.answer.deviations)]
    parts = every[0].shape[1]
    weights, means, deviations = (part[kept:].reshape(-1, draws * parts) for part in every)
    fewer = merged(weights / draws, means, deviations, parts)
    made = (_put(one[:kept], two, lost)[:, None] for one, two in zip(every, fewer, strict=True))
    return Numbers(Joined(*made), told.scale)


def merged(
    weights: Float[ndarray, "n m"], means: Float[ndarray, "n m"], deviations: Float[ndarray, "n m"], parts: int
) -> tuple[Float[ndarray, "n p"], Float[ndarray, "n p"], Float[ndarray, "n p"]]:
    """A mixture of fewer parts, with the same mean and variance: neighbours among them become one."""
    order = np.argsort(means, axis=1)
    weights, means, deviations = (np.take_along_axis(part, order, 1) for part in (weights, means, deviations))
    part = np.minimum(((weights.cumsum(1) - weights / 2) * parts).astype(int), parts - 1)
    flat = (part + parts * np.arange(len(part))[:, None]).ravel()

    def total(values: Float[ndarray, "n m"]) -> Float[ndarray, "n p"]:
        return np.bincount(flat, values.ravel(), parts * len(part)).reshape(-1, parts)

    weight = total(weights)
    share = np.where(weight > 0, weight, 1.0)
    mean = total(weights * means) / share
    off = means - np.take_along_axis(mean, part, 1)
    deviation = np.sqrt(total(weights * (deviations**2 + off**2)) / share)
    return weight, mean, np.where(weight > 0, deviation, 1.0)


def _put(these: ndarray, those: ndarray, where: Bool[ndarray, "n"]) -> ndarray:
    """`those` where it says so, `these` elsewhere."""
    made = np.empty((len(where), *these.shape[1:]))
    made[~where], made[where] = these, those
    return made
