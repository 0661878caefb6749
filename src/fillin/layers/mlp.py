"""The multilayer perceptron, applied to each point."""

from itertools import pairwise

from torch import nn


def mlp(dim_in: int, dim_out: int, hidden: int, layers: int = 2) -> nn.Sequential:
    """relu(… relu(x W₁ + b₁) …) W + b with `layers` linear maps.

    >>> [type(layer).__name__ for layer in mlp(1, 2, 8)]
    ['Linear', 'ReLU', 'Linear']
    """
    sizes = [dim_in, *[hidden] * (layers - 1), dim_out]
    steps: list[nn.Module] = []
    for i, o in pairwise(sizes):
        steps += [nn.Linear(i, o), nn.ReLU(inplace=True)]
    return nn.Sequential(*steps[:-1])
