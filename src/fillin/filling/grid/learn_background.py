"""Learning of the background of fields in slices: the sample of cells, the shrinkage by cells that are held out."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import Delaunay, KDTree, QhullError

from fillin.filling.grid.background import (
    MIN_CELLS,
    MIN_SLICES,
    Background,
    learn_groups,
    predict_slices,
    spread_to_neighbours,
    to_units,
)
from fillin.filling.grid.variable import Variable

if TYPE_CHECKING:
    from fillin.filling.grid.layout import FieldSettings

_SHRINKAGES = (0.5, 0.2)
_MIN_FIELD_CELLS = 64  # with an observed value, that show how slices go together
_HELD_OUT_SLICES = 12
_MIN_GAP, _MAX_GAP = 0.02, 0.8  # share of missing cells of a slice that lends its gaps to another
_MIN_GAIN = 1.02  # error of linear interpolation over the least, at which slices begin to inform each other
_MAX_EXCESS = 5.0
_MAX_SAMPLE, _MAX_SAMPLE_CELLS = 500_000, 4_096  # values, and cells of a slice, that the background is learned from
_WINDOW_STEPS = 9  # positions of a window along each axis
_OBSERVED_VALUE = 0.02  # of a cell of a window that is observed in all slices, beside one that is missing in some


def learn_background(variable: Variable, settings: "FieldSettings", counts: Int[ndarray, "..."]) -> Background | None:
    """Learn how slices predict each other: from all cells of a small field, of a large one from a window, on which
    cells are held out, and from cells with even strides. `counts` are missing values of each cell."""
    d, shape = len(settings.axes), variable.shape[-len(settings.axes) :]
    n_slices = math.prod(variable.shape[:-d])
    if n_slices < MIN_SLICES:
        return None
    n_cells = min(_MAX_SAMPLE_CELLS, max(64, _MAX_SAMPLE // n_slices))
    window = choose_window(counts / n_slices, n_cells)

    def read(cells: tuple[slice, ...]) -> Float[ndarray, "t *cells"]:
        values = variable.compute(variable.values[(..., *cells)]).astype(float)
        return to_units(settings.warp, values).reshape(n_slices, *values.shape[-d:])

    indices = np.stack(np.meshgrid(*(np.arange(n)[part] for n, part in zip(shape, window, strict=True)), indexing="ij"))
    values, outside = read(window), np.empty((n_slices, 0))
    whole = [size == n for size, n in zip(values.shape[1:], shape, strict=True)]
    if not all(whole):
        stride = max(1, math.ceil((math.prod(shape) / n_cells) ** (1 / d)))
        strided = tuple(np.arange(n)[stride // 2 :: stride] for n in shape)
        within = [(rows >= part.start) & (rows < part.stop) for rows, part in zip(strided, window, strict=True)]
        outside = read((slice(stride // 2, None, stride),) * d)[:, ~np.all(np.meshgrid(*within, indexing="ij"), 0)]
    locations = settings.locations(indices.reshape(d, -1).T) / np.array(settings.unit)
    periodic = [wraps and all_of_it for wraps, all_of_it in zip(settings.periodic, whole, strict=True)]
    random = np.random.default_rng(0)
    return choose_background(outside, values, locations.reshape(*values.shape[1:], d), random, periodic)


def choose_window(missing: Float[ndarray, "*cells"], n_cells: int) -> tuple[slice, ...]:
    """Return a box of about `n_cells` with many cells that are observed in some slices and missing in others.

    >>> choose_window(np.zeros((4, 6)), 100)
    (slice(0, 4, None), slice(0, 6, None))
    """
    shape = np.array(missing.shape)
    side = np.minimum(shape, np.ceil(shape * min(1.0, (n_cells / missing.size) ** (1 / missing.ndim)))).astype(int)
    sizes = side.tolist()
    starts = [
        np.unique(np.linspace(0, n - size, _WINDOW_STEPS).astype(int)).tolist()
        for n, size in zip(missing.shape, sizes, strict=True)
    ]
    windows = [
        tuple(slice(start, start + size) for start, size in zip(corner, sizes, strict=True))
        for corner in product(*starts)
    ]
    value = (1 - missing) * (missing + _OBSERVED_VALUE)
    return max(windows, key=lambda window: float(value[window].sum()))


def choose_background(
    sample: Float[ndarray, "t p"],
    window: Float[ndarray, "t *cells"],
    locations: Float[ndarray, "*cells d"],
    random: np.random.Generator,
    periodic: Sequence[bool] = (),
) -> Background | None:
    """Learn the background of slices; None where it helps no held-out cells.

    Parameters
    ----------
    sample : ndarray [t p]
        Values of cells anywhere in the slices outside of the window, NaN where missing.
    window : ndarray [t *cells]
        Neighbouring cells, of which some are held out to choose the shrinkage.
    locations : ndarray [*cells d]
        Locations of the cells of the window, in units of distance.
    random : Generator
        Chooses the cells that are held out.
    periodic : sequence of bool
        Axes along which the window is periodic.
    """
    seen = np.isfinite(window)
    held_out = _hold_out(seen, random)
    if not held_out.any() or seen.any(0).sum() < _MIN_FIELD_CELLS:
        return None
    flat = window.reshape(len(window), -1)
    kept = np.where(held_out, np.nan, window)
    kept_cells = np.concatenate([sample, kept.reshape(flat.shape)], 1)
    unit = float(np.nanstd(flat)) or 1.0
    error_alone, errors, backgrounds = _held_out_error(window, kept, held_out, locations, None), {}, {}
    for shrinkage in _SHRINKAGES:
        learned = learn_groups(kept_cells, shrinkage)
        if not learned["groups"]:
            return None
        background = _measure_spread(Background(**learned, shrinkage=shrinkage), kept, periodic, random)
        parts = background.fields(kept, periodic)
        errors[shrinkage] = _held_out_error(window, kept, held_out, locations, parts)
        backgrounds[shrinkage] = background, parts
    if error_alone <= _MIN_GAIN * min(errors.values()):
        return None
    choice = min(backgrounds, key=lambda key: errors[key])
    background, (mean, std) = backgrounds[choice]
    standardised = (window - mean) / std
    rows = held_out.any(axis=tuple(range(1, held_out.ndim)))
    rest = max(_root_mean_square(standardised[rows][(seen & ~held_out)[rows]]), 1e-9)
    excess = float(np.clip(_root_mean_square(standardised[held_out]) / rest, 1.0, _MAX_EXCESS))
    learned = learn_groups(np.concatenate([sample, flat], 1), choice)
    return replace(
        background, **learned, rest=rest, excess=excess, error_alone=error_alone / unit, error=errors[choice] / unit
    )


def _root_mean_square(values: ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))


def _measure_spread(
    background: Background, values: Float[ndarray, "t *cells"], periodic: Sequence[bool], random: np.random.Generator
) -> Background:
    """Return the background with the error of differences that neighbours in space predict, on a tenth of the cells."""
    group = background.groups[len(background.groups) // 2]
    part = values[group.slices].reshape(len(group.slices), -1)
    z = (part - background.centre[group.slices, None]) / background.scale[group.slices, None]
    mean, std = predict_slices(group, z, np.where(np.isfinite(z), 0.0, np.inf))
    rest = ((z - mean) / std).reshape(len(z), *values.shape[1:])
    left_out = np.isfinite(rest) & (random.random(rest.shape) < 0.1)
    if not left_out.any():
        return background
    spread, _ = spread_to_neighbours(np.where(left_out, np.nan, rest), periodic)
    share = np.square(spread - rest)[left_out].mean() / max(np.square(rest)[left_out].mean(), 1e-12)
    return replace(background, spread_error=float(np.clip(share, 1e-4, 1.0)))


def _hold_out(seen: Bool[ndarray, "t *cells"], random: np.random.Generator) -> Bool[ndarray, "t *cells"]:
    """Choose observed cells of a few slices, among those with gaps if there are any: the cells that are missing in
    another slice, or a fifth at random."""
    shape, seen = seen.shape, seen.reshape(len(seen), -1)
    inside = seen.any(0)
    held_out, share = np.zeros_like(seen), 1 - seen[:, inside].mean(1) if inside.any() else np.ones(len(seen))
    lenders = np.flatnonzero((share >= _MIN_GAP) & (share <= _MAX_GAP))
    observed = lenders if len(lenders) >= 2 else np.flatnonzero(seen.sum(1) >= 2 * MIN_CELLS)
    for i in np.unique(np.linspace(0, len(observed) - 1, _HELD_OUT_SLICES).astype(int)) if len(observed) else ():
        t = observed[i]
        others = lenders[lenders != t]
        gaps = ~seen[random.choice(others)] if len(others) else random.random(seen.shape[1]) < 0.2
        chosen = seen[t] & gaps
        if chosen.sum() < 5 or chosen.sum() > 0.8 * seen[t].sum():
            chosen = seen[t] & (random.random(seen.shape[1]) < 0.2)
        held_out[t] = chosen
    return held_out.reshape(shape)


def _held_out_error(
    values: ndarray,
    kept: ndarray,
    held_out: ndarray,
    locations: Float[ndarray, "*cells d"],
    background: tuple[ndarray, ndarray] | None,
) -> float:
    """Return the root mean square error at held-out cells of a background with linear interpolation in space of the
    standardised differences from it, or of linear interpolation alone."""
    errors = []
    for t in np.flatnonzero(held_out.any(axis=tuple(range(1, held_out.ndim)))):
        observed, queries = np.isfinite(kept[t]), held_out[t]
        if observed.sum() < 4:
            continue
        mean, std = (np.zeros(kept[t].shape), np.ones(kept[t].shape)) if background is None else (
            background[0][t], background[1][t]
        )  # fmt: skip
        rest = (kept[t][observed] - mean[observed]) / std[observed]
        filled = _interpolate(locations[observed], rest, locations[queries])
        errors.append(mean[queries] + std[queries] * filled - values[t][queries])
    return _root_mean_square(np.concatenate(errors)) if errors else np.inf


def _interpolate(
    x: Float[ndarray, "n d"], values: Float[ndarray, "n"], at: Float[ndarray, "m d"]
) -> Float[ndarray, "m"]:
    """Interpolate linearly, beyond the locations x by the nearest value."""
    if x.shape[1] == 1:
        order = np.argsort(x[:, 0])
        return np.interp(at[:, 0], x[order, 0], values[order])
    nearest = values[KDTree(x).query(at)[1]]
    try:
        linear = LinearNDInterpolator(Delaunay(x), values)(at)
    except QhullError:
        return nearest
    return np.where(np.isnan(linear), nearest, linear)
