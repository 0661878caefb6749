"""Training the members on one table: each holds some rows out, and keeps the weights that told those best."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.distributions import Categorical

from fillin.learners.encoding import TableTask
from fillin.learners.row_network import RowNet, same_rows

Tick = Callable[[int], object]  # so many more steps are done
DEAREST = 20.0  # nats that one cell may cost
_HEATS = tuple(0.15 * 10 ** (i / 15) for i in range(16))  # inverse temperatures, 0.15 … 1.5


@dataclass(frozen=True)
class Plan:
    """How long and how: steps of `batch` rows for each member, that see `memory` rows of the table at most; every
    `every` steps a look at the rows that are held out, and an end where no member got better in `patience` of them."""

    steps: int = 500
    batch: int = 256
    memory: int = 2048
    rate: float = 2e-3
    decay: float = 1e-3
    held_out: float = 0.15
    every: int = 20
    patience: int = 8
    hide: float = 0.3  # of the cells that are both read and told


def enough_steps(rows: int) -> int:
    """For a table of so many rows: what there is to learn grows, and so does what a step leaves out."""
    return int(500 * min(max(rows / 2_000, 1), 25) ** 0.5)


@dataclass(frozen=True)
class Split:
    """Rows that each member learns from, and that it holds out; `often` is how often a row of the table is taken."""

    train: Int64[Tensor, "m k"]
    out: Int64[Tensor, "m v"]
    often: Float[Tensor, "n"]

    @classmethod
    def of(cls, labelled: Bool[Tensor, "n"], members: int, share: float) -> "Split":
        """A share of the rows with targets, and of those without, is held out; a batch has as many of the ones as of
        the others, however few are labelled."""
        groups = [rows.nonzero()[:, 0] for rows in (labelled, ~labelled)]
        train, out = [], []
        for group in groups:
            n = len(group)
            held = min(max(round(n * share), min(4, n - 1)), 5_000) if n else 0
            order = torch.stack([group[torch.randperm(n)] for _ in range(members)])
            train.append(order[:, held:])
            out.append(order[:, :held])
        shares = torch.where(labelled, len(groups[0]), len(groups[1])).clamp_min(1)
        return cls(torch.cat(train, 1), torch.cat(out, 1), 1 / shares)

    def some(self, count: int) -> Int64[Tensor, "m c"]:
        """Up to `count` rows of each member, others each time, none of them twice (Efraimidis & Spirakis 2006)."""
        if len(self.train[0]) <= count:
            return self.train
        late = -torch.rand(self.train.shape).log() / self.often[self.train]
        return self.train.gather(1, late.topk(count, dim=1, largest=False, sorted=False).indices)


Weights = Callable[[float], Float[Tensor, "t"]]  # of the told columns, once that share of the steps is done


def train(net: RowNet, table: TableTask, plan: Plan, split: Split, weights: Weights, tick: Tick) -> None:
    """Leave in the net, for each member, what told the rows it held out best."""
    members = len(split.train)
    optimiser = torch.optim.AdamW(net.parameters(), plan.rate, weight_decay=plan.decay)
    best, state, since = torch.full((members,), -torch.inf), copy.deepcopy(net.state_dict()), 0
    for step in range(plan.steps):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(plan, step)
        net.train()
        asked, memory = split.some(plan.batch), split.some(plan.memory)
        (-score(net, table, asked, memory, plan, weights(step / plan.steps)).sum()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0 * members)
        optimiser.step()
        optimiser.zero_grad()
        tick(1)
        if (step + 1) % plan.every and step + 1 < plan.steps:
            continue
        found = held_out(net, table, plan, split, weights(1.0))
        better = found > best
        best, since = torch.where(better, found, best), 0 if better.any() else since + 1
        for name, value in net.state_dict().items():
            keep = better.repeat_interleave(len(value) // members)  # some have a first axis of members × columns
            state[name][keep] = value[keep]
        if since >= plan.patience:
            break
    net.load_state_dict(state)
    net.eval()


def rate_at(plan: Plan, step: int) -> float:
    """A short warm-up, then down to zero along a cosine."""
    return plan.rate * min(1, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / plan.steps)) + 1e-5


def score(
    net: RowNet, table: TableTask, asked: Int64[Tensor, "m n"], memory: Int64[Tensor, "m k"], plan: Plan,
    weights: Float[Tensor, "t"], tempered: bool = False,
) -> Float[Tensor, "m"]:  # fmt: skip
    """Σ_j weight_j · mean ln p of the cells of column j, for each member; `tempered`: of classes at the temperature
    that suits it best."""
    rows, cells = table.hidden(asked, plan.hide)
    told = net(rows, table.rows(memory), same_rows(asked, memory))
    total = torch.zeros(len(asked))
    for j, found in enumerate(told):
        value, there = rows.held[..., j], cells[..., j]
        heats = _HEATS if tempered and isinstance(found, Categorical) else (1.0,)
        means = []
        for heat in heats:
            at = found if heat == 1 else Categorical(logits=heat * found.logits, validate_args=False)
            each = at.log_prob(value).clamp_min(-DEAREST)
            means.append(torch.where(there, each, 0).sum(1) / there.sum(1).clamp_min(1))
        total = total + weights[j] * torch.stack(means).amax(0)
    return total


@torch.no_grad()
def held_out(
    net: RowNet, table: TableTask, plan: Plan, split: Split, weights: Float[Tensor, "t"]
) -> Float[Tensor, "m"]:
    """What the members make of the rows that they hold out, the same cells hidden each time. Classes are judged at
    their best temperature, which is found afterwards in any case: without it a network that is surer than it should be
    loses to one that knows less."""
    net.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rows, memory = split.out[:, : 4 * plan.batch], split.train[:, : plan.memory]
        return score(net, table, rows, memory, plan, weights, tempered=True)
