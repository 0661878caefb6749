"""The figures as a file: what was measured, on what, how often, and by which command."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fillin
from fillin.errors import InputError
from fillin.io import write_text
from fillin.measure import machine


def report(benchmark: str, rows: Sequence[Any], command: Sequence[str], seed: int, budget: dict[str, Any]) -> dict:
    """All that is needed to understand the figures, or to measure them again. `rows` are dataclasses."""
    return {
        "benchmark": benchmark,
        "fillin": fillin.__version__,
        "command": list(command),
        "seed": seed,
        "budget": budget,
        "machine": machine(),
        "rows": [asdict(row) for row in rows],
    }


def prepare(path: str, option: str = "--json") -> None:
    """The folder of `path` made, so that a run of minutes does not end in an error that was there at the start."""
    if path == "-":
        return
    file = Path(path)
    if file.is_dir():
        raise InputError(f"{option}: {path} is a folder; name a file in it")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{option}: cannot make the folder {file.parent} ({error.strerror}); name another") from error
    if not os.access(file.parent, os.W_OK):
        raise InputError(f"{option}: cannot write into {file.parent}; name another folder")


def write(content: dict, path: str) -> None:
    """JSON to stdout ("-"), or to a file that is never there in half."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        write_text(Path(path), text)
    except OSError as error:
        raise InputError(f"--json: cannot write {path} ({error.strerror}); name another file") from error
