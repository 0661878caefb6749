"""Streams of labelled images. Batch s is a function of (seed, s) alone.

>>> LabelledImages("digits", batch=2).task(0)
LabelledBatch(images=[2, 8, 8, 1], labels=[2])
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.data.images.completion import to_colours
from fillin.data.images.datasets import ImageSet, read_images
from fillin.data.task import Batch, check_counts, make_generator
from fillin.errors import InputError

_ORDER, _CHOICE = 1, 2  # purposes of random generators, besides that of a batch


@dataclass(frozen=True, repr=False)
class LabelledBatch(Batch):
    """Images and their labels."""

    images: Float[Tensor, "b h w c"]
    labels: Int64[Tensor, "b"]


@dataclass(frozen=True)
class LabelledImages:
    """Labelled images of a `source` (`read_images`), in epochs with a random order each.

    `limit` training images are used, drawn by the seed (0: all). Training images are shifted by up to `shift` pixels
    along both axes (edge pixels are repeated) and, with `flip`, mirrored left to right half of the time. Validation
    uses the test part without augmentation.
    """

    source: str = "digits"
    batch: int = 64
    limit: int = 0
    shift: int = 0
    flip: bool = False
    seed: int = 0
    part: str = "train"

    def __post_init__(self):
        check_counts(self, "labelled-images", batch=1, seed=0, limit=0, shift=0)
        if type(self.flip) is not bool:
            raise InputError(f"labelled-images: flip must be true or false, got {self.flip!r}")

    @cached_property
    def images(self) -> ImageSet:
        """Images of this part, at most `limit` for training."""
        images = read_labelled(self.source, self.part)
        if self.limit > len(images) and self.part == "train":
            raise InputError(f"labelled-images: limit is {self.limit:,}, but {self.source} has {len(images):,} images")
        if not self.limit or self.part != "train":
            return images
        order = torch.randperm(len(images), generator=make_generator(self.seed, 0, _CHOICE))
        return images.select(order[: self.limit].sort().values.numpy())

    @property
    def dim_x(self) -> int:
        """Number of colour channels."""
        return self.images.shape[2]

    @cached_property
    def dim_y(self) -> int:
        """Number of classes, those that `limit` leaves out included."""
        train, test = (_labels(read_labelled(self.source, part)) for part in ("train", "test"))
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
        """Return batch `step`."""
        rows = self._rows(step)
        batch = to_colours(self.images.pixels[rows])
        if self.part == "train":
            batch = augment(batch, self.shift, self.flip, make_generator(self.seed, step))
        return LabelledBatch(batch, torch.from_numpy(_labels(self.images)[rows]))

    def _rows(self, step: int) -> Int64[ndarray, "b"]:
        """Return the row numbers of batch `step`; every epoch has its own order."""
        epochs, positions = np.divmod(step * self.batch + np.arange(self.batch), len(self.images))
        rows = np.empty(self.batch, np.int64)
        for epoch in np.unique(epochs):
            order = torch.randperm(len(self.images), generator=make_generator(self.seed, int(epoch), _ORDER)).numpy()
            rows[epochs == epoch] = order[positions[epochs == epoch]]
        return rows

    def validation_stream(self, seed: int) -> "LabelledImages":
        """Return the test part; images are independent, so batches may be as large as those of training."""
        return replace(self, seed=seed, part="test")


def read_labelled(source: str, part: str) -> ImageSet:
    """Read images and require labels."""
    images = read_images(source, part)
    if images.labels is None:
        raise InputError(
            f"labelled-images: {source} has no labels; give a folder with a subfolder for each class, IDX files with "
            "labels, or an .npz with x_train, y_train, x_test and y_test"
        )
    if _labels(images).min() < 0:
        raise InputError(f"labelled-images: {source} has the label {_labels(images).min()}; classes are counted from 0")
    return images


def _labels(images: ImageSet) -> Int64[ndarray, "n"]:
    assert images.labels is not None
    return images.labels


def augment(
    images: Float[Tensor, "b h w c"], shift: int, flip: bool, random: torch.Generator
) -> Float[Tensor, "b h w c"]:
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
