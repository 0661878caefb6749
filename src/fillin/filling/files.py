"""Which reader a file wants, by its ending; what is read knows how to be written."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fillin.errors import InputError
from fillin.filling.frames import read_parquet
from fillin.filling.prediction import NumericPrediction
from fillin.filling.series.infer_roles import SeriesRoles
from fillin.filling.series.new_rows import NewRows
from fillin.filling.write import write_csv, write_parquet
from fillin.tabular.csv import read_csv
from fillin.tabular.table import TypedTable

ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".pq")
FIELDS = (".nc", ".nc4", ".cdf", ".netcdf", ".zarr", ".npy", ".npz")
Write = Callable[[Path, Any, SeriesRoles, NewRows, dict[str, NumericPrediction], bool], None]


@dataclass(frozen=True)
class Table:
    """A file that was read: what is in it, what to say of it, and how its like is written."""

    table: TypedTable
    notes: list[str]
    source: Any
    writer: Write

    def write(
        self, path: Path, roles: SeriesRoles, new: NewRows, filled: dict[str, NumericPrediction], force: bool
    ) -> None:
        self.writer(path, self.source, roles, new, filled, force)


def is_field(path: Path) -> bool:
    """By its ending: a field or an array, not a table."""
    return path.suffix.lower() in FIELDS


def read_table(path: Path, na: Collection[str] = (), date_format: str | None = None) -> Table:
    ending = path.suffix.lower()
    if ending in (".parquet", ".pq"):
        frame = read_parquet(path, na, date_format)
        return Table(frame.table, [], frame, write_parquet)
    if ending in ENDINGS or path.is_dir() or not path.exists():  # of which the reader will complain
        file = read_csv(path, na, date_format)
        return Table(file.table, file.notes, file, write_csv)
    raise InputError(f"{path} is of no kind that fill reads; name a file that ends in {', '.join(ENDINGS + FIELDS)}")
