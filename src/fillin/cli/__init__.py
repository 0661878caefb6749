"""The command line, `fillin COMMAND`: one module per command, imported when it is chosen; torch when it runs."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import fillin
from fillin.errors import FillinError

_EXAMPLES = """\
examples:
  fillin fill river.csv                  fill missing values, with prediction intervals and a figure
  fillin complete photo.png --scale 4    complete an image, or raise its resolution
  fillin play                            interactive demonstration in the browser
  fillin models                          list the models
  fillin models te-tnp                   options and sizes of a model
  fillin train te-tnp --time 5m          train a recipe
  fillin evaluate runs/te-tnp            score a trained model against exact inference
  fillin study te-scores                 reproduce a comparison of the papers, with a report
  fillin bench models cnp tnp-d          time and memory of models
  fillin export curve curve.onnx         export a model to ONNX

fillin COMMAND --help shows the options of a command.
"""
_COMMANDS = {
    "fill": "fill the missing values of a file, with prediction intervals",
    "complete": "complete an image from part of its pixels, at any resolution",
    "play": "open an interactive web page",
    "models": "list the models, or the options of one",
    "train": "train a model by a recipe, or resume a run",
    "evaluate": "score a run or a saved model against exact inference (the Bayes limit)",
    "study": "compare models as the papers do",
    "bench": "measure time and memory on this machine",
    "export": "write a model as an ONNX file",
}


def make_parser(chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser with every command, and the arguments of the chosen one."""
    parser = argparse.ArgumentParser(
        prog="fillin",
        description="Predict missing values in series, images, fields and tables, with calibrated uncertainty.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fillin {fillin.__version__}")
    parser.set_defaults(run=None, help=parser.print_help)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, line in _COMMANDS.items():
        command = add_command(commands, name, line)
        if name == chosen:
            module = import_module(f"fillin.cli.{name}")
            command.epilog = "examples:\n" + module.EXAMPLES
            command.set_defaults(run=getattr(module, "run", None))
            module.add_arguments(command)
    return parser


def add_command(commands, name: str, line: str, examples: str = "") -> argparse.ArgumentParser:
    """Add a command with a one-line description, and examples below its options."""
    command = commands.add_parser(
        name,
        help=line,
        description=line[0].upper() + line[1:] + ".",
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(help=command.print_help)
    return command


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
        parser = make_parser(next((word for word in argv if not word.startswith("-")), None))
        arguments, rest = parser.parse_known_args(argv)
        if rest and not hasattr(arguments, "settings"):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
    except SystemExit as stop:  # argparse has printed help, the version or an error
        return stop.code if isinstance(stop.code, int) else 0
    arguments.settings = rest  # settings of a recipe: other commands have stopped above if there are any
    arguments.command_line = ["fillin", *argv]
    if arguments.run is None:  # a command with subcommands, and none given
        arguments.help()
    else:
        arguments.run(arguments)
    return 0
