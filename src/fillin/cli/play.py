"""`fillin play`: a page in the browser on which it can be seen at work."""

import argparse

from fillin.cli.options import describe, positive

_EXAMPLES = """\
  fillin play                        on a free port; opens the browser
  fillin play --port 8000 --no-browser

The page: curves that follow the points you drag, pictures, tables, and what a window saves. It is served to this
machine alone, and asks nothing of any other. /openapi.json describes the JSON API behind it: docs/play.md.
"""


def add(commands) -> None:
    command = describe(commands, "play", "open a page on which to see it work", _EXAMPLES)
    command.add_argument("--port", type=positive, metavar="N", help="on this port (default: a free one)")
    command.add_argument(
        "--no-browser", dest="browser", action="store_false", help="only print the address, do not open it"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from fillin.play import serve

    serve(arguments.port, arguments.browser, lambda line: print(line, flush=True))
