"""`fillin play`: serve the interactive web page."""

import argparse

from fillin.cli.options import positive

EXAMPLES = """\
  fillin play                        on a free port; opens the browser
  fillin play --port 8000 --no-browser

The page: curves that follow the points you drag, image completion, table filling, and the cost of attention spans. It
is served to this machine only and contacts no other. /openapi.json describes its JSON API: docs/play.md.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--port", type=positive, metavar="N", help="port (default: a free one)")
    command.add_argument(
        "--no-browser", dest="browser", action="store_false", help="print the address, but do not open it"
    )


def run(arguments: argparse.Namespace) -> None:
    from fillin.play import serve

    serve(arguments.port, arguments.browser, lambda line: print(line, flush=True))
