"""Streams of image-completion tasks. Batch s is a function of (seed, s) alone.

>>> Images("digits", patterns="grid 4", batch=2).task(0)
Task(xc=[2, 4, 2], yc=[2, 4, 1], xt=[2, 64, 2], yt=[2, 64, 1])
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from fillin.data.images.datasets import ImageSet, read_images
from fillin.data.images.patterns import read_patterns
from fillin.data.images.pixel_grid import pixel_locations, to_colours
from fillin.data.task import Task, check_counts, make_generator


@dataclass(frozen=True)
class Images:
    """Tasks from the images of a `source` (`read_images`): a pattern selects the context pixels.

    Targets are `targets` random pixels, which may be context pixels too (0: all pixels). The tasks of a batch share one
    of the `patterns` (`read_patterns`).
    """

    source: str = "digits"
    patterns: str = "random"
    targets: int = 256
    batch: int = 16
    seed: int = 0
    part: str = "train"

    def __post_init__(self):
        check_counts(self, "images", batch=1, seed=0, targets=0)
        read_patterns(self.patterns)

    @cached_property
    def images(self) -> ImageSet:
        return read_images(self.source, self.part)

    dim_x = 2

    @property
    def dim_y(self) -> int:
        return self.images.shape[2]

    def task(self, step: int) -> Task:
        """Return batch `step`."""
        random = make_generator(self.seed, step)
        patterns, weights = read_patterns(self.patterns)
        pattern = patterns[int(torch.multinomial(torch.tensor(weights), 1, generator=random))]
        rows = torch.randint(0, len(self.images), (self.batch,), generator=random).numpy()
        batch = to_colours(self.images.pixels[rows])
        xc, yc = pattern(batch, random)
        b, h, w, c = batch.shape
        xt, yt = pixel_locations(h, w).expand(b, -1, -1), batch.flatten(1, 2)
        if 0 < self.targets < h * w:
            index = torch.rand(b, h * w, generator=random).topk(self.targets, 1).indices[..., None]
            xt, yt = xt.gather(1, index.expand(-1, -1, 2)), yt.gather(1, index.expand(-1, -1, c))
        return Task(xc, yc, xt, yt)

    def validation_stream(self, seed: int) -> "Images":
        return replace(self, seed=seed, batch=4, part="test")
