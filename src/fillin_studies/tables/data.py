"""What is predicted: sets that scikit-learn ships, and those of a folder.

DIR/NAME/data.csv.gz       no header; the last column is the target: of words, a class, else a number
DIR/NAME/test_mask.csv.gz  no header; a column each split, 1 where a row is held out
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.errors import InputError
from fillin.runtime import require

if TYPE_CHECKING:
    from pandas import DataFrame

LARGE = ("kin40k", "protein")  # where a Gaussian process on all rows does not fit
FOLDS, DRAWS = 10, 5  # of a set that brings no splits: tenths, each held out once; and draws, of few labels
MANY = 1_000  # rows, from which on a tenth is drawn that often, too
FEW = 20  # labels, of the sets with few


@dataclass(frozen=True)
class Case:
    """Rows to learn from, and rows to tell. Classes are codes; y is NaN where a label is not known."""

    X: "DataFrame"
    y: Float[ndarray, "n"]
    asked: "DataFrame"
    truth: Float[ndarray, "m"]
    classes: int = 0

    @property
    def labelled(self) -> "Case":
        """Without rows whose label is not known."""
        known = ~np.isnan(self.y)
        return replace(self, X=self.X.loc[known], y=self.y[known])


@dataclass(frozen=True)
class Set:
    """A table with a column to predict. A set with `few` labels is split by these: the rest is both given without its
    labels and asked for."""

    name: str
    folder: Path | None = None
    few: int = 0

    @property
    def title(self) -> str:
        return f"{self.name}, {self.few} labels" if self.few else self.name

    @cached_property
    def rows(self) -> tuple["DataFrame", Float[ndarray, "n"], int]:
        """X, y and the number of classes (0: y is a number)."""
        return _shipped(self.name) if self.folder is None else _read(self.folder / "data.csv.gz")

    @cached_property
    def masks(self) -> Bool[ndarray, "n s"]:
        """Of each split, which rows are held out; of classes in their proportions, so that none is without."""
        if self.folder is not None:
            return _read_masks(self.folder / "test_mask.csv.gz", len(self.rows[1]))
        from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

        X, y, classes = self.rows
        sizes: dict[str, Any] = {"train_size": self.few} if self.few else {"test_size": 0.1}
        splitter = (StratifiedShuffleSplit if classes else ShuffleSplit)(DRAWS, random_state=0, **sizes)
        if self.splits == FOLDS:
            splitter = (StratifiedKFold if classes else KFold)(FOLDS, shuffle=True, random_state=0)
        return np.stack([np.isin(np.arange(len(y)), test) for _, test in splitter.split(X, y)], 1)

    @property
    def splits(self) -> int:
        if self.folder is not None:
            return self.masks.shape[1]
        return DRAWS if self.few or len(self.rows[1]) > MANY else FOLDS

    @property
    def group(self) -> str:
        return "few labels" if self.few else "classification" if self.rows[2] else "regression"

    def case(self, split: int) -> Case:
        X, y, classes = self.rows
        out = self.masks[:, split]
        asked, truth = X.loc[out], y[out]
        if self.few:
            return Case(X, np.where(out, np.nan, y), asked, truth, classes)
        return Case(X.loc[~out], y[~out], asked, truth, classes)


SHIPPED = ("diabetes", "breast_cancer", "wine", "iris", "digits")
WITH_FEW = ("breast_cancer", "wine")


@dataclass(frozen=True)
class Found:
    """The sets by title, and what is left out, in sentences."""

    sets: dict[str, Set]
    left_out: tuple[str, ...] = ()


def find(folder: Path | None) -> Found:
    """Those of scikit-learn, and those of a folder."""
    made = [*(Set(name) for name in SHIPPED), *(Set(name, few=FEW) for name in WITH_FEW)]
    left_out: tuple[str, ...] = ("Sets of UCI are left out: no --data DIR.",)
    if folder is not None:
        if not folder.is_dir():
            raise InputError(f"--data: {folder}: no such folder")
        there = [path.parent for path in sorted(folder.glob("*/data.csv.gz"))]
        if not there:
            raise InputError(f"--data: {folder} has no NAME/data.csv.gz in it; give the folder above those of the sets")
        large = [path.name for path in there if path.name in LARGE]
        made = [*(Set(path.name, path) for path in there if path.name not in LARGE), *made]
        left_out = tuple(f"{name} is left out: it is large." for name in large)
    return Found({one.title: one for one in made}, left_out)


def _shipped(name: str) -> tuple["DataFrame", Float[ndarray, "n"], int]:
    datasets = require("sklearn.datasets")
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True, as_frame=True)
    return X.astype(float), y.to_numpy(float), 0 if name == "diabetes" else int(y.max()) + 1


def _table(path: Path) -> "DataFrame":
    try:
        return require("pandas").read_csv(path, header=None)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error


def _read(path: Path) -> tuple["DataFrame", Float[ndarray, "n"], int]:
    table = _table(path)
    if table.shape[1] < 2:
        raise InputError(f"{path}: one column; there must be a column to read and, last, one to predict")
    table.columns = [f"x{i}" for i in range(table.shape[1])]
    target, X = table.iloc[:, -1], table.iloc[:, :-1]
    for row in np.flatnonzero(target.isna()):
        raise InputError(f"{path}, line {row + 1}: no target; leave the row out")
    X = X.astype(dict.fromkeys(X.select_dtypes("number"), float))
    if target.dtype.kind in "iuf":
        return X, target.to_numpy(float), 0
    levels, codes = np.unique(target.to_numpy(str), return_inverse=True)
    return X, codes.astype(float), len(levels)


def _read_masks(path: Path, rows: int) -> Bool[ndarray, "n s"]:
    masks = _table(path).to_numpy()
    if len(masks) != rows:
        raise InputError(f"{path} has {len(masks)} rows, and data.csv.gz beside it {rows}; each row needs its mask")
    for row, split in np.argwhere((masks != 0) & (masks != 1)):
        raise InputError(f"{path}, line {row + 1}, column {split + 1}: {masks[row, split]!r} is neither 0 nor 1")
    masks = masks == 1
    for split in np.flatnonzero(masks.all(0) | ~masks.any(0)):
        raise InputError(f"{path}, column {split + 1}: a split needs rows to learn from and rows to hold out")
    return masks
