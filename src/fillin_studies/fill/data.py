"""What is filled: draws from priors with a known answer, and the curves and fields of a folder.

DIR/curves/*.csv     a column of numbers for x, then one for y (`rownames` is skipped); what follows is not read
DIR/fields/*.nc      the first variable over two dimensions or more: the last two, at the first of all others
"""

import csv
import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from fillin.data import Curves, TaskLayout, curves
from fillin.data.functions import uniform
from fillin.errors import InputError
from fillin_studies.fill.masks import KINDS, Mask, mask

PRIORS = ("rbf", "matern-5/2", "periodic")  # of the TNP protocol
POINTS = 64  # of a series that is drawn
_FIELD_SHARE = 0.4
_FIELD_MASKS = 3  # a field has thousands of hidden cells: that many masks say enough
_FEWEST = 12


class Case(NamedTuple):
    """Points in a row, and which are hidden."""

    x: Float[ndarray, "n dx"]
    y: Float[ndarray, "n"]
    mask: Mask

    @property
    def unit(self) -> float:
        """The deviation of the whole series, in which errors are told."""
        return float(self.y.std()) or 1.0

    @property
    def question(self) -> tuple[Float[ndarray, "nc dx"], Float[ndarray, "nc"], Float[ndarray, "nt dx"]]:
        """What a method gets: known places and values, and where it is asked."""
        return self.x[self.mask.known], self.y[self.mask.known], self.x[self.mask.hidden]

    @property
    def truth(self) -> Float[ndarray, "nt"]:
        return self.y[self.mask.hidden]


@dataclass(frozen=True)
class Gaps(TaskLayout):
    """Places in a row, uniform in the range: those that a mask knows are the context, those it hides the targets."""

    kind: str = "random"
    number: int = 0

    def draw(self, batch: int, random: torch.Generator):
        low, high = self.range
        x = low + (high - low) * uniform(random, batch, POINTS, self.dim_x).sort(1)[0]
        hidden = mask(self.kind, POINTS, self.number)
        return x[:, hidden.known], x[:, hidden.hidden]


@dataclass(frozen=True)
class Prior:
    """A function drawn anew for every mask from a prior of the TNP protocol."""

    name: str
    group: ClassVar[str] = "prior"
    dim_x: ClassVar[int] = 1
    kinds: ClassVar[tuple[str, ...]] = KINDS
    most: ClassVar[float] = math.inf

    def stream(self, kind: str, number: int) -> Curves:
        """Whose task `number` is the case: what `fillin.data.bayes_limit` is asked about."""
        return Curves(curves(self.name).function, Gaps(kind=kind, number=number), batch=1, seed=5)

    def case(self, kind: str, number: int) -> Case:
        task = self.stream(kind, number).task(number)
        x, y = (torch.cat(parts, 1)[0].double().numpy() for parts in ((task.xc, task.xt), (task.yc, task.yt)))
        known = np.arange(len(x)) < task.xc.shape[1]
        order = np.argsort(x[:, 0], kind="stable")
        return Case(x[order], y[order, 0], Mask(known[order], ~known[order]))


@dataclass(frozen=True)
class Series:
    """A curve of a CSV file."""

    path: Path
    group: ClassVar[str] = "curve"
    dim_x: ClassVar[int] = 1
    kinds: ClassVar[tuple[str, ...]] = KINDS
    most: ClassVar[float] = math.inf

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def points(self) -> tuple[Float[ndarray, "n 1"], Float[ndarray, "n"]]:
        x, y = read_curve(self.path)
        return x[:, None], y

    def case(self, kind: str, number: int) -> Case:
        x, y = self.points
        return Case(x, y, mask(kind, len(y), number))


@dataclass(frozen=True)
class Field:
    """A field of a NetCDF file; cells without a value (land) are no part of it."""

    path: Path
    group: ClassVar[str] = "field"
    dim_x: ClassVar[int] = 2
    kinds: ClassVar[tuple[str, ...]] = ("random",)
    most: ClassVar[float] = _FIELD_MASKS

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def grid(self) -> tuple[Float[ndarray, "r"], Float[ndarray, "c"], Float[ndarray, "r c"]]:
        return read_field(self.path)

    def case(self, kind: str, number: int) -> Case:
        rows, columns, values = self.grid
        there = np.isfinite(values)
        x = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1)[there]
        return Case(x, values[there], mask(kind, len(x), number, _FIELD_SHARE))


DataSet = Prior | Series | Field  # whose case(kind, number) is the same whoever asks; at most so many masks are enough


@dataclass(frozen=True)
class Found:
    """What there is to fill, and in words what is left out and why."""

    sets: dict[str, DataSet]
    left_out: list[str] = field(default_factory=list)


def find(folder: Path | None) -> Found:
    """The priors, and what the folder has."""
    sets: list[DataSet] = [Prior(name) for name in PRIORS]
    if folder is None:
        return Found({one.name: one for one in sets}, ["Real curves and fields are left out: no --data DIR was given."])
    if not folder.is_dir():
        raise InputError(f"--data {folder}: there is no such folder; it holds curves/*.csv and fields/*.nc")
    series, fields = sorted((folder / "curves").glob("*.csv")), sorted((folder / "fields").glob("*.nc"))
    if not series and not fields:
        raise InputError(f"--data {folder}: neither curves/*.csv nor fields/*.nc in it; name the folder above them")
    left_out = [
        f"No {what} in the data folder." for what, paths in (("curves", series), ("fields", fields)) if not paths
    ]
    sets += [Series(path) for path in series]
    if fields and find_spec("xarray") is None:
        left_out.append("Fields are left out: xarray is not installed (pip install 'fillin[fields]').")
    else:
        sets += [Field(path) for path in fields]
    return Found({one.name: one for one in sets}, left_out)


def read_curve(path: Path) -> tuple[Float[ndarray, "n"], Float[ndarray, "n"]]:
    """x in ascending order, and y; rows where y is missing are skipped."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            head, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error
    columns = [number for number, name in enumerate(head) if name != "rownames"][:2]
    if len(columns) < 2:
        raise InputError(f"{path}, line 1: a column for x and one for y are needed, got {', '.join(head) or 'nothing'}")
    found = [
        [_number(path, line, head[column], row[column] if column < len(row) else "") for column in columns]
        for line, row in enumerate(rows, 2)
        if row
    ]
    points = np.array(found, dtype=np.float64).reshape(-1, 2)
    points = points[np.isfinite(points).all(1)]
    if len(points) < _FEWEST:
        raise InputError(f"{path}: {len(points)} points with a value are too few to hide some; {_FEWEST} are needed")
    x, y = points[np.argsort(points[:, 0], kind="stable")].T
    return x, y


def _number(path: Path, line: int, column: str, word: str) -> float:
    if word.strip() in ("", "NA", "NaN", "nan"):
        return math.nan
    try:
        return float(word)
    except ValueError as error:
        raise InputError(f"{path}, line {line}, column {column}: {word!r} is no number") from error


def read_field(path: Path) -> tuple[Float[ndarray, "r"], Float[ndarray, "c"], Float[ndarray, "r c"]]:
    """Coordinates of rows and of columns, and values, NaN where there are none."""
    import xarray

    try:
        with warnings.catch_warnings(), xarray.open_dataset(path, decode_times=False) as data:
            warnings.simplefilter("ignore")  # of how old a file's conventions are
            names = [name for name, one in data.data_vars.items() if one.ndim >= 2 and "bnds" not in one.dims]
            if not names:
                raise InputError(f"{path}: no variable over two dimensions in it")
            one = data[names[0]]
            one = one[(0,) * (one.ndim - 2)]
            rows, columns = (np.asarray(one[dim].values, dtype=np.float64) for dim in one.dims)
            return rows, columns, np.asarray(one.values, dtype=np.float64)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as NetCDF: {error}") from error
