"""One vector for a whole image, at any resolution: by convolutions, or by patches that attend to one another."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.attention import Sinusoid
from fillin.errors import InputError
from fillin.layers import Block

_PARTS = 4  # along each side, of which convolutions keep a mean: a vector that knows what is where
_SMALLEST = 8  # channels


class Convolutions(nn.Module):
    """h ← relu(norm(conv(h))) for each of `strides`, then the means of 4 × 4 parts of the image, joined by one matrix
    unless `join` is False: then the vector has 8·width numbers (4·width of one convolution), part after part.

    The first convolution has width/4 channels, of 5 × 5 pixels where it skips some, the others width/2, of 3 × 3.

    >>> Convolutions(1, 32)(torch.rand(5, 28, 28, 1)).shape
    torch.Size([5, 32])
    """

    def __init__(
        self, colours: int, width: int, strides: Sequence[int] = (2, 2, 1), dropout: float = 0.0, join: bool = True
    ):
        super().__init__()
        if not isinstance(strides, Sequence) or not strides or any(type(s) is not int or s < 1 for s in strides):
            raise InputError(f"strides are whole numbers of at least 1, one for each convolution, got {strides!r}")
        sizes = [colours, max(_SMALLEST, width // 4), *[max(_SMALLEST, width // 2)] * (len(strides) - 1)]
        stages: list[nn.Module] = []
        for (into, out), stride in zip(pairwise(sizes), strides, strict=True):
            half = 2 if stride > 1 and not stages else 1
            conv = nn.Conv2d(into, out, 2 * half + 1, stride=stride, padding=half, bias=False)
            stages += [conv, nn.GroupNorm(1, out), nn.ReLU(inplace=True)]
        self.stages = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(_PARTS), nn.Flatten(), nn.Dropout(dropout))
        self.dim = width if join else _PARTS**2 * sizes[-1]
        self.out = nn.Linear(_PARTS**2 * sizes[-1], width) if join else nn.Identity()

    def forward(self, images: Float[Tensor, "n h w c"]) -> Float[Tensor, "n e"]:
        return self.out(self.stages(images.permute(0, 3, 1, 2)))


class Patches(nn.Module):
    """The mean of what patches of `side` × `side` pixels, each by one matrix and with its place, tell one another in
    `layers` blocks. What is missing of the last ones is as the edge.

    >>> Patches(3, 32)(torch.rand(5, 10, 6, 3)).shape
    torch.Size([5, 32])
    """

    def __init__(self, colours: int, width: int, side: int = 4, layers: int = 2, heads: int = 4):
        super().__init__()
        if type(side) is not int or side < 1:
            raise InputError(f"patch is the side of a patch in pixels, at least 1, got {side!r}")
        self.side = side
        self.embed = nn.Linear(side * side * colours, width)
        self.places = Sinusoid(width, 2, base=100.0)
        self.blocks: Iterable[Any] = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Float[Tensor, "n h w c"]) -> Float[Tensor, "n e"]:
        down, right = (-size % self.side for size in images.shape[1:3])
        maps = nn.functional.pad(images.permute(0, 3, 1, 2), (0, right, 0, down), mode="replicate")
        pieces = maps.unfold(2, self.side, self.side).unfold(3, self.side, self.side)  # [n c rows columns side side]
        rows, columns = pieces.shape[2:4]
        x = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(images)
        tokens = self.embed(pieces.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)) + self.places(x)
        for block in self.blocks:
            tokens = block(tokens)
        return self.norm(tokens).mean(1)
