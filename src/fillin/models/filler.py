"""Filler: a TE-TNP-A that normalises by its context and separates the latent function from the noise.

A model of normalised locations and values predicts the same in seconds and in years, in kelvin and in millikelvin. The
normalisation is closed form and depends on the context alone.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fillin.errors import InputError
from fillin.heads import Autoregressive, rescale
from fillin.layers import mlp
from fillin.models.base import Points, Process, Targets, per_entry
from fillin.models.tnp import AutoregressiveTNP, Tokens

_HARMONICS = (1.0, 0.9, 0.8)  # weights of the power at 1, 2 and 3 times a frequency: of two equals the faster wins
_GRID_PER_CYCLE = 4  # frequencies between n and n + 1 cycles
_MAX_CYCLES = 128
_REFINEMENT = 24  # steps between two frequencies in the second search


@dataclass(frozen=True)
class Normalization:
    """y = base + level + slope·u + scale·y', where u = 4 (x − low)/width − 2 lies in [−2, 2] over the context. The
    level is relative to the smallest value, the base, so that 1e4 + 1 keeps its digits in float32.

    It is part of the model, so that any caller, training included, gets a filler that is equivariant to units;
    `Context._normalise` in `fillin.inference.context` precedes it in float64, for any model.
    """

    low: Float[Tensor, "b 1 dx"]
    width: Float[Tensor, "b 1 dx"]
    base: Float[Tensor, "b 1 dy"]
    level: Float[Tensor, "b 1 dy"]
    slope: Float[Tensor, "b dx dy"]
    scale: Float[Tensor, "b 1 dy"]
    density: Float[Tensor, "b 1 1"] | None = None  # context points in a tenth of the width
    cycles: Float[Tensor, "b 1 1"] | None = None  # periods over the width of the context
    season: Float[Tensor, "b 1 1"] | None = None  # confidence that there is a period, 0 to 1

    @classmethod
    def of(cls, context: Points, seasons=False, spacing=False, width="columns") -> "Normalization":
        """Compute the normalisation of x by the `width` of each of its columns, by the "diagonal" of their box, or by
        its "largest" side.

        With `spacing` locations also get a coordinate in steps between context points, with `seasons` the phase of the
        period. Gradients flow only where x requires them, as in a search for length scales.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and context.x.requires_grad):
            valid = context.valid[..., None]
            low = _smallest(context.x, valid)
            extent = -_smallest(-(context.x - low), valid)
            if width == "diagonal":
                extent = torch.linalg.vector_norm(extent, dim=-1, keepdim=True).expand_as(extent)
            elif width == "largest":
                extent = extent.amax(-1, keepdim=True).expand_as(extent)
            extent = torch.where(extent > 0, extent, 1)
            u = 4 * (context.x - low) / extent - 2
            observed = context.observed & valid
            n = observed.sum(1, keepdim=True).to(u.dtype)
            base = _smallest(context.y, observed)
            y = context.y - base
            level = _sum(y, observed) / n.clamp_min(1)
            slope = _slope(u, y - level, observed, n)
            level = level - _sum(u @ slope, observed) / n.clamp_min(1)
            rest = torch.where(observed, y - level - u @ slope, 0)
            std, size = (rest.square().sum(1, keepdim=True) / n.clamp_min(1)).sqrt(), (base + level).abs()
            scale = torch.where(std > 1e-5 * size, std, 0.01 * size)  # a constant has a hundredth of its level
            scale = torch.where((scale > 0) & (n > 2), scale, 1)
            density = observed.any(-1).sum(1).to(u.dtype)[:, None, None] / 10 if spacing else None
            units = cls(low, extent, base, level, slope, scale, density)
            return units if not seasons else _with_season(units, u, rest / scale, observed)

    def location(self, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n _"]:
        """Return u; with a density also u in tens of steps; with a period also a point on a circle."""
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
        """Return the trend relative to the base."""
        return self.level + (4 * (x - self.low) / self.width - 2) @ self.slope


def _smallest(x: Tensor, valid: Tensor) -> Float[Tensor, "b 1 dx"]:
    """Return the minimum over the context, 0 without one."""
    if not x.shape[1]:
        return x.new_zeros(len(x), 1, x.shape[-1])
    smallest = torch.where(valid, x, torch.inf).amin(1, keepdim=True)
    return torch.where(smallest.isfinite(), smallest, 0)


def _sum(values: Tensor, observed: Tensor) -> Float[Tensor, "b 1 dy"]:
    return torch.where(observed, values, 0).sum(1, keepdim=True)


def _slope(u: Tensor, y: Tensor, observed: Tensor, n: Float[Tensor, "b 1 dy"]) -> Float[Tensor, "b dx dy"]:
    """Fit by least squares with a ridge worth four points, which shrinks the slope of few points."""
    weights = observed.to(u.dtype)
    mean = torch.einsum("bnx,bny->bxy", u, weights) / n.clamp_min(1)
    centred = (u[..., None] - mean[:, None]) * weights[:, :, None]  # [b n dx dy]
    gram = torch.einsum("bnxy,bnzy->byxz", centred, centred)
    ridge = 4 * torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)
    both = torch.einsum("bnxy,bny->byx", centred, y)
    slope = _solve(gram + ridge, both).mT
    return torch.where(n > 3, slope, 0)


def _with_season(units: Normalization, u: Tensor, rest: Tensor, observed: Tensor) -> Normalization:
    """Add the period of the mean over the outputs."""
    values, seen = rest.mean(-1, keepdim=True), observed.any(-1, keepdim=True)
    cycles, season = find_periods((u[..., 0] + 2) / 4, values, seen)
    return replace(units, cycles=cycles, season=season)


def periodogram(
    phase: Float[Tensor, "b n"], values: Float[Tensor, "b n d"], observed: Bool[Tensor, "b n d"]
) -> tuple[Float[Tensor, "f"], Float[Tensor, "b d f"]]:
    """Return frequencies in cycles over the width, and the power of each column there (Schuster 1898), 0 above half the
    number of its points. Values are 0 where they are not observed."""
    # frequencies above half the number of points are excluded; an exported graph computes and masks them
    max_cycles = _MAX_CYCLES if torch.compiler.is_exporting() else min(_MAX_CYCLES, values.shape[1] // 2)
    columns = values.mT  # [b d n]
    fast = (observed.sum(1)[..., None].to(phase.dtype) / 2).floor()
    grid = torch.arange(_GRID_PER_CYCLE * max_cycles + 1, dtype=phase.dtype, device=phase.device) / _GRID_PER_CYCLE
    angle = 2 * math.pi * grid[:, None] * phase[:, None]  # [b f n]
    real, imaginary = (torch.einsum("bfn,bdn->bdf", wave, columns) for wave in (angle.cos(), angle.sin()))
    power = (real.square() + imaginary.square()) / columns.square().sum(-1, keepdim=True).clamp_min(1e-12)
    return grid, torch.where(grid <= fast, power, 0)


def find_periods(
    phase: Float[Tensor, "b n"], values: Float[Tensor, "b n d"], observed: Bool[Tensor, "b n d"]
) -> tuple[Float[Tensor, "b 1 d"], Float[Tensor, "b 1 d"]]:
    """Find the frequency that explains most of each column, in cycles over the width, and the confidence in it, 0 to 1:
    by periodogram and least squares. Values are 0 where they are not observed."""
    b, n, d = values.shape
    if not torch.compiler.is_exporting() and n < 4:
        return values.new_zeros(b, 1, d), values.new_zeros(b, 1, d)
    columns = values.mT  # [b d n]
    points = observed.sum(1)[..., None].to(phase.dtype)  # [b d 1]
    fast = (points / 2).floor()
    grid, power = periodogram(phase, values, observed)
    voted = torch.zeros_like(power)
    for multiple, weight in enumerate(_HARMONICS, 1):
        harmonic = power[..., ::multiple]
        voted[..., : harmonic.shape[-1]] += weight * harmonic
    best = torch.where((grid >= 1.5) & (grid <= fast), voted, -1).argmax(-1)  # [b d]; below 1.5 cycles it is a trend
    fine = torch.linspace(-1, 1, 2 * _REFINEMENT + 1, dtype=phase.dtype, device=phase.device) / _GRID_PER_CYCLE
    near = (grid[best][..., None] + fine).flatten(0, 1)  # [b·d f]
    explained = explain_by_waves(phase.repeat_interleave(d, 0), columns.flatten(0, 1), near, observed.mT.flatten(0, 1))
    at = explained.argmax(1, keepdim=True)
    points, fast = points.flatten(0, 1), fast.flatten(0, 1)
    log_odds = 0.5 * points * explained.gather(1, at) - torch.log(_GRID_PER_CYCLE * points / 2 + 1) - 1
    found = (torch.where(fast >= 2, part, 0).view(b, 1, d) for part in (near.gather(1, at), log_odds / 6))
    cycles, confidence = found
    return cycles, confidence.clamp(0, 1)


def explain_by_waves(
    phase: Float[Tensor, "b n"], value: Float[Tensor, "b n"], cycles: Float[Tensor, "b f"], valid: Bool[Tensor, "b n"]
) -> Float[Tensor, "b f"]:
    """Return the share of Σ value² that a wave of each frequency and its first overtone explain."""
    angle = 2 * math.pi * cycles[:, :, None] * phase[:, None]
    waves = torch.stack([angle.cos(), angle.sin(), (2 * angle).cos(), (2 * angle).sin()], 2)  # [b f 4 n]
    waves = waves * valid[:, None, None]
    ridge = 1e-2 * valid.sum(1).clamp_min(1)[:, None, None, None] * torch.eye(4, dtype=value.dtype, device=value.device)
    both = torch.einsum("bfwn,bn->bfw", waves, value)
    fit = _solve(waves @ waves.mT + ridge, both)
    return (fit * both).sum(-1) / value.square().sum(1, keepdim=True).clamp_min(1e-12)


def _solve(a: Float[Tensor, "*b d d"], y: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Solve a x = y for small, positive definite a by elimination, batched over all systems."""
    rows, tops = torch.cat([a, y[..., None]], -1).movedim((-2, -1), (0, 1)).contiguous(), []
    for _ in range(y.shape[-1]):
        top = rows[0, 1:] / rows[0, 0]  # the rest of the first row: its unknown in terms of the later ones
        rows = rows[1:, 1:] - rows[1:, :1] * top
        tops.append(top)
    solution = tops[-1]
    for top in reversed(tops[:-1]):
        solution = torch.cat([top[-1:] - (top[:-1] * solution).sum(0, keepdim=True), solution])
    return solution.movedim(0, -1)


class Filler(AutoregressiveTNP):
    """Autoregressive transformer on normalised locations and values, invariant to shifts and scales of x and y.

    With `seasons` (one input dimension) the strongest period of the context is detected by its periodogram, and every
    location also gets coordinates on a circle of that period. With `spacing` (one input dimension) it also gets a
    coordinate in steps between context points. Values may have known standard errors, `error_c` [b nc dy] (0: unknown).
    With `radial` one set of weights serves any number of columns, all in units of the diagonal of their bounding box;
    the caller scales columns by their relevance.
    """

    any_units = True

    def __init__(
        self, dim_x: int = 1, dim_y: int = 1, width: int = 64, head: str = "observed", seasons: bool = True,
        spacing: bool = False, radial: bool = False, **options,
    ):  # fmt: skip
        one_dimensional = dim_x == 1 and not radial
        self.seasons, self.spacing = seasons and one_dimensional, spacing and one_dimensional
        columns = dim_x + 2 * self.seasons + self.spacing
        super().__init__(dim_x=columns, dim_y=dim_y, width=width, head=head, radial=radial, **options)
        self.dim_x = None if radial else dim_x
        self.embed = mlp(3 * dim_y, width, width)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None, error_c=None) -> Autoregressive:
        context, targets = Process.read(self, xc, yc, xt, mask_c, mask_t)
        width = "diagonal" if self.dim_x is None else "columns"
        units = Normalization.of(context, self.seasons, self.spacing, width)
        trend = units.trend(targets.x)
        context = replace(
            context, x=units.location(context.x), y=torch.where(context.observed, units.value(context.y, context.x), 0),
            error=self._errors(error_c, context, units),
        )  # fmt: skip
        queries = Targets(units.location(targets.x), targets.keep)

        def predict(features: Tokens):
            return rescale(self.head(features), trend, units.scale)

        return Autoregressive(
            torch.Size([*xt.shape[:2], self.dim_y]),
            targets.keep,
            marginals=lambda: predict(self.decode(context, queries)),
            conditionals=lambda y: predict(self.teacher_forced(context, queries, (y - trend) / units.scale)),
            draw=lambda n: trend + units.scale * self.draw(context, queries, n),
        )

    def tokens(self, points: Points) -> Tokens:
        error = torch.zeros_like(points.y) if points.error is None else points.error
        far = points.y.abs().clamp_min(3)  # logarithmic beyond 3 stds: a jump must not dominate the tokens
        y = torch.where(points.y.abs() > 3, points.y.sign() * (3 + torch.log(far / 3)), points.y)
        values = replace(points, y=y).values_and_flags
        return self.embed(torch.cat([values, torch.log1p(10 * error)], -1))

    def _errors(self, error_c: Tensor | None, context: Points, units: Normalization) -> Float[Tensor, "b nc dy"] | None:
        if error_c is None:
            return None
        if error_c.shape != context.y.shape:
            raise InputError(f"error_c has shape {tuple(error_c.shape)}, expected {tuple(context.y.shape)}, that of yc")
        errors = torch.where(per_entry(context.observed, error_c), error_c, 0)
        if not (errors >= 0).all() or not errors.isfinite().all():
            raise InputError("error_c must be standard deviations of at least 0 (0 where unknown)")
        return errors / units.scale
