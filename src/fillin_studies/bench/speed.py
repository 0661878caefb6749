"""Speed of what users wait for, against the plain path: attention by `reference`, which stores every pair, and
products of matrices by the library that PyTorch chooses.

Each case is measured on one thread and on two. A case has a required ratio; candidates take turns within a round.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fillin import measure
from fillin.attention import kernel
from fillin.layers import MultiHeadAttention
from fillin.linear import plain_products
from fillin.measure import AttentionInputs, Workload, fastest_times
from fillin.models import Process
from fillin.objectives import OBJECTIVES
from fillin.runtime import Tick, require, threads
from fillin.train.loop import TrainingModule, make_objective, make_optimiser
from fillin.train.recipe import build_model, make_stream, read_recipe
from fillin_studies.bench.models import StepSize, make_model, make_step, make_task

THREADS = (1, 2)
STEPS = 4  # training steps of the recipe `curve` that are timed together: their sizes differ
POINTS, MISSING = 1000, 0.2  # of the series that is filled
LARGE, SMALL = StepSize(256, 512, batch=2), StepSize(32, 64, batch=16)
MIN_SECONDS = 0.2  # that a workload runs in each round
SIDE, WINDOW = 64, 0.05  # pixels along an image, and the window of its attention as a share of the image


class SpeedCase(NamedTuple):
    """Two workloads. The ratio is time of `slow` over time of `fast` and is to be at least (or, where `at_least` is
    False, at most) `required`; `plain`, if any, is the same work as `fast` by the plain path."""

    name: str
    slow: str
    fast: str
    at_least: bool
    required: float
    workloads: Callable[[int], Mapping[str, Workload]]  # from a seed
    plain: str | None = None
    lanes: int | None = None  # of the build of the kernel, where it is not the widest
    inside: float | None = None  # share of pairs inside a window, which bounds what it saves


def use_reference(model: Process) -> Process:
    """Let every attention layer of a model use the plain path, and return it."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.backend = "reference"
    return model


def run_plainly(work: Workload) -> Workload:
    """Return the same work with products of matrices by the library that PyTorch chooses."""

    def run() -> object:
        with plain_products():
            return work()

    return run


def make_steps(size: StepSize, seed: int) -> dict[str, Workload]:
    """Forward + backward of te-tnp (RBF) as users have it and by the plain path, and of tnp-d."""
    task = make_task(size, seed)
    models: dict[str, Process] = {
        "te-tnp": make_model("te-tnp", seed, score="rbf"), "tnp-d": make_model("tnp-d", seed),
        "te-tnp, reference": make_model("te-tnp", seed, score="rbf", backend="reference"),
    }  # fmt: skip
    steps = {name: make_step(model, task) for name, model in models.items()}
    return {name: run_plainly(step) if "reference" in name else step for name, step in steps.items()}


def make_training_steps(seed: int) -> dict[str, Workload]:
    """Steps of the recipe `curve` with its data and optimiser, as it runs and by the plain path."""

    def make(backend: str) -> Workload:
        recipe = read_recipe("curve", ["--model.backend", backend, "--seed", str(seed)])
        stream, objective = make_stream(recipe), OBJECTIVES[recipe["objective"]["name"]]
        module = TrainingModule(build_model(recipe, stream), make_objective(recipe), objective)
        optimiser = make_optimiser(recipe, module)

        def run() -> None:
            for step in range(STEPS):
                module(*stream.task(step).parts).backward()
                optimiser.step()
                optimiser.zero_grad()

        return run

    return {"curve": make("auto"), "curve, reference": run_plainly(make("reference"))}


def make_fills(seed: int) -> dict[str, Workload]:
    """`fillin.fill` by the weights `curve` of a series with a fifth missing, as it runs and by the plain path."""
    import fillin
    from fillin.inference.context import load_filler

    pandas = require("pandas")
    random = np.random.default_rng(seed)
    x = np.arange(POINTS)
    y = np.sin(x / 20) + 0.3 * np.sin(x / 7) + 0.1 * random.normal(size=POINTS)
    frame = pandas.DataFrame({"t": x, "y": np.where(random.random(POINTS) < MISSING, np.nan, y)})
    return {
        "fill": lambda: fillin.fill(frame, x="t", y="y", model="curve"),
        "fill, reference": run_plainly(
            lambda: fillin.fill(frame, x="t", y="y", model=use_reference(load_filler("curve")))
        ),
    }


def make_windows(seed: int) -> dict[str, Workload]:
    """Self-attention of the pixels of an image within a learned window, and PyTorch's fused attention without one."""
    inputs = AttentionInputs(measure.sample_locations("grid", 2, SIDE * SIDE, seed), seed)
    window = measure.span_of_radius(measure.ball_radius(WINDOW, 2), 2)
    return {"window": inputs.attend("native", window), "fused": inputs.fused()}


def list_cases() -> list[SpeedCase]:
    """Return all cases; those of the kernel for each of its builds that this processor runs and has vectors for."""
    cases = [
        SpeedCase(f"te-tnp against tnp-d, batch {size.batch}, {size.label} points", "te-tnp", "tnp-d", False, 1.3,
                  lambda seed, size=size: make_steps(size, seed), "te-tnp, reference")
        for size in (LARGE, SMALL)
    ]  # fmt: skip
    cases.append(SpeedCase("a step of the recipe curve", "curve, reference", "curve", True, 1.6, make_training_steps))
    name = f"fillin.fill by curve, {POINTS:,} points, {100 * MISSING:g} % missing"
    cases.append(SpeedCase(name, "fill, reference", "fill", True, 2.5, make_fills))
    pixels = measure.sample_locations("grid", 2, SIDE * SIDE)
    inside = measure.fraction_inside(pixels, measure.ball_radius(WINDOW, 2))
    for lanes, required in ((16, 10.0), (8, 14.0)):
        if lanes in kernel.find_builds():
            name = f"{SIDE}×{SIDE} pixels, window of {100 * WINDOW:g} %, against fused without one, {lanes} lanes"
            cases.append(SpeedCase(name, "fused", "window", True, required, make_windows, lanes=lanes, inside=inside))
    return cases


def measure_times(case: SpeedCase, number: int, rounds: int, seed: int) -> dict[str, float]:
    """Return the seconds of each workload of a case on a number of threads."""
    with threads(number), kernel.use_build(case.lanes):
        workloads = case.workloads(seed)
        for run in workloads.values():
            run()  # warm up
        return fastest_times(workloads, rounds, min_seconds=MIN_SECONDS)


def measure_times_as_json(name: str, settings: str) -> str:
    """Measure the case of that name with the settings of another process; both are exchanged as JSON."""
    module_settings, arguments = json.loads(settings)
    globals().update(module_settings)
    case = next(case for case in list_cases() if case.name == name)
    return json.dumps(measure_times(case, *arguments))


def measure_times_on_avx2(case: SpeedCase, number: int, rounds: int, seed: int) -> dict[str, float]:
    """Return the same with PyTorch limited to AVX2, as on a processor without AVX-512: it chooses when it is loaded,
    so another process measures."""
    settings = {name: globals()[name] for name in ("SIDE", "WINDOW", "MIN_SECONDS")}
    code = "import sys; from fillin_studies.bench import speed; print(speed.measure_times_as_json(*sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-c", code, case.name, json.dumps([settings, [number, rounds, seed]])],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise RuntimeError(f"the benchmark of {case.name!r} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def measure_speed(rounds: int, seed: int = 0, tick: Tick = lambda: None) -> list[dict[str, Any]]:
    """Measure all cases on one thread and on two; ticks once a case and number of threads. `ratio` is that of the
    case, `gain` the time of the plain path over that of the path that runs, and `of_limit` for a window (time / time
    without it) / share of pairs inside: at 1 only the pairs inside cost anything."""
    rows = []
    for case in list_cases():
        for number in THREADS:
            narrow = case.lanes is not None and case.lanes < max(kernel.find_builds())
            times = (measure_times_on_avx2 if narrow else measure_times)(case, number, rounds, seed)
            ratio = times[case.slow] / times[case.fast]
            gain = times[case.plain] / times[case.slow] if case.plain else None
            holds = ratio >= case.required if case.at_least else ratio <= case.required
            rows.append({
                "case": case.name, "threads": number, "ratio": ratio, "at_least": case.at_least,
                "required": case.required, "holds": holds, "gain": gain,
                "of_limit": 1 / (ratio * case.inside) if case.inside else None,
                "milliseconds": {name: 1e3 * seconds for name, seconds in times.items()},
            })  # fmt: skip
            tick()
    return rows


def count_ticks(cases: Sequence[SpeedCase]) -> int:
    return len(THREADS) * len(cases)
