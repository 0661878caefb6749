"""Server of `fillin play` in a thread of the tests, on a free port."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from fillin.play import listen
from fillin.play.app import create_server
from fillin.play.job_queue import JobQueue, JobQueues
from fillin.play.limits import Limits
from support.helpers import TIMEOUT

GENEROUS = Limits(
    header_seconds=3600, body_seconds=3600, keep_alive_seconds=3600, interactive_seconds=3600, background_seconds=3600
)


class ManualClock:
    """Clock that stands still until a test advances it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class PlayServer:
    """Running server: its address, job queues and open connections."""

    url: str
    queues: JobQueues
    connections: set[Any]

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def check_connections(self) -> None:
        """Check every connection for missing headers now, as the server's timer does."""

        async def check(connection) -> None:
            connection.check()

        for connection in list(self.connections):
            asyncio.run_coroutine_threadsafe(check(connection), connection.loop).result(TIMEOUT)


@contextmanager
def run_server(limits: Limits = GENEROUS) -> Iterator[PlayServer]:
    with closing(listen(None)) as listener:
        server: Any = create_server(listener, limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            yield PlayServer(url, server.config.app.app.state.queues, server.server_state.connections)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def pause(queue: JobQueue) -> Iterator[None]:
    """Start no job of the queue within the block; requests wait."""
    end = threading.Event()
    queue._worker.submit(end.wait)
    try:
        yield
    finally:
        end.set()


def wait_until(condition: Callable[[], object]) -> None:
    end = monotonic() + TIMEOUT
    while not condition():
        assert monotonic() < end, "the condition never held"
        sleep(0.01)
