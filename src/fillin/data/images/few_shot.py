"""Few-shot tasks: classes that a model has never seen, from a few labelled images of each.

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

from fillin.data.images.datasets import ImageSet, to_colours
from fillin.data.images.labelled import Episode, augment, labels_of, read_labelled
from fillin.data.task import check_count_ranges, check_counts, is_number, make_generator
from fillin.errors import InputError


@dataclass(frozen=True)
class FewShot:
    """Few-shot tasks: `ways` classes of a `source` (`read_images`), relabelled 0, 1, … in each task.

    The support set has `shots` images of each class, or a number from (fewest, most) that each batch draws; the query
    set has `queries` others. `held_out` are classes that are never trained on: a list of them, or how many of the last
    ones. They are the part "held-out". `validation` is the number of classes before those, which alone are the part
    "test"; with 0 that part has test images of the classes that are trained on.

    Training data are augmented: a share `laid` of the classes are superimposed pairs of classes (pixelwise maximum); if
    `turned`, each class of a task is rotated or mirrored as a whole; and images are shifted by up to `shift` pixels.
    """

    source: str = "digits"
    ways: int = 4
    shots: int | tuple[int, int] = 1
    queries: int = 5
    held_out: int | tuple[int, ...] = (6, 7, 8, 9)
    validation: int = 0
    laid: float = 0.0
    turned: bool = False
    shift: int = 0
    batch: int = 8
    seed: int = 0
    part: str = "train"

    def __post_init__(self):
        check_counts(self, "few-shot", ways=2, queries=1, validation=0, shift=0, batch=1, seed=0)
        if isinstance(self.shots, tuple):
            check_count_ranges(self, "few-shot", shots=1)
        else:
            check_counts(self, "few-shot", shots=1)
        if not (is_number(self.laid) and 0 <= self.laid <= 1):
            raise InputError(f"few-shot: laid must be a share of classes from 0 to 1, got {self.laid!r}")
        if type(self.turned) is not bool:
            raise InputError(f"few-shot: turned must be true or false, got {self.turned!r}")
        named = self.held_out if isinstance(self.held_out, tuple) else (self.held_out,)
        if not named or any(type(k) is not int for k in named) or (named == (self.held_out,) and named[0] < 1):
            raise InputError(
                "few-shot: held_out must be a list of classes, like [6, 7, 8, 9], or how many of the last classes are "
                f"held out, at least 1, got {self.held_out!r}"
            )

    @property
    def shots_range(self) -> tuple[int, int]:
        """Fewest and most labelled images of a class."""
        return self.shots if isinstance(self.shots, tuple) else (self.shots, self.shots)

    @cached_property
    def images(self) -> ImageSet:
        """Images of this part; those of both source parts where the classes of parts differ."""
        if self.part != "held-out" and not self.validation:
            return read_labelled(self.source, self.part)
        parts = [read_labelled(self.source, part) for part in ("train", "test")]
        pixels, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("pixels", "labels"))
        return ImageSet(parts[0].name, pixels, labels)

    def _select_classes(self, present: list[int]) -> list[int]:
        """Return the classes of this part."""
        if isinstance(self.held_out, tuple):
            held = set(self.held_out)
            if unknown := sorted(held - set(present)):
                raise InputError(
                    f"few-shot: {self.source} has no images of the class {unknown[0]}, which held_out names"
                )
        else:
            held = set(present[-self.held_out :])
        if self.part == "held-out":
            return sorted(held)
        others = [k for k in present if k not in held]
        if not self.validation:
            return others
        first = max(0, len(others) - self.validation)
        return others[first:] if self.part == "test" else others[:first]

    @cached_property
    def members(self) -> list[Int64[ndarray, "_"]]:
        """Row numbers of the images of each class of this part."""
        labels, size = labels_of(self.images), self.shots_range[1] + self.queries
        classes = self._select_classes(np.unique(labels).tolist())
        if self.ways > len(classes):
            which, remedy = ("held out", "more") if self.part == "held-out" else ("not held out", "fewer")
            if self.validation and self.part != "held-out":
                which, remedy = ("for validation", "more") if self.part == "test" else ("for training", "fewer")
            action = "hold out" if "held" in which else "validate on"
            raise InputError(
                f"few-shot: ways is {self.ways}, but {self.source} has {len(classes)} classes that are {which}; use "
                f"fewer ways, or {action} {remedy} classes"
            )
        members = [np.flatnonzero(labels == k) for k in classes]
        for k, rows in zip(classes, members, strict=True):
            if len(rows) < size:
                raise InputError(
                    f"few-shot: {self.source} has {len(rows):,} images of class {k} in the part '{self.part}', but a "
                    f"task takes {self.shots_range[1]} shots and {self.queries} queries of it; use fewer, or leave it "
                    "out"
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
        fewest, most = self.shots_range
        shots = fewest if fewest == most else int(torch.randint(fewest, most + 1, (), generator=random))
        images = torch.stack([self._draw_task(shots, random) for _ in range(self.batch)])  # [b ways n h w c]
        if self.part == "train":
            images = augment(images.flatten(0, 2), self.shift, False, random).view_as(images)
        halves = images.tensor_split([shots], 2)  # the shots of every class, then the queries of every class
        labels = torch.cat([torch.arange(self.ways).repeat_interleave(half.shape[2]) for half in halves])
        images = torch.cat([half.flatten(1, 2) for half in halves], 1)
        return Episode(images, labels.repeat(self.batch, 1), self.ways * shots)

    def _draw_task(self, shots: int, random: torch.Generator) -> Float[Tensor, "ways n h w c"]:
        """Draw the images of one task."""
        number = shots + self.queries
        classes = torch.randperm(len(self.members), generator=random)[: self.ways]
        images = self._draw_images(classes, number, random)
        if self.part != "train":
            return images
        if self.laid:
            pairs = torch.combinations(torch.arange(len(self.members)))
            first, second = pairs[torch.randperm(len(pairs), generator=random)[: self.ways]].T
            superimposed = torch.maximum(*(self._draw_images(of_pair, number, random) for of_pair in (first, second)))
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

    def _draw_images(
        self, classes: Int64[Tensor, "ways"], number: int, random: torch.Generator
    ) -> Float[Tensor, "ways n h w c"]:
        """Draw `number` distinct images of each of these classes."""
        rows = []
        for members in (self.members[k] for k in classes):
            order = torch.rand(len(members), generator=random).topk(number).indices
            rows.append(members[order.numpy()])
        return to_colours(self.images.pixels[np.stack(rows)])

    def validation_stream(self, seed: int) -> "FewShot":
        return replace(self, seed=seed, part="test")
