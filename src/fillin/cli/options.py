"""Types of options, and output that commands share."""

import argparse
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fillin.errors import InputError, UnknownName

if TYPE_CHECKING:
    from rich.console import Console

THREADS_HELP = "number of threads of each process (default: chosen by torch)"
_SETTING = re.compile(r"--(\w+\.|(seed|start)\b)")  # of a recipe
_PIPED_COLUMNS = 160  # output width without a terminal: wide enough for every table


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def separate_settings(command: argparse.ArgumentParser) -> None:
    """Let a command take settings of recipes, `--section.key value`, which `main` puts into `settings`. They are kept
    from argparse, which would read a value as a positional argument."""
    command.set_defaults(settings=[])
    parse = command.parse_known_args

    def parse_known(args=None, namespace=None):
        words, settings = list(args or ()), []
        for i in reversed([i for i, word in enumerate(words) if _SETTING.match(word)]):
            alone = "=" in words[i] or words[i + 1 : i + 2] == [] or words[i + 1].startswith("--")
            settings = [*words[i : i + 2 - alone], *settings]
            del words[i : i + 2 - alone]
        arguments, unknown = parse(words, namespace)
        return arguments, [*settings, *unknown]

    command.parse_known_args = parse_known  # type: ignore[method-assign]


def check_settings(settings: Sequence[str], command: str, options: Sequence[str]) -> None:
    """Raise an error where a word among the settings is a misspelt option of the command."""
    for word in settings:
        if word.startswith("--") and not _SETTING.match(word):
            raise UnknownName(f"option of fillin {command}", word.partition("=")[0], options)


def console(stderr: bool = False) -> "Console":
    """Return the console that tables are printed to. A broken pipe is left to `main`."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    piped = not stream.isatty() and "COLUMNS" not in os.environ
    return Plain(stderr=stderr, width=_PIPED_COLUMNS if piped else None)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], wrap: Collection[str] = (), right: Collection[str] = (),
    **options: Any,
) -> None:  # fmt: skip
    """Print a table whose columns are not broken into lines, except those of `wrap`; `options` are those of rich."""
    from rich.table import Table

    table = Table(**options)
    for column in columns:
        table.add_column(column, no_wrap=column not in wrap, justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def check_writable(path: str, option: str = "--json") -> None:
    """Create the folder of `path` before a long run."""
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


def describe_results(
    benchmark: str, rows: Sequence[Any], command: Sequence[str], seed: int, budget: dict[str, Any]
) -> dict[str, Any]:
    """Collect what is needed to understand the results, or to measure them again. `rows` are dataclasses or dicts."""
    import fillin
    from fillin.measure import describe_machine

    return {
        "benchmark": benchmark,
        "fillin": fillin.__version__,
        "command": list(command),
        "seed": seed,
        "budget": budget,
        "machine": describe_machine(),
        "rows": [row if isinstance(row, dict) else asdict(row) for row in rows],
    }


def write_json(content: dict[str, Any], path: str) -> None:
    """Write JSON to stdout ("-"), or to a file, atomically."""
    from fillin.io import write_text

    text = json.dumps(content, indent=2, ensure_ascii=False)
    if path == "-":
        print(text)
        return
    try:
        write_text(Path(path), text + "\n")
    except OSError as error:
        raise InputError(f"--json: cannot write {path} ({error.strerror}); name another file") from error
