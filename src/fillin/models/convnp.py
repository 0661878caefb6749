"""Convolutional neural processes (Gordon et al. 2020, Foong et al. 2020): scatter to a grid, convolve, read off."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import softplus

from fillin.errors import InputError, choose
from fillin.layers import CNN, Grid, SetConv, UNet
from fillin.models.base import LatentProcess, Process
from fillin.models.points import Points, Targets

Map = Float[Tensor, "b _ ..."]
_PERIOD = {1: 4096, 2: 256}  # grid points of noise, per dimension, that a latent function draws on


class OnGrid(nn.Module):
    """Points to a map on a grid: per output a density channel Σ k and a data channel Σ k y / Σ k."""

    def __init__(self, dim_x: int, length: float):
        super().__init__()
        self.setconv = SetConv(dim_x, init=length)

    def forward(self, points: Points, grid: Grid) -> Map:
        sums = self.setconv.to_grid(grid, points.x, points.known, points.keep)
        data, density = sums.chunk(2, 1)
        return torch.cat([data / (density + 1e-6), density], 1)


def make_network(kind: str, dim_x: int, dim_in: int, dim_out: int, width: int, depth: int, kernel: int) -> CNN | UNet:
    """The convolutional network of the given kind: `depth` layers of a CNN, or levels of a U-Net."""
    if choose("network", kind, ["cnn", "unet"]) == "cnn":
        return CNN(dim_x, dim_in, dim_out, width, depth, kernel)
    return UNet(dim_x, dim_in, dim_out, max(1, width // 2), depth, kernel)


def make_grid(context: Points, targets: Targets, spacing: float, off_grid: SetConv, *networks: CNN | UNet) -> Grid:
    """A grid over context and targets with a margin of what the networks can see from its edge, and of six length
    scales of the Gaussians that read it: then its edge is nowhere felt."""
    length = max(kernel.scale.max().item() for kernel in off_grid.kernels)  # type: ignore[operator]
    margin = sum(n.reach for n in networks) + math.ceil(6 * length / spacing)
    return Grid.over([(context.x, context.keep), (targets.x, targets.real)], spacing, margin, networks[0].multiple)


def _check_dim(dim_x: int) -> None:
    if dim_x not in (1, 2):
        raise InputError(f"convolutional models take 1 or 2 input dimensions, got dim_x={dim_x}; use a te-* model")


class ConvCNP(Process):
    """SetConv → CNN or U-Net → SetConv. The grid is anchored to the context with a margin of the receptive field,
    so a shift of all points shifts the prediction, whatever the shift. `length` is what the Gaussians to and from the
    grid start with, in spacings of the grid: below 0.5 where points lie on a grid themselves, as pixels do."""

    equivariant = True

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 1,
        width: int = 128,
        network: str = "unet",
        depth: int = 3,
        kernel: int = 5,
        points_per_unit: float = 16.0,
        length: float = 1.0,
        head: str = "gaussian",
        **head_options,
    ):
        _check_dim(dim_x)
        super().__init__(dim_x, dim_y, width // 2, head, **head_options)
        self.spacing = 1 / points_per_unit
        self.on_grid = OnGrid(dim_x, length * self.spacing)
        self.network = make_network(network, dim_x, 2 * dim_y, width // 2, width // 2, depth, kernel)
        self.off_grid = SetConv(dim_x, init=length * self.spacing)

    def encode(self, context: Points, targets: Targets) -> tuple[Grid, Map]:
        grid = make_grid(context, targets, self.spacing, self.off_grid, self.network)
        return grid, self.network(self.on_grid(context, grid))

    def decode(self, encoded, targets):
        grid, features = encoded
        return torch.relu(self.off_grid.to_points(grid, features, targets.x))


class ConvEncoded(NamedTuple):
    context: Points
    grid: Grid


class ConvNP(LatentProcess):
    """ConvCNP with a latent function: a convolutional belief over z on the grid, then a second network."""

    equivariant = True

    def __init__(
        self,
        dim_x: int = 1,
        dim_y: int = 1,
        width: int = 128,
        network: str = "unet",
        depth: int = 3,
        kernel: int = 5,
        points_per_unit: float = 16.0,
        length: float = 1.0,
        dim_z: int = 8,
        samples: int = 16,
        seed: int = 0,
        head: str = "gaussian",
        **head_options,
    ):
        _check_dim(dim_x)
        super().__init__(dim_x, dim_y, width // 2, head, **head_options)
        self.samples, self.seed, self.spacing = samples, seed, 1 / points_per_unit
        self.on_grid = OnGrid(dim_x, length * self.spacing)
        self.into_latent = make_network(network, dim_x, 2 * dim_y, 2 * dim_z, width // 2, depth, kernel)
        self.from_latent = make_network(network, dim_x, dim_z, width // 2, width // 2, depth, kernel)
        self.off_grid = SetConv(dim_x, init=length * self.spacing)

    def encode(self, context: Points, targets: Targets) -> ConvEncoded:
        networks = self.into_latent, self.from_latent
        return ConvEncoded(context, make_grid(context, targets, self.spacing, self.off_grid, *networks))

    def belief(self, points, encoded):
        mean, raw = self.into_latent(self.on_grid(points, encoded.grid)).chunk(2, 1)
        return Normal(mean, 0.01 + 0.99 * softplus(raw), validate_args=False)

    def noise(self, belief, encoded):
        """ε at a grid point depends on where the point is, counted from the context, and on nothing else: not on how
        far the grid reaches, nor on what else is in the batch. It repeats after `_PERIOD` points."""
        random = torch.Generator(device=belief.loc.device).manual_seed(self.seed)
        dims, channels = len(encoded.grid.axes), belief.loc.shape[1]
        shape = (self.samples, channels, *[_PERIOD[dims]] * dims)
        block = torch.randn(shape, generator=random, dtype=belief.loc.dtype, device=belief.loc.device)
        at = [(axis / self.spacing).round().long() % _PERIOD[dims] for axis in encoded.grid.axes]  # each [b G]
        if dims == 1:
            return block[:, :, at[0]].movedim(2, 1)
        return block[:, :, at[0][:, :, None], at[1][:, None, :]].movedim(2, 1)

    def decode_latent(self, encoded, z, targets):
        k, b = z.shape[:2]
        maps = self.from_latent(z.flatten(0, 1))
        grid = Grid(tuple(axis.repeat(k, 1) for axis in encoded.grid.axes))
        features = self.off_grid.to_points(grid, maps, targets.x.repeat(k, 1, 1))
        return torch.relu(features).unflatten(0, (k, b))
