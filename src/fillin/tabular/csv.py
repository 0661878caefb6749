"""CSV files, whose cells stay as they are, byte for byte: what is added goes to the end of each line.

Read as they come: comma, semicolon, tab or | between cells, 3.14 or (not between commas) 3,14, UTF-8 or Latin-1, any
line ending, lines of comment (#) above the header.
"""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from fillin.errors import InputError
from fillin.runtime import require
from fillin.tabular.parse import parse_cells
from fillin.tabular.table import CLASS, TypedColumn, TypedTable

_SEPARATORS = (",", ";", "\t", "|")
_AT_ONCE = 20_000  # rows
_OTHERS = {
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
    """The text of a file: `above` are lines of comment, `records` the rows as they are, without the line ending."""

    table: TypedTable
    encoding: str
    separator: str
    ending: str
    above: list[str]
    header: str
    records: list[str]
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path, names: Iterable[str], rows: Iterable[str]) -> None:
        """The header and further names, then `rows` as they are."""
        with path.open("w", encoding=self.encoding, newline="") as file:
            file.writelines(line + self.ending for line in self.above)
            file.write(self.row(self.header, names))
            file.writelines(rows)

    def row(self, record: str, cells: Iterable[str]) -> str:
        """A record with further cells, and its line ending."""
        return self.separator.join([record, *map(self.quoted, cells)]) + self.ending

    def quoted(self, cell: str) -> str:
        special = self.separator in cell or '"' in cell or "\n" in cell or "\r" in cell
        return '"' + cell.replace('"', '""') + '"' if special else cell


def read_csv(path: Path, na: Collection[str] = (), date_format: str | None = None) -> CsvFile:
    return parse_csv(read_bytes(path), path.name, na, date_format)


def parse_csv(raw: bytes, name: str, na: Collection[str] = (), date_format: str | None = None) -> CsvFile:
    """The same of bytes that came some other way; `name` is what errors call them."""
    notes: list[str] = []
    encoding = _encoding(raw, name, notes)
    lines = io.TextIOWrapper(io.BytesIO(raw), encoding=encoding, newline="")
    above: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            break
        above.append(line.rstrip("\r\n"))
    else:
        raise InputError(f"{name} has no header; its first line must name the columns, one row a place below it")
    ending = "\r\n" if line.endswith("\r\n") else "\r" if line.endswith("\r") else "\n"
    few = [line, *islice(lines, 20)]
    held = _Lines(chain(few, lines), len(above))
    return _parse(held, name, _separator(few), ending, above, encoding, notes, na, date_format)


class _Lines:
    """Lines of a file, remembered until they are taken: the text of the record that was read last, and its place."""

    def __init__(self, lines: Iterator[str], number: int):
        self.lines, self.number, self.first, self.held = lines, number, number + 1, []

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = next(self.lines, None)
        if line is None and self.held:  # a record has begun, and the file ends within it
            raise csv.Error(f"a quote that is opened in line {self.first} is never closed")
        if line is None:
            raise StopIteration
        self.number += 1
        self.held.append(line)
        return line

    def take(self) -> tuple[str, int]:
        """The record's text without its line ending, and the number of its first line."""
        text, first = "".join(self.held).rstrip("\r\n"), self.first
        self.held, self.first = [], self.number + 1
        return text, first


def _parse(lines, name, separator, ending, above, encoding, notes, na, date_format) -> CsvFile:
    reader = csv.reader(lines, delimiter=separator)
    try:
        names = [cell.strip() for cell in next(reader)]
    except csv.Error as error:
        raise _quotes(name, lines, error) from error
    header, first = lines.take()
    _check_header(names, name, first)
    records: list[str] = []
    numbers: list[int] = []
    parts: list[list[Any]] = [[] for _ in names]
    pandas = require("pandas")

    def rows() -> Iterator[list[str]]:
        for cells in reader:
            text, line = lines.take()
            if not cells or (len(cells) == 1 and not text.strip()):
                continue
            if len(cells) != len(names):
                raise InputError(
                    f"{name}, line {line}: {len(cells)} cells, but the header has {len(names)}; put what contains "
                    f"{separator!r} in quotes, or add what is missing"
                )
            records.append(text)
            numbers.append(line)
            yield cells

    source = rows()
    try:
        while block := list(islice(source, _AT_ONCE)):
            for part, cells in zip(parts, zip(*block, strict=True), strict=True):
                part.append(pandas.Series(list(cells), dtype="str"))
    except csv.Error as error:
        raise _quotes(name, lines, error) from error
    if not records:
        raise InputError(f"{name} has a header and no rows: nothing is known, so nothing can be filled")
    columns: dict[str, TypedColumn] = {}
    for column, part in zip(names, parts, strict=True):
        cells = pandas.concat(part, ignore_index=True)
        part.clear()
        columns[column] = parse_cells(column, cells, na, separator != ",", date_format)
    table = TypedTable(name, columns, len(records), _line_of(np.array(numbers)), from_text=True)
    return CsvFile(table, encoding, separator, ending, above, header, records, notes)


def _quotes(name: str, lines: _Lines, error: csv.Error) -> InputError:
    return InputError(f"{name}, line {lines.first}: {error}; close it, or write a quote that is part of a cell twice")


def _line_of(numbers: Int[ndarray, "n"]) -> Callable[[int], str]:
    return lambda row: f"line {numbers[row]}"


def _check_header(names: Sequence[str], file: str, line: int) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{file}, line {line}: two columns are called {name!r}; give each a name of its own")
    pandas = require("pandas")
    words = pandas.Series([name for name in names if name], dtype="str")
    if len(words) and all(parse_cells("", words.iloc[[i]]).kind != CLASS for i in range(len(words))):
        raise InputError(
            f"{file}, line {line}: {', '.join(words)} look like values; fill needs a first line with the columns' names"
        )


def read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; look at its name and folder") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; look at its permissions") from error


def _encoding(raw: bytes, name: str, notes: list[str]) -> str:
    """That which reads all of it, and writes the same bytes again."""
    for mark, what in _OTHERS.items():
        if raw.startswith(mark):
            raise InputError(f"{name} is no CSV file but {what}")
    if not raw.strip():
        raise InputError(f"{name} is empty; it needs a line with the columns' names, and below it one row a place")
    if b"\x00" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\x00")) + 1
        raise InputError(f"{name}, line {line}: not text (it has a zero byte); save the table as CSV in UTF-8")
    try:
        raw.decode()
        return "utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "utf-8"
    except UnicodeDecodeError as error:
        few = raw[:100_000]
        if sum(byte < 9 or 13 < byte < 32 for byte in few) > 0.01 * len(few):
            raise InputError(f"{name} is not text; save the table as CSV in UTF-8") from None
        line = raw.count(b"\n", 0, error.start) + 1
        notes.append(f"line {line} is not UTF-8: the file is read, and written, as Latin-1")
        return "latin-1"


def _separator(lines: Sequence[str]) -> str:
    """The one that splits most lines into as many cells as the first, and into the most of them."""

    def worth(separator: str) -> tuple[int, int]:
        counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        cells = len(next(csv.reader(lines[:1], delimiter=separator)))
        return (cells > 1) * sum(count == cells for count in counts), cells

    return max(_SEPARATORS, key=worth)
