"""A table that was learnt: networks, the rows they look up, and how wide their answers are."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from fillin.learners.calibration import Widths
from fillin.learners.encoding import MOST, TableTask, Units
from fillin.learners.gaussian_imputation import Joint
from fillin.learners.gp import Settings, Smooth
from fillin.learners.hot_deck import Blanks, put_back
from fillin.learners.inference import BLANKED, RowNumbers, ask, calibrate, gain_of_completing
from fillin.learners.member_predictions import Members, Said
from fillin.learners.predictions import Classes, Numbers, Told
from fillin.learners.row_network import Layout, RowNet
from fillin.learners.training import Plan, Split, Tick, train
from fillin.tabular.scaling import Scale

_BLANKED, _DRAWS = 10, 8  # held-out rows with blanks that say whether to complete them, and how often each is


@dataclass(frozen=True)
class Question:
    """Which columns are read and which are told: their classes (0: numbers), and the place of a told column among
    those that are read (−1: it is not). `features` is λ, the weight of told columns that are read too."""

    reads: tuple[int, ...]
    tells: tuple[int, ...]
    shared: tuple[int, ...]
    features: float = 1.0

    def labelled(self, tells: Float[ndarray, "n t"]) -> Bool[Tensor, "n"]:
        """Rows with a value in a told column that is not read; where there is none such, all."""
        targets = tells[:, [place < 0 for place in self.shared]]
        return torch.as_tensor(~np.isnan(targets).all(1) if targets.shape[1] else np.ones(len(tells), bool))

    def weights(self, spent: float) -> Float[Tensor, "t"]:
        """(1 − λ) on targets, λ on features, annealed to nothing by a cosine; where all are features, all alike."""
        feature = torch.tensor([place >= 0 for place in self.shared])
        if feature.all():
            return torch.ones(len(feature)) / len(feature)
        part = self.features * (0.5 + 0.5 * np.cos(np.pi * spent)) if feature.any() else 0.0
        return torch.where(feature, part / max(1, int(feature.sum())), (1 - part) / int((~feature).sum()))


class Fitted:
    """`Fitted.learn(…)`, then `tell(values)`: what belongs in each told column of new rows."""

    def __init__(
        self, question: Question, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"],
        scales: list[Scale | None], net_options: dict[str, Any],
    ):  # fmt: skip
        self.question, self.reads, self.tells = question, reads, tells
        self.scales, self.net_options = scales, net_options
        self.units = Units.of(reads, question.reads)
        self.blanks = Blanks.of(reads, self.units.scale, np.array(question.reads) > 0)
        self.joint: Joint | None = None  # as the table says
        self.table = self._task(reads, tells)
        self.joint = self.table.joint
        self.smooth: list[Smooth | None] = [None] * len(question.tells)  # of targets a process guesses, too
        self.net = RowNet(self.table.layout, **net_options)
        self.widths = [Widths() for _ in question.tells]

    @classmethod
    def learn(
        cls, question: Question, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"], how: str, seed: int,
        plan: Plan, net_options: dict[str, Any], tick: Tick,
    ) -> "Fitted":  # fmt: skip
        """Train on rows of which something can be told; numbers are scaled as `how` says."""
        scales = [
            None if classes else Scale.learn(column, how)
            for classes, column in zip(question.tells, tells.T, strict=True)
        ]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fitted = cls(question, reads, tells, scales, net_options)
            split = Split.of(question.labelled(tells), net_options["members"], plan.held_out)
            train(fitted.net, fitted.table, plan, split, question.weights, tick)
            fitted.smooth = [
                target and Smooth.learn(fitted.table.places, target, plan.steps) for target in fitted.table.targets
            ]
            guesses = [smooth and smooth.left_out(fitted.table.places) for smooth in fitted.smooth]
            fitted.widths = calibrate(fitted.net, fitted.table, plan, split, guesses)
            fitted.leave_blanks(fitted._blanks_left(split))
            fitted.smooth = [  # what has no share is not asked
                smooth if widths.guess else None for smooth, widths in zip(fitted.smooth, fitted.widths, strict=True)
            ]
        return fitted

    def _blanks_left(self, split: Split) -> int:
        """How many blanks of a row are left to the networks: all where cells were hidden from them, else none, or as
        many as rows have, where these are likelier so."""
        if max(self.question.shared) >= 0:
            return self.reads.shape[1]
        rows = split.out[:, :BLANKED].unique()
        rows = rows[np.isnan(self.reads[rows.numpy()]).any(1)]
        if len(rows) < _BLANKED:
            return 0
        completed = self.blanks.completed(self.reads[rows.numpy()], _DRAWS)
        told = np.full((completed.shape[0] * completed.shape[1], len(self.question.tells)), np.nan)
        task = self._task(completed.reshape(len(told), -1), told)
        gain = gain_of_completing(self.net, self.table, split, rows, task)
        return 0 if gain >= 0 else self.blanks.most

    def _task(self, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"]) -> TableTask:
        codes = tuple(min(k, MOST) for k in self.question.tells)
        z = np.stack(
            [
                np.minimum(column, k - 1) if scale is None else scale.forward(column)
                for column, scale, k in zip(tells.T, self.scales, codes, strict=True)
            ],
            1,
        )
        layout = Layout(self.units.classes, codes, self.question.shared)
        return TableTask.of(reads, z, self.units, layout, self.joint)

    def tell(self, values: Float[ndarray, "n d"], together: bool = False) -> list[Told]:
        """What belongs in the told columns; `together`: rows also look at the others that are asked for."""
        lost = self.blanks.lost(values)
        if not lost.any():
            return self._tell(values, together)
        completed = self.blanks.completed(values[lost])
        every = np.concatenate([values[~lost], completed.reshape(-1, values.shape[1])])
        return [put_back(told, lost, completed.shape[1]) for told in self._tell(every, together)]

    def _tell(self, values: Float[ndarray, "n d"], together: bool) -> list[Told]:
        held = np.full((len(values), len(self.question.tells)), np.nan)
        for j, place in enumerate(self.question.shared):
            if place >= 0:
                held[:, j] = values[:, place]
        asked, table, reads = self._task(values, held), self.table, self.reads
        if together:
            table, reads = table.followed_by(asked), np.concatenate([reads, values])
        numbers = None
        if min(self.question.shared) >= 0:  # a row like it, blanks and all, has nothing to tell, and none was seen
            numbers = _numbered(values, reads)
        elif together:
            numbers = torch.arange(len(self.table), len(table)), torch.arange(len(table))
        guesses = [smooth and smooth.guess(asked.places) for smooth in self.smooth]
        return in_units(ask(self.net, asked, table, numbers), self.scales, self.widths, guesses)

    def seeing(self, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"]) -> "Fitted":
        """The same networks, with other rows to look at."""
        other = copy.copy(self)
        other.reads, other.tells, other.table = reads, tells, self._task(reads, tells)
        return other.guessing_by(self.settings)

    @property
    def most_blanks(self) -> int:
        """Of a row that networks are asked about as it is; one with more is completed."""
        return self.blanks.most

    def leave_blanks(self, most: int) -> None:
        self.blanks = self.blanks.up_to(most)

    @property
    def settings(self) -> list[Settings | None]:
        """Of the processes."""
        return [smooth and smooth.settings for smooth in self.smooth]

    def guessing_by(self, settings: Sequence[Settings | None]) -> "Fitted":
        """Itself, with processes of these settings on its rows."""
        self.smooth = [
            Smooth.given_all(self.table.places, target, found) if found and target else None
            for target, found in zip(self.table.targets, settings, strict=True)
        ]
        return self


def in_units(
    said: Sequence[Said], scales: Sequence[Scale | None], widths: Sequence[Widths], guesses: Sequence[ndarray | None]
) -> list[Told]:
    """What members say of each told column, taken together with what is guessed, in the units of the column; without a
    scale: classes."""
    made: list[Told] = []
    for one, scale, wide, guess in zip(said, scales, widths, guesses, strict=True):
        if isinstance(one, Members) and scale is not None:
            made.append(Numbers(wide.numbers(one, guess), scale))
        elif isinstance(one, ndarray):
            made.append(Classes(wide.chances(one, guess)))
    return made


def _numbered(asked: Float[ndarray, "n d"], known: Float[ndarray, "k d"]) -> RowNumbers:
    """Numbers of rows that are the same for those that hold the same, blanks and all."""
    every = np.concatenate([asked, known])
    lines = np.concatenate([np.nan_to_num(every), np.isnan(every)], 1)
    numbers = torch.from_numpy(np.unique(lines, axis=0, return_inverse=True)[1].reshape(-1))
    return numbers[: len(asked)], numbers[len(asked) :]
