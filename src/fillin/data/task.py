"""Batches that models are trained on, and the streams that generate them."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from fillin.errors import InputError

AnyBatch = TypeVar("AnyBatch", bound="Batch")


@dataclass(frozen=True, repr=False)
class Batch:
    """Base of all batches. The first axis of every tensor is the batch; other fields are shared by the batch."""

    def __repr__(self) -> str:
        shown = [
            f"{name}={list(part.shape) if isinstance(part, Tensor) else part}"
            for name, part in zip(self.__dataclass_fields__, self.parts, strict=True)
            if part is not None
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def parts(self) -> tuple[Any, ...]:
        """All fields in order: `type(batch)(*batch.parts)` is a copy."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def rows(self: AnyBatch, index) -> AnyBatch:
        """Select elements of the batch.

        Parameters
        ----------
        index : int, slice or Tensor
            Elements along the first axis, such as `slice(0, 4)`.

        Returns
        -------
        Batch
            A batch of the same type.
        """
        return self._map(lambda part: part[index])

    def to(self: AnyBatch, device) -> AnyBatch:
        """Copy the batch to a device.

        Parameters
        ----------
        device : torch.device or str
            The device, such as "cuda".

        Returns
        -------
        Batch
            A batch of the same type.
        """
        return self._map(lambda part: part.to(device))

    def _map(self: AnyBatch, change: Callable[[Tensor], Tensor]) -> AnyBatch:
        return type(self)(*(change(part) if isinstance(part, Tensor) else part for part in self.parts))


@dataclass(frozen=True, repr=False)
class Task(Batch):
    """Regression tasks: given the context (xc, yc), predict yt at xt. Padded where the number of points differs.

    Parameters
    ----------
    xc : Tensor of shape (b, nc, dx)
        Locations of the context.
    yc : Tensor of shape (b, nc, dy)
        Observed values of the context.
    xt : Tensor of shape (b, nt, dx)
        Locations of the targets.
    yt : Tensor of shape (b, nt, dy)
        Values of the targets.
    mask_c : Tensor of shape (b, nc) or (b, nc, dy), optional
        True where a context value is present; None means everywhere.
    mask_t : Tensor of shape (b, nt) or (b, nt, dy), optional
        True where a target value is present; None means everywhere.
    error_c : Tensor of shape (b, nc, dy), optional
        Known standard deviations of yc, 0 where unknown.
    noise_free_t : Tensor of shape (b, nt, dy), optional
        The latent function at xt, where it is known.

    Examples
    --------
    >>> import torch
    >>> from fillin import Task
    >>> Task(torch.rand(2, 5, 1), torch.rand(2, 5, 1), torch.rand(2, 3, 1), torch.rand(2, 3, 1)).yt.shape
    torch.Size([2, 3, 1])
    """

    xc: Float[Tensor, "b nc dx"]
    yc: Float[Tensor, "b nc dy"]
    xt: Float[Tensor, "b nt dx"]
    yt: Float[Tensor, "b nt dy"]
    mask_c: Bool[Tensor, "b nc *dy"] | None = None
    mask_t: Bool[Tensor, "b nt *dy"] | None = None
    error_c: Float[Tensor, "b nc dy"] | None = None
    noise_free_t: Float[Tensor, "b nt dy"] | None = None

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """The arguments of a model: `model(*task.inputs)`."""
        common = (self.xc, self.yc, self.xt, self.mask_c, self.mask_t)
        return common if self.error_c is None else (*common, self.error_c)


@dataclass(frozen=True, repr=False)
class TableBatch(Batch):
    """Tables of n rows and d columns, with observed and queried cells.

    A column has `classes` > 0 where its values are codes 0 … classes − 1, and 0 where they are numbers. Other rows may
    attend to the first `context` rows (None: to all rows). The last `targets` columns are the targets of the table,
    the others are features.
    """

    values: Float[Tensor, "b n d"]  # arbitrary where neither observed nor queried
    observed: Bool[Tensor, "b n d"]
    queried: Bool[Tensor, "b n d"]
    classes: Int64[Tensor, "b d"]
    context: int | None = None
    valid: Bool[Tensor, "b n"] | None = None  # False for padded rows (None: no padding)
    targets: int = 1


@dataclass(frozen=True, repr=False)
class SheetBatch(Batch):
    """Sheets of n rows with locations and d columns, with observed and queried cells.

    A row in which nothing is observed or queried is padding. `error` are known standard deviations, 0 where unknown;
    `noise_free` is the latent function, where it is known.
    """

    x: Float[Tensor, "b n dx"]
    values: Float[Tensor, "b n d"]  # arbitrary where neither observed nor queried
    observed: Bool[Tensor, "b n d"]
    queried: Bool[Tensor, "b n d"]
    error: Float[Tensor, "b n d"] | None = None
    noise_free: Float[Tensor, "b n d"] | None = None


@runtime_checkable
class Batches(Protocol):
    """A source of batches: batch s is a function of s alone."""

    def task(self, step: int) -> Any: ...


@runtime_checkable
class Stream(Batches, Protocol):
    """A source of training batches: batch s is a function of (seed, s) alone."""

    @property
    def batch(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def dim_x(self) -> int: ...

    @property
    def dim_y(self) -> int: ...

    def validation_stream(self, seed: int) -> "Stream":
        """Return held-out batches from another seed; small ones where the tasks of a batch share their counts."""
        ...


def make_generator(*seeds: int) -> torch.Generator:
    """Return a random generator that depends on all of `seeds`, mixed into the 32 bits that torch keeps of a seed."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))


def is_number(value) -> bool:
    """Test for a finite number; True and False are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_pair(value) -> bool:
    """Test for two finite numbers."""
    return isinstance(value, tuple | list) and len(value) == 2 and all(is_number(v) for v in value)


def check_counts(settings: object, name: str, **smallest: int) -> None:
    """Raise an error unless each attribute named in `smallest` is a whole number of at least that value."""
    for attribute, least in smallest.items():
        value = getattr(settings, attribute)
        if type(value) is not int or value < least:
            raise InputError(f"{name}: {attribute} must be a whole number of at least {least}, got {value!r}")


def check_count_ranges(settings: object, name: str, **smallest: int) -> None:
    """Raise an error unless each attribute named in `smallest` is (low, high) with low of at least that value."""
    for attribute, least in smallest.items():
        value = getattr(settings, attribute)
        if not (is_pair(value) and all(type(n) is int for n in value) and least <= value[0] <= value[1]):
            raise InputError(f"{name}: {attribute} must be two whole numbers, {least} ≤ first ≤ second, got {value!r}")


def split_mixture(text: str, name: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Split "2 rbf | linear" into its members and their weights, 1 where a member has none."""
    members, weights = [], []
    for part in str(text).split("|"):
        words, weight = part.split(), 1.0
        with suppress(ValueError):
            if len(words) > 1:
                weight, words = float(words[0]), words[1:]
        members.append(" ".join(words))
        weights.append(weight)
        if not 0 < weight < math.inf:
            raise InputError(f"{name}: a weight must be a positive number, got {weight:g} before {members[-1]!r}")
    return tuple(members), tuple(weights)
