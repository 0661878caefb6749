"""Optional dependencies, progress bars and thread counts."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import ModuleType

from fillin.errors import InputError

# The extra of the distribution that installs each optional module. Modules that are not listed come with `fill`.
EXTRAS = {
    "xarray": "fields", "netCDF4": "fields", "zarr": "fields", "dask": "fields", "PIL": "images", "fastapi": "play",
    "uvicorn": "play", "onnx": "export", "onnxscript": "export",
}  # fmt: skip

Tick = Callable[..., object]  # tick() or tick(n): one more step is done, or n more
_listener: ContextVar[Tick | None] = ContextVar("listener", default=None)


def require(module: str) -> ModuleType:
    """Import an optional module, or raise an error that names the extra which installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(module.split(".")[0], "fill")
        raise InputError(f"{error.name} is needed, and not installed: pip install 'fillin[{extra}]'") from error


@contextmanager
def progress(description: str, total: int, shown: bool = True, delay: float = 0.0) -> Iterator[Tick]:
    """Yield `tick(n=1)`, which reports that n more of `total` steps are done.

    A terminal shows a bar that disappears at the end, from the first step after `delay` seconds on; anything else shows
    nothing. Within `progress_to(listener)` the listener receives the steps instead.
    """
    listener = _listener.get()
    if listener is not None:
        yield lambda steps=1: listener(steps)
        return
    if not (shown and sys.stderr.isatty()):
        yield lambda steps=1: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task, begin = bar.add_task(description, total=total), monotonic()

    def tick(steps: int = 1) -> None:
        if not bar.live.is_started and monotonic() - begin >= delay:
            bar.start()
        bar.advance(task, steps)

    try:
        if not delay:
            bar.start()
        yield tick
    finally:
        bar.stop()


@contextmanager
def progress_to(listener: Tick) -> Iterator[None]:
    """Send the progress of everything within the block to `listener` instead of a bar.

    An exception raised by the listener ends the work. A server stops a fit at its time limit in this way, and no
    estimator needs an argument for it.

    >>> with progress_to(print), progress("counting", 2) as tick:
    ...     tick(1)
    1
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Run torch on `number` threads within the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def read_vendor(cpu: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the maker of the processor that a file of Linux describes: that of this machine."""
    with suppress(OSError):
        vendor = re.search(r"^vendor_id\s*:\s*(\S+)", cpu.read_text(encoding="utf-8"), re.MULTILINE)
        return vendor[1] if vendor else None
    return None
