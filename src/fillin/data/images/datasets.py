"""Image data sets: scikit-learn's digits, glyphs, IDX files, NumPy archives, folders of images, single images."""

import gzip
import os
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fillin.data.images.glyphs import read_glyphs
from fillin.errors import InputError, choose
from fillin.runtime import require

SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_PIXELS = 1 << 26  # of one image
_MAX_FOLDER_BYTES = 4 << 30
_TEST_EVERY = 10  # every tenth image is a test image where a set does not define its parts
_MAX_IDX_BYTES = 4 << 30
_SHRUNK_TOGETHER = 4096  # images, so that those in floating point stay small


@dataclass(frozen=True)
class ImageSet:
    """Images of one shape and, where known, their labels."""

    name: str
    pixels: UInt8[ndarray, "n h w c"]
    labels: Int64[ndarray, "n"] | None = None

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels: 1 for grey, 3 for colour."""
        return self.pixels.shape[1:]

    def select(self, rows) -> "ImageSet":
        return ImageSet(self.name, self.pixels[rows], None if self.labels is None else self.labels[rows])


def read_images(source: str | os.PathLike = "digits", part: str = "train") -> ImageSet:
    """Read `digits`, `glyphs` (letters: `read_glyphs`) or a path: a folder of IDX files or of PNG and JPEG (subfolders
    are classes), .npy, .npz, an image.

    An archive holds x_train, x_test and, with labels, y_train, y_test; or one array of images, n × h × w or n × h × w
    × c. Where a set does not define its parts, every tenth image is a test image.
    """
    choose("part", part, ("train", "test"))
    if str(source) == "digits":
        return _digits(part)
    if str(source) == "glyphs":
        pixels, labels, _ = read_glyphs()
        return _select_part(ImageSet("glyphs", pixels, labels), part)
    path = Path(source).resolve()
    if not path.exists():
        raise InputError(f"{source}: no such file or folder; `digits` and `glyphs` need none")
    try:
        return _read(str(path), part, path.stat().st_mtime_ns)
    except MemoryError as error:
        raise InputError(f"{source}: the images do not fit into memory") from error


@lru_cache(maxsize=4)
def _digits(part: str) -> ImageSet:
    digits = require("sklearn.datasets").load_digits()
    pixels = np.round(digits.images[..., None] * (255 / 16)).astype(np.uint8)
    return _select_part(ImageSet("digits", pixels, digits.target.astype(np.int64)), part)


@lru_cache(maxsize=4)
def _read(source: str, part: str, changed: int) -> ImageSet:
    """Read a path. `changed` is its modification time: another time is another entry of the cache."""
    path = Path(source)
    if path.is_dir():
        if any(path.glob("*-images-idx3-ubyte*")):
            return _read_idx_set(path, part)
        return _select_part(ImageSet(path.name, *read_folder(path)), part)
    if path.suffix.lower() in SUFFIXES:
        return ImageSet(path.stem, read_image(path)[None])
    if path.suffix.lower() not in (".npz", ".npy"):
        raise InputError(f"{path}: images are read from folders, .npz, .npy and {', '.join(SUFFIXES)}")
    return _read_numpy(path, part)


def _read_idx_set(path: Path, part: str) -> ImageSet:
    start = {"train": "train", "test": "t10k"}[part]
    files = {kind: sorted(path.glob(f"{start}-{kind}-ubyte*")) for kind in ("images-idx3", "labels-idx1")}
    if not files["images-idx3"]:
        raise InputError(f"{path} has no {start}-images-idx3-ubyte (or .gz), the images of its part '{part}'")
    images = _read_idx(files["images-idx3"][0])
    if images.ndim != 3:
        raise InputError(f"{files['images-idx3'][0]} has {images.ndim} dimensions; images have three: n × h × w")
    labels = _read_idx(files["labels-idx1"][0]) if files["labels-idx1"] else None
    return _make_set(path.name, images[..., None], labels, files["images-idx3"][0])


def _read_idx(path: Path) -> UInt8[ndarray, "..."]:
    """Read an IDX file, the format of MNIST, gzipped or not; never more bytes than its header declares.

    Two zero bytes, the type (8: bytes), the number of dimensions, each of them as a big-endian uint32, then the values.
    """
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] != 8 or not 1 <= head[3] <= 4:
                raise InputError(f"{path} is not an IDX file of bytes (its first four bytes are {head.hex(' ')})")
            shape = tuple(np.frombuffer(file.read(4 * head[3]), ">u4").astype(int).tolist())
            size = int(np.prod(shape, dtype=object))
            if len(shape) != head[3] or size > _MAX_IDX_BYTES:
                raise InputError(
                    f"{path}: its header is truncated, or declares {size:,} bytes; at most {_MAX_IDX_BYTES:,} are read"
                )
            data = file.read(size)
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if len(data) < size:
        raise InputError(f"{path} ends after {len(data):,} of {size:,} values; fetch it again")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _read_numpy(path: Path, part: str) -> ImageSet:
    """Read an archive of arrays, or one array."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = loaded if isinstance(loaded, Mapping) else {"images": loaded}
            names = sorted(arrays)
            if f"x_{part}" in names:
                labels = arrays[f"y_{part}"].reshape(-1) if f"y_{part}" in names else None
                return _make_set(path.stem, _to_bytes(arrays[f"x_{part}"], path), labels, path)
            if len(names) == 1:
                return _select_part(_make_set(path.stem, _to_bytes(arrays[names[0]], path), None, path), part)
    except InputError:
        raise
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        kind = "archive" if path.suffix.lower() == ".npz" else "array"
        raise InputError(f"{path} cannot be read as a NumPy {kind}: {error}") from error
    raise InputError(f"{path} holds {', '.join(names)}; it must hold x_{part}, or one array of images")


def _to_bytes(array: ndarray, path: Path) -> UInt8[ndarray, "n h w c"]:
    """Convert images to bytes; floating-point colours must lie in [0, 1]."""
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[3] not in (1, 3):
        raise InputError(f"{path}: images are n × h × w, or n × h × w × 1 or 3, got {array.shape}")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or array.min(initial=0) < 0 or array.max(initial=0) > 1:
            raise InputError(f"{path}: floating-point colours must lie between 0 and 1")
        return np.round(array * 255).astype(np.uint8)
    if array.dtype.kind not in "iub" or array.min(initial=0) < 0 or array.max(initial=0) > 255:
        raise InputError(f"{path}: colours must be whole numbers from 0 to 255, or floating-point numbers from 0 to 1")
    return (array * np.uint8(255) if array.dtype.kind == "b" else array).astype(np.uint8)


def _make_set(name: str, pixels: ndarray, labels: ndarray | None, path: Path) -> ImageSet:
    if not pixels.size:
        raise InputError(f"{path} has no images in it")
    if labels is not None and len(labels) != len(pixels):
        raise InputError(f"{path}: {len(pixels):,} images and {len(labels):,} labels; each image needs one label")
    return ImageSet(name, pixels, None if labels is None else labels.astype(np.int64))


def _select_part(images: ImageSet, part: str) -> ImageSet:
    """Select every tenth image for testing, the others for training; fewer than ten serve for both."""
    if len(images) < _TEST_EVERY:
        return images
    test = np.arange(len(images)) % _TEST_EVERY == _TEST_EVERY - 1
    return images.select(test if part == "test" else ~test)


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
            if image.mode.startswith("I;16") or image.mode == "I":  # of 16 bits keep the upper 8
                return (np.asarray(image).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8)[..., None]
            mode = "L" if image.mode in ("1", "L", "LA") else "RGB"
            if image.mode in ("LA", "PA", "RGBA", "P", "La", "RGBa") or "transparency" in image.info:
                white = module.new("RGBA", image.size, "white")
                image = module.alpha_composite(white, image.convert("RGBA"))
            return np.array(image.convert(mode)).reshape(image.height, image.width, -1)
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, module.DecompressionBombError, module.DecompressionBombWarning) as error:
        reason = "it is neither" if isinstance(error, module.UnidentifiedImageError) else error
        raise InputError(f"{name} cannot be read as PNG or JPEG: {reason}") from error


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
    usual = Counter(image.shape[:2] for image in images).most_common(1)[0][0]
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


def shrink(images: ImageSet, size: int) -> ImageSet:
    """Average images to `size` × `size` pixels. Where `size` divides a side, each pixel is the mean of a rectangle.

    >>> pixels = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
    >>> shrink(ImageSet("example", pixels), 2).pixels[0, :, :, 0].tolist()
    [[2, 4], [10, 12]]
    """
    parts = []
    for start in range(0, len(images), _SHRUNK_TOGETHER):
        pixels = torch.from_numpy(images.pixels[start : start + _SHRUNK_TOGETHER]).permute(0, 3, 1, 2).float()
        means = adaptive_avg_pool2d(pixels, (size, size)).permute(0, 2, 3, 1)
        parts.append(means.round().byte().numpy())
    return ImageSet(images.name, np.concatenate(parts), images.labels)


def to_colours(pixels: UInt8[ndarray, "*n c"]) -> Float[Tensor, "*n c"]:
    """Map bytes 0 … 255 to colours −½ … ½."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255 - 0.5


def to_pixels(colours: Float[Tensor, "*n c"]) -> UInt8[ndarray, "*n c"]:
    """Map colours back to bytes, clipped to 0 … 255."""
    return ((colours.detach() + 0.5) * 255).round().clamp(0, 255).byte().cpu().numpy()
