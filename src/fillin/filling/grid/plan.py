"""How a variable will be filled: what a field spans, what is left alone, what counts as near, and in which blocks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument
from fillin.filling.grid.axes import Axis, with_periods
from fillin.filling.grid.block import How
from fillin.filling.grid.variable import Variable, check_chunks, field_dims
from fillin.inference.context import MAX_QUERIES
from fillin.warp import Bounds, BoundsWarp

if TYPE_CHECKING:
    from fillin.filling.grid.mask import Mask

MOST = {1: 512, 2: 128, 3: 384}  # known cells that a tile is answered from: more see less of what is near
HUGE = 4_000_000  # cells of a field that are worked on at once
IN_MEMORY = 64_000_000  # cells of a variable that are
_LATTICE = 48  # cells along each axis that stand for a field where it is too large to be seen at once
_SLICES, _WINDOW = 8, 256  # of which the roughness is measured
_STRETCH = 4.0  # no axis counts more than this times another, cell for cell


@dataclass(frozen=True)
class Blocks:
    """`sizes` in cells of each dimension (fields last), and how many cells beyond its own a block of a field sees."""

    sizes: tuple[int, ...]
    halo: tuple[int, ...]


@dataclass(frozen=True)
class FieldPlan:
    """A variable (the dimensions of a field last), the order its dimensions had, which cells may be filled, and how."""

    variable: Variable
    order: tuple[str, ...]
    over: tuple[str, ...]
    allowed: Bool[ndarray, "..."]  # broadcasts to the variable
    how: How
    blocks: Blocks | None  # None: a field after another, in memory
    missing: int
    wanted: Int[ndarray, "..."]  # cells to fill, of each field
    notes: list[str]

    @property
    def places(self) -> int:
        """How many cells are to be filled."""
        return int(self.wanted.sum())

    @property
    def slices(self) -> tuple[str, ...]:
        return tuple(dim for dim in self.variable.dims if dim not in self.over)

    @property
    def fields(self) -> int:
        return math.prod(self.variable.shape[: len(self.slices)])

    @property
    def line(self) -> str:
        """In one line."""
        size = dict(zip(self.variable.dims, self.variable.shape, strict=True))
        spans = " × ".join(f"{dim} ({size[dim]:,})" for dim in self.over)
        each = f", each {' and '.join(self.slices)} on its own ({self.fields:,} of them)" if self.slices else ""
        total = math.prod(self.variable.shape)
        return (
            f"{self.variable.where}: a field {self.variable.name or 'of numbers'} over {spans}{each}; "
            f"to fill: {self.places:,} of {total:,} cells ({self.missing:,} missing)"
        )


def plan_field(
    variable: Variable,
    *,
    over: Sequence[str] | None = None,
    mask: "Mask | None" = None,
    fill_always_missing: bool = False,
    periods: Mapping[str, float] | None = None,
    chunks: dict[str, int] | None = None,
    halo: int | None = None,
    bounds: Bounds | None = None,
    level: float = 0.95,
) -> FieldPlan:
    variable.check()
    if not 0 < level < 1:
        raise InputError(argument("level") + f" is the share inside the band, between 0 and 1, got {level}")
    if halo is not None and halo < 0:
        raise InputError(argument("halo") + f" is a number of cells, got {halo}")
    chosen = field_dims(variable, over)
    order, variable = variable.dims, variable.transposed([d for d in variable.dims if d not in chosen] + list(chosen))
    lead = len(order) - len(chosen)
    axes, notes = with_periods([variable.axes[dim] for dim in chosen], periods or {})
    asked = None if chunks is None else check_chunks(chunks, variable)
    gaps, always = _gaps(variable, lead)
    allowed = np.ones((1,) * len(order), dtype=bool)
    if mask is not None:
        allowed = mask.over(variable)
    elif lead and not fill_always_missing and always.any():
        allowed = ~always.reshape((1,) * lead + always.shape)
        cells = int(always.sum())
        notes.append(
            f"{cells:,} cells of the field are missing in every slice, as land is, and stay missing "
            "(--fill-always-missing fills them)"
        )
    whole = math.prod(variable.shape)
    if gaps == whole:
        raise InputError(f"{variable.place} is missing everywhere: nothing is known to fill it from")
    how, share = _how(variable, axes, allowed, lead, bounds, level)
    return FieldPlan(
        variable, order, chosen, allowed, how, _blocks(variable, how, share, lead, asked, halo), gaps,
        _wanted(variable, allowed, lead), notes,
    )  # fmt: skip


def _gaps(variable: Variable, lead: int) -> tuple[int, Bool[ndarray, "..."]]:
    """How many cells are missing, and which of a field are in every slice: one pass over the variable."""
    if variable.values.dtype.kind != "f":
        return 0, np.zeros(variable.shape[lead:], dtype=bool)
    gone = np.isnan(variable.values)
    found = gone.sum(axis=tuple(range(lead))) if lead else gone.astype(int)
    counts = computed(found, variable)
    return int(counts.sum()), counts == math.prod(variable.shape[:lead])


def _wanted(variable: Variable, allowed: ndarray, lead: int) -> Int[ndarray, "..."]:
    if variable.values.dtype.kind != "f":
        return np.zeros(variable.shape[:lead], dtype=int)
    field = tuple(range(lead, len(variable.dims)))
    return np.asarray(computed((np.isnan(variable.values) & allowed).sum(axis=field), variable))


def computed(values: Any, variable: Variable) -> Any:
    """What dask was asked for, with an error that names the variable where it cannot be read."""
    if not hasattr(values, "compute"):
        return values
    try:
        return values.compute()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{variable.place} cannot be read: {error}; the file may be damaged") from error


def _how(
    variable: Variable, axes: list[Axis], allowed: ndarray, lead: int, bounds: Bounds | None, level: float
) -> tuple[How, float]:
    """Units of distance, tiles and bounds, from a sample: it does not depend on how the variable is split."""
    shape = variable.shape[lead:]
    stride = tuple(slice(None, None, -(-n // _WINDOW)) for n in shape)
    few = tuple(slice(None, None, -(-n // _SLICES)) for n in variable.shape[:lead])
    sample = np.asarray(computed(variable.values[few + stride], variable), dtype=float)
    land = np.isnan(sample) & ~np.broadcast_to(allowed, variable.shape)[few + stride]
    there = sample[np.isfinite(sample)]
    share = max(len(there) / max(sample.size - int(land.sum()), 1), 1e-3)
    middle = tuple(slice(max(0, (n - _WINDOW) // 2), (n + _WINDOW) // 2) for n in shape)
    rough = roughness(np.asarray(computed(variable.values[few + middle], variable), dtype=float), lead)
    steps = np.array([axis.step for axis in axes])
    unit = steps / rough
    d = len(axes)
    most = MOST[d]
    side = (most / 4 / share) ** (1 / d)  # in cells, were all alike
    tile = np.maximum(1, np.round(side * np.prod(rough) ** (1 / d) / rough))
    while np.prod(2 * tile) > MAX_QUERIES:  # of cells that it has a share in
        tile = np.maximum(1, tile // 2)
    bend = BoundsWarp.fit(there if len(there) else np.zeros(1), bounds) if bounds else BoundsWarp()
    tiles = tuple(int(min(t, n)) for t, n in zip(tile, shape, strict=True))
    return How(variable.name, tuple(axes), tuple(map(float, unit)), tiles, most, bend, level), share


def roughness(sample: Float[ndarray, "..."], lead: int) -> Float[ndarray, "d"]:
    """How much a value changes from a cell to the next along each axis of a field, over their geometric mean.

    A step along an axis in which nothing much happens is a short one: neighbours are looked for further away there.
    """
    found, sample = [], np.where(np.isfinite(sample), sample, np.nan)
    for axis in range(lead, sample.ndim):
        step = np.diff(sample, axis=axis)
        step = step[np.isfinite(step)]
        found.append(float(np.sqrt(np.mean(step**2))) if len(step) >= 16 else np.nan)
    steps = np.array(found)
    if not np.isfinite(steps).all() or not (steps > 0).all():
        return np.ones(len(steps))
    steps = steps / np.exp(np.log(steps).mean())
    return np.clip(steps, _STRETCH**-0.5, _STRETCH**0.5)


def _blocks(
    variable: Variable, how: How, share: float, lead: int, chunks: dict[str, int] | None, halo: int | None
) -> Blocks | None:
    """None where all fits in memory and nothing was asked for."""
    shape = variable.shape
    if chunks is None and not variable.lazy and math.prod(shape[lead:]) <= HUGE:
        return None
    reach = (halo,) * (len(shape) - lead) if halo is not None else default_halo(how, share)
    sizes = list(shape)
    for i, dim in enumerate(variable.dims):
        if chunks and dim in chunks:
            sizes[i] = min(shape[i], chunks[dim])
        elif i < lead:
            sizes[i] = 1
    if chunks is None and math.prod(shape[lead:]) > HUGE:
        side = HUGE ** (1 / (len(shape) - lead))
        for i in range(lead, len(shape)):
            sizes[i] = min(shape[i], max(int(side), 4 * reach[i - lead]))
    return Blocks(tuple(sizes), reach)


def default_halo(how: How, share: float) -> tuple[int, ...]:
    """Cells: a tile, as far as its share reaches, and the radius of a ball that holds as many known cells as a tile is
    answered from, and half of it again, since gaps are not spread evenly."""
    steps = np.array([axis.step for axis in how.axes]) / np.array(how.unit)  # of a cell, in units of distance
    d = len(steps)
    ball = {1: 2.0, 2: math.pi, 3: 4 * math.pi / 3}[d]
    radius = (how.most / share * float(np.prod(steps)) / ball) ** (1 / d)
    return tuple(int(np.ceil(1.5 * radius / step + tile)) for step, tile in zip(steps, how.tile, strict=True))


def lattice(shape: Sequence[int]) -> tuple[slice, ...]:
    """A few cells of a field, evenly spread."""
    return tuple(slice(None, None, -(-n // _LATTICE)) for n in shape)
