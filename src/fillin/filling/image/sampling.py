"""Coherent samples of whole images.

A latent model gives one image for each latent sample. Any other model samples autoregressively from coarse to fine:
cells far apart are drawn first, then those between them given these and the observed pixels, many cells at a time. All
other cells deviate from their mean by as many standard deviations as the drawn cells around them.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.ndimage import map_coordinates

from fillin.filling.image.pixel_context import PixelContext
from fillin.models.base import LatentProcess
from fillin.runtime import Tick

_MAX_SITES = 512  # cells that are drawn one after another
_STRIDES = 8, 4, 2, 1  # of the lattice of sites, from coarse to fine


def draw_images(
    context: PixelContext,
    mean: Float[ndarray, "h w c"],
    std: Float[ndarray, "h w c"],
    n: int,
    seed: int,
    clip: Callable[[ndarray], ndarray],
    tick: Tick = lambda done: None,
) -> Float[ndarray, "n h w c"]:
    """Draw n images, given mean and standard deviation of every cell (0: observed).

    `clip` limits drawn values to the range of colours before others are drawn given these.
    """
    if isinstance(context.model, LatentProcess):
        return _draw_latents(context, mean.shape, n, seed)
    random = np.random.default_rng(seed)
    height, width, c = mean.shape
    sites, step = _choose_sites(std.max(2) > 0, context.scale)
    deviation = np.zeros((n, *(-(-size // step) for size in (height, width)), c))  # of sites, in standard deviations
    x, y = context.x, np.broadcast_to(context.y, (n, *context.y.shape[1:]))
    for cells in _coarse_to_fine(sites, step):
        m, s = replace(context, x=x, y=y, noise=False).predict(cells, blended=False)
        drawn = clip(m + s * random.standard_normal(m.shape))
        x, y = np.concatenate([x, context.locations(cells)]), np.concatenate([y, drawn], 1)
        at = tuple(cells.T)
        deviation[(slice(None), *(cells // step).T)] = (drawn - mean[at]) / np.maximum(std[at], 1e-6)
        tick(len(cells))
    deviation = deviation.clip(-3, 3)
    return mean + std * np.stack([_interpolate(image, step, (height, width)) for image in deviation])


def _draw_latents(context: PixelContext, shape: tuple[int, ...], n: int, seed: int) -> Float[ndarray, "n h w c"]:
    """Return the image of each of n new latent samples."""
    model = copy.copy(context.model)  # shares its weights
    model.samples, model.seed = n, seed  # type: ignore[assignment]
    cells = np.argwhere(np.ones(shape[:2], bool))
    with torch.inference_mode():
        return replace(context, model=model).sample_latents(cells, n).reshape(n, *shape)


def _choose_sites(missing: Bool[ndarray, "h w"], min_step: int) -> tuple[Int[ndarray, "k 2"], int]:
    """Return the missing cells on the finest lattice that has at most `_MAX_SITES` of them, and its step.

    The step is at least a pixel, or drawn cells would soon outnumber observed ones.
    """
    step = min_step
    while True:
        sites = step * np.argwhere(missing[::step, ::step])
        if len(sites) <= _MAX_SITES:
            return sites, step
        step += 1


def _coarse_to_fine(sites: Int[ndarray, "k 2"], step: int) -> Iterator[Int[ndarray, "_ 2"]]:
    """Yield the sites on every eighth lattice line, then the others on every fourth, and so on."""
    remaining = np.ones(len(sites), bool)
    for stride in _STRIDES:
        chosen = remaining & (sites // step % stride == 0).all(1)
        if chosen.any():
            yield sites[chosen]
        remaining &= ~chosen


def _interpolate(values: Float[ndarray, "a b c"], step: int, shape: tuple[int, int]) -> Float[ndarray, "h w c"]:
    """Interpolate linearly between sites."""
    if step == 1:
        return values
    rows, columns = (np.arange(size) / step for size in shape)
    at = np.meshgrid(rows, columns, indexing="ij")
    return np.stack([map_coordinates(values[..., k], at, order=1, mode="nearest") for k in range(values.shape[2])], -1)
