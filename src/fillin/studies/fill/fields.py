"""A field as `fillin fill FILE` fills it: known cells on their grid, in its tiles."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.answer import Answer
from fillin.filling.fields.axes import Axis
from fillin.filling.fields.mask import Mask
from fillin.filling.fields.plan import plan_field
from fillin.filling.fields.variable import Variable
from fillin.models import Process

DIMS = ("lat", "lon")  # a longitude that covers 360° goes round, as in a file


def by_tiles(model: Process, x: Float[ndarray, "n 2"], y: Float[ndarray, "n"], asked: Float[ndarray, "m 2"]) -> Answer:
    """What belongs at cells `asked`; those that are neither known nor asked for are land."""
    axes = [np.unique(np.concatenate([x[:, i], asked[:, i]])) for i in range(2)]
    known, wanted = (np.stack([np.searchsorted(axes[i], at[:, i]) for i in range(2)], 1) for at in (x, asked))
    values, allowed = (np.full(tuple(map(len, axes)), empty) for empty in (np.nan, False))
    values[tuple(known.T)], allowed[tuple(wanted.T)] = y, True
    each = {name: Axis(name, places, places, frozenset({name})) for name, places in zip(DIMS, axes, strict=True)}
    how = plan_field(Variable("", "the field", DIMS, each, values), mask=Mask("the field", DIMS, allowed)).how
    return how.believe(how.known(model, known, y), wanted).given
