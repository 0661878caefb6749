"""The default learner of tables: an ensemble of row networks, a Gaussian process beside it, and a hot deck.

Each member of the ensemble holds out rows, and keeps the weights that predict them best.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical

from fillin.gp import GaussianProcess, GPHyperparameters
from fillin.heads import to_predictive
from fillin.learners.base import TableLayout, TableLearner, TrainingPlan
from fillin.learners.calibration import Calibration, HeldOut, fit_calibration, untrimmed
from fillin.learners.encoding import EncodedTable, GaussianImputer, HotDeck, InputScale, merge_completions
from fillin.learners.row_network import RowNetwork, same_rows
from fillin.predictive import MAX_CLASSES, Categorical, Predictive
from fillin.runtime import Tick

_MAX_CELL_LOSS = 20.0  # nats
_MAX_HELD_OUT_ROWS = 5_000
_TEMPERATURES = tuple(0.15 * 10 ** (i / 15) for i in range(16))  # inverse, 0.15 … 1.5
_MAX_PAIRS = 1 << 25  # of query and memory rows at once, over members and heads
_MAX_MEMORY_ROWS = 8_192
_TEST_ROWS = 128  # held-out rows of each member that decide whether rows with missing cells are completed by donors
_MIN_TEST_ROWS, _TEST_DONORS = 10, 8

RowNumbers = tuple[Int64[Tensor, "n"], Int64[Tensor, "k"]]  # of query and memory rows; equal numbers are equal rows


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


class RowLearner(TableLearner):
    """`RowLearner.fit(…)`, then `predict(inputs)`."""

    name = "rows"

    def _build(self) -> None:
        self.input_scale = InputScale.fit(self.inputs, self.layout.inputs)
        self.hot_deck = HotDeck.from_rows(self.inputs, self.input_scale.std, np.array(self.layout.inputs) > 0)
        self.gaussian: GaussianImputer | None = None  # fitted to the table by its encoding
        self.table = self._encode(self.inputs, self.outputs)
        self.gaussian = self.table.gaussian
        self.gps: list[GaussianProcess | None] = [None] * len(self.layout.outputs)
        self.net = RowNetwork(self.table.layout, **self.net_options)

    @classmethod
    def network_options(cls, members: int) -> dict[str, Any]:
        return {"members": members}

    def _train(self, plan: TrainingPlan, tick: Tick) -> None:
        members, weights = self.net_options["members"], self.layout.output_weights
        split = Split.draw(self.layout.labelled(self.outputs), members, plan.held_out)

        def loss(progress: float) -> Tensor:
            query, memory = split.sample(plan.batch), split.sample(plan.memory)
            return -self._log_likelihood(query, memory, plan.hide, weights(progress)).sum()

        def score(step: int) -> Float[Tensor, "m"]:
            """The log-likelihood of held-out rows, with the same cells masked each time."""
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                query, memory = split.held_out[:, : 4 * plan.batch], split.train[:, : plan.memory]
                return self._log_likelihood(query, memory, plan.hide, weights(1.0), tempered=True)

        plan.train(self.net, loss, score, tick, 10.0 * members, members)
        features = self.table.features
        gps = [target and GaussianProcess.fit(features, target, plan.steps) for target in self.table.gp_targets]
        self.calibrations = self._calibrate(plan, split, [gp and gp.predict_left_out(features) for gp in gps])
        self.hot_deck = replace(self.hot_deck, max_missing=self._fit_max_missing(split))
        shares = [calibration.gp_share for calibration in self.calibrations]
        self.gps = [gp if share else None for gp, share in zip(gps, shares, strict=True)]  # others are not evaluated

    def _encode(self, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"]) -> EncodedTable:
        classes = tuple(min(k, MAX_CLASSES) for k in self.layout.outputs)
        columns = zip(outputs.T, self.scales, classes, strict=True)
        z = [np.minimum(column, k - 1) if scale is None else scale.forward(column) for column, scale, k in columns]
        layout = TableLayout(self.input_scale.classes, classes, self.layout.input_of_output)
        return EncodedTable.encode(inputs, np.stack(z, 1), self.input_scale, layout, self.gaussian)

    def _log_likelihood(
        self, query: Int64[Tensor, "m n"], memory: Int64[Tensor, "m k"], hidden_share: float,
        weights: Float[Tensor, "t"], tempered: bool = False,
    ) -> Float[Tensor, "m"]:  # fmt: skip
        """Σ_j weight_j · mean ln p of the masked cells of column j, for each member. `tempered` takes class
        probabilities at their best temperature, or an overconfident network would lose to a less accurate one."""
        rows, queried = self.table.masked_rows(query, hidden_share)
        predictions = self.net(rows, self.table.rows(memory), same_rows(query, memory))
        total = torch.zeros(len(query))
        for j, prediction in enumerate(predictions):
            value, is_queried = rows.outputs[..., j], queried[..., j]
            candidates = [prediction]
            if tempered and isinstance(prediction, TorchCategorical):
                candidates = [
                    TorchCategorical(logits=t * prediction.logits, validate_args=False) for t in _TEMPERATURES
                ]
            log_probs = [candidate.log_prob(value).clamp_min(-_MAX_CELL_LOSS) for candidate in candidates]
            count = is_queried.sum(1).clamp_min(1)
            means = torch.stack([torch.where(is_queried, part, 0).sum(1) / count for part in log_probs])
            total = total + weights[j] * means.amax(0)
        return total

    @torch.no_grad()
    def _calibrate(
        self, plan: TrainingPlan, split: Split, gp_predictions: list[Float[ndarray, "n g"] | None]
    ) -> list[Calibration]:
        """Fit to the predictions of held-out rows, and the GP's leave-one-out predictions of all rows."""
        rows = split.held_out[:, : 4 * plan.batch]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            query, queried = self.table.masked_rows(rows, plan.hide)
        predictions = self.net.predict(query, self.net.remember(self.table.rows(split.train[:, :_MAX_MEMORY_ROWS])))
        values, observed = query.outputs.double().numpy(), queried.numpy()
        return [
            fit_calibration(
                to_member_predictions(prediction),
                HeldOut(values[..., j], observed[..., j], rows.numpy(), None if gp is None else gp[rows.numpy()]),
            )
            for j, (prediction, gp) in enumerate(zip(predictions, gp_predictions, strict=True))
        ]

    def _fit_max_missing(self, split: Split) -> int:
        """The number of missing cells up to which a row is left to the networks: any where cells were masked in
        training; otherwise none, or as many as rows usually have, whichever makes held-out rows more likely."""
        if self.layout.has_features:
            return self.inputs.shape[1]
        rows = split.held_out[:, :_TEST_ROWS].unique()
        rows = rows[np.isnan(self.inputs[rows.numpy()]).any(1)]
        if len(rows) < _MIN_TEST_ROWS:
            return 0
        completed = self.hot_deck.complete(self.inputs[rows.numpy()], _TEST_DONORS)
        missing_outputs = np.full((completed.shape[0] * completed.shape[1], len(self.layout.outputs)), np.nan)
        gain = self._completion_gain(split, rows, self._encode(np.concatenate(completed), missing_outputs))
        return 0 if gain >= 0 else self.hot_deck.max_missing

    @torch.no_grad()
    def _completion_gain(self, split: Split, rows: Int64[Tensor, "r"], completed: EncodedTable) -> float:
        """Return the gain in log-likelihood of held-out rows, in nats, when they are completed by donors (one after the
        other in `completed`) instead of predicted with missing cells."""
        table, net = self.table, self.net
        donors, held_out = len(completed) // len(rows), split.held_out[:, :_TEST_ROWS]
        position = torch.zeros(len(table), dtype=torch.long)
        position[rows] = torch.arange(len(rows))
        has_missing = torch.zeros(len(table), dtype=torch.bool)
        has_missing[rows] = True
        memory = net.remember(table.rows(split.train[:, :_MAX_MEMORY_ROWS]))
        as_is = net.predict(table.rows(held_out), memory)
        index = (position[held_out][..., None] * donors + torch.arange(donors)).flatten(1)
        by_donor = net.predict(completed.rows(index), memory)
        gain = 0.0
        for j, (single, multiple) in enumerate(zip(as_is, by_donor, strict=True)):
            value = table.outputs[held_out][..., j]
            counted = table.output_observed[held_out][..., j] & has_missing[held_out]
            log_probs = multiple.log_prob(value.repeat_interleave(donors, 1)).unflatten(1, (-1, donors))
            mixed = (log_probs.logsumexp(-1) - math.log(donors)).clamp_min(-_MAX_CELL_LOSS)
            gain += float((mixed - single.log_prob(value).clamp_min(-_MAX_CELL_LOSS))[counted].sum())
        return gain

    def predict(self, inputs: Float[ndarray, "n d"], transductive: bool = False) -> list[Predictive]:
        needs_donors = self.hot_deck.needs_donors(inputs)
        if not needs_donors.any():
            return self._predict(inputs, transductive)
        completed = self.hot_deck.complete(inputs[needs_donors])
        rows = np.concatenate([inputs[~needs_donors], completed.reshape(-1, inputs.shape[1])])
        predictions = self._predict(rows, transductive)
        return [merge_completions(prediction, needs_donors, completed.shape[1]) for prediction in predictions]

    def _predict(self, inputs: Float[ndarray, "n d"], transductive: bool) -> list[Predictive]:
        outputs = np.full((len(inputs), len(self.layout.outputs)), np.nan)
        for j, position in enumerate(self.layout.input_of_output):
            if position >= 0:
                outputs[:, j] = inputs[:, position]
        query, table, table_inputs = self._encode(inputs, outputs), self.table, self.inputs
        if transductive:
            table, table_inputs = table.append(query), np.concatenate([table_inputs, inputs])
        numbers = None
        if not self.layout.has_targets:  # a row equal to the query has no further cell, and training excluded it
            rows = np.concatenate([inputs, table_inputs])
            keys = np.concatenate([np.nan_to_num(rows), np.isnan(rows)], 1)  # equal rows have equal numbers
            number = torch.from_numpy(np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1))
            numbers = number[: len(inputs)], number[len(inputs) :]
        elif transductive:
            numbers = torch.arange(len(self.table), len(table)), torch.arange(len(table))
        gp_predictions = [gp and gp.predict(query.features) for gp in self.gps]
        return self._combine(self._query(query, table, numbers), gp_predictions)

    @torch.no_grad()
    def _query(self, query: EncodedTable, table: EncodedTable, numbers: RowNumbers | None) -> list[Predictive]:
        """The predictions [m n …] of all members for each output column. A row does not attend to rows of its own
        number. Double precision keeps results independent, to nine digits, of which rows are predicted together."""
        net, query, table = copy.deepcopy(self.net).double().eval(), query.double(), table.double()
        members, n = len(net.trust), len(table)
        kept = torch.arange(n) if n <= _MAX_MEMORY_ROWS else torch.arange(_MAX_MEMORY_ROWS) * n // _MAX_MEMORY_ROWS
        memory = net.remember(table.rows(kept.expand(members, -1)))
        rows_at_once = max(1, _MAX_PAIRS // (members * net.heads * max(1, len(kept))))
        pieces = []
        for rows in torch.arange(len(query)).split(rows_at_once):
            same = None
            if numbers is not None:
                same = same_rows(numbers[0][rows][None], numbers[1][kept][None]).expand(members, -1, -1)
            predictions = net.predict(query.rows(rows.expand(members, -1)), memory, same)
            pieces.append([to_member_predictions(prediction) for prediction in predictions])
        return [type(column[0]).concatenate(column, axis=1) for column in zip(*pieces, strict=True)]

    def with_rows(self, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"]) -> "RowLearner":
        other = super().with_rows(inputs, outputs)
        other._condition_gps([gp and gp.hyperparameters for gp in self.gps])
        return other

    def _condition_gps(self, hyperparameters: Sequence[GPHyperparameters | None]) -> None:
        """Condition processes of these hyperparameters on the rows of the table."""
        self.gps = [
            GaussianProcess.condition(self.table.features, target, parameters) if parameters and target else None
            for target, parameters in zip(self.table.gp_targets, hyperparameters, strict=True)
        ]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, metadata = super().state()
        for j, gp in enumerate(self.gps):
            if gp is not None:
                tensors |= {f"smooth.{j}.{name}": t for name, t in vars(gp.hyperparameters).items()}
        return tensors, metadata | {"blanks": self.hot_deck.max_missing}

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> "RowLearner":
        learner = super().from_state(tensors, metadata)
        learner._condition_gps([
            GPHyperparameters(tensors[f"smooth.{j}.length"], tensors[f"smooth.{j}.rest"])
            if f"smooth.{j}.length" in tensors else None
            for j in range(len(learner.gps))
        ])  # fmt: skip
        learner.hot_deck = replace(learner.hot_deck, max_missing=int(metadata.get("blanks", 0)))
        return learner


def to_member_predictions(distribution: Any) -> Predictive:
    """Arrays [m n k] of a torch distribution of batch [m n]; every component counts towards the moments."""
    prediction = to_predictive(distribution)
    if isinstance(prediction, Categorical):
        return prediction
    return untrimmed(prediction.weights, prediction.means, prediction.stds)
