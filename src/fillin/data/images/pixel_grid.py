"""Where pixels are and what they hold: an image covers [−2, 2] along its longer side, whatever its resolution.

The centre of pixel (i, j) of h × w is ((2i + 1 − h), (2j + 1 − w)) · 2 / max(h, w): rows first, downwards. A picture of
twice the resolution has its pixels around the same places, so one model maps between resolutions.
"""

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy import ndarray
from torch import Tensor

_HALF = 2.0  # of the longer side


def places(height: int, width: int, of: tuple[int, int] | None = None) -> Float[Tensor, "hw 2"]:
    """The centres of pixels, row by row, of an image `of` another shape that is drawn with height × width of them."""
    rows, columns = of or (height, width)
    unit = _HALF / max(rows, columns)
    y = (2 * torch.arange(height) + 1 - height) * (unit * rows / height)
    x = (2 * torch.arange(width) + 1 - width) * (unit * columns / width)
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), -1).flatten(0, 1)


def colours(pixels: UInt8[ndarray, "*n c"]) -> Float[Tensor, "*n c"]:
    """0 … 255 → −½ … ½."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255 - 0.5


def pixels(colours: Float[Tensor, "*n c"]) -> UInt8[ndarray, "*n c"]:
    """Back, what is beyond black and white cut off."""
    return ((colours.detach() + 0.5) * 255).round().clamp(0, 255).byte().cpu().numpy()
