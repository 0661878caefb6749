"""One table as npt reads it: rows to look at, rows that ask, and cells that are masked."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from fillin.data.cells import Cells


@dataclass(frozen=True)
class OneTable:
    """Features first, then the targets: numbers in standard units, and codes of classes."""

    values: Float[Tensor, "n d"]
    known: Bool[Tensor, "n d"]
    classes: Int64[Tensor, "d"]
    targets: int

    def __len__(self) -> int:
        return len(self.values)

    @property
    def features(self) -> int:
        return self.values.shape[1] - self.targets

    @cached_property
    def labelled(self) -> Bool[Tensor, "n"]:
        """Rows with a target that is known; all, where there are no targets."""
        return self.known[:, self.features :].any(1) if self.targets else torch.ones(len(self), dtype=torch.bool)

    @cached_property
    def groups(self) -> Int64[Tensor, "n"]:
        """Rows whose share of every batch is that of the table: without a label, or of one class of the target."""
        if not self.targets or not self.classes[-1]:
            return self.labelled.long()
        return torch.where(self.known[:, -1], 1 + self.values[:, -1].long(), 0)

    def some(self, rows: Int64[Tensor, "k"], count: int) -> Int64[Tensor, "c"]:
        """At most `count` of the rows, in any order: of each group as large a share as of all, to within one row."""
        rows = rows[torch.randperm(len(rows))]
        if len(rows) <= count:
            return rows
        rows = rows[self.groups[rows].argsort(stable=True)]
        at = (torch.arange(count) + torch.rand(()).double()) * len(rows) / count
        return rows[at.long().clamp_max(len(rows) - 1)]

    def split(self, share: float, most: int = 5_000) -> tuple[Int64[Tensor, "k"], Int64[Tensor, "v"]]:
        """Rows to learn from, and rows that are held out: a share of those that are labelled."""
        rows = self.labelled.nonzero()[:, 0]
        held = min(max(round(len(rows) * share), min(4, len(rows) - 1)), most)
        out = self.some(rows, held) if held else rows[:0]
        rest = torch.ones(len(self), dtype=torch.bool)
        rest[out] = False
        return rest.nonzero()[:, 0], out

    def masked(self, rows: Int64[Tensor, "k"], labels: float, features: float) -> Cells:
        """A task to learn from: a share of the rows that are labelled ask for their targets, and are seen by no other;
        of all rows a share of the features is masked, and asked for too."""
        labelled = self.labelled[rows]
        count = max(1, round(labels * int(labelled.sum())))
        rows = rows[(torch.rand(len(rows)) + labelled).argsort()]  # the last of them are labelled
        mask = torch.rand(len(rows), self.values.shape[1]) < features
        mask[:, self.features :] = (torch.arange(len(rows)) >= len(rows) - count)[:, None]
        return self._cells(rows, mask, len(rows) - count)

    def asking(self, context: Int64[Tensor, "k"], rows: Int64[Tensor, "v"], features: float = 0.0) -> Cells:
        """A task to be judged by: `rows` ask for their targets, and a share of their features, and see the context."""
        every = torch.cat([context, rows])
        mask = torch.zeros_like(self.known[every])
        mask[len(context) :, self.features :] = True
        if features:
            mask[len(context) :] |= torch.rand(len(rows), mask.shape[1]) < features
        return self._cells(every, mask, len(context))

    def followed_by(self, other: "OneTable") -> "OneTable":
        """The rows of both, of the same columns."""
        values, known = torch.cat([self.values, other.values]), torch.cat([self.known, other.known])
        return OneTable(values, known, self.classes, self.targets)

    def _cells(self, rows: Int64[Tensor, "k"], mask: Bool[Tensor, "k d"], context: int) -> Cells:
        values, known = self.values[rows], self.known[rows]
        seen, asked = known & ~mask, known & mask
        return Cells(values[None], seen[None], asked[None], self.classes[None], context, targets=self.targets)
