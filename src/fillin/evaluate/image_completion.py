"""What a trained model makes of each kind of question about images: how likely the truth is to it, whether it tells
known pixels again, and whether moving an image changes anything."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from fillin.data.images import Images
from fillin.errors import InputError
from fillin.evaluate.scores import evaluate
from fillin.models import Process
from fillin.pretrained import locate
from fillin.train import open_run

KINDS = {  # titles, and patterns
    "1 pixel in 20": "random 0.05",
    "1 in 5": "random 0.2",
    "1 in 2": "random 0.5",
    "upper half": "top",
    "left half": "left",
    "all but a block": "hole",
    "half the resolution": "coarse 2",
    "a quarter of it": "coarse 4",
}
MOVED = 3  # pixels, down and to the right


class Completing(NamedTuple):
    """A model that completes images, and where these come from."""

    model: Process
    source: str


@dataclass(frozen=True)
class Kind:
    """Scores of one kind of question, all pixels being asked for; `covered` is the share inside 95 % bands."""

    log_likelihood: float
    error: float
    rmse: float
    covered: float | None


@dataclass(frozen=True)
class CompletionScores:
    """Means over the kinds, in nats per pixel of colours from −½ to ½; `context_rmse` is how far from known pixels it
    is where they are, one in five being known, and `moved` the largest change where the image is moved."""

    images: int
    kinds: dict[str, Kind]
    log_likelihood: float
    standard_error: float
    rmse: float
    context_rmse: float
    moved: float


def completing(folder: str | os.PathLike, source: str | None = None) -> Completing | None:
    """The best model of a run on images, with those of its recipe or of another source; None where it is none."""
    path = locate(folder)
    if not (path / "recipe.yaml").exists() or (run := open_run(path)).recipe["data"]["name"] != "images":
        return None
    if not (path / "best").exists():
        raise InputError(f"{path} has no weights yet; go on with: fillin train --resume {path}")
    about = Completing(run.model().eval(), source or run.recipe["data"]["source"])
    found = asked(about.source, "top").dim_y
    if found != about.model.dim_y:
        raise InputError(f"{about.source} has {found} colours; the model was made for {about.model.dim_y}")
    return about


def asked(source: str, pattern: str) -> Images:
    """All pixels of images that are held out, known as the pattern says; four of them a batch."""
    return Images(source, pattern, targets=0, batch=4, part="test")


def judge(
    about: Completing, batches: int, seed: int = 0, tick: Callable[[], object] = lambda: None
) -> CompletionScores:
    """Every kind of question, on as many batches of four images."""
    found = {}
    for title, pattern in KINDS.items():
        scores = evaluate(about.model, asked(about.source, pattern), batches, seed, settings=0, tick=tick)
        covered = scores.coverage["95"] if scores.coverage else None
        found[title] = Kind(scores.log_likelihood, scores.standard_error, scores.rmse, covered)
    each = list(found.values())
    error = statistics.fmean(kind.error for kind in each)  # at most: all kinds are asked about the same images
    return CompletionScores(
        4 * batches, found, statistics.fmean(kind.log_likelihood for kind in each),
        error, statistics.fmean(kind.rmse for kind in each),
        context(about, batches), moved(about),
    )  # fmt: skip


@torch.no_grad()
def context(about: Completing, batches: int) -> float:
    """The root mean square by which known pixels are missed, one in five being known."""
    stream = replace(asked(about.source, "random 0.2"), seed=1)
    squares = []
    for step in range(batches):
        task = stream.task(step)
        squares.append((about.model(task.xc, task.yc, task.xc).mean - task.yc).square().mean())
    return float(torch.stack(squares).mean().sqrt())


@torch.no_grad()
def moved(about: Completing) -> float:
    """By how much answers change at most where the image is moved by whole pixels: known ones and asked ones alike."""
    stream = replace(asked(about.source, "random 0.2"), seed=2)
    task, step = stream.task(0), MOVED * 4 / max(stream.images.shape[:2])
    here = about.model(*task.inputs).mean
    there = about.model(task.xc + step, task.yc, task.xt + step).mean
    return float((here - there).abs().max())
