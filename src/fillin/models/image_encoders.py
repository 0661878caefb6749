"""Encoders of a whole image, at any resolution, to one vector: by convolutions, or by attention between patches."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.attention import Sinusoid
from fillin.errors import InputError
from fillin.layers import Block

_POOL_SIDE = 4  # regions along each side whose means form the vector
_MIN_CHANNELS = 8


class ConvEncoder(nn.Module):
    """h ← relu(norm(conv(h))) for each of `strides`, means over 4 × 4 regions of the image, then one linear map.

    join=False omits the linear map: the vector then has 8·width numbers (4·width with one convolution). The first
    convolution has width/4 channels and a 5 × 5 kernel where it is strided; the others have width/2 and 3 × 3.

    >>> ConvEncoder(1, 32)(torch.rand(5, 28, 28, 1)).shape
    torch.Size([5, 32])
    """

    def __init__(
        self, colours: int, width: int, strides: Sequence[int] = (2, 2, 1), dropout: float = 0.0, join: bool = True
    ):
        super().__init__()
        if not isinstance(strides, Sequence) or not strides or any(type(s) is not int or s < 1 for s in strides):
            raise InputError(f"strides must be whole numbers of at least 1, one for each convolution, got {strides!r}")
        sizes = [colours, max(_MIN_CHANNELS, width // 4), *[max(_MIN_CHANNELS, width // 2)] * (len(strides) - 1)]
        stages: list[nn.Module] = []
        for (into, out), stride in zip(pairwise(sizes), strides, strict=True):
            half = 2 if stride > 1 and not stages else 1
            conv = nn.Conv2d(into, out, 2 * half + 1, stride=stride, padding=half, bias=False)
            stages += [conv, nn.GroupNorm(1, out), nn.ReLU(inplace=True)]
        self.stages = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(_POOL_SIDE), nn.Flatten(), nn.Dropout(dropout))
        self.dim = width if join else _POOL_SIDE**2 * sizes[-1]
        self.out = nn.Linear(_POOL_SIDE**2 * sizes[-1], width) if join else nn.Identity()

    def forward(self, images: Float[Tensor, "n h w c"]) -> Float[Tensor, "n e"]:
        return self.out(self.stages(images.permute(0, 3, 1, 2)))


class PatchEncoder(nn.Module):
    """Patches of `side` × `side` pixels, embedded linearly with their positions, `layers` blocks, and the mean.

    An image whose sides are no multiples of `side` is padded with the pixels of its edge.

    >>> PatchEncoder(3, 32)(torch.rand(5, 10, 6, 3)).shape
    torch.Size([5, 32])
    """

    def __init__(self, colours: int, width: int, side: int = 4, layers: int = 2, heads: int = 4):
        super().__init__()
        if type(side) is not int or side < 1:
            raise InputError(f"patch must be the side of a patch in pixels, at least 1, got {side!r}")
        self.side = side
        self.embed = nn.Linear(side * side * colours, width)
        self.positions = Sinusoid(width, 2, base=100.0)
        self.blocks: Iterable[Any] = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Float[Tensor, "n h w c"]) -> Float[Tensor, "n e"]:
        down, right = (-size % self.side for size in images.shape[1:3])
        maps = nn.functional.pad(images.permute(0, 3, 1, 2), (0, right, 0, down), mode="replicate")
        patches = maps.unfold(2, self.side, self.side).unfold(3, self.side, self.side)  # [n c rows columns side side]
        rows, columns = patches.shape[2:4]
        x = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(images)
        tokens = self.embed(patches.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)) + self.positions(x)
        for block in self.blocks:
            tokens = block(tokens)
        return self.norm(tokens).mean(1)
