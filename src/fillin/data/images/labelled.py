"""Streams of labelled images, singly or in sets of which some labels are given and the others predicted.

>>> LabelledImages("digits", batch=2).task(0)
LabelledBatch(images=[2, 8, 8, 1], labels=[2])
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

from fillin.data.images.datasets import ImageSet, read_images, to_colours
from fillin.data.task import Batch, check_counts, is_number, make_generator
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
        if not self.limit or self.part != "train":
            return images
        if self.limit > len(images):
            raise InputError(f"labelled-images: limit is {self.limit:,}, but {self.source} has {len(images):,} images")
        order = torch.randperm(len(images), generator=make_generator(self.seed, 0, _CHOICE))
        return images.select(order[: self.limit].sort().values.numpy())

    @property
    def dim_x(self) -> int:
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
        epochs, positions = np.divmod(step * self.batch + np.arange(self.batch), len(self.images))
        rows = np.empty(self.batch, np.int64)
        for epoch in np.unique(epochs):  # each has its own order
            order = torch.randperm(len(self.images), generator=make_generator(self.seed, int(epoch), _ORDER)).numpy()
            rows[epochs == epoch] = order[positions[epochs == epoch]]
        images = to_colours(self.images.pixels[rows])
        if self.part == "train":
            images = augment(images, self.shift, self.flip, make_generator(self.seed, step))
        return LabelledBatch(images, torch.from_numpy(_labels(self.images)[rows]))

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
        queries = self.stream.task(step)
        images, labels = queries.images.unflatten(0, (self.batch, -1)), queries.labels.view(self.batch, -1)
        if self.part != "train":
            random, context = make_generator(self.seed, step, _CONTEXT), self.context_images
            orders = [torch.randperm(len(context), generator=random)[: self.context] for _ in range(self.batch)]
            rows = torch.stack(orders).numpy()
            images = torch.cat([to_colours(context.pixels[rows]), images], 1)
            labels = torch.cat([torch.from_numpy(_labels(context)[rows]), labels], 1)
        return Episode(images, labels, self.context)

    def validation_stream(self, seed: int) -> "LabelledSets":
        return replace(self, seed=seed, part="test")


@dataclass(frozen=True)
class FewShot:
    """Few-shot tasks: `ways` classes of a `source` (`read_images`), relabelled 0, 1, … in each task.

    The support set has `shots` images of each class, the query set `queries` others. The part "held-out" has the
    classes of `held_out`, which are never trained on; "train" and "test" have the others. Training data are augmented:
    a share `laid` of the classes are superimposed pairs of classes (pixelwise maximum); if `turned`, each class of a
    task is rotated or mirrored as a whole; and images are shifted by up to `shift` pixels.
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
        if not (is_number(self.laid) and 0 <= self.laid <= 1):
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
        labels = _labels(self.images)
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
        for part in ("train", "test", "held-out"):
            _ = replace(self, part=part).members
        return self.ways

    def task(self, step: int) -> Episode:
        random = make_generator(self.seed, step)
        images = torch.stack([self._draw_task(random) for _ in range(self.batch)])  # [b ways n h w c]
        if self.part == "train":
            images = augment(images.flatten(0, 2), self.shift, False, random).view_as(images)
        halves = images.tensor_split([self.shots], 2)  # the shots of every class, then the queries of every class
        labels = torch.cat([torch.arange(self.ways).repeat_interleave(half.shape[2]) for half in halves])
        images = torch.cat([half.flatten(1, 2) for half in halves], 1)
        return Episode(images, labels.repeat(self.batch, 1), self.ways * self.shots)

    def _draw_task(self, random: torch.Generator) -> Float[Tensor, "ways n h w c"]:
        """Draw the images of one task."""
        images = self._draw_images(torch.randperm(len(self.members), generator=random)[: self.ways], random)
        if self.part != "train":
            return images
        if self.laid:
            pairs = torch.combinations(torch.arange(len(self.members)))
            first, second = pairs[torch.randperm(len(pairs), generator=random)[: self.ways]].T
            superimposed = torch.maximum(self._draw_images(first, random), self._draw_images(second, random))
            laid = torch.rand(self.ways, 1, 1, 1, 1, generator=random) < self.laid
            images = torch.where(laid, superimposed, images)
        if not self.turned:
            return images
        turned, is_square = [], images.shape[2] == images.shape[3]
        for of_class in images:  # one random symmetry of the square, or of the rectangle, for all images of a class
            quarters, mirror = (int(torch.randint(n, (), generator=random)) for n in (4, 2))
            of_class = of_class.rot90(quarters if is_square else quarters - quarters % 2, (1, 2))
            turned.append(of_class.flip(2) if mirror else of_class)
        return torch.stack(turned)

    def _draw_images(self, classes: Int64[Tensor, "ways"], random: torch.Generator) -> Float[Tensor, "ways n h w c"]:
        """Draw distinct images of each of these classes."""
        rows = []
        for members in (self.members[k] for k in classes):
            order = torch.rand(len(members), generator=random).topk(self.shots + self.queries).indices
            rows.append(members[order.numpy()])
        return to_colours(self.images.pixels[np.stack(rows)])

    def validation_stream(self, seed: int) -> "FewShot":
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
