"""Whole pictures drawn from what a model believes: coherent, not pixel by pixel.

A model with latents makes one of each latent. Any other is asked again and again, from coarse to fine: cells far apart
are drawn first, those between them given these and what is known, and so on: autoregression, many cells at a time. In
the end each cell between drawn ones differs from its mean by as many deviations as these do.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.ndimage import map_coordinates

from fillin.filling.image.pixel_context import Field, Tick
from fillin.models.base import LatentProcess

_SITES = 512  # cells that are drawn one after another; all others are between them
_LEVELS = 8, 4, 2, 1  # steps of the lattice


def draw(
    field: Field,
    mean: Float[ndarray, "h w c"],
    std: Float[ndarray, "h w c"],
    n: int,
    seed: int,
    fit: Callable[[ndarray], ndarray],
    tick: Tick = lambda done: None,
) -> Float[ndarray, "n h w c"]:
    """n pictures, given the mean and deviation of every cell (0: known). What is drawn is made to `fit` the range of
    colours before more is drawn from it."""
    if isinstance(field.model, LatentProcess):
        return _of_latents(field, mean.shape, n, seed)
    random = np.random.default_rng(seed)
    height, width, c = mean.shape
    sites, step = _lattice(std.max(2) > 0, field.scale)
    off = np.zeros((n, *(-(-size // step) for size in (height, width)), c))  # in deviations, at sites
    x, y = field.x, np.broadcast_to(field.y, (n, *field.y.shape[1:]))
    for cells in _levels(sites, step):
        given = replace(field, x=x, y=y, noise=False)
        m, s = given.at(cells, blended=False)
        drawn = fit(m + s * random.standard_normal(m.shape))
        x, y = np.concatenate([x, field.places(cells)]), np.concatenate([y, drawn], 1)
        at = tuple(cells.T)
        off[(slice(None), *(cells // step).T)] = (drawn - mean[at]) / np.maximum(std[at], 1e-6)
        tick(len(cells))
    off = off.clip(-3, 3)
    smooth = np.stack([_between(one, step, (height, width)) for one in off])
    return mean + std * smooth


def _of_latents(field: Field, shape: tuple[int, ...], n: int, seed: int) -> Float[ndarray, "n h w c"]:
    """Each of its own latent; none is shared with the prediction."""
    model = copy.copy(field.model)  # shares its weights
    model.samples, model.seed = n, seed  # type: ignore[assignment]
    cells = np.argwhere(np.ones(shape[:2], bool))
    own = replace(field, model=model)
    with torch.inference_mode():
        return own.functions(cells, n).reshape(n, *shape)


def _lattice(missing: Bool[ndarray, "h w"], least: int) -> tuple[Int[ndarray, "k 2"], int]:
    """Missing cells on the finest lattice that has no more than `_SITES` of them, and its step: at `least` a pixel, or
    what was drawn would soon outnumber what is known."""
    step = least
    while True:
        sites = step * np.argwhere(missing[::step, ::step])
        if len(sites) <= _SITES:
            return sites, step
        step += 1


def _levels(sites: Int[ndarray, "k 2"], step: int) -> Iterator[Int[ndarray, "_ 2"]]:
    """Sites from coarse to fine: those whose numbers are multiples of 8, of the others those of 4, and so on."""
    left = np.ones(len(sites), bool)
    for every in _LEVELS:
        now = left & (sites // step % every == 0).all(1)
        if now.any():
            yield sites[now]
        left &= ~now


def _between(off: Float[ndarray, "a b c"], step: int, shape: tuple[int, int]) -> Float[ndarray, "h w c"]:
    """Linearly between sites."""
    if step == 1:
        return off
    rows, columns = (np.arange(size) / step for size in shape)
    at = np.meshgrid(rows, columns, indexing="ij")
    return np.stack([map_coordinates(off[..., k], at, order=1, mode="nearest") for k in range(off.shape[2])], -1)
