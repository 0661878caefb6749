"""`fillin play` in a thread of the tests, on a port of its own."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from time import sleep

from fillin.play.job_queue import Lanes
from fillin.play.server import listen, server_on


@contextmanager
def served() -> Iterator[str]:
    """Its address."""
    with running() as (address, _):
        yield address


@contextmanager
def running() -> Iterator[tuple[str, Lanes]]:
    """Its address, and where it computes."""
    with closing(listen(None)) as listening:
        server = server_on(listening)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                sleep(0.01)
            lanes = server.config.app.app.state.lanes  # type: ignore[union-attr]
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", lanes
        finally:
            server.should_exit = True
            thread.join()
