"""Part of a field, filled: the one function that does the work, here or on the workers of a cluster.

Cells are filled by tiles that overlap. These belong to the whole field, and each is answered from the known cells
nearest to its middle: how a field is split into blocks changes nothing, as long as a block sees them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument
from fillin.filling.grid.axes import Axis
from fillin.filling.grid.tiles import Piece, Tiles, blend
from fillin.inference.context import Context
from fillin.predictive import GaussianMixture
from fillin.warp import BoundsWarp

if TYPE_CHECKING:
    from fillin.models import Process

AT_ONCE = 16_384  # places whose mixtures are held at a time
Tick = Callable[[int], object]


@dataclass(frozen=True)
class How:
    """Settings that all blocks of a variable share.

    `unit` says how far apart two places of an axis must be to count as one unit of distance, `tile` how many cells a
    tile has along each axis, `most` how many known cells it is answered from.
    """

    name: str
    axes: tuple[Axis, ...]
    unit: tuple[float, ...]
    tile: tuple[int, ...]
    most: int
    bend: BoundsWarp
    level: float

    def known(self, model: "Process", cells: Int[ndarray, "n d"], y: Float[ndarray, "n"]) -> Context:
        turns = np.array([axis.period for axis in self.axes])
        period = turns if turns.any() else None
        return Context(
            model,
            self.places(cells),
            self.bend.forward(y)[:, None],
            max_points=self.most,
            scale=np.array(self.unit),
            period=period,
        )

    def places(self, cells: Int[ndarray, "n d"]) -> Float[ndarray, "n d"]:
        return np.stack([axis.x[cells[:, i]] for i, axis in enumerate(self.axes)], 1)

    def believe(self, known: Context, cells: Int[ndarray, "n d"], tick: Tick = lambda done: None) -> GaussianMixture:
        places = self.places(cells)
        if not len(cells) or (known.tree is None and known.period is None):  # one context for all
            return known.predict(places, tick=tick)[:, 0].transformed(self.bend)

        def ask(piece: Piece) -> GaussianMixture:
            own = places[piece.rows]
            return known.predict(own, groups=[(np.arange(len(own)), piece.middle)])[:, 0]

        pieces = list(Tiles(self.axes, self.tile).pieces(cells))
        return blend(pieces, ask, len(cells), tick).transformed(self.bend)

    def check(self, y: Float[ndarray, "n"], cells: Int[ndarray, "n d"]) -> None:
        """Context values must be finite and within bounds."""
        outside = ~np.isfinite(y) | (y < self.bend.minimum) | (y > self.bend.maximum)
        if outside.any():
            row = int(outside.argmax())
            where = ", ".join(axis.label(int(cells[row, i])) for i, axis in enumerate(self.axes))
            problem = "lies outside {bounds}" if np.isfinite(y[row]) else "is not finite"
            raise InputError(
                "variable '{name}' at {where}: {value:g} " + problem + "; correct it, or make it missing (NaN)",
                name=self.name, where=where, value=y[row], bounds=argument("bounds"),
            )  # fmt: skip


def fill_block(
    model: "Process",
    how: How,
    values: ndarray,
    cells: tuple[Int[ndarray, "_"], ...],
    allowed: ndarray,
    inner: tuple[Int[ndarray, "_"], ...],
    coarse: tuple[ndarray, tuple[Int[ndarray, "_"], ...]] | None = None,
    tick: Tick = lambda done: None,
) -> ndarray:
    """[4 … inner]: filled, std, low, high of the cells `inner`, as numbers of each axis, of one or many fields.

    `values` [… cells] are known or NaN around them. What is missing is filled where `allowed`, which broadcasts to
    [… inner], and stays missing elsewhere; what is known keeps its value, with deviation 0. `coarse` has a few cells of
    the whole field and where they are, for gaps wider than the block.
    """
    d = len(cells)
    lead = values.shape[: values.ndim - d]
    shape = tuple(len(rows) for rows in inner)
    within = np.ix_(*(_where(all_, own) for all_, own in zip(cells, inner, strict=True)))
    out = np.empty((4, *lead, *shape), dtype=values.dtype)
    for number in np.ndindex(*lead):
        field, may = values[number], np.broadcast_to(allowed, (*lead, *shape))[number]
        own = field[within]
        value, deviation = own.astype(float), np.where(np.isnan(own), np.nan, 0.0)
        parts = [value, deviation, value.copy(), value.copy()]
        at = np.argwhere(np.isnan(own) & may)
        if len(at):
            seen, y = _seen(field, cells)
            if coarse is not None:
                far, far_y = _seen(coarse[0][number], coarse[1])
                seen, y = np.concatenate([seen, far]), np.concatenate([y, far_y])
            seen, first = np.unique(seen, axis=0, return_index=True)  # in one order, however they came
            y = y[first]
            how.check(y, seen)
            if len(y):
                where = np.stack([rows[at[:, i]] for i, rows in enumerate(inner)], 1)
                for part, numbers in zip(parts, _numbers(model, how, seen, y, where, tick), strict=True):
                    part[tuple(at.T)] = numbers
        out[(slice(None), *number)] = np.stack(parts)
    return out


def _numbers(model: "Process", how: How, seen: ndarray, y: ndarray, where: ndarray, tick: Tick) -> list[ndarray]:
    """Mean, deviation and band at cells `where`, in bounded memory."""
    known, half = how.known(model, seen, y), how.level / 2
    order = np.lexsort((where // np.array(how.tile)).T[::-1])  # few tiles are asked for twice
    parts: list[list[Any]] = []
    for start in range(0, len(order), AT_ONCE):
        belief = how.believe(known, where[order[start : start + AT_ONCE]], tick)
        parts.append([*belief.moments(), belief.quantile(0.5 - half), belief.quantile(0.5 + half)])
    back = np.argsort(order)
    return [np.concatenate(numbers)[back] for numbers in zip(*parts, strict=True)]


def _seen(field: ndarray, cells: tuple[ndarray, ...]) -> tuple[Int[ndarray, "n d"], Float[ndarray, "n"]]:
    at = np.nonzero(~np.isnan(field))
    return np.stack([rows[at[i]] for i, rows in enumerate(cells)], 1), field[at].astype(float)


def _where(cells: ndarray, own: ndarray) -> ndarray:
    """At which places of `cells` the numbers `own` are."""
    order = np.argsort(cells)
    return order[np.searchsorted(cells, own, sorter=order)]
