"""PNG and JPEG files, read by Pillow: one image, or a folder of images."""

import warnings
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray

from fillin.errors import InputError
from fillin.runtime import require

SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_PIXELS = 1 << 26  # of one image
_MAX_FOLDER_BYTES = 4 << 30


def read_image(path: Path | BytesIO, name: str | None = None, max_pixels: int = MAX_PIXELS) -> UInt8[ndarray, "h w c"]:
    """Read a grey (c = 1) or colour (c = 3) image; transparent pixels are composited on white.

    `name` names the image in errors. Images of more than `max_pixels` are not decoded.
    """
    name = str(path) if name is None else name
    module = require("PIL.Image")
    try:
        with (
            warnings.catch_warnings(action="error", category=module.DecompressionBombWarning),
            module.open(path, formats=("PNG", "JPEG")) as image,
        ):
            if image.width * image.height > max_pixels:
                size = f"{image.width} × {image.height}"
                raise InputError(f"{name} is {size}, more than {max_pixels:,} pixels; scale it down first")
            return np.array(_to_array(image))
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, module.DecompressionBombError, module.DecompressionBombWarning) as error:
        reason = "it is neither" if isinstance(error, module.UnidentifiedImageError) else error
        raise InputError(f"{name} cannot be read as PNG or JPEG: {reason}") from error


def _to_array(image: Any) -> UInt8[ndarray, "h w c"]:
    """Convert to 8 bits per channel, grey or RGB; of 16 bits keep the upper 8."""
    if image.mode.startswith("I;16") or image.mode == "I":
        return (np.asarray(image).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8)[..., None]
    grey = image.mode in ("1", "L", "LA")
    if image.mode in ("LA", "PA", "RGBA", "P", "La", "RGBa") or "transparency" in image.info:
        over = image.convert("RGBA")
        white = require("PIL.Image").new("RGBA", over.size, "white")
        image = require("PIL.Image").alpha_composite(white, over)
    pixels = np.asarray(image.convert("L" if grey else "RGB"))
    return pixels[..., None] if grey else pixels


def read_folder(path: Path) -> tuple[UInt8[ndarray, "n h w c"], Int64[ndarray, "n"] | None]:
    """Read images in the order of their names; subfolders are classes."""
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{path} has no images in it: no {', '.join(SUFFIXES)}, and no *-images-idx3-ubyte")
    images, total = [], 0
    for file in files:
        images.append(read_image(file))
        total += images[-1].size
        if total > _MAX_FOLDER_BYTES:
            raise InputError(f"{path}: more than {_MAX_FOLDER_BYTES >> 30} GB of pixels; use fewer or smaller images")
    sizes = Counter(image.shape[:2] for image in images)
    usual = sizes.most_common(1)[0][0]
    for file, image in zip(files, images, strict=True):
        if image.shape[:2] != usual:
            raise InputError(
                f"{file} is {image.shape[1]} × {image.shape[0]}, but most others are {usual[1]} × {usual[0]}; images "
                "of a set must have one size: scale or crop them first"
            )
    channels = max(image.shape[2] for image in images)  # one colour image makes all of them colour
    pixels = np.stack([np.broadcast_to(image, (*usual, channels)) for image in images])
    names = [file.parent.relative_to(path).as_posix() for file in files]
    if len(set(names)) == 1:
        return pixels, None
    return pixels, np.unique(names, return_inverse=True)[1].astype(np.int64)
