"""Data sets as files, for tests of the study `tables`."""

import gzip
from pathlib import Path


def write_data_set(folder: Path, rows: list[str], splits: int = 2) -> Path:
    """Write a data set in the layout of --data; row i is held out in split i mod 4."""
    folder.mkdir(parents=True)
    masks = [",".join(str(int(i % 4 == split)) for split in range(splits)) for i in range(len(rows))]
    for name, lines in (("data", rows), ("test_mask", masks)):
        compress(folder / f"{name}.csv.gz", lines)
    return folder


def compress(path: Path, lines: list[str]) -> None:
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
