"""What one trained model makes of each kind of question."""

from dataclasses import replace
from typing import Any

import torch

from fillin.data.images import Images
from fillin.evaluate import evaluate
from fillin.models import Process
from fillin.train.recipe import Recipe

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
QUICK, FULL = 50, 150  # batches of four images
MOVED = 3  # pixels, down and to the right


def asked(recipe: Recipe, pattern: str) -> Images:
    """All pixels of images that are held out, known as the pattern says; four of them a batch."""
    return Images(recipe["data"]["source"], pattern, targets=0, batch=4, part="test")


def measure(model: Process, recipe: Recipe, quick: bool) -> dict[str, Any]:
    batches = QUICK if quick else FULL
    found: dict[str, Any] = {}
    for title, pattern in KINDS.items():
        scores = evaluate(model, asked(recipe, pattern), batches, settings=0)
        covered = scores.coverage["95"] if scores.coverage else None
        found[title] = {"log_likelihood": scores.log_likelihood, "error": scores.standard_error,
                        "rmse": scores.rmse, "covered": covered}  # fmt: skip
    each = [found[title]["log_likelihood"] for title in KINDS]
    return {
        "kinds": found,
        "log_likelihood": sum(each) / len(each),
        "standard_error": sum(found[title]["error"] ** 2 for title in KINDS) ** 0.5 / len(KINDS),
        "rmse": sum(found[title]["rmse"] for title in KINDS) / len(KINDS),
        "images": 4 * batches,
        **context(model, recipe, batches),
        "moved": moved(model, recipe),
    }


@torch.no_grad()
def context(model: Process, recipe: Recipe, batches: int) -> dict[str, float]:
    """How far from known pixels it is where they are, one in five being known."""
    stream = replace(asked(recipe, "random 0.2"), seed=1)
    squares = []
    for step in range(batches):
        task = stream.task(step)
        squares.append((model(task.xc, task.yc, task.xc).mean - task.yc).square().mean())
    return {"context_rmse": float(torch.stack(squares).mean().sqrt())}


@torch.no_grad()
def moved(model: Process, recipe: Recipe) -> float:
    """By how much answers change at most where the image is moved by whole pixels: known ones and asked ones alike."""
    task = replace(asked(recipe, "random 0.2"), seed=2).task(0)
    pixel = 4 / max(asked(recipe, "top").images.shape[:2])
    here = model(*task.inputs).mean
    there = model(task.xc + MOVED * pixel, task.yc, task.xt + MOVED * pixel).mean
    return float((here - there).abs().max())
