"""The units of a context: where it lies, how wide it is, its level, slope and spread, and what period it has.

A model that sees places and values in these units gives the same answer in seconds and in years, in kelvin and in
millikelvin. All of it is closed form and depends on the context alone.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.models.points import Points

_HARMONICS = (1.0, 0.9, 0.8)  # what power at 1, 2 and 3 times a frequency says for it: of two equals the faster wins
_PER_CYCLE = 4  # frequencies looked at between n and n + 1 cycles
_MOST = 128  # cycles
_FINE = 24  # steps between two of them, in the second look


@dataclass(frozen=True)
class Normalization:
    """y = base + level + slope·u + scale·y', where u = 4 (x − low)/width − 2 lies in [−2, 2] over the context.

    The level is counted from the smallest value, the base: then 1e4 + 1 keeps its digits in float32.
    """

    low: Float[Tensor, "b 1 dx"]
    width: Float[Tensor, "b 1 dx"]
    base: Float[Tensor, "b 1 dy"]
    level: Float[Tensor, "b 1 dy"]
    slope: Float[Tensor, "b dx dy"]
    scale: Float[Tensor, "b 1 dy"]
    density: Float[Tensor, "b 1 1"] | None = None  # known points in a tenth of the width (of one column)
    cycles: Float[Tensor, "b 1 1"] | None = None  # of the season, over the width of the context
    season: Float[Tensor, "b 1 1"] | None = None  # how sure it is that there is one, 0 to 1

    @classmethod
    def of(cls, context: Points, seasons: bool = False, spacing: bool = False, alike: bool = False) -> "Normalization":
        """Normalise each column of x on its own, or all of them `alike`: the diagonal of their box. With `spacing`
        locations are also given in steps between context points, with `seasons` in periods of the season. A gradient
        flows only where that of the locations is required, as a search for length scales does."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and context.x.requires_grad):
            return cls._of(context, seasons, spacing, alike)

    @classmethod
    def _of(cls, context: Points, seasons: bool, spacing: bool, alike: bool) -> "Normalization":
        there = context.real[..., None]
        low = _least(context.x, there)
        width = -_least(-(context.x - low), there)
        width = torch.linalg.vector_norm(width, dim=-1, keepdim=True).expand_as(width) if alike else width
        width = torch.where(width > 0, width, 1)
        u = 4 * (context.x - low) / width - 2
        seen = context.seen & there
        n = seen.sum(1, keepdim=True).to(u.dtype)
        base = _least(context.y, seen)
        y = context.y - base
        level = _sum(y, seen) / n.clamp_min(1)
        slope = _slope(u, y - level, seen, n)
        level = level - _sum(u @ slope, seen) / n.clamp_min(1)
        rest = torch.where(seen, y - level - u @ slope, 0)
        scale = _spread(rest, base + level, n)
        density = seen.any(-1).sum(1).to(u.dtype)[:, None, None] / 10 if spacing else None
        units = cls(low, width, base, level, slope, scale, density)
        return units if not seasons else _with_season(units, u, rest / scale, seen)

    def place(self, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n _"]:
        """u; the same in steps, ten of which are one; and where there may be a season its point on a circle."""
        u = 4 * (x - self.low) / self.width - 2
        parts = [u]
        if self.density is not None:
            parts.append(self.density * u / 4)
        if self.cycles is not None and self.season is not None:
            angle = 0.5 * math.pi * self.cycles * (u + 2)
            parts += [self.season * angle.cos(), self.season * angle.sin()]
        return torch.cat(parts, -1)

    def trend(self, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n dy"]:
        return self.base + self._above(x)

    def value(self, y: Float[Tensor, "b n dy"], x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n dy"]:
        return (y - self.base - self._above(x)) / self.scale

    def _above(self, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n dy"]:
        """The trend, from the base."""
        return self.level + (4 * (x - self.low) / self.width - 2) @ self.slope


def _least(x: Tensor, there: Tensor) -> Float[Tensor, "b 1 dx"]:
    """Minimum over the context, 0 where there is none."""
    if not x.shape[1]:
        return x.new_zeros(len(x), 1, x.shape[-1])
    least = torch.where(there, x, torch.inf).amin(1, keepdim=True)
    return torch.where(least.isfinite(), least, 0)


def _sum(values: Tensor, seen: Tensor) -> Float[Tensor, "b 1 dy"]:
    return torch.where(seen, values, 0).sum(1, keepdim=True)


def _slope(u: Tensor, y: Tensor, seen: Bool[Tensor, "b n dy"], n: Float[Tensor, "b 1 dy"]) -> Float[Tensor, "b dx dy"]:
    """Least squares with a ridge worth four points: a slope that few points show is not believed in full."""
    weights = seen.to(u.dtype)
    mean = torch.einsum("bnx,bny->bxy", u, weights) / n.clamp_min(1)
    centred = (u[..., None] - mean[:, None]) * weights[:, :, None]  # [b n dx dy]
    gram = torch.einsum("bnxy,bnzy->byxz", centred, centred)
    ridge = 4 * torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)
    both = torch.einsum("bnxy,bny->byx", centred, y)
    slope = _solve(gram + ridge, both).mT
    return torch.where(n > 3, slope, 0)


def _spread(rest: Tensor, level: Tensor, n: Float[Tensor, "b 1 dy"]) -> Float[Tensor, "b 1 dy"]:
    """The deviation around the trend; of a constant a hundredth of its level; 1 where fewer than three points tell."""
    deviation = (rest.square().sum(1, keepdim=True) / n.clamp_min(1)).sqrt()
    scale = torch.where(deviation > 1e-5 * level.abs(), deviation, 0.01 * level.abs())
    return torch.where((scale > 0) & (n > 2), scale, 1)


def _with_season(units: Normalization, u: Tensor, rest: Tensor, seen: Tensor) -> Normalization:
    """The frequency that explains most of what the trend leaves: found by a periodogram, sharpened by least squares."""
    b, n, _ = u.shape
    # frequencies above half the points are not taken: a graph for any number of points looks at all, and leaves them
    most = _MOST if torch.compiler.is_exporting() else min(_MOST, n // 2)
    if most < 2:
        zero = u.new_zeros(b, 1, 1)
        return replace(units, cycles=zero, season=zero)
    turns, value = (u[..., 0] + 2) / 4, rest.mean(-1)  # [b n]
    points = seen.any(-1).sum(1, keepdim=True).to(u.dtype)
    fast = (points / 2).floor()
    grid = torch.arange(_PER_CYCLE * most + 1, dtype=u.dtype, device=u.device) / _PER_CYCLE
    power = _periodogram(turns, value, grid)
    power = torch.where(grid <= fast, power, 0)
    voted = torch.zeros_like(power)
    for multiple, weight in enumerate(_HARMONICS, 1):
        own = power[:, ::multiple]
        voted[:, : own.shape[1]] += weight * own
    slow = 1.5  # cycles: below it is a trend
    best = torch.where((grid >= slow) & (grid <= fast), voted, -1).argmax(1)  # [b]
    fine = torch.linspace(-1, 1, 2 * _FINE + 1, dtype=u.dtype, device=u.device) / _PER_CYCLE
    near = grid[best][:, None] + fine
    explained = _explained(turns, value, near, seen.any(-1))
    at = explained.argmax(1, keepdim=True)
    sure = 0.5 * points * explained.gather(1, at) - torch.log(_PER_CYCLE * points / 2 + 1) - 1
    cycles, season = (torch.where(fast >= 2, found, 0)[..., None] for found in (near.gather(1, at), sure / 6))
    return replace(units, cycles=cycles, season=season.clamp(0, 1))


def _periodogram(turns: Float[Tensor, "b n"], value: Float[Tensor, "b n"], cycles: Float[Tensor, "f"]) -> Tensor:
    """|Σ_n value e^(−2πi cycles turns)|² (Schuster), as a share of its sum over n of value² [b f]."""
    angle = 2 * math.pi * cycles[:, None] * turns[:, None]
    real, imaginary = (torch.einsum("bfn,bn->bf", wave, value) for wave in (angle.cos(), angle.sin()))
    return (real.square() + imaginary.square()) / value.square().sum(1, keepdim=True).clamp_min(1e-12)


def _explained(turns: Tensor, value: Tensor, cycles: Float[Tensor, "b f"], there: Bool[Tensor, "b n"]) -> Tensor:
    """The share of Σ value² that a wave of each frequency and its first overtone explain, by least squares [b f]."""
    angle = 2 * math.pi * cycles[:, :, None] * turns[:, None]
    waves = torch.stack([angle.cos(), angle.sin(), (2 * angle).cos(), (2 * angle).sin()], 2)  # [b f 4 n]
    waves = waves * there[:, None, None]
    ridge = 1e-2 * there.sum(1).clamp_min(1)[:, None, None, None] * torch.eye(4, dtype=value.dtype, device=value.device)
    both = torch.einsum("bfwn,bn->bfw", waves, value)
    fit = _solve(waves @ waves.mT + ridge, both)
    return (fit * both).sum(-1) / value.square().sum(1, keepdim=True).clamp_min(1e-12)


def _solve(a: Float[Tensor, "*b d d"], y: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """a⁻¹ y for small, positive definite a, by elimination: all systems of a batch take each step at once."""
    rows, tops = torch.cat([a, y[..., None]], -1).movedim((-2, -1), (0, 1)).contiguous(), []
    for _ in range(y.shape[-1]):
        top = rows[0, 1:] / rows[0, 0]  # what is left of the first row: its unknown, in terms of those after it
        rows = rows[1:, 1:] - rows[1:, :1] * top
        tops.append(top)
    found = tops[-1]
    for top in reversed(tops[:-1]):
        found = torch.cat([top[-1:] - (top[:-1] * found).sum(0, keepdim=True), found])
    return found.movedim(0, -1)
