"""A bar on a terminal, gone once the work is done; else nothing, or whoever listens."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Tick = Callable[[int], object]
_listener: ContextVar[Tick | None] = ContextVar("listener", default=None)


@contextmanager
def progress(what: str, total: int, shown: bool = True) -> Iterator[Tick]:
    """`tick(n)` says that n more of `total` are done."""
    listener = _listener.get()
    if listener is not None:
        yield listener
        return
    if not (shown and sys.stderr.isatty()):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def told_to(listener: Tick) -> Iterator[None]:
    """Whatever makes progress within the block tells it to `listener` instead of a bar. What that raises ends the work:
    so a server stops a fit at its time limit, without a word about time in any estimator.

    >>> with told_to(print), progress("counting", 2) as tick:
    ...     tick(1)
    1
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
