"""`fillin.fill` for arrays and for xarray's objects."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fillin.errors import InputError
from fillin.filling.grid.arrays import FilledArray, array_variable
from fillin.filling.grid.mask import unnamed
from fillin.filling.grid.plan import FieldPlan, plan_field
from fillin.filling.grid.run import fill_field

if TYPE_CHECKING:
    from fillin.filling.bounds import Bounds
    from fillin.models import Process


def fill_data(
    data: Any,
    *,
    var: str | None = None,
    over: str | Sequence[str | int] | None = None,
    mask: Any = None,
    fill_always_missing: bool = False,
    period: "str | float | Mapping[str | int, float] | None" = None,
    chunks: Mapping[str | int, int] | None = None,
    halo: int | None = None,
    bounds: "Bounds | Mapping[str, Bounds] | None" = None,
    level: float = 0.95,
    model: "str | Process | None" = None,
) -> Any:
    options = {
        "over": None if over is None else [over] if isinstance(over, str) else [str(dim) for dim in over],
        "fill_always_missing": fill_always_missing, "halo": halo, "level": level, "bounds": checked_bounds(bounds),
        "periods": _named("period", period), "chunks": None if chunks is None else _named("chunks", chunks),
    }  # fmt: skip
    if isinstance(data, np.ndarray):
        if var is not None:
            raise InputError("var names a variable of a dataset; an array has none")
        variable = array_variable(data)
        given = None if mask is None else unnamed("that was given", np.asarray(mask), variable)
        found = _filled(plan_field(variable, mask=given, **options), model)
        return FilledArray(*(np.asarray(part) for part in found))
    from fillin.filling.grid.datasets import choose_variable, dataset_variable, mask_of, with_result

    dataset = data
    if not hasattr(data, "data_vars"):
        if var is not None:
            raise InputError("var names a variable of a dataset; this is one already")
        dataset = data.to_dataset(name=data.name or "value")
        var = data.name or "value"
    name = choose_variable(dataset, var, "the dataset")
    if name is None:
        return data
    variable = dataset_variable(dataset, name, "the dataset")
    if isinstance(mask, np.ndarray):
        given = unnamed("that was given", mask, variable)
    else:
        given = None if mask is None else mask_of(mask, dataset)
    plan = plan_field(variable, mask=given, **options)
    return with_result(dataset, plan, _filled(plan, model))


def _filled(plan: FieldPlan, model: "str | Process | None") -> Any:
    from fillin.inference.weights import default_weights, load_filler

    chosen = default_weights(len(plan.over)) if model is None else model
    return fill_field(plan, load_filler(chosen, len(plan.over)))


def _named(what: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{what} of a field says of which dimension: {what}={{'lon': 360}}, got {given!r}")
    return {str(name): value for name, value in given.items()}


def checked_bounds(bounds: "Bounds | Mapping[str, Bounds] | None") -> "Bounds | None":
    """One pair: a field is filled alone."""
    from fillin.filling.bounds import bounds_of

    return bounds_of(["the field"], bounds).get("the field")
