"""Series and fields with gaps: samples of priors with a known Bayes limit, and the curves and fields of a folder.

DIR/curves/*.csv     a column of numbers for x, then one for y (`rownames` is skipped); further columns are not read
DIR/fields/*.nc      the first variable over two dimensions or more: the last two, at the first index of all others
"""

import csv
import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy import ndarray

from fillin.data import Curves, TaskLayout, curves
from fillin.data.functions import uniform
from fillin.errors import InputError
from fillin_studies.base import DataSets

PRIORS = ("rbf", "matern-5/2", "periodic")  # of the TNP protocol
PRIOR_POINTS = 64
GAP_KINDS = ("random", "blocks", "end")
HELD_OUT_SHARE, END_SHARE = 0.3, 0.15  # held out at random and in blocks; at the end
BLOCK_SHARES = (0.03, 0.12)  # of all points, each
_SHORTEST_SERIES = 0.6  # of the points, where the end is held out
_FIELD_SHARE = 0.4
_MIN_POINTS = 12


@dataclass(frozen=True)
class GapMask:
    """Observed and held-out points of a series. Points after a held-out end are neither."""

    observed: Bool[ndarray, "n"]
    held_out: Bool[ndarray, "n"]


def make_mask(kind: str, n: int, number: int, share: float = HELD_OUT_SHARE) -> GapMask:
    """Return the mask of that number for n points, the same for every method.

    - "random": a `share` of all points, anywhere;
    - "blocks": as many, in blocks of 3 to 12 % of all points each, with observed points between them;
    - "end": the last 15 % of the first 60 to 100 % of the points (number 0: of all).
    """
    random = np.random.default_rng([GAP_KINDS.index(kind), n, number])
    held_out = np.zeros(n, dtype=bool)
    if kind == "end":
        used = n if number == 0 else round(n * random.uniform(_SHORTEST_SERIES, 1))
        held_out[used - max(1, round(END_SHARE * used)) : used] = True
        return GapMask(~held_out & (np.arange(n) < used), held_out)
    count = max(1, round(share * n))
    if kind == "random":
        held_out[random.permutation(n)[:count]] = True
    else:
        lengths = draw_block_lengths(n, count, random)
        starts = np.sort(random.permutation(n - count + 1)[: len(lengths)])  # observed points before each: all differ
        for start, before, length in zip(starts, np.cumsum(lengths) - lengths, lengths, strict=True):
            held_out[start + before : start + before + length] = True
    return GapMask(~held_out, held_out)


def draw_block_lengths(n: int, count: int, random: np.random.Generator) -> Int64[ndarray, "blocks"]:
    """Draw lengths between 3 and 12 % of n (at least one point) until they add up to `count`."""
    low, high = max(1, int(np.ceil(BLOCK_SHARES[0] * n))), max(1, int(BLOCK_SHARES[1] * n))
    while True:
        lengths = []
        while (rest := count - sum(lengths)) >= low:
            lengths.append(min(rest, int(random.integers(low, high + 1))))
        if rest == 0:
            return np.array(lengths, dtype=np.int64)


class GapCase(NamedTuple):
    """Points in order, and which are held out."""

    x: Float[ndarray, "n dx"]
    y: Float[ndarray, "n"]
    mask: GapMask

    @property
    def unit(self) -> float:
        """The standard deviation of the whole series, the unit of all errors."""
        return float(self.y.std()) or 1.0

    @property
    def query(self) -> tuple[Float[ndarray, "nc dx"], Float[ndarray, "nc"], Float[ndarray, "nt dx"]]:
        """The arguments of a method: observed inputs and values, and target inputs."""
        return self.x[self.mask.observed], self.y[self.mask.observed], self.x[self.mask.held_out]

    @property
    def truth(self) -> Float[ndarray, "nt"]:
        return self.y[self.mask.held_out]


@dataclass(frozen=True)
class GapLayout(TaskLayout):
    """Sorted inputs, uniform in the range: observed points of a mask are the context, held-out points the targets."""

    kind: str = "random"
    number: int = 0

    def draw(self, batch: int, random: torch.Generator):
        low, high = self.range
        x = low + (high - low) * uniform(random, batch, PRIOR_POINTS, self.dim_x).sort(1)[0]
        mask = make_mask(self.kind, PRIOR_POINTS, self.number)
        return x[:, mask.observed], x[:, mask.held_out]


class GapDataset(ABC):
    """Series or a field with gaps."""

    name: str
    group: str
    dim_x = 1
    kinds = GAP_KINDS
    max_masks: float = math.inf

    @abstractmethod
    def case(self, kind: str, number: int) -> GapCase:
        """Return the case with the mask of that number."""


@dataclass(frozen=True)
class PriorSeries(GapDataset):
    """A new function from a prior of the TNP protocol for every mask."""

    name: str
    group = "prior"

    def stream(self, kind: str, number: int) -> Curves:
        """Return the stream whose task `number` is the case; `fillin.data.bayes_limit` accepts it."""
        return Curves(curves(self.name).function, GapLayout(kind=kind, number=number), batch=1, seed=5)

    def case(self, kind: str, number: int) -> GapCase:
        task = self.stream(kind, number).task(number)
        x, y = (torch.cat(parts, 1)[0].double().numpy() for parts in ((task.xc, task.xt), (task.yc, task.yt)))
        observed = np.arange(len(x)) < task.xc.shape[1]
        order = np.argsort(x[:, 0], kind="stable")
        return GapCase(x[order], y[order, 0], GapMask(observed[order], ~observed[order]))


class CurveFile(GapDataset):
    """A series in a CSV file."""

    group = "curve"

    def __init__(self, path: Path):
        self.path, self.name = path, path.stem

    @cached_property
    def points(self) -> tuple[Float[ndarray, "n"], Float[ndarray, "n"]]:
        return read_curve(self.path)

    def case(self, kind: str, number: int) -> GapCase:
        x, y = self.points
        return GapCase(x[:, None], y, make_mask(kind, len(y), number))


class NetcdfField(GapDataset):
    """A field in a NetCDF file; cells without a value (land) are no part of it."""

    group = "field"
    dim_x = 2
    kinds = ("random",)
    max_masks = 3  # a field has thousands of held-out cells: few masks suffice

    def __init__(self, path: Path):
        self.path, self.name = path, path.stem

    @cached_property
    def grid(self) -> tuple[Float[ndarray, "r"], Float[ndarray, "c"], Float[ndarray, "r c"]]:
        return read_field(self.path)

    def case(self, kind: str, number: int) -> GapCase:
        rows, columns, values = self.grid
        present = np.isfinite(values)
        x = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1)[present]
        return GapCase(x, values[present], make_mask(kind, len(x), number, _FIELD_SHARE))


def find_gap_data(folder: Path | None) -> DataSets:
    """Find the priors, and the curves and fields of a folder."""
    sets: list[GapDataset] = [PriorSeries(name) for name in PRIORS]
    left_out = []
    if folder is None:
        left_out.append("Real curves and fields are left out: no --data DIR was given.")
    else:
        if not folder.is_dir():
            raise InputError(f"--data {folder}: there is no such folder; it holds curves/*.csv and fields/*.nc")
        series, fields = sorted((folder / "curves").glob("*.csv")), sorted((folder / "fields").glob("*.nc"))
        if not series and not fields:
            raise InputError(
                f"--data {folder} contains neither curves/*.csv nor fields/*.nc; name the folder above them"
            )
        left_out += [
            f"No {kind} in the data folder." for kind, paths in (("curves", series), ("fields", fields)) if not paths
        ]
        sets += [CurveFile(path) for path in series]
        if fields and find_spec("xarray") is None:
            left_out.append("Fields are left out: xarray is not installed (pip install 'fillin[fields]').")
        else:
            sets += [NetcdfField(path) for path in fields]
    return DataSets({data.name: data for data in sets}, tuple(left_out))


def read_curve(path: Path) -> tuple[Float[ndarray, "n"], Float[ndarray, "n"]]:
    """Return x in ascending order, and y; rows where y is missing are skipped."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            head, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error
    columns = [number for number, name in enumerate(head) if name != "rownames"][:2]
    if len(columns) < 2:
        raise InputError(f"{path}, line 1: a column for x and one for y are needed, got {', '.join(head) or 'nothing'}")
    values = []
    for (line, row), column in product(enumerate(rows, 2), columns):
        text = row[column].strip() if column < len(row) else ""
        try:
            values += [math.nan if text in ("", "NA") else float(text)] if row else []
        except ValueError as error:
            raise InputError(f"{path}, line {line}, column {head[column]}: {row[column]!r} is not a number") from error
    points = np.array(values, dtype=np.float64).reshape(-1, 2)
    points = points[np.isfinite(points).all(1)]
    if len(points) < _MIN_POINTS:
        raise InputError(f"{path}: {len(points)} points with a value are too few to hold out some; give {_MIN_POINTS}")
    x, y = points[np.argsort(points[:, 0], kind="stable")].T
    return x, y


def read_field(path: Path) -> tuple[Float[ndarray, "r"], Float[ndarray, "c"], Float[ndarray, "r c"]]:
    """Return coordinates of rows and of columns, and values, NaN where there are none."""
    import xarray

    try:
        with warnings.catch_warnings(), xarray.open_dataset(path, decode_times=False) as data:
            warnings.simplefilter("ignore")  # old conventions of a file
            names = [name for name, array in data.data_vars.items() if array.ndim >= 2 and "bnds" not in array.dims]
            if not names:
                raise InputError(f"{path} contains no variable over two dimensions")
            array = data[names[0]]
            array = array[(0,) * (array.ndim - 2)]
            rows, columns = (np.asarray(array[dim].values, dtype=np.float64) for dim in array.dims)
            return rows, columns, np.asarray(array.values, dtype=np.float64)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as NetCDF: {error}") from error
