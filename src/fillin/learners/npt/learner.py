"""NPT as a table learner: one network trained on the table, which queries attend to."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError
from fillin.learners.base import Prediction, TableLayout, TableLearner, Tick, TrainingPlan
from fillin.learners.npt.batches import NPTTable
from fillin.learners.npt.training import NPTPlan, calibrate, predict_columns, train
from fillin.learners.row_learner import concatenate_members
from fillin.models.cell_embedding import CLASSES
from fillin.models.npt import NPT
from fillin.warp import PiecewiseLinearWarp

_QUERIES_AT_ONCE = 1024
_NET = {"width": 32, "heads": 2, "layers": 4, "hidden": 64, "components": 5}


class NPTLearner(TableLearner):
    """`NPTLearner.fit(…)`, then `predict(inputs)`."""

    name = "npt"

    def __init__(
        self, layout: TableLayout, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"],
        scales: Sequence[PiecewiseLinearWarp | None], net_options: Mapping[str, Any],
    ):  # fmt: skip
        super().__init__(layout, inputs, outputs, scales, net_options)
        pairs = list(zip(layout.input_of_output, self.scales, strict=True))
        of_feature = {position: scale for position, scale in pairs if position >= 0}
        of_targets = [scale for position, scale in pairs if position < 0]
        of_inputs = [
            of_feature[j] if j in of_feature else None if classes else PiecewiseLinearWarp.fit(inputs[:, j])
            for j, classes in enumerate(layout.inputs)
        ]
        self._column_scales = [*of_inputs, *of_targets]
        self._columns = [p if p >= 0 else len(of_inputs) + i for i, p in enumerate(layout.input_of_output)]
        self.table = self._encode(inputs, outputs)
        self.net = NPT(inputs.shape[1], len(of_targets), **self.net_options)

    @classmethod
    def fit(
        cls, layout: TableLayout, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"], scale: str, seed: int,
        plan: TrainingPlan, net_options: Mapping[str, Any], tick: Tick,
    ) -> "NPTLearner":  # fmt: skip
        _check_classes(layout)
        scales = cls.fit_scales(layout, outputs, scale)
        is_feature = torch.tensor([position >= 0 for position in layout.input_of_output])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            learner = cls(layout, inputs, outputs, scales, _NET | dict(net_options))
            npt_plan = NPTPlan(steps=plan.steps, hide=NPTPlan.hide if is_feature.any() else 0.0)
            rows, held_out = learner.table.split(npt_plan.held_out)
            train(
                learner.net, learner.table, npt_plan, rows, held_out,
                lambda progress: float(layout.output_weights(progress)[is_feature].sum()), tick,
            )  # fmt: skip
            learner.calibrations = calibrate(learner.net, learner.table, npt_plan, rows, held_out, learner._columns)
        return learner

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

    def predict(self, inputs: Float[ndarray, "n d"], transductive: bool = False) -> list[Prediction]:
        queries = self._encode(inputs, np.full((len(inputs), len(self.layout.outputs)), np.nan))
        both = self.table.append(queries)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            context = self.table.sample(torch.arange(len(self.table)), NPTPlan.memory)
        pieces = []
        for rows in torch.arange(len(self.table), len(both)).split(_QUERIES_AT_ONCE):
            visible = torch.cat([context, rows]) if transductive else context
            pieces.append(predict_columns(self.net, both.query_task(visible, rows), self._columns))
        members = [concatenate_members(column) for column in zip(*pieces, strict=True)]
        return self._combine(members, [None] * len(members))

    def with_rows(self, inputs: Float[ndarray, "n d"], outputs: Float[ndarray, "n t"]) -> "NPTLearner":
        other = copy.copy(self)
        other.inputs, other.outputs, other.table = inputs, outputs, self._encode(inputs, outputs)
        return other


def _check_classes(layout: TableLayout) -> None:
    """Refuse outputs with more classes than NPT has; of inputs the rarest classes share a code."""
    for position, classes in zip(layout.input_of_output, layout.outputs, strict=True):
        if position < 0 and classes > CLASSES:
            raise InputError(f"y has {classes} classes; model='npt' distinguishes {CLASSES}: use model='rows'")
        if not layout.has_targets and classes > CLASSES + 1:  # the last code is any other value
            raise InputError(
                f"column {position} (from 0) has {classes - 1} classes; model='npt' distinguishes {CLASSES}: join rare "
                "ones, or use model='rows'"
            )
