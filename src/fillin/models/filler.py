"""The model that fills gaps: a TE-TNP-A in the units of its context, which tells the function from the noise."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from fillin.errors import InputError
from fillin.heads import Autoregressive, rescale
from fillin.layers import mlp
from fillin.models.base import Process
from fillin.models.normalization import Normalization
from fillin.models.points import Points, Targets, per_entry
from fillin.models.tnp import AutoregressiveTNP, Tokens


class Filler(AutoregressiveTNP):
    """Places and values are read in units of the context, so neither shifts nor scales of x and y matter.

    With `seasons` (one input dimension) the strongest period of the context is found by its periodogram, and every
    place also has a point on a circle of that period: what is one period away is near. With `spacing` (again one) it is
    also told in steps between known points: what two neighbours of a long series have to do with one another is a
    matter of these. Values may come with known errors, `error_c` [b nc dy] (0: not known). With `radial` one set of
    weights serves any number of columns, all in units of the diagonal of their box: which of them matter more is for
    the caller to say, by stretching them.
    """

    def __init__(
        self, dim_x: int = 1, dim_y: int = 1, width: int = 64, head: str = "observed", seasons: bool = True,
        spacing: bool = False, radial: bool = False, **options,
    ):  # fmt: skip
        line = dim_x == 1 and not radial
        self.seasons, self.spacing = seasons and line, spacing and line
        super().__init__(dim_x + 2 * self.seasons + self.spacing, dim_y, width, head=head, radial=radial, **options)
        self.dim_x = None if radial else dim_x
        self.embed = mlp(3 * dim_y, width, width)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None, error_c=None) -> Autoregressive:
        context, targets = Process.read(self, xc, yc, xt, mask_c, mask_t)
        units = Normalization.of(context, self.seasons, self.spacing, alike=self.dim_x is None)
        trend = units.trend(targets.x)
        context = replace(
            context, x=units.place(context.x), y=torch.where(context.seen, units.value(context.y, context.x), 0),
            error=self._errors(error_c, context, units),
        )  # fmt: skip
        asked = Targets(units.place(targets.x), targets.keep)

        def observed(features: Tokens):
            return rescale(self.head(features), trend, units.scale)

        return Autoregressive(
            torch.Size([*xt.shape[:2], self.dim_y]),
            targets.keep,
            marginals=lambda: observed(self.decode((context, self.tokens(context)), asked)),
            conditionals=lambda y: observed(self.teacher_forced(context, asked, (y - trend) / units.scale)),
            draw=lambda n: trend + units.scale * self.draw(context, asked, n),
        )

    def tokens(self, points: Points) -> Tokens:
        error = torch.zeros_like(points.y) if points.error is None else points.error
        known = replace(points, y=_squashed(points.y)).known
        return self.embed(torch.cat([known, torch.log1p(10 * error)], -1))

    def _errors(self, given: Tensor | None, context: Points, units: Normalization) -> Float[Tensor, "b nc dy"] | None:
        if given is None:
            return None
        if given.shape != context.y.shape:
            raise InputError(f"error_c has shape {tuple(given.shape)}, expected {tuple(context.y.shape)}, that of yc")
        known = torch.where(per_entry(context.seen, given), given, 0)
        if not (known >= 0).all() or not known.isfinite().all():
            raise InputError("error_c are standard deviations: numbers of at least 0 (0 where none is known)")
        return known / units.scale


def _squashed(y: Tensor) -> Tensor:
    """y to 3 deviations, then as slowly as its logarithm: a jump that the context did not tell of does not blind."""
    far = y.abs().clamp_min(3)
    return torch.where(y.abs() > 3, y.sign() * (3 + torch.log(far / 3)), y)
