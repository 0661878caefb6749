"""Points that are known, ready to be asked what belongs elsewhere: any number of them, in bounded memory.

Up to `most` known points are one context. Of more, each place is answered from those around it: places are split in
halves until few known points lie among them, and see the `most` nearest. Whoever knows better how places lie, as a grid
does, brings the pieces along.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.spatial import KDTree
from torch import Tensor

from fillin.errors import InputError
from fillin.heads import Autoregressive, ObservedMixture, to_predictive
from fillin.models import Process
from fillin.models.filler import Filler
from fillin.predictive import LARGEST, GaussianMixture

MOST = 512  # known points of one context
PIECE = 1024  # places asked for at once
REACH = 3.0  # widths of what is known, beyond which nothing was learnt
_SURE = 0.01  # of its size: what a constant is taken to vary by
_TWO = 4.0  # times as far as two values lie from their middle: so little do they tell of what there is
_NOISE = 1e-12  # of its size, below which a number differs by rounding alone
_TIES = 64  # points that may be as far away as the last of a context
Tick = Callable[[int], object]
Pieces = Iterable[tuple[ndarray, ndarray]]  # rows of the places that are asked for, and the middle [dx] of each piece


@dataclass
class Known:
    """x [n dx], y [n dy] with NaN where an output is missing, and the known errors of y (0: none).

    Nearness is measured in x / unit, which is the width of each column or the `scale` that is given; a column that
    goes round has a `period` (0: it does not), and every point is seen where it is nearest. Further away than three
    widths of what is known, the answer is the one there, its deviations growing with the root of the distance.
    """

    model: Process
    x: Float[ndarray, "n dx"]
    y: Float[ndarray, "n dy"]
    error: Float[ndarray, "n dy"] | None = None
    most: int = MOST
    scale: Float[ndarray, "dx"] | None = None
    period: Float[ndarray, "dx"] | None = None

    def __post_init__(self):
        if np.abs(self.y).max(initial=0.0, where=~np.isnan(self.y)) > LARGEST:
            raise InputError(f"values beyond {LARGEST:g} leave no room to reckon in; give them in other units")
        width = np.ptp(self.x, 0) if len(self.x) else np.ones(self.x.shape[1])
        self.unit = np.where(width > 0, width, 1) if self.scale is None else self.scale
        self.spread = _spread(self.y)
        self.tree = None
        if len(self.x) > self.most:
            box = None if self.period is None else self.period / self.unit
            self.tree = KDTree(self._turned(self.x), boxsize=box)

    def at(
        self,
        x: Float[ndarray, "m dx"],
        noise: bool = True,
        tick: Tick = lambda done: None,
        pieces: Pieces | None = None,
    ) -> GaussianMixture:
        """What belongs at x: what would be observed there, or (noise=False) the function itself."""
        order, parts = [], []
        for places, middle in self._pieces(x) if pieces is None else pieces:
            parts.append(self._ask(x[places], self._around(middle), noise, middle))
            order.append(places)
            tick(len(places))
        if not parts:
            return self._ask(x, np.arange(min(len(self.x), self.most)), noise, np.zeros(x.shape[1]))
        return GaussianMixture.concatenate(parts)[np.argsort(np.concatenate(order), kind="stable")]

    def _around(self, middle: Float[ndarray, "dx"]) -> Int[ndarray, "k"]:
        """The `most` nearest known points, in their order; of those equally far, as on a grid, the first ones, so that
        more points further away change nothing."""
        if self.tree is None:
            return np.arange(len(self.x))
        wanted = min(self.most + _TIES, len(self.x))
        far, rows = map(np.asarray, self.tree.query(self._turned(middle[None])[0], wanted))
        nearest = np.lexsort((rows, np.round(far / far[-1], 9) if far[-1] else far))
        return np.sort(rows[nearest[: self.most]])

    def _turned(self, x: ndarray) -> ndarray:
        """In units, and within one turn of what goes round."""
        if self.period is None:
            return x / self.unit
        box = self.period / self.unit
        turned = np.mod(x, np.where(self.period > 0, self.period, np.inf)) / self.unit
        return np.where(self.period > 0, np.minimum(turned, np.nextafter(box, 0)), x / self.unit)

    def _nearest(self, x: ndarray, middle: ndarray) -> ndarray:
        """x, of what goes round the turn that is nearest to the middle."""
        if self.period is None:
            return x
        turns = np.round((x - middle) / np.where(self.period > 0, self.period, np.inf))
        return x - turns * self.period

    def _pieces(self, x: ndarray) -> Iterator[tuple[ndarray, ndarray]]:
        """Rows of x, and their middle."""
        if self.tree is None:
            for start in range(0, len(x), PIECE):
                rows = np.arange(start, min(start + PIECE, len(x)))
                yield rows, (x[rows].min(0) + x[rows].max(0)) / 2
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
                yield places, middle * self.unit

    @torch.inference_mode()
    def _ask(self, x: ndarray, known: ndarray, noise: bool, middle: ndarray) -> GaussianMixture:
        xc, yc, x = self._nearest(self.x[known], middle), self.y[known], self._nearest(x, middle)
        x, growth = _within_reach(x, xc) if isinstance(self.model, Filler) else (x, None)
        origin = xc.min(0) if len(xc) else (x.min(0) if len(x) else np.zeros(x.shape[1]))
        level, size = level_and_size(yc, self.spread)
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
        if not noise and isinstance(marginal, ObservedMixture):
            marginal = marginal.clean
        mixture = to_predictive(marginal)[0]
        assert isinstance(mixture, GaussianMixture)
        mixture = mixture.rescaled(level[:, None], size[:, None])
        return mixture if growth is None else mixture.widened(growth[:, None, None])


def _within_reach(x: Float[ndarray, "m dx"], known: Float[ndarray, "n dx"]) -> tuple[ndarray, Float[ndarray, "m"]]:
    """Places moved to where the model may be asked, and by how much their deviations are to grow for it: 1 within."""
    if len(known) < 2:
        return x, np.ones(len(x))
    low, high = known.min(0), known.max(0)
    reach = np.where(high > low, REACH * (high - low), np.inf)
    beyond = np.maximum(np.maximum(low - x, x - high) / reach, 1).max(1, initial=1)
    return np.clip(x, low - reach, high + reach), np.sqrt(beyond)


def _tensor(values: ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))[None]


def level_and_size(
    y: Float[ndarray, "n dy"], spread: Float[ndarray, "dy"] | float = 0.0
) -> tuple[Float[ndarray, "dy"], Float[ndarray, "dy"]]:
    """Of each output, so that what a model sees is of order one in float32, whatever its level: neither has 1e6 + 1e-3
    lost its digits, nor is the square of 1e30 infinite.

    The size is how far values lie from their mean. Values that are all the same do not tell it: then it is a hundredth
    of the `spread` of all that is known, or, where that is 0, of the value itself. Two values tell little: it is four
    times as large as they say, and no less than of a constant. One value tells at most how large it is.
    """
    there = ~np.isnan(y)
    n = there.sum(0)
    least = np.where(n > 0, np.where(there, y, np.inf).min(0, initial=np.inf), 0)
    level = least + np.where(there, (y - least) / np.maximum(n, 1), 0).sum(0)
    far = np.where(there, np.abs(y - level), 0).max(0, initial=0.0)
    own = np.where(level == 0, 1, np.abs(level))
    known = np.where(spread > 0, spread, own)
    told = np.where(far > _NOISE * own, far, 0)
    least_size = np.where((told == 0) | (n == 2), _SURE * known, 0)
    return level, np.where(n == 1, known, np.maximum(np.where(n == 2, _TWO, 1) * told, least_size))


def _spread(y: Float[ndarray, "n dy"]) -> Float[ndarray, "dy"]:
    """From the lowest to the highest value of each output; 0 where it is rounding, or fewer than three tell it."""
    there = ~np.isnan(y)
    low, high = (sign * np.where(there, sign * y, np.inf).min(0, initial=np.inf) for sign in (1, -1))
    return np.where((there.sum(0) > 2) & (high - low > _NOISE * np.abs(high)), high - low, 0)
