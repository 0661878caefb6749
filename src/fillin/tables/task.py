"""One table as a network is trained on it: what it reads, in standard units, and what it tells."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.tables.net import Layout, Rows

MOST = 100  # classes of a column that are told apart; the rarer ones are one
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
    """The rows of a table, as tensors: cells to read and cells to tell. `shared` says at which place of what is read
    a told column is (−1: it is not read), so that a cell that is asked for is never seen."""

    cells: Float[Tensor, "n d"]
    seen: Bool[Tensor, "n d"]
    held: Float[Tensor, "n t"]
    known: Bool[Tensor, "n t"]
    layout: Layout
    shared: tuple[int, ...]

    @classmethod
    def of(
        cls, reads: Float[ndarray, "n d"], tells: Float[ndarray, "n t"], units: Units, classes: tuple[int, ...],
        shared: tuple[int, ...],
    ) -> "TableTask":  # fmt: skip
        """From columns to read, in their own units, and columns to tell, in standard ones."""
        z = units.standard(reads)
        seen, known = ~np.isnan(z), ~np.isnan(tells)
        tensor = lambda a: torch.as_tensor(a, dtype=torch.float32)  # noqa: E731
        return cls(
            tensor(np.where(seen, near(z, units.classes), 0)), torch.as_tensor(seen), tensor(np.where(known, tells, 0)),
            torch.as_tensor(known), Layout(units.classes, classes), shared,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.cells)

    def rows(self, index: Int64[Tensor, "m k"]) -> Rows:
        """Some rows, others for each member."""
        return Rows(self.cells[index], self.seen[index], self.held[index], self.known[index])

    def hidden(self, index: Int64[Tensor, "m k"], share: float) -> tuple[Rows, Bool[Tensor, "m k t"]]:
        """The same with cells that can be told hidden: those of columns that are not read all, of the others a share.
        Also says which cells can now be asked for."""
        rows = self.rows(index)
        asked, seen = rows.known.clone(), rows.seen.clone()
        for j, place in enumerate(self.shared):
            if place >= 0:
                hide = torch.rand(index.shape) < share
                asked[..., j] &= hide
                seen[..., place] &= ~hide
        return Rows(rows.cells, seen, rows.held, rows.known), asked
