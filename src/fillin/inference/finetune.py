"""A model that goes on learning from the points of one user, for a minute at most."""

import copy
import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fillin.data import Task
from fillin.data.function_prior import order_context_first
from fillin.heads import Autoregressive, ObservedHead, ObservedMixture
from fillin.inference.context import Known, Tick
from fillin.models import Process
from fillin.objectives import log_likelihood, observed_and_clean

ENOUGH = 100  # known points
STEPS, SECONDS, HELD = 200, 50.0, 256  # at most: the last look at what was held out takes its time too
BATCH, POINTS, TARGETS = 4, 256, 64  # tasks of a step, points and targets of a task, at most
_RATE, _EVERY, _PATIENCE = 2e-4, 20, 3


def adapt(model: Process, known: list[Known], seed: int, tick: Tick = lambda done: None) -> tuple[Process, float]:
    """A copy of the model, trained on random splits of what is known, and what that gained (nats a held-out point).

    A fifth of the points, at most 256, is held out. Of the rest the copy predicts some from the others (hidden
    anywhere, in blocks, at ends), by AdamW; every 20 steps it is asked for those held out, and the best of all its
    states, the first among them, is what comes back. Three times no better, 200 steps or 50 seconds end it. Nobody
    knows the function without its noise: there the copy is held to what the model said.
    """
    random = np.random.default_rng(seed)
    learner, started = copy.deepcopy(model), time.monotonic()
    parts = [_part(points, random.permutation(len(points.x))) for points in known]
    first = best = _held_out(learner, parts)
    state, worse = copy.deepcopy(learner.state_dict()), 0
    optimiser = torch.optim.AdamW(learner.parameters(), lr=_RATE, weight_decay=0.0)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        for step in range(1, STEPS + 1):
            optimiser.param_groups[0]["lr"] = _RATE * min(1.0, step / 10)
            task = _task(parts[random.integers(len(parts))][0], random)
            loss = -_objective(learner, model, task).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
            optimiser.step()
            tick(1)
            late = time.monotonic() - started > SECONDS
            if step % _EVERY == 0 or late:
                now = _held_out(learner, parts)
                worse = 0 if now > best else worse + 1
                if now > best:
                    best, state = now, copy.deepcopy(learner.state_dict())
                if late or worse == _PATIENCE:
                    break
    learner.load_state_dict(state)
    optimiser.zero_grad()
    return learner, best - first


def _part(known: Known, order: np.ndarray) -> tuple[Known, np.ndarray, np.ndarray]:
    """The points to learn from, and places and values of those held out."""
    cut = min(len(order) // 5, HELD)
    rest, held = order[cut:], order[:cut]
    error = None if known.error is None else known.error[rest]
    return replace(known, x=known.x[rest], y=known.y[rest], error=error), known.x[held], known.y[held]


def _held_out(model: Process, parts: list[tuple[Known, np.ndarray, np.ndarray]]) -> float:
    """Mean log-likelihood of the points held out, each given all that are not."""
    return float(np.mean([replace(learnt, model=model).at(x).log_prob(y).mean() for learnt, x, y in parts]))


def _task(known: Known, random: np.random.Generator) -> Task:
    """Splits of the points, of 256 around one of them where there are more."""
    centre = known.x[random.integers(len(known.x))]
    far = np.square((known.x - centre) / known.unit).sum(1)
    rows = np.sort(np.argsort(far, kind="stable")[:POINTS])
    x, y = (known.x[rows] - known.x[rows].min(0)) / known.unit, known.y[rows]
    size = np.abs(y).max() or 1.0
    width = np.where(np.ptp(x, 0) > 0, np.ptp(x, 0), 1)
    nc = int(random.uniform(0.5, 0.95) * len(rows))
    generator = torch.Generator().manual_seed(int(random.integers(2**31)))
    order = order_context_first(torch.from_numpy(4 * x / width - 2).expand(BATCH, -1, -1), nc, generator)

    def split(values: np.ndarray) -> tuple[Tensor, Tensor]:
        chosen = torch.from_numpy(values)[order].float()
        return chosen[:, :nc], chosen[:, nc : nc + TARGETS]

    (xc, xt), (yc, yt) = split(x), split(y / size)
    return Task(xc, yc, xt, yt, error_c=None if known.error is None else split(known.error[rows] / size)[0])


def _objective(learner: Process, model: Process, task: Task) -> Tensor:
    if not isinstance(model.head, ObservedHead):
        return log_likelihood(learner, task)
    with torch.no_grad():
        found = model(*task.inputs)
        given = found.given(task.yt) if isinstance(found, Autoregressive) else found
        assert isinstance(given, ObservedMixture)
        clean = given.clean.sample()
    return observed_and_clean(learner, replace(task, noise_free_t=clean))
