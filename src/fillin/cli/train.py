"""`fillin train`: train a recipe, or resume a run."""

import argparse
import os
import sys
from contextlib import contextmanager
from functools import partial
from typing import Any

from fillin.cli.options import THREADS_HELP, check_settings, console, positive, print_table, separate_settings

EXAMPLES = """\
  fillin train                                     list the shipped recipes
  fillin train te-tnp --time 5m                    train for five minutes, in runs/te-tnp
  fillin train te-tnp --steps 20000 --out mine     train for 20,000 steps, in the folder mine
  fillin train te-tnp --model.score fourier --optimiser.rate 1e-3 --data.function "rbf | periodic"
  fillin train te-tnp --model.name cnp --print-config > cnp.yaml
  fillin train cnp.yaml --devices 2                two processes, gradients averaged (DDP)
  fillin train curve --start curve --time 2h       start from pretrained weights instead of random ones
  fillin train --resume runs/te-tnp                continue a run that was stopped or killed

Every setting of a recipe is an option; --print-config lists them. A run folder holds the recipe, log.csv (and
tensorboard/), the best and the last weights, and learning.png. Strategies are those of Lightning Fabric; DDP on CPUs
is tested; FSDP needs GPUs and is untested.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", nargs="?", metavar="RECIPE", help="the name of a recipe, or a YAML file")
    command.add_argument("--out", metavar="RUN", help="the run folder (default: runs/RECIPE)")
    command.add_argument("--resume", metavar="RUN", help="continue this run")
    command.add_argument("--time", metavar="T", help="training time: 90s, 20m, 1h30m")
    command.add_argument("--steps", metavar="N", help="number of training steps")
    command.add_argument("--threads", type=positive, metavar="N", help=THREADS_HELP)
    devices = lambda text: text if text == "auto" else positive(text)  # noqa: E731
    command.add_argument("--devices", type=devices, default=1, metavar="N", help="processes, or GPUs (default: 1)")
    command.add_argument("--nodes", type=positive, default=1, metavar="N", help="machines (default: 1)")
    command.add_argument(
        "--strategy", default="auto", metavar="S", help="strategy of Lightning Fabric: auto, ddp, fsdp, …"
    )
    command.add_argument("--compile", action="store_true", help="use torch.compile: slow to start, for long runs")
    command.add_argument("--print-config", action="store_true", help="print the complete recipe and exit")
    command.set_defaults(option_names=[*command._option_string_actions, "--seed", "--start"])
    separate_settings(command)


def run(arguments: argparse.Namespace) -> None:
    from fillin.errors import InputError

    check_settings(arguments.settings, "train", arguments.option_names)
    if arguments.recipe is None and arguments.resume is None:
        if arguments.settings or arguments.print_config:
            raise InputError("train: no recipe given; `fillin train` lists the shipped recipes")
        _list()
        return
    if arguments.recipe is not None and arguments.resume is not None:
        raise InputError("train: a resumed run already has a recipe; give either a recipe or --resume")
    if arguments.resume is not None and arguments.out is not None:
        raise InputError("train: a resumed run stays in its folder; drop --out")
    overrides = list(arguments.settings)
    # one kind of budget replaces the other
    for given, other in (("time", "steps"), ("steps", "time")):
        value = getattr(arguments, given)
        if value is not None:
            overrides = [*([] if getattr(arguments, other) else [f"--budget.{other}", "null"]), *overrides]
            overrides += [f"--budget.{given}", value]
    if arguments.print_config:
        from fillin.train import dump_recipe, open_run, read_recipe

        recipe: Any = arguments.recipe
        recipe = open_run(arguments.resume, overrides).recipe if arguments.resume else read_recipe(recipe, overrides)
        sys.stdout.write(dump_recipe(recipe))
    else:
        _train(arguments, overrides)


def _list() -> None:
    from fillin.train import names
    from fillin.train.recipe import find_recipe

    rows = []
    for name in names():
        lines = find_recipe(name).read_text(encoding="utf-8").splitlines()
        rows.append((name, " ".join(line[1:].strip() for line in lines if line.startswith("#"))))
    caption = "fillin train RECIPE --print-config shows all settings of a recipe."
    print_table(("recipe", "description"), rows, wrap=("description",), caption=caption)


def _train(arguments: argparse.Namespace, overrides: list[str]) -> None:
    from fillin.train import fit

    with _progress() as watch:
        run = fit(
            arguments.recipe,
            arguments.resume or arguments.out,
            overrides=overrides,
            resume=arguments.resume is not None,
            devices=arguments.devices,
            nodes=arguments.nodes,
            strategy=arguments.strategy,
            compiled=arguments.compile,
            threads=arguments.threads,
            watch=watch,
        )
    if os.environ.get("LOCAL_RANK", "0") == "0":  # only the first process prints
        _report(run)


def _report(run) -> None:
    from fillin.train.recipe import budget_fraction

    say = partial(print, file=sys.stderr)
    lines, more = run.lines, f"continue with: fillin train --resume {run.folder}"
    if not lines:
        say(f"stopped before the first line of the log; {more}")
        raise KeyboardInterrupt
    last = lines[-1]
    best = max((line.validation for line in lines if line.validation is not None), default=None)
    unit = {"classification": "image", "teacher-forcing": "token"}.get(run.recipe["objective"]["name"], "target")
    score = "" if best is None else f", best validation {best:.3f} nats per {unit}"
    say(f"{run.folder}: {last.step:,} steps in {last.seconds:.0f} s{score}")
    if budget_fraction(run.recipe, last.step, last.seconds) < 1:
        say(f"stopped before the end of the budget; {more}")
        raise KeyboardInterrupt  # for the exit code of an interrupted run
    say(f"weights: {run.folder}/best    learning curve: {run.folder}/learning.png")
    if run.recipe["data"]["name"] != "synthetic":  # tables have no closed-form limit to evaluate against
        say(f"evaluate it with: fillin evaluate {run.folder}")


@contextmanager
def _progress():
    """Yield a callback that shows loss, validation, speed and time left: a bar on a terminal, else printed lines."""
    out = console(stderr=True)
    if not out.is_terminal:

        def print_line(step: int, elapsed: float, share: float, loss: float, validation: float | None) -> None:
            if validation is not None:
                text = f"{share:4.0%}  step {step:,}  {elapsed:.0f} s  loss {loss:.3f}  validation {validation:.3f}"
                print(text, file=sys.stderr, flush=True)

        yield print_line
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%  step {task.fields[step]:,}  {task.fields[speed]}"),
        TextColumn("loss {task.fields[loss]}  validation {task.fields[validation]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, refresh_per_second=4) as bar:
        job = bar.add_task("", total=1.0, step=0, speed="", loss="–", validation="–")
        first: list[float] = []

        def watch(step: int, elapsed: float, share: float, loss: float, validation: float | None) -> None:
            if not first:
                first.extend((step, elapsed))
            speed = (step - first[0]) / (elapsed - first[1]) if elapsed > first[1] else 0.0
            fields: dict[str, Any] = {"step": step, "loss": f"{loss:.3f}", "speed": f"{speed:.1f}/s"}
            if validation is not None:
                fields["validation"] = f"{validation:.3f}"
            bar.update(job, completed=min(1, share), **fields)

        yield watch
