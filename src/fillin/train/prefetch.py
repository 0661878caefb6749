"""Prefetching: a thread draws the next batches while a step is trained on."""

import queue
import threading
from collections.abc import Generator
from typing import Any

from fillin.data.task import Batches


def prefetch(stream: Batches, start: int, ahead: int = 8) -> Generator[Any, None, None]:
    """Yield stream.task(start), stream.task(start + 1), … without end, with up to `ahead` batches drawn in advance.

    The thread ends when the iterator is closed or deleted. An error of the stream is raised in place of its batch.
    """
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
