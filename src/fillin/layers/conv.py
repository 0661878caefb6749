"""Layers of convolutional models: SetConv from scattered points to a grid and back, and networks on the grid."""

from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fillin.attention import Gaussian, attend, expand_key_mask
from fillin.errors import InputError

_MAX_GRID_POINTS = 1 << 22  # over all tasks
_MAX_LOGIT_GAP = 30.0  # to the nearest key: e⁻³⁰ ≈ 1e-13
_MIN_DENSITY = 1e-30
_CONV = {1: nn.Conv1d, 2: nn.Conv2d}
Map = Float[Tensor, "b _ ..."]
Locations = Float[Tensor, "b n dx"]
KeyMask = Bool[Tensor, "b n"] | None


class Grid(NamedTuple):
    """A regular grid per task: each axis [b G]. All coordinates are whole multiples of the spacing."""

    axes: tuple[Float[Tensor, "b _"], ...]

    @classmethod
    def over(cls, x: list[tuple[Locations, KeyMask]], spacing: float, margin: int, multiple: int):
        """Cover all points of the sets (x, mask) with `margin` grid points beyond them on either side.

        Pass locations relative to a point of the data, such as the smallest, so that the grid moves with the data.
        Starts and sizes are multiples of `multiple`, so that a U-Net halves all grids alike.
        """
        low = torch.stack([_find_edge(points, mask, -1) for points, mask in x]).amin(0)  # [b dx]
        high = torch.stack([_find_edge(points, mask, +1) for points, mask in x]).amax(0)
        low, high = torch.where(low > high, 0, low), torch.where(low > high, 0, high)  # a task without points
        start = ((low / spacing).floor() - margin).div(multiple, rounding_mode="floor") * multiple
        count = ((high / spacing).ceil() + margin - start).amax(0) + 1  # [dx], alike for all tasks
        sizes = [int(c) for c in (count / multiple).ceil() * multiple]
        if torch.tensor(sizes, dtype=torch.float64).prod() * len(low) > _MAX_GRID_POINTS:
            raise InputError(
                f"convolutional model: the data need {len(low)} grids of {' × '.join(map(str, sizes))} points, more "
                f"than {_MAX_GRID_POINTS} points in all; scale x down, lower points_per_unit, or use a te-tnp"
            )
        steps = [torch.arange(s, device=low.device, dtype=low.dtype) for s in sizes]
        return cls(tuple(spacing * (start[:, i, None] + step) for i, step in enumerate(steps)))


def _find_edge(x: Tensor, mask: Tensor | None, sign: int) -> Float[Tensor, "b dx"]:
    """Smallest (sign −1) or largest (+1) coordinates of each task; ±∞ where it has no points."""
    if mask is not None:
        x = x.masked_fill(~mask[..., None], -sign * torch.inf)
    if x.shape[1] == 0:
        return x.new_full((len(x), x.shape[-1]), -sign * torch.inf)
    return x.amin(1) if sign < 0 else x.amax(1)


class _TruncatedGaussian(Gaussian):
    """A Gaussian without the keys whose weight is below e⁻³⁰ of that of the nearest key.

    In float32 these are negligible, but their products are denormal numbers, which make convolutions many times slower.
    It does not fold: values are whole rows of a grid, and fused attention would pad its keys to their width.
    """

    def __init__(self, init: float):
        super().__init__(init=init, compares_keys=True)

    def forward(self, q, k, delta):
        logits = super().forward(q, k, delta)
        if not logits.shape[-1]:
            return logits
        return logits.masked_fill(logits < logits.detach().amax(-1, keepdim=True) - _MAX_LOGIT_GAP, -torch.inf)

    def fold(self, q, k, xq, xk):
        return None


class SetConv(nn.Module):
    """Σ_j exp(−½‖(x − x_j)/ℓ‖²) v_j with a learned ℓ per axis.

    `to_grid` returns the sum (normalise="none"): with v = 1 it is the density of the data. `to_points` divides by the
    sum of the weights. The Gaussian is a product over axes, so axes are taken one at a time, and no tensor holds all
    pairs of points and cells of a 2-D grid.
    """

    def __init__(self, dim_x: int, init: float):
        super().__init__()
        self.kernels = nn.ModuleList(_TruncatedGaussian(init) for _ in range(dim_x))

    def to_grid(
        self, grid: Grid, x: Locations, v: Float[Tensor, "b n c"], mask: KeyMask = None
    ) -> Float[Tensor, "b c ..."]:
        if len(grid.axes) == 2:  # Σ_j k₁ (k₂ v_j): the second axis becomes channels of the values
            delta = x[..., None, 1:] - grid.axes[1][:, None, :, None]  # [b n G₂ 1]
            along = self.kernels[1](None, None, delta.movedim(-1, 1))[:, 0].exp()
            v = (v[..., None] * along[:, :, None]).flatten(2)  # [b n c·G₂]
        out = attend(
            None, None, v[:, None], xq=grid.axes[0][..., None], xk=x[..., :1], score=self.kernels[0],  # type: ignore[arg-type]
            mask=expand_key_mask(mask), normalise="none",
        )[:, 0]  # fmt: skip
        out = torch.where(out.abs() > _MIN_DENSITY, out, 0)  # no denormal numbers far from all points
        if len(grid.axes) == 2:
            return out.unflatten(-1, (-1, grid.axes[1].shape[1])).movedim(2, 1)
        return out.mT

    def to_points(self, grid: Grid, features: Float[Tensor, "b c ..."], x: Locations) -> Float[Tensor, "b n c"]:
        b, c = features.shape[:2]
        values = features.movedim(1, 2).flatten(2)  # [b G₁ c·G₂] (or [b G₁ c])
        out = self._interpolate(0, values, x[..., :1], grid.axes[0])
        if len(grid.axes) == 1:
            return out
        n, size = x.shape[1], grid.axes[1].shape[1]
        rows = out.reshape(b * n, c, size).mT  # one row of the grid per point
        axis = grid.axes[1].repeat_interleave(n, 0)
        return self._interpolate(1, rows, x[..., 1].reshape(b * n, 1, 1), axis).view(b, n, c)

    def _interpolate(self, dim: int, values: Tensor, x: Tensor, axis: Tensor) -> Tensor:
        kernel: _TruncatedGaussian = self.kernels[dim]  # type: ignore[assignment]
        return attend(None, None, values[:, None], xq=x, xk=axis[..., None], score=kernel)[:, 0]


class _Residual(nn.Module):
    """x + conv(relu(x))."""

    def __init__(self, dim_x: int, width: int, kernel: int):
        super().__init__()
        self.conv = _CONV[dim_x](width, width, kernel, padding=kernel // 2)

    def forward(self, x: Map) -> Map:
        return x + self.conv(torch.relu(x))


class CNN(nn.Module):
    """Residual convolutions at one resolution. `reach` is the receptive field to each side, in grid points."""

    multiple = 1

    def __init__(self, dim_x: int, dim_in: int, dim_out: int, width: int = 64, layers: int = 4, kernel: int = 5):
        super().__init__()
        self.into = _CONV[dim_x](dim_in, width, 1)
        self.blocks = nn.Sequential(*(_Residual(dim_x, width, kernel) for _ in range(layers)))
        self.out = _CONV[dim_x](width, dim_out, 1)
        self.reach = layers * (kernel // 2)

    def forward(self, x: Map) -> Map:
        return self.out(torch.relu(self.blocks(self.into(x))))


class UNet(nn.Module):
    """A U-Net: halve the grid level by level, then double it again, with additive skip connections.

    Level l has (l + 1)·width channels, so most weights act on coarse grids, where a point is cheap. Grids must start
    and end at multiples of `multiple` = 2^levels.
    """

    def __init__(self, dim_x: int, dim_in: int, dim_out: int, width: int = 32, levels: int = 3, kernel: int = 5):
        super().__init__()
        conv, half = _CONV[dim_x], kernel // 2
        widths = [width * (level + 1) for level in range(levels + 1)]
        self.into = conv(dim_in, width, 1)
        self.down = nn.ModuleList(conv(a, b, kernel, stride=2, padding=half) for a, b in pairwise(widths))
        self.up = nn.ModuleList(conv(a, b, kernel, padding=half) for a, b in pairwise(reversed(widths)))
        self.middle = _Residual(dim_x, widths[-1], kernel)
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.out = conv(width, dim_out, 1)
        self.multiple = 2**levels
        # on the way down, a convolution at level l adds half·2^l to the receptive field; on the way up, so does one at
        # level l + 1, and upsampling adds the offset of a point within its cell
        self.reach = sum(half * 2**level for level in range(levels)) + half * 2**levels
        self.reach += sum(half * 2**level + 2**level for level in range(levels))

    def forward(self, x: Map) -> Map:
        x = self.into(x)
        skips = []
        for conv in self.down:
            skips.append(x)
            x = conv(torch.relu(x))
        x = self.middle(x)
        for conv, skip in zip(self.up, reversed(skips), strict=True):
            x = skip + conv(torch.relu(self.upsample(x)))
        return self.out(torch.relu(x))
