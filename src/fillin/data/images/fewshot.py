"""Few-shot tasks from labelled images: which of a few classes, each shown by a few images? Batch s is a function of
(seed, s) alone.

>>> FewShot("digits", ways=3, shots=2, queries=4, batch=5).task(0)
Episode(images=[5, 18, 8, 8, 1], labels=[5, 18], shown=6)
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from torch import Tensor

from fillin.data.curves import make_generator
from fillin.data.images.datasets import ImageSet
from fillin.data.images.labelled import labelled, moved
from fillin.data.images.labelled_sets import Episode
from fillin.data.images.pixel_grid import colours
from fillin.errors import InputError

PARTS = ("train", "test", "held-out")


@dataclass(frozen=True)
class FewShot:
    """Tasks of `ways` classes of a `source` (`read_images`), named 0, 1, … anew in each task: `shots` images of each
    are shown with their labels, `queries` others of each are asked about.

    The classes of `held_out` are never trained on: they are the part "held-out", with all images there are of them. The
    other two parts have the other classes. To have more of these, a share `laid` of the classes of a training task are
    two of them, their images laid over one another, light on dark; where `turned`, each class of a training task is
    turned or mirrored as a whole, which makes eight of one; and images are moved by up to `shift` pixels.
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
        for name, least in (("ways", 2), ("shots", 1), ("queries", 1), ("shift", 0), ("batch", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"few-shot: {name} must be a whole number of at least {least}, got {value!r}")
        if isinstance(self.laid, bool) or not isinstance(self.laid, int | float) or not 0 <= self.laid <= 1:
            raise InputError(f"few-shot: laid is a share of classes, from 0 to 1, got {self.laid!r}")
        if type(self.turned) is not bool:
            raise InputError(f"few-shot: turned must be true or false, got {self.turned!r}")
        if not isinstance(self.held_out, tuple) or not self.held_out or any(type(k) is not int for k in self.held_out):
            raise InputError(f"few-shot: held_out is a list of classes, like [6, 7, 8, 9], got {self.held_out!r}")

    @cached_property
    def images(self) -> ImageSet:
        """Those of this part; of classes that are held out, all that there are."""
        if self.part != "held-out":
            return labelled(self.source, self.part)
        both = [labelled(self.source, part) for part in ("train", "test")]
        return ImageSet(
            both[0].name, *(np.concatenate([getattr(one, x) for one in both]) for x in ("pixels", "labels"))
        )

    @cached_property
    def members(self) -> list[Int64[ndarray, "_"]]:
        """Of each class of this part, which images are of it."""
        found = self.images.labels
        assert found is not None
        unknown = sorted(set(self.held_out) - set(found.tolist()))
        if unknown:
            raise InputError(f"few-shot: {self.source} has no images of the class {unknown[0]}, which held_out names")
        held = self.part == "held-out"
        classes = [int(k) for k in np.unique(found) if (k in self.held_out) == held]
        if self.ways > len(classes):
            which, remedy = ("held out", "more") if held else ("not held out", "fewer")
            raise InputError(
                f"few-shot: ways is {self.ways}, and {self.source} has {len(classes)} classes that are {which}; ask "
                f"for fewer ways, or hold out {remedy}"
            )
        members = [np.flatnonzero(found == k) for k in classes]
        for k, rows in zip(classes, members, strict=True):
            if len(rows) < self.shots + self.queries:
                raise InputError(
                    f"few-shot: {self.source} has {len(rows):,} images of class {k} in the part '{self.part}', and a "
                    f"task takes {self.shots} shots and {self.queries} queries of it; ask for fewer, or leave it out"
                )
        return members

    @property
    def dim_x(self) -> int:
        return self.images.shape[2]

    @property
    def dim_y(self) -> int:
        """As many classes as a task has; every part must have enough of them."""
        for part in PARTS:
            _ = replace(self, part=part).members
        return self.ways

    def task(self, step: int) -> Episode:
        """Batch `step`: the shots of every class, then the queries of every class."""
        numbers = make_generator(self.seed, step)
        images = torch.stack([self._one(numbers) for _ in range(self.batch)])  # [b ways each h w c]
        if self.part == "train":
            images = moved(images.flatten(0, 2), self.shift, False, numbers).view_as(images)
        both = [images[:, :, : self.shots], images[:, :, self.shots :]]
        names = torch.arange(self.ways)
        labels = torch.cat([names.repeat_interleave(part.shape[2]) for part in both])
        joined = torch.cat([part.flatten(1, 2) for part in both], 1)
        return Episode(joined, labels.repeat(self.batch, 1), self.ways * self.shots)

    def _one(self, numbers: torch.Generator) -> Float[Tensor, "ways each h w c"]:
        """The images of one task."""
        images = self._some(torch.randperm(len(self.members), generator=numbers)[: self.ways], numbers)
        if self.part != "train":
            return images
        images = self._laid(images, numbers) if self.laid else images
        return torch.stack([_turned(one, numbers) for one in images]) if self.turned else images

    def _laid(self, images: Float[Tensor, "ways each h w c"], numbers: torch.Generator) -> Tensor:
        """A share of the classes replaced by pairs of classes."""
        pairs = torch.combinations(torch.arange(len(self.members)))
        first, second = pairs[torch.randperm(len(pairs), generator=numbers)[: self.ways]].T
        both = torch.maximum(self._some(first, numbers), self._some(second, numbers))
        return torch.where(torch.rand(self.ways, 1, 1, 1, 1, generator=numbers) < self.laid, both, images)

    def _some(self, classes: Int64[Tensor, "ways"], numbers: torch.Generator) -> Float[Tensor, "ways each h w c"]:
        """Other images of each of these classes each time."""
        each = self.shots + self.queries
        rows = []
        for k in classes.tolist():
            members = self.members[k]
            order = torch.rand(len(members), generator=numbers).topk(each).indices
            rows.append(members[order.numpy()])
        return colours(self.images.pixels[np.stack(rows)])

    def validation_stream(self, seed: int) -> "FewShot":
        """The classes that are trained on, by images that are not."""
        return replace(self, seed=seed, part="test")


def _turned(images: Float[Tensor, "each h w c"], numbers: torch.Generator) -> Float[Tensor, "each h w c"]:
    """All of them by the same symmetry of a square; of another rectangle one of its four."""
    quarters, mirror = (int(torch.randint(n, (), generator=numbers)) for n in (4, 2))
    if images.shape[1] != images.shape[2]:
        quarters -= quarters % 2
    images = images.rot90(quarters, (1, 2))
    return images.flip(2) if mirror else images
