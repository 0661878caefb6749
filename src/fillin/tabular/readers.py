"""Readers of tables to fill: CSV files, Parquet files and frames (pandas, polars, Arrow).

The cells of a CSV file are kept byte for byte, and results are appended to each line. Accepted are: comma, semicolon,
tab or | between cells, 3.14 or (not between commas) 3,14, UTF-8 or Latin-1, any line ending, comment lines (#) above
the header. Frames are typed through narwhals at the edge.
"""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

import numpy as np
from numpy import ndarray

from fillin.errors import InputError, InputTypeError
from fillin.runtime import require
from fillin.tabular.dates import DAY, Clock
from fillin.tabular.source import from_series, null_mask
from fillin.tabular.table import (
    CLASS,
    DATE,
    NUMBER,
    InvalidCell,
    TypedColumn,
    TypedTable,
    check_unique,
    exceeds_float64,
    is_declared_missing,
    parse_text,
)

_SEPARATORS = (",", ";", "\t", "|")
_BLOCK_ROWS = 20_000  # rows that are held as Python strings at a time
_SNIFFED_LINES, _SNIFFED_BYTES = 20, 100_000
_SIGNATURES = {
    b"PAR1": "a Parquet file; name it .parquet",
    b"PK\x03\x04": "a spreadsheet or a zip file; save it as CSV",
    b"\x1f\x8b": "compressed; unpack it with gunzip",
    b"\xd0\xcf\x11\xe0": "a spreadsheet; save it as CSV",
    b"\x89HDF": "an HDF5 or NetCDF file; name it .nc",
    b"\xff\xfe": "UTF-16; save it as UTF-8",
    b"\xfe\xff": "UTF-16; save it as UTF-8",
}


@dataclass(frozen=True)
class CsvFile:
    """A table and its text: `records` are the rows without line ending, `comments` the lines above the header."""

    table: TypedTable
    encoding: str
    separator: str
    line_ending: str
    comments: list[str]
    header: str
    records: list[str]
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path, names: Iterable[str], rows: Iterable[str]) -> None:
        """Write the header with further names, then `rows` as they are."""
        with path.open("w", encoding=self.encoding, newline="") as file:
            file.writelines(line + self.line_ending for line in self.comments)
            file.write(self.row(self.header, names))
            file.writelines(rows)

    def row(self, record: str, cells: Iterable[str]) -> str:
        """A record with further cells, and its line ending."""
        return self.separator.join([record, *map(self.quoted, cells)]) + self.line_ending

    def quoted(self, cell: str) -> str:
        special = self.separator in cell or '"' in cell or "\n" in cell or "\r" in cell
        return '"' + cell.replace('"', '""') + '"' if special else cell


def read_csv(path: Path, na: Collection[str] = (), date_format: str | None = None) -> CsvFile:
    return parse_csv(read_bytes(path), path.name, na, date_format)


def parse_csv(raw: bytes, name: str, na: Collection[str] = (), date_format: str | None = None) -> CsvFile:
    """Parse the bytes of a CSV file; errors call it `name`."""
    notes: list[str] = []
    encoding = _detect_encoding(raw, name, notes)
    lines = io.TextIOWrapper(io.BytesIO(raw), encoding=encoding, newline="")
    comments: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            break
        comments.append(line.rstrip("\r\n"))
    else:
        raise InputError(f"{name} has no header; its first line must name the columns, each further line is one row")
    line_ending = "\r\n" if line.endswith("\r\n") else "\r" if line.endswith("\r") else "\n"
    first_lines = [line, *islice(lines, _SNIFFED_LINES)]
    separator = _detect_separator(first_lines)
    records = _split_records(name, chain(first_lines, lines), separator, len(comments) + 1)
    cells, header, line_number = next(records)
    names = [cell.strip() for cell in cells]
    location, pandas = f"{name}, line {line_number}", require("pandas")
    check_unique(names, location)
    words = pandas.Series([word for word in names if word], dtype="str")
    if len(words) and all(parse_text("", words.iloc[[i]]).kind != CLASS for i in range(len(words))):
        raise InputError(
            f"{location}: {', '.join(words)} look like values; fill needs a first line with the columns' names"
        )
    texts, numbers, blocks = [], [], [[] for _ in names]

    def rows() -> Iterator[list[str]]:
        for cells, text, line_number in records:
            if not cells or (len(cells) == 1 and not text.strip()):
                continue
            if len(cells) != len(names):
                raise InputError(
                    f"{name}, line {line_number}: {len(cells)} cells, but the header has {len(names)}; put cells that "
                    f"contain {separator!r} in quotes, or add the missing ones"
                )
            texts.append(text)
            numbers.append(line_number)
            yield cells

    all_rows = rows()
    while block := list(islice(all_rows, _BLOCK_ROWS)):
        for parts, cells in zip(blocks, zip(*block, strict=True), strict=True):
            parts.append(pandas.Series(list(cells), dtype="str"))
    if not texts:
        raise InputError(f"{name} has a header and no rows, so nothing can be filled; add rows")
    columns = {}
    for column, parts in zip(names, blocks, strict=True):
        cells = pandas.concat(parts, ignore_index=True)
        parts.clear()
        columns[column] = parse_text(column, cells, na, separator != ",", date_format)
    line_numbers = np.array(numbers)
    table = TypedTable(name, columns, len(texts), lambda row: f"line {line_numbers[row]}", from_text=True)
    return CsvFile(table, encoding, separator, line_ending, comments, header, texts, notes)


def _split_records(name: str, lines: Iterable[str], separator: str, first: int) -> Iterator[tuple[list[str], str, int]]:
    """Cells, text without line ending, and number of the first line of each record."""
    pending: list[str] = []  # lines of the current record

    def remember() -> Iterator[str]:
        for line in lines:
            pending.append(line)
            yield line
        if pending:  # the file ends within a record
            raise csv.Error(f"a quote that is opened in line {first} is never closed")

    try:
        for cells in csv.reader(remember(), delimiter=separator):
            yield cells, "".join(pending).rstrip("\r\n"), first
            first += len(pending)
            pending.clear()
    except csv.Error as error:
        raise InputError(
            f"{name}, line {first}: {error}; close it, or write a quote that is part of a cell twice"
        ) from error


def read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check its name and folder") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error


def _detect_encoding(raw: bytes, name: str, notes: list[str]) -> str:
    """The encoding that reads all of the file, and writes the same bytes again."""
    for signature, kind in _SIGNATURES.items():
        if raw.startswith(signature):
            raise InputError(f"{name} is not a CSV file but {kind}")
    if not raw.strip():
        raise InputError(f"{name} is empty; it needs a line with the columns' names, and rows below it")
    if b"\x00" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\x00")) + 1
        raise InputError(f"{name}, line {line}: not text (it has a zero byte); save the table as CSV in UTF-8")
    try:
        raw.decode()
        return "utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "utf-8"
    except UnicodeDecodeError as error:
        head = raw[:_SNIFFED_BYTES]
        if sum(byte < 9 or 13 < byte < 32 for byte in head) > 0.01 * len(head):
            raise InputError(f"{name} is not text; save the table as CSV in UTF-8") from None
        line = raw.count(b"\n", 0, error.start) + 1
        notes.append(f"line {line} is not UTF-8: the file is read, and written, as Latin-1")
        return "latin-1"


def _detect_separator(lines: Sequence[str]) -> str:
    """The separator that splits most lines into as many cells as the first, and into the most cells."""

    def score(separator: str) -> tuple[int, int]:
        counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        cells = len(next(csv.reader(lines[:1], delimiter=separator)))
        return (cells > 1) * sum(count == cells for count in counts), cells

    return max(_SEPARATORS, key=score)


@dataclass(frozen=True)
class NativeFrame:
    """A frame to fill (narwhals' view of it), its typed table, and the columns that were a pandas index."""

    data: Any
    table: TypedTable
    index: list[str]
    unnamed_index: bool = False

    def restore(self, data: Any) -> Any:
        """A frame of the library that it came from, with the index that it had."""
        native = data.to_native()
        if self.index:
            native = native.set_index(self.index)
            native.index.names = [None] if self.unnamed_index else native.index.names
        return native


def read_frame(
    data: Any, name: str = "the frame", na: Collection[Any] = (), date_format: str | None = None
) -> NativeFrame:
    """Type a frame to fill. Unlike `read_columns`, an index is a column, and text is parsed leniently."""
    nw = require("narwhals")
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        raise InputTypeError(
            "fill takes a DataFrame (pandas, polars, Arrow), an array of NumPy, a Dataset or DataArray of xarray, got "
            f"{type(data).__name__}; numpy.asarray(data, dtype=float) makes an array of a list"
        ) from None
    except nw.exceptions.DuplicateError:
        check_unique(list(data.columns), name)
        raise
    index, unnamed, original = [], False, cast(Any, getattr(data, "index", None))
    # 0, 1, 2 … without a name counts rows; with another name or start it may be a location: years
    counts = type(original).__name__ == "RangeIndex" and original.name is None
    if frame.implementation.is_pandas_like() and not (counts and (original.start, original.step) == (0, 1)):
        unnamed = data.index.nlevels == 1 and data.index.name is None
        index = ["index"] if unnamed else list(data.index.names)
        if any(level is None or level in data.columns for level in index):
            raise InputError(f"{name}: every level of the index needs a name that no column has; use reset_index()")
        frame = nw.from_native(data.reset_index(names=index), eager_only=True)
    if not all(isinstance(column, str) for column in frame.columns):
        raise InputError(f"{name}: columns must be named by text, got {list(frame.columns)!r}")
    if not len(frame):
        raise InputError(f"{name} has no rows, so nothing can be filled; give it some")
    columns = {column: _type_series(frame[column], na, date_format) for column in frame.columns}
    if unnamed:
        columns["index"] = replace(columns["index"], unnamed_index=frame.schema["index"].is_integer())
    table = TypedTable(name, columns, len(frame), lambda row: f"row {row}")
    return NativeFrame(frame, table, index, unnamed)


def read_parquet(path: Path, na: Collection[Any] = (), date_format: str | None = None) -> NativeFrame:
    raw = read_bytes(path)
    parquet, arrow = require("pyarrow.parquet"), require("pyarrow")
    try:
        check_unique(parquet.read_schema(arrow.BufferReader(raw)).names, path.name)
        table = parquet.read_table(arrow.BufferReader(raw))
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path.name} is not a readable Parquet file: {error}; write it again") from error
    return read_frame(table, path.name, na, date_format)


class TableFormat(NamedTuple):
    """Functions that read a file of tables and write a filled frame to one."""

    read: Callable[[Path, Collection[str], str | None], CsvFile | NativeFrame]
    write_frame: Callable[[Any, Path], None] | None = None  # None for text: a `CsvFile` writes itself


_PARQUET = TableFormat(read_parquet, lambda table, path: require("pyarrow.parquet").write_table(table, path))
TABLE_FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), TableFormat(read_csv)),
    **dict.fromkeys((".parquet", ".pq"), _PARQUET),
}  # by suffix; the only list of the files that are read as tables


def _type_series(series: Any, na: Collection[Any], date_format: str | None) -> TypedColumn:
    """One column of a frame to fill. Columns of any other dtype, booleans among them, are classes."""
    nw = require("narwhals")
    if is_period(series):  # where it begins
        return _type_series(nw.from_native(series.to_native().dt.to_timestamp(), series_only=True), na, date_format)
    dtype, missing = series.dtype, null_mask(series)

    def words(null: ndarray = missing) -> list[str]:
        return ["" if is_missing else str(value) for value, is_missing in zip(series.to_list(), null, strict=True)]

    source = from_series(series.name, series)
    if source.kind == NUMBER and source.values is not None:
        values = source.values()
        missing = missing | np.isnan(values) | is_declared_missing(values, na)
        values[missing] = np.nan
        invalid, infinite = None, np.isinf(values)
        if infinite.any():
            row = int(infinite.argmax())
            invalid = InvalidCell(row, f"{values[row]} is not finite; correct it, or leave it missing", False)
        integers = np.asarray(series.to_numpy()) if dtype.is_integer() and not missing.any() else values
        exact = integers if exceeds_float64(integers) else None
        return TypedColumn(series.name, NUMBER, values, missing, words, invalid=invalid, exact=exact)
    if source.kind == DATE and source.values is not None:
        ticks = np.where(missing, 0, source.values().astype(np.int64))
        zone = getattr(dtype, "time_zone", None)
        if zone is not None:  # for steps by the calendar; an offset without a name has no daylight saving time
            offset = re.fullmatch(r"(UTC)?[+-]\d\d:?\d\d", zone)
            zone = datetime.strptime(zone.removeprefix("UTC"), "%z").tzinfo if offset else ZoneInfo(zone)
        sample = "2000-01-01" if (ticks % DAY == 0).all() else "2000-01-01 00:00:00"
        clock = Clock(sample=sample, zone=zone)
        return TypedColumn(series.name, DATE, ticks, missing, words, clock)
    if dtype in (nw.String, nw.Object, nw.Categorical, nw.Enum):
        column = parse_text(series.name, require("pandas").Series(words(), dtype="str"), na, False, date_format)
        return replace(column, categorical=source.kind == CLASS)
    return TypedColumn(series.name, CLASS, np.empty(0), missing, words)


def is_period(series: Any) -> bool:
    """Whether these are periods (months, days …) of pandas, which narwhals does not know."""
    return type(getattr(series.to_native(), "dtype", None)).__name__ == "PeriodDtype"
