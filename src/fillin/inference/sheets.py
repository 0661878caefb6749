"""Prediction of missing cells of a sheet of any length: which rows and columns a cell is predicted from.

Up to `MAX_ROWS` rows are one window. A longer record is split into blocks of rows; each sees the observed rows around
it densely, the nearest observations of every column, and a thinned sample of all the rest. Closed-form guides are those
of the whole record, with the kernels of its parts where these are much better. A sheet of many columns is
split into groups (`column_groups`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from fillin.data.task import SheetBatch
from fillin.heads import to_predictive
from fillin.inference.column_groups import group_columns
from fillin.inference.context import MAX_ERROR, Context, level_and_size
from fillin.inference.sheet_paths import ColumnProcess, correlate_columns, mix_columns
from fillin.inference.spatial import Stations
from fillin.inference.stations import Kriging, krige
from fillin.models.base import Points
from fillin.models.guides import Guides
from fillin.models.processes import Processes
from fillin.models.sheet import Sheet
from fillin.predictive import GaussianMixture
from fillin.runtime import Tick

MAX_ROWS = 384  # of a window
BLOCK_ROWS = 96  # observed ones, that the queries among them see with those around them
_MARGIN_ROWS = 64  # observed rows on each side of a block
_NEAREST = 6  # observations of each column on each side of a block
_DISTANT_ROWS = 80  # of the rest of the record
_RESIDUAL_WINDOWS = 4  # of a long record, that correlations between columns are estimated from
_KERNELS = 2  # that are averaged in the windows of a long record
_SHARPNESS = 8  # with which the surer of two predictions of a station outweighs the other
_INFORMED = 0.5  # share of observed columns from which a row is drawn as what a regression on them leaves
_PARTS, PART_ROWS = 8, 300  # of a long record, that choose kernels of their own, and rows that they choose by
_MAX_CELLS = 12_000  # of the windows that are predicted at once


@dataclass
class SheetContext:
    """Cells y [n d] with NaN where missing, at one-dimensional locations x [n], with standard errors (0: unknown)."""

    model: Sheet
    x: Float[ndarray, "n"]
    y: Float[ndarray, "n d"]
    error: Float[ndarray, "n d"] | None = None
    stations: Stations | None = None

    def __post_init__(self):
        self.order = np.argsort(self.x, kind="stable")
        seen = ~np.isnan(self.y).all(1)
        self.at, self.growth = self.x, np.ones(len(self.x))
        if seen.sum() > 1:  # a row far from all observations must not take the digits of the others
            inside, self.growth = Context.limit_reach(self.x[:, None], self.x[seen, None])
            self.at = inside[:, 0]

    @cached_property
    def kriging(self) -> Kriging | None:
        """Predictions from the other stations, rows in the order of their locations."""
        return None if self.stations is None else krige(self.x[self.order], self.y[self.order], self.stations)

    def predict(
        self, queried: Bool[ndarray, "n d"], noise: bool = True, tick: Tick = lambda done: None
    ) -> list[GaussianMixture | None]:
        """Predict the queried cells of each column, in the order of the rows; None for a column without any."""
        found: list[GaussianMixture | None] = [None] * self.y.shape[1]
        if self.kriging is not None:
            found = [self._krige(j, queried[:, j]) for j in range(self.y.shape[1])]
        for columns, targets in self._group():
            wanted = queried[:, columns] & np.isin(columns, targets) & ~self.few[columns]
            if wanted.any():
                for column, mixture in zip(columns, self._predict_group(columns, wanted, noise, tick), strict=True):
                    found[column] = found[column] if mixture is None else self._combine(mixture, int(column), queried)
        return found

    @property
    def few(self) -> Bool[ndarray, "d"]:
        """Columns that are predicted by kriging alone."""
        return np.zeros(self.y.shape[1], dtype=bool) if self.kriging is None else self.kriging.few

    def _combine(self, mixture: GaussianMixture, column: int, queried: Bool[ndarray, "n d"]) -> GaussianMixture:
        """Return the prediction of a column, wider far from all observations, blended with that by kriging: the surer
        one weighs more."""
        mixture = mixture.widened(self.growth[queried[:, column], None])
        if self.kriging is None:
            return mixture
        rows = np.argsort(self.order, kind="stable")[queried[:, column]]
        mean, std = self.kriging.mean[rows, column, None], self.kriging.std[rows, column, None]
        share = 1 / (1 + (std[:, 0] / np.maximum(mixture.std, 1e-300)) ** _SHARPNESS)
        return GaussianMixture.blend(
            [mixture, GaussianMixture(np.ones_like(mean), mean, std)], np.stack([1 - share, share])
        )

    def _krige(self, column: int, queried: Bool[ndarray, "n"]) -> GaussianMixture | None:
        """Predict a station that is hardly observed from those around it."""
        if self.kriging is None or not self.kriging.few[column] or not queried.any():
            return None
        rows = np.argsort(self.order, kind="stable")[queried]
        mean, std = self.kriging.mean[rows, column, None], self.kriging.std[rows, column, None]
        return GaussianMixture(np.ones_like(mean), mean, std)

    def _group(self) -> list[tuple[Int[ndarray, "c"], Int[ndarray, "t"]]]:
        return group_columns(self.y, None if self.kriging is None else self.kriging.correlation)

    @torch.inference_mode()
    def draw_scores(
        self, queried: Bool[ndarray, "n d"], n_draws: int, seed: int, tick: Tick = lambda done: None
    ) -> list[Float[ndarray, "s m"] | None]:
        """Draw normal scores of the queried cells of each column, in the order of the rows, that are correlated across
        rows and columns (`sheet_paths`); the quantiles of the predictions at Φ of them are sample paths."""
        found: list[ndarray | None] = [None] * self.y.shape[1]
        groups = [(columns, targets, self._prepare(columns)) for columns, targets in self._group()]
        seen = ~np.isnan(self.y[self.order])
        normal = self._draw_normal(groups, seen, n_draws, np.random.default_rng(seed))
        informed = seen.mean(1) >= _INFORMED
        for columns, targets, record in groups:
            x = (record.u[0].double() * record.processes.unit[0]).numpy()
            errors = record.standard_errors(self.model)
            for j, column in enumerate(columns):
                rows = np.flatnonzero(queried[self.order, column])
                if column not in targets or self.few[column] or not len(rows):
                    continue
                scores = np.empty((n_draws, len(rows)))
                for inside, kernels in record.processes.split(informed[rows]):
                    process = ColumnProcess(
                        x, np.flatnonzero(seen[:, column]), rows[inside], kernels.select(j),
                        None if errors is None else errors[:, j],
                    )  # fmt: skip
                    scores[:, inside] = process.draw(normal[..., column], tick)
                found[column] = scores[:, np.argsort(self.order[rows], kind="stable")]
        if self.kriging is not None:
            self._draw_few(found, queried, normal, groups, np.random.default_rng([seed, 1]))
        return found

    def _draw_few(
        self, found: list[Float[ndarray, "s m"] | None], queried: Bool[ndarray, "n d"],
        normal: Float[ndarray, "2 s n d"], groups: "list[tuple[ndarray, ndarray, _Record]]",
        random: np.random.Generator,
    ) -> None:  # fmt: skip
        """Draw the scores of stations that are predicted by kriging: a common error of their level, and what varies
        along the rows as at the station nearest to them."""
        assert self.kriging is not None
        for column in np.flatnonzero(self.few & queried.any(0)):
            rows = np.flatnonzero(queried[self.order, column])
            nearest = int(np.argmax(np.where(self.few, -1, self.kriging.correlation[column])))
            columns, _, record = next(group for group in groups if nearest in group[1])
            x = (record.u[0].double() * record.processes.unit[0]).numpy()
            kernels = record.processes.alone.select(int(np.flatnonzero(columns == nearest)[0]))
            process = ColumnProcess(x, np.empty(0, dtype=int), rows, kernels)
            share = self.kriging.level_share[column]
            scores = share**0.5 * random.normal(size=(normal.shape[1], 1))
            scores = scores + (1 - share) ** 0.5 * process.draw(normal[..., column], lambda done: None)
            found[column] = scores[:, np.argsort(self.order[rows], kind="stable")]

    def _draw_normal(
        self, groups: "list[tuple[ndarray, ndarray, _Record]]", seen: Bool[ndarray, "n d"], n_draws: int,
        random: np.random.Generator,
    ) -> Float[ndarray, "2 s n d"]:  # fmt: skip
        """Draw normal scores of every cell, of all columns, that are correlated between the columns of each row."""
        parts = [record.residuals(self.model) for _, _, record in groups]
        residuals = np.zeros((len(parts[0][0]), seen.shape[1]))
        present = np.zeros(residuals.shape, dtype=bool)
        for (columns, targets, _), (values, observed) in zip(groups, parts, strict=True):
            inside = np.isin(columns, targets)
            residuals[:, columns[inside]], present[:, columns[inside]] = values[:, inside], observed[:, inside]
        normal = random.normal(size=(2, n_draws, *seen.shape))
        normal = mix_columns(normal, correlate_columns(residuals, present), seen)
        apart = seen.mean(1) < _INFORMED
        if apart.any():  # there columns differ from their means, and go together as they do elsewhere
            level, size = level_and_size(self.y[self.order])
            values = correlate_columns((self.y[self.order] - level) / size, seen)
            latent = random.normal(size=(1, n_draws, int(apart.sum()), seen.shape[1]))
            normal[:1, :, apart] = mix_columns(latent, values, seen[apart])
        return normal

    def _prepare(self, columns: Int[ndarray, "c"]) -> "_Record":
        """Return columns as tensors, rows in the order of their locations, with the guides of all of them."""
        x, y, order = self.at[self.order], self.y[self.order][:, columns], self.order
        level, size = level_and_size(y)
        observed = ~np.isnan(y)
        width = np.ptp(x) or 1.0
        u = to_tensor(4 * (x - x[0]) / width - 2)[None, :, None]
        values = to_tensor(np.where(observed, (y - level) / size, 0))[None]
        errors = None
        if self.error is not None:
            errors = to_tensor(np.minimum(np.nan_to_num(self.error[order][:, columns]) / size, MAX_ERROR))[None]
        seen = torch.from_numpy(observed)[None]
        prior = None
        if self.kriging is not None:
            prior = to_tensor((self.kriging.mean[:, columns] - level) / size)[None]
        guides = self.model.record_guides(Points(u, values, seen, seen.any(-1), errors), prior)
        if len(x) > MAX_ROWS and guides.processes is not None:
            guides = replace(guides, processes=guides.processes.best(_KERNELS))
        record = _Record(u, values, seen, errors, guides, [], level, size)
        return replace(record, local=record.choose_locally(self.model))

    @torch.inference_mode()
    def _predict_group(
        self, columns: Int[ndarray, "c"], queried: Bool[ndarray, "n c"], noise: bool, tick: Tick
    ) -> list[GaussianMixture | None]:
        record, order = self._prepare(columns), self.order
        requested, observed = queried[order], record.observed[0].numpy()
        parts: list[list[tuple[ndarray, GaussianMixture]]] = [[] for _ in columns]
        for batch in batch_windows(make_windows(observed, requested), len(columns)):
            sheet, part = record.take(batch)
            prediction = self.model.fill(sheet, part)
            mixtures = to_predictive(prediction if noise else prediction.noise_free)
            assert isinstance(mixtures, GaussianMixture)
            for number, window in enumerate(batch):
                for j in range(len(columns)):
                    inside = window.block[requested[window.block, j]]
                    if len(inside):
                        place = np.searchsorted(window.rows, inside)
                        parts[j].append(
                            (order[inside], mixtures[number, place, j].rescaled(record.level[j], record.size[j]))
                        )
                        tick(len(inside))
        return [_in_row_order(part) for part in parts]


@dataclass(frozen=True)
class _Record:
    """Columns in units of their standard deviations, at locations u in [−2, 2], rows in order, and their guides."""

    u: Float[Tensor, "1 n 1"]
    values: Float[Tensor, "1 n c"]
    observed: Bool[Tensor, "1 n c"]
    errors: Float[Tensor, "1 n c"] | None
    guides: Guides
    local: list[Processes]  # of successive parts of the same number of rows; none: those of the guides
    level: Float[ndarray, "c"]
    size: Float[ndarray, "c"]

    @property
    def processes(self) -> Processes:
        assert self.guides.processes is not None
        return self.guides.processes

    def take(self, windows: "list[Window]") -> tuple[SheetBatch, Guides]:
        """Return windows as sheets of one batch, with their guides."""
        rows = np.stack([window.padded(max(len(w.rows) for w in windows)) for window in windows])
        valid = np.stack([np.arange(rows.shape[1]) < len(window.rows) for window in windows])
        index = torch.from_numpy(rows)
        present = self.observed[0][index] & torch.from_numpy(valid)[..., None]
        errors = None if self.errors is None else self.errors[0][index]
        parts = (self.guides.values, self.guides.errors, self.guides.distances)
        guides = Guides(*(part[0][index] for part in parts), processes=self._join_processes(windows))
        return SheetBatch(self.u[0][index], self.values[0][index], present, present, errors), guides

    def choose_locally(self, model: Sheet) -> list[Processes]:
        """Choose the processes of each of up to `_PARTS` parts of a long record: a record may change."""
        rows = self.observed_rows
        n = len(rows)
        count = min(_PARTS, round(n / PART_ROWS))
        if n <= MAX_ROWS or count < 2:
            return []
        found = []
        for middle in (np.arange(count) + 0.5) * n / count:
            start = int(np.clip(middle - PART_ROWS / 2, 0, n - PART_ROWS))
            sheet, guides = self.take([Window(rows[start : start + PART_ROWS], np.arange(0))])
            part = Points(sheet.x, sheet.values, sheet.observed, sheet.observed.any(-1), sheet.error)
            found.append(model.choose_for_part(part, guides))
        return found

    def _join_processes(self, windows: "list[Window]") -> Processes:
        if not self.local:
            return self.processes.repeat(len(windows))
        rows, most = self.observed_rows, len(self.local) - 1
        shares = [np.searchsorted(rows, np.median(window.rows)) / len(rows) for window in windows]
        return Processes.join([self.local[min(int(share * len(self.local)), most)] for share in shares])

    @cached_property
    def observed_rows(self) -> Int[ndarray, "k"]:
        return np.flatnonzero(self.observed[0].any(-1).numpy())

    def standard_errors(self, model: Sheet) -> Float[ndarray, "n c"] | None:
        """Return the known errors of the cells, in the standard deviations of their columns."""
        if self.errors is None:
            return None
        units = model.units(Points(self.u, self.values, self.observed, self.observed.any(-1)))
        return (self.errors / units.norm.scale)[0].double().numpy()

    def residuals(self, model: Sheet) -> tuple[Float[ndarray, "m c"], Bool[ndarray, "m c"]]:
        """Return residuals of observed cells, each predicted from the others of its column by the Gaussian process, in
        standard deviations, and where they are: of all rows, or of a few windows of a long record."""
        n = self.u.shape[1]
        count = min(MAX_ROWS, n)
        starts = np.unique(np.linspace(0, n - count, _RESIDUAL_WINDOWS if n > count else 1).astype(int))
        sheet, guides = self.take([Window(np.arange(i, i + count), np.arange(i, i + count)) for i in starts])
        mean, std = model.predict_alone(sheet, guides)
        residual = ((sheet.values - mean) / std).flatten(0, 1)
        return residual.double().numpy(), sheet.observed.flatten(0, 1).numpy()


def to_tensor(values: ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _in_row_order(parts: list[tuple[ndarray, GaussianMixture]]) -> GaussianMixture | None:
    if not parts:
        return None
    rows = np.concatenate([rows for rows, _ in parts])
    joined = GaussianMixture.concatenate([mixture for _, mixture in parts])[np.argsort(rows, kind="stable")]
    return joined.trimmed()  # a hundredth of the weight on the mean of a column outweighs the error of a smooth one


@dataclass(frozen=True)
class Window:
    """Rows that are predicted together, in order, and those of them whose predictions are kept."""

    rows: Int[ndarray, "n"]
    block: Int[ndarray, "m"]

    def padded(self, length: int) -> Int[ndarray, "k"]:
        return np.concatenate([self.rows, np.repeat(self.rows[-1:], length - len(self.rows))])


def make_windows(observed: Bool[ndarray, "n d"], queried: Bool[ndarray, "n d"]) -> Iterator[Window]:
    """Yield the windows of the blocks that have queries. Rows are in the order of their locations. A block is a number
    of observed rows and all that lie before the next one, so that no query changes what another one sees."""
    n, d = observed.shape
    if n <= MAX_ROWS:
        yield Window(np.arange(n), np.arange(n))
        return
    any_observed, wanted = np.flatnonzero(observed.any(1)), np.flatnonzero(queried.any(1))
    by_column = [np.flatnonzero(observed[:, j]) for j in range(d)]
    size = BLOCK_ROWS if len(any_observed) > MAX_ROWS else max(1, len(any_observed))
    ends = [*any_observed[size::size].tolist(), n]
    for number, (first, last) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        rows = wanted[slice(*np.searchsorted(wanted, [first, last]))]
        if not len(rows):
            continue
        low, high = max(0, number * size - _MARGIN_ROWS), min((number + 1) * size, len(any_observed)) + _MARGIN_ROWS
        chosen = [any_observed[low:high]]
        for column in by_column:
            before, after = np.searchsorted(column, [first, last])
            chosen += [column[max(0, before - _NEAREST) : before], column[after : after + _NEAREST]]
        left, right = any_observed[:low][::-1], any_observed[high:]
        for rest in (left, right):
            share = round(_DISTANT_ROWS * len(rest) / max(1, len(left) + len(right)))
            chosen.append(rest[_spread(len(rest), share)])
        context = np.unique(np.concatenate(chosen))
        at_once = max(BLOCK_ROWS // 2, MAX_ROWS - len(context))
        for part in np.array_split(rows, -(-len(rows) // at_once)):
            yield Window(np.union1d(context, part), part)


def _spread(n: int, count: int) -> Int[ndarray, "_"]:
    """Return about `count` of n positions, dense at first: half at growing distances, half evenly."""
    if count >= n:
        return np.arange(n)
    growing = np.geomspace(1, n, count - count // 2) - 1
    return np.unique(np.concatenate([growing, np.linspace(0, n - 1, count // 2)]).astype(int))


def batch_windows(windows: Iterator[Window], columns: int) -> Iterator[list[Window]]:
    """Yield windows that are predicted in one call."""
    batch: list[Window] = []
    for window in windows:
        longest = max(len(window.rows), *(len(w.rows) for w in batch), 0)
        if batch and (len(batch) + 1) * longest * columns > _MAX_CELLS:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch
