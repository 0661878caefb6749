"""Sheets in which cells are hidden: several series over common steps, of a folder or made here, and patterns of gaps.

DIR/sheets/*.csv.gz, or DIR/*.csv.gz     a heading, then a row for each step, equally spaced. A first column that
                                         increases from row to row numbers the steps and is no series.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.errors import InputError
from fillin.runtime import require
from fillin_studies.base import DataSets

MAX_ROWS, MAX_COLUMNS = 1_000, 12  # the first ones of a sheet; each column alone: of all columns
SEVERAL = ("cells", "blocks", "column")  # patterns of gaps in which columns may inform each other
SINGLE = "single"
PATTERNS = (*SEVERAL, SINGLE)
ADDED = ("noise", "duplicate")  # columns that ought to change nothing
HIDDEN_SHARE, COLUMN_SHARE = 0.2, 0.25  # of all cells anywhere; of one column in one piece
BLOCK_COUNTS, BLOCK_SHARES = (2, 4), (0.03, 0.08)  # of each column
_MIN_ROWS = 40
_SHEETS_SEED = 1999  # of sheets that are made; no seed of a pattern

Sheet2D = Float[ndarray, "n d"]


@dataclass(frozen=True)
class SheetCase:
    """Values y, NaN where a file has none, and the cells that are hidden. Only the first columns are scored."""

    columns: tuple[str, ...]
    y: Sheet2D
    hidden: Bool[ndarray, "n d"]

    @property
    def observed(self) -> Sheet2D:
        """The values with NaN where they are hidden: the argument of a method."""
        return np.where(self.hidden, np.nan, self.y)

    @cached_property
    def unit(self) -> Float[ndarray, "d"]:
        """The standard deviation of each column, the unit of its errors."""
        std = np.nanstd(self.y[:, : len(self.columns)], 0)
        return np.where(std > 0, std, 1)

    def add(self, kind: str, seed: int) -> "SheetCase":
        """Return the case with a further column, which is not scored: observed noise, or a copy of some column in which
        the same cells are hidden."""
        random = np.random.default_rng([seed, len(PATTERNS)])
        if kind == "noise":
            y, hidden = random.normal(size=len(self.y)), np.zeros(len(self.y), dtype=bool)
        else:
            column = random.integers(len(self.columns))
            y, hidden = self.y[:, column], self.hidden[:, column]
        return replace(self, y=np.column_stack([self.y, y]), hidden=np.column_stack([self.hidden, hidden]))


def draw_hidden(pattern: str, n: int, d: int, seed: int) -> Bool[ndarray, "n d"]:
    """Return the cells that are hidden, the same for every method.

    - "cells", "single": 20 % of all cells, anywhere;
    - "blocks": in each column 2 to 4 blocks of 3 to 8 % of the rows, which may overlap;
    - "column": in one column a quarter of the rows, in one piece.
    """
    random = np.random.default_rng([seed, PATTERNS.index(pattern)])
    if pattern in ("cells", SINGLE):
        return random.random((n, d)) < HIDDEN_SHARE
    hidden = np.zeros((n, d), dtype=bool)
    if pattern == "blocks":
        counts = random.integers(*BLOCK_COUNTS, size=d, endpoint=True)
        blocks = [(column, random.uniform(*BLOCK_SHARES)) for column in np.repeat(np.arange(d), counts)]
    else:
        blocks = [(random.integers(d), COLUMN_SHARE)]
    for column, share in blocks:
        length = max(1, int(n * share))
        start = random.integers(n - length + 1)
        hidden[start : start + length, column] = True
    return hidden


@dataclass(frozen=True)
class SheetDataset:
    """A sheet with hidden cells."""

    name: str
    columns: tuple[str, ...]
    values: Sheet2D

    def case(self, pattern: str, seed: int) -> SheetCase:
        d = len(self.columns) if pattern == SINGLE else min(MAX_COLUMNS, len(self.columns))
        y = self.values[:, :d]
        return SheetCase(self.columns[:d], y, draw_hidden(pattern, len(y), d, seed) & ~np.isnan(y))


def find_sheets(folder: Path | None) -> DataSets:
    """Find the sheets of a folder, or make some without one."""
    if folder is None:
        sheets = [SheetDataset(name, tuple(f"s{j + 1}" for j in range(y.shape[1])), y) for name, y in make_sheets()]
        left_out = ("Real sheets are left out: no --data DIR was given. Sheets are made instead.",)
        return DataSets({sheet.name: sheet for sheet in sheets}, left_out)
    if not folder.is_dir():
        raise InputError(f"--data {folder}: there is no such folder; it holds sheets/*.csv.gz")
    paths = sorted((folder / "sheets").glob("*.csv.gz")) or sorted(folder.glob("*.csv.gz"))
    if not paths:
        raise InputError(f"--data {folder} contains neither sheets/*.csv.gz nor *.csv.gz; name the folder above them")
    return DataSets({sheet.name: sheet for sheet in map(read_sheet, paths)})


def read_sheet(path: Path, name: str | None = None, skip: Sequence[str] = ()) -> SheetDataset:
    """Read the numeric columns of the first rows, except those of `skip`."""
    try:
        frame = require("pandas").read_csv(path, nrows=MAX_ROWS)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error
    frame = frame.select_dtypes("number").drop(columns=list(skip), errors="ignore").astype(float)
    if frame.shape[1] and (np.diff(frame.iloc[:, 0]) > 0).all():
        frame = frame.iloc[:, 1:]  # the number of the step
    if frame.shape[1] < 2 or len(frame) < _MIN_ROWS:
        raise InputError(
            f"{path} has {len(frame)} rows and {frame.shape[1]} series; a sheet needs at least {_MIN_ROWS} and 2"
        )
    return SheetDataset(name or path.name.removesuffix(".csv.gz"), tuple(map(str, frame.columns)), frame.to_numpy())


def make_sheets() -> list[tuple[str, Sheet2D]]:
    """Make sheets of known structure: columns that mix three functions, that have nothing in common, and that follow
    one function with a lag each. All have noise."""
    random = np.random.default_rng(_SHEETS_SEED)
    steps = np.arange(MAX_ROWS)

    def draw(columns: int, length: float) -> Sheet2D:
        """Draw random functions that vary over about `length` steps."""
        return np.stack([_draw_function(steps, length, random) for _ in range(columns)], 1)

    def observe(f: Sheet2D, noise: float) -> Sheet2D:
        return f + noise * random.normal(size=f.shape)

    mixed = np.hstack([draw(1, 8.0), draw(2, 40.0)]) @ random.normal(size=(3, 6))
    later = _draw_function(np.arange(MAX_ROWS + 12), 15.0, random)
    lagged = np.stack([later[lag : lag + MAX_ROWS] for lag in (0, 3, 5, 9, 12)], 1)
    return [
        ("mixed", observe(mixed, 0.1)),
        ("independent", observe(np.hstack([draw(1, 4.0), draw(2, 12.0), draw(2, 60.0)]), 0.1)),
        ("lagged", observe(lagged, 0.05)),
    ]


def _draw_function(steps: ndarray, length: float, random: np.random.Generator) -> Float[ndarray, "n"]:
    """Draw a sample of a Gaussian process with an RBF kernel, as a sum of cosines of random frequencies."""
    waves = 64
    frequency, phase = random.normal(size=waves) / length, random.uniform(0, 2 * np.pi, waves)
    return np.sqrt(2 / waves) * np.cos(steps[:, None] * frequency + phase) @ random.normal(size=waves)
