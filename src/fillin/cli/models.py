"""`fillin models`: list models, their options and the pretrained weights."""

import argparse
import json
from functools import partial
from typing import Any

from fillin.cli.options import console, print_table

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
        from fillin.errors import choose
        from fillin.pretrained import about, names

        name, show = arguments.name, _show_pretrained
        content = list(map(about, names())) if name is None else about(choose("pretrained model", name, names()))
    else:
        content, show = _list_models() if arguments.name is None else _describe_model(arguments.name), _show_models
    if arguments.json:
        print(json.dumps(content, indent=2, ensure_ascii=arguments.pretrained, default=str))
    else:
        show(content)


def _show_pretrained(content: Any) -> None:
    if not isinstance(content, list):
        from rich.markdown import Markdown

        console().print(Markdown(content["card"]))
        return
    rows = [
        (row["weights"], row["model"], str(row["dim_x"] or "any"), row["trained_on"], f"{row['megabytes']:.1f}")
        for row in content
    ]
    caption = "fillin.load(NAME) loads one; fillin models --pretrained NAME shows its card."
    columns = ("weights", "model", "columns of x", "trained on", "MB")
    print_table(columns, rows, wrap=("trained on", "MB"), right=("MB",), caption=caption)


def _list_models() -> list[dict[str, Any]]:
    from fillin.models import CLASSIFIERS, SEQUENCE_MODELS, names
    from fillin.models.registry import get_entry

    rows = []
    for name in (*names(), *CLASSIFIERS, *SEQUENCE_MODELS):
        entry = get_entry(name)
        equivariant = bool(entry.options.get("equivariant", entry.model_class.equivariant))
        about = {"model": name, "line": entry.description, "kind": entry.model_class.kind}
        rows.append({**about, "translation_equivariant": equivariant, "paper": entry.paper})
    return rows


def _describe_model(name: str) -> dict[str, Any]:
    from fillin.models import create, list_options
    from fillin.models.registry import get_entry

    options, sizes = list_options(name), get_entry(name).sizes  # first: raises an error for unknown names
    (about,) = (row for row in _list_models() if row["model"] == name)
    rows = {}
    for size, given in sizes.items():
        n_parameters = sum(p.numel() for p in create(name, size=size).parameters())
        rows[size] = {"parameters": n_parameters, **{k: v for k, v in given.items() if k in options}}
    return {**about, "options": options, "sizes": rows}


def _show_models(content: Any) -> None:
    if isinstance(content, list):
        columns = ("model", "description", "kind", "equivariant", "paper")
        rows = [
            (row["model"], row["line"], row["kind"], "yes" if row["translation_equivariant"] else "no", row["paper"])
            for row in content
        ]
        print_table(columns, rows, wrap=("description",), caption="fillin models NAME shows the options of a model.")
        return
    show = partial(console().print, highlight=False)
    show(f"[bold]{content['model']}[/]: {content['line']} ({content['paper']})")
    show(f"{content['kind']}, {'' if content['translation_equivariant'] else 'not '}translation equivariant")
    show("\noptions of create() and their defaults (size=base):")
    options = [(option, str(default)) for option, default in content["options"].items()]
    print_table(("option", "default"), options, wrap=("default",))
    show("\nsizes (parameters at dim_x=1 and dim_y=1):")
    columns = list(next(iter(content["sizes"].values())))
    rows = [(size, *(f"{row[column]:,}" for column in columns)) for size, row in content["sizes"].items()]
    print_table(("size", *columns), rows, wrap=("size", *columns), right=columns)
