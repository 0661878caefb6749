"""Training NPT on one table, as Kossen et al. 2021 do: masked cells are predicted from all others.

Every step sees a batch with the proportions of the table: the same share of each class and of rows without a label.
Some labels and some features are masked; the loss is (1 − λ) targets + λ features, with λ annealed to 0 by a cosine.
A row without a label is a row whose label is always masked.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from fillin.data.task import TableBatch
from fillin.learners.base import Tick, TrainingPlan
from fillin.learners.calibration import Calibration, HeldOut, fit_calibration
from fillin.learners.npt.batches import NPTTable
from fillin.learners.row_learner import to_member_predictions
from fillin.models.npt import NPT
from fillin.objectives import masked_reconstruction
from fillin.predictive import Categorical, GaussianMixture

RowIndex = Int64[Tensor, "_"]


@dataclass(frozen=True)
class NPTPlan(TrainingPlan):
    """`batch` rows attend to one another in a step; queries attend to `memory` rows. `labels` and `hide` are the shares
    of labels and of features that are masked."""

    batch: int = 256
    memory: int = 1024
    rate: float = 2e-3
    labels: float = 0.15
    hide: float = 0.15
    patience: int = 10


def train(
    net: NPT, table: NPTTable, plan: NPTPlan, rows: RowIndex, held_out: RowIndex,
    feature_weight: Callable[[float], float], tick: Tick,
) -> None:  # fmt: skip
    """Train, and leave in the network the weights that predicted the held-out rows best; `feature_weight` is λ as a
    function of the share of steps that are done."""
    optimiser = torch.optim.AdamW(net.parameters(), plan.rate, weight_decay=plan.decay, fused=True)
    best, state, rounds_since = -torch.inf, copy.deepcopy(net.state_dict()), 0
    for step in range(plan.steps):
        for group in optimiser.param_groups:
            group["lr"] = plan.rate_at(step)
        net.train()
        task = table.training_task(table.sample(rows, plan.batch), plan.labels, plan.hide)
        weight = feature_weight(step / plan.steps)
        (-masked_reconstruction(net, task, weight).mean()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        tick(1)
        if (step + 1) % plan.every and step + 1 < plan.steps:
            continue
        score = score_held_out(net, table, plan, rows, held_out) if len(held_out) else step
        learns_features = table.n_targets > 0 and weight > 0.5  # it has yet to turn to the targets
        rounds_since = 0 if score > best or learns_features else rounds_since + 1
        if score > best:
            best, state = score, copy.deepcopy(net.state_dict())
        if rounds_since >= plan.patience:
            break
    net.load_state_dict(state)
    net.eval()


@torch.no_grad()
def score_held_out(net: NPT, table: NPTTable, plan: NPTPlan, rows: RowIndex, held_out: RowIndex) -> float:
    """Mean ln p of the targets, or of masked features where there are none; the same cells each time."""
    net.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        context, queries = table.sample(rows, plan.memory), held_out[: 4 * plan.batch]
        task = table.query_task(context, queries, 0.0 if table.n_targets else plan.hide)
    return float(masked_reconstruction(net, task))


@torch.no_grad()
def calibrate(
    net: NPT, table: NPTTable, plan: NPTPlan, rows: RowIndex, held_out: RowIndex, columns: list[int]
) -> list[Calibration]:
    """Fit to predictions of held-out rows: of their targets with all features observed, of features with some of them
    masked. A standard deviation estimated from n cells is known to a factor of about exp(1/√n), and one network has no
    ensemble: its predictions are widened by that factor."""
    calibrations = dict.fromkeys(columns, Calibration())
    held_out = held_out[: 4 * plan.batch]
    for share in sorted({0.0, plan.hide}) if len(held_out) else ():
        scored = [j for j in calibrations if (j < table.n_features) == (share > 0)]
        task = table.query_task(table.sample(rows, plan.memory), held_out, share)
        values, queried = (part[:, task.context :].numpy() for part in (task.values.double(), task.queried))
        for j, prediction in zip(scored, predict_columns(net, task, scored), strict=True):
            cells = HeldOut(values[..., j], queried[..., j], held_out[None].numpy())
            calibrations[j] = fit_calibration(prediction, cells)
            if isinstance(prediction, GaussianMixture):
                factor = calibrations[j].member * math.exp(1 / math.sqrt(max(1, cells.observed.sum())))
                calibrations[j] = Calibration(factor, factor)
    return [calibrations[j] for j in columns]


@torch.no_grad()
def predict_columns(net: NPT, task: TableBatch, columns: list[int]) -> list[GaussianMixture | Categorical]:
    """The predictions [1 n k] of each of the columns in the query rows."""
    if not columns:
        return []
    net.eval()
    prediction, first = net.fill(task), task.context or 0
    members = [to_member_predictions(prediction.column(j, int(task.classes[0, j]))) for j in columns]
    return [member[:, first:] for member in members]
