"""Options and output that commands share."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PIPED = 160  # columns where there is no terminal to ask: wide enough for every table


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def describe(commands, name: str, line: str, examples: str, **options) -> argparse.ArgumentParser:
    """A command of the given name: one line that says what it does, and examples below its options."""
    command = commands.add_parser(
        name,
        help=line,
        description=line[0].upper() + line[1:] + ".",
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )
    command.set_defaults(help=command.print_help)
    return command


def console(stderr: bool = False) -> "Console":
    """Where tables go. A broken pipe is left to `main`."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    piped = not stream.isatty() and "COLUMNS" not in os.environ
    return Plain(stderr=stderr, width=_PIPED if piped else None)
