"""One table as a network is trained on it: what it reads, in standard units, and what it tells."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import one_hot

from fillin.learners.gaussian_imputation import Joint
from fillin.learners.gp import Target
from fillin.learners.row_network import Layout, Rows
from fillin.predictive import MOST_CLASSES as MOST

_FAR = 3.0  # deviations beyond which a number is drawn nearer


@dataclass(frozen=True)
class Units:
    """Mean and deviation of each column of numbers; a column of classes has 0 and 1."""

    mean: Float[ndarray, "d"]
    scale: Float[ndarray, "d"]
    classes: tuple[int, ...]

    @classmethod
    def of(cls, values: Float[ndarray, "n d"], classes: tuple[int, ...]) -> "Units":
        known = ~np.isnan(values)
        count = known.sum(0).clip(1)
        mean = np.where(known, values, 0).sum(0) / count
        scale = np.sqrt((np.where(known, values - mean, 0) ** 2).sum(0) / count)
        scale = np.where(scale > 1e-9 * np.abs(mean), scale, np.where(mean == 0, 1.0, np.abs(mean)))
        coded = np.array(classes) > 0
        return cls(np.where(coded, 0, mean), np.where(coded, 1, scale), tuple(min(k, MOST) for k in classes))

    def standard(self, values: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        z = (values - self.mean) / self.scale
        most = np.array([k - 1 if k else np.inf for k in self.classes])
        return np.minimum(z, most)  # of a class the rarest are those of the last code


def near(z: Float[ndarray, "n d"], classes: tuple[int, ...]) -> Float[ndarray, "n d"]:
    """Numbers as they are read: far ones drawn nearer, by a logarithm."""
    far = np.sign(z) * (_FAR + np.log1p(np.maximum(np.abs(z) - _FAR, 0)))
    return np.where((np.abs(z) <= _FAR) | (np.array(classes) > 0), z, far)


@dataclass(frozen=True)
class TableTask:
    """The rows of a table, as tensors: cells to read and cells to tell."""

    cells: Float[Tensor, "n d"]
    seen: Bool[Tensor, "n d"]
    held: Float[Tensor, "n t"]
    known: Bool[Tensor, "n t"]
    layout: Layout
    joint: Joint  # of the columns of numbers that are read
    guessed: tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]  # cells as `joint` completes them, and how unsure

    @classmethod
    def of(
        cls, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"], units: Units, layout: Layout,
        joint: Joint | None = None,
    ) -> "TableTask":  # fmt: skip
        """From columns to read, in their own units, and columns to tell, in standard ones."""
        z = units.standard(reads)
        seen, known = torch.as_tensor(~np.isnan(z)), ~np.isnan(tells)
        cells = torch.as_tensor(np.where(np.isnan(z), 0, near(z, units.classes)), dtype=torch.float32)
        held = torch.as_tensor(np.where(known, tells, 0), dtype=torch.float32)
        number = layout.numbers
        joint = joint or Joint.learn(cells[:, number], seen[:, number])
        return cls(cells, seen, held, torch.as_tensor(known), layout, joint, _guessed(joint, number, cells, seen))

    def __len__(self) -> int:
        return len(self.cells)

    def double(self) -> "TableTask":
        """The same in double precision."""
        cells, unsure = (part.double() for part in self.guessed)
        return replace(self, cells=self.cells.double(), held=self.held.double(), guessed=(cells, unsure))

    def followed_by(self, other: "TableTask") -> "TableTask":
        """The rows of both, of the same columns."""
        parts = {k: torch.cat([getattr(self, k), getattr(other, k)]) for k in ("cells", "seen", "held", "known")}
        cells, unsure = (torch.cat(two) for two in zip(self.guessed, other.guessed, strict=True))
        return replace(self, guessed=(cells, unsure), **parts)

    @property
    def places(self) -> Float[Tensor, "n f"]:
        """Rows as points: numbers as they are completed, and a column for each class."""
        coded = [
            one_hot(torch.where(self.seen[:, i], self.cells[:, i], 0).long(), k) * self.seen[:, i, None]
            for i, k in enumerate(self.layout.reads)
            if k
        ]
        return torch.cat([self.guessed[0][:, self.layout.numbers], *coded], 1)

    @property
    def targets(self) -> list[Target | None]:
        """Of told columns that are not read what they hold, each class a column."""
        return [
            Target(one_hot(y.long(), k) - 1 / k if k else y[:, None], known) if place < 0 else None
            for y, known, k, place in zip(self.held.T, self.known.T, self.layout.tells, self.layout.shared, strict=True)
        ]

    def rows(self, index: Int64[Tensor, "m k"]) -> Rows:
        """Some rows, others for each member."""
        cells, unsure = self.guessed
        return Rows(cells[index], unsure[index], self.seen[index], self.held[index], self.known[index])

    def hidden(self, index: Int64[Tensor, "m k"], share: float) -> tuple[Rows, Bool[Tensor, "m k t"]]:
        """The same with cells that can be told hidden: those of columns that are not read all, of the others a share.
        Also says which cells can now be asked for."""
        rows = self.rows(index)
        asked, seen = rows.known.clone(), rows.seen.clone()
        for j, place in enumerate(self.layout.shared):
            if place >= 0:
                hide = torch.rand(index.shape) < share
                asked[..., j] &= hide
                seen[..., place] &= ~hide
        cells, unsure = rows.cells, rows.unsure
        if max(self.layout.shared) >= 0:
            cells, unsure = _guessed(self.joint, self.layout.numbers, self.cells[index], seen)
        return Rows(cells, unsure, seen, rows.held, rows.known), asked


def _guessed(joint: Joint, number: list[int], cells: Float[Tensor, "*b d"], seen: Bool[Tensor, "*b d"]):
    """Cells with what the columns of numbers say of one another in place of those that are not seen."""
    mean, unsure = joint.guess(cells[..., number], seen[..., number])
    every, doubt = torch.where(seen, cells, 0), torch.zeros_like(cells)
    every[..., number], doubt[..., number] = mean, unsure
    return every, doubt
