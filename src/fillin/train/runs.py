"""Runs: a folder that says all about itself.

recipe.yaml    every setting
log.csv        loss, gradient, rate, validation      (and tensorboard/, where that is installed)
best/          the model of the best validation: `fillin.load("RUN/best")`
last/          the checkpoint to resume from
learning.png   the learning curve
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fillin.errors import InputError
from fillin.io import write_text
from fillin.models import load
from fillin.train import checkpoint
from fillin.train.lock import lock_folder
from fillin.train.log import LogLine, read_log
from fillin.train.recipe import Recipe, build_model, dump_recipe, find_recipe, make_stream, read_recipe, start_from

# what launchers tell a process of its place among others: Fabric and torchrun, Lightning on several machines, SLURM
_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
_FIXED = ("data", "model", "objective", "seed")  # what a resumed run cannot change


@dataclass(frozen=True)
class Run:
    """A run folder, finished or not."""

    folder: Path
    recipe: Recipe

    @property
    def lines(self) -> list[LogLine]:
        return read_log(self.folder)

    @property
    def state(self) -> checkpoint.State:
        """Where it is: steps, seconds, the best validation."""
        return checkpoint.peek(self.folder / "last")

    def model(self, which: str = "best") -> Any:
        """A process or a classifier with its weights: "best" by validation, or "last"."""
        return load(self.folder / which)


def open_run(folder: str | os.PathLike, overrides: Sequence[str] = ()) -> Run:
    """The run in a folder."""
    folder = Path(folder)
    if not (folder / "recipe.yaml").exists():
        raise InputError(f"{folder} is not a run: it has no recipe.yaml")
    recipe = read_recipe(folder / "recipe.yaml")
    changed = read_recipe(recipe, overrides) if overrides else recipe
    for section in _FIXED:
        if changed[section] != recipe[section]:
            raise InputError(f"{folder}: `{section}` cannot change on the way; start a new run instead")
    if changed["optimiser"]["name"] != recipe["optimiser"]["name"]:
        raise InputError(
            f"{folder}: `optimiser.name` cannot change on the way, only its numbers; start a new run instead"
        )
    return Run(folder, changed)


def fit(
    recipe: str | os.PathLike | Recipe | None = None,
    folder: str | os.PathLike | None = None,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    devices: int | str = 1,
    nodes: int = 1,
    strategy: str = "auto",
    compiled: bool = False,
    threads: int | None = None,
    watch: Callable | None = None,
) -> Run:
    """Train a recipe in a run folder, or go on with the run that is there.

    run = fit("te-tnp", "runs/mine", overrides=["--budget.time", "5m"])
    run = fit(folder="runs/mine", resume=True)
    run.model()
    """
    first = not any(int(os.environ.get(name) or 0) for name in _RANKS)
    if resume:
        if folder is None:
            raise InputError("resume: which run? Pass its folder")
        run = open_run(folder, overrides)
    else:
        run = _new(recipe, folder, overrides)
    model = build_model(run.recipe, make_stream(run.recipe))  # what cannot be made is said before anything is written
    if not resume:
        start_from(run.recipe, model)
    if strategy == "auto" and (nodes > 1 or devices not in (1, "1")):
        strategy = "ddp_find_unused_parameters_true"  # an empty context leaves some weights without a gradient
    from lightning_fabric import Fabric  # seconds to import: after what can be wrong has been said

    try:
        fabric = Fabric(accelerator="auto", devices=devices, num_nodes=nodes, strategy=strategy)
    except (ValueError, RuntimeError, TypeError) as error:
        raise InputError(f"devices={devices}, nodes={nodes}, strategy={strategy!r}: {error}") from error
    with lock_folder(run.folder) if first else nullcontext():
        if first:
            _begin(run, resume)
        _train(fabric, run, compiled, threads, watch)
    return run


def _new(recipe, folder, overrides: Sequence[str]) -> Run:
    if recipe is None:
        raise InputError("fit: pass a recipe: a name, a file or a dict")
    name = "run" if isinstance(recipe, dict) else find_recipe(recipe).stem
    whole = read_recipe(recipe, overrides)
    return Run(Path(folder) if folder else _free(Path("runs") / name), whole)


def _begin(run: Run, resume: bool) -> None:
    """Leave the recipe in the folder, which is ours by now."""
    if resume:
        checkpoint.recover(run.folder / "last")
        if not (run.folder / "last").exists() and (run.folder / "log.csv").exists() and run.lines:
            raise InputError(
                f"{run.folder}: its checkpoint, the folder `last`, is gone, and the run would begin anew over what is "
                "there; put it back, or start another run (the folder `best`, where it is there, is still a model)"
            )
    elif (run.folder / "recipe.yaml").exists():
        raise InputError(f"{run.folder} holds a run already; go on with --resume {run.folder}, or choose another")
    try:
        write_text(run.folder / "recipe.yaml", dump_recipe(run.recipe))
    except OSError as error:
        raise InputError(f"cannot write to {run.folder}: {error}; choose another folder, or make room") from error


def _train(fabric, run: Run, compiled: bool, threads: int | None, watch: Callable | None) -> None:
    from fillin.train.loop import Loop

    before = torch.get_num_threads()
    fabric.launch()
    torch.set_num_threads(threads or before)
    folder = Path(fabric.broadcast(str(run.folder)))  # the first process has chosen it
    try:
        Loop(fabric, run.recipe, folder, _digest(run.recipe), compiled, watch)()
        if fabric.is_global_zero:
            _draw(run)
    finally:
        torch.set_num_threads(before)


def _free(folder: Path) -> Path:
    """`folder`, or with the first number behind it that is not taken."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def _digest(recipe: Recipe) -> str:
    """Digest of the settings that a checkpoint must agree with."""
    fixed = dump_recipe({**read_recipe(recipe), "optimiser": {}, "schedule": {}, "budget": {}, "keep": {}})
    return hashlib.sha256(fixed.encode()).hexdigest()[:16]


def _draw(run: Run) -> None:
    from fillin.train.figure import learning

    learning(run.lines, run.folder / "learning.png", title=run.recipe["model"]["name"])
