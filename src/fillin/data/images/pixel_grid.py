"""Locations and colours of pixels. An image covers [−2, 2] along its longer side, whatever its resolution.

The centre of pixel (i, j) of h × w is ((2i + 1 − h), (2j + 1 − w)) · 2 / max(h, w): rows first, downwards. An image of
twice the resolution covers the same locations, so one model maps between resolutions.
"""

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy import ndarray
from torch import Tensor

_HALF_SIDE = 2.0  # half the length of the longer side


def pixel_locations(height: int, width: int, shape: tuple[int, int] | None = None) -> Float[Tensor, "hw 2"]:
    """Return the centres of height × width pixels, row by row, over an image of `shape` (by default the same)."""
    rows, columns = shape or (height, width)
    unit = _HALF_SIDE / max(rows, columns)
    y = (2 * torch.arange(height) + 1 - height) * (unit * rows / height)
    x = (2 * torch.arange(width) + 1 - width) * (unit * columns / width)
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), -1).flatten(0, 1)


def to_colours(pixels: UInt8[ndarray, "*n c"]) -> Float[Tensor, "*n c"]:
    """Map bytes 0 … 255 to colours −½ … ½."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255 - 0.5


def to_pixels(colours: Float[Tensor, "*n c"]) -> UInt8[ndarray, "*n c"]:
    """Map colours back to bytes, clipped to 0 … 255."""
    return ((colours.detach() + 0.5) * 255).round().clamp(0, 255).byte().cpu().numpy()
