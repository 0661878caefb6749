"""Convolutional neural processes (Gordon et al. 2020, Foong et al. 2020): to a grid, convolve, back to points."""

import math
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fillin.errors import InputError, choose
from fillin.layers import CNN, Grid, SetConv, UNet
from fillin.models.base import LatentProcess, Points, Process, Targets, make_posterior

Map = Float[Tensor, "b _ ..."]
_NOISE_PERIOD = {1: 4096, 2: 256}  # grid points along each axis after which the noise of a latent function repeats


class GridEncoder(nn.Module):
    """Map of points on a grid: per output a data channel Σ k y / Σ k and a density channel Σ k."""

    def __init__(self, setconv: SetConv):
        super().__init__()
        self.setconv = setconv

    def forward(self, points: Points, grid: Grid) -> Map:
        sums = self.setconv.to_grid(grid, points.x, points.values_and_flags, points.keep)
        data, density = sums.chunk(2, 1)
        return torch.cat([data / (density + 1e-6), density], 1)


def make_network(kind: str, dim_x: int, dim_in: int, dim_out: int, width: int, depth: int, kernel: int) -> CNN | UNet:
    """Return a convolutional network: `depth` layers of a CNN, or levels of a U-Net."""
    if choose("network", kind, ["cnn", "unet"]) == "cnn":
        return CNN(dim_x, dim_in, dim_out, width, depth, kernel)
    return UNet(dim_x, dim_in, dim_out, max(1, width // 2), depth, kernel)


def make_grid(context: Points, targets: Targets, spacing: float, off_grid: SetConv, *networks: CNN | UNet) -> Grid:
    """Return a grid over context and targets whose edge does not affect predictions. Its margin is the receptive field
    of the networks and six length scales of the Gaussians that read it."""
    length = max(kernel.scale.max().item() for kernel in off_grid.kernels)  # type: ignore[operator]
    margin = sum(n.reach for n in networks) + math.ceil(6 * length / spacing)
    return Grid.over([(context.x, context.keep), (targets.x, targets.valid)], spacing, margin, networks[0].multiple)


class ConvProcess(Process):
    """Base of convolutional processes: the encoder to the grid and the options of the networks.

    The grid is anchored to the context with a margin of the receptive field, so that a shift of all points shifts the
    prediction. `length` is the initial length scale of the Gaussians to and from the grid, in grid spacings: below 0.5
    where points lie on a grid themselves, as pixels do.
    """

    equivariant = True

    def __init__(
        self,
        dim_x: int = 1,
        width: int = 128,
        network: str = "unet",
        depth: int = 3,
        kernel: int = 5,
        points_per_unit: float = 16.0,
        length: float = 1.0,
        **options,
    ):
        if dim_x not in (1, 2):
            raise InputError(f"convolutional models take 1 or 2 input dimensions, got dim_x={dim_x}; use a te-* model")
        super().__init__(dim_x, width=width, features=width // 2, **options)
        self.spacing = 1 / points_per_unit
        self.make_setconv = partial(SetConv, dim_x, init=length * self.spacing)
        self.on_grid = GridEncoder(self.make_setconv())
        self.make_network = partial(make_network, network, dim_x, width=width // 2, depth=depth, kernel=kernel)


class ConvCNP(ConvProcess):
    """SetConv → CNN or U-Net → SetConv."""

    def __init__(self, **options):
        super().__init__(**options)
        self.network = self.make_network(2 * self.dim_y, self.width // 2)
        self.off_grid = self.make_setconv()

    def encode(self, context: Points, targets: Targets) -> tuple[Grid, Map]:
        grid = make_grid(context, targets, self.spacing, self.off_grid, self.network)
        return grid, self.network(self.on_grid(context, grid))

    def decode(self, encoded, targets):
        grid, features = encoded
        return torch.relu(self.off_grid.to_points(grid, features, targets.x))


class ConvEncoded(NamedTuple):
    context: Points
    grid: Grid


class ConvNP(ConvProcess, LatentProcess):
    """ConvCNP with a latent function: a convolutional posterior over z on the grid, then a second network."""

    def __init__(self, dim_z: int = 8, samples: int = 16, seed: int = 0, **options):
        super().__init__(**options)
        self.samples, self.seed = samples, seed
        self.into_latent = self.make_network(2 * self.dim_y, 2 * dim_z)
        self.from_latent = self.make_network(dim_z, self.width // 2)
        self.off_grid = self.make_setconv()

    def encode(self, context: Points, targets: Targets) -> ConvEncoded:
        networks = self.into_latent, self.from_latent
        return ConvEncoded(context, make_grid(context, targets, self.spacing, self.off_grid, *networks))

    def posterior(self, points, encoded):
        return make_posterior(self.into_latent(self.on_grid(points, encoded.grid)), 1)

    def noise(self, posterior, encoded):
        """Return ε, which depends only on the location of a grid point relative to the context. It depends neither on
        the extent of the grid nor on other tasks of the batch, and repeats after `_NOISE_PERIOD`."""
        random = torch.Generator(device=posterior.loc.device).manual_seed(self.seed)
        dims, channels = len(encoded.grid.axes), posterior.loc.shape[1]
        shape = (self.samples, channels, *[_NOISE_PERIOD[dims]] * dims)
        block = torch.randn(shape, generator=random, dtype=posterior.loc.dtype, device=posterior.loc.device)
        index = [(axis / self.spacing).round().long() % _NOISE_PERIOD[dims] for axis in encoded.grid.axes]  # each [b G]
        if dims == 1:
            return block[:, :, index[0]].movedim(2, 1)
        return block[:, :, index[0][:, :, None], index[1][:, None, :]].movedim(2, 1)

    def decode_latent(self, encoded, z, targets):
        k, b = z.shape[:2]
        maps = self.from_latent(z.flatten(0, 1))
        grid = Grid(tuple(axis.repeat(k, 1) for axis in encoded.grid.axes))
        features = self.off_grid.to_points(grid, maps, targets.x.repeat(k, 1, 1))
        return torch.relu(features).unflatten(0, (k, b))
