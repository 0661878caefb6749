"""Streams of labelled image sets: some labels are given, the others are predicted. Batch s depends on (seed, s) alone.

>>> LabelledSets("digits", context=6, asked=2).task(0)
Episode(images=[1, 8, 8, 8, 1], labels=[1, 8], support=6)
>>> FewShot("digits", ways=3, shots=2, queries=4, batch=5).task(0)
Episode(images=[5, 18, 8, 8, 1], labels=[5, 18], support=6)
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.data.images.completion import to_colours
from fillin.data.images.datasets import ImageSet
from fillin.data.images.labelled import LabelledImages, augment, read_labelled
from fillin.data.task import Batch, check_counts, make_generator
from fillin.errors import InputError

PARTS = ("train", "test", "held-out")
_CONTEXT = 3  # purpose of a random generator, besides those of `LabelledImages`


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
        return LabelledImages(self.source, number, self.limit, self.shift, self.flip, self.seed, self.part)

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
        """Return batch `step`."""
        queries = self.stream.task(step)
        images, labels = queries.images.unflatten(0, (self.batch, -1)), queries.labels.view(self.batch, -1)
        if self.part != "train":
            rows, context = self._draw_context(step), self.context_images
            assert context.labels is not None
            images = torch.cat([to_colours(context.pixels[rows]), images], 1)
            labels = torch.cat([torch.from_numpy(context.labels[rows]), labels], 1)
        return Episode(images, labels, self.context)

    def _draw_context(self, step: int) -> Int64[ndarray, "b context"]:
        random, number = make_generator(self.seed, step, _CONTEXT), len(self.context_images)
        rows = [torch.randperm(number, generator=random)[: self.context] for _ in range(self.batch)]
        return torch.stack(rows).numpy()

    def validation_stream(self, seed: int) -> "LabelledSets":
        """Return the test images, each batch with another context."""
        return replace(self, seed=seed, part="test")


@dataclass(frozen=True)
class FewShot:
    """Few-shot tasks: `ways` classes of a `source` (`read_images`), relabelled 0, 1, … in each task.

    The support set has `shots` images of each class, the query set `queries` others. The classes of `held_out` are
    never trained on; they are the part "held-out", with all their images. The parts "train" and "test" have the other
    classes. Three augmentations enlarge the training data: a share `laid` of the classes are pairs of classes whose
    images are superimposed (pixelwise maximum); if `turned`, each class of a task is rotated or mirrored as a whole,
    by one of 8 symmetries; and images are shifted by up to `shift` pixels.
    """

    source: str = "digits"
    ways: int = 4
    shots: int = 1
    queries: int = 5
    held_out: tuple[int, ...] = (6, 7, 8, 9)
    laid: float = 0.0
    turned: bool = False
    shift: int = 0
    batch: int = 8
    seed: int = 0
    part: str = "train"

    def __post_init__(self):
        check_counts(self, "few-shot", ways=2, shots=1, queries=1, shift=0, batch=1, seed=0)
        if isinstance(self.laid, bool) or not isinstance(self.laid, int | float) or not 0 <= self.laid <= 1:
            raise InputError(f"few-shot: laid must be a share of classes from 0 to 1, got {self.laid!r}")
        if type(self.turned) is not bool:
            raise InputError(f"few-shot: turned must be true or false, got {self.turned!r}")
        if not isinstance(self.held_out, tuple) or not self.held_out or any(type(k) is not int for k in self.held_out):
            raise InputError(f"few-shot: held_out must be a list of classes, like [6, 7, 8, 9], got {self.held_out!r}")

    @cached_property
    def images(self) -> ImageSet:
        """Images of this part; those of both source parts for held-out classes."""
        if self.part != "held-out":
            return read_labelled(self.source, self.part)
        parts = [read_labelled(self.source, part) for part in ("train", "test")]
        pixels, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("pixels", "labels"))
        return ImageSet(parts[0].name, pixels, labels)

    @cached_property
    def members(self) -> list[Int64[ndarray, "_"]]:
        """Row numbers of the images of each class of this part."""
        labels = self.images.labels
        assert labels is not None
        unknown = sorted(set(self.held_out) - set(labels.tolist()))
        if unknown:
            raise InputError(f"few-shot: {self.source} has no images of the class {unknown[0]}, which held_out names")
        held = self.part == "held-out"
        classes = [int(k) for k in np.unique(labels) if (k in self.held_out) == held]
        if self.ways > len(classes):
            which, remedy = ("held out", "more") if held else ("not held out", "fewer")
            raise InputError(
                f"few-shot: ways is {self.ways}, but {self.source} has {len(classes)} classes that are {which}; use "
                f"fewer ways, or hold out {remedy} classes"
            )
        members = [np.flatnonzero(labels == k) for k in classes]
        for k, rows in zip(classes, members, strict=True):
            if len(rows) < self.shots + self.queries:
                raise InputError(
                    f"few-shot: {self.source} has {len(rows):,} images of class {k} in the part '{self.part}', but a "
                    f"task takes {self.shots} shots and {self.queries} queries of it; use fewer, or leave it out"
                )
        return members

    @property
    def dim_x(self) -> int:
        return self.images.shape[2]

    @property
    def dim_y(self) -> int:
        """Number of classes of a task; every part must have enough of them."""
        for part in PARTS:
            _ = replace(self, part=part).members
        return self.ways

    def task(self, step: int) -> Episode:
        """Return batch `step`: the shots of every class, then the queries of every class."""
        random = make_generator(self.seed, step)
        images = torch.stack([self._draw_task(random) for _ in range(self.batch)])  # [b ways n h w c]
        if self.part == "train":
            images = augment(images.flatten(0, 2), self.shift, False, random).view_as(images)
        halves = [images[:, :, : self.shots], images[:, :, self.shots :]]
        names = torch.arange(self.ways)
        labels = torch.cat([names.repeat_interleave(half.shape[2]) for half in halves])
        joined = torch.cat([half.flatten(1, 2) for half in halves], 1)
        return Episode(joined, labels.repeat(self.batch, 1), self.ways * self.shots)

    def _draw_task(self, random: torch.Generator) -> Float[Tensor, "ways n h w c"]:
        """Draw the images of one task."""
        images = self._draw_images(torch.randperm(len(self.members), generator=random)[: self.ways], random)
        if self.part != "train":
            return images
        images = self._superimpose(images, random) if self.laid else images
        return torch.stack([_rotate(of_class, random) for of_class in images]) if self.turned else images

    def _superimpose(self, images: Float[Tensor, "ways n h w c"], random: torch.Generator) -> Tensor:
        """Replace a share of the classes by superimposed pairs of classes."""
        pairs = torch.combinations(torch.arange(len(self.members)))
        first, second = pairs[torch.randperm(len(pairs), generator=random)[: self.ways]].T
        both = torch.maximum(self._draw_images(first, random), self._draw_images(second, random))
        return torch.where(torch.rand(self.ways, 1, 1, 1, 1, generator=random) < self.laid, both, images)

    def _draw_images(self, classes: Int64[Tensor, "ways"], random: torch.Generator) -> Float[Tensor, "ways n h w c"]:
        """Draw distinct images of each of these classes."""
        rows = []
        for k in classes.tolist():
            members = self.members[k]
            order = torch.rand(len(members), generator=random).topk(self.shots + self.queries).indices
            rows.append(members[order.numpy()])
        return to_colours(self.images.pixels[np.stack(rows)])

    def validation_stream(self, seed: int) -> "FewShot":
        """Return test images of the classes that are trained on."""
        return replace(self, seed=seed, part="test")


def _rotate(images: Float[Tensor, "n h w c"], random: torch.Generator) -> Float[Tensor, "n h w c"]:
    """Apply one random symmetry of a square to all images; of a non-square rectangle one of its four."""
    quarters, mirror = (int(torch.randint(n, (), generator=random)) for n in (4, 2))
    if images.shape[1] != images.shape[2]:
        quarters -= quarters % 2
    images = images.rot90(quarters, (1, 2))
    return images.flip(2) if mirror else images
