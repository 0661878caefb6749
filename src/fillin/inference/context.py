"""Selection of the context of each query: at most `max_points` observations, for any number of queries.

Up to `max_points` observations are one context. With more observations, queries are split in halves until few
observations lie among them, and each group sees the observations nearest to its middle. A caller with a grid of queries
passes the groups. `load_filler` loads the pretrained model that predicts.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.spatial import KDTree
from torch import Tensor

from fillin.errors import InputError, argument
from fillin.heads import marginal_of, to_predictive
from fillin.models import Process, load
from fillin.models.base import Points
from fillin.models.processes import Processes
from fillin.models.sheet import Sheet
from fillin.predictive import MAX_MAGNITUDE, GaussianMixture
from fillin.pretrained import locate, names
from fillin.runtime import Tick

MAX_CONTEXT_POINTS = 512
MAX_QUERIES = 1024  # at once
MAX_ERROR = 1e6  # of an observation, in the size of its column; a larger one says no less
REACH = 3.0  # widths of the context beyond which no model was trained
_CONSTANT_SPREAD = 0.01  # of its size: the spread that a constant is given
_PAIR_FACTOR = 4.0  # the size of a pair of values, in distances from their middle
_ROUNDING = 1e-12  # relative differences below it are rounding
_MAX_TIES = 64  # points that may be as far away as the last of a context
_BY_DIMENSIONS, ANY_DIMENSIONS = {1: "sheet", 2: "sheet-2d"}, "radial"
_DATA = {1: "a series", 2: "a field over two dimensions", 3: "a field over three dimensions"}
_MAX_BATCH, _MAX_BATCH_ROWS = 16, 4096  # contexts that are predicted at once, and their queries and points
_NEAR_SHARE = 0.5  # of the points of a context, that are the nearest ones
_SURROUNDING, _SECTORS = 4, 8  # nearest points, of those of a context, that sectors choose from
_WINDOWS = 6  # of many observations, that Gaussian processes are chosen from
Groups = Iterable[tuple[ndarray, ndarray]]  # rows of the queries of each group, and its middle [dx]


@dataclass(frozen=True)
class QueryGroup:
    """Queries that see the same context: their rows, the rows of the observations, and the middle of the queries."""

    queries: Int[ndarray, "k"]
    context: Int[ndarray, "c"]
    middle: Float[ndarray, "dx"]


@dataclass
class Context:
    """Observations x [n dx], y [n dy] with NaN where an output is missing, and standard errors of y (0: not given).

    Distances are measured in x / unit, where the unit of a column is its width, or the `scale` that is given. A
    periodic column has a `period` (0: not periodic), and every observation is seen at its nearest repetition. Farther
    than three widths beyond the observations the prediction is the one there, with standard deviations that grow with
    the root of the distance.
    """

    model: Process
    x: Float[ndarray, "n dx"]
    y: Float[ndarray, "n dy"]
    error: Float[ndarray, "n dy"] | None = None
    max_points: int = MAX_CONTEXT_POINTS
    scale: Float[ndarray, "dx"] | None = None
    period: Float[ndarray, "dx"] | None = None

    def __post_init__(self):
        if np.abs(self.y).max(initial=0.0, where=~np.isnan(self.y)) > MAX_MAGNITUDE:
            raise InputError(f"values beyond {MAX_MAGNITUDE:g} overflow float64 arithmetic; rescale them")
        width = np.ptp(self.x, 0) if len(self.x) else np.ones(self.x.shape[1])
        self.unit = np.where(width > 0, width, 1) if self.scale is None else self.scale
        observed = ~np.isnan(self.y)
        low, high = (sign * np.where(observed, sign * self.y, np.inf).min(0, initial=np.inf) for sign in (1, -1))
        varies = (observed.sum(0) > 2) & (high - low > _ROUNDING * np.abs(high))
        self.spread = np.where(varies, high - low, 0)  # of each output; fewer than three values do not show it
        self.tree = None
        if len(self.x) > self.max_points:
            box = None if self.period is None else self.period / self.unit
            self.tree = KDTree(self.to_units(self.x), boxsize=box)

    def predict(
        self,
        x: Float[ndarray, "m dx"],
        noise: bool = True,
        tick: Tick = lambda done: None,
        groups: Groups | None = None,
    ) -> GaussianMixture:
        """Predict observations at x, or the latent function (noise=False): a mixture of batch [m dy]."""
        order, parts = [], []
        for batch in self._batches(self._split_queries(x) if groups is None else groups):
            parts += self._predict(x, batch, noise)
            for group in batch:
                order.append(group.queries)
                tick(len(group.queries))
        if not parts:
            rows = np.arange(min(len(self.x), self.max_points))
            return self._predict(x, [QueryGroup(np.arange(len(x)), rows, np.zeros(x.shape[1]))], noise)[0]
        return GaussianMixture.concatenate(parts)[np.argsort(np.concatenate(order), kind="stable")]

    def nearest(self, middle: Float[ndarray, "dx"]) -> Int[ndarray, "k"]:
        """Rows of the observations nearest to `middle`, at most `max_points`, in their order; for a sheet half of them
        on all sides."""
        if self.tree is None:
            return np.arange(len(self.x))
        if isinstance(self.model, Sheet) and self.x.shape[1] == 2:
            box = None if self.period is None else self.period / self.unit
            return surrounding_rows(self.tree, self.to_units(middle[None])[0], self.max_points, box)
        return nearest_rows(self.tree, self.to_units(middle[None])[0], self.max_points)

    @cached_property
    def processes(self) -> Processes | None:
        """Gaussian processes of many observations, by which a `Sheet` predicts the queries near some: chosen from
        windows."""
        if self.tree is None or not isinstance(self.model, Sheet) or self.x.shape[1] == 1:
            return None
        rows = np.linspace(0, len(self.x) - 1, _WINDOWS + 2)[1:-1].round().astype(int)
        groups = [QueryGroup(np.arange(0), self.nearest(self.x[row]), self.x[row]) for row in np.unique(rows)]
        parts = [self._normalise(self.x[:0], group)[0] for group in groups]
        xc, yc, mask = (torch.from_numpy(np.stack([part[name] for part in parts])) for name in ("xc", "yc", "mask_c"))
        error = (
            torch.from_numpy(np.stack([part["error_c"] for part in parts])).float() if self.error is not None else None
        )
        return self.model.choose_processes(Points(xc.float(), yc.float(), mask, mask.any(-1), error))

    def to_units(self, x: ndarray) -> ndarray:
        """x / unit, periodic columns within one period."""
        if self.period is None:
            return x / self.unit
        box = self.period / self.unit
        wrapped = np.mod(x, np.where(self.period > 0, self.period, np.inf)) / self.unit
        return np.where(self.period > 0, np.minimum(wrapped, np.nextafter(box, 0)), x / self.unit)

    def _unwrap(self, x: ndarray, middle: ndarray) -> ndarray:
        """x with periodic columns at the repetition nearest to the middle."""
        if self.period is None:
            return x
        periods = np.round((x - middle) / np.where(self.period > 0, self.period, np.inf))
        return x - periods * self.period

    def _split_queries(self, x: ndarray) -> Iterator[tuple[ndarray, ndarray]]:
        """Groups of queries: their rows, and the middle of their bounding box."""
        if self.tree is None:
            for start in range(0, len(x), MAX_QUERIES):
                rows = np.arange(start, min(start + MAX_QUERIES, len(x)))
                yield rows, (x[rows].min(0) + x[rows].max(0)) / 2
            return
        scaled = x / self.unit
        pending = [np.arange(len(x))]
        while pending:
            rows = pending.pop()
            group = scaled[rows]
            low, high = group.min(0), group.max(0)
            middle, radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2
            if len(rows) > 1 and (
                len(rows) > MAX_QUERIES
                or self.tree.query_ball_point(middle, radius, return_length=True) > self.max_points // 4
            ):
                order = np.argsort(group[:, int(np.argmax(high - low))], kind="stable")
                pending += [rows[order[len(rows) // 2 :]], rows[order[: len(rows) // 2]]]
            else:
                yield rows, middle * self.unit

    def _batches(self, groups: Groups) -> Iterator[list[QueryGroup]]:
        """Groups that the model predicts in one call: neighbours with the same context are one group, and contexts of
        equal size are one batch. Only models of any units are known to predict each query by itself."""
        batchable = self.model.any_units
        batch: list[QueryGroup] = []
        for queries, middle in groups:
            group = QueryGroup(queries, self.nearest(middle), middle)
            if batch and batchable and self._shares_context(batch[-1], group):
                batch[-1] = replace(batch[-1], queries=np.concatenate([batch[-1].queries, queries]))
                continue
            if batch and not (batchable and self._fits(batch, group)):
                yield batch
                batch = []
            batch.append(group)
        if batch:
            yield batch

    def _shares_context(self, group: QueryGroup, other: QueryGroup) -> bool:
        few = len(group.queries) + len(other.queries) <= MAX_QUERIES
        return few and self.period is None and np.array_equal(group.context, other.context)

    @staticmethod
    def _fits(batch: list[QueryGroup], group: QueryGroup) -> bool:
        queries = max(len(group.queries), *(len(other.queries) for other in batch))
        rows = (len(batch) + 1) * (queries + len(group.context))
        return len(batch) < _MAX_BATCH and rows <= _MAX_BATCH_ROWS and len(batch[0].context) == len(group.context)

    @torch.inference_mode()
    def _predict(self, x: Float[ndarray, "m dx"], groups: list[QueryGroup], noise: bool) -> list[GaussianMixture]:
        """Predict the queries of each group from its context. All contexts have the same size."""
        most = max(len(group.queries) for group in groups)
        columns, scales = [], []
        for group in groups:
            arguments, scale = self._normalise(x[group.queries], group)
            padding = most - len(group.queries)
            arguments["xt"] = np.pad(arguments["xt"], ((0, padding), (0, 0)), "edge" if padding else "constant")
            columns.append(arguments)
            scales.append(scale)
        batch = {name: np.stack([arguments[name] for arguments in columns]) for name in columns[0]}
        mask = batch.pop("mask_c")
        tensors = {name: torch.from_numpy(values.astype(np.float32)) for name, values in batch.items()}
        options = {} if self.processes is None else {"processes": self.processes}
        prediction = self.model(**tensors, mask_c=None if mask.all() else torch.from_numpy(mask), **options)
        mixtures = to_predictive(marginal_of(prediction, noise))
        assert isinstance(mixtures, GaussianMixture)
        parts = []
        for i, (group, (level, size, growth)) in enumerate(zip(groups, scales, strict=True)):
            mixture = mixtures[i][: len(group.queries)].rescaled(level[:, None], size[:, None])
            parts.append(mixture if growth is None else mixture.widened(growth[:, None, None]))
        return parts

    @staticmethod
    def limit_reach(
        x: Float[ndarray, "m dx"], xc: Float[ndarray, "n dx"]
    ) -> tuple[Float[ndarray, "m dx"], Float[ndarray, "m"]]:
        """Return x within three widths of the context, beyond which no model was trained, and the factor by which
        standard deviations grow farther away."""
        low, high = xc.min(0), xc.max(0)
        reach = np.where(high > low, REACH * (high - low), np.inf)
        growth = np.sqrt(np.maximum(np.maximum(low - x, x - high) / reach, 1).max(1, initial=1))
        return np.clip(x, low - reach, high + reach), growth

    def _normalise(self, x: ndarray, group: QueryGroup) -> tuple[dict[str, ndarray], tuple]:
        """Return arguments of the model, of order one, and (level, size, growth): the scale of its prediction.

        It runs in float64, before any model, so that dates and large values survive the conversion to float32;
        `fillin.models.filler.Normalization` then fits trend and period of a context, inside the model.
        """
        rows, middle = group.context, group.middle
        xc, yc, x = self._unwrap(self.x[rows], middle), self.y[rows], self._unwrap(x, middle)
        growth = None
        if self.model.any_units and len(xc) > 1:
            x, growth = self.limit_reach(x, xc)
        origin = xc.min(0) if len(xc) else (x.min(0) if len(x) else np.zeros(x.shape[1]))
        level, size = level_and_size(yc, self.spread)
        missing = np.isnan(yc)
        arguments = {
            "xc": (xc - origin) / self.unit,
            "yc": np.where(missing, 0, (yc - level) / size),
            "xt": (x - origin) / self.unit,
            "mask_c": ~missing,
        }
        if self.error is not None:
            arguments["error_c"] = np.minimum(np.nan_to_num(self.error[rows] / size), MAX_ERROR)
        return arguments, (level, size, growth)


def nearest_rows(tree: KDTree, middle: Float[ndarray, "dx"], count: int) -> Int[ndarray, "k"]:
    """Return the rows of the `count` nearest points. Ties are broken by row number: farther points change nothing."""
    distance, rows = map(np.asarray, tree.query(middle, min(count + _MAX_TIES, tree.n)))
    order = np.lexsort((rows, np.round(distance / distance[-1], 9) if distance[-1] else distance))
    return np.sort(rows[order[:count]])


def surrounding_rows(
    tree: KDTree, middle: Float[ndarray, "2"], count: int, period: Float[ndarray, "2"] | None = None
) -> Int[ndarray, "k"]:
    """Return the rows of `count` points around the middle: the nearest half, and the nearest others of each of eight
    sectors. Beside a wide gap the nearest points alone lie on one side."""
    rows = nearest_rows(tree, middle, _SURROUNDING * count)
    offset = np.asarray(tree.data)[rows] - middle
    if period is not None:
        offset -= np.round(offset / np.where(period > 0, period, np.inf)) * period
    # a thousandth of a turn away from the axes, where the cells of a lattice lie
    turn = np.arctan2(offset[:, 1], offset[:, 0]) / (2 * np.pi) + 0.001
    sector = np.floor(_SECTORS * turn).astype(int) % _SECTORS
    distance = np.square(offset).sum(1)
    order = np.argsort(np.round(distance / max(distance.max(), 1e-300), 9), kind="stable")
    near, rest = order[: round(_NEAR_SHARE * count)], order[round(_NEAR_SHARE * count) :]
    rank = np.empty(len(rest), dtype=int)
    for number in range(_SECTORS):
        inside = sector[rest] == number
        rank[inside] = np.arange(int(inside.sum())) + int((sector[near] == number).sum())
    chosen = np.concatenate([near, rest[np.argsort(rank, kind="stable")[: count - len(near)]]])
    return np.sort(rows[chosen])


def to_batch(values: ndarray) -> Tensor:
    """A float32 tensor with a batch axis of one."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))[None]


def level_and_size(
    y: Float[ndarray, "n dy"], spread: Float[ndarray, "dy"] | float = 0.0
) -> tuple[Float[ndarray, "dy"], Float[ndarray, "dy"]]:
    """Return level and size of each output; (y − level) / size is of order one, and exact enough in float32.

    The level is the mean, 0 for n = 0. Let s be the `spread` of all observations if positive, else |level|, else 1. The
    size is s for n = 1, s / 100 for n = 0 and for equal values, the larger of s / 100 and four times the distance from
    the mean for n = 2, else the largest distance from the mean.
    """
    observed = ~np.isnan(y)
    n = observed.sum(0)
    least = np.where(n > 0, np.where(observed, y, np.inf).min(0, initial=np.inf), 0)
    level = least + np.where(observed, (y - least) / np.maximum(n, 1), 0).sum(0)
    distance = np.where(observed, np.abs(y - level), 0).max(0, initial=0.0)
    magnitude = np.where(level == 0, 1, np.abs(level))
    fallback = np.where(spread > 0, spread, magnitude)
    size = np.where(distance > _ROUNDING * magnitude, distance, 0)
    min_size = np.where((size == 0) | (n == 2), _CONSTANT_SPREAD * fallback, 0)
    return level, np.where(n == 1, fallback, np.maximum(np.where(n == 2, _PAIR_FACTOR, 1) * size, min_size))


def default_weights(dims: int) -> str:
    """The name of the weights for inputs of `dims` dimensions, or of those for any number if only these ship.

    >>> default_weights(1)
    'sheet'
    """
    name = _BY_DIMENSIONS.get(dims, ANY_DIMENSIONS)
    return ANY_DIMENSIONS if name not in names() and ANY_DIMENSIONS in names() else name


def load_filler(model: str | os.PathLike | Process, dims: int = 1, errors: bool = False) -> Process:
    """Load the model of that name or folder, and check that it fills data of `dims` dimensions."""
    loaded, data = model, _DATA.get(dims, f"data over {dims} coordinates")
    if not isinstance(loaded, Process):
        if not locate(loaded).exists():
            absent = f" (this copy of fillin comes without the weights {loaded!r}, made for {data})"
            raise InputError(
                "{model}: there is no model {name!r}{shipped}; give a run folder or one written by fillin.save",
                model=argument("model"), name=str(loaded),
                shipped=absent if str(loaded) == default_weights(dims) else "",
            )  # fmt: skip
        loaded = load(loaded)
        if not isinstance(loaded, Process) or not loaded.any_units:  # a classifier is no process
            raise InputError(
                "{model}: {name} is not a model that fills gaps; train one with: fillin train {recipe}",
                model=argument("model"), name=model, recipe=_BY_DIMENSIONS.get(dims, ANY_DIMENSIONS),
            )  # fmt: skip
    if loaded.dim_x not in (dims, None) or loaded.dim_y != 1:
        raise InputError(
            "{model}: the model has dim_x={dim_x} and dim_y={dim_y}; {data} needs {dims} and 1",
            model=argument("model"), dim_x=loaded.dim_x, dim_y=loaded.dim_y, data=data, dims=dims,
        )  # fmt: skip
    if errors and not loaded.any_units:
        raise InputError(
            "{y_err}: this model does not read errors; use one that does, such as 'sheet'", y_err=argument("y_err")
        )
    return loaded.eval()
