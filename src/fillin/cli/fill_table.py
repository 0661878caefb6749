"""`fillin fill` of a table without an order."""

import argparse
from collections.abc import Callable

from fillin.cli.fill import bounds_of, illustrate

SERIES = ("x", "by", "at", "every", "until", "y_err", "period", "model")


def run_table(arguments: argparse.Namespace, path, table, say: Callable[[str], object]) -> None:
    from fillin.filling.table.api import refuse_series
    from fillin.filling.table.plan import plan_table
    from fillin.filling.write import Outputs

    refuse_series(table.table.name, {name: getattr(arguments, name) for name in SERIES})
    plan = plan_table(
        table.table, y=arguments.y, target=arguments.target, kind=arguments.kind, classes=arguments.classes,
        numbers=arguments.numbers, bounds=bounds_of(arguments), level=arguments.level, seed=arguments.seed,
    )  # fmt: skip
    say(plan.summary)
    for note in [*table.notes, *(note.shell for note in plan.notes)]:
        say(f"note: {note}")
    if not plan.n_to_fill:
        say(f"{'nothing can be filled' if plan.n_missing else 'nothing is missing'}: nothing was done")
        return
    outputs = Outputs.of(path, arguments.out, arguments.picture, arguments.report, arguments.force)
    _fill(arguments, table, plan, outputs)
    say("wrote " + " ".join(str(path) for path in outputs.paths))


def _fill(arguments: argparse.Namespace, table, plan, outputs) -> None:
    """The slow work, then the files."""
    import torch

    from fillin.filling.table.holdout import judge
    from fillin.filling.table.impute import fill_table
    from fillin.filling.table.write import write_table
    from fillin.runtime import threads

    with threads(arguments.threads or torch.get_num_threads()):
        found = fill_table(plan)
        verdicts = judge(plan) if outputs.report else []
    write_table(outputs.table, table.source, plan, found, outputs.force)

    def picture():
        from fillin.filling.table.figure import draw_table

        return draw_table(plan, found)

    def text(figure) -> str:
        from fillin.filling.table.report import page_of

        return page_of(plan, figure, verdicts, arguments.command_line)

    illustrate(outputs, picture, text)
