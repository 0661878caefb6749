"""Predictions of missing values, the columns that they become, and the files that they are written to."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.errors import InputError
from fillin.io import write_file, write_folder

MAX_DRAWS = 1_000
SUFFIXES = ("filled", "std", "low", "high")  # of the columns, variables or arrays added for one filled with numbers


@dataclass(frozen=True)
class NumericPrediction:
    """Mean, standard deviation, prediction interval and quartiles of numbers, and samples: of a table a row of joint
    draws for each row number, of an image as many images.

    `rows` are row numbers of a table, those of new rows last, or ... for all cells of a grid or pixels of an image,
    observed ones included. Arrays are NumPy's, or dask's where those of the data are.
    """

    rows: Any
    mean: Any
    std: Any
    low: Any
    high: Any
    lower_quartile: Any = None
    upper_quartile: Any = None
    samples: Any = None

    def __repr__(self) -> str:
        samples = "" if self.samples is None else f", samples={len(self.samples)}"
        return f"NumericPrediction(mean={list(self.mean.shape)}{samples})"

    @classmethod
    def concatenate(cls, parts: "list[NumericPrediction]") -> "NumericPrediction":
        """Join predictions of different rows."""
        if not parts:
            return cls(np.empty(0, dtype=int), *(np.empty(0) for _ in range(6)))
        names = [field.name for field in fields(cls) if getattr(parts[0], field.name) is not None]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def select(self, kept: Bool[ndarray, "n"]) -> "NumericPrediction":
        """Return the prediction of some of the rows."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return NumericPrediction(**{name: None if part is None else part[kept] for name, part in parts.items()})

    @property
    def interval(self) -> tuple[Any, Any, Any, Any]:
        """Return mean, standard deviation, lower and upper end, in the order of `SUFFIXES`."""
        return self.mean, self.std, self.low, self.high


@dataclass(frozen=True)
class ClassPrediction:
    """The most probable class at `rows`, and its probability."""

    rows: Int[ndarray, "n"]
    labels: ndarray
    probability: Float[ndarray, "n"]


ColumnPrediction = NumericPrediction | ClassPrediction
ColumnPredictions = dict[str, Any]  # a ColumnPrediction by the name of each filled column


def name_draws(draws: int) -> list[str]:
    """Return the suffixes of the columns of joint draws."""
    return [f"draw{number}" for number in range(1, draws + 1)]


def format_number(value: float, std: float, comma: bool = False) -> str:
    """Return a number as text, to the fourth significant digit of its standard deviation.

    >>> format_number(315.421356, 0.30125), format_number(0.30125, 0.30125), format_number(float("nan"), 1.0)
    ('315.4214', '0.3013', '')
    """
    if math.isnan(value):
        return ""
    digits = 4
    if value and std > 0:
        digits = min(max(4 + math.floor(math.log10(abs(value))) - math.floor(math.log10(std)), 1), 17)
    text = f"{value:.{digits}g}"
    text = "0" if text == "-0" else text
    return text.replace(".", ",") if comma else text


@dataclass(frozen=True)
class Outputs:
    """Paths to write: the filled data, and further files by name ("figure", "report"). Every write is atomic."""

    data: Path
    extra: dict[str, Path]
    force: bool = False

    @classmethod
    def choose(
        cls, sources: Sequence[Path], out: str | None, default: Path, extra: Mapping[str, str], force: bool = False
    ) -> "Outputs":
        """Return the paths, checked before any slow work begins.

        The data go to `out`, or else to `default`, whose suffix they have in any case. A file of `extra` has the name
        of the data with the given suffix; one such as .grid.nc replaces .filled.csv. Files and folders of `sources` are
        never written to.
        """
        if out is not None and not out.strip():
            raise InputError("-o: the name of the output is empty; name a file or leave out -o")
        data = Path(out) if out else default
        if not data.suffix and default.suffix == ".png":
            data = data.with_name(f"{data.name}.png")
        if data.suffix.lower() != default.suffix.lower():
            raise InputError(f"-o {data}: the output is written as {default.suffix}; its name must end in that")
        stems = {
            name: data.stem.removesuffix(".filled") if s.count(".") > 1 else data.stem for name, s in extra.items()
        }
        outputs = cls(data, {name: data.with_name(stems[name] + suffix) for name, suffix in extra.items()}, force)
        for path in outputs.paths:
            outputs._check(path, sources)
        if not data.parent.is_dir():
            raise InputError(f"there is no folder {data.parent}; create it or name another file with -o")
        return outputs

    @property
    def paths(self) -> list[Path]:
        return [self.data, *self.extra.values()]

    def _check(self, path: Path, sources: Sequence[Path]) -> None:
        for source in sources:
            if path.exists() and source.exists() and path.samefile(source):
                raise InputError(f"-o {path} is the input, which is never overwritten; name another file")
            if source.is_dir() and source.resolve() in path.resolve().parents:
                raise InputError(f"-o {path} lies inside the input, which is never changed; name another folder")
        is_zarr = any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata"))
        if path.is_dir() and not (path == self.data and is_zarr and sources[0].is_dir()):  # Zarr may replace Zarr
            raise InputError(f"{path} is a folder; name a file with -o")
        if path.exists() and not self.force:
            raise InputError(f"{path} exists; replace it with --force or name another file with -o")

    def write(self, path: Path, write: Callable[[Path], object], folder: bool = False) -> None:
        """Call `write(temporary path)` for a file or a folder, then rename it to `path`."""
        try:
            if folder:
                temporary = path.with_name(f".{path.name}.{os.getpid()}")
                write_folder(path, write, temporary, path.with_name(f"{temporary.name}.old"), overwrite=self.force)
            else:
                write_file(path, write, overwrite=self.force)
        except FileExistsError as error:
            raise InputError(
                f"{path} was meanwhile written by another run and is kept; replace it with --force or name another "
                "file with -o"
            ) from error
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}; choose another path with -o") from error
