"""Streams of images with labels. Batch s is a function of (seed, s) alone.

>>> LabelledImages("digits", batch=2).task(0)
LabelledBatch(images=[2, 8, 8, 1], labels=[2])
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.data.curves import make_generator
from fillin.data.images.datasets import ImageSet, read_images
from fillin.data.images.pixel_grid import colours
from fillin.errors import InputError

_ORDER, _CHOICE = 1, 2  # what random numbers are for, besides those of a batch


class LabelledBatch(NamedTuple):
    """A batch of images and what each shows."""

    images: Float[Tensor, "b h w c"]
    labels: Int64[Tensor, "b"]

    def __repr__(self) -> str:
        return f"Labelled(images={list(self.images.shape)}, labels={list(self.labels.shape)})"

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All of it: LabelledBatch(*batch.parts) is the batch again."""
        return tuple(self)

    def rows(self, index) -> "LabelledBatch":
        """Some of its images."""
        return LabelledBatch(*(part[index] for part in self))

    def to(self, device) -> "LabelledBatch":
        return LabelledBatch(*(part.to(device) for part in self))


@dataclass(frozen=True)
class LabelledImages:
    """The labelled images of a `source` (`read_images`), one pass after another, each in an order of its own.

    `limit` of them are trained on, drawn by the seed (0: all). To have more of them, each may be moved by up to `shift`
    pixels along both axes (what comes in is as the edge was), and mirrored where `flip` says so: left to right, half of
    the time. What is held out is the part for testing, as it is.
    """

    source: str = "digits"
    batch: int = 64
    limit: int = 0
    shift: int = 0
    flip: bool = False
    seed: int = 0
    part: str = "train"

    def __post_init__(self):
        for name, least in (("batch", 1), ("seed", 0), ("limit", 0), ("shift", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"labelled-images: {name} must be a whole number of at least {least}, got {value!r}")
        if type(self.flip) is not bool:
            raise InputError(f"labelled-images: flip must be true or false, got {self.flip!r}")

    @cached_property
    def images(self) -> ImageSet:
        """Those of this part, no more than `limit` for training."""
        found = labelled(self.source, self.part)
        if self.limit > len(found) and self.part == "train":
            raise InputError(f"labelled-images: limit is {self.limit:,}, and {self.source} has {len(found):,} images")
        if not self.limit or self.part != "train":
            return found
        order = torch.randperm(len(found), generator=make_generator(self.seed, 0, _CHOICE))
        return found.some(order[: self.limit].sort().values.numpy())

    @property
    def dim_x(self) -> int:
        """What comes in: the channels of a pixel."""
        return self.images.shape[2]

    @cached_property
    def dim_y(self) -> int:
        """What comes out: how many classes there are, those for training that `limit` leaves out among them."""
        train, test = (_labels(labelled(self.source, part)) for part in ("train", "test"))
        classes = int(train.max()) + 1
        if classes < 2:
            raise InputError(f"labelled-images: {self.source} has one class alone; there is nothing to tell apart")
        if test.max() >= classes:
            raise InputError(
                f"labelled-images: {self.source}: images for testing have the label {test.max()}, those for training "
                f"none above {classes - 1}; use classes that both parts have"
            )
        return classes

    def task(self, step: int) -> LabelledBatch:
        """Batch `step`."""
        found = self.images
        rows = self._rows(step)
        batch = colours(found.pixels[rows])
        if self.part == "train":
            batch = moved(batch, self.shift, self.flip, make_generator(self.seed, step))
        return LabelledBatch(batch, torch.from_numpy(_labels(found)[rows]))

    def _rows(self, step: int) -> Int64[ndarray, "b"]:
        """Which images: every pass over all of them has its own order."""
        passes, places = np.divmod(step * self.batch + np.arange(self.batch), len(self.images))
        rows = np.empty(self.batch, np.int64)
        for one in np.unique(passes):
            order = torch.randperm(len(self.images), generator=make_generator(self.seed, int(one), _ORDER)).numpy()
            rows[passes == one] = order[places[passes == one]]
        return rows

    def validation_stream(self, seed: int) -> "LabelledImages":
        """The part for testing; images share nothing, so batches may be as large as those of training."""
        return replace(self, seed=seed, part="test")


def labelled(source: str, part: str) -> ImageSet:
    found = read_images(source, part)
    if found.labels is None:
        raise InputError(
            f"labelled-images: {source} has no labels; give a folder with a subfolder for each class, IDX files with "
            "labels, or an .npz with x_train, y_train, x_test and y_test"
        )
    if _labels(found).min() < 0:
        raise InputError(f"labelled-images: {source} has the label {_labels(found).min()}; classes are counted from 0")
    return found


def _labels(found: ImageSet) -> Int64[ndarray, "n"]:
    assert found.labels is not None
    return found.labels


def moved(
    images: Float[Tensor, "b h w c"], shift: int, flip: bool, numbers: torch.Generator
) -> Float[Tensor, "b h w c"]:
    """Each image moved by whole pixels and, half of them, mirrored."""
    b, h, w, _ = images.shape
    if flip:
        turned = torch.rand(b, generator=numbers) < 0.5
        images = torch.where(turned[:, None, None, None], images.flip(2), images)
    if not shift:
        return images
    down, right = torch.randint(-shift, shift + 1, (2, b, 1), generator=numbers)
    rows, columns = ((torch.arange(n) - by).clamp(0, n - 1) for n, by in ((h, down), (w, right)))
    return images[torch.arange(b)[:, None, None], rows[:, :, None], columns[:, None]]
