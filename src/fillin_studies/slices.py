"""Fields in time: 12 of 48 slices lose cells, which are filled from their own slice, from other times, or from both.

A cell is a field × a kind of gaps × a method × a seed of the gaps, which are the same for every method.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.interpolate import CloughTocher2DInterpolator, LinearNDInterpolator, NearestNDInterpolator
from scipy.ndimage import gaussian_filter

import fillin
from fillin.errors import InputError
from fillin.runtime import require
from fillin_studies.base import DataSets, MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport
from fillin_studies.fill.methods import digest_weights
from fillin_studies.report import format_table

Slices = Float[ndarray, "t r c"]
SLICES, WITH_GAPS = 48, 12
RANDOM_SHARE, CLOUD_SHARE, CLOUD_WIDTH = 0.4, 0.35, 5.0
KINDS = ("random", "clouds", "moving clouds")
EOFS = (1, 2, 4, 8, 12)
_EOF_ROUNDS, _EOF_HELD_OUT = 50, 0.03
JOINT, ALONE = "fillin", "fillin, each slice alone"


def draw_gaps(shape: tuple[int, int, int], kind: str, seed: int) -> Bool[ndarray, "t r c"]:
    """Return the hidden cells: at random or under clouds in 12 slices anywhere, or under clouds that drift through 12
    successive slices."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    hidden = np.zeros(shape, dtype=bool)
    if kind == "moving clouds":
        cloud, first = _draw_cloud(shape[1:], random), (shape[0] - WITH_GAPS) // 2
        for i in range(WITH_GAPS):
            hidden[first + i] = np.roll(cloud, 3 * i, axis=-1)
        return hidden
    for i in random.permutation(shape[0])[:WITH_GAPS]:
        hidden[i] = random.random(shape[1:]) < RANDOM_SHARE if kind == "random" else _draw_cloud(shape[1:], random)
    return hidden


def _draw_cloud(shape: tuple[int, int], random: np.random.Generator) -> Bool[ndarray, "r c"]:
    smooth = gaussian_filter(random.standard_normal(shape), CLOUD_WIDTH, mode="wrap")
    return smooth > np.quantile(smooth, 1 - CLOUD_SHARE)


class Filled(NamedTuple):
    """Values of the hidden cells, and their 95 % intervals, where there are any."""

    value: Float[ndarray, "n"]
    low: Float[ndarray, "n"] | None = None
    high: Float[ndarray, "n"] | None = None


def fill_by_model(data: Any, hidden: ndarray, alone: bool) -> Filled:
    filled = fillin.fill(data, alone=alone)
    return Filled(*(filled[f"{data.name}_{part}"].values[hidden] for part in ("filled", "low", "high")))


def fill_by_eofs(y: Slices, hidden: ndarray) -> ndarray:
    """Fill by the mean of each cell and empirical orthogonal functions, iterated (Beckers & Rixen 2003), as many as
    predict held-out observed cells best."""
    observed = np.isfinite(y)
    held_out = observed & (np.random.default_rng(0).random(y.shape) < _EOF_HELD_OUT)

    def error(count: int) -> float:
        return float(np.square(_complete(np.where(held_out, np.nan, y), count)[held_out] - y[held_out]).mean())

    return _complete(y, min((k for k in EOFS if k < len(y)), key=error))[hidden]


def _complete(y: Slices, count: int) -> Slices:
    flat = y.reshape(len(y), -1).astype(float)
    inside = np.isfinite(flat).any(0)
    z = flat[:, inside]
    missing, mean = np.isnan(z), np.nanmean(z, 0)
    anomalies = np.where(missing, 0, z - mean)
    for _ in range(_EOF_ROUNDS):
        left, size, right = np.linalg.svd(anomalies, full_matrices=False)
        anomalies = np.where(missing, (left[:, :count] * size[:count]) @ right[:count], z - mean)
    flat[:, inside] = anomalies + mean
    return flat.reshape(y.shape)


def fill_in_space(y: Slices, hidden: ndarray, interpolator: Callable[..., Any]) -> ndarray:
    """Interpolate each slice between its observed cells, and by the nearest one beyond them."""
    at = np.stack(np.meshgrid(*map(np.arange, y.shape[1:]), indexing="ij"), -1).astype(float)
    parts = []
    for field, gaps in zip(y, hidden, strict=True):
        if gaps.any():
            seen = np.isfinite(field)
            value = interpolator(at[seen], field[seen])(at[gaps])
            nearest = NearestNDInterpolator(at[seen], field[seen])(at[gaps])
            parts.append(np.where(np.isnan(value), nearest, value))
    return np.concatenate(parts)


def fill_in_time(y: Slices, hidden: ndarray) -> ndarray:
    """Interpolate each cell linearly between its observed times."""
    filled, steps = y.astype(float), np.arange(len(y))
    for row, column in np.argwhere(hidden.any(0)):
        seen = np.isfinite(y[:, row, column])
        if seen.any():
            filled[:, row, column] = np.interp(steps, steps[seen], y[seen, row, column])
    return filled[hidden]


METHODS: dict[str, Callable[[Any, ndarray], Filled]] = {
    JOINT: lambda data, hidden: fill_by_model(data, hidden, alone=False),
    ALONE: lambda data, hidden: fill_by_model(data, hidden, alone=True),
    "EOFs": lambda data, hidden: Filled(fill_by_eofs(data.values, hidden)),
    "cubic in space": lambda data, hidden: Filled(fill_in_space(data.values, hidden, CloughTocher2DInterpolator)),
    "linear in space": lambda data, hidden: Filled(fill_in_space(data.values, hidden, LinearNDInterpolator)),
    "linear in time": lambda data, hidden: Filled(fill_in_time(data.values, hidden)),
}


def read_slices(path: Path) -> Any:
    """Read the first 48 slices of the only variable with three dimensions."""
    dataset = require("xarray").open_dataset(path)
    names = [name for name, part in dataset.data_vars.items() if part.ndim == 3 and part.dtype.kind == "f"]
    if len(names) != 1:
        raise InputError(f"{path} must have one variable with three dimensions, has {len(names)}; remove the others")
    return dataset[names[0]][:SLICES].load()


def make_slices() -> Any:
    """Return a made-up field: a mean pattern, an annual cycle and two drifting waves, over 48 months."""
    xarray = require("xarray")
    t, r, c = np.meshgrid(np.arange(SLICES), np.arange(14), np.arange(20), indexing="ij")
    values = 3 * np.sin(r / 4) + 2 * np.cos(2 * np.pi * t / 12) * np.cos(c / 6) + np.sin((c - t / 2) / 3 + r / 7)
    values = values + 0.05 * np.random.default_rng(0).normal(size=values.shape)
    time = np.datetime64("2020-01", "M") + np.arange(SLICES)
    coordinates = {"time": time.astype("datetime64[ns]"), "lat": np.arange(14.0), "lon": np.arange(20.0)}
    return xarray.DataArray(values, coordinates, ("time", "lat", "lon"), name="v")


class SlicesStudy(MethodStudy):
    name = "slices"
    title = "fields in time, of which some slices have gaps"
    question = (
        "A map under moving clouds can be filled from its own observed cells, from the same cells at other times, or "
        "from both. Which is best, and do the 95 % intervals of fillin contain 95 % of the values?"
    )
    repeats = 1, 3  # seeds of the gaps

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        super().__init__(data, repeats)
        self.fields = find_fields(data)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        return {
            f"{field}, {kind}, {seed}, {method}": {"data": field, "kind": kind, "gaps": seed, "method": method}
            for seed in range(self.repeats[0 if quick else 1])
            for field in self.fields.sets
            for kind in KINDS
            for method in METHODS
        }

    def version_of(self, settings: RecipeSettings) -> str:
        ours = settings["method"] in (JOINT, ALONE)
        return f"{self.version}" + (f", weights {digest_weights('sheet-2d')}" if ours else "")

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        field = self.fields.sets[settings["data"]]()
        truth = field.values.astype(float)
        hidden = draw_gaps(truth.shape, settings["kind"], settings["gaps"]) & np.isfinite(truth)
        observed = field.copy(data=np.where(hidden, np.nan, truth).astype(field.dtype))
        start = process_time()
        filled = METHODS[settings["method"]](observed, hidden)
        seconds = process_time() - start
        error = (filled.value - truth[hidden]) / np.nanstd(truth)
        scores = {"rmse": float(np.sqrt(np.square(error).mean())), "mae": float(np.abs(error).mean())}
        if filled.low is not None:
            scores["covered"] = float(((filled.low <= truth[hidden]) & (truth[hidden] <= filled.high)).mean())
        return {**{key: settings[key] for key in ("data", "kind", "gaps", "method")}, **scores, "seconds": seconds}

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        measured = [cell.result for cell in cells]
        groups = dict.fromkeys((cell["data"], cell["kind"]) for cell in measured)
        methods = [name for name in METHODS if any(cell["method"] == name for cell in measured)]

        def mean(data: str, kind: str, method: str, key: str) -> float:
            chosen = [
                c[key] for c in measured if (c["data"], c["kind"], c["method"]) == (data, kind, method) and key in c
            ]
            return float(np.mean(chosen)) if chosen else float("nan")

        rows, covered, seconds, findings = [], [], [], []
        for data, kind in groups:
            errors = {method: mean(data, kind, method, "rmse") for method in methods}
            rows.append([f"{data}, {kind}", *(f"{error:.4f}" for error in errors.values())])
            covered.append([f"{data}, {kind}", *(f"{mean(data, kind, m, 'covered'):.3f}" for m in (JOINT, ALONE))])
            seconds.append([f"{data}, {kind}", *(f"{mean(data, kind, m, 'seconds'):.2f}" for m in methods)])
            others = {name: error for name, error in errors.items() if name != JOINT and np.isfinite(error)}
            if np.isfinite(errors.get(JOINT, np.nan)) and others:
                best = min(others, key=lambda name: others[name])
                findings.append(
                    f"{data}, {kind}: {JOINT} {errors[JOINT]:.4f}, the best other method ({best}) {others[best]:.4f}."
                )
        n_seeds = len({cell["gaps"] for cell in measured})
        procedure = (
            f"The first {SLICES} slices, {WITH_GAPS} of them with gaps: {RANDOM_SHARE:.0%} of the cells at random, "
            f"clouds over {CLOUD_SHARE:.0%} of the cells, or clouds that drift through {WITH_GAPS} successive slices. "
            f"Seeds of the gaps: {n_seeds}. Errors are in standard deviations of the field, seconds processor time. "
            "The real fields were used in development, with other gaps."
        )
        more = [
            "## Share of hidden cells inside the 95 % interval", "", *format_table(["", JOINT, ALONE], covered), "",
            "## Seconds", "", *format_table(["", *methods], seconds),
        ]  # fmt: skip
        return StudyReport([*findings, *self.fields.left_out], ["RMSE", *methods], rows, more=more, method=procedure)


def find_fields(folder: Path | None) -> DataSets:
    """Find the made-up field, and the NetCDF files of a folder."""
    sets: dict[str, Any] = {"made up": make_slices}
    if folder is None:
        return DataSets(sets, ("Real fields are left out: no --data DIR was given.",))
    paths = sorted((folder / "fields").glob("*.nc"))
    if not paths:
        raise InputError(f"--data {folder} contains no fields/*.nc; name the folder above them")
    sets |= {path.stem: (lambda path=path: read_slices(path)) for path in paths}
    return DataSets(sets)
