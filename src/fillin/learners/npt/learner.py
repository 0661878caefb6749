"""A table that npt has learnt: the network, the rows it looks at, and how wide its answers are."""

import copy
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError
from fillin.learners.calibration import Widths
from fillin.learners.member_predictions import in_a_row
from fillin.learners.npt.table import OneTable
from fillin.learners.npt.training import NPTPlan, answers, calibrate, train
from fillin.learners.predictions import Told
from fillin.learners.row_learner import Question, in_units
from fillin.learners.training import Plan, Tick
from fillin.models.cell_embedding import CLASSES
from fillin.models.npt import NPT
from fillin.tabular.scaling import Scale

_TOGETHER = 1024  # rows that are asked for at a time
_NET = {"width": 32, "heads": 2, "layers": 4, "hidden": 64, "components": 5}


class NPTFitted:
    """What `Fitted` is for the networks of rows: `NPTFitted.learn(…)`, then `tell(values)`."""

    def __init__(
        self, question: Question, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"],
        scales: list[Scale | None], net_options: dict[str, Any],
    ):  # fmt: skip
        self.question, self.reads, self.tells = question, reads, tells
        self.scales, self.net_options = scales, net_options
        told = {place: scale for place, scale in zip(question.shared, scales, strict=True) if place >= 0}
        targets = [scale for place, scale in zip(question.shared, scales, strict=True) if place < 0]
        own = [
            told[j] if j in told else None if classes else Scale.learn(reads[:, j])
            for j, classes in enumerate(question.reads)
        ]
        self._every = [*own, *targets]  # of features, then of targets
        self._places = [place if place >= 0 else len(own) + i for i, place in enumerate(question.shared)]
        self.table = self._task(reads, tells)
        self.net = NPT(reads.shape[1], len(targets), **net_options)
        self.widths = [Widths() for _ in question.tells]

    @classmethod
    def learn(
        cls, question: Question, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"], how: str, seed: int,
        plan: Plan, net_options: dict[str, Any], tick: Tick,
    ) -> "NPTFitted":  # fmt: skip
        """Train on the rows of the table, those without a target too; numbers are scaled as `how` says."""
        _check(question)
        scales = [
            None if classes else Scale.learn(column, how)
            for classes, column in zip(question.tells, tells.T, strict=True)
        ]
        feature = torch.tensor([place >= 0 for place in question.shared])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fitted = cls(question, reads, tells, scales, _NET | net_options)
            plan = NPTPlan(steps=plan.steps, hide=NPTPlan.hide if feature.any() else 0.0)
            rows, out = fitted.table.split(plan.held_out)
            train(
                fitted.net, fitted.table, plan, rows, out,
                lambda spent: float(question.weights(spent)[feature].sum()), tick,
            )  # fmt: skip
            fitted.widths = calibrate(fitted.net, fitted.table, plan, rows, out, fitted._places)
        return fitted

    def _task(self, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"]) -> OneTable:
        targets = [j for j, place in enumerate(self.question.shared) if place < 0]
        columns = np.concatenate([reads, tells[:, targets]], 1)
        classes = [*self.question.reads, *(self.question.tells[j] for j in targets)]
        z = np.stack(
            [
                np.minimum(column, CLASSES - 1) if scale is None else scale.forward(column)
                for column, scale in zip(columns.T, self._every, strict=True)
            ],
            1,
        )
        known = torch.as_tensor(~np.isnan(z))
        values = torch.as_tensor(np.nan_to_num(z), dtype=torch.float32)
        return OneTable(values, known, torch.tensor(classes).clamp_max(CLASSES), len(targets))

    def tell(self, values: Float[ndarray, "n d"], together: bool = False) -> list[Told]:
        """What belongs in the told columns; `together`: rows also look at others that are asked for with them."""
        asked = self._task(values, np.full((len(values), len(self.question.tells)), np.nan))
        both, known = self.table.followed_by(asked), torch.arange(len(self.table))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            context = self.table.some(known, NPTPlan.memory)
        pieces = []
        for rows in torch.arange(len(self.table), len(both)).split(_TOGETHER):
            seen = torch.cat([context, rows]) if together else context
            pieces.append(answers(self.net, both.asking(seen, rows), self._places))
        said = [in_a_row(column) for column in zip(*pieces, strict=True)]
        return in_units(said, self.scales, self.widths, self.settings)

    def seeing(self, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"]) -> "NPTFitted":
        """The same network, with other rows to look at."""
        other = copy.copy(self)
        other.reads, other.tells, other.table = reads, tells, self._task(reads, tells)
        return other

    @property
    def settings(self) -> list[None]:
        """Of processes beside it: there are none."""
        return [None] * len(self.scales)

    @property
    def most_blanks(self) -> int:
        """Of a row that it is asked about as it is: any number."""
        return self.reads.shape[1]

    def leave_blanks(self, most: int) -> None:
        """It always does."""

    def guessing_by(self, settings: list[Any]) -> None:
        """As there are none, nothing."""


def _check(question: Question) -> None:
    """An error where more classes are to be told than npt knows; of columns that are read the rarest are one."""
    all_told = min(question.shared) >= 0
    for place, classes in zip(question.shared, question.tells, strict=True):
        if place < 0 and classes > CLASSES:
            raise InputError(f"y has {classes} classes; model='npt' tells {CLASSES} apart: use model='rows'")
        if all_told and classes > CLASSES + 1:  # the last is any other value, of which there was none
            raise InputError(
                f"column {place} (from 0) has {classes - 1} classes; model='npt' tells {CLASSES} apart: join rare "
                "ones, or use model='rows'"
            )
