"""Training an ensemble of row networks on one table: each member holds out rows and keeps its best weights."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.distributions import Categorical

from fillin.learners.base import Tick, TrainingPlan
from fillin.learners.encoding import EncodedTable
from fillin.learners.row_network import RowNetwork, same_rows

MAX_CELL_LOSS = 20.0  # nats
_MAX_HELD_OUT_ROWS = 5_000
_TEMPERATURES = tuple(0.15 * 10 ** (i / 15) for i in range(16))  # inverse, 0.15 … 1.5

OutputWeights = Callable[[float], Float[Tensor, "t"]]  # of the output columns, by the share of steps that are done


@dataclass(frozen=True)
class Split:
    """Rows that each member is trained on and rows that it holds out; `rate` is the sampling rate of each row."""

    train: Int64[Tensor, "m k"]
    held_out: Int64[Tensor, "m v"]
    rate: Float[Tensor, "n"]

    @classmethod
    def draw(cls, labelled: Bool[Tensor, "n"], members: int, share: float) -> "Split":
        """Hold out a share of the labelled and of the unlabelled rows. Batches hold as many labelled as unlabelled
        rows, however few are labelled."""
        groups = [rows.nonzero()[:, 0] for rows in (labelled, ~labelled)]
        train, held_out = [], []
        for group in groups:
            n = len(group)
            count = min(max(round(n * share), min(4, n - 1)), _MAX_HELD_OUT_ROWS) if n else 0
            order = torch.stack([group[torch.randperm(n)] for _ in range(members)])
            train.append(order[:, count:])
            held_out.append(order[:, :count])
        group_size = torch.where(labelled, len(groups[0]), len(groups[1])).clamp_min(1)
        return cls(torch.cat(train, 1), torch.cat(held_out, 1), 1 / group_size)

    def sample(self, count: int) -> Int64[Tensor, "m c"]:
        """Up to `count` training rows of each member without replacement (Efraimidis & Spirakis 2006)."""
        if len(self.train[0]) <= count:
            return self.train
        arrival = -torch.rand(self.train.shape).log() / self.rate[self.train]
        return self.train.gather(1, arrival.topk(count, dim=1, largest=False, sorted=False).indices)


def default_steps(rows: int) -> int:
    """The number of training steps for a table of so many rows."""
    return int(500 * min(max(rows / 2_000, 1), 25) ** 0.5)


def train(
    net: RowNetwork, table: EncodedTable, plan: TrainingPlan, split: Split, weights: OutputWeights, tick: Tick
) -> None:
    """Train, and leave in each member the weights that predicted its held-out rows best."""
    members = len(split.train)
    optimiser = torch.optim.AdamW(net.parameters(), plan.rate, weight_decay=plan.decay)
    best, state, rounds_since = torch.full((members,), -torch.inf), copy.deepcopy(net.state_dict()), 0
    for step in range(plan.steps):
        for group in optimiser.param_groups:
            group["lr"] = plan.rate_at(step)
        net.train()
        query, memory = split.sample(plan.batch), split.sample(plan.memory)
        (-log_likelihood(net, table, query, memory, plan, weights(step / plan.steps)).sum()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0 * members)
        optimiser.step()
        optimiser.zero_grad()
        tick(1)
        if (step + 1) % plan.every and step + 1 < plan.steps:
            continue
        score = score_held_out(net, table, plan, split, weights(1.0))
        improved = score > best
        best, rounds_since = torch.where(improved, score, best), 0 if improved.any() else rounds_since + 1
        for name, value in net.state_dict().items():
            keep = improved.repeat_interleave(len(value) // members)  # some have a first axis of members × columns
            state[name][keep] = value[keep]
        if rounds_since >= plan.patience:
            break
    net.load_state_dict(state)
    net.eval()


def log_likelihood(
    net: RowNetwork, table: EncodedTable, query: Int64[Tensor, "m n"], memory: Int64[Tensor, "m k"],
    plan: TrainingPlan, weights: Float[Tensor, "t"], tempered: bool = False,
) -> Float[Tensor, "m"]:  # fmt: skip
    """Σ_j weight_j · mean ln p of the masked cells of column j, for each member; `tempered`: class probabilities are
    taken at the temperature that suits them best."""
    rows, queried = table.masked_rows(query, plan.hide)
    predictions = net(rows, table.rows(memory), same_rows(query, memory))
    total = torch.zeros(len(query))
    for j, prediction in enumerate(predictions):
        value, is_queried = rows.outputs[..., j], queried[..., j]
        means = []
        for temperature in _TEMPERATURES if tempered and isinstance(prediction, Categorical) else (1.0,):
            scaled = prediction
            if temperature != 1:
                scaled = Categorical(logits=temperature * prediction.logits, validate_args=False)
            log_prob = scaled.log_prob(value).clamp_min(-MAX_CELL_LOSS)
            means.append(torch.where(is_queried, log_prob, 0).sum(1) / is_queried.sum(1).clamp_min(1))
        total = total + weights[j] * torch.stack(means).amax(0)
    return total


@torch.no_grad()
def score_held_out(
    net: RowNetwork, table: EncodedTable, plan: TrainingPlan, split: Split, weights: Float[Tensor, "t"]
) -> Float[Tensor, "m"]:
    """The log-likelihood of held-out rows, with the same cells masked each time. Class probabilities are tempered, as
    calibration does later: otherwise an overconfident network would lose to one that knows less."""
    net.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rows, memory = split.held_out[:, : 4 * plan.batch], split.train[:, : plan.memory]
        return log_likelihood(net, table, rows, memory, plan, weights, tempered=True)
