"""`fillin study`: the comparisons of the papers, each a command."""

import argparse
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from fillin.cli.options import console, describe, positive

_EXAMPLES = """\
  fillin study                                what there is
  fillin study te-scores                      a quarter of an hour on two cores; then out/te-scores/report.md
  fillin study te-scores --budget full        the paper's scale: days
  fillin study sizes --out /shared/sizes      start it on several machines: they share the work
  fillin study sizes --storage sqlite:///trials.db --workers 1
  fillin study fill --data DIR --masks 3      pretrained weights against what is fitted, on curves and fields in DIR
  fillin study tables --data DIR              columns of tables, against boosting and others at their defaults
  fillin study uses-rows --data DIR           whether these are told from other rows: lookup, corruption, deletion
  fillin study images                         images completed by NP, ANP, ConvCNP and TE-TNP; --data DIR as below
  fillin study positions-and-span             learned positions and windows on pixels; --budget full --data DIR: larger

A study is a folder of runs. Stop it at any time, and call it again to go on.
"""


def add(commands) -> None:
    command = describe(commands, "study", "compare models as the papers do", _EXAMPLES)
    command.add_argument("name", nargs="?", metavar="NAME", help="a study; without one, all are listed")
    command.add_argument("--budget", default="quick", choices=("quick", "full"), help="default: quick")
    command.add_argument("--out", metavar="DIR", help="where runs, figures and report go (default: out/NAME)")
    command.add_argument("--workers", type=positive, metavar="N", help="processes of one thread (default: the cores)")
    command.add_argument("--storage", metavar="URL", help="of Optuna, for studies that search (default: in DIR)")
    command.add_argument(
        "--data",
        metavar="DIR",
        help="curves/*.csv, fields/*.nc of `fill`; NAME/data.csv.gz of `tables`, `uses-rows`; "
        "mnist, fashion_mnist and cifar10 of `images` and `positions-and-span`",
    )
    command.add_argument(
        "--masks", type=positive, metavar="N",
        help="`fill`: of each kind (3, full: 20); splits of `tables` (2, full: 10) and `uses-rows` (1, full: 3); "
        "seeds of `images` (2) and `positions-and-span` (3, full: 5)",
    )  # fmt: skip
    command.add_argument(
        "--only", action="append", metavar="VARIANT", help="of its variants those whose name ends so; may be repeated"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    if arguments.name is None:
        _list()
        return
    from fillin_studies import get, only, open_work, work_on
    from fillin_studies.report_files import write

    data = None if arguments.data is None else Path(arguments.data)
    study = get(arguments.name, data, arguments.masks)
    study = only(study, arguments.only) if arguments.only else study
    folder = Path(arguments.out or Path("out") / study.name)
    work = open_work(study, folder, arguments.budget == "quick", arguments.storage)
    with _helpers(arguments, folder), _progress(work) as watch:
        work_on(work, watch)
    report = write(work, _told(arguments))
    console().print(f"{report} and figures beside it", highlight=False)


def _told(arguments: argparse.Namespace) -> list[str]:
    """The command as it goes into a report: where things were on this machine is nobody's business."""
    words = list(arguments.command_line)
    for place, name in ((arguments.data, "DIR"), (arguments.out, "OUT")):
        words = [word.replace(place, name) for word in words] if place else words
    return words


def _list() -> None:
    from rich.table import Table

    from fillin_studies import STUDIES, get

    table = Table(caption="fillin study NAME runs one; --budget full for the paper's scale.")
    for column in ("study", "question", "runs, quick", "runs, full"):
        table.add_column(column, no_wrap=column == "study")
    for name in STUDIES:
        study = get(name)
        counts = (str(len(study.variants(quick)) * study.scale(quick).seeds) for quick in (True, False))
        table.add_row(name, study.line, *counts)
    console().print(table)


@contextmanager
def _helpers(arguments: argparse.Namespace, folder: Path):
    """The other worker processes: the same command with one worker each; they end when no cell is left. What they say
    is in worker-N.log."""
    import torch

    workers = arguments.workers or torch.get_num_threads()
    command = [sys.executable, "-m", "fillin", "study", arguments.name, "--budget", arguments.budget]
    command += ["--out", str(folder), "--workers", "1"]
    for option in ("storage", "data", "masks"):
        value = getattr(arguments, option)
        command += [] if value is None else [f"--{option}", str(value)]
    command += [word for one in arguments.only or () for word in ("--only", one)]
    torch.set_num_threads(1)
    logs = [(folder / f"worker-{number}.log").open("w") for number in range(2, workers + 1)]
    others = [subprocess.Popen(command, stdout=log, stderr=log) for log in logs]
    try:
        yield
        for other in others:
            other.wait()
    finally:
        for other, log in zip(others, logs, strict=True):
            other.terminate()
            log.close()


@contextmanager
def _progress(work):
    """How many cells are done, by whomever, and how the one in hand is doing."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[now]}"))
    cells = work.cells()
    with Progress(*columns, TimeElapsedColumn(), console=console(stderr=True), refresh_per_second=2) as bar:
        job = bar.add_task(f"{work.study.name}", total=len(cells), now="")

        def watch(cell, share: float, loss: float, validation: float | None) -> None:
            if validation is None and not work.study.direct:
                return
            done = sum(other.done for other in cells)
            score = "" if validation is None else f", validation {validation:.3f}"
            now = f"{done}/{len(cells)} runs   {cell.variant}: {share:.0%}{score}"
            bar.update(job, completed=done, now=now)

        yield watch
