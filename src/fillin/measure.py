"""Time and memory of callables, and the machine they were measured on.

The time of a candidate is its minimum over rounds in which every candidate runs once. A busy moment then slows all of
them a little instead of one of them a lot, and the minimum is what the work itself takes.
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

from fillin.runtime import Tick

Workload = Callable[[], object]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Cost:
    """Seconds of the fastest run, and peak memory in bytes beyond what was in use before (None: unknown)."""

    seconds: float
    bytes: int | None


def measure_costs(
    workloads: Mapping[str, Workload], rounds: int, tick: Tick = lambda: None, turn: float = 0.0
) -> dict[str, Cost]:
    """Measure time and memory of each workload. `tick` is called `count_ticks(len(workloads), rounds)` times."""
    memory = {}
    for name, run in workloads.items():
        run()  # warm up: threads, caches and lazily compiled kernels are made once
        tick()
        memory[name] = peak_memory(run)
        tick()
    times = fastest_times(workloads, rounds, tick, turn)
    return {name: Cost(times[name], memory[name]) for name in workloads}


def count_ticks(candidates: int, rounds: int) -> int:
    """Return how often `measure_costs` ticks: a warm-up, a memory run and `rounds` timed runs of each candidate."""
    return candidates * (rounds + 2)


def fastest_times(
    workloads: Mapping[str, Workload], rounds: int, tick: Tick = lambda: None, turn: float = 0.0
) -> dict[str, float]:
    """Return the minimum seconds of each workload over the rounds.

    A workload runs once a round, or again until `turn` seconds have passed: a workload of milliseconds beside one of
    seconds would otherwise start every time with cold caches.
    """
    best = dict.fromkeys(workloads, float("inf"))
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection would be charged to the workload that runs at the time
    try:
        for _ in range(rounds):
            for name, run in workloads.items():
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


def peak_memory(run: Workload) -> int | None:
    """Return the peak resident memory of a run minus that before it, in bytes; None where the system has no /proc.

    Freed memory is first given back to the system (malloc_trim), or a run could reuse it unseen.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        _CLEAR.write_text("5")  # reset VmHWM, the high-water mark
        before = _resident_bytes("VmRSS")
    except OSError:
        return None
    run()
    after = _resident_bytes("VmHWM")
    return None if before is None or after is None else max(0, after - before)


def _resident_bytes(field: str) -> int | None:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    return None


def describe_machine() -> dict[str, Any]:
    """Describe the hardware and the versions that a figure was measured with."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
