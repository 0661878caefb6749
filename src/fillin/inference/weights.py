"""The pretrained weights that fill data of a number of input dimensions."""

from typing import TYPE_CHECKING

from fillin.errors import InputError, argument

if TYPE_CHECKING:
    from fillin.models import Process

_BY_DIMENSIONS, ANY_DIMENSIONS = {1: "curve", 2: "surface"}, "radial"
_DATA = {1: "a series", 2: "a field over two dimensions", 3: "a field over three dimensions"}


def default_weights(dims: int) -> str:
    """The name of the weights for inputs of `dims` dimensions, or of those for any number if only these ship.

    >>> default_weights(1)
    'curve'
    """
    from fillin.pretrained import names

    name = _BY_DIMENSIONS.get(dims, ANY_DIMENSIONS)
    return ANY_DIMENSIONS if name not in names() and ANY_DIMENSIONS in names() else name


def load_filler(model: "str | Process", dims: int = 1, errors: bool = False) -> "Process":
    """Load the model of that name or folder, and check that it fills data of `dims` dimensions."""
    from fillin.models import Process, load
    from fillin.models.filler import Filler
    from fillin.pretrained import locate

    loaded = model
    if not isinstance(loaded, Process):
        if not locate(loaded).exists():
            shipped = ""
            if str(loaded) == default_weights(dims):
                shipped = f" (this copy of fillin comes without the weights {loaded!r}, made for {_DATA[dims]})"
            raise InputError(
                "{model}: there is no model {name!r}{shipped}; give a run folder or one written by fillin.save",
                model=argument("model"), name=str(loaded), shipped=shipped,
            )  # fmt: skip
        loaded = load(loaded)
        if not isinstance(loaded, Filler):
            raise InputError(
                "{model}: {name} is not a model that fills gaps; train one with: fillin train {recipe}",
                model=argument("model"), name=model, recipe=_BY_DIMENSIONS.get(dims, ANY_DIMENSIONS),
            )  # fmt: skip
    if loaded.dim_x not in (dims, None) or loaded.dim_y != 1:
        raise InputError(
            "{model}: the model has dim_x={dim_x} and dim_y={dim_y}; {data} needs {dims} and 1",
            model=argument("model"), dim_x=loaded.dim_x, dim_y=loaded.dim_y, data=_DATA[dims], dims=dims,
        )  # fmt: skip
    if errors and not isinstance(loaded, Filler):
        raise InputError("{y_err}: this model does not read errors; use a filler", y_err=argument("y_err"))
    return loaded.eval()
