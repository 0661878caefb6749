"""Streams of labelled images, singly or in sets of which some labels are given and the others predicted.

>>> LabelledImages("digits", batch=2).task(0)
LabelledBatch(images=[2, 8, 8, 1], labels=[2])
>>> LabelledSets("digits", context=6, asked=2).task(0)
Episode(images=[1, 8, 8, 8, 1], labels=[1, 8], support=6)
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.data.images.datasets import ImageSet, read_images, shrink, to_colours
from fillin.data.task import Batch, check_counts, make_generator
from fillin.errors import InputError

_ORDER, _CHOICE, _CONTEXT = 1, 2, 3  # purposes of random generators, besides that of a batch


@dataclass(frozen=True, repr=False)
class LabelledBatch(Batch):
    """Images and their labels."""

    images: Float[Tensor, "b h w c"]
    labels: Int64[Tensor, "b"]


@dataclass(frozen=True)
class LabelledImages:
    """Labelled images of a `source` (`read_images`), in epochs with a random order each.

    `limit` training images are used, drawn by the seed (0: all). With a `size`, images are averaged to `size` × `size`
    pixels, so that they cost less (0: as they are). Training images are shifted by up to `shift` pixels
    along both axes (edge pixels are repeated) and, with `flip`, mirrored left to right half of the time. Validation
    uses the test part without augmentation.
    """

    source: str = "digits"
    batch: int = 64
    limit: int = 0
    size: int = 0
    shift: int = 0
    flip: bool = False
    seed: int = 0
    part: str = "train"

    def __post_init__(self):
        check_counts(self, "labelled-images", batch=1, seed=0, limit=0, size=0, shift=0)
        if type(self.flip) is not bool:
            raise InputError(f"labelled-images: flip must be true or false, got {self.flip!r}")

    @cached_property
    def images(self) -> ImageSet:
        """Images of this part, at most `limit` for training, of `size` × `size` pixels."""
        images = read_labelled(self.source, self.part)
        if self.size > min(images.shape[:2]):
            raise InputError(
                f"labelled-images: size is {self.size}, but the images of {self.source} have {images.shape[0]} × "
                f"{images.shape[1]} pixels; use a smaller size, or 0 to take them as they are"
            )
        if self.limit and self.part == "train":
            if self.limit > len(images):
                number = f"{len(images):,} images"
                raise InputError(f"labelled-images: limit is {self.limit:,}, but {self.source} has {number}")
            order = torch.randperm(len(images), generator=make_generator(self.seed, 0, _CHOICE))
            images = images.select(order[: self.limit].sort().values.numpy())
        return shrink(images, self.size) if self.size else images

    @property
    def dim_x(self) -> int:
        return self.images.shape[2]

    @cached_property
    def dim_y(self) -> int:
        """Number of classes, those that `limit` leaves out included."""
        train, test = (labels_of(read_labelled(self.source, part)) for part in ("train", "test"))
        classes = int(train.max()) + 1
        if classes < 2:
            raise InputError(f"labelled-images: {self.source} has a single class; classification needs at least two")
        if test.max() >= classes:
            raise InputError(
                f"labelled-images: {self.source}: test images have the label {test.max()}, training images none above "
                f"{classes - 1}; use classes that both parts have"
            )
        return classes

    def task(self, step: int) -> LabelledBatch:
        epochs, positions = np.divmod(step * self.batch + np.arange(self.batch), len(self.images))
        rows = np.empty(self.batch, np.int64)
        for epoch in np.unique(epochs):  # each has its own order
            order = torch.randperm(len(self.images), generator=make_generator(self.seed, int(epoch), _ORDER)).numpy()
            rows[epochs == epoch] = order[positions[epochs == epoch]]
        images = to_colours(self.images.pixels[rows])
        if self.part == "train":
            images = augment(images, self.shift, self.flip, make_generator(self.seed, step))
        return LabelledBatch(images, torch.from_numpy(labels_of(self.images)[rows]))

    def validation_stream(self, seed: int) -> "LabelledImages":
        return replace(self, seed=seed, part="test")


@dataclass(frozen=True, repr=False)
class Episode(Batch):
    """Sets of images and their labels. A model reads the labels of the first `support` images and predicts the rest."""

    images: Float[Tensor, "b n h w c"]
    labels: Int64[Tensor, "b n"]
    support: int

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """The arguments of a model: all images, and the labels of the support set."""
        return self.images, self.labels[:, : self.support]

    @property
    def query_labels(self) -> Int64[Tensor, "b queries"]:
        return self.labels[:, self.support :]


@dataclass(frozen=True)
class LabelledSets:
    """Sets of `context` images with labels and `asked` query images from a `source`, with the classes of the source.

    The other options are those of `LabelledImages`. In training both are training images, one pass after another. In
    testing the queries are test images, and the context is drawn from the training images by the seed and the step.
    """

    source: str = "digits"
    context: int = 128
    asked: int = 128
    batch: int = 1
    limit: int = 0
    shift: int = 0
    flip: bool = False
    seed: int = 0
    part: str = "train"

    def __post_init__(self):
        check_counts(self, "datapoints", context=0, asked=1, batch=1)
        _ = self.stream  # which checks the others

    @cached_property
    def stream(self) -> LabelledImages:
        """Source of the images: of whole sets in training, of the queries in testing."""
        number = self.batch * (self.asked + (self.context if self.part == "train" else 0))
        return LabelledImages(
            self.source, number, self.limit, shift=self.shift, flip=self.flip, seed=self.seed, part=self.part
        )

    @cached_property
    def context_images(self) -> ImageSet:
        """Training images, from which the context of a test set is drawn."""
        images = replace(self.stream, part="train").images
        if self.context > len(images):
            raise InputError(f"datapoints: context is {self.context:,}, but {self.source} has {len(images):,} images")
        return images

    @property
    def dim_x(self) -> int:
        return self.stream.dim_x

    @property
    def dim_y(self) -> int:
        _ = self.context_images  # raises an error where the context is too large
        return self.stream.dim_y

    def task(self, step: int) -> Episode:
        queries = self.stream.task(step)
        images, labels = queries.images.unflatten(0, (self.batch, -1)), queries.labels.view(self.batch, -1)
        if self.part != "train":
            random, context = make_generator(self.seed, step, _CONTEXT), self.context_images
            orders = [torch.randperm(len(context), generator=random)[: self.context] for _ in range(self.batch)]
            rows = torch.stack(orders).numpy()
            images = torch.cat([to_colours(context.pixels[rows]), images], 1)
            labels = torch.cat([torch.from_numpy(labels_of(context)[rows]), labels], 1)
        return Episode(images, labels, self.context)

    def validation_stream(self, seed: int) -> "LabelledSets":
        return replace(self, seed=seed, part="test")


def read_labelled(source: str, part: str) -> ImageSet:
    """Read images and require labels."""
    images = read_images(source, part)
    if images.labels is None:
        raise InputError(
            f"labelled-images: {source} has no labels; give a folder with a subfolder for each class, IDX files with "
            "labels, or an .npz with x_train, y_train, x_test and y_test"
        )
    if labels_of(images).min() < 0:
        raise InputError(
            f"labelled-images: {source} has the label {labels_of(images).min()}; classes are counted from 0"
        )
    return images


def labels_of(images: ImageSet) -> Int64[ndarray, "n"]:
    assert images.labels is not None
    return images.labels


def augment(images: Float[Tensor, "b h w c"], shift: int, flip: bool, random: torch.Generator) -> Tensor:
    """Shift each image by whole pixels and, with `flip`, mirror half of them."""
    b, h, w, _ = images.shape
    if flip:
        mirrored = torch.rand(b, generator=random) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(2), images)
    if not shift:
        return images
    down, right = torch.randint(-shift, shift + 1, (2, b, 1), generator=random)
    rows, columns = ((torch.arange(n) - by).clamp(0, n - 1) for n, by in ((h, down), (w, right)))
    return images[torch.arange(b)[:, None, None], rows[:, :, None], columns[:, None]]
