"""In-context image classifiers: predict the labels of query images given a support set of labelled images.

Queries do not attend to one another: a prediction depends on its image and on the support set, in any order.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from fillin.attention import Sinusoid, attend
from fillin.errors import InputError, choose
from fillin.layers import Block
from fillin.linear import LinearLayer
from fillin.models.classifier import Classifier, check_dropout

_MIN_PROBABILITY = 1e-30
_INITIAL_SHARPNESS = 10.0  # s at the start
_POOL_SIDE = 4  # regions along each side whose means form the vector of an image
_MIN_CHANNELS = 8


class ConvEncoder(nn.Module):
    """h ← relu(norm(conv(h))) for each of `strides`, means over 4 × 4 regions of the image, then one linear map.

    join=False omits the linear map: the vector then has 8·width numbers (4·width with one convolution). The first
    convolution has width/4 channels and a 5 × 5 kernel where it is strided; the others have width/2 and 3 × 3.

    >>> ConvEncoder(1, 32)(torch.rand(5, 28, 28, 1)).shape
    torch.Size([5, 32])
    """

    def __init__(self, colours: int, width: int, strides: Sequence[int] = (2, 2, 1), dropout=0.0, join: bool = True):
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
        self.out = LinearLayer(_POOL_SIDE**2 * sizes[-1], width) if join else nn.Identity()

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
        self.embed = LinearLayer(side * side * colours, width)
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


class InContextClassifier(Classifier):
    """logits = model(images, labels): the first images are the support set with these labels, the others queries."""

    embed: nn.Module
    norm: nn.LayerNorm

    def forward(
        self, images: Float[Tensor, "b n h w c"], labels: Int64[Tensor, "b support"]
    ) -> Float[Tensor, "b queries k"]:
        """Return the logits of the classes of each query image: those after the images of `labels`."""
        self._check(images, "b n h w")
        if labels.ndim != 2 or len(labels) != len(images) or labels.shape[1] > images.shape[1]:
            raise InputError(
                f"{self._name}: labels must be [b support], of the first images of each set, got "
                f"{list(labels.shape)} for images {list(images.shape)}"
            )
        self.check_labels(labels)
        return self.predict(self.embed_images(images), labels)

    def embed_images(self, images: Float[Tensor, "b n h w c"]) -> Float[Tensor, "b n e"]:
        """Return a vector for each image."""
        return self.embed(images.flatten(0, 1)).unflatten(0, images.shape[:2])

    def predict(self, h: Float[Tensor, "b n e"], labels: Int64[Tensor, "b support"]) -> Float[Tensor, "b queries k"]:
        """Return the logits of the query images from the vectors of all images. Subclasses implement it."""
        raise NotImplementedError


class NPTImages(InContextClassifier):
    """Non-parametric transformer on images (Kossen et al. 2021): all images attend to the support set.

        h_i = embed(image_i) + label(y_i),  with a separate vector where y_i is missing
        h ← block(h, h_support)  repeated;  logits_i = W h_i

    `embedding` is "cnn", convolutions of `strides`, or "patches" of `patch` × `patch` pixels. The classes are fixed.

    >>> NPTImages(dim_x=1, dim_y=10, layers=1)(torch.rand(2, 7, 8, 8, 1), torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 2, 10])
    """

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 10,
        width: int = 128,
        heads: int = 8,
        layers: int = 2,
        hidden: int = 256,
        dropout: float = 0.0,
        embedding: str = "cnn",
        strides: Sequence[int] = (2, 2, 1),
        patch: int = 4,
        backend: str = "auto",
    ):
        super().__init__(dim_x, dim_y)
        check_dropout("npt-images", dropout)
        if choose("embedding", embedding, ["cnn", "patches"]) == "cnn":
            self.embed = ConvEncoder(dim_x, width, strides)
        else:
            self.embed = PatchEncoder(dim_x, width, patch, heads=heads)
        self.label = nn.Embedding(dim_y + 1, width)  # the last: missing
        self.blocks: Iterable[Any] = nn.ModuleList(
            Block(width, heads, hidden=hidden, dropout=dropout, backend=backend) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.out = LinearLayer(width, dim_y)

    def predict(self, h: Float[Tensor, "b n e"], labels: Int64[Tensor, "b support"]) -> Float[Tensor, "b queries k"]:
        b, support = labels.shape
        missing = labels.new_full((b, h.shape[1] - support), self.dim_y)
        h = h + self.label(torch.cat([labels, missing], 1))
        for block in self.blocks:
            h = block(h, h[:, :support])
        return self.out(self.norm(h[:, support:]))


class MatchingNetwork(InContextClassifier):
    """Matching network (Vinyals et al. 2016): p(y_i = k) = Σ_j w_ij [y_j = k] over the support set, w a softmax
    over j of s · cos(embed(image_i), embed(image_j)). Permuting classes permutes the predictions; new ones are allowed.

    >>> model = MatchingNetwork(dim_y=3)
    >>> model(torch.rand(2, 7, 8, 8, 1), torch.zeros(2, 5, dtype=torch.long)).exp().sum(-1).mean().item()
    1.0
    """

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 10,
        width: int = 64,
        dropout: float = 0.0,
        strides: Sequence[int] = (2, 2),
        backend: str = "auto",
    ):
        super().__init__(dim_x, dim_y)
        check_dropout("matching", dropout)
        self.embed = ConvEncoder(dim_x, width, strides, dropout, join=False)
        self.norm = nn.LayerNorm(self.embed.dim)
        self.sharpness = nn.Parameter(torch.tensor(_INITIAL_SHARPNESS).log())
        self.backend = backend

    def predict(self, h: Float[Tensor, "b n e"], labels: Int64[Tensor, "b support"]) -> Float[Tensor, "b queries k"]:
        support = labels.shape[1]
        if not support:
            raise InputError("matching: the support set is empty; give at least one labelled image")
        z = normalize(self.norm(h), dim=-1)[:, None]
        q = z[:, :, support:] * self.sharpness.exp() * z.shape[-1] ** 0.5  # attend() divides by that root
        values = one_hot(labels, self.dim_y).to(z)[:, None]
        return attend(q, z[:, :, :support], values, backend=self.backend)[:, 0].clamp_min(_MIN_PROBABILITY).log()
