"""Who computes when: one computation at a time in each lane, a bounded queue before it, and a time limit.

What is dragged has a lane of its own, so that no table or photograph that someone else dropped holds it up.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TypeVar

from fillin.errors import InputError
from fillin.play import limits

Answer = TypeVar("Answer")


class Busy(Exception):
    """The queue is full, or the turn of a request did not come in time: try again."""


class TooLong(InputError):
    """A computation was stopped at its time limit."""


class Deadline:
    """When an answer must be there. Long computations call it as their `tick`, and it ends them."""

    def __init__(self, seconds: float):
        self.seconds, self.end = seconds, monotonic() + seconds

    @property
    def left(self) -> float:
        return self.end - monotonic()

    def __call__(self, done: int = 0) -> None:
        if self.left < 0:
            raise TooLong(
                f"this took more than {self.seconds:g} s and was stopped; ask for less: fewer points or pixels"
            )


class Lane:
    """`await lane.run(work)`: `work(deadline)` in the lane's one thread, once those before it are done."""

    def __init__(self, name: str, seconds: float, waiting: int = limits.WAITING):
        self.name, self.seconds, self.most = name, seconds, waiting
        self.queued = 0
        self._threads = ThreadPoolExecutor(1, f"fillin-{name}", initializer=_prepare)

    async def run(self, work: Callable[[Deadline], Answer]) -> Answer:
        if self.queued >= self.most:
            raise Busy(f"{self.most} requests are waiting already; try again in a second")
        deadline, begun = Deadline(self.seconds), False

        def turn() -> Answer:
            nonlocal begun
            if deadline.left < 0:  # nobody waits for it any more
                raise Busy("the turn of this request did not come in time; try again")
            begun = True
            return work(deadline)

        self.queued += 1
        future = self._threads.submit(turn)
        future.add_done_callback(lambda _: self._leave())
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self.seconds + 1.0)
        except TimeoutError:
            if not begun:
                raise Busy("the turn of this request did not come in time; try again") from None
            deadline()
            raise

    def _leave(self) -> None:
        self.queued -= 1

    def close(self) -> None:
        """No more work; what is under way is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _prepare() -> None:
    """Tensors here are small: one thread has done its work before a second has begun."""
    import torch

    torch.set_num_threads(1)


class Lanes:
    """`quick`: what follows a hand, tens of milliseconds; `slow`: what is dropped, seconds."""

    def __init__(self):
        self.quick, self.slow = Lane("quick", limits.QUICK), Lane("slow", limits.SLOW)

    def close(self) -> None:
        self.quick.close()
        self.slow.close()
