"""A non-parametric transformer (NPT) trained on one table: masked cells are predicted from all others.

Training follows Kossen et al. 2021. Every step sees a batch with the proportions of the table: the same share of each
class and of rows without a label. Some labels and some features are masked; the loss is (1 − λ) targets + λ features,
with λ annealed to 0 by a cosine. A row without a label is a row whose label is always masked.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.data.task import TableBatch
from fillin.errors import InputError
from fillin.learners.base import TableLearner, TrainingPlan
from fillin.learners.calibration import Calibration, HeldOut, fit_calibration
from fillin.learners.row_learner import to_member_predictions
from fillin.models.npt import CLASSES, NPT
from fillin.objectives import masked_reconstruction
from fillin.predictive import GaussianMixture, Predictive
from fillin.runtime import Tick
from fillin.warp import PiecewiseLinearWarp

_QUERIES_AT_ONCE = 1024
_NET: dict[str, Any] = {"width": 32, "heads": 2, "layers": 4, "hidden": 64, "components": 5}


@dataclass(frozen=True)
class NPTPlan(TrainingPlan):
    """`batch` rows attend to one another in a step; queries attend to `memory` rows. `labels` and `hide` are the shares
    of labels and of features that are masked."""

    memory: int = 1024
    labels: float = 0.15
    hide: float = 0.15
    patience: int = 10


@dataclass(frozen=True)
class NPTTable:
    """Features first, then targets: numbers in standard units, and class codes."""

    values: Float[Tensor, "n d"]
    observed: Bool[Tensor, "n d"]
    classes: Int64[Tensor, "d"]
    n_targets: int

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_features(self) -> int:
        return self.values.shape[1] - self.n_targets

    @cached_property
    def labelled(self) -> Bool[Tensor, "n"]:
        """Rows with an observed target; all rows where there are no targets."""
        if not self.n_targets:
            return torch.ones(len(self), dtype=torch.bool)
        return self.observed[:, self.n_features :].any(1)

    @cached_property
    def strata(self) -> Int64[Tensor, "n"]:
        """0 for rows without a label, then one stratum per class of the last target."""
        if not self.n_targets or not self.classes[-1]:
            return self.labelled.long()
        return torch.where(self.observed[:, -1], 1 + self.values[:, -1].long(), 0)

    def sample(self, rows: Int64[Tensor, "k"], count: int) -> Int64[Tensor, "c"]:
        """At most `count` of the rows, in random order, stratified to within one row."""
        rows = rows[torch.randperm(len(rows))]
        if len(rows) <= count:
            return rows
        rows = rows[self.strata[rows].argsort(stable=True)]
        index = (torch.arange(count) + torch.rand(()).double()) * len(rows) / count
        return rows[index.long().clamp_max(len(rows) - 1)]

    def split(self, share: float, max_held_out: int = 5_000) -> tuple[Int64[Tensor, "k"], Int64[Tensor, "v"]]:
        """Training rows, and held-out rows: a share of the labelled ones."""
        rows = self.labelled.nonzero()[:, 0]
        count = min(max(round(len(rows) * share), min(4, len(rows) - 1)), max_held_out)
        held_out = self.sample(rows, count) if count else rows[:0]
        is_train = torch.ones(len(self), dtype=torch.bool)
        is_train[held_out] = False
        return is_train.nonzero()[:, 0], held_out

    def training_task(self, rows: Int64[Tensor, "k"], label_share: float, feature_share: float) -> TableBatch:
        """A task to train on: a share of the labelled rows are queries, whose targets are masked and which no other row
        attends to; a share of the features of all rows is masked too."""
        labelled = self.labelled[rows]
        n_queries = max(1, round(label_share * int(labelled.sum())))
        rows = rows[(torch.rand(len(rows)) + labelled).argsort()]  # labelled rows last
        masked = torch.rand(len(rows), self.values.shape[1]) < feature_share
        masked[:, self.n_features :] = (torch.arange(len(rows)) >= len(rows) - n_queries)[:, None]
        return self._task(rows, masked, len(rows) - n_queries)

    def query_task(
        self, context: Int64[Tensor, "k"], queries: Int64[Tensor, "v"], feature_share: float = 0.0
    ) -> TableBatch:
        """A task to predict: the targets of the query rows, and a share of their features, given the context rows."""
        rows = torch.cat([context, queries])
        masked = torch.zeros_like(self.observed[rows])
        masked[len(context) :, self.n_features :] = True
        if feature_share:
            masked[len(context) :] |= torch.rand(len(queries), masked.shape[1]) < feature_share
        return self._task(rows, masked, len(context))

    def append(self, other: "NPTTable") -> "NPTTable":
        """The rows of both tables."""
        values, observed = torch.cat([self.values, other.values]), torch.cat([self.observed, other.observed])
        return NPTTable(values, observed, self.classes, self.n_targets)

    def _task(self, rows: Int64[Tensor, "k"], masked: Bool[Tensor, "k d"], n_context: int) -> TableBatch:
        values, observed = self.values[rows], self.observed[rows]
        visible, queried = observed & ~masked, observed & masked
        return TableBatch(
            values[None], visible[None], queried[None], self.classes[None], n_context, targets=self.n_targets
        )


class NPTLearner(TableLearner):
    """`NPTLearner.fit(…)`, then `predict(inputs)`."""

    name = "npt"

    def _build(self) -> None:
        layout, inputs = self.layout, self.inputs
        self.net_options = _NET | self.net_options
        pairs = list(zip(layout.input_of_output, self.scales, strict=True))
        of_feature = {position: scale for position, scale in pairs if position >= 0}
        of_targets = [scale for position, scale in pairs if position < 0]
        of_inputs = [
            of_feature[j] if j in of_feature else None if classes else PiecewiseLinearWarp.fit(inputs[:, j])
            for j, classes in enumerate(layout.inputs)
        ]
        self._column_scales = [*of_inputs, *of_targets]
        self._columns = [p if p >= 0 else len(of_inputs) + i for i, p in enumerate(layout.input_of_output)]
        self.table = self._encode(inputs, self.outputs)
        self.net = NPT(inputs.shape[1], len(of_targets), **self.net_options)

    def _train(self, plan: TrainingPlan, tick: Tick) -> None:
        for position, classes in zip(self.layout.input_of_output, self.layout.outputs, strict=True):
            if position < 0 and classes > CLASSES:  # of inputs the rarest classes share a code
                raise InputError(f"y has {classes} classes; model='npt' distinguishes {CLASSES}: use model='rows'")
            if not self.layout.has_targets and classes > CLASSES + 1:  # the last code is any other value
                raise InputError(
                    f"column {position} (from 0) has {classes - 1} classes; model='npt' distinguishes {CLASSES}: join "
                    "rare ones, or use model='rows'"
                )
        npt_plan = NPTPlan(steps=plan.steps, hide=NPTPlan.hide if self.layout.has_features else 0.0)
        rows, held_out = self.table.split(npt_plan.held_out)
        self._train_network(npt_plan, rows, held_out, tick)
        self.calibrations = self._calibrate(npt_plan, rows, held_out)

    def _train_network(self, plan: NPTPlan, rows: Int64[Tensor, "k"], held_out: Int64[Tensor, "v"], tick: Tick) -> None:
        net, table = self.net, self.table
        is_feature = torch.tensor([position >= 0 for position in self.layout.input_of_output])

        def feature_weight(progress: float) -> float:
            """λ, by the share of steps that are done."""
            return float(self.layout.output_weights(progress)[is_feature].sum())

        def loss(progress: float) -> Tensor:
            task = table.training_task(table.sample(rows, plan.batch), plan.labels, plan.hide)
            return -masked_reconstruction(net, task, feature_weight(progress)).mean()

        def score(step: int) -> Float[Tensor, "1"]:
            """Mean ln p of the targets, or of masked features where there are none; the same cells each time."""
            if not len(held_out):
                return torch.tensor([float(step)])
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                context, queries = table.sample(rows, plan.memory), held_out[: 4 * plan.batch]
                task = table.query_task(context, queries, 0.0 if table.n_targets else plan.hide)
                return masked_reconstruction(net, task).reshape(1)

        # patience starts when the feature loss no longer dominates
        features_dominate = lambda progress: table.n_targets > 0 and feature_weight(progress) > 0.5  # noqa: E731
        plan.train(net, loss, score, tick, 1.0, fused=True, ignore_patience=features_dominate)

    def _calibrate(self, plan: NPTPlan, rows: Int64[Tensor, "k"], held_out: Int64[Tensor, "v"]) -> list[Calibration]:
        """Fit to predictions of held-out rows: of their targets with all features observed, of features with some of
        them masked. A standard deviation estimated from n cells is known to a factor of about exp(1/√n), and one
        network has no ensemble: its predictions are widened by that factor."""
        calibrations, table = dict.fromkeys(self._columns, Calibration()), self.table
        held_out = held_out[: 4 * plan.batch]
        for share in sorted({0.0, plan.hide}) if len(held_out) else ():
            scored = [j for j in calibrations if (j < table.n_features) == (share > 0)]
            task = table.query_task(table.sample(rows, plan.memory), held_out, share)
            values, queried = (part[:, task.context :].numpy() for part in (task.values.double(), task.queried))
            for j, prediction in zip(scored, self._predict_columns(task, scored), strict=True):
                cells = HeldOut(values[..., j], queried[..., j], held_out[None].numpy())
                calibrations[j] = fit_calibration(prediction, cells)
                if isinstance(prediction, GaussianMixture):
                    factor = calibrations[j].member * math.exp(1 / math.sqrt(max(1, cells.observed.sum())))
                    calibrations[j] = Calibration(factor, factor)
        return [calibrations[j] for j in self._columns]

    @torch.no_grad()
    def _predict_columns(self, task: TableBatch, columns: list[int]) -> list[Predictive]:
        """The predictions [1 n k] of each of the columns in the query rows."""
        if not columns:
            return []
        self.net.eval()
        prediction, first = self.net.fill(task), task.context or 0
        members = [to_member_predictions(prediction.column(j, int(task.classes[0, j]))) for j in columns]
        return [member[:, first:] for member in members]

    def _encode(self, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"]) -> NPTTable:
        targets = [j for j, position in enumerate(self.layout.input_of_output) if position < 0]
        columns = np.concatenate([inputs, outputs[:, targets]], 1)
        classes = [*self.layout.inputs, *(self.layout.outputs[j] for j in targets)]
        z = [
            np.minimum(column, CLASSES - 1) if scale is None else scale.forward(column)
            for column, scale in zip(columns.T, self._column_scales, strict=True)
        ]
        values = np.stack(z, 1)
        observed = torch.as_tensor(~np.isnan(values))
        values = torch.as_tensor(np.nan_to_num(values), dtype=torch.float32)
        return NPTTable(values, observed, torch.tensor(classes).clamp_max(CLASSES), len(targets))

    def predict(self, inputs: Float[ndarray, "n d"], transductive: bool = False) -> list[Predictive]:
        queries = self._encode(inputs, np.full((len(inputs), len(self.layout.outputs)), np.nan))
        both = self.table.append(queries)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            context = self.table.sample(torch.arange(len(self.table)), NPTPlan.memory)
        pieces = []
        for rows in torch.arange(len(self.table), len(both)).split(_QUERIES_AT_ONCE):
            visible = torch.cat([context, rows]) if transductive else context
            pieces.append(self._predict_columns(both.query_task(visible, rows), self._columns))
        members = [type(column[0]).concatenate(column, axis=1) for column in zip(*pieces, strict=True)]
        return self._combine(members, [None] * len(members))
