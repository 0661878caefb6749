"""The training loop, on Lightning Fabric.

Step s draws everything random (data, dropout, latents) from (seed, s), and the learning rate is a function of how much
of the budget is spent. Under a budget of steps a run that was killed anywhere and resumed therefore ends with the same
bytes as one that was not (same machine and threads, no compile).
"""

import math
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fillin.data import Stream
from fillin.errors import FillinError, InputError
from fillin.models import save
from fillin.objectives import OBJECTIVES, Aim
from fillin.train import checkpoint
from fillin.train.log import Log, LogLine
from fillin.train.muon import Muon
from fillin.train.prefetch import prefetch
from fillin.train.recipe import Recipe, budget_fraction, build_model, make_stream, start_from
from fillin.train.signals import Stop

HELD_OUT = 2**31  # added to the seed of what is not trained on
_EXPLODED = 1e4  # nats per target: no likelihood that is learning gets there


class TrainingDiverged(FillinError, ArithmeticError):
    """The loss is no number any more, or far above where it began."""


class TrainingModule(nn.Module):
    """Model and objective as one module with one forward pass, which is what DDP and compile want to see. `aim` says
    what batches are made of the parts that come in, and what a validation tells."""

    def __init__(self, model: Any, objective: Callable[..., Tensor], aim: Aim = OBJECTIVES["log-likelihood"]):
        super().__init__()
        self.model = model
        self.objective, self.aim = objective, aim

    def forward(self, *parts: Any) -> Tensor:
        return -self.objective(self.model, self.aim.batch(*parts)).mean()


def make_objective(recipe: Recipe) -> Callable[..., Tensor]:
    """(model, batch) → a number for each of the batch, to be raised."""
    aim = OBJECTIVES[recipe["objective"]["name"]]
    return partial(aim.raised, **{name: recipe["objective"][name] for name in aim.options})


def make_optimiser(recipe: Recipe, model: nn.Module) -> Optimizer:
    settings = recipe["optimiser"]
    common = {"lr": settings["rate"], "weight_decay": settings["decay"]}
    if settings["name"] == "muon":
        return Muon(model.parameters(), **common)
    if settings["name"] == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=0.9, fused=True, **common)
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[settings["name"]]
    return kind(model.parameters(), fused=True, **common)


def learning_rate(recipe: Recipe, spent: float) -> float:
    """The learning rate when a share `spent` of the budget is gone: a linear warm-up, then down to zero at 1."""
    warmup, name = recipe["schedule"]["warmup"], recipe["schedule"]["name"]
    if spent < warmup:
        share = (spent + 1e-3) / (warmup + 1e-3)
    else:
        left = max(0.0, 1 - (spent - warmup) / (1 - warmup))
        share = {"cosine": 0.5 - 0.5 * math.cos(math.pi * left), "linear": left, "constant": 1.0}[name]
    return recipe["optimiser"]["rate"] * share


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Everything random from here on is a function of (seed, step, rank), and not what batch `step` was drawn from."""
    # numpy pads with zeros: without the 1, (seed, step, 0) would be the (seed, step) of the data
    value = int(np.random.SeedSequence([seed, step, rank, 1]).generate_state(1)[0])
    # not torch.manual_seed: where CUDA has not begun, that formats the whole stack and keeps it, each time
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(value)


def validate(goal: TrainingModule, stream: Stream, batches: int, fabric: Any) -> float:
    """Mean of the objective over validation batches, which are shared among processes: mean
    log-likelihood per target, also of a model that learns from a bound; of a classifier per image."""
    model = goal.model
    model.eval()
    total = torch.zeros(())
    with torch.no_grad():
        for step in range(fabric.global_rank, batches, fabric.world_size):
            seed_step(stream.seed, step)
            total += goal.aim.tell(model, stream.task(step).to(fabric.device)).mean().cpu()
    model.train()
    return float(fabric.all_reduce(total, reduce_op="sum")) / batches


class Loop:
    """One run: `Loop(fabric, recipe, folder, digest)()` trains from the checkpoint in the folder, or from the start
    where there is none, until the budget is spent or someone asks to stop.

    `watch(step, seconds, share of the budget, loss, validation or None)` is called with each line of the log.
    """

    def __init__(
        self,
        fabric: Any,
        recipe: Recipe,
        folder: Path,
        digest: str,
        compiled: bool = False,
        watch: Callable[[int, float, float, float, float | None], None] | None = None,
    ):
        self.fabric, self.recipe, self.last, self.best = fabric, recipe, folder / "last", folder / "best"
        self.stream = make_stream(recipe)
        self.held_out = self.stream.validation_stream(self.stream.seed + HELD_OUT)
        self.rows = _rows(self.stream.batch, fabric)
        self.keep, self.clip = recipe["keep"], recipe["optimiser"]["clip"]
        seed_step(recipe["seed"], HELD_OUT)
        aim = OBJECTIVES[recipe["objective"]["name"]]
        self.goal = TrainingModule(build_model(recipe, self.stream), make_objective(recipe), aim)
        if not self.last.exists():
            start_from(recipe, self.goal.model)
        self.plain = make_optimiser(recipe, self.goal)
        if compiled:
            self.goal.compile(dynamic=True)
        self.module, self.optimiser = fabric.setup(self.goal, self.plain)
        self.state = checkpoint.State(0, 0.0, None, [], 0.0, digest)
        if self.last.exists():  # read once all is on its device, so that the optimiser's state follows
            self.state = checkpoint.read(self.last, self.goal.model, self.plain, digest)
        self.weights = list(self.goal.parameters())
        self.main = fabric.is_global_zero
        self.log = Log(folder, self.state.step) if self.main else None
        self.watch = watch if self.main and watch else lambda *_: None

    def __call__(self) -> checkpoint.State:
        self.begun = time.perf_counter() - self.state.seconds
        saved, first = self.state.seconds, self.state.step
        self.module.train()
        share = self._spent()
        if not self.last.exists():  # before the first line of the log: a log without a checkpoint has lost it
            self._save()
        log = closing(self.log) if self.log else nullcontext()
        with log, Stop() as stop, closing(prefetch(self.stream, first)) as batches:
            while share < 1 and not self._asked(stop):
                rate = learning_rate(self.recipe, share)
                passed = self._count(share)
                self._step(next(batches), rate)
                share = self._spent()
                due = share >= 1 or (self._count(share) > passed and not self._dear())
                if due or self.state.step % self.keep["log"] == 0:
                    self._note(rate, share, due)
                    if self.state.seconds - saved >= self.keep["checkpoint"]:
                        self._save()
                        saved = self.state.seconds
            if self.state.step > first:
                self._save()
        return self.state

    def _step(self, task: Any, rate: float) -> None:
        step = self.state.step
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        seed_step(self.recipe["seed"], step, self.fabric.global_rank)
        task = (task if self.rows is None else task.rows(self.rows)).to(self.fabric.device)
        loss = self.module(*task.parts)
        self.fabric.backward(loss)
        norm = _clip(self.weights, self.clip)
        value = float(self.fabric.all_reduce(loss.detach(), reduce_op="mean"))  # all see it, and stop together
        if not (math.isfinite(value) and math.isfinite(norm)) or value > _EXPLODED:
            raise TrainingDiverged(self._advice(value))  # before the step: the weights are still good
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.state = self.state._replace(step=step + 1, pending=[*self.state.pending, [value, norm]])

    def _note(self, rate: float, share: float, due: bool) -> None:
        """A line in the log; where a validation is due, that too, and the best weights so far."""
        value = self._validate() if due else None
        if value is not None and not math.isfinite(value):
            raise TrainingDiverged(self._advice(-value))
        loss, norm = (math.fsum(column) / len(column) for column in zip(*self.state.pending, strict=True))
        if self.log:
            self.log.add(LogLine(self.state.step, self.state.seconds, loss, norm, rate, value))
        if value is not None and (self.state.best is None or value > self.state.best):
            self.state = self.state._replace(best=value, pending=[])
            if self.main:
                save(self.goal.model, self.best)
            self._save()  # or a killed run would not know how good the best is
        self.watch(self.state.step, self.state.seconds, share, loss, value)
        self.state = self.state._replace(pending=[])

    def _validate(self) -> float:
        began = time.perf_counter()
        value = validate(self.goal, self.held_out, self.keep["batches"], self.fabric)
        spent = self.state.validating + time.perf_counter() - began
        self.state = self.state._replace(validating=spent)
        return value

    def _dear(self) -> bool:
        """Under a budget of time alone, validations take at most a tenth of it."""
        if self.recipe["budget"]["steps"] or self.fabric.world_size > 1:  # all must validate, or none
            return False
        return self.state.validating > 0.1 * self.state.seconds

    def _save(self) -> None:
        if self.main:
            checkpoint.write(self.last, self.goal.model, self.plain, self.state)

    def _spent(self) -> float:
        """The share of the budget that is gone. Where time counts, the first process keeps the clock for all."""
        elapsed = time.perf_counter() - self.begun
        if self.recipe["budget"]["time"] and self.fabric.world_size > 1:
            elapsed = self.fabric.broadcast(elapsed)
        self.state = self.state._replace(seconds=elapsed)
        return budget_fraction(self.recipe, self.state.step, elapsed)

    def _count(self, share: float) -> int:
        """How many validations are due when `share` is spent: in a run of few steps, at most one a `batches` steps."""
        steps, most = self.recipe["budget"]["steps"], self.keep["validations"]
        most = most if steps is None else max(1, min(most, steps // self.keep["batches"]))
        return math.floor(share * most + 1e-9)

    def _asked(self, stop: Stop) -> bool:
        """Whether to stop; several processes agree on it, now and then."""
        if self.fabric.world_size == 1:
            return stop.asked
        if self.state.step % self.keep["log"]:
            return False
        return bool(self.fabric.all_reduce(torch.tensor(float(stop.asked)), reduce_op="sum"))

    def _advice(self, loss: float) -> str:
        rate = self.recipe["optimiser"]["rate"] / 3
        return (
            f"step {self.state.step}: the loss is {loss:.4g} and cannot be trained on; the last good checkpoint is "
            f"{self.last}. Try a lower rate (--optimiser.rate {rate:.1g}), a shorter gradient (--optimiser.clip "
            "0.1), a longer warm-up (--schedule.warmup 0.1) or a larger floor of the deviation (--model.floor 0.01)"
        )


def _rows(batch: int, fabric: Any) -> slice | None:
    """Which tasks of a batch this process trains on; None: all."""
    if fabric.world_size == 1:
        return None
    if batch % fabric.world_size:
        raise InputError(f"a batch of {batch} cannot be shared by {fabric.world_size} processes; change --data.batch")
    return slice(fabric.global_rank, None, fabric.world_size)


def _clip(weights: list[nn.Parameter], longest: float) -> float:
    """Shorten the gradient to `longest` (0: leave it), and say how long it was."""
    gradients = [p.grad for p in weights if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients, foreach=True)
    if longest:
        torch._foreach_mul_(gradients, (longest / (norm + 1e-6)).clamp(max=1.0))
    return float(norm)
