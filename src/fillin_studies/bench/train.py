"""What the training loop adds to forward + backward + optimiser.

The loop is timed whole, from building the model to the last checkpoint.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fillin.measure import fastest
from fillin.train.loop import Goal, Loop, objective_of, optimiser_of
from fillin.train.recipe import Recipe, model_of, read, stream_of


@dataclass(frozen=True)
class TrainRow:
    """Seconds a step: the bare three, and the loop around them (data, seeds, clipping, log, bar, checkpoint)."""

    model: str
    bare: float
    loop: float
    ratio: float


def measure_train(names: list[str], steps: int, rounds: int, seed: int, tick: Callable[[], object]) -> list[TrainRow]:
    """Each model trains `steps` steps of the recipe te-tnp a round, bare and in the loop by turns, on equal tasks."""
    return [_measure(name, steps, rounds, seed, tick) for name in names]


def _measure(name: str, steps: int, rounds: int, seed: int, tick: Callable[[], object]) -> TrainRow:
    from lightning_fabric import Fabric

    words = ["--model.name", name, "--budget.time", "null", "--budget.steps", str(steps), "--seed", str(seed)]
    recipe = read("te-tnp", [*words, "--keep.validations", "1", "--keep.batches", "1"])
    fabric = Fabric(accelerator="cpu", devices=1)
    bare = _bare(recipe, steps)

    def loop() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Loop(fabric, recipe, Path(folder), "bench", watch=lambda *_: None)()

    best = fastest({"bare": bare, "loop": loop}, rounds, tick)
    return TrainRow(name, best["bare"] / steps, best["loop"] / steps, best["loop"] / best["bare"])


def _bare(recipe: Recipe, steps: int) -> Callable[[], None]:
    stream = stream_of(recipe)
    tasks = [stream.task(step) for step in range(steps)]
    goal = Goal(model_of(recipe, stream), objective_of(recipe))
    optimiser = optimiser_of(recipe, goal)

    def run() -> None:
        for task in tasks:
            goal(task.xc, task.yc, task.xt, task.yt, task.mask_c, task.mask_t).backward()
            optimiser.step()
            optimiser.zero_grad()

    return run
