"""Fields some of whose known cells are hidden on purpose: at random, or in boxes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from fillin.filling.grid.block import How
from fillin.filling.grid.plan import FieldPlan, computed
from fillin.filling.holdout import FEWEST, WAYS
from fillin.filling.series.run import Tick
from fillin.predictive import GaussianMixture

if TYPE_CHECKING:
    from fillin.models import Process

_FIELDS = 4
_CELLS = 4000  # of a field that are enough to judge by


@dataclass(frozen=True)
class FieldSubject:
    """Known cells of a field (or of a window of it), as numbers of each axis, and their values."""

    how: How
    model: "Process"
    cells: Int[ndarray, "n d"]
    y: Float[ndarray, "n"]

    def hide(self, number: int, way: str, random: np.random.Generator) -> Bool[ndarray, "n"]:
        """At random, or in boxes of 3 to 12 % of the field's width along each axis."""
        hidden = np.zeros(len(self.y), dtype=bool)
        if way == WAYS[0]:
            hidden[random.permutation(len(self.y))[:number]] = True
            return hidden
        low, high = self.cells.min(0), self.cells.max(0) + 1
        while hidden.sum() < number:
            share = random.uniform(0.03, 0.12) ** (1 / self.cells.shape[1])  # of its cells, so of each side the root
            around = self.cells[random.integers(len(self.y))]
            half = np.maximum(share * (high - low), 2) / 2
            inside = (np.abs(self.cells - around) < half).all(1) & ~hidden
            few = np.flatnonzero(inside)[: number - int(hidden.sum())]
            hidden[few] = True
        return hidden

    def guess(self, hidden: Bool[ndarray, "n"], tick: Tick) -> tuple[GaussianMixture, Float[ndarray, "m"]]:
        how, at = self.how, self.cells[hidden]
        known = how.known(self.model, self.cells[~hidden], self.y[~hidden])
        return how.believe(known, at, tick), linear(
            how.places(self.cells[~hidden]), self.y[~hidden], how.places(at), how
        )


def linear(
    x: Float[ndarray, "n d"], y: Float[ndarray, "n"], at: Float[ndarray, "m d"], how: How
) -> Float[ndarray, "m"]:
    """Linear interpolation between neighbours (triangles in two dimensions), beyond them the nearest value."""
    turns = np.array([axis.length for axis in how.axes])
    for i in np.flatnonzero(turns):  # one turn away is here too
        shift = np.zeros(len(turns))
        shift[i] = turns[i]
        x, y = np.concatenate([x - shift, x, x + shift]), np.tile(y, 3)
    unit = np.array(how.unit)
    if x.shape[1] == 1:
        order = np.argsort(x[:, 0])
        return np.interp(at[:, 0], x[order, 0], y[order])
    nearest = NearestNDInterpolator(x / unit, y)(at / unit)
    if (np.ptp(x, 0) == 0).any() or len(x) <= x.shape[1] + 1:
        return nearest
    found = LinearNDInterpolator(x / unit, y)(at / unit)
    return np.where(np.isnan(found), nearest, found)


def field_subjects(plan: FieldPlan, model: "Process") -> list[FieldSubject]:
    """A few fields with enough known, evenly spread; of large ones a window in the middle."""
    lead = plan.variable.shape[: len(plan.slices)]
    shape = np.array(plan.variable.shape[len(plan.slices) :])
    whole = np.prod(shape)
    side = np.minimum(shape, np.ceil(shape * min(1.0, (_CELLS / whole) ** (1 / len(shape)))).astype(int))
    start = (shape - side) // 2
    window = tuple(slice(int(a), int(a + n)) for a, n in zip(start, side, strict=True))
    total = int(np.prod(lead)) if lead else 1
    found = []
    for flat in np.unique(np.linspace(0, total - 1, _FIELDS).round().astype(int)):
        number = np.unravel_index(flat, lead) if lead else ()
        field = np.asarray(computed(plan.variable.values[tuple(map(int, number)) + window], plan.variable), dtype=float)
        at = np.argwhere(np.isfinite(field))
        if len(at) >= FEWEST:
            found.append(FieldSubject(plan.how, model, at + start, field[tuple(at.T)]))
    return found
