"""The command line, `fillin COMMAND`: one module per command, which imports torch only when it runs (fast --help)."""

import argparse
import os
import sys
from collections.abc import Sequence

import fillin
from fillin.cli import bench, complete, evaluate, export, fill, models, play, study, train
from fillin.errors import FillinError

_EXAMPLES = """\
examples:
  fillin fill river.csv                  fill missing values, with prediction intervals and a figure
  fillin complete photo.png --scale 4    complete an image, or raise its resolution
  fillin play                            interactive demonstration in the browser
  fillin models                          list the models
  fillin models te-tnp                   options and sizes of a model
  fillin train te-tnp --time 5m          train a recipe
  fillin evaluate runs/te-tnp            score a trained model against the best that is possible
  fillin study te-scores                 reproduce a comparison of the papers, with a report
  fillin bench models cnp tnp-d          time and memory of models
  fillin export curve curve.onnx         export a model to ONNX

fillin COMMAND --help shows the options of a command.
"""
_COMMANDS = (fill, complete, play, models, train, evaluate, study, bench, export)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="fillin",
        description="Predict missing values in series, images, fields and tables, with calibrated uncertainty.",
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
    """Run one command and return its exit code: 0 success, 2 invalid input, 130 interrupted, 141 broken pipe."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        code = _run(argv)
        sys.stdout.flush()  # otherwise a broken pipe shows at exit, as a traceback
        return code
    except FillinError as error:
        print(f"fillin: {error.shell}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fillin: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader is gone (`fillin models | head -1`): discard what is still buffered
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(argv: list[str]) -> int:
    try:
        top = parser()
        arguments, rest = top.parse_known_args(argv)
        if rest and not hasattr(arguments, "settings"):
            top.error(f"unrecognized arguments: {' '.join(rest)}")
    except SystemExit as stop:  # argparse has printed help, the version or an error
        return stop.code if isinstance(stop.code, int) else 0
    arguments.settings = rest  # settings of a recipe: other commands have stopped above if there are any
    arguments.command_line = ["fillin", *argv]
    if arguments.run is None:  # a command with subcommands, and none given
        arguments.help()
    else:
        arguments.run(arguments)
    return 0
