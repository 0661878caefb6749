"""Results as files: beside the input, never over anything without leave, whole or not at all."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fillin.errors import InputError
from fillin.filling.frames import Frame
from fillin.filling.prediction import SUFFIXES, NumericPrediction, complete_column
from fillin.filling.series.infer_roles import SeriesRoles
from fillin.filling.series.new_rows import NewRows
from fillin.io import write_file
from fillin.runtime import require
from fillin.tabular.csv import CsvFile


def is_zarr(path: Path) -> bool:
    """A folder that may be replaced by another of its kind."""
    return path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata"))


@dataclass(frozen=True)
class Outputs:
    """Where results go: the table, and, where they are wanted, the picture and the report."""

    table: Path
    picture: Path | None
    report: Path | None
    force: bool = False

    @classmethod
    def of(
        cls, source: Path, out: str | None, picture: bool, report: bool, force: bool, ending: str | None = None
    ) -> "Outputs":
        """NAME.filled.csv beside NAME.csv unless `out` says where; checked before anything slow begins. `ending` is
        that of the output, where it is not the input's."""
        if out is not None and not out.strip():
            raise InputError("-o: the name of the output is empty; name a file, or leave -o out")
        ending = source.suffix if ending is None else ending
        table = Path(out) if out else source.with_name(f"{source.stem}.filled{ending}")
        if table.suffix.lower() != ending.lower():
            how = "as the input is" if ending == source.suffix else f"as {ending}"
            raise InputError(f"-o {table}: the output is written {how}; let its name end in {ending}")
        drawn, told = table.with_suffix(".png"), table.with_suffix(".html")
        outputs = cls(table, drawn if picture else None, told if report else None, force)
        for path in outputs.paths:
            if path.exists() and source.exists() and path.samefile(source):
                raise InputError(f"-o {path} is the input, which is never touched; name another file")
            if source.is_dir() and source.resolve() in path.resolve().parents:
                raise InputError(f"-o {path} lies in the input, which is never touched; name another place")
            if path.is_dir() and not (path == table and is_zarr(path) and source.is_dir()):
                raise InputError(f"{path} is a folder; name a file with -o")
            if path.exists() and not force:
                raise InputError(f"{path} exists; replace it with --force, or name another with -o")
        if not table.parent.is_dir():
            raise InputError(f"there is no folder {table.parent}; make it, or name another file with -o")
        return outputs

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.table, self.picture, self.report) if path is not None]


def put(path: Path, write: Callable[[Path], object], force: bool) -> None:
    """Write beside the path, then rename; only with `force` over what another run has written there meanwhile."""
    try:
        write_file(path, write, overwrite=force)
    except FileExistsError as error:
        raise taken(path) from error
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; name another place with -o") from error


def taken(path: Path) -> InputError:
    return InputError(
        f"{path} was written by another run meanwhile, and is kept; replace it with --force, or name another with -o"
    )


def write_csv(
    path: Path, file: CsvFile, roles: SeriesRoles, new: NewRows, filled: dict[str, NumericPrediction], force: bool
) -> None:
    names = [f"{column.name}_{ending}" for column in roles.y for ending in SUFFIXES]
    put(path, lambda beside: file.write(beside, names, _rows(file, roles, new, filled)), force)


def _rows(file: CsvFile, roles: SeriesRoles, new: NewRows, filled: dict[str, NumericPrediction]) -> Iterator[str]:
    rows = roles.table.n_rows
    numbers = [complete_column(column, filled.get(column.name), len(new.x)) for column in roles.y]
    known = [
        [None if blank else cell.strip() for cell, blank in zip(column.cells(), column.missing, strict=True)]
        for column in roles.y
    ]
    blanks = _blank_records(file, roles, new)
    for row in new.order(rows):
        cells: list[str] = []
        for column, written, (mean, std, low, high) in zip(roles.y, known, numbers, strict=True):
            cell = written[row] if row < rows else None
            if cell is not None:
                cells += [cell, "0", cell, cell]
            else:
                cells += [
                    written_as(float(v[row]), float(std[row]), column.decimal_comma) for v in (mean, std, low, high)
                ]
        yield file.row(file.records[row] if row < rows else blanks[row - rows], cells)


def _blank_records(file: CsvFile, roles: SeriesRoles, new: NewRows) -> list[str]:
    """Rows for new places: x and group, all else blank."""
    groups = {name: list(roles.table.column(name).cells()) for name in roles.by}
    records = []
    for place, number in zip(roles.format_x(new.x), new.group, strict=True):
        first = roles.groups[number].rows[0]
        cells = {roles.x.name: place, **{name: cells[first] for name, cells in groups.items()}}
        records.append(file.separator.join(file.quoted(cells.get(name, "")) for name in roles.table.columns))
    return records


def written_as(value: float, std: float, comma: bool = False) -> str:
    """To the fourth digit of its deviation: no more is known.

    >>> written_as(315.421356, 0.30125), written_as(0.30125, 0.30125), written_as(float("nan"), 1.0)
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


def write_parquet(
    path: Path, frame: Frame, roles: SeriesRoles, new: NewRows, filled: dict[str, NumericPrediction], force: bool
) -> None:
    table = frame.filled(roles, new, filled)
    put(path, lambda beside: require("pyarrow.parquet").write_table(table, beside), force)
