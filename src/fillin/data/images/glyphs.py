"""Letters and digits of five alphabets in the fonts that matplotlib ships: hundreds of classes without a download."""

import unicodedata
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, interpolate

from fillin.data.task import make_generator
from fillin.runtime import require

SIDE = 24  # pixels along each side of an image
COPIES = 2  # distorted images of a character in each face
# DejaVu, which matplotlib ships: three families of four faces
FACES = [
    *(f"DejaVu{family}{style}" for family in ("Sans", "SansMono")
      for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
]  # fmt: skip
_CATEGORIES = ("Lu", "Ll", "Lo", "Nd")  # of Unicode: letters and digits
_LAST = 0x1100  # code point after the Georgian letters; later blocks mix alphabets
_RASTER = 64  # pixels of a glyph before it is distorted
_POINTS = 60.0
_THUMBNAIL = 16  # side at which glyphs are compared
_SAME = 0.92  # correlation above which two characters are one class: o and O, P and Ρ
# largest distortions: radians, logarithms of scales, slopes, and shares of the side
_ROTATION, _STRETCH, _SHEAR, _SHIFT = 0.25, 0.15, 0.2, 0.08
_FILLED = 0.72  # share of an image that the longer side of a glyph fills


@lru_cache(maxsize=1)
def read_glyphs() -> tuple[UInt8[ndarray, "n h w 1"], Int64[ndarray, "n"], str]:
    """Draw the data set.

    A class is a letter or digit that all twelve `FACES` have and that has no accent. Glyphs are scaled to one size;
    characters that then look like an earlier one (S and s, P and Rho) are left out. Classes are in the order of code
    points: digits, Latin and phonetic letters, Greek, Cyrillic, Armenian, Georgian. Every face gives `COPIES` images,
    each with a random rotation, stretch, shear and shift, the same in every process.

    Returns
    -------
    pixels : uint8 array of shape (n, 24, 24, 1)
        Bright characters on black, class by class.
    labels : int64 array of shape (n,)
        The class of each image.
    characters : str
        The character of each class.
    """
    fonts = _open_fonts()
    code_points = sorted(set.intersection(*({*font.get_charmap()} for font in fonts)))
    characters = [
        character for character in map(chr, code_points)
        if ord(character) < _LAST
        and unicodedata.category(character) in _CATEGORIES
        and not unicodedata.decomposition(character)
    ]  # fmt: skip
    plain = torch.stack([_draw_glyph(fonts[0], character) for character in characters])
    kept = _select_distinct(plain)
    characters = [characters[i] for i in kept]
    images = [torch.stack([_draw_glyph(font, character) for font in fonts]) for character in characters]
    random = make_generator(0, len(characters))
    pixels = torch.cat([_distort(of_class.repeat_interleave(COPIES, 0), random) for of_class in images])
    labels = np.arange(len(characters)).repeat(len(fonts) * COPIES)
    return (pixels * 255).round().clamp(0, 255).byte().numpy()[..., None], labels, "".join(characters)


def _open_fonts() -> list:
    folder = Path(require("matplotlib").get_data_path()) / "fonts" / "ttf"
    fonts = [require("matplotlib.ft2font").FT2Font(str(folder / f"{face}.ttf")) for face in FACES]
    for font in fonts:
        font.set_size(_POINTS, 72)
    return fonts


def _draw_glyph(font, character: str) -> Float[Tensor, "_ _"]:
    """Draw a character, its longer side as large as the raster."""
    font.set_text(character)
    font.draw_glyphs_to_bitmap(antialiased=True)
    ink = np.asarray(font.get_image())
    rows, columns = np.flatnonzero(ink.max(axis=1)), np.flatnonzero(ink.max(axis=0))
    if not len(rows):
        return torch.zeros(_RASTER, _RASTER)
    ink = torch.tensor(ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]).float() / 255
    height, width = ink.shape
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    square = torch.nn.functional.pad(ink, (left, side - width - left, top, side - height - top))
    return interpolate(square[None, None], (_RASTER, _RASTER), mode="bilinear", antialias=True)[0, 0]


def _select_distinct(glyphs: Float[Tensor, "n h w"]) -> list[int]:
    """Return the glyphs that are not empty and do not look like an earlier selected one."""
    small = interpolate(glyphs[:, None], (_THUMBNAIL, _THUMBNAIL), mode="bilinear", antialias=True).flatten(1)
    small = small - small.mean(1, keepdim=True)
    norm = small.norm(dim=1, keepdim=True)
    similar = (small / norm.clamp_min(1e-9)) @ (small / norm.clamp_min(1e-9)).T
    selected: list[int] = []
    for i in range(len(glyphs)):
        if norm[i] > 1e-3 and not any(similar[i, j] > _SAME for j in selected):
            selected.append(i)
    return selected


def _distort(glyphs: Float[Tensor, "n h w"], random: torch.Generator) -> Float[Tensor, "n s s"]:
    """Rotate, stretch, shear and shift each glyph at random, and reduce it to the size of an image."""
    n = len(glyphs)
    u = 2 * torch.rand(n, 6, generator=random) - 1
    angle, shear = _ROTATION * u[:, 0], _SHEAR * u[:, 1]
    stretch = torch.exp(_STRETCH * u[:, 2:4]) * _FILLED
    cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros(n), torch.ones(n)
    rotation = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    slope = torch.stack([torch.stack([one, shear], 1), torch.stack([zero, one], 1)], 1)
    matrix = torch.linalg.inv(rotation @ slope @ torch.diag_embed(stretch))  # from the image to the glyph
    shift = -(matrix @ (_SHIFT * u[:, 4:])[..., None])
    grid = affine_grid(torch.cat([matrix, shift], 2), [n, 1, 2 * SIDE, 2 * SIDE], align_corners=False)
    return avg_pool2d(grid_sample(glyphs[:, None], grid, align_corners=False), 2)[:, 0]
