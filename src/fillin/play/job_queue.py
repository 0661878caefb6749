"""Who computes when: one computation at a time in each lane, a bounded queue before it, and a time limit.

What is dragged has a lane of its own, so that no table or photograph that someone else dropped holds it up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TypeVar

from fillin.errors import InputError
from fillin.play import limits
from fillin.play.models import load_all

Answer = TypeVar("Answer")
Gone = Callable[[], Awaitable[bool]]
_LOOK, _GRACE = 0.5, 1.0  # seconds between looks for who has left, and that a step may take beyond the limit


class Busy(Exception):
    """The queue is full, or the turn of a request did not come in time: try again."""


class TooLong(InputError):
    """A computation was stopped at its time limit."""


class Deadline:
    """When an answer must be there. Long computations call it as their `tick`, after each step, and it ends them: a
    thread cannot be ended from outside."""

    def __init__(self, seconds: float):
        self.seconds, self.end, self.over = seconds, monotonic() + seconds, False

    @property
    def left(self) -> float:
        return self.end - monotonic()

    def give_up(self) -> None:
        """Nobody waits for the answer any more: the next tick is the last."""
        self.over = True

    def __call__(self, done: int = 0) -> None:
        if self.over:
            raise Busy("this was stopped: nobody waits for the answer any more")
        if self.left < 0:
            raise TooLong(
                f"this took more than {self.seconds:g} s and was stopped; ask for less: fewer points, pixels, rows or "
                "columns"
            )


class Lane:
    """`await lane.run(work)`: `work(deadline)` in the lane's one thread, once those before it are done."""

    def __init__(
        self, name: str, seconds: float, waiting: int = limits.WAITING, warm: Callable[[], object] = lambda: None
    ):
        self.name, self.seconds, self.most = name, seconds, waiting
        self.queued = 0
        self._now: Deadline | None = None  # of what is computed at the moment
        self._threads = ThreadPoolExecutor(1, f"fillin-{name}", initializer=_prepare)
        self._warm = self._threads.submit(warm)

    async def run(self, work: Callable[[Deadline], Answer], gone: Gone | None = None) -> Answer:
        """`gone()` says whether who asked has left: then the work ends after its step, and the lane is free."""
        if self.queued >= self.most:
            raise Busy(f"{self.most} requests are waiting already; try again in a second")
        await self._ready()
        deadline, begun = Deadline(self.seconds), False

        def turn() -> Answer:
            nonlocal begun
            if deadline.over or deadline.left < 0:  # nobody waits for it any more
                raise Busy("the turn of this request did not come in time; try again")
            begun, self._now = True, deadline
            try:
                return work(deadline)
            finally:
                self._now = None

        self.queued += 1
        future = self._threads.submit(turn)
        future.add_done_callback(lambda _: self._leave())
        answer = asyncio.wrap_future(future)
        try:
            while deadline.left > -_GRACE:
                await asyncio.wait({answer}, timeout=min(_LOOK, deadline.left + _GRACE))
                if answer.done():
                    return answer.result()
                if gone is not None and await gone():
                    deadline.give_up()
            if begun:
                deadline()
            raise Busy("the turn of this request did not come in time; try again")
        finally:
            if not answer.done():
                deadline.give_up()
                answer.cancel()

    async def _ready(self) -> None:
        """What is loaded once is not in the time of who comes first."""
        if self._warm.done():
            return
        warm = asyncio.wrap_future(self._warm)
        try:
            await asyncio.wait({warm})
        finally:
            if not warm.cancel() and not warm.cancelled():
                warm.exception()  # whoever needs it says what is wrong

    def _leave(self) -> None:
        self.queued -= 1

    def close(self) -> None:
        """No more work, and what is under way ends after its step: Python waits for every thread before it ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if (deadline := self._now) is not None:
            deadline.give_up()


def _prepare() -> None:
    """Tensors here are small: one thread has done its work before a second has begun."""
    import torch

    torch.set_num_threads(1)


class Lanes:
    """`quick`: what follows a hand, tens of milliseconds; `slow`: what is dropped, seconds."""

    def __init__(self):
        self.quick = Lane("quick", limits.QUICK, warm=load_all)
        self.slow = Lane("slow", limits.SLOW)

    def close(self) -> None:
        self.quick.close()
        self.slow.close()
