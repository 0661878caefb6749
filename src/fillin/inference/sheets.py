"""Prediction of missing cells of a sheet of any length: which rows and columns a cell is predicted from.

Up to `MAX_ROWS` rows are one window. A longer record is split into blocks of rows; each sees the observed rows around
it densely, the nearest observations of every column, and a thinned sample of all the rest. Closed-form guides are those
of the whole record. More than `MAX_COLUMNS` columns are grouped by their correlation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from fillin.data.task import SheetBatch
from fillin.heads import to_predictive
from fillin.inference.context import level_and_size
from fillin.inference.sheet_paths import ColumnProcess, correlate_columns, mix_columns
from fillin.models.base import Points
from fillin.models.guides import Guides, compute_guides, measure_influence
from fillin.models.processes import Processes
from fillin.models.sheet import Sheet, median_step
from fillin.predictive import GaussianMixture
from fillin.runtime import Tick

MAX_SOURCES = 3  # columns that are named as sources of another
MAX_COLUMNS = 12  # that are predicted together
MAX_ROWS = 384  # of a window
BLOCK_ROWS = 96
_MARGIN_ROWS = 64  # observed rows on each side of a block
_NEAREST = 6  # observations of each column on each side of a block
_DISTANT_ROWS = 80  # of the rest of the record
_RESIDUAL_WINDOWS = 4  # of a long record, that correlations between columns are estimated from
_KERNELS = 2  # that are averaged in the windows of a long record
_INFORMED = 0.5  # share of observed columns from which a row is drawn as what a regression on them leaves
_MAX_CELLS = 12_000  # of the windows that are predicted at once


@dataclass(frozen=True)
class ColumnSources:
    """Sources of a column: the columns with the largest shares, and the root mean square errors of the guides where it
    is queried, in its standard deviations: by interpolation alone, and with the other columns."""

    column: int
    shares: dict[int, float]
    alone: float
    joint: float


@dataclass
class SheetContext:
    """Cells y [n d] with NaN where missing, at one-dimensional locations x [n], with standard errors (0: unknown)."""

    model: Sheet
    x: Float[ndarray, "n"]
    y: Float[ndarray, "n d"]
    error: Float[ndarray, "n d"] | None = None

    def __post_init__(self):
        self.order = np.argsort(self.x, kind="stable")

    def predict(
        self, queried: Bool[ndarray, "n d"], noise: bool = True, tick: Tick = lambda done: None
    ) -> list[GaussianMixture | None]:
        """Predict the queried cells of each column, in the order of the rows; None for a column without any."""
        found: list[GaussianMixture | None] = [None] * self.y.shape[1]
        for columns, targets in group_columns(self.y):
            wanted = queried[:, columns] & np.isin(columns, targets)
            if wanted.any():
                for column, mixture in zip(columns, self._predict_group(columns, wanted, noise, tick), strict=True):
                    found[column] = mixture if mixture is not None else found[column]
        return found

    @torch.inference_mode()
    def draw_scores(
        self, queried: Bool[ndarray, "n d"], n_draws: int, seed: int, tick: Tick = lambda done: None
    ) -> list[Float[ndarray, "s m"] | None]:
        """Draw normal scores of the queried cells of each column, in the order of the rows, that are correlated across
        rows and columns (`sheet_paths`); the quantiles of the predictions at Φ of them are sample paths."""
        found: list[ndarray | None] = [None] * self.y.shape[1]
        groups = [(columns, targets, self._prepare(columns)) for columns, targets in group_columns(self.y)]
        seen = ~np.isnan(self.y[self.order])
        normal = self._draw_normal(groups, seen, n_draws, np.random.default_rng(seed))
        informed = seen.mean(1) >= _INFORMED
        for columns, targets, record in groups:
            x = (record.u[0].double() * record.processes.unit[0]).numpy()
            for j, column in enumerate(columns):
                rows = np.flatnonzero(queried[self.order, column])
                if column not in targets or not len(rows):
                    continue
                scores = np.empty((n_draws, len(rows)))
                for inside, kernels in record.processes.split(informed[rows]):
                    process = ColumnProcess(x, np.flatnonzero(seen[:, column]), rows[inside], kernels.select(j))
                    scores[:, inside] = process.draw(normal[..., column], tick)
                found[column] = scores[:, np.argsort(self.order[rows], kind="stable")]
        return found

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
        x, y, order = self.x[self.order], self.y[self.order][:, columns], self.order
        level, size = level_and_size(y)
        observed = ~np.isnan(y)
        width = np.ptp(x) or 1.0
        u = to_tensor(4 * (x - x[0]) / width - 2)[None, :, None]
        values = to_tensor(np.where(observed, (y - level) / size, 0))[None]
        errors = None
        if self.error is not None:
            errors = to_tensor(np.nan_to_num(self.error[order][:, columns]) / size)[None]
        seen = torch.from_numpy(observed)[None]
        guides = self.model.record_guides(Points(u, values, seen, seen.any(-1), errors))
        if len(x) > MAX_ROWS and guides.processes is not None:
            guides = replace(guides, processes=guides.processes.best(_KERNELS))
        return _Record(u, values, seen, errors, guides, level, size)

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
        guides = Guides(
            *(part[0][index] for part in (self.guides.values, self.guides.errors, self.guides.distances)),
            self.processes.repeat(len(index)),
        )
        return SheetBatch(self.u[0][index], self.values[0][index], present, present, errors), guides

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


@torch.inference_mode()
def find_sources(
    x: Float[ndarray, "n"], y: Float[ndarray, "n d"], queried: Bool[ndarray, "n d"]
) -> list[ColumnSources]:
    """Return the sources of each column with queries, from the closed-form guides of its group of columns."""
    order, found = np.argsort(x, kind="stable"), []
    u = to_tensor((x[order] - x.min()) / (np.ptp(x) or 1.0))[None, :, None]
    for columns, targets in group_columns(y):
        part = y[order][:, columns]
        level, size = level_and_size(part)
        seen = torch.from_numpy(~np.isnan(part))
        values = torch.where(seen, to_tensor((part - level) / size), 0)
        std = (values.square().sum(0) / seen.sum(0).clamp_min(1)).sqrt()
        z = values / torch.where(std > 0, std, 1)
        guides = compute_guides(u, z[None], seen[None], median_step(u, seen.any(-1)[None]))
        completed = torch.where(seen, z, guides.values[0, ..., -1])
        shares = measure_influence(z, completed, seen).tolist() if len(columns) > 1 else [[0.0]]
        for j, column in enumerate(columns.tolist()):
            cells = torch.from_numpy(queried[order][:, column])
            if column not in targets or not cells.any():
                continue
            others = sorted((k for k, share in enumerate(shares[j]) if share), key=lambda k: -shares[j][k])[
                :MAX_SOURCES
            ]
            alone, joint = (float(guides.errors[0, cells, j, k].square().mean().sqrt()) for k in (0, -1))
            found.append(ColumnSources(column, {int(columns[k]): shares[j][k] for k in others}, alone, joint))
    return sorted(found, key=lambda source: source.column)


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
    """Yield the windows of the blocks that have queries. Rows are in the order of their locations."""
    n, d = observed.shape
    if n <= MAX_ROWS:
        yield Window(np.arange(n), np.arange(n))
        return
    any_observed = np.flatnonzero(observed.any(1))
    by_column = [np.flatnonzero(observed[:, j]) for j in range(d)]
    for start in range(0, n, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, n)
        if not queried[start:stop].any():
            continue
        low, high = np.searchsorted(any_observed, [start, stop])
        chosen = [np.arange(start, stop), any_observed[max(0, low - _MARGIN_ROWS) : high + _MARGIN_ROWS]]
        for rows in by_column:
            before, after = np.searchsorted(rows, [start, stop])
            chosen += [rows[max(0, before - _NEAREST) : before], rows[after : after + _NEAREST]]
        left, right = any_observed[: max(0, low - _MARGIN_ROWS)][::-1], any_observed[high + _MARGIN_ROWS :]
        for rest in (left, right):
            share = round(_DISTANT_ROWS * len(rest) / max(1, len(left) + len(right)))
            chosen.append(rest[_spread(len(rest), share)])
        yield Window(np.unique(np.concatenate(chosen)), np.arange(start, stop))


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


def group_columns(y: Float[ndarray, "n d"]) -> list[tuple[Int[ndarray, "c"], Int[ndarray, "t"]]]:
    """Return groups of columns that are predicted together, and those of each group that no earlier group predicts:
    all columns, or each with the columns that correlate most with it."""
    d = y.shape[1]
    if d <= MAX_COLUMNS:
        return [(np.arange(d), np.arange(d))]
    observed = ~np.isnan(y)
    count = np.maximum(observed.sum(0), 1)
    z = np.where(observed, y - np.where(observed, y, 0).sum(0) / count, 0)
    z /= np.maximum(np.sqrt((z**2).sum(0) / count), 1e-300)
    both = observed.T.astype(float) @ observed
    correlation = np.abs(z.T @ z) / np.maximum(both, 1) * np.sqrt(both / (both + MAX_COLUMNS))
    np.fill_diagonal(correlation, np.inf)
    pending, groups = set(range(d)), []
    for column in np.argsort(observed.sum(0), kind="stable"):
        if column in pending:
            columns = np.sort(np.argsort(-correlation[column], kind="stable")[:MAX_COLUMNS])
            targets = np.array(sorted(pending & set(columns[correlation[column, columns] > 0.3]) | {column}))
            pending -= set(targets)
            groups.append((columns, targets))
    return groups
