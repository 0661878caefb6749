"""`fillin models`: what there is, and what can be set."""

import argparse
import json
import sys
from typing import Any

from fillin.cli.options import console

EXAMPLES = """\
  fillin models                 every model: what it is, what comes out, whether it is translation equivariant
  fillin models te-tnp          its options with their defaults, and how many parameters each size has
  fillin models te-tnp --json   the same, to be read by a program
  fillin models --pretrained    the weights that ship: fillin.load("curve")
  fillin models --pretrained curve      its card: what it learnt from, how long, how good it is
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", metavar="NAME", help="a model, to see its options and sizes")
    command.add_argument("--pretrained", action="store_true", help="list weights that ship, or show the card of NAME")
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> None:
    if arguments.pretrained:
        _run_pretrained(arguments)
        return
    content = _all() if arguments.name is None else _one(arguments.name)
    if arguments.json:
        sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")
    elif isinstance(content, list):
        _show_all(content)
    else:
        _show_one(content)


def _run_pretrained(arguments: argparse.Namespace) -> None:
    from fillin.errors import choose
    from fillin.pretrained import about, names

    if arguments.name is not None:
        choose("pretrained model", arguments.name, names())
    content = [about(name) for name in ([arguments.name] if arguments.name else names())]
    if arguments.json:
        sys.stdout.write(json.dumps(content if arguments.name is None else content[0], indent=2) + "\n")
    elif arguments.name is None:
        _show_pretrained(content)
    else:
        from rich.markdown import Markdown

        console().print(Markdown(content[0]["card"]))


def _show_pretrained(content: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(caption="fillin.load(NAME) loads one; fillin models --pretrained NAME shows its card.")
    for column in ("weights", "model", "columns of x", "learnt from"):
        table.add_column(column, no_wrap=column != "learnt from")
    table.add_column("MB", justify="right")
    for row in content:
        columns = "any" if row["dim_x"] is None else str(row["dim_x"])
        table.add_row(row["weights"], row["model"], columns, row["learnt_from"], f"{row['megabytes']:.1f}")
    console().print(table)


def _about(name: str) -> dict[str, Any]:
    from fillin.models.registry import get_entry

    entry = get_entry(name)
    equivariant = bool(entry.options.get("equivariant", entry.build.equivariant))
    about = {"model": name, "line": entry.line, "kind": entry.build.kind, "translation_equivariant": equivariant}
    return {**about, "paper": entry.paper}


def _all() -> list[dict[str, Any]]:
    from fillin.models import CLASSIFIERS, names

    return [_about(name) for name in (*names(), *CLASSIFIERS)]


def _one(name: str) -> dict[str, Any]:
    from fillin.models import create, list_options
    from fillin.models.registry import get_entry

    options, sizes = list_options(name), get_entry(name).sizes  # first: an unknown name ends here
    counts = {size: sum(p.numel() for p in create(name, size=size).parameters()) for size in sizes}
    rows = {
        size: {"parameters": counts[size], **{k: v for k, v in given.items() if k in options}}
        for size, given in sizes.items()
    }
    return {**_about(name), "options": options, "sizes": rows}


def _show_all(content: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(caption="fillin models NAME shows the options of one.")
    table.add_column("model", no_wrap=True)
    table.add_column("what it is")
    for column in ("kind", "equivariant", "paper"):
        table.add_column(column, no_wrap=True)
    for row in content:
        equivariant = "yes" if row["translation_equivariant"] else "no"
        table.add_row(row["model"], row["line"], row["kind"], equivariant, row["paper"])
    console().print(table)


def _show_one(content: dict[str, Any]) -> None:
    from rich.table import Table

    out = console()
    moves = "translation equivariant" if content["translation_equivariant"] else "not translation equivariant"
    out.print(f"[bold]{content['model']}[/]: {content['line']} ({content['paper']})", highlight=False)
    out.print(f"{content['kind']}, {moves}", highlight=False)
    out.print("\noptions of create() and their defaults (size=base):", highlight=False)
    options = Table()
    options.add_column("option", no_wrap=True)
    options.add_column("default")
    for option, default in content["options"].items():
        options.add_row(option, str(default))
    out.print(options)
    out.print("\nsizes (parameters at dim_x=1 and dim_y=1):", highlight=False)
    sizes = Table()
    sizes.add_column("size")
    columns = list(next(iter(content["sizes"].values())))
    for column in columns:
        sizes.add_column(column, justify="right")
    for size, row in content["sizes"].items():
        sizes.add_row(size, *(f"{row[column]:,}" for column in columns))
    out.print(sizes)
