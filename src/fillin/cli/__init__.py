"""The command line: `fillin COMMAND`. One file a command; each imports what it needs only once it runs, so that
`--help` never waits for torch."""

import argparse
import os
import sys
from collections.abc import Sequence

import fillin
from fillin.cli import bench, complete, evaluate, export, fill, models, play, study, train
from fillin.errors import FillinError

_EXAMPLES = """\
examples:
  fillin fill river.csv              fill the blanks of a file, with error bars and a picture
  fillin complete photo.png --scale 4    what is missing of a picture, or a larger one
  fillin play                        a page in the browser to see it work
  fillin models                      what there is
  fillin models te-tnp               the options and sizes of one model
  fillin train te-tnp --time 5m      train by a recipe
  fillin evaluate runs/te-tnp        how good it is, beside how good one could be
  fillin study te-scores             a comparison of the papers, with a report
  fillin bench models cnp tnp-d      what they cost, in time and memory
  fillin export curve curve.onnx     a model as a file for other programs

fillin COMMAND --help says more.
"""
_COMMANDS = (fill, complete, play, models, train, evaluate, study, bench, export)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="fillin",
        description="Fill in what is missing, in curves, images, fields and tables, with honest uncertainty.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"fillin {fillin.__version__}")
    top.set_defaults(run=None, help=top.print_help)
    commands = top.add_subparsers(metavar="COMMAND", title="commands")
    for command in _COMMANDS:
        command.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 done, 2 a mistake in what was asked, 130 interrupted, 141 nobody listened."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        code = _run(argv)
        sys.stdout.flush()  # or a broken pipe would show only at exit, as a traceback
        return code
    except FillinError as error:
        print(f"fillin: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fillin: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader has left (`fillin models | head -1`); what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(argv: list[str]) -> int:
    try:
        top = parser()
        arguments, rest = top.parse_known_args(argv)
        if rest and not hasattr(arguments, "settings"):
            top.error(f"unrecognized arguments: {' '.join(rest)}")
    except SystemExit as stop:  # argparse has said what it had to say: help, the version, or what is wrong
        return stop.code if isinstance(stop.code, int) else 0
    arguments.settings = rest  # of a recipe: only a command that takes one gets here with any
    arguments.command_line = ["fillin", *argv]
    if arguments.run is None:  # a command with commands of its own, and none named
        arguments.help()
    else:
        arguments.run(arguments)
    return 0
