"""`fillin study`: the comparisons of the literature, each a command."""

import argparse
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from fillin.cli.options import check_settings, console, positive, separate_settings
from fillin.errors import InputError

EXAMPLES = """\
  fillin study                                list the studies
  fillin study te-scores                      a quarter of an hour on two cores; then out/te-scores/report.md
  fillin study te-scores --budget full        the paper's scale: days
  fillin study sizes --out /shared/sizes      start it on several machines: they share the work
  fillin study sizes --storage sqlite:///trials.db --workers 1
  fillin study fill --data DIR --masks 3      pretrained weights against fitted methods, on curves and fields in DIR
  fillin study sheets --data DIR              several series over common steps, jointly and one by one
  fillin study unseen-sheets                  the same on files of Python packages, which played no part in development
  fillin study wide-gaps                      coverage in wide gaps, and likelihood with more observations
  fillin study tables --data DIR              columns of tables, against boosting and others at their defaults
  fillin study imputes --data DIR             missing cells of tables, against the imputers of scikit-learn
  fillin study uses-rows --data DIR           use of other rows: lookup, corruption, deletion
  fillin study images                         images completed by NP, ANP, ConvCNP and TE-TNP; --data DIR as below
  fillin study recent-models                  buffers of targets, causal contexts, pooling by attention: what they gain
  fillin study positions-and-span             learned positions and windows on pixels, as Alfons 2022 compares them
  fillin study positions-and-span --budget full --data DIR --only "cifar10, 2-D, alfons siren" --cells 1
                                              the next run of one variant, a quarter of an hour on one core
  fillin study positions-and-span --budget full --data DIR --data.size 32 --budget.steps 50000
                                              other settings of every recipe: CIFAR-10 at its own resolution

A study is a folder of runs. Interrupt it at any time, and start it again with the same options to continue: what is
done stays, and a run continues from its last checkpoint. The report is written from the runs that are done. Settings of
recipes (--section.key value, as of fillin train) replace those of studies that train models, in every run; give them
again to continue, or choose another --out.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", metavar="NAME", help="a study (default: list all)")
    command.add_argument("--budget", default="quick", choices=("quick", "full"), help="default: quick")
    command.add_argument("--out", metavar="DIR", help="folder of runs, figures and report (default: out/NAME)")
    command.add_argument("--workers", type=positive, metavar="N", help="processes of one thread (default: the cores)")
    command.add_argument("--storage", metavar="URL", help="storage of Optuna, for studies that search (default: DIR)")
    command.add_argument(
        "--data",
        metavar="DIR",
        help="folder with curves/*.csv, fields/*.nc for `fill` and `slices`; sheets/*.csv.gz for `sheets` and `fill`; "
        "NAME/data.csv.gz for `tables`, `imputes`, `uses-rows`, and NAME/test_mask.csv.gz, the splits of `tables` and "
        "`uses-rows`; mnist, fashion_mnist and cifar10 for `images` and `positions-and-span`",
    )
    command.add_argument(
        "--masks", type=positive, metavar="N",
        help="masks of each kind of gap in `fill` (3, full: 20) and of `imputes` (1, full: 3); functions of each kind "
        "of gap in `wide-gaps` (20, full: 200); splits of `tables` (2, full: 10) and `uses-rows` (1, full: 3); seeds "
        "of `slices` (1, full: 3), `sheets` and `unseen-sheets` (1, full: 5), `images` (2) and `positions-and-span` "
        "(3, full: 5)",
    )  # fmt: skip
    command.add_argument(
        "--model",
        metavar="MODEL",
        help="weights or run folder that `sheets` and `unseen-sheets` measure (default: the weights that ship)",
    )
    command.add_argument(
        "--only", action="append", metavar="VARIANT", help="only variants whose name ends with VARIANT (repeatable)"
    )
    command.add_argument(
        "--cells", type=positive, metavar="N", help="stop after N runs of each process, and write the report"
    )
    command.set_defaults(option_names=list(command._option_string_actions))
    separate_settings(command)


def run(arguments: argparse.Namespace) -> None:
    check_settings(arguments.settings, "study", arguments.option_names)
    if arguments.name is None:
        if arguments.settings:
            raise InputError("study: settings of recipes belong to a study; name one, as `fillin study` lists them")
        _list()
        return
    from fillin.train.settings import pairs
    from fillin_studies import get, open_study, run_study, select_variants
    from fillin_studies.report import write_report

    data = None if arguments.data is None else Path(arguments.data)
    study = get(arguments.name, data, arguments.masks, arguments.model)
    settings = dict(pairs(arguments.settings))
    study = study.with_settings(settings) if settings else study
    study = select_variants(study, arguments.only) if arguments.only else study
    folder = Path(arguments.out or Path("out") / study.name)
    study_run = open_study(study, folder, arguments.budget == "quick", arguments.storage)
    with _workers(arguments, folder), _progress(study_run) as watch:
        run_study(study_run, watch, max_cells=arguments.cells)
    report = write_report(study_run, _anonymous_command(arguments))
    console().print(f"{report} and figures beside it", highlight=False)


def _anonymous_command(arguments: argparse.Namespace) -> list[str]:
    """Return the command for the report, without the folders of this machine."""
    words = list(arguments.command_line)
    for folder, name in ((arguments.data, "DIR"), (arguments.out, "OUT")):
        words = [word.replace(folder, name) for word in words] if folder else words
    if arguments.model and Path(arguments.model).is_dir():
        words = [re.sub(f"(^|=){re.escape(arguments.model)}$", r"\1MODEL", word) for word in words]
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
        table.add_row(name, study.title, *counts)
    console().print(table)


@contextmanager
def _workers(arguments: argparse.Namespace, folder: Path):
    """Start the other worker processes: the same command with one worker each. Their output goes to worker-N.log."""
    import torch

    workers = arguments.workers or torch.get_num_threads()
    command = [sys.executable, "-m", "fillin", "study", arguments.name, "--budget", arguments.budget]
    command += ["--out", str(folder), "--workers", "1"]
    for option in ("storage", "data", "masks", "model", "cells"):
        value = getattr(arguments, option)
        command += [] if value is None else [f"--{option}", str(value)]
    command += [word for variant in arguments.only or () for word in ("--only", variant)]
    command += arguments.settings
    torch.set_num_threads(1)
    logs = [(folder / f"worker-{number}.log").open("w") for number in range(2, workers + 1)]
    processes = [subprocess.Popen(command, stdout=log, stderr=log) for log in logs]
    try:
        yield
        for process in processes:
            process.wait()
    finally:
        for process, log in zip(processes, logs, strict=True):
            process.terminate()
            log.close()


@contextmanager
def _progress(study_run):
    """Show how many cells are done, by any process, and the state of the current one."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[now]}"))
    cells = study_run.cells()
    with Progress(*columns, TimeElapsedColumn(), console=console(stderr=True), refresh_per_second=2) as bar:
        task = bar.add_task(study_run.study.name, total=len(cells), now="")

        def watch(cell, share: float, loss: float, validation: float | None) -> None:
            if validation is None and loss == loss:  # a training step without validation
                return
            done = sum(other.done for other in cells)
            score = "" if validation is None else f", validation {validation:.3f}"
            now = f"{done}/{len(cells)} runs   {cell.variant}: {share:.0%}{score}"
            bar.update(task, completed=done, now=now)

        yield watch
