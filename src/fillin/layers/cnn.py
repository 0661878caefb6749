"""Convolutional networks on grids of one and two dimensions, with their receptive field, from which margins follow."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

_CONV = {1: nn.Conv1d, 2: nn.Conv2d}
Map = Float[Tensor, "b _ ..."]


class _Residual(nn.Module):
    """x + conv(relu(x))."""

    def __init__(self, dim_x: int, width: int, kernel: int):
        super().__init__()
        self.conv = _CONV[dim_x](width, width, kernel, padding=kernel // 2)

    def forward(self, x: Map) -> Map:
        return x + self.conv(torch.relu(x))


class CNN(nn.Module):
    """Residual convolutions at one resolution. `reach` is the receptive field to each side, in grid points."""

    multiple = 1

    def __init__(self, dim_x: int, dim_in: int, dim_out: int, width: int = 64, layers: int = 4, kernel: int = 5):
        super().__init__()
        self.into = _CONV[dim_x](dim_in, width, 1)
        self.blocks = nn.Sequential(*(_Residual(dim_x, width, kernel) for _ in range(layers)))
        self.out = _CONV[dim_x](width, dim_out, 1)
        self.reach = layers * (kernel // 2)

    def forward(self, x: Map) -> Map:
        return self.out(torch.relu(self.blocks(self.into(x))))


class UNet(nn.Module):
    """A U-Net: halve the grid level by level, then double it again, with additive skip connections.

    Level l has (l + 1)·width channels, so most weights act on coarse grids, where a point is cheap. Grids must start
    and end at multiples of `multiple` = 2^levels.
    """

    def __init__(self, dim_x: int, dim_in: int, dim_out: int, width: int = 32, levels: int = 3, kernel: int = 5):
        super().__init__()
        conv, half = _CONV[dim_x], kernel // 2
        widths = [width * (level + 1) for level in range(levels + 1)]
        self.into = conv(dim_in, width, 1)
        self.down = nn.ModuleList(conv(a, b, kernel, stride=2, padding=half) for a, b in pairwise(widths))
        self.up = nn.ModuleList(conv(a, b, kernel, padding=half) for a, b in pairwise(reversed(widths)))
        self.middle = _Residual(dim_x, widths[-1], kernel)
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.out = conv(width, dim_out, 1)
        self.multiple = 2**levels
        # on the way down, a convolution at level l adds half·2^l to the receptive field; on the way up, so does one at
        # level l + 1, and upsampling adds the offset of a point within its cell
        self.reach = sum(half * 2**level for level in range(levels)) + half * 2**levels
        self.reach += sum(half * 2**level + 2**level for level in range(levels))

    def forward(self, x: Map) -> Map:
        x = self.into(x)
        skips = []
        for conv in self.down:
            skips.append(x)
            x = conv(torch.relu(x))
        x = self.middle(x)
        for conv, skip in zip(self.up, reversed(skips), strict=True):
            x = skip + conv(torch.relu(self.upsample(x)))
        return self.out(torch.relu(x))
