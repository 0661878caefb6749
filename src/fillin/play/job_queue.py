"""Job queues: one computation at a time in each, a bounded number of waiting requests, and a time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from time import monotonic
from typing import TypeVar

from fillin.errors import InputError
from fillin.play.limits import Limits

Result = TypeVar("Result")
_POLL_SECONDS = 0.5  # between checks for clients that have disconnected
_GRACE_SECONDS = 1.0  # that a step may take beyond the time limit


class QueueBusy(Exception):
    """The queue is full, or a request was not started in time; the client may try again."""


class TimeLimitExceeded(InputError):
    """A computation was stopped at its time limit."""


class Deadline:
    """Time at which a job must end. Jobs call it after each step, since a thread cannot be stopped from outside."""

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic):
        self.seconds, self.cancelled = seconds, False
        self._clock, self._end = clock, clock() + seconds

    @property
    def remaining(self) -> float:
        return self._end - self._clock()

    def __call__(self, steps: int = 0) -> None:
        if self.cancelled:
            raise QueueBusy("the computation was cancelled: the client has disconnected, or the server is stopping")
        if self.remaining < 0:
            raise TimeLimitExceeded(
                f"the computation was stopped at its time limit of {self.seconds:g} s; request fewer points, pixels, "
                "rows or columns"
            )


class JobQueue:
    """Queue in front of one worker thread: `await queue.run(job)` calls `job(deadline)` when its turn comes."""

    def __init__(
        self,
        name: str,
        seconds: float,
        max_length: int = Limits.queue_length,
        warm_up: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ):
        self.seconds, self.max_length, self.clock = seconds, max_length, clock
        self.length = 0
        self._current: Deadline | None = None
        # tensors here are so small that a second thread costs more than it saves
        self._worker = ThreadPoolExecutor(1, f"fillin-{name}", lambda: import_module("torch").set_num_threads(1))
        self._warm_up = self._worker.submit(warm_up)

    @property
    def is_running(self) -> bool:
        """True while a job is being computed."""
        return self._current is not None

    async def run(
        self, job: Callable[[Deadline], Result], is_disconnected: Callable[[], Awaitable[bool]] | None = None
    ) -> Result:
        """Return the result of the job. A job whose client has disconnected is cancelled."""
        if self.length >= self.max_length:
            raise QueueBusy(f"{self.max_length} requests are already waiting; try again in a second")
        if not self._warm_up.done():  # so that the first request does not pay for it
            warm_up = asyncio.wrap_future(self._warm_up)
            try:
                await asyncio.wait({warm_up})
            finally:
                if not warm_up.cancel() and not warm_up.cancelled():
                    warm_up.exception()  # the job that needs the model raises it again
        deadline, started = Deadline(self.seconds, self.clock), False

        def start() -> Result:
            nonlocal started
            if deadline.cancelled or deadline.remaining < 0:
                raise QueueBusy("the request was not started within its time limit; try again")
            started, self._current = True, deadline
            try:
                return job(deadline)
            finally:
                self._current = None

        self.length += 1
        future = self._worker.submit(start)
        future.add_done_callback(self._leave)
        result = asyncio.wrap_future(future)
        try:
            while deadline.remaining > -_GRACE_SECONDS:
                await asyncio.wait({result}, timeout=min(_POLL_SECONDS, deadline.remaining + _GRACE_SECONDS))
                if result.done():
                    return result.result()
                if is_disconnected is not None and await is_disconnected():
                    deadline.cancelled = True
            if started:
                deadline()
            raise QueueBusy("the request was not started within its time limit; try again")
        finally:
            if not result.done():
                deadline.cancelled = True
                result.cancel()

    def _leave(self, future: object) -> None:
        self.length -= 1

    def close(self) -> None:
        """Accept no more jobs and cancel the current one: Python waits for every thread before it exits."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        if (deadline := self._current) is not None:
            deadline.cancelled = True


class JobQueues:
    """`interactive` for requests of tens of milliseconds, which no upload or fit of seconds in `background` delays."""

    def __init__(self, limits: Limits, warm_up: Callable[[], object]):
        self.interactive = JobQueue("interactive", limits.interactive_seconds, limits.queue_length, warm_up)
        self.background = JobQueue("background", limits.background_seconds, limits.queue_length)

    def close(self) -> None:
        self.interactive.close()
        self.background.close()
