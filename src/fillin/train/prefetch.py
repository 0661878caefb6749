"""Batches made ahead: a thread draws step s + 1 while step s is trained on."""

import queue
import threading
from collections.abc import Generator
from typing import Any

from fillin.data.task import Batches


def prefetch(stream: Batches, start: int, ahead: int = 8) -> Generator[Any, None, None]:
    """stream.task(start), stream.task(start + 1), … without end, up to `ahead` of them made before they are asked for.

    Close the iterator (or drop it) and the thread ends. An error in the stream is raised where its batch would come.
    """
    made: queue.Queue[Any] = queue.Queue(ahead)
    over = threading.Event()

    def put(item: Any) -> None:
        while not over.is_set():
            try:
                made.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def make() -> None:
        step = start
        while not over.is_set():
            try:
                put(stream.task(step))
            except BaseException as error:
                put(error)
                return
            step += 1

    thread = threading.Thread(target=make, name="fillin-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item = made.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        over.set()
        thread.join()
