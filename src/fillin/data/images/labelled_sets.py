"""Streams of data sets of images, part of whose labels are shown. Batch s is a function of (seed, s) alone.

>>> LabelledSets("digits", context=6, asked=2).task(0)
Episode(images=[1, 8, 8, 8, 1], labels=[1, 8], shown=6)
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fillin.data.curves import make_generator
from fillin.data.images.datasets import ImageSet
from fillin.data.images.labelled import LabelledImages
from fillin.data.images.pixel_grid import colours
from fillin.errors import InputError

_CONTEXT = 3  # what random numbers are for, besides those of `LabelledImages`


class Episode(NamedTuple):
    """A batch of data sets: images, and what each shows. A model is told of the first `shown`, and asked the rest."""

    images: Float[Tensor, "b n h w c"]
    labels: Int64[Tensor, "b n"]
    shown: int

    def __repr__(self) -> str:
        return f"Lesson(images={list(self.images.shape)}, labels={list(self.labels.shape)}, shown={self.shown})"

    @property
    def parts(self) -> tuple[Tensor | int, ...]:
        """All of it: Episode(*lesson.parts) is the batch again."""
        return tuple(self)

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """What a model is called with: all images, and the labels that are shown."""
        return self.images, self.labels[:, : self.shown]

    @property
    def answers(self) -> Int64[Tensor, "b asked"]:
        return self.labels[:, self.shown :]

    def rows(self, index) -> "Episode":
        """Some of its data sets."""
        return Episode(self.images[index], self.labels[index], self.shown)

    def to(self, device) -> "Episode":
        return Episode(self.images.to(device), self.labels.to(device), self.shown)


@dataclass(frozen=True)
class LabelledSets:
    """Data sets from the images of a `source` (`LabelledImages`, whose options these are), with the classes they have:
    `context` images whose labels are shown, and `asked` others.

    In training both are of the part for training, one pass after another. On the part for testing those are asked
    about, and the context are images for training, drawn by the seed and the step.
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
        for name, least in (("context", 0), ("asked", 1), ("batch", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"datapoints: {name} must be a whole number of at least {least}, got {value!r}")
        _ = self.stream  # which checks the others

    @cached_property
    def stream(self) -> LabelledImages:
        """Where images come from: all of a data set in training, those that are asked about in testing."""
        number = self.batch * (self.asked + (self.context if self.part == "train" else 0))
        return LabelledImages(self.source, number, self.limit, self.shift, self.flip, self.seed, self.part)

    @cached_property
    def known(self) -> ImageSet:
        """The images for training, of which a context is drawn."""
        found = replace(self.stream, part="train").images
        if self.context > len(found):
            raise InputError(f"datapoints: context is {self.context:,}, and {self.source} has {len(found):,} images")
        return found

    @property
    def dim_x(self) -> int:
        return self.stream.dim_x

    @property
    def dim_y(self) -> int:
        _ = self.known  # a context that is too large ends here
        return self.stream.dim_y

    def task(self, step: int) -> Episode:
        """Batch `step`."""
        asked = self.stream.task(step)
        images, labels = asked.images.unflatten(0, (self.batch, -1)), asked.labels.view(self.batch, -1)
        if self.part != "train":
            rows = self._context(step)
            assert self.known.labels is not None
            images = torch.cat([colours(self.known.pixels[rows]), images], 1)
            labels = torch.cat([torch.from_numpy(self.known.labels[rows]), labels], 1)
        return Episode(images, labels, self.context)

    def _context(self, step: int) -> Int64[np.ndarray, "b context"]:
        numbers = make_generator(self.seed, step, _CONTEXT)
        found = [torch.randperm(len(self.known), generator=numbers)[: self.context] for _ in range(self.batch)]
        return torch.stack(found).numpy()

    def validation_stream(self, seed: int) -> "LabelledSets":
        """The part for testing, each batch beside another context."""
        return replace(self, seed=seed, part="test")
