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
from fillin.models.base import Points, Process, Targets
from fillin.models.classifier import Classifier, check_dropout
from fillin.models.cnp import CANP, CNP
from fillin.models.tnp import TNP

_MIN_PROBABILITY = 1e-30
_INITIAL_SHARPNESS = 10.0  # s at the start
_POOL_SIDE = 4  # regions along each side whose means form the vector of an image
_MIN_CHANNELS = 8
# the processes of `FewShotProcess`, and the options that their names fix
_PROCESSES: dict[str, tuple[type[Process], dict[str, Any]]] = {
    "cnp": (CNP, {}),
    "canp": (CANP, {}),
    "tnp-d": (TNP, {}),
    "te-tnp": (TNP, {"equivariant": True, "score": "rbf", "radial": True}),
}


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
        self.check_sets(images, labels)
        return self.predict(self.embed_images(images), labels)

    def check_sets(self, images: Tensor, labels: Tensor, classes: int | None = None) -> None:
        """Raise an error unless labels are of the first images of each set, and below `classes` (None: the model's)."""
        self._check(images, "b n h w")
        if labels.ndim != 2 or len(labels) != len(images) or labels.shape[1] > images.shape[1]:
            raise InputError(
                f"{self._name}: labels must be [b support], of the first images of each set, got "
                f"{list(labels.shape)} for images {list(images.shape)}"
            )
        self.check_labels(labels, classes)

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


class FewShotProcess(InContextClassifier):
    """Neural process with a categorical head, whose inputs are images and whose outputs are classes (Garnelo et al.
    2018a, for few-shot classification).

        x_i = norm(embed(image_i)),  y_ik = 1 if the label of image i is k, else 0
        ln p(label = k | image, support set) = w · f(x; {(x_j, y_jk)}_j) + constant

    f are the features at x of one `process` given the support set as its context; it reads the columns of the one-hot
    labels one at a time, and a softmax over k normalises. The prediction is therefore equivariant to permutations of
    the classes and invariant to those of the support set, one set of weights serves any number of classes, and without
    a support set every class has the same probability. `process` is "tnp-d" (Nguyen & Grover 2022), "cnp", "canp", or
    "te-tnp" (Ashman et al. 2024), which depends on the distances between embeddings alone.

    `embedding` is "cnn", convolutions of `strides`, or "patches" of `patch` × `patch` pixels, with vectors of `dim`
    numbers; `channels` is the width of the embedding network.

    >>> model = FewShotProcess(dim_y=3, layers=1)
    >>> model(torch.rand(2, 7, 8, 8, 1), torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 2, 3])
    >>> model(torch.rand(2, 9, 8, 8, 1), torch.arange(8).expand(2, 8), classes=8).shape
    torch.Size([2, 1, 8])
    """

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 5,
        width: int = 64,
        heads: int = 4,
        layers: int = 3,
        hidden: int = 128,
        dropout: float = 0.0,
        process: str = "tnp-d",
        embedding: str = "cnn",
        channels: int = 128,
        strides: Sequence[int] = (2, 2, 1),
        patch: int = 4,
        backend: str = "auto",
    ):
        super().__init__(dim_x, dim_y)
        check_dropout("few-shot", dropout)
        if choose("embedding", embedding, ["cnn", "patches"]) == "cnn":
            self.embed = ConvEncoder(dim_x, channels, strides, dropout)
        else:
            self.embed = PatchEncoder(dim_x, channels, patch, heads=heads)
        kind, fixed = _PROCESSES[choose("process", process, _PROCESSES)]
        options: dict[str, Any] = {"width": width, "layers": layers, "head": "categorical", **fixed}
        if kind is not CNP:
            options |= {"heads": heads, "hidden": hidden}
        if kind is TNP:
            options["backend"] = backend
        self.norm = nn.LayerNorm(channels)
        self.process = kind(dim_x=channels, dim_y=1, **options)
        self.scale = channels**-0.5 if "radial" in fixed else 1.0  # distances of about 1

    def forward(
        self, images: Float[Tensor, "b n h w c"], labels: Int64[Tensor, "b support"], classes: int | None = None
    ) -> Float[Tensor, "b queries k"]:
        """Return the logits of the classes of each query image: those after the images of `labels`. `classes` is their
        number, by default that of the tasks that the model was made for."""
        if classes is not None and (type(classes) is not int or classes < 1):
            raise InputError(f"{self._name}: classes must be a whole number of at least 1, got {classes!r}")
        self.check_sets(images, labels, classes)
        return self.predict(self.embed_images(images), labels, classes)

    def predict(
        self, h: Float[Tensor, "b n e"], labels: Int64[Tensor, "b support"], classes: int | None = None
    ) -> Float[Tensor, "b queries k"]:
        support, classes = labels.shape[1], classes or self.dim_y
        x = (self.scale * self.norm(h)).repeat_interleave(classes, 0)  # [b·k n e]: a task for each class
        y = one_hot(labels, classes).to(x).mT.flatten(0, 1)[..., None]  # [b·k support 1]
        context = Points(x[:, :support], y, torch.ones_like(y, dtype=torch.bool), None)
        targets = Targets(x[:, support:], None)
        encoded: Any = self.process.encode(context, targets)
        features = self.process.decode(encoded, targets)
        return self.process.head.out(features)[..., 0].unflatten(0, (-1, classes)).mT  # type: ignore[operator, union-attr]
