"""SetConv: from scattered points to a grid and back, by the one operation with a Gaussian weight."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention import Gaussian, attend
from fillin.errors import InputError
from fillin.layers.pseudo import over_keys

_LARGEST = 1 << 22  # grid points in all, beyond which memory, not the model, is the question
_FAR, _NOTHING = 30.0, 1e-30  # e⁻³⁰ ≈ 1e-13


class Grid(NamedTuple):
    """A regular grid per task: each axis [b G]. All its points are whole multiples of the spacing from place 0."""

    axes: tuple[Float[Tensor, "b _"], ...]

    @classmethod
    def over(
        cls,
        x: list[tuple[Float[Tensor, "b n dx"], Bool[Tensor, "b n"] | None]],
        spacing: float,
        margin: int,
        multiple: int,
    ):
        """A grid over all the given points with `margin` grid points beyond them on either side.

        Give places relative to a point of the data (the smallest, say): then the grid moves with the data, whatever
        the shift. Starts and sizes are multiples of `multiple`, so that a U-Net halves every grid alike.
        """
        low = torch.stack([_edge(p, m, -1) for p, m in x]).amin(0)  # [b dx]
        high = torch.stack([_edge(p, m, +1) for p, m in x]).amax(0)
        low, high = torch.where(low > high, 0, low), torch.where(low > high, 0, high)  # a task without any point
        start = ((low / spacing).floor() - margin).div(multiple, rounding_mode="floor") * multiple
        count = ((high / spacing).ceil() + margin - start).amax(0) + 1  # [dx], alike for all tasks
        sizes = [int(c) for c in (count / multiple).ceil() * multiple]
        if torch.tensor(sizes, dtype=torch.float64).prod() * len(low) > _LARGEST:
            raise InputError(
                f"convolutional model: the points span a grid of {' × '.join(map(str, sizes))} points, {len(low)} "
                f"times over, more than {_LARGEST}; scale x down, lower points_per_unit, or use a te-tnp"
            )
        steps = [torch.arange(s, device=low.device, dtype=low.dtype) for s in sizes]
        return cls(tuple(spacing * (start[:, i, None] + step) for i, step in enumerate(steps)))


def _edge(x: Tensor, mask: Tensor | None, sign: int) -> Float[Tensor, "b dx"]:
    """The smallest (sign −1) or largest (+1) valid place of each task; ±∞ where it has none."""
    if mask is not None:
        x = x.masked_fill(~mask[..., None], -sign * torch.inf)
    if x.shape[1] == 0:
        return x.new_full((len(x), x.shape[-1]), -sign * torch.inf)
    return x.amin(1) if sign < 0 else x.amax(1)


class _Near(Gaussian):
    """A Gaussian weight without the keys that are below e⁻³⁰ of a query's nearest one: in float32 they are nothing
    beside it, but their products are denormal numbers, and convolutions of those take many times as long.

    It does not fold: values are whole rows of a grid, and fused attention would pad its keys to their width."""

    alone = False

    def forward(self, q, k, delta):
        logit = super().forward(q, k, delta)
        if not logit.shape[-1]:
            return logit
        return logit.masked_fill(logit < logit.detach().amax(-1, keepdim=True) - _FAR, -torch.inf)

    def fold(self, q, k, xq, xk):
        return None


class SetConv(nn.Module):
    """Σ_j exp(−½‖(x − x_j)/ℓ‖²) v_j with a learned ℓ per axis.

    `to_grid` gives the sum itself (normalise="none"): with v = 1 it is the density of the data. `to_points` divides
    by the sum of weights. The Gaussian is a product over axes, so axes are taken one at a time, and a 2-D grid
    never meets the points pair by pair.
    """

    def __init__(self, dim_x: int, init: float):
        super().__init__()
        self.kernels = nn.ModuleList(_Near(init=init) for _ in range(dim_x))

    def to_grid(
        self, grid: Grid, x: Float[Tensor, "b n dx"], v: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b c ..."]:
        if len(grid.axes) == 2:  # Σ_j k₁ (k₂ v_j): the second axis becomes channels of the values
            delta = x[..., None, 1:] - grid.axes[1][:, None, :, None]  # [b n G₂ 1]
            along = self.kernels[1](None, None, delta.movedim(-1, 1))[:, 0].exp()
            v = (v[..., None] * along[:, :, None]).flatten(2)  # [b n c·G₂]
        out = attend(
            None, None, v[:, None], xq=grid.axes[0][..., None], xk=x[..., :1], score=self.kernels[0],  # type: ignore[arg-type]
            mask=over_keys(mask), normalise="none",
        )[:, 0]  # fmt: skip
        out = torch.where(out.abs() > _NOTHING, out, 0)  # of a grid point that is far from all points
        if len(grid.axes) == 2:
            return out.unflatten(-1, (-1, grid.axes[1].shape[1])).movedim(2, 1)
        return out.mT

    def to_points(
        self, grid: Grid, features: Float[Tensor, "b c ..."], x: Float[Tensor, "b n dx"]
    ) -> Float[Tensor, "b n c"]:
        b, c = features.shape[:2]
        values = features.movedim(1, 2).flatten(2)  # [b G₁ c·G₂] (or [b G₁ c])
        out = self._along(0, values, x[..., :1], grid.axes[0])
        if len(grid.axes) == 1:
            return out
        n, size = x.shape[1], grid.axes[1].shape[1]
        each = out.reshape(b * n, c, size).mT  # every point has its own row of the grid left
        axis = grid.axes[1].repeat_interleave(n, 0)
        return self._along(1, each, x[..., 1].reshape(b * n, 1, 1), axis).view(b, n, c)

    def _along(self, dim: int, values: Tensor, x: Tensor, axis: Tensor) -> Tensor:
        kernel: _Near = self.kernels[dim]  # type: ignore[assignment]
        return attend(None, None, values[:, None], xq=x, xk=axis[..., None], score=kernel)[:, 0]
