"""Filler: a TE-TNP-A that normalises by its context and separates the latent function from the noise."""

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
    """Autoregressive transformer on normalised locations and values, invariant to shifts and scales of x and y.

    With `seasons` (one input dimension) the strongest period of the context is detected by its periodogram, and every
    location also gets coordinates on a circle of that period. With `spacing` (one input dimension) it also gets a
    coordinate in steps between context points. Values may have known standard errors, `error_c` [b nc dy] (0: unknown).
    With `radial` one set of weights serves any number of columns, all in units of the diagonal of their bounding box;
    the caller scales columns by their relevance.
    """

    def __init__(
        self, dim_x: int = 1, dim_y: int = 1, width: int = 64, head: str = "observed", seasons: bool = True,
        spacing: bool = False, radial: bool = False, **options,
    ):  # fmt: skip
        one_dimensional = dim_x == 1 and not radial
        self.seasons, self.spacing = seasons and one_dimensional, spacing and one_dimensional
        super().__init__(dim_x + 2 * self.seasons + self.spacing, dim_y, width, head=head, radial=radial, **options)
        self.dim_x = None if radial else dim_x
        self.embed = mlp(3 * dim_y, width, width)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None, error_c=None) -> Autoregressive:
        context, targets = Process.read(self, xc, yc, xt, mask_c, mask_t)
        units = Normalization.of(context, self.seasons, self.spacing, isotropic=self.dim_x is None)
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
            marginals=lambda: predict(self.decode((context, self.tokens(context)), queries)),
            conditionals=lambda y: predict(self.teacher_forced(context, queries, (y - trend) / units.scale)),
            draw=lambda n: trend + units.scale * self.draw(context, queries, n),
        )

    def tokens(self, points: Points) -> Tokens:
        error = torch.zeros_like(points.y) if points.error is None else points.error
        values = replace(points, y=_compress(points.y)).values_and_flags
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


def _compress(y: Tensor) -> Tensor:
    """Keep y up to 3 standard deviations, then grow logarithmically, so that a jump does not dominate the tokens."""
    far = y.abs().clamp_min(3)
    return torch.where(y.abs() > 3, y.sign() * (3 + torch.log(far / 3)), y)
