"""CSV files, whose cells are kept byte for byte: results are appended to each line.

Accepted are: comma, semicolon, tab or | between cells, 3.14 or (not between commas) 3,14, UTF-8 or Latin-1, any line
ending, comment lines (#) above the header.
"""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from fillin.errors import InputError
from fillin.runtime import require
from fillin.tabular.parse import parse_text
from fillin.tabular.source import check_unique
from fillin.tabular.table import CLASS, TypedTable

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
    reader = _RecordReader(name, chain(first_lines, lines), separator, len(comments))
    names, header = reader.header()
    columns = {
        column: parse_text(column, cells, na, separator != ",", date_format)
        for column, cells in zip(names, reader.columns(len(names)), strict=True)
    }
    numbers = np.array(reader.line_numbers)
    table = TypedTable(name, columns, len(numbers), lambda row: f"line {numbers[row]}", from_text=True)
    return CsvFile(table, encoding, separator, line_ending, comments, header, reader.records, notes)


class _RecordReader:
    """Records of a file: their cells, their text as it is, and their line numbers."""

    def __init__(self, file_name: str, lines: Iterator[str], separator: str, line_number: int):
        self.file_name, self.lines, self.separator = file_name, lines, separator
        self.line_number, self.first_line = line_number, line_number + 1  # read last; of the current record
        self.pending: list[str] = []  # lines of the current record
        self.records: list[str] = []
        self.line_numbers: list[int] = []
        self.reader = csv.reader(self._remember_lines(), delimiter=separator)

    def _remember_lines(self) -> Iterator[str]:
        for line in self.lines:
            self.line_number += 1
            self.pending.append(line)
            yield line
        if self.pending:  # the file ends within a record
            raise csv.Error(f"a quote that is opened in line {self.first_line} is never closed")

    def _cells(self) -> Iterator[tuple[list[str], str, int]]:
        """Cells, text without line ending, and number of the first line of each record."""
        try:
            for cells in self.reader:
                text, first = "".join(self.pending).rstrip("\r\n"), self.first_line
                self.pending, self.first_line = [], self.line_number + 1
                yield cells, text, first
        except csv.Error as error:
            raise InputError(
                f"{self.file_name}, line {self.first_line}: {error}; close it, or write a quote that is part of a cell "
                "twice"
            ) from error

    def header(self) -> tuple[list[str], str]:
        """The names of the columns, and the line that has them."""
        cells, text, line = next(self._cells())
        names = [cell.strip() for cell in cells]
        location = f"{self.file_name}, line {line}"
        check_unique(names, location)
        words = require("pandas").Series([name for name in names if name], dtype="str")
        if len(words) and all(parse_text("", words.iloc[[i]]).kind != CLASS for i in range(len(words))):
            raise InputError(
                f"{location}: {', '.join(words)} look like values; fill needs a first line with the columns' names"
            )
        return names, text

    def columns(self, n_columns: int) -> Iterator[Any]:
        """The columns as pandas Series of text."""
        pandas = require("pandas")
        blocks: list[list[Any]] = [[] for _ in range(n_columns)]
        rows = self._rows(n_columns)
        while block := list(islice(rows, _BLOCK_ROWS)):
            for column, cells in zip(blocks, zip(*block, strict=True), strict=True):
                column.append(pandas.Series(list(cells), dtype="str"))
        if not self.records:
            raise InputError(f"{self.file_name} has a header and no rows, so nothing can be filled; add rows")
        for column in blocks:
            cells = pandas.concat(column, ignore_index=True)
            column.clear()
            yield cells

    def _rows(self, n_columns: int) -> Iterator[list[str]]:
        for cells, text, line in self._cells():
            if not cells or (len(cells) == 1 and not text.strip()):
                continue
            if len(cells) != n_columns:
                raise InputError(
                    f"{self.file_name}, line {line}: {len(cells)} cells, but the header has {n_columns}; put cells "
                    f"that contain {self.separator!r} in quotes, or add the missing ones"
                )
            self.records.append(text)
            self.line_numbers.append(line)
            yield cells


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
