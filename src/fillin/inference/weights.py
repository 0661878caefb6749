"""Which model fills what, by the number of dimensions that places have."""

from typing import TYPE_CHECKING

from fillin.errors import InputError, argument

if TYPE_CHECKING:
    from fillin.models import Process

_OWN, ANY = {1: "curve", 2: "surface"}, "radial"  # made for so many dimensions, and for any number of them
_WHAT = {1: "a series", 2: "a field over two dimensions", 3: "a field over three dimensions"}


def model_for(dims: int) -> str:
    """The name of the weights that fill places of so many dimensions: their own, or those for any, if only these ship.

    >>> model_for(1)
    'curve'
    """
    from fillin.pretrained import names

    own = _OWN.get(dims, ANY)
    return ANY if own not in names() and ANY in names() else own


def filler(model: "str | Process", dims: int = 1, errors: bool = False) -> "Process":
    """The model of that name or folder; it must be one that fills what has so many dimensions."""
    from fillin.models import Process, load
    from fillin.models.filler import Filler
    from fillin.pretrained import locate

    found = model
    if not isinstance(found, Process):
        if not locate(found).exists():
            own = str(found) == model_for(dims)
            remedy = (
                f" (this copy of fillin comes without the weights {found!r}, made for {_WHAT[dims]})" if own else ""
            )
            why = f": there is no model {str(found)!r}{remedy}; name a run or a folder of fillin.save"
            raise InputError(argument("model") + why)
        found = load(found)
        if not isinstance(found, Filler):
            train = _OWN.get(dims, ANY)
            why = f": {model} is no model that fills gaps; train one with: fillin train {train}"
            raise InputError(argument("model") + why)
    if found.dim_x not in (dims, None) or found.dim_y != 1:
        why = f": this model has dim_x={found.dim_x}, dim_y={found.dim_y}; {_WHAT[dims]} needs {dims} and 1"
        raise InputError(argument("model") + why)
    if errors and not isinstance(found, Filler):
        raise InputError(argument("y_err") + ": this model does not read errors; use a filler")
    return found.eval()
