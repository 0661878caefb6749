"""`fillin models`: list models, their options and the pretrained weights."""

import argparse
import json
import sys
from typing import Any

from fillin.cli.options import console

EXAMPLES = """\
  fillin models                 all models: description, kind of prediction, translation equivariance
  fillin models te-tnp          options with defaults, and the number of parameters of each size
  fillin models te-tnp --json   the same as JSON
  fillin models --pretrained    pretrained weights: fillin.load("curve")
  fillin models --pretrained curve      model card: training data, training time, scores
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", metavar="NAME", help="show the options and sizes of this model")
    command.add_argument("--pretrained", action="store_true", help="list pretrained weights, or show the card of NAME")
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> None:
    if arguments.pretrained:
        _run_pretrained(arguments)
        return
    content = _list_models() if arguments.name is None else _describe_model(arguments.name)
    if arguments.json:
        sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")
    elif isinstance(content, list):
        _print_models(content)
    else:
        _print_model(content)


def _run_pretrained(arguments: argparse.Namespace) -> None:
    from fillin.errors import choose
    from fillin.pretrained import about, names

    if arguments.name is not None:
        choose("pretrained model", arguments.name, names())
    content = [about(name) for name in ([arguments.name] if arguments.name else names())]
    if arguments.json:
        sys.stdout.write(json.dumps(content if arguments.name is None else content[0], indent=2) + "\n")
    elif arguments.name is None:
        _print_pretrained(content)
    else:
        from rich.markdown import Markdown

        console().print(Markdown(content[0]["card"]))


def _print_pretrained(content: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(caption="fillin.load(NAME) loads one; fillin models --pretrained NAME shows its card.")
    for column in ("weights", "model", "columns of x", "learnt from"):
        table.add_column(column, no_wrap=column != "learnt from")
    table.add_column("MB", justify="right")
    for row in content:
        columns = "any" if row["dim_x"] is None else str(row["dim_x"])
        table.add_row(row["weights"], row["model"], columns, row["learnt_from"], f"{row['megabytes']:.1f}")
    console().print(table)


def _summary(name: str) -> dict[str, Any]:
    from fillin.models.registry import get_entry

    entry = get_entry(name)
    equivariant = bool(entry.options.get("equivariant", entry.build.equivariant))
    summary = {"model": name, "line": entry.line, "kind": entry.build.kind, "translation_equivariant": equivariant}
    return {**summary, "paper": entry.paper}


def _list_models() -> list[dict[str, Any]]:
    from fillin.models import CLASSIFIERS, names

    return [_summary(name) for name in (*names(), *CLASSIFIERS)]


def _describe_model(name: str) -> dict[str, Any]:
    from fillin.models import create, list_options
    from fillin.models.registry import get_entry

    options, sizes = list_options(name), get_entry(name).sizes  # first: raises an error for unknown names
    counts = {size: sum(p.numel() for p in create(name, size=size).parameters()) for size in sizes}
    rows = {
        size: {"parameters": counts[size], **{k: v for k, v in given.items() if k in options}}
        for size, given in sizes.items()
    }
    return {**_summary(name), "options": options, "sizes": rows}


def _print_models(content: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(caption="fillin models NAME shows the options of a model.")
    table.add_column("model", no_wrap=True)
    table.add_column("description")
    for column in ("kind", "equivariant", "paper"):
        table.add_column(column, no_wrap=True)
    for row in content:
        equivariant = "yes" if row["translation_equivariant"] else "no"
        table.add_row(row["model"], row["line"], row["kind"], equivariant, row["paper"])
    console().print(table)


def _print_model(content: dict[str, Any]) -> None:
    from rich.table import Table

    out = console()
    equivariance = "translation equivariant" if content["translation_equivariant"] else "not translation equivariant"
    out.print(f"[bold]{content['model']}[/]: {content['line']} ({content['paper']})", highlight=False)
    out.print(f"{content['kind']}, {equivariance}", highlight=False)
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
