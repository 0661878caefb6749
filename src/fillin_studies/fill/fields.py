"""A field as `fillin fill FILE` fills it: known cells on their grid, in its tiles."""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.filling.grid.axes import Axis
from fillin.filling.grid.layout import make_layout
from fillin.filling.grid.variable import Mask, Variable
from fillin.models import Process
from fillin.predictive import GaussianMixture

DIMS = ("lat", "lon")  # a longitude that covers 360° goes round, as in a file


def by_tiles(
    model: Process, x: Float[ndarray, "n 2"], y: Float[ndarray, "n"], asked: Float[ndarray, "m 2"]
) -> GaussianMixture:
    """What belongs at cells `asked`; those that are neither known nor asked for are land."""
    axes, cells = zip(*(grid(column) for column in np.concatenate([x, asked]).T), strict=True)
    known, wanted = np.split(np.stack(cells, 1), [len(x)])
    values, allowed = (np.full(tuple(map(len, axes)), empty) for empty in (np.nan, False))
    values[tuple(known.T)], allowed[tuple(wanted.T)] = y, True
    each = {name: Axis(name, places, places, frozenset({name})) for name, places in zip(DIMS, axes, strict=True)}
    how = make_layout(Variable("", "the field", DIMS, each, values), mask=Mask("the field", DIMS, allowed)).how
    return how.believe(how.known(model, known, y), wanted)[:, None]


def grid(places: Float[ndarray, "n"]) -> tuple[Float[ndarray, "r"], Int[ndarray, "n"]]:
    """The rows of a field along one axis, and in which of them each place is; rows of nothing but land are put back, in
    steps as they mostly are.

    >>> grid(np.array([3.0, 0.0, 1.0, 5.0, 4.0]))
    (array([0., 1., 2., 3., 4., 5.]), array([3, 0, 1, 5, 4]))
    """
    rows, which = np.unique(places, return_inverse=True)
    steps = np.diff(rows)
    number = np.concatenate(
        [[0], np.cumsum(np.maximum(1, np.round(steps / np.median(steps))))] if len(steps) else [[0]]
    )
    return np.interp(np.arange(number[-1] + 1), number, rows), number.astype(int)[which]
