"""Run folders.

recipe.yaml    every setting
log.csv        loss, gradient, rate, validation      (and tensorboard/, where that is installed)
best/          the model of the best validation: `fillin.load("RUN/best")`
last/          the checkpoint to resume from
learning.png   the learning curve
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any

import torch

from fillin.errors import InputError
from fillin.io import write_text
from fillin.models import load
from fillin.runtime import threads as use_threads
from fillin.train import checkpoint
from fillin.train.log import LogLine, read_log
from fillin.train.recipe import Recipe, build_model, dump_recipe, find_recipe, make_stream, read_recipe, start_from

# environment variables with the rank of a process: Fabric and torchrun, Lightning on several machines, SLURM
_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
_FIXED = ("data", "model", "objective", "seed")  # sections that a resumed run cannot change


class FolderLocked(InputError):
    """Another process trains in the folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder within the block. The lock ends with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error}; choose another folder") from error
    with lock as file:
        try:
            _lock(file)
        except (BlockingIOError, PermissionError) as error:  # PermissionError: Windows and its network shares
            raise FolderLocked(f"{folder} is being trained by another process; wait for it, or stop it") from error
        except OSError as error:
            raise InputError(f"{folder} cannot be locked ({error.strerror}); choose one on another disk") from error
        yield


def _lock(file: IO) -> None:
    """Lock the file until it is closed, or raise an error at once."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # its first byte, which need not exist
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(frozen=True)
class Run:
    """Run folder, finished or not, and its recipe."""

    folder: Path
    recipe: Recipe

    @property
    def lines(self) -> list[LogLine]:
        return read_log(self.folder)

    @property
    def state(self) -> checkpoint.TrainingState:
        """Progress of the run: steps, seconds, the best validation score."""
        return checkpoint.read_header(self.folder / "last")[0]

    def model(self, which: str = "best") -> Any:
        """Load the weights that are "best" by validation, or "last"."""
        return load(self.folder / which)


def open_run(folder: str | os.PathLike, overrides: Sequence[str] = ()) -> Run:
    """Open the run in a folder."""
    folder = Path(folder)
    if not (folder / "recipe.yaml").exists():
        raise InputError(f"{folder} is not a run: it has no recipe.yaml")
    recipe = read_recipe(folder / "recipe.yaml")
    changed = read_recipe(recipe, overrides) if overrides else recipe
    for section in _FIXED:
        if changed[section] != recipe[section]:
            raise InputError(f"{folder}: `{section}` cannot change within a run; start a new run instead")
    if changed["optimiser"]["name"] != recipe["optimiser"]["name"]:
        raise InputError(f"{folder}: `optimiser.name` cannot change within a run, its numbers can; start a new run")
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
    """Train a recipe in a run folder, or resume the run in it.

    run = fit("te-tnp", "runs/mine", overrides=["--budget.time", "5m"])
    run = fit(folder="runs/mine", resume=True)
    run.model()
    """
    first = not any(int(os.environ.get(name) or 0) for name in _RANKS)
    if resume:
        if folder is None:
            raise InputError("resume needs the folder of the run")
        run = open_run(folder, overrides)
    else:
        if recipe is None:
            raise InputError("fit needs a recipe: a name, a file or a dict")
        name = "run" if isinstance(recipe, dict) else find_recipe(recipe).stem
        candidates = (Path("runs") / (f"{name}-{number}" if number > 1 else name) for number in count(1))
        folder = Path(folder) if folder else next(path for path in candidates if not path.exists())
        run = Run(folder, read_recipe(recipe, overrides))
    model = build_model(run.recipe, make_stream(run.recipe))  # raises errors before anything is written
    if not resume:
        start_from(run.recipe, model)
    if strategy == "auto" and (nodes > 1 or devices not in (1, "1")):
        strategy = "ddp_find_unused_parameters_true"  # an empty context leaves some weights without gradient
    from lightning_fabric import Fabric  # takes seconds to import: after all checks

    try:
        fabric = Fabric(accelerator="auto", devices=devices, num_nodes=nodes, strategy=strategy)
    except (ValueError, RuntimeError, TypeError) as error:
        raise InputError(f"devices={devices}, nodes={nodes}, strategy={strategy!r}: {error}") from error
    with lock_folder(run.folder) if first else nullcontext():
        if first:
            _begin(run, resume)
        _train(fabric, run, compiled, threads, watch)
    return run


def _begin(run: Run, resume: bool) -> None:
    """Write the recipe to the locked folder."""
    if resume:
        checkpoint.recover(run.folder / "last")
        if not (run.folder / "last").exists() and (run.folder / "log.csv").exists() and run.lines:
            raise InputError(
                f"{run.folder}: its checkpoint, the folder `last`, is missing; restore it, or start another run (the "
                "folder `best`, if present, is still a model)"
            )
    elif (run.folder / "recipe.yaml").exists():
        raise InputError(f"{run.folder} already holds a run; continue it with --resume {run.folder}, or use another")
    try:
        write_text(run.folder / "recipe.yaml", dump_recipe(run.recipe))
    except OSError as error:
        raise InputError(f"cannot write to {run.folder}: {error}; choose another folder, or free disk space") from error


def _train(fabric, run: Run, compiled: bool, threads: int | None, watch: Callable | None) -> None:
    from fillin.train.log import draw_learning_curve
    from fillin.train.loop import Loop

    n_threads = threads or torch.get_num_threads()
    fabric.launch()
    folder = Path(fabric.broadcast(str(run.folder)))  # the first process chose it
    # a checkpoint must agree with these settings
    fixed = dump_recipe({**read_recipe(run.recipe), "optimiser": {}, "schedule": {}, "budget": {}, "keep": {}})
    with use_threads(n_threads):
        Loop(fabric, run.recipe, folder, hashlib.sha256(fixed.encode()).hexdigest()[:16], compiled, watch)()
        if fabric.is_global_zero:
            draw_learning_curve(run.lines, run.folder / "learning.png", title=run.recipe["model"]["name"])
