"""Image completion: locations of pixels, patterns of context pixels, and the stream of tasks.

>>> Images("digits", patterns="grid 4", batch=2).task(0)
Task(xc=[2, 4, 2], yc=[2, 4, 1], xt=[2, 64, 2], yt=[2, 64, 1])
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool2d

from fillin.data.images.datasets import ImageSet, read_images, to_colours
from fillin.data.task import Task, check_counts, make_generator, split_mixture
from fillin.errors import InputError, choose

Context = tuple[Float[Tensor, "b nc 2"], Float[Tensor, "b nc c"]]
Mask = Bool[Tensor, "b h w"]


def pixel_locations(height: int, width: int, shape: tuple[int, int] | None = None) -> Float[Tensor, "hw 2"]:
    """Return the centres of height × width pixels, row by row, over an image of `shape` (by default the same).

    The centre of pixel (i, j) of h × w is ((2i + 1 − h), (2j + 1 − w)) · 2 / max(h, w): rows first, downwards. An image
    covers [−2, 2] along its longer side, whatever its resolution, so one model maps between resolutions.
    """
    rows, columns = shape or (height, width)
    unit = 2.0 / max(rows, columns)
    axes = [(2 * torch.arange(n) + 1 - n) * (unit * side / n) for n, side in ((height, rows), (width, columns))]
    return torch.cartesian_prod(*axes)


def random_pixels(shape: tuple[int, int, int], random: torch.Generator, share: float | None) -> Mask:
    """Select random pixels: the given share, or a random share of up to a third for each batch."""
    b, h, w = shape
    share = float(torch.rand((), generator=random)) / 3 if share is None else share
    count = min(max(1, round(share * h * w)), h * w)
    order = torch.rand(b, h * w, generator=random).argsort(1)
    return torch.zeros(b, h * w, dtype=torch.bool).scatter_(1, order[:, :count], True).view(b, h, w)


def half(shape: tuple[int, int, int], random: torch.Generator, share: float | None, axis: int, first: bool) -> Mask:
    """Select the first or last rows (axis 0) or columns (axis 1): a half, or the given share."""
    size = shape[1 + axis]
    count = min(max(1, round(size * (0.5 if share is None else share))), size)
    near = torch.arange(size) < count if first else torch.arange(size) >= size - count
    return (near[:, None] if axis == 0 else near[None]).expand(shape).clone()


def block(shape: tuple[int, int, int], random: torch.Generator, share: float | None) -> Mask:
    """Select a random rectangle, half as high and as wide as the image or the given share."""
    b, h, w = shape
    inside = []
    for size in (h, w):
        length = min(max(1, round(size * (0.5 if share is None else share))), size)
        start = torch.randint(0, size - length + 1, (b, 1), generator=random)
        index = torch.arange(size)
        inside.append((index >= start) & (index < start + length))
    return inside[0][:, :, None] & inside[1][:, None]


def line(shape: tuple[int, int, int], random: torch.Generator, share: None) -> Mask:
    """Select one random row or column of pixels."""
    b, h, w = shape
    horizontal = bool(torch.rand((), generator=random) < 0.5)
    size = h if horizontal else w
    chosen = torch.arange(size) == torch.randint(0, size, (b, 1), generator=random)
    return (chosen[:, :, None] if horizontal else chosen[:, None]).expand(b, h, w).clone()


def grid(shape: tuple[int, int, int], random: torch.Generator, step: float | None) -> Mask:
    """Select every n-th pixel along both axes."""
    chosen = [torch.arange(size) % int(step or 4) == min(int(step or 4), size) // 2 for size in shape[1:]]
    return (chosen[0][:, None] & chosen[1][None]).expand(shape).clone()


MASKS: dict[str, Callable[..., Mask]] = {
    "random": random_pixels,
    "top": partial(half, axis=0, first=True),
    "bottom": partial(half, axis=0, first=False),
    "left": partial(half, axis=1, first=True),
    "right": partial(half, axis=1, first=False),
    "block": block,
    "hole": lambda shape, random, share: ~block(shape, random, min(0.5 if share is None else share, 0.9)),
    "line": line,
    "grid": grid,
}
PATTERNS = (*MASKS, "coarse")  # "coarse 4": means of 4 × 4 pixels at their centres
EVERY = "random" + "".join(f" | 0.5 {name}" for name in ("top", "bottom", "left", "right", "block", "hole"))
EVERY += " | 0.25 line | 0.5 coarse 4 | 0.5 coarse 2"


@dataclass(frozen=True)
class Pattern:
    """Pattern of context pixels with its number: `Pattern.read("grid 4")(images, random)` returns the locations and
    colours of the context, equally many for each image."""

    name: str
    number: float | None = None

    @classmethod
    def read(cls, text: str) -> "Pattern":
        name, *rest = text.split()
        choose("pattern", name, PATTERNS)
        try:
            number = float(*rest) if rest else None
        except (TypeError, ValueError):
            raise InputError(f"pattern {text!r}: write a name, and after it at most one number") from None
        if number is not None:
            whole = name in ("grid", "coarse")
            if name == "line" or (whole and (number < 1 or number % 1)) or (not whole and not 0 < number <= 1):
                expected = "no number" if name == "line" else "a whole number of pixels" if whole else "a share up to 1"
                raise InputError(f"pattern {text!r}: {name} takes {expected}")
        return cls(name, number)

    def mask(self, shape: tuple[int, int, int], random: torch.Generator) -> Mask:
        """Return the mask of context pixels, equally many for each image."""
        if self.name == "coarse":
            raise InputError("pattern 'coarse' has no mask: its context points are means of pixels")
        return MASKS[self.name](shape, random, self.number)

    def __call__(self, images: Float[Tensor, "b h w c"], random: torch.Generator) -> Context:
        b, h, w, c = images.shape
        locations = pixel_locations(h, w)
        if self.name != "coarse":
            rows = self.mask((b, h, w), random).flatten(1).nonzero()[:, 1].view(b, -1)
            return locations[rows], images.flatten(1, 2).gather(1, rows[..., None].expand(-1, -1, c))
        step = int(self.number or 4)
        if step > min(h, w):
            raise InputError(f"pattern 'coarse {step}': the image has {h} × {w} pixels; use a smaller number")
        inside = slice(h - h % step), slice(w - w % step)
        centres = avg_pool2d(locations.view(h, w, 2)[inside].permute(2, 0, 1)[None], step)[0].flatten(1).T
        colours = avg_pool2d(images[:, *inside].permute(0, 3, 1, 2), step)
        return centres.expand(b, -1, -1), colours.flatten(2).mT


def read_patterns(text: str) -> tuple[tuple[Pattern, ...], tuple[float, ...]]:
    """Parse patterns and their weights, as in "2 random | top | coarse 4"; "every" is a mixture of all kinds."""
    names, weights = split_mixture(EVERY if text == "every" else text, "patterns")
    if not all(name[:1].isalpha() for name in names):
        raise InputError("patterns: a pattern is missing; write for example '2 random | top | coarse 4'")
    return tuple(Pattern.read(name) for name in names), weights


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
