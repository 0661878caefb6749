"""Which missing cells may be filled: a mask says where there is sea, and land stays missing."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from fillin.errors import InputError, argument
from fillin.filling.grid.variable import Variable


@dataclass(frozen=True)
class Mask:
    """True (or any number but 0 and NaN) where a missing cell is to be filled; its dims are some of the variable's."""

    where: str
    dims: tuple[str, ...]
    values: ndarray

    def over(self, variable: Variable) -> Bool[ndarray, "..."]:
        """With all dimensions of the variable, in its order, those that it lacks being one cell wide."""
        values = np.asarray(self.values)
        if values.dtype.kind not in "biuf":
            raise InputError(
                argument("mask")
                + f" {self.where} has {values.dtype}, not numbers; a mask is 1 where cells may be filled"
            )
        size = dict(zip(variable.dims, variable.shape, strict=True))
        for dim, n in zip(self.dims, values.shape, strict=True):
            if size.get(dim) != n:
                wanted = ", ".join(f"{d} ({k})" for d, k in size.items())
                raise InputError(
                    argument("mask")
                    + f" {self.where} has {dim} ({n}), but {variable.place} has {wanted}; they must fit"
                )
        order = [self.dims.index(dim) for dim in variable.dims if dim in self.dims]
        shape = [size[dim] if dim in self.dims else 1 for dim in variable.dims]
        free = (np.nan_to_num(values) != 0).transpose(order).reshape(shape)
        if not free.any():
            raise InputError(
                argument("mask")
                + f" {self.where} is 0 everywhere: it leaves nothing to fill; it is 1 where cells may be"
            )
        return free


def unnamed(where: str, values: ndarray, variable: Variable) -> Mask:
    """Of an array without names: its dimensions are the last of the variable's."""
    if values.ndim > len(variable.dims):
        why = f" {where} has {values.ndim} dimensions, {variable.place} has {len(variable.dims)}; give it no more"
        raise InputError(argument("mask") + why)
    return Mask(where, variable.dims[len(variable.dims) - values.ndim :], values)
