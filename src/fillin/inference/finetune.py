"""Fine-tuning of a pretrained model on the observations of one user, for at most a minute."""

import copy
import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fillin.data import Task
from fillin.data.broad_prior import order_context_first
from fillin.heads import Autoregressive, ObservedMixture
from fillin.inference.context import Context, Tick
from fillin.models import Process
from fillin.objectives import log_likelihood, observed_and_clean

MIN_POINTS = 100
MAX_STEPS, MAX_SECONDS = 200, 50.0  # the last score of the held-out points takes time too
MAX_HELD_OUT = 256
BATCH_TASKS, MAX_TASK_POINTS, MAX_TARGETS = 4, 256, 64
_RATE, _STEPS_PER_SCORE, _PATIENCE = 2e-4, 20, 3

Split = tuple[Context, np.ndarray, np.ndarray]  # observations to train on; locations and values that are held out


def finetune(
    model: Process, contexts: list[Context], seed: int, tick: Tick = lambda done: None
) -> tuple[Process, float]:
    """Train a copy of the model on random splits of the observations; return it and its gain (nats per held-out point).

    A fifth of the points, at most 256, is held out. The copy is trained by AdamW to predict some of the rest (anywhere,
    in blocks, at the ends) from the others. Every 20 steps the held-out points are scored; the best state, which may be
    the first, is returned. Three scores without improvement, 200 steps or 50 seconds end the training. The latent
    function is never observed: there the copy is held to the predictions of the model.
    """
    random = np.random.default_rng(seed)
    learner, started = copy.deepcopy(model), time.monotonic()
    splits = [_split(context, random.permutation(len(context.x))) for context in contexts]
    first_score = best_score = _score_held_out(learner, splits)
    best_state, rounds_since = copy.deepcopy(learner.state_dict()), 0
    optimiser = torch.optim.AdamW(learner.parameters(), lr=_RATE, weight_decay=0.0)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        for step in range(1, MAX_STEPS + 1):
            optimiser.param_groups[0]["lr"] = _RATE * min(1.0, step / 10)
            task = _draw_task(splits[random.integers(len(splits))][0], random)
            loss = -_objective(learner, model, task).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
            optimiser.step()
            tick(1)
            out_of_time = time.monotonic() - started > MAX_SECONDS
            if step % _STEPS_PER_SCORE == 0 or out_of_time:
                score = _score_held_out(learner, splits)
                rounds_since = 0 if score > best_score else rounds_since + 1
                if score > best_score:
                    best_score, best_state = score, copy.deepcopy(learner.state_dict())
                if out_of_time or rounds_since == _PATIENCE:
                    break
    learner.load_state_dict(best_state)
    optimiser.zero_grad()
    return learner, best_score - first_score


def _split(context: Context, order: np.ndarray) -> Split:
    count = min(len(order) // 5, MAX_HELD_OUT)
    rest, held_out = order[count:], order[:count]
    error = None if context.error is None else context.error[rest]
    return replace(context, x=context.x[rest], y=context.y[rest], error=error), context.x[held_out], context.y[held_out]


def _score_held_out(model: Process, splits: list[Split]) -> float:
    """Mean log-likelihood of the held-out points given all others."""
    scores = [replace(context, model=model).predict(x).log_prob(y).mean() for context, x, y in splits]
    return float(np.mean(scores))


def _draw_task(context: Context, random: np.random.Generator) -> Task:
    """Random splits of the observations, or of 256 around one of them where there are more."""
    centre = context.x[random.integers(len(context.x))]
    distance = np.square((context.x - centre) / context.unit).sum(1)
    rows = np.sort(np.argsort(distance, kind="stable")[:MAX_TASK_POINTS])
    x, y = (context.x[rows] - context.x[rows].min(0)) / context.unit, context.y[rows]
    size = np.abs(y).max() or 1.0
    width = np.where(np.ptp(x, 0) > 0, np.ptp(x, 0), 1)
    nc = int(random.uniform(0.5, 0.95) * len(rows))
    generator = torch.Generator().manual_seed(int(random.integers(2**31)))
    order = order_context_first(torch.from_numpy(4 * x / width - 2).expand(BATCH_TASKS, -1, -1), nc, generator)

    def split(values: np.ndarray) -> tuple[Tensor, Tensor]:
        chosen = torch.from_numpy(values)[order].float()
        return chosen[:, :nc], chosen[:, nc : nc + MAX_TARGETS]

    (xc, xt), (yc, yt) = split(x), split(y / size)
    return Task(xc, yc, xt, yt, error_c=None if context.error is None else split(context.error[rows] / size)[0])


def _objective(learner: Process, model: Process, task: Task) -> Tensor:
    if not model.head.separates_noise:
        return log_likelihood(learner, task)
    with torch.no_grad():
        prediction = model(*task.inputs)
        given = prediction.given(task.yt) if isinstance(prediction, Autoregressive) else prediction
        assert isinstance(given, ObservedMixture)
        latent = given.noise_free.sample()
    return observed_and_clean(learner, replace(task, noise_free_t=latent))
