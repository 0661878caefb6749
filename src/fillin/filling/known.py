"""Points that are known, ready to be asked what belongs elsewhere: any number of them, in bounded memory.

Up to `most` known points are one context. Of more, each place is answered from those around it: places are split in
halves until few known points lie among them, and see the `most` nearest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.spatial import KDTree
from torch import Tensor
from torch.distributions import MixtureSameFamily, Normal

from fillin.filling.answer import Answer, join
from fillin.heads import Autoregressive, Observed
from fillin.models import Process

MOST = 512  # known points of one context
PIECE = 1024  # places asked for at once
Tick = Callable[[int], object]


@dataclass
class Known:
    """x [n dx], y [n dy] with NaN where an output is missing, and the known errors of y (0: none)."""

    model: Process
    x: Float[ndarray, "n dx"]
    y: Float[ndarray, "n dy"]
    error: Float[ndarray, "n dy"] | None = None
    most: int = MOST

    def __post_init__(self):
        width = np.ptp(self.x, 0) if len(self.x) else np.ones(self.x.shape[1])
        self.unit = np.where(width > 0, width, 1)
        self.tree = KDTree(self.x / self.unit) if len(self.x) > self.most else None

    def at(self, x: Float[ndarray, "m dx"], noise: bool = True, tick: Tick = lambda done: None) -> Answer:
        """What belongs at x: what would be observed there, or (noise=False) the function itself."""
        order, parts = [], []
        for places, known in self._pieces(x):
            parts.append(self._ask(x[places], known, noise))
            order.append(places)
            tick(len(places))
        if not parts:
            return self._ask(x, np.arange(min(len(self.x), self.most)), noise)
        return join(parts, np.concatenate(order))

    def _pieces(self, x: ndarray) -> Iterator[tuple[ndarray, ndarray]]:
        """(places, known points to answer them from), as rows of x and of self.x."""
        everything = np.arange(len(self.x))
        if self.tree is None:
            for start in range(0, len(x), PIECE):
                yield np.arange(start, min(start + PIECE, len(x))), everything
            return
        scaled = x / self.unit
        waiting = [np.arange(len(x))]
        while waiting:
            places = waiting.pop()
            own = scaled[places]
            low, high = own.min(0), own.max(0)
            middle, radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2
            if len(places) > 1 and (
                len(places) > PIECE or self.tree.query_ball_point(middle, radius, return_length=True) > self.most // 4
            ):
                along = own[:, int(np.argmax(high - low))]
                sides = np.argsort(along, kind="stable")
                waiting += [places[sides[len(places) // 2 :]], places[sides[: len(places) // 2]]]
            else:
                yield places, np.sort(self.tree.query(middle, self.most)[1])

    @torch.inference_mode()
    def _ask(self, x: ndarray, known: ndarray, noise: bool) -> Answer:
        xc, yc = self.x[known], self.y[known]
        origin = xc.min(0) if len(xc) else (x.min(0) if len(x) else np.zeros(x.shape[1]))
        level, size = _level_and_size(yc)
        missing = np.isnan(yc)
        arguments = {
            "xc": _tensor((xc - origin) / self.unit),
            "yc": _tensor(np.where(missing, 0, (yc - level) / size)),
            "xt": _tensor((x - origin) / self.unit),
            "mask_c": torch.from_numpy(~missing)[None] if missing.any() else None,
        }
        if self.error is not None:
            arguments["error_c"] = _tensor(np.nan_to_num(self.error[known] / size))
        found = self.model(**arguments)
        marginal = found.marginals if isinstance(found, Autoregressive) else found
        if not noise and isinstance(marginal, Observed):
            marginal = marginal.clean
        return _answer(marginal, level, size)


def _tensor(values: ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))[None]


def _level_and_size(y: Float[ndarray, "n dy"]) -> tuple[Float[ndarray, "dy"], Float[ndarray, "dy"]]:
    """Of each output, so that what a model sees is of order one in float32, whatever its level: neither has 1e6 + 1e-3
    lost its digits, nor is the square of 1e30 infinite. A level that says nothing (one point, a constant) stays."""
    there = ~np.isnan(y)
    n = np.maximum(there.sum(0), 1)
    level = np.where(there, y / n, 0).sum(0)
    size = np.where(there, np.abs(y - level), 0).max(0, initial=0.0)
    level = np.where(size > 0, level, 0)
    size = np.where(size > 0, size, np.where(there, np.abs(y), 0).max(0, initial=0.0))
    return level, np.where(size > 0, size, 1)


def _answer(found, level: ndarray, size: ndarray) -> Answer:
    if isinstance(found, MixtureSameFamily):
        parts, weights = found.component_distribution, found.mixture_distribution.probs
        assert isinstance(parts, Normal)
        mean, deviation = parts.mean, parts.stddev
    else:
        mean, deviation = found.mean[..., None], found.stddev[..., None]
        weights = torch.ones_like(mean)
    weights, mean, deviation = (t[0].double().numpy() for t in (weights, mean, deviation))
    weights = weights / weights.sum(-1, keepdims=True)  # in float32 they add up to nearly one
    return Answer(weights, level[:, None] + size[:, None] * mean, size[:, None] * deviation)
