"""What is known of an image: some pixels, a half, a block, a coarse picture. Another pattern is one more function here.

A pattern takes a batch of images [b h w c] and random numbers, and gives the places and colours that are known, as many
of each image. What is written as words has a number after its name where it takes one: "random 0.1", "grid 4".
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool2d

from fillin.data.images.pixel_grid import places
from fillin.errors import InputError, UnknownName

Colours = Float[Tensor, "b h w c"]
Known = tuple[Float[Tensor, "b nc 2"], Float[Tensor, "b nc c"]]
Mask = Bool[Tensor, "b h w"]


def random(shape: tuple[int, int, int], numbers: torch.Generator, most: float | None) -> Mask:
    """Pixels anywhere: a share up to a third, another for each batch, or the one that is given."""
    b, h, w = shape
    share = float(torch.rand((), generator=numbers)) / 3 if most is None else most
    count = min(max(1, round(share * h * w)), h * w)
    order = torch.rand(b, h * w, generator=numbers).argsort(1)
    return torch.zeros(b, h * w, dtype=torch.bool).scatter_(1, order[:, :count], True).view(b, h, w)


def _side(axis: int, first: bool) -> Callable[..., Mask]:
    def half(shape: tuple[int, int, int], numbers: torch.Generator, share: float | None) -> Mask:
        size = shape[1 + axis]
        count = min(max(1, round(size * (0.5 if share is None else share))), size)
        near = torch.arange(size) < count if first else torch.arange(size) >= size - count
        return (near[:, None] if axis == 0 else near[None]).expand(shape).clone()

    return half


def block(shape: tuple[int, int, int], numbers: torch.Generator, share: float | None) -> Mask:
    """A rectangle, half as high and as wide as the image, somewhere in it."""
    b, h, w = shape
    found = []
    for size in (h, w):
        long = min(max(1, round(size * (0.5 if share is None else share))), size)
        start = torch.randint(0, size - long + 1, (b, 1), generator=numbers)
        at = torch.arange(size)
        found.append((at >= start) & (at < start + long))
    return found[0][:, :, None] & found[1][:, None]


def hole(shape: tuple[int, int, int], numbers: torch.Generator, share: float | None) -> Mask:
    """All but such a block."""
    return ~block(shape, numbers, min(0.5 if share is None else share, 0.9))


def line(shape: tuple[int, int, int], numbers: torch.Generator, share: None) -> Mask:
    """One row of pixels, or one column."""
    b, h, w = shape
    across = bool(torch.rand((), generator=numbers) < 0.5)
    size = h if across else w
    at = torch.arange(size) == torch.randint(0, size, (b, 1), generator=numbers)
    return (at[:, :, None] if across else at[:, None]).expand(b, h, w).clone()


def grid(shape: tuple[int, int, int], numbers: torch.Generator, step: float | None) -> Mask:
    """Every n-th pixel, down and across."""
    every = [torch.arange(size) % int(step or 4) == min(int(step or 4), size) // 2 for size in shape[1:]]
    return (every[0][:, None] & every[1][None]).expand(shape).clone()


MASKS: dict[str, Callable[..., Mask]] = {
    "random": random,
    "top": _side(0, True),
    "bottom": _side(0, False),
    "left": _side(1, True),
    "right": _side(1, False),
    "block": block,
    "hole": hole,
    "line": line,
    "grid": grid,
}
PATTERNS = (*MASKS, "coarse")  # "coarse 4": means of 4 × 4 pixels, where their middles are
EVERY = (
    "random | 0.5 top | 0.5 bottom | 0.5 left | 0.5 right | 0.5 block | 0.5 hole | 0.25 line | 0.5 coarse 4 | "
    "0.5 coarse 2"
)


@dataclass(frozen=True)
class Pattern:
    """Pattern.read("grid 4")(images, numbers) → what is known of each."""

    name: str
    number: float | None = None

    @classmethod
    def read(cls, text: str) -> "Pattern":
        name, *rest = text.split()
        if name not in PATTERNS:
            raise UnknownName("pattern", name, PATTERNS)
        try:
            number = float(*rest) if rest else None
        except (TypeError, ValueError):
            raise InputError(f"pattern {text!r}: write a name, and after it at most one number") from None
        if number is not None:
            whole = name in ("grid", "coarse")
            if name == "line" or (whole and (number < 1 or number % 1)) or (not whole and not 0 < number <= 1):
                wanted = "no number" if name == "line" else "a whole number of pixels" if whole else "a share up to 1"
                raise InputError(f"pattern {text!r}: {name} takes {wanted}")
        return cls(name, number)

    def mask(self, shape: tuple[int, int, int], numbers: torch.Generator) -> Mask:
        """Which pixels are known, as many of each image."""
        if self.name == "coarse":
            raise InputError("coarse pixels are no pixels of the image: they have no mask")
        return MASKS[self.name](shape, numbers, self.number)

    def __call__(self, images: Colours, numbers: torch.Generator) -> Known:
        b, h, w, c = images.shape
        if self.name == "coarse":
            return coarse(images, int(self.number or 4))
        mask = self.mask((b, h, w), numbers).flatten(1)
        rows = mask.nonzero()[:, 1].view(b, -1)
        return places(h, w)[rows], images.flatten(1, 2).gather(1, rows[..., None].expand(-1, -1, c))


def coarse(images: Colours, step: int) -> Known:
    """The image with a resolution that is `step` times lower."""
    b, h, w, _ = images.shape
    if step > min(h, w):
        raise InputError(f"pattern 'coarse {step}': the image has {h} × {w} pixels; use a smaller number")
    small = avg_pool2d(images[:, : h - h % step, : w - w % step].permute(0, 3, 1, 2), step)
    rows, columns = small.shape[2:]
    at = places(h, w).view(h, w, 2)[: rows * step, : columns * step]
    middles = avg_pool2d(at.permute(2, 0, 1)[None], step)[0].flatten(1).T
    return middles.expand(b, -1, -1), small.permute(0, 2, 3, 1).flatten(1, 2)


def read_patterns(text: str) -> tuple[tuple[Pattern, ...], tuple[float, ...]]:
    """ "2 random | top | coarse 4": patterns and how often each is drawn; "every": all kinds."""
    made, weights = [], []
    for part in (EVERY if text == "every" else str(text)).split("|"):
        words = part.split()
        if not words:
            raise InputError("patterns: one is missing; write for example '2 random | top | coarse 4'")
        try:
            weight, words = float(words[0]), words[1:]
        except ValueError:
            weight = 1.0
        if not words or not 0 < weight < float("inf"):
            raise InputError(f"patterns: {part.strip()!r}: a weight is a positive number before a name")
        made.append(Pattern.read(" ".join(words)))
        weights.append(weight)
    return tuple(made), tuple(weights)
