"""Training npt on one table, as Kossen et al. 2021 do: masked cells are told from all others.

Every step sees a batch that stands for the table, with the same share of each class and of rows without a label. Some
of its labels are masked, and some of its features; the loss is (1 − λ) targets + λ features, with λ falling to nothing
by a cosine. Rows without a label are rows whose label is always masked.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from fillin.data.cells import Cells
from fillin.learners.calibration import HeldOut, Widths, widths_of
from fillin.learners.member_predictions import Members, Said, said_by
from fillin.learners.npt.table import OneTable
from fillin.learners.training import Plan, Tick, rate_at
from fillin.models.npt import NPT
from fillin.objectives import masked_reconstruction

Rows = Int64[Tensor, "_"]


@dataclass(frozen=True)
class NPTPlan(Plan):
    """`batch` rows see one another in a step; `memory` rows are looked at by those that ask. `labels` and `hide` are
    the shares of labels and of features that are masked."""

    batch: int = 256
    memory: int = 1024
    rate: float = 2e-3
    labels: float = 0.15
    hide: float = 0.15
    patience: int = 10


def train(
    net: NPT, table: OneTable, plan: NPTPlan, rows: Rows, out: Rows, weight: Callable[[float], float], tick: Tick
) -> None:
    """Leave in the net what told the rows that are held out best; `weight` is λ once a share of the steps is done."""
    optimiser = torch.optim.AdamW(net.parameters(), plan.rate, weight_decay=plan.decay, fused=True)
    best, state, since = -torch.inf, copy.deepcopy(net.state_dict()), 0
    for step in range(plan.steps):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(plan, step)
        net.train()
        task, features = table.masked(table.some(rows, plan.batch), plan.labels, plan.hide), weight(step / plan.steps)
        (-masked_reconstruction(net, task, features).mean()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        tick(1)
        if (step + 1) % plan.every and step + 1 < plan.steps:
            continue
        found = held_out(net, table, plan, rows, out) if len(out) else step
        early = table.targets > 0 and features > 0.5  # it has yet to turn to the targets
        since = 0 if found > best or early else since + 1
        if found > best:
            best, state = found, copy.deepcopy(net.state_dict())
        if since >= plan.patience:
            break
    net.load_state_dict(state)
    net.eval()


@torch.no_grad()
def held_out(net: NPT, table: OneTable, plan: NPTPlan, rows: Rows, out: Rows) -> float:
    """Mean ln p of the cells that the table is for, the same ones each time."""
    net.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        task = table.asking(table.some(rows, plan.memory), out[: 4 * plan.batch], 0.0 if table.targets else plan.hide)
    return float(masked_reconstruction(net, task))


@torch.no_grad()
def calibrate(net: NPT, table: OneTable, plan: NPTPlan, rows: Rows, out: Rows, columns: list[int]) -> list[Widths]:
    """How much wider each told column should be, from what is said of rows that were held out: of their targets with
    all features seen, of features with some of them masked. A deviation that n cells tell is known to a factor of about
    exp(1/√n), and one network has no others to agree with: it is taken that much wider."""
    found = dict.fromkeys(columns, Widths())
    out = out[: 4 * plan.batch]
    for hide in sorted({0.0, plan.hide}) if len(out) else ():
        own = [j for j in found if (j < table.features) == (hide > 0)]
        task = table.asking(table.some(rows, plan.memory), out, hide)
        values, asked = (part[:, task.context :].numpy() for part in (task.values.double(), task.asked))
        for j, said in zip(own, answers(net, task, own), strict=True):
            y, there = values[..., j], asked[..., j]
            found[j] = widths_of(said, HeldOut(y, there, out[None].numpy()))
            if isinstance(said, Members):
                one = found[j].one * math.exp(1 / math.sqrt(max(1, there.sum())))
                found[j] = Widths(one, one)
    return [found[j] for j in columns]


@torch.no_grad()
def answers(net: NPT, task: Cells, columns: list[int]) -> list[Said]:
    """What is said of each of the columns in the rows that ask: mixtures, or probabilities [1 n k]."""
    if not columns:
        return []
    net.eval()
    found, first = net.fill(task), task.context or 0
    each = [said_by(found.column(j, int(task.classes[0, j]))) for j in columns]
    return [
        Members(said.weights[:, first:], said.means[:, first:], said.deviations[:, first:])
        if isinstance(said, Members)
        else said[:, first:]
        for said in each
    ]
