"""Training loop on Lightning Fabric.

Everything random in step s (data, dropout, latents) is a function of (seed, s), and the learning rate is a function of
the fraction of the budget that is spent. Under a budget of steps a run that is killed anywhere and resumed therefore
ends with the same bytes as an uninterrupted one (same machine and threads, no compile).
"""

import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fillin.data import Stream
from fillin.data.task import Batches
from fillin.errors import FillinError, InputError
from fillin.models import save
from fillin.objectives import OBJECTIVES
from fillin.train import checkpoint
from fillin.train.log import Log, LogLine
from fillin.train.muon import Muon
from fillin.train.recipe import Recipe, budget_fraction, build_model, make_stream, start_from

HELD_OUT = 2**31  # added to the seed of validation data
_MAX_LOSS = 1e4  # nats per target: beyond it a run has diverged


class TrainingDiverged(FillinError, ArithmeticError):
    """The loss is not finite, or exceeds 10⁴ nats per target."""


class StopSignal:
    """Context manager in which the first Ctrl-C or SIGTERM only sets `received`; a second one interrupts at once."""

    def __init__(self):
        self.received = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True


def prefetch(stream: Batches, start: int, ahead: int = 8) -> Generator[Any, None, None]:
    """Yield stream.task(start), stream.task(start + 1), … without end, with up to `ahead` batches drawn in advance. The
    thread ends when the iterator is closed or deleted. An error of the stream is raised in place of its batch."""
    batches: queue.Queue[Any] = queue.Queue(ahead)
    closed = threading.Event()

    def put(item: Any) -> None:
        while not closed.is_set():
            try:
                batches.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def draw() -> None:
        step = start
        while not closed.is_set():
            try:
                put(stream.task(step))
            except BaseException as error:
                put(error)
                return
            step += 1

    thread = threading.Thread(target=draw, name="fillin-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item = batches.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        closed.set()
        thread.join()


class TrainingModule(nn.Module):
    """Model and objective as one module, as DDP and compile require: the parts of a batch in, the loss out. `maximised`
    is the function of `objective` with its options set."""

    def __init__(self, model: Any, maximised: Callable[..., Tensor], objective=OBJECTIVES["log-likelihood"]):
        super().__init__()
        self.model = model
        self.maximised, self.objective = maximised, objective

    def forward(self, *parts: Any) -> Tensor:
        return -self.maximised(self.model, self.objective.batch(*parts)).mean()


def make_objective(recipe: Recipe) -> Callable[..., Tensor]:
    """Return the function (model, batch) → [b] that training maximises."""
    objective = OBJECTIVES[recipe["objective"]["name"]]
    return partial(objective.maximised, **{name: recipe["objective"][name] for name in objective.options})


def make_optimiser(recipe: Recipe, model: nn.Module) -> Optimizer:
    settings = recipe["optimiser"]
    kinds: dict[str, Any] = {"muon": Muon, "adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    options = {"muon": {}, "sgd": {"momentum": 0.9, "fused": True}}.get(settings["name"], {"fused": True})
    return kinds[settings["name"]](model.parameters(), settings["rate"], weight_decay=settings["decay"], **options)


def learning_rate(recipe: Recipe, spent: float) -> float:
    """Return the learning rate at a fraction `spent` of the budget: a linear warm-up, then a decay to zero at 1."""
    warmup, name = recipe["schedule"]["warmup"], recipe["schedule"]["name"]
    if spent < warmup:
        factor = (spent + 1e-3) / (warmup + 1e-3)
    else:
        left = max(0.0, 1 - (spent - warmup) / (1 - warmup))
        factor = {"cosine": 0.5 - 0.5 * math.cos(math.pi * left), "linear": left, "constant": 1.0}[name]
    return recipe["optimiser"]["rate"] * factor


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed torch by (seed, step, rank), apart from the generator of the data of batch `step`."""
    # numpy pads with zeros: without the 1, (seed, step, 0) would be the (seed, step) of the data
    value = int(np.random.SeedSequence([seed, step, rank, 1]).generate_state(1)[0])
    # not torch.manual_seed: before CUDA is initialised it formats and keeps the whole stack at each call
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(value)


def validate(module: TrainingModule, stream: Stream, batches: int, fabric: Any) -> float:
    """Return the mean validation score of held-out batches, which are divided among processes. It is the log-likelihood
    per target, also for models trained on a bound; for classifiers per image."""
    model = module.model
    model.eval()
    total = torch.zeros(())
    with torch.no_grad():
        for step in range(fabric.global_rank, batches, fabric.world_size):
            seed_step(stream.seed, step)
            total += module.objective.score(model, stream.task(step).to(fabric.device)).mean().cpu()
    model.train()
    return float(fabric.all_reduce(total, reduce_op="sum")) / batches


class Loop:
    """One run: `Loop(fabric, recipe, folder, digest)()` trains from the checkpoint in the folder, or from the start
    without one, until the budget is spent or a stop signal arrives.

    `watch(step, seconds, fraction of the budget, loss, validation or None)` is called with each line of the log.
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
        self.rows = _rows_of_process(self.stream.batch, fabric)
        self.keep, self.clip = recipe["keep"], recipe["optimiser"]["clip"]
        seed_step(recipe["seed"], HELD_OUT)
        objective = OBJECTIVES[recipe["objective"]["name"]]
        self.plain_module = TrainingModule(build_model(recipe, self.stream), make_objective(recipe), objective)
        if not self.last.exists():
            start_from(recipe, self.plain_module.model)
        self.plain_optimiser = make_optimiser(recipe, self.plain_module)
        if compiled:
            self.plain_module.compile(dynamic=True)
        self.module, self.optimiser = fabric.setup(self.plain_module, self.plain_optimiser)
        self.state = checkpoint.TrainingState(0, 0.0, None, [], 0.0, digest)
        if self.last.exists():  # read after setup: the optimiser's state follows the parameters to their device
            self.state = checkpoint.read(self.last, self.plain_module.model, self.plain_optimiser, digest)
        self.weights = list(self.plain_module.parameters())
        self.main = fabric.is_global_zero
        self.log = Log(folder, self.state.step) if self.main else None
        self.watch = watch if self.main and watch else lambda *_: None

    def __call__(self) -> checkpoint.TrainingState:
        self.start_time = time.perf_counter() - self.state.seconds
        saved, first = self.state.seconds, self.state.step
        self.module.train()
        fraction = self._spent()
        # under a budget of time alone validations take at most a tenth of it; several processes must validate together
        limited = not self.recipe["budget"]["steps"] and self.fabric.world_size == 1
        if not self.last.exists():  # before the first line of the log: a log without a checkpoint means a lost one
            self._save()
        log = closing(self.log) if self.log else nullcontext()
        with log, StopSignal() as stop, closing(prefetch(self.stream, first)) as batches:
            while fraction < 1 and not self._should_stop(stop):
                rate = learning_rate(self.recipe, fraction)
                validated = self._validations_due(fraction)
                self._step(next(batches), rate)
                fraction = self._spent()
                more_due = self._validations_due(fraction) > validated
                too_costly = limited and self.state.validating > 0.1 * self.state.seconds
                due = fraction >= 1 or (more_due and not too_costly)
                if due or self.state.step % self.keep["log"] == 0:
                    self._log(rate, fraction, due)
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
        # equal in all processes, which stop together
        value = float(self.fabric.all_reduce(loss.detach(), reduce_op="mean"))
        if not (math.isfinite(value) and math.isfinite(norm)) or value > _MAX_LOSS:
            raise TrainingDiverged(self._advice(value))  # before the step, which would damage the weights
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.state = self.state._replace(step=step + 1, pending=[*self.state.pending, [value, norm]])

    def _log(self, rate: float, fraction: float, due: bool) -> None:
        """Write a line of the log; where a validation is due, validate and keep the best weights."""
        value, start = None, time.perf_counter()
        if due:
            value = validate(self.plain_module, self.held_out, self.keep["batches"], self.fabric)
            validating = self.state.validating + time.perf_counter() - start
            self.state = self.state._replace(validating=validating)
        if value is not None and not math.isfinite(value):
            raise TrainingDiverged(self._advice(-value))
        loss, norm = (math.fsum(column) / len(column) for column in zip(*self.state.pending, strict=True))
        if self.log:
            self.log.add(LogLine(self.state.step, self.state.seconds, loss, norm, rate, value))
        if value is not None and (self.state.best is None or value > self.state.best):
            self.state = self.state._replace(best=value, pending=[])
            if self.main:
                save(self.plain_module.model, self.best)
            self._save()  # so that a resumed run has the score of the best weights
        self.watch(self.state.step, self.state.seconds, fraction, loss, value)
        self.state = self.state._replace(pending=[])

    def _save(self) -> None:
        if self.main:
            checkpoint.write(self.last, self.plain_module.model, self.plain_optimiser, self.state)

    def _spent(self) -> float:
        """Return the fraction of the budget that is spent. All processes use the clock of the first one."""
        elapsed = time.perf_counter() - self.start_time
        if self.recipe["budget"]["time"] and self.fabric.world_size > 1:
            elapsed = self.fabric.broadcast(elapsed)
        self.state = self.state._replace(seconds=elapsed)
        return budget_fraction(self.recipe, self.state.step, elapsed)

    def _validations_due(self, fraction: float) -> int:
        """Return the number of validations due at `fraction`: at most one per `batches` steps in short runs."""
        steps, number = self.recipe["budget"]["steps"], self.keep["validations"]
        number = number if steps is None else max(1, min(number, steps // self.keep["batches"]))
        return math.floor(fraction * number + 1e-9)

    def _should_stop(self, stop: StopSignal) -> bool:
        """Test for a stop signal; several processes agree on it every `log` steps."""
        if self.fabric.world_size == 1:
            return stop.received
        if self.state.step % self.keep["log"]:
            return False
        return bool(self.fabric.all_reduce(torch.tensor(float(stop.received)), reduce_op="sum"))

    def _advice(self, loss: float) -> str:
        rate = self.recipe["optimiser"]["rate"] / 3
        return (
            f"step {self.state.step}: training diverged, the loss is {loss:.4g}; the last good checkpoint is "
            f"{self.last}. Try a lower rate (--optimiser.rate {rate:.1g}), stronger clipping (--optimiser.clip 0.1), "
            "a longer warm-up (--schedule.warmup 0.1) or a larger floor of the std (--model.floor 0.01)"
        )


def _rows_of_process(batch: int, fabric: Any) -> slice | None:
    """Return the tasks of a batch that this process trains on (None: all)."""
    if fabric.world_size == 1:
        return None
    if batch % fabric.world_size:
        raise InputError(
            f"a batch of {batch} cannot be divided among {fabric.world_size} processes; change --data.batch"
        )
    return slice(fabric.global_rank, None, fabric.world_size)


def _clip(weights: list[nn.Parameter], max_norm: float) -> float:
    """Clip the gradient to `max_norm` (0: no clipping) and return its norm before."""
    gradients = [p.grad for p in weights if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients, foreach=True)
    if max_norm:
        torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return float(norm)
