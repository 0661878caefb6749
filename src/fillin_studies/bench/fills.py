"""Time and memory of `fillin fill` on files of several sizes, each in a process of its own, as a user runs it.

Seconds are those of the whole command: the interpreter, imports, weights, reading, filling, the figure and writing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter

from fillin.errors import choose
from fillin.runtime import Tick, require

MISSING = 0.2  # share of cells
CLOUD_WIDTH = 5.0  # cells
# the command, then what it took; the high-water mark of this process alone: that of a child would include its parent
_CODE = """\
import json, os, re, sys
from pathlib import Path
from fillin.cli import main
status = main(sys.argv[2:])
try:
    peak = re.search(r"^VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
except OSError:
    peak = None
cost = {"cpu_seconds": sum(os.times()[:2]), "megabytes": None if peak is None else int(peak[1]) / 1024}
Path(sys.argv[1]).write_text(json.dumps(cost))
sys.exit(status)
"""


class FillCase(NamedTuple):
    """A file of rows × columns, or of a field of times × rows × columns, and what filling it may take. `quick` is a
    small size, to check that it runs."""

    name: str
    shape: tuple[int, ...]
    quick: tuple[int, ...]
    write: Callable[[Path, tuple[int, ...], int], Path]  # folder, shape, seed
    max_seconds: float
    max_megabytes: float | None = None


def write_columns(folder: Path, shape: tuple[int, ...], seed: int) -> Path:
    """Write a CSV file of columns that go together: slow and fast waves, a random walk, and noise."""
    random, (n, d) = np.random.default_rng(seed), shape
    t = np.arange(n)
    walk = random.normal(size=n).cumsum() / np.sqrt(n)
    shared = np.stack([np.sin(t / 200), np.sin(t / 12), walk], 1)
    y = shared @ random.normal(size=(3, d)) + 0.2 * random.normal(size=(n, d))
    y[random.random(y.shape) < MISSING] = np.nan
    names = ",".join(["t", *(f"y{j}" for j in range(d))])
    lines = (",".join([str(i), *("" if np.isnan(v) else f"{v:.4f}" for v in row)]) for i, row in enumerate(y))
    path = folder / "columns.csv"
    path.write_text("\n".join([names, *lines]) + "\n")
    return path


def write_field(folder: Path, shape: tuple[int, ...], seed: int) -> Path:
    """Write a NetCDF file of a field in time, with clouds in every slice."""
    xarray, random = require("xarray"), np.random.default_rng(seed)
    t, r, c = np.meshgrid(*map(np.arange, shape), indexing="ij")
    values = 3 * np.sin(r / 30) + 2 * np.cos(2 * np.pi * t / 12) * np.cos(c / 40) + np.sin((c - t) / 12 + r / 25)
    values += 0.05 * random.normal(size=shape)
    for part in values:
        cloud = gaussian_filter(random.normal(size=part.shape), CLOUD_WIDTH, mode="wrap")
        part[cloud > np.quantile(cloud, 1 - MISSING)] = np.nan
    times = (np.datetime64("2020-01", "M") + np.arange(shape[0])).astype("datetime64[ns]")
    coordinates = {"time": times, "lat": np.arange(shape[1]) / 4, "lon": np.arange(shape[2]) / 4}
    field = xarray.DataArray(values.astype(np.float32), coordinates, ("time", "lat", "lon"), name="v")
    path = folder / "field.nc"
    field.to_netcdf(path)
    return path


CASES = (
    FillCase("series", (500, 1), (60, 1), write_columns, 3),
    FillCase("columns", (1_000, 12), (60, 12), write_columns, 10),
    FillCase("long", (100_000, 5), (1_000, 5), write_columns, 120, 2_000),
    FillCase("field", (24, 200, 300), (3, 30, 40), write_field, 120),
)


def select_cases(names: Sequence[str], quick: bool) -> list[FillCase]:
    """Return the cases of these names (none: all), small ones with `quick`."""
    by_name = {case.name: case for case in CASES}
    chosen = [by_name[choose("case", name, by_name)] for name in names] or CASES
    return [case._replace(shape=case.quick) if quick else case for case in chosen]


def run_command(words: Sequence[str], folder: Path, threads: int) -> dict[str, Any]:
    """Run `fillin` with these words in a process of its own. Return its seconds by the clock and of processor time,
    and its peak memory (None where the system does not count it)."""
    cost = folder / "cost.json"
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    start = perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", _CODE, str(cost), *words], env={**os.environ, **limits}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    seconds = perf_counter() - start
    if ended.returncode:
        raise RuntimeError(f"fillin {' '.join(words)} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return {"seconds": seconds, **json.loads(cost.read_text())}


def measure_fills(
    cases: Sequence[FillCase], threads: int, rounds: int, seed: int = 0, tick: Tick = lambda: None
) -> list[dict[str, Any]]:
    """Measure each case `rounds` times; ticks once a run. Seconds are those of the fastest run, memory is the most."""
    rows = []
    for case in cases:
        with TemporaryDirectory() as name:
            folder = Path(name)
            path = case.write(folder, case.shape, seed)
            words = ["fill", str(path), "--force", "--threads", str(threads)]
            runs = []
            for _ in range(rounds):
                runs.append(run_command(words, folder, threads))
                tick()
        fastest = min(runs, key=lambda run: run["seconds"])
        memory = [run["megabytes"] for run in runs if run["megabytes"] is not None]
        megabytes = max(memory) if memory else None
        fits = case.max_megabytes is None or megabytes is None or megabytes <= case.max_megabytes
        rows.append({
            "case": case.name, "size": " × ".join(f"{n:,}" for n in case.shape), **fastest, "megabytes": megabytes,
            "max_seconds": case.max_seconds, "max_megabytes": case.max_megabytes,
            "holds": fastest["seconds"] <= case.max_seconds and fits,
        })  # fmt: skip
    return rows
