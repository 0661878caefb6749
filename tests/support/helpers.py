"""Small models and recipes, random tasks, a series, a distance and an exact process that several tests share."""

import threading

import numpy as np
import torch
from torch.distributions import Normal

from fillin.data import GaussianProcessPrior, Task
from fillin.data.kernels import RBFKernel
from fillin.data.task import TableBatch
from fillin.models import Process, create, list_options

TIMEOUT = 600.0  # seconds that a test waits for anything: no test depends on the speed of the machine
TINY = {
    "width": 32, "heads": 2, "layers": 2, "hidden": 32, "pseudo_tokens": 4, "samples": 3, "depth": 2, "kernel": 3,
    "cells": 4, "window": 2,
}  # fmt: skip
SMALL = {  # a recipe: a te-tnp of one layer, four steps
    "data": {"batch": 2, "points": 12, "context": [3, 5], "targets": [3, 5]},
    "model": {"name": "te-tnp", "size": "small", "width": 16, "heads": 2, "layers": 1, "hidden": 16},
    "budget": {"steps": 4},
    "keep": {"log": 2, "validations": 2, "batches": 1},
}


def recipe_arguments(recipe: dict) -> list[str]:
    """Settings of a recipe as arguments of the command line."""
    return [f"--{section}.{key}={value}" for section, part in recipe.items() for key, value in part.items()]


def count_prefetch_threads() -> int:
    """Number of threads that prefetch batches."""
    return sum(thread.name == "fillin-prefetch" for thread in threading.enumerate())


def tiny_options(name: str) -> dict:
    """Options of TINY that the model has."""
    options = list_options(name)
    return {key: value for key, value in TINY.items() if key in options}


def tiny(name: str, dim_x: int = 1, dim_y: int = 1, dtype=torch.float64, **options) -> Process:
    """A small model of the given kind with weights large enough to matter."""
    model = create(name, dim_x, dim_y, **{**tiny_options(name), **options}).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def random_task(b=2, nc=5, nt=4, dim_x=1, dim_y=1, dtype=torch.float64, resolution=64) -> Task:
    """Locations are multiples of 1/64 in [−2, 2], so that they and their shifts are exact in float32."""
    x = torch.randint(-2 * resolution, 2 * resolution + 1, (b, nc + nt, dim_x)).to(dtype) / resolution
    y = torch.randn(b, nc + nt, dim_y, dtype=dtype)
    return Task(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:])


def random_cells(b=2, n=9, numbers=3, dtype=torch.float64, context: int | None = 6) -> TableBatch:
    """Tables of numbers and one column of three classes, a fifth of the cells missing, which are the targets."""
    values = torch.cat([torch.randn(b, n, numbers, dtype=dtype), torch.randint(0, 3, (b, n, 1)).to(dtype)], -1)
    values = torch.cat([values, torch.randn(b, n, 1, dtype=dtype)], -1)  # the target is the last
    observed = torch.rand(values.shape) > 0.2
    observed[:, context:, -1] = False
    classes = torch.tensor([[0] * numbers + [3, 0]]).expand(b, -1)
    return TableBatch(values, observed, ~observed, classes, context)


def make_monthly_series(n: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """Four years of months: a season, a trend and a little noise."""
    x = 1990 + np.arange(n) / 12
    return x[:, None], 10 + 0.5 * (x - 1990) + np.sin(2 * np.pi * x) + 0.05 * np.random.default_rng(0).normal(size=n)


def distance(a: torch.Tensor, b: torch.Tensor, floor: float = 1e-3) -> float:
    """‖a − b‖ over the norm of b (at least `floor` per entry, so that a zero may be almost zero)."""
    a, b = a.detach(), b.detach()
    if a.numel() == 0:
        return 0.0
    return float((a - b).norm() / torch.maximum(b.norm(), torch.tensor(floor * b.numel() ** 0.5, dtype=b.dtype)))


def assert_predictions_close(got, expected, tolerance: float) -> None:
    """Assert that means and standard deviations of two predictions agree."""
    assert distance(got.mean, expected.mean) < tolerance
    assert distance(got.stddev, expected.stddev) < tolerance


class ExactProcess(Process):
    """A Gaussian process with an RBF kernel as a marginal model: every quantity has a closed form."""

    def __init__(self, length=0.5, scale=1.0, noise=0.1):
        super().__init__(1, 1, features=1)
        self.exact = GaussianProcessPrior(RBFKernel((length, length), (scale, scale)), noise)

    def joint(self, xc, yc, xt):
        return self.exact.posterior(xc, yc, xt)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        assert mask_c is None or mask_c.all()
        exact = self.joint(xc, yc, xt)
        return Normal(exact.mean[..., None].to(xc.dtype), exact.stddev[..., None].to(xc.dtype))

    def encode(self, context, targets):
        return None

    def decode(self, encoded, targets):
        return targets.x


class KernelMean(ExactProcess):
    """Kernel-weighted mean of the context with length scale 1: a fast stand-in that uses its whole context."""

    def __init__(self, dims=2):
        super().__init__()
        self.dim_x = dims

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        weight = torch.exp(-0.5 * torch.cdist(xt.double(), xc.double()) ** 2) + 1e-9
        mean = (weight @ yc.double()) / weight.sum(-1, keepdim=True)
        return Normal(mean.float(), 0.1 + 0 * mean.float())
