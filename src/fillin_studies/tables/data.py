"""Data sets of tables: those that scikit-learn ships, and those of a folder.

DIR/NAME/data.csv.gz       no header; the last column is the target: a class where it is text, else a number
DIR/NAME/test_mask.csv.gz  no header; a column for each split, 1 where a row is held out
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
from fillin_studies.base import DataSets

if TYPE_CHECKING:
    from pandas import DataFrame

LARGE = ("kin40k", "protein")  # too large for a Gaussian process on all rows
SHIPPED = ("diabetes", "breast_cancer", "wine", "iris", "digits")
SHIPPED_FEW_LABELS = ("breast_cancer", "wine")
FEW_LABELS = 20
FOLDS, RANDOM_SPLITS = 10, 5  # of a set without splits of its own; random splits for large sets and few labels
MAX_FOLD_ROWS = 1_000


@dataclass(frozen=True)
class TableSplit:
    """Training rows and test rows. Classes are codes; y is NaN where a label is missing."""

    X: "DataFrame"
    y: Float[ndarray, "n"]
    X_test: "DataFrame"
    y_test: Float[ndarray, "m"]
    n_classes: int = 0

    @property
    def labelled(self) -> "TableSplit":
        """The split without training rows whose label is missing."""
        observed = ~np.isnan(self.y)
        return replace(self, X=self.X.loc[observed], y=self.y[observed])


@dataclass(frozen=True)
class TableDataset:
    """A table with a column to predict."""

    name: str
    folder: Path | None = None
    few_labels: int = 0  # rows with a label; the others are training rows without one, and the test rows

    @property
    def title(self) -> str:
        return f"{self.name}, {self.few_labels} labels" if self.few_labels else self.name

    @cached_property
    def rows(self) -> tuple["DataFrame", Float[ndarray, "n"], int]:
        """X, y and the number of classes (0: y is a number)."""
        if self.folder is not None:
            return _read_data(self.folder / "data.csv.gz")
        X, y = getattr(require("sklearn.datasets"), f"load_{self.name}")(return_X_y=True, as_frame=True)
        return X.astype(float), y.to_numpy(float), 0 if self.name == "diabetes" else int(y.max()) + 1

    @cached_property
    def masks(self) -> Bool[ndarray, "n s"]:
        """Test rows of each split, stratified by class."""
        if self.folder is not None:
            return _read_masks(self.folder / "test_mask.csv.gz", len(self.rows[1]))
        from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

        X, y, n_classes = self.rows
        sizes: dict[str, Any] = {"train_size": self.few_labels} if self.few_labels else {"test_size": 0.1}
        splitter = (StratifiedShuffleSplit if n_classes else ShuffleSplit)(RANDOM_SPLITS, random_state=0, **sizes)
        if self.n_splits == FOLDS:
            splitter = (StratifiedKFold if n_classes else KFold)(FOLDS, shuffle=True, random_state=0)
        return np.stack([np.isin(np.arange(len(y)), test) for _, test in splitter.split(X, y)], 1)

    @property
    def n_splits(self) -> int:
        if self.folder is not None:
            return self.masks.shape[1]
        return RANDOM_SPLITS if self.few_labels or len(self.rows[1]) > MAX_FOLD_ROWS else FOLDS

    @property
    def group(self) -> str:
        return "few labels" if self.few_labels else "classification" if self.rows[2] else "regression"

    def split(self, number: int) -> TableSplit:
        X, y, n_classes = self.rows
        test = self.masks[:, number]
        X_test, y_test = X.loc[test], y[test]
        if self.few_labels:
            return TableSplit(X, np.where(test, np.nan, y), X_test, y_test, n_classes)
        return TableSplit(X.loc[~test], y[~test], X_test, y_test, n_classes)


def find_tables(folder: Path | None, few_labels: bool = True) -> DataSets:
    """Find the data sets of scikit-learn, with `few_labels` some of them also with few labels, and of a folder."""
    tables = [TableDataset(name) for name in SHIPPED]
    tables += [TableDataset(name, few_labels=FEW_LABELS) for name in SHIPPED_FEW_LABELS if few_labels]
    left_out: tuple[str, ...] = ("UCI data sets are left out: no --data DIR.",)
    if folder is not None:
        if not folder.is_dir():
            raise InputError(f"--data: {folder}: no such folder")
        paths = [path.parent for path in sorted(folder.glob("*/data.csv.gz"))]
        if not paths:
            raise InputError(f"--data: {folder} contains no NAME/data.csv.gz; give the folder above those of the sets")
        tables = [*(TableDataset(path.name, path) for path in paths if path.name not in LARGE), *tables]
        left_out = tuple(f"{path.name} is left out: it is large." for path in paths if path.name in LARGE)
    return DataSets({table.title: table for table in tables}, left_out)


def _read_csv(path: Path) -> "DataFrame":
    try:
        return require("pandas").read_csv(path, header=None)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error


def _read_data(path: Path) -> tuple["DataFrame", Float[ndarray, "n"], int]:
    table = _read_csv(path)
    if table.shape[1] < 2:
        raise InputError(f"{path} has one column; it needs a feature and, as the last column, the target")
    table.columns = [f"x{i}" for i in range(table.shape[1])]
    target, X = table.iloc[:, -1], table.iloc[:, :-1]
    for row in np.flatnonzero(target.isna()):
        raise InputError(f"{path}, line {row + 1}: the target is missing; leave the row out")
    X = X.astype(dict.fromkeys(X.select_dtypes("number"), float))
    if target.dtype.kind in "iuf":
        return X, target.to_numpy(float), 0
    levels, codes = np.unique(target.to_numpy(str), return_inverse=True)
    return X, codes.astype(float), len(levels)


def _read_masks(path: Path, rows: int) -> Bool[ndarray, "n s"]:
    masks = _read_csv(path).to_numpy()
    if len(masks) != rows:
        raise InputError(f"{path} has {len(masks)} rows, and data.csv.gz beside it {rows}; each row needs its mask")
    for row, split in np.argwhere((masks != 0) & (masks != 1)):
        raise InputError(f"{path}, line {row + 1}, column {split + 1}: {masks[row, split]!r} is neither 0 nor 1")
    masks = masks == 1
    for split in np.flatnonzero(masks.all(0) | ~masks.any(0)):
        raise InputError(f"{path}, column {split + 1}: a split needs training rows and test rows")
    return masks
