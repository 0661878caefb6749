"""`fillin.complete`: a picture and which of its pixels are known in, what belongs there out, at any resolution."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.errors import InputError, InputTypeError, argument

if TYPE_CHECKING:
    from fillin.filling.image.pixel_context import Tick
    from fillin.models import Process

MOST = 1 << 22  # cells of a completion


@dataclass(frozen=True)
class Completed:
    """Colours from 0 to 1: what is expected, its standard deviation (0 where a pixel was known), whole pictures."""

    mean: Float[ndarray, "h w c"]
    std: Float[ndarray, "h w c"]
    samples: Float[ndarray, "n h w c"]

    def __repr__(self) -> str:
        return f"Completed(mean={list(self.mean.shape)}, samples={len(self.samples)})"


def complete(
    image: Any,
    known: Any = None,
    scale: int = 1,
    samples: int = 0,
    model: "str | Process" = "surface",
    seed: int = 0,
) -> Completed:
    """A picture completed from the pixels that are `known`, with `scale` × `scale` cells for each of its pixels.

    `image` is h × w or h × w × c, with 1 channel of grey or 3 of colour: bytes, or numbers from 0 to 1, NaN where a
    pixel is missing. `known` is h × w, True where a pixel is known; without it those that are not NaN are. `samples`
    whole pictures are drawn by the `seed`. `model` is any process of two-dimensional places, by its name or folder or
    itself; a model of its own colours is asked as it is, `surface` for any picture.

    >>> picture = np.linspace(0, 1, 64).reshape(8, 8)
    >>> complete(picture, known=picture > 0.5, scale=2)
    Completed(mean=[16, 16, 1], samples=0)
    """
    colours, mask = _read(image, known)
    h, w = mask.shape
    x = np.argwhere(mask).astype(float)
    return complete_points(x, colours[mask], (h, w), mask, scale, samples, model, seed)


def complete_points(
    x: Float[ndarray, "n 2"],
    y: Float[ndarray, "n c"],
    shape: tuple[int, int],
    mask: Bool[ndarray, "h w"] | None,
    scale: int,
    samples: int,
    model: "str | Process",
    seed: int,
    tick: "Tick" = lambda done: None,
) -> Completed:
    """The same of known points anywhere: x in rows and columns (a pixel is 1), y from 0 to 1. Where scale is 1, pixels
    of the `mask` keep their colours."""
    check(shape, scale, samples, seed)
    if not len(x):
        raise InputError(
            "no pixel is known, so there is nothing to complete from; make " + argument("known") + " True somewhere"
        )
    from fillin.filling.image.colour_axes import ColourAxes
    from fillin.filling.image.pixel_context import Field
    from fillin.filling.image.sampling import draw
    from fillin.filling.image.weights import completer
    from fillin.models.filler import Filler

    found = completer(model)
    own = isinstance(found, Filler)
    axes = ColourAxes.of(y) if own else ColourAxes.channels(y.shape[1])
    level = 0.0 if own else 0.5  # other models learn from colours around 0
    field = Field(found, shape, scale, x, axes.to(y - level)[None])
    height, width, c = shape[0] * scale, shape[1] * scale, y.shape[1]
    mean, std = np.zeros((height, width, c)), np.zeros((height, width, c))
    kept = mask if mask is not None and scale == 1 else np.zeros((height, width), bool)
    if kept.any():
        mean[kept] = axes.to(y - level)
    cells = np.argwhere(~kept)
    if len(cells):
        at = tuple(cells.T)
        (mean[at],), (std[at],) = field.at(cells, tick=tick)
    drawn = np.empty((0, *mean.shape))
    if samples:

        def fit(values: ndarray) -> ndarray:
            return axes.to((axes.back(values) + level).clip(0, 1) - level)

        drawn = axes.back(draw(field, mean, std, samples, seed, fit, tick)) + level
    mean, std = within(axes.back(mean) + level, axes.deviations(std))
    if kept.any():  # to the last digit
        mean[kept] = y
        drawn[:, kept] = y
        std[kept] = 0
    return Completed(mean, std, drawn.clip(0, 1))


def within(mean: Float[ndarray, "*n c"], std: Float[ndarray, "*n c"]) -> tuple[ndarray, ndarray]:
    """Mean and deviation of y ~ Normal(mean, std) where what lies beyond black and white is black or white:

    E yᵖ = ∫₀¹ yᵖ dN + P(y > 1),    p = 1, 2
    """
    from scipy.special import ndtr

    std = np.maximum(std, 1e-9)
    low, high = -mean / std, (1 - mean) / std
    dense = np.exp(-0.5 * np.stack([low, high]) ** 2) / np.sqrt(2 * np.pi)
    inside, above = ndtr(high) - ndtr(low), ndtr(-high)
    first = mean * inside + std * (dense[0] - dense[1])
    second = mean * first + std**2 * inside - std * dense[1]
    found = first + above
    return found.clip(0, 1), np.sqrt(np.maximum(second + above - found**2, 0))


def check(shape: tuple[int, int], scale: int, samples: int, seed: int) -> None:
    """What was asked for, before anything slow begins."""
    for name, value, least in (("scale", scale, 1), ("samples", samples, 0), ("seed", seed, 0)):
        if type(value) is not int or value < least:
            raise InputError(argument(name) + f" must be a whole number of at least {least}, got {value!r}")
    height, width = shape[0] * scale, shape[1] * scale
    if height * width > MOST:
        remedy = "choose a smaller " + argument("scale") + " or make" if scale > 1 else "make"
        raise InputError(
            f"the completion would have {width:,} × {height:,} pixels, more than {MOST:,}; "
            + remedy
            + " the picture smaller first"
        )


def _read(image: Any, known: Any) -> tuple[Float[ndarray, "h w c"], Bool[ndarray, "h w"]]:
    """Colours from 0 to 1, and which pixels are known."""
    colours = np.asarray(image)
    if colours.dtype.kind not in "buif":
        raise InputTypeError(f"image must be an array of numbers, got {type(image).__name__} of {colours.dtype}")
    colours = colours[..., None] if colours.ndim == 2 else colours
    if colours.ndim != 3 or colours.shape[2] not in (1, 3) or not colours.size:
        raise InputError(f"image must be h × w, h × w × 1 or h × w × 3, got shape {np.shape(image)}")
    if colours.dtype.kind in "ui":
        colours = colours / 255
    colours = colours.astype(float)
    there = np.asarray(~np.isnan(colours).any(2))
    if known is None:
        mask = there
    else:
        mask = np.asarray(known)
        if mask.shape != colours.shape[:2] or mask.dtype.kind != "b":
            raise InputError(
                f"known must be True or False for each of {colours.shape[0]} × {colours.shape[1]} pixels, got "
                f"{mask.dtype} of shape {mask.shape}"
            )
        if (mask & ~there).any():
            row, column = np.argwhere(mask & ~there)[0]
            raise InputError(f"image is NaN at row {row}, column {column}, which is known; make it missing there")
    if ((colours[mask] < 0) | (colours[mask] > 1)).any():
        raise InputError("image must have colours from 0 to 1, or bytes from 0 to 255; divide it by its largest value")
    return colours, mask
