"""What the members say together, calibrated on rows that they held out.

A mixture of members that disagree is too wide: it counts their disagreement V as error, where averaging takes it away.
With σ² the variance of one member, calibrated by a factor t² on what it held out, the mean of M of them is off by

    t² σ² − (1 − 1/M) V

so each member's mixture is moved to the mean of all, and narrowed by √(1 − (1 − 1/M) ρ), ρ = V / t²σ², which pairs of
members that both held out a row tell (Ueda & Nakano 1996).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.answer import Answer
from fillin.tables.net import RowNet, same_rows
from fillin.tables.task import TableTask
from fillin.tables.training import Plan, Split

_PAIRS = 1 << 26  # of rows that are asked for at a time and rows that are looked at, over members and heads
_MEMORY = 8_192  # rows that are looked at


@dataclass(frozen=True)
class Widths:
    """Of one told column: a factor of the deviations of one member, and one for the mean of all. Of classes the first
    is an inverse temperature."""

    one: float = 1.0
    all: float = 1.0


@dataclass(frozen=True)
class Members:
    """Mixtures of each member for one column of numbers, in standard units."""

    weights: Float[ndarray, "m n k"]
    means: Float[ndarray, "m n k"]
    deviations: Float[ndarray, "m n k"]

    @property
    def mean(self) -> Float[ndarray, "m n"]:
        return (self.weights * self.means).sum(-1)

    @property
    def variance(self) -> Float[ndarray, "m n"]:
        return (self.weights * (self.deviations**2 + (self.means - self.mean[..., None]) ** 2)).sum(-1)

    def scaled(self, factor: float, about: Float[ndarray, "m n"], to: Float[ndarray, "m n"]) -> "Members":
        """Narrower or wider about its own mean, which is moved."""
        return Members(self.weights, to[..., None] + factor * (self.means - about[..., None]), factor * self.deviations)

    def together(self, widths: Widths) -> Answer:
        centre = np.broadcast_to(self.mean.mean(0), self.mean.shape)
        moved = self.scaled(widths.all, self.mean, centre)
        joined = [np.moveaxis(part, 0, 1).reshape(part.shape[1], 1, -1) for part in
                  (moved.weights / len(moved.weights), moved.means, moved.deviations)]  # fmt: skip
        return Joined(*joined)


class Joined(Answer):
    """Of many parts each is rare; all count."""

    @property
    def likely(self):
        return self.weights


RowNumbers = tuple[
    Int64[Tensor, "n"], Int64[Tensor, "k"]
]  # of asked rows and of those of a table: the same, the same row


@torch.no_grad()
def ask(net: RowNet, asked: TableTask, table: TableTask, numbers: RowNumbers | None = None) -> list[Members | ndarray]:
    """Per told column what each member says of every asked row: mixtures, or probabilities [m n k]. A row does not look
    at those of its own number."""
    net.eval()
    members = len(net.trust)
    looked_at = _evenly(len(table), _MEMORY)
    memory = net.remember(table.rows(looked_at.expand(members, -1)))
    together = max(1, _PAIRS // (members * net.heads * max(1, len(looked_at))))
    pieces: list[list] = []
    for rows in torch.arange(len(asked)).split(together):
        same = None
        if numbers is not None:
            same = same_rows(numbers[0][rows][None], numbers[1][looked_at][None]).expand(members, -1, -1)
        pieces.append([_numpy(found) for found in net.answer(asked.rows(rows.expand(members, -1)), memory, same)])
    return [_join(column) for column in zip(*pieces, strict=True)]


def _evenly(rows: int, most: int) -> Int64[Tensor, "k"]:
    """At most so many of them, from the first to the last."""
    return torch.arange(rows) if rows <= most else torch.arange(most) * rows // most


@torch.no_grad()
def calibrate(net: RowNet, table: TableTask, plan: Plan, split: Split) -> list[Widths]:
    """From what each member says of the rows it held out."""
    rows = split.out[:, : 4 * plan.batch]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        asked, cells = table.hidden(rows, plan.hide)
    memory = net.remember(table.rows(split.train[:, :_MEMORY]))
    told = net.answer(asked, memory)
    found = [_numpy(one) for one in told]
    held, there = asked.held.double().numpy(), cells.numpy()
    return [
        _widths(one, held[..., j], there[..., j], rows.numpy())
        if isinstance(one, Members)
        else _temper(one, held[..., j], there[..., j])
        for j, one in enumerate(found)
    ]


def _widths(said: Members, y: Float[ndarray, "m v"], there: Bool[ndarray, "m v"], rows: ndarray) -> Widths:
    if there.sum() < 5:
        return Widths()
    factors = np.exp(np.linspace(np.log(0.5), np.log(3.0), 41))
    fits = []
    for t in factors:
        scaled = said.scaled(t, said.mean, said.mean)
        log = Answer(scaled.weights, scaled.means, scaled.deviations).log_prob(y)
        fits.append(np.clip(log[there], -20, None).mean())
    one = float(factors[int(np.argmax(fits))])
    between, pairs = _disagreement(said.mean, there, rows)
    within = one**2 * float(said.variance[there].mean())
    ratio = min(0.75, between / within) if pairs >= 10 and within > 0 else 0.0
    return Widths(one, one * float(np.sqrt(1 - (1 - 1 / len(y)) * ratio)))


def _disagreement(mean: Float[ndarray, "m v"], there: Bool[ndarray, "m v"], rows: ndarray) -> tuple[float, int]:
    """V = ½ E (μ_a − μ_b)² over rows that two members both held out, and how many such pairs there are."""
    flat, said = rows[there], mean[there]
    order = np.argsort(flat, kind="stable")
    flat, said = flat[order], said[order]
    twins = flat[1:] == flat[:-1]
    return float(0.5 * ((said[1:] - said[:-1])[twins] ** 2).mean()) if twins.any() else 0.0, int(twins.sum())


def _temper(said: Float[ndarray, "m v k"], y: Float[ndarray, "m v"], there: Bool[ndarray, "m v"]) -> Widths:
    if there.sum() < 5:
        return Widths()
    odds, codes = np.log(np.maximum(said[there], 1e-12)), y[there].astype(int)
    factors = np.exp(np.linspace(np.log(0.15), np.log(2.0), 41))
    fits = [_log_softmax(t * odds)[np.arange(len(codes)), codes].mean() for t in factors]
    one = float(factors[int(np.argmax(fits))])
    return Widths(one, one)


def chances(said: Float[ndarray, "m n k"], widths: Widths) -> Float[ndarray, "n k"]:
    """The mean of the members' probabilities, each at the temperature that fits."""
    return np.exp(_log_softmax(widths.all * np.log(np.maximum(said, 1e-12)))).mean(0)


def _log_softmax(x: ndarray) -> ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _numpy(found) -> "Members | ndarray":
    if hasattr(found, "component_distribution"):
        parts = found.component_distribution
        return Members(*(t.double().numpy() for t in (found.mixture_distribution.probs, parts.mean, parts.stddev)))
    return found.probs.double().numpy()


def _join(pieces: Sequence) -> "Members | ndarray":
    if isinstance(pieces[0], Members):
        fields = ("weights", "means", "deviations")
        return Members(*(np.concatenate([getattr(piece, field) for piece in pieces], 1) for field in fields))
    return np.concatenate(pieces, 1)
