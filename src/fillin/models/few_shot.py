"""Models that are shown images with their labels, and asked about others.

`npt-images`, a non-parametric transformer on images (Kossen et al. 2021): datapoints attend to those that are shown.

    h_i = embed(image_i) + label(y_i),  label being one vector of its own where y_i is hidden
    h ← block(h, h_shown)  repeated: queries are all datapoints, keys those that are shown;  logits_i = W h_i

`matching`, a process whose values are classes (Vinyals et al. 2016): one attention, from what is asked to what is
shown.

    p(y_i = k) = Σ_j w_ij [y_j = k],  w a softmax over shown j of s · cos(embed(image_i), embed(image_j))

What is asked about is not seen by others: an answer depends on the image and on what is shown, in any order, and not on
what else is asked.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from fillin.attention import attend
from fillin.errors import InputError, choose
from fillin.layers import Block
from fillin.models.classifier import Classifier, check_dropout
from fillin.models.image_encoders import ConvEncoder, PatchEncoder

_TINY = 1e-30  # the least probability that a logarithm is taken of
_SHARP = 10.0  # at the start, how many times a cosine is the logit of a pair


class InContextClassifier(Classifier):
    """logits = model(images, labels): of a data set of images the first are shown with their labels, the rest asked."""

    embed: nn.Module
    norm: nn.LayerNorm

    def forward(
        self, images: Float[Tensor, "b n h w c"], labels: Int64[Tensor, "b shown"]
    ) -> Float[Tensor, "b asked k"]:
        """Logits of the classes of each image that is asked about: those after the ones that `labels` are of."""
        self._check(images, "b n h w")
        if labels.ndim != 2 or len(labels) != len(images) or labels.shape[1] > images.shape[1]:
            raise InputError(
                f"{self._name}: labels must be [b shown], of the first images of each data set, got "
                f"{list(labels.shape)} for images {list(images.shape)}"
            )
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.dim_y:
            raise InputError(
                f"{self._name}: labels go from {labels.min()} to {labels.max()}, but the model tells {self.dim_y} "
                f"classes apart, 0 to {self.dim_y - 1}"
            )
        return self.answer(self.embedded(images), labels)

    def embedded(self, images: Float[Tensor, "b n h w c"]) -> Float[Tensor, "b n e"]:
        """A vector for each image, before it meets any other."""
        return self.embed(images.flatten(0, 1)).unflatten(0, images.shape[:2])

    def answer(self, h: Float[Tensor, "b n e"], labels: Int64[Tensor, "b shown"]) -> Float[Tensor, "b asked k"]:
        raise NotImplementedError


class NPTImages(InContextClassifier):
    """Attention between datapoints. `embedding` makes one vector of an image: "cnn", convolutions of `strides`, or
    "patches" of `patch` × `patch` pixels. The weights know what each class looks like.

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
        self.label = nn.Embedding(dim_y + 1, width)  # the last: hidden
        self.blocks: Iterable[Any] = nn.ModuleList(
            Block(width, heads, hidden=hidden, dropout=dropout, backend=backend) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, dim_y)

    def answer(self, h: Float[Tensor, "b n e"], labels: Int64[Tensor, "b shown"]) -> Float[Tensor, "b asked k"]:
        b, shown = labels.shape
        hidden = labels.new_full((b, h.shape[1] - shown), self.dim_y)
        h = h + self.label(torch.cat([labels, hidden], 1))
        for block in self.blocks:
            h = block(h, h[:, :shown])
        return self.out(self.norm(h[:, shown:]))


class MatchingNetwork(InContextClassifier):
    """Classes are names that mean nothing: an image is of a class as far as it is like the images shown of it. Renaming
    classes renames the answers, and classes may be new. Its vectors know what is where: they join no parts of an image.

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
        self.sharpness = nn.Parameter(torch.tensor(_SHARP).log())
        self.backend = backend

    def answer(self, h: Float[Tensor, "b n e"], labels: Int64[Tensor, "b shown"]) -> Float[Tensor, "b asked k"]:
        shown = labels.shape[1]
        if not shown:
            raise InputError("matching: it compares with images that are shown; show at least one")
        z = normalize(self.norm(h), dim=-1)[:, None]
        q = z[:, :, shown:] * self.sharpness.exp() * z.shape[-1] ** 0.5  # attend() divides by that root
        values = one_hot(labels, self.dim_y).to(z)[:, None]
        return attend(q, z[:, :, :shown], values, backend=self.backend)[:, 0].clamp_min(_TINY).log()
