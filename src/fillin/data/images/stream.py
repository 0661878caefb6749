"""Streams of images to complete. Batch s is a function of (seed, s) alone.

>>> Images("digits", patterns="grid 4", batch=2).task(0)
Task(xc=[2, 4, 2], yc=[2, 4, 1], xt=[2, 64, 2], yt=[2, 64, 1])
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from fillin.data.curves import make_generator
from fillin.data.images.datasets import ImageSet, read_images
from fillin.data.images.patterns import read_patterns
from fillin.data.images.pixel_grid import colours, places
from fillin.data.task import Task
from fillin.errors import InputError


@dataclass(frozen=True)
class Images:
    """Tasks from the images of a `source` (`read_images`): what `patterns` leave is known, and `targets` pixels of all
    are asked for, known ones as well (0: every pixel). Those of a batch share a pattern."""

    source: str = "digits"
    patterns: str = "random"
    targets: int = 256
    batch: int = 16
    seed: int = 0
    part: str = "train"

    def __post_init__(self):
        for name, least in (("batch", 1), ("seed", 0), ("targets", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"images: {name} must be a whole number of at least {least}, got {value!r}")
        read_patterns(self.patterns)

    @cached_property
    def images(self) -> ImageSet:
        return read_images(self.source, self.part)

    dim_x = 2

    @property
    def dim_y(self) -> int:
        return self.images.shape[2]

    def task(self, step: int) -> Task:
        """Batch `step`."""
        numbers = make_generator(self.seed, step)
        patterns, weights = read_patterns(self.patterns)
        pattern = patterns[int(torch.multinomial(torch.tensor(weights), 1, generator=numbers))]
        rows = torch.randint(0, len(self.images), (self.batch,), generator=numbers).numpy()
        batch = colours(self.images.pixels[rows])
        xc, yc = pattern(batch, numbers)
        b, h, w, c = batch.shape
        xt, yt = places(h, w).expand(b, -1, -1), batch.flatten(1, 2)
        if 0 < self.targets < h * w:
            some = torch.rand(b, h * w, generator=numbers).topk(self.targets, 1).indices[..., None]
            xt, yt = xt.gather(1, some.expand(-1, -1, 2)), yt.gather(1, some.expand(-1, -1, c))
        return Task(xc, yc, xt, yt)

    def validation_stream(self, seed: int) -> "Images":
        return replace(self, seed=seed, batch=4, part="test")
