"""What is known of a picture: some pixels, all but a part of it, what a mask says, what is not transparent."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from numpy import ndarray

from fillin.data.images import Pattern, to_colours
from fillin.data.images.image_files import read_image
from fillin.errors import InputError, choose

HIDE = {"bottom": "top", "top": "bottom", "left": "right", "right": "left", "hole": "hole"}  # what is then known


@dataclass(frozen=True)
class Part:
    """A picture and its known points: x in rows and columns (a pixel is 1), y from 0 to 1. `mask` says which pixels
    these are; None where they are no pixels. What is hidden on purpose is there to be compared with."""

    picture: UInt8[ndarray, "h w c"]
    x: Float[ndarray, "n 2"]
    y: Float[ndarray, "n c"]
    mask: Bool[ndarray, "h w"] | None
    hidden: bool
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        return self.picture.shape[:2]


def read_part(
    path: Path, keep: float | None, know: str | None, hide: str | None, mask: str | None, scale: int, seed: int
) -> Part:
    picture = read_image(path)
    clear, notes = _transparency(path)
    if clear is None:
        clear = np.zeros(picture.shape[:2], bool)
    given = [
        name for name, value in (("keep", keep), ("know", know), ("hide", hide), ("mask", mask)) if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"--{given[0]} and --{given[1]} both say what is known; leave one out")
    if mask is not None:
        return by_mask(picture, _read_mask(Path(mask), picture.shape[:2]) & ~clear, False, notes, f"--mask {mask}")
    if not given:
        if not clear.any() and scale == 1:
            raise InputError(
                f"{path}: nothing is missing: no pixel is fully transparent. Say what is known with --keep 0.1, --hide "
                "bottom, --know 'grid 4' or --mask m.png, or enlarge it with --scale 4"
            )
        return by_mask(picture, ~clear, False, notes, str(path))
    pattern = _pattern(keep, know, hide)
    if pattern.name == "coarse" and clear.any():
        raise InputError(f"{path} has transparent pixels, and 'coarse' wants them all; use another pattern")
    return by_pattern(picture, pattern, seed, clear, notes, str(path))


def by_pattern(
    picture: UInt8[ndarray, "h w c"], pattern: Pattern, seed: int, clear: Bool[ndarray, "h w"],
    notes: tuple[str, ...] = (), where: str = "the picture",
) -> Part:  # fmt: skip
    """What a pattern leaves known of what is not `clear`."""
    numbers = torch.Generator().manual_seed(seed)
    if pattern.name == "coarse":
        place, colour = pattern(to_colours(picture)[None], numbers)
        h, w = picture.shape[:2]
        x = (place[0].double().numpy() * max(h, w) / 2 + np.array([h, w]) - 1) / 2
        return Part(picture, x, colour[0].double().numpy() + 0.5, None, True, notes)
    chosen = pattern.mask((1, *picture.shape[:2]), numbers)[0].numpy()
    return by_mask(picture, chosen & ~clear, not clear.any(), notes, where)


def _pattern(keep: float | None, know: str | None, hide: str | None) -> Pattern:
    if keep is not None:
        if not 0 < keep < 1:
            raise InputError(f"--keep is a share of the pixels, between 0 and 1, got {keep:g}")
        return Pattern("random", keep)
    if hide is not None:
        return Pattern(HIDE[choose("part to --hide", hide, HIDE)])
    if not know or not know.strip():
        raise InputError("--know: the pattern is empty; write for example 'grid 4'")
    return Pattern.read(know)


def by_mask(
    picture: UInt8[ndarray, "h w c"], mask: Bool[ndarray, "h w"], hidden: bool, notes: tuple[str, ...], where: str
) -> Part:
    """The pixels of a mask."""
    if not mask.any():
        raise InputError(f"{where}: no pixel is known, so there is nothing to complete from; in a mask white is known")
    return Part(picture, np.argwhere(mask).astype(float), picture[mask] / 255, mask, hidden, notes)


def _read_mask(path: Path, shape: tuple[int, int]) -> Bool[ndarray, "h w"]:
    """True where it is white."""
    found = read_image(path)
    if found.shape[:2] != shape:
        (h, w), (rows, columns) = shape, found.shape[:2]
        raise InputError(f"--mask {path} is {columns} × {rows}, the picture {w} × {h}; they must be of one size")
    return found.mean(2) > 127


def _transparency(path: Path) -> tuple[Bool[ndarray, "h w"] | None, tuple[str, ...]]:
    """Which pixels are fully transparent, and what became of those that are so in part."""
    from PIL import Image

    with warnings.catch_warnings(action="ignore"), Image.open(path, formats=("PNG", "JPEG")) as picture:
        if "A" not in picture.getbands() and "transparency" not in picture.info:
            return None, ()
        alpha = np.asarray(picture.convert("RGBA").getchannel("A"))
    some = int(((alpha > 0) & (alpha < 255)).sum())
    notes = (f"{some:,} pixels are partly transparent: they are laid on white, and known",) if some else ()
    return alpha == 0, notes
