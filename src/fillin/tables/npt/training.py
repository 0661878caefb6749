"""Training npt on one table, as Kossen et al. 2021 do: masked cells are told from all others.

Every step sees a batch that stands for the table, with the same share of each class and of rows without a label. Some
of its labels are masked, and some of its features; the loss is (1 − λ) targets + λ features, with λ falling to nothing
by a cosine. Rows without a label are rows whose label is always masked.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from fillin.models.npt import NPT
from fillin.objectives import masked_reconstruction
from fillin.tables.ensemble import Members, Widths, _numpy, _temper, _widths
from fillin.tables.npt.table import OneTable
from fillin.tables.training import Plan, Tick, rate_at

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
    all features seen, of features with some of them masked."""
    if not len(out):
        return [Widths() for _ in columns]
    net.eval()
    out, found = out[: 4 * plan.batch], {}
    for hide in (0.0, plan.hide):
        task = table.asking(table.some(rows, plan.memory), out, hide)
        told = net.fill(task)
        for j in columns:
            if (j >= table.features) == (not hide):
                said = _numpy(told.column(j, int(table.classes[j])))
                values, asked = (part[:, task.context :, j].numpy() for part in (task.values.double(), task.asked))
                if isinstance(said, Members):
                    said = Members(*(part[:, task.context :] for part in (said.weights, said.means, said.deviations)))
                    found[j] = _widths(said, values, asked, out[None].numpy())
                else:
                    found[j] = _temper(said[:, task.context :], values, asked)
    return [found[j] for j in columns]
