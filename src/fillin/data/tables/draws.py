"""Random numbers of many kinds from one generator."""

import math

import torch
from torch import Tensor


class Draws:
    """Everything that a table is drawn with."""

    def __init__(self, random: torch.Generator):
        self.random = random

    def rand(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.random)

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random)

    def gamma(self, shape: float, n: int) -> Tensor:
        """Of mean one."""
        return torch._standard_gamma(torch.full((n,), shape), generator=self.random) / shape

    def randint(self, high: int, n: int) -> Tensor:
        return torch.randint(high, (n,), generator=self.random)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.random))

    def log_uniform(self, low: float, high: float) -> float:
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.random))

    def chance(self, share: float) -> bool:
        return self.uniform(0, 1) < share

    def order(self, n: int) -> list[int]:
        return torch.randperm(n, generator=self.random).tolist()
