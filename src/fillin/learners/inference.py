"""Members of one network are asked together, about rows of a table and those that they held out."""

import copy
import math

import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.learners.calibration import HeldOut, Widths, widths_of
from fillin.learners.encoding import TableTask
from fillin.learners.member_predictions import Said, in_a_row, said_by
from fillin.learners.row_network import RowNet, same_rows
from fillin.learners.training import DEAREST, Plan, Split

_PAIRS = 1 << 25  # of rows that are asked for at a time and rows that are looked at, over members and heads
_MEMORY = 8_192  # rows that are looked at
BLANKED = 128  # rows of each member that say whether to complete blanks

RowNumbers = tuple[Int64[Tensor, "n"], Int64[Tensor, "k"]]  # of asked rows and of those of a table: the same, the same


@torch.no_grad()
def ask(net: RowNet, asked: TableTask, table: TableTask, numbers: RowNumbers | None = None) -> list[Said]:
    """Per told column what each member says of every asked row. A row does not look at those of its own number. All is
    in double precision, so that it does not depend on which rows are asked for together, to scikit-learn's nine
    digits."""
    net, asked, table = copy.deepcopy(net).double().eval(), asked.double(), table.double()
    members = len(net.trust)
    looked_at = _evenly(len(table), _MEMORY)
    memory = net.remember(table.rows(looked_at.expand(members, -1)))
    together = max(1, _PAIRS // (members * net.heads * max(1, len(looked_at))))
    pieces: list[list] = []
    for rows in torch.arange(len(asked)).split(together):
        same = None
        if numbers is not None:
            same = same_rows(numbers[0][rows][None], numbers[1][looked_at][None]).expand(members, -1, -1)
        pieces.append([said_by(found) for found in net.answer(asked.rows(rows.expand(members, -1)), memory, same)])
    return [in_a_row(column) for column in zip(*pieces, strict=True)]


def _evenly(rows: int, most: int) -> Int64[Tensor, "k"]:
    """At most so many of them, from the first to the last."""
    return torch.arange(rows) if rows <= most else torch.arange(most) * rows // most


@torch.no_grad()
def calibrate(
    net: RowNet, table: TableTask, plan: Plan, split: Split, guesses: list[Float[ndarray, "n g"] | None]
) -> list[Widths]:
    """From what each member says of the rows it held out, and what a process guesses of each row of the table from all
    others, where one does."""
    rows = split.out[:, : 4 * plan.batch]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        asked, cells = table.hidden(rows, plan.hide)
    told = net.answer(asked, net.remember(table.rows(split.train[:, :_MEMORY])))
    held, there = asked.held.double().numpy(), cells.numpy()
    return [
        widths_of(
            said_by(found),
            HeldOut(held[..., j], there[..., j], rows.numpy(), None if guess is None else guess[rows.numpy()]),
        )
        for j, (found, guess) in enumerate(zip(told, guesses, strict=True))
    ]


@torch.no_grad()
def gain_of_completing(
    net: RowNet, table: TableTask, split: Split, rows: Int64[Tensor, "r"], completed: TableTask
) -> float:
    """How much likelier members find what these rows hold, of those that they held out, where each is completed several
    times over (one after the other) than where it is asked for as it is."""
    draws, out = len(completed) // len(rows), split.out[:, :BLANKED]
    place = torch.zeros(len(table), dtype=torch.long)
    place[rows] = torch.arange(len(rows))
    blanked = torch.zeros(len(table), dtype=torch.bool)
    blanked[rows] = True
    memory = net.remember(table.rows(split.train[:, :_MEMORY]))
    as_it_is = net.answer(table.rows(out), memory)
    each = net.answer(completed.rows((place[out][..., None] * draws + torch.arange(draws)).flatten(1)), memory)
    gain = 0.0
    for j, (one, many) in enumerate(zip(as_it_is, each, strict=True)):
        value, there = table.held[out][..., j], table.known[out][..., j] & blanked[out]
        mixed = many.log_prob(value.repeat_interleave(draws, 1)).unflatten(1, (-1, draws)).logsumexp(-1)
        more = (mixed - math.log(draws)).clamp_min(-DEAREST) - one.log_prob(value).clamp_min(-DEAREST)
        gain += float(more[there].sum())
    return gain
