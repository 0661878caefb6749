"""Time and memory of anything that can be called, and what it was measured on.

Time is the minimum over rounds in which every candidate runs once: a busy moment then slows all of them a little
instead of one of them a lot, and the minimum is what the work itself takes.
"""

import ctypes
import gc
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

Run = Callable[[], object]
Tick = Callable[[], object]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Cost:
    """The fastest of some runs, and the most memory that one needed beyond what was there before (None: unknown)."""

    seconds: float
    bytes: int | None


def costs(runs: Mapping[str, Run], rounds: int, tick: Tick = lambda: None, turn: float = 0.0) -> dict[str, Cost]:
    """The cost of each candidate. `tick` is called `ticks(len(runs), rounds)` times, for a progress bar."""
    memory = {}
    for name, run in runs.items():
        run()  # what is made once (threads, caches, lazily compiled kernels) belongs to nobody
        tick()
        memory[name] = peak(run)
        tick()
    times = fastest(runs, rounds, tick, turn)
    return {name: Cost(times[name], memory[name]) for name in runs}


def ticks(candidates: int, rounds: int) -> int:
    """How often `costs` ticks: each candidate warms up, is weighed, and is timed `rounds` times."""
    return candidates * (rounds + 2)


def fastest(runs: Mapping[str, Run], rounds: int, tick: Tick = lambda: None, turn: float = 0.0) -> dict[str, float]:
    """Seconds of each candidate: min over rounds, each candidate once a round, or as often as `turn` seconds allow:
    where one takes milliseconds and another seconds, the first would start each time with its caches emptied."""
    best = dict.fromkeys(runs, float("inf"))
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection would be charged to whoever runs at the time
    try:
        for _ in range(rounds):
            for name, run in runs.items():
                end = perf_counter() + turn
                while True:
                    start = perf_counter()
                    run()
                    now = perf_counter()
                    best[name] = min(best[name], now - start)
                    if now >= end:
                        break
                tick()
    finally:
        if collecting:
            gc.enable()
    return best


def peak(run: Run) -> int | None:
    """max over the run of resident memory − resident memory before it, in bytes; None where Linux does not tell.

    Freed memory goes back to the system first (malloc_trim), or a run could reuse it unseen.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        _CLEAR.write_text("5")  # VmHWM, the high-water mark, starts again from here
        before = _resident("VmRSS")
    except OSError:
        return None
    run()
    after = _resident("VmHWM")
    return None if before is None or after is None else max(0, after - before)


def _resident(field: str) -> int | None:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    return None


def machine() -> dict[str, Any]:
    """What a figure was measured on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
