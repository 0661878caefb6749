"""One table as NPT is trained on it: batches with the proportions of the table, and masked cells."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from fillin.data.task import TableBatch


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
