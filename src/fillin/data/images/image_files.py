"""PNG and JPEG, by Pillow: one picture, or a folder of them."""

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
MOST = 1 << 26  # pixels of one picture
_BYTES = 4 << 30  # of a folder


def read_picture(path: Path | BytesIO, name: str | None = None, most: int = MOST) -> UInt8[ndarray, "h w c"]:
    """Grey (c = 1) or in colour (c = 3); what is transparent is laid on white. What has no path has a name in errors;
    more than `most` pixels are not decoded."""
    name = str(path) if name is None else name
    module = require("PIL.Image")
    try:
        with (
            warnings.catch_warnings(action="error", category=module.DecompressionBombWarning),
            module.open(path, formats=("PNG", "JPEG")) as picture,
        ):
            if picture.width * picture.height > most:
                size = f"{picture.width} × {picture.height}"
                raise InputError(f"{name} is {size}, more than {most:,} pixels; make it smaller first")
            return np.array(_plain(picture))
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, module.DecompressionBombError, module.DecompressionBombWarning) as error:
        why = "it is neither" if isinstance(error, module.UnidentifiedImageError) else error
        raise InputError(f"{name} cannot be read as PNG or JPEG: {why}") from error


def _plain(picture: Any) -> UInt8[ndarray, "h w c"]:
    """Eight bits of grey or of red, green and blue; of sixteen the upper eight."""
    if picture.mode.startswith("I;16") or picture.mode == "I":
        return (np.asarray(picture).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8)[..., None]
    grey = picture.mode in ("1", "L", "LA")
    if picture.mode in ("LA", "PA", "RGBA", "P", "La", "RGBa") or "transparency" in picture.info:
        over = picture.convert("RGBA")
        white = require("PIL.Image").new("RGBA", over.size, "white")
        picture = require("PIL.Image").alpha_composite(white, over)
    pixels = np.asarray(picture.convert("L" if grey else "RGB"))
    return pixels[..., None] if grey else pixels


def read_folder(path: Path) -> tuple[UInt8[ndarray, "n h w c"], Int64[ndarray, "n"] | None]:
    """Pictures in the order of their names; where they are in subfolders, each of those is a class."""
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{path} has no images in it: no {', '.join(SUFFIXES)}, and no *-images-idx3-ubyte")
    made, total = [], 0
    for file in files:
        made.append(read_picture(file))
        total += made[-1].size
        if total > _BYTES:
            raise InputError(f"{path}: more than {_BYTES >> 30} GB of pixels; use fewer or smaller images")
    sizes = Counter(one.shape[:2] for one in made)
    usual = sizes.most_common(1)[0][0]
    for file, one in zip(files, made, strict=True):
        if one.shape[:2] != usual:
            raise InputError(
                f"{file} is {one.shape[1]} × {one.shape[0]}, and most others are {usual[1]} × {usual[0]}; images of a "
                "set have one size: scale or crop them first"
            )
    channels = max(one.shape[2] for one in made)  # one in colour makes all of them so
    pixels = np.stack([np.broadcast_to(one, (*usual, channels)) for one in made])
    names = [file.parent.relative_to(path).as_posix() for file in files]
    if len(set(names)) == 1:
        return pixels, None
    return pixels, np.unique(names, return_inverse=True)[1].astype(np.int64)
