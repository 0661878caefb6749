"""Images of which some pixels are observed: by a mask, a pattern, transparency, or NaN."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from numpy import ndarray

from fillin.data.images import Pattern, to_colours
from fillin.data.images.datasets import read_image
from fillin.errors import InputError, InputTypeError, choose

CHANNELS = "red", "green", "blue"
OBSERVED_BY_HIDDEN = {"bottom": "top", "top": "bottom", "left": "right", "right": "left", "hole": "hole"}


@dataclass(frozen=True)
class PartialImage:
    """An image, and its observed points: x in rows and columns (a pixel is 1), y from 0 to 1.

    `mask` marks the observed pixels; None where the points are no pixels. With `held_out`, the colours of all
    pixels are there to compare predictions with. `channels` marks the observed channels where some pixels lack others;
    these are NaN in y.
    """

    colours: Float[ndarray, "h w c"]
    x: Float[ndarray, "n 2"]
    y: Float[ndarray, "n c"]
    mask: Bool[ndarray, "h w"] | None
    held_out: bool = False
    notes: tuple[str, ...] = ()
    channels: Bool[ndarray, "h w c"] | None = None

    @property
    def n_partly(self) -> int:
        """Number of pixels of which some channels are missing."""
        return 0 if self.channels is None else int((self.channels.any(2) & ~self.channels.all(2)).sum())

    @property
    def shape(self) -> tuple[int, int]:
        return self.colours.shape[:2]


def read_file(
    path: Path, keep: float | None, pattern: str | None, hide: str | None, mask: str | None, scale: int, seed: int
) -> PartialImage:
    """Read an image file; at most one of `keep`, `pattern`, `hide` and `mask` selects the observed pixels."""
    if path.suffix.lower() == ".npy":
        return _read_numpy_file(path, keep, pattern, hide, mask, scale)
    pixels = read_image(path)
    transparent, notes = _read_transparency(path, pixels.shape[:2])
    options = {"keep": keep, "observed": pattern, "hide": hide, "mask": mask}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"--{given[0]} and --{given[1]} both choose the observed pixels; leave one out")
    if mask is not None:
        shades = read_image(Path(mask)).astype(int)
        white = shades.mean(2) > 127
        if white.shape != pixels.shape[:2]:
            (h, w), (rows, columns) = pixels.shape[:2], white.shape
            raise InputError(f"--mask {mask} is {columns} × {rows}, the image {w} × {h}; they must have the same size")
        if shades.shape == pixels.shape and np.ptp(shades, 2).max(initial=0) > 127:  # a mask in colour
            seen = (shades > 127) & ~transparent[..., None]
            return observe_channels(pixels / 255, seen, notes, f"--mask {mask}")
        return observe_mask(pixels, white & ~transparent, False, notes, f"--mask {mask}")
    if not given:
        if not transparent.any() and scale == 1:
            raise InputError(
                f"{path}: nothing is missing: no pixel is fully transparent. Choose the observed pixels with --keep "
                "0.1, --hide bottom, --observed 'grid 4' or --mask m.png, or enlarge the image with --scale 4"
            )
        return observe_mask(pixels, ~transparent, False, notes, str(path))
    chosen = _choose_pattern(keep, pattern, hide)
    if chosen.name == "coarse" and transparent.any():
        raise InputError(f"{path} has transparent pixels, and 'coarse' needs all pixels; use another pattern")
    return observe_pattern(pixels, chosen, seed, transparent, notes, str(path))


def observe_pattern(
    pixels: UInt8[ndarray, "h w c"], pattern: Pattern, seed: int, missing: Bool[ndarray, "h w"],
    notes: tuple[str, ...] = (), source: str = "the image",
) -> PartialImage:  # fmt: skip
    """Observe the points of a pattern, except `missing` pixels."""
    generator = torch.Generator().manual_seed(seed)
    if pattern.name == "coarse":
        location, colour = pattern(to_colours(pixels)[None], generator)
        h, w = pixels.shape[:2]
        x = (location[0].double().numpy() * max(h, w) / 2 + np.array([h, w]) - 1) / 2
        return PartialImage(pixels / 255, x, colour[0].double().numpy() + 0.5, None, True, notes)
    observed = pattern.mask((1, *pixels.shape[:2]), generator)[0].numpy()
    return observe_mask(pixels, observed & ~missing, not missing.any(), notes, source)


def observe_mask(
    pixels: UInt8[ndarray, "h w c"], mask: Bool[ndarray, "h w"], held_out: bool, notes: tuple[str, ...], source: str
) -> PartialImage:
    """Observe the pixels of a mask."""
    if not mask.any():
        raise InputError(f"{source}: no pixel is observed, so there is nothing to complete from; white is observed")
    return PartialImage(pixels / 255, np.argwhere(mask).astype(float), pixels[mask] / 255, mask, held_out, notes)


def read_array(image: Any, observed: Any) -> PartialImage:
    """Read an array of bytes, or of numbers from 0 to 1 with NaN where missing."""
    pixels = np.asarray(image)
    if pixels.dtype.kind not in "buif":
        raise InputTypeError(f"image must be an array of numbers, got {type(image).__name__} of {pixels.dtype}")
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or not pixels.size:
        raise InputError(f"image must be h × w, h × w × 1 or h × w × 3, got shape {np.shape(image)}")
    if pixels.dtype.kind in "ui":
        pixels = pixels / 255
    pixels = pixels.astype(float)
    channels = ~np.isnan(pixels)
    present = np.asarray(channels.all(2))
    if observed is None and (channels.any(2) & ~present).any():
        return observe_channels(_check_range(pixels, channels), channels)
    mask = present if observed is None else np.asarray(observed)
    if mask.shape == pixels.shape and mask.dtype.kind == "b" and pixels.shape[2] > 1:
        if (mask & ~channels).any():
            raise _nan_error(mask & ~channels)
        if (mask.any(2) & ~mask.all(2)).any():
            return observe_channels(_check_range(pixels, mask), mask)
        mask = np.asarray(mask.all(2))
    if mask.shape != pixels.shape[:2] or mask.dtype.kind != "b":
        raise InputError(
            f"observed must be True or False for each of {pixels.shape[0]} × {pixels.shape[1]} pixels, got "
            f"{mask.dtype} of shape {mask.shape}"
        )
    if (mask & ~present).any():
        raise _nan_error(mask & ~present)
    _check_range(pixels, mask)
    return PartialImage(pixels, np.argwhere(mask).astype(float), pixels[mask], mask)


def observe_channels(
    colours: Float[ndarray, "h w c"], observed: Bool[ndarray, "h w c"], notes: tuple[str, ...] = (),
    source: str = "the image",
) -> PartialImage:  # fmt: skip
    """Observe some channels of each pixel. Every channel must be observed somewhere."""
    none = [name for name, seen in zip(CHANNELS, np.asarray(observed.any((0, 1))), strict=True) if not seen]
    if len(none) == len(CHANNELS):
        raise InputError(f"{source}: no value is observed, so there is nothing to complete from")
    if none:
        raise InputError(
            f"{source}: no value of {' and '.join(none)} is observed, and nothing shows how it goes together with the "
            "other channels; give some values of it, or complete the other channels as grey images"
        )
    mask = np.asarray(observed.any(2))
    y = np.where(observed, colours, np.nan)[mask]
    channels = None if observed[mask].all() else observed
    return PartialImage(colours, np.argwhere(mask).astype(float), y, mask, False, notes, channels)


def _read_numpy_file(
    path: Path, keep: float | None, pattern: str | None, hide: str | None, mask: str | None, scale: int
) -> PartialImage:
    """Read an array in which NaN is missing."""
    given = {"keep": keep, "observed": pattern, "hide": hide, "mask": mask}
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{path}: --{name} is for PNG and JPEG; in an array the missing values are NaN")
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no array of NumPy ({error}); write it with numpy.save") from None
    if array.dtype.kind == "f" and not np.isnan(array).any() and scale == 1:
        raise InputError(f"{path}: nothing is missing: no value is NaN; set missing values to NaN, or use --scale 4")
    return read_array(array, None)


def _check_range(pixels: Float[ndarray, "h w c"], observed: Bool[ndarray, "*b"]) -> Float[ndarray, "h w c"]:
    if ((pixels[observed] < 0) | (pixels[observed] > 1)).any():
        raise InputError("image must have colours from 0 to 1, or bytes from 0 to 255; divide it by its largest value")
    return pixels


def _nan_error(wrong: Bool[ndarray, "h w *c"]) -> InputError:
    row, column = np.argwhere(wrong)[0][:2]
    return InputError(
        f"image is NaN at row {row}, column {column}, where observed is True; set observed to False there"
    )


def _choose_pattern(keep: float | None, pattern: str | None, hide: str | None) -> Pattern:
    if keep is not None:
        if not 0 < keep < 1:
            raise InputError(f"--keep must be a share of the pixels, between 0 and 1, got {keep:g}")
        return Pattern("random", keep)
    if hide is not None:
        return Pattern(OBSERVED_BY_HIDDEN[choose("part to --hide", hide, OBSERVED_BY_HIDDEN)])
    if not pattern or not pattern.strip():
        raise InputError("--observed: the pattern is empty; write for example 'grid 4'")
    return Pattern.read(pattern)


def _read_transparency(path: Path, shape: tuple[int, int]) -> tuple[Bool[ndarray, "h w"], tuple[str, ...]]:
    """Return which pixels are fully transparent, and a note on those that are partly so."""
    from PIL import Image

    with warnings.catch_warnings(action="ignore"), Image.open(path, formats=("PNG", "JPEG")) as image:
        if "A" not in image.getbands() and "transparency" not in image.info:
            return np.zeros(shape, bool), ()
        alpha = np.asarray(image.convert("RGBA").getchannel("A"))
    partly = int(((alpha > 0) & (alpha < 255)).sum())
    notes = (f"{partly:,} pixels are partly transparent: laid on white and observed",) if partly else ()
    return alpha == 0, notes
