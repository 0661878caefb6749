"""Prediction of the missing pixels of an image by any process over two-dimensional locations, and sampled images.

A latent model samples one image for each latent sample. Any other model samples autoregressively from coarse to fine:
cells far apart are drawn first, then those between them given these and the observed pixels, many cells at a time. All
other cells deviate from their mean by as many standard deviations as the drawn cells around them.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.ndimage import map_coordinates
from scipy.special import ndtr

from fillin.errors import InputError, argument
from fillin.filling.image.channel_regression import complete_channels
from fillin.filling.image.pixel_context import PixelContext
from fillin.filling.image.read import PartialImage
from fillin.filling.prediction import NumericPrediction
from fillin.models import Process
from fillin.models.base import LatentProcess
from fillin.predictive import HALF_WIDTH_95
from fillin.runtime import Tick

_MAX_SITES = 512  # cells that are drawn one after another
_STRIDES = 8, 4, 2, 1  # of the lattice of sites, from coarse to fine


@dataclass(frozen=True)
class ColourAxes:
    """Orthogonal axes along which colours are predicted: the channels, or the principal axes of the observed colours.

    Red, green and blue mostly rise and fall together. Predicted one by one, they would be sampled independently, and
    samples would be full of rainbows; principal axes are uncorrelated.
    """

    rotation: Float[ndarray, "c c"]

    @classmethod
    def channels(cls, c: int) -> "ColourAxes":
        return cls(np.eye(c))

    @classmethod
    def principal(cls, colours: Float[ndarray, "n c"]) -> "ColourAxes":
        c = colours.shape[1]
        if c == 1 or len(colours) < 2:
            return cls.channels(c)
        return cls(np.linalg.eigh(np.cov(colours.T) + 1e-9 * np.eye(c))[1])

    def rotate(self, colours: Float[ndarray, "*n c"]) -> Float[ndarray, "*n c"]:
        return colours @ self.rotation

    def rotate_back(self, y: Float[ndarray, "*n c"]) -> Float[ndarray, "*n c"]:
        return y @ self.rotation.T

    def channel_std(self, std: Float[ndarray, "*n c"]) -> Float[ndarray, "*n c"]:
        """Return the standard deviations of the channels from those along the axes."""
        return np.sqrt(std**2 @ (self.rotation.T**2))


def complete_image(
    image: PartialImage, model: Process, scale: int, samples: int, seed: int, tick: Tick = lambda done: None
) -> NumericPrediction:
    """Predict the pixels of an image, each as `scale` × `scale` cells; at scale 1 observed ones stay."""
    if not len(image.x):
        raise InputError(
            "no pixel is observed, so there is nothing to complete from; set {observed} to True somewhere",
            observed=argument("observed"),
        )  # fmt: skip
    partly = None
    if image.channels is not None:  # first the other channels of pixels of which some are observed
        partly = complete_channels(image.colours, image.channels, samples, seed)
        assert partly is not None
        image = replace(image, y=partly.insert(image.y, image.channels, partly.mean.clip(0, 1)))
    any_image = model.any_units  # other models are trained on colours around 0
    offset = 0.0 if any_image else 0.5
    axes = ColourAxes.principal(image.y) if any_image else ColourAxes.channels(image.y.shape[1])
    context = PixelContext(model, image.shape, scale, image.x, axes.rotate(image.y - offset)[None])
    shape = image.shape[0] * scale, image.shape[1] * scale, image.y.shape[1]
    mean, std = np.zeros(shape), np.zeros(shape)
    observed = image.mask if image.mask is not None and scale == 1 else np.zeros(shape[:2], bool)
    if observed.any():
        mean[observed] = axes.rotate(image.y - offset)
    cells = np.argwhere(~observed)
    if len(cells):
        at = tuple(cells.T)
        (mean[at],), (std[at],) = context.predict(cells, tick=tick)
    drawn = np.empty((0, *shape))
    if samples:

        def clip(values: ndarray) -> ndarray:
            return axes.rotate((axes.rotate_back(values) + offset).clip(0, 1) - offset)

        if partly is not None and image.channels is not None:  # each sample from channels of its own
            drawn_channels = partly.samples.clip(0, 1)
            colours = np.stack([partly.insert(image.y, image.channels, part) for part in drawn_channels])
            context = replace(context, y=axes.rotate(colours - offset))
        drawn = axes.rotate_back(draw_images(context, mean, std, samples, seed, clip, tick)) + offset
    mean, std = clip_moments(axes.rotate_back(mean) + offset, axes.channel_std(std))
    if observed.any():  # exactly
        mean[observed] = image.y
        drawn[:, observed] = image.y if partly is None or not samples else axes.rotate_back(context.y) + offset
        std[observed] = 0
        if partly is not None:
            at = tuple(partly.cells.T)
            mean[at], std[at] = clip_moments(partly.mean, partly.std)
    low, high = ((mean + sign * HALF_WIDTH_95 * std).clip(0, 1) for sign in (-1, 1))
    return NumericPrediction(..., mean, std, low, high, samples=drawn.clip(0, 1))


def clip_moments(mean: Float[ndarray, "*n c"], std: Float[ndarray, "*n c"]) -> tuple[ndarray, ndarray]:
    """Return mean and standard deviation of y ~ Normal(mean, std), clipped to 0 … 1.

    E yᵖ = ∫₀¹ yᵖ dN + P(y > 1),    p = 1, 2
    """
    std = np.maximum(std, 1e-9)
    low, high = -mean / std, (1 - mean) / std
    density = np.exp(-0.5 * np.stack([low, high]) ** 2) / np.sqrt(2 * np.pi)
    inside, above = ndtr(high) - ndtr(low), ndtr(-high)
    first = mean * inside + std * (density[0] - density[1])
    second = mean * first + std**2 * inside - std * density[1]
    clipped = first + above
    return clipped.clip(0, 1), np.sqrt(np.maximum(second + above - clipped**2, 0))


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
        model = copy.copy(context.model)  # shares its weights
        model.samples, model.seed = n, seed  # type: ignore[assignment]
        cells = np.argwhere(np.ones(mean.shape[:2], bool))
        with torch.inference_mode():
            return replace(context, model=model).sample_latents(cells, n).reshape(n, *mean.shape)
    random = np.random.default_rng(seed)
    (height, width, c), missing = mean.shape, std.max(2) > 0
    step = context.scale  # at least a pixel, or drawn cells would soon outnumber observed ones
    while missing[::step, ::step].sum() > _MAX_SITES:
        step += 1
    sites = step * np.argwhere(missing[::step, ::step])
    z_score = np.zeros((n, *(-(-size // step) for size in (height, width)), c))  # of sites
    x, y = context.x, np.broadcast_to(context.y, (n, *context.y.shape[1:]))
    remaining = np.ones(len(sites), bool)
    for stride in _STRIDES:
        chosen = remaining & (sites // step % stride == 0).all(1)
        remaining &= ~chosen
        cells = sites[chosen]
        if not len(cells):
            continue
        m, s = replace(context, x=x, y=y, noise=False).predict(cells, blended=False)
        drawn = clip(m + s * random.standard_normal(m.shape))
        x, y = np.concatenate([x, context.locations(cells)]), np.concatenate([y, drawn], 1)
        at = tuple(cells.T)
        z_score[(slice(None), *(cells // step).T)] = (drawn - mean[at]) / np.maximum(std[at], 1e-6)
        tick(len(cells))
    z_score = z_score.clip(-3, 3)
    return mean + std * np.stack([_interpolate(image, step, (height, width)) for image in z_score])


def _interpolate(values: Float[ndarray, "a b c"], step: int, shape: tuple[int, int]) -> Float[ndarray, "h w c"]:
    """Interpolate linearly between sites."""
    if step == 1:
        return values
    rows, columns = (np.arange(size) / step for size in shape)
    at = np.meshgrid(rows, columns, indexing="ij")
    return np.stack([map_coordinates(values[..., k], at, order=1, mode="nearest") for k in range(values.shape[2])], -1)
