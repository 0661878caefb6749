"""What several studies measure of a trained model."""

from dataclasses import replace
from typing import Any

import torch

from fillin.data import Curves
from fillin.evaluate import evaluate
from fillin.evaluate.report import BATCH
from fillin.evaluate.scores import unseen
from fillin.models import Process
from fillin.train.recipe import Recipe, make_curves


def shifted(model: Process, recipe: Recipe, batches: int, shift: float, settings: int = 0) -> dict[str, Any]:
    """Scores on the training distribution, and the log-likelihood where all places are moved by `shift`. With
    `settings`, the limit of the data too."""
    stream = _stream(recipe)
    here = evaluate(model, stream, batches=batches, settings=settings)
    there = evaluate(model, stream.at(shift=stream.layout.shift + shift), batches=batches, settings=0)
    found = {
        "log_likelihood": here.log_likelihood,
        "standard_error": here.standard_error,
        "shifted": there.log_likelihood,
        "rmse": here.rmse,
    }
    return {**found, "limit": here.limit} if settings else found


@torch.no_grad()
def reconstruction(model: Process, recipe: Recipe, batches: int) -> dict[str, Any]:
    """How far predictions at the context points are from the context, and how often it lies in their 95 % band."""
    stream = unseen(_stream(recipe), 0)
    errors, inside = [], []
    for step in range(batches):
        task = stream.task(step)
        prediction = model(task.xc, task.yc, task.xc)
        off = prediction.mean - task.yc
        errors.append(off.square().mean())
        inside.append((off.abs() < 1.96 * prediction.stddev).float().mean())
    return {
        "context_rmse": float(torch.stack(errors).mean().sqrt()),
        "context_covered": float(torch.stack(inside).mean()),
    }


def _stream(recipe: Recipe) -> Curves:
    """Tasks of a batch share their counts: small batches say more."""
    return replace(make_curves(recipe), batch=BATCH)
