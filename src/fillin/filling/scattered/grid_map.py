"""Maps of scattered observations: predictions on a regular grid over their range, as a dataset of xarray."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError, Message, UnknownName, argument
from fillin.filling.prediction import ColumnPredictions, NumericPrediction
from fillin.filling.scattered.points import Predictor
from fillin.filling.scattered.roles import ScatteredRoles
from fillin.runtime import Tick, require
from fillin.tabular.dates import parse_duration

MAX_CELLS = 20_000_000  # of the maps of all columns
_BLOCK_CELLS = 16_384  # cells whose mixtures are in memory at a time
_ROUNDING = 1e-6  # of a step


@dataclass(frozen=True, eq=False)
class MapGrid:
    """A regular grid: the cells along each coordinate, in the units of its column."""

    roles: ScatteredRoles
    axes: list[ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.axes))

    @property
    def n_cells(self) -> int:
        return math.prod(self.shape)

    @property
    def summary(self) -> str:
        cells = " × ".join(f"{n:,}" for n in self.shape)
        return f"map: {cells} cells of {' and '.join(self.roles.names)}"

    def blocks(self) -> Iterator[tuple[slice, ...]]:
        """Yield parts of the grid whose sides have about equal numbers of cells."""
        side = max(1, round(_BLOCK_CELLS ** (1 / len(self.axes))))
        starts = [range(0, n, side) for n in self.shape]
        for index in np.ndindex(*map(len, starts)):
            yield tuple(slice(start[i], start[i] + side) for start, i in zip(starts, index, strict=True))

    def locations(self, block: tuple[slice, ...]) -> Float[ndarray, "m dx"]:
        """Return the coordinates of the cells of a block as numbers."""
        cells = np.meshgrid(*(axis[part] for axis, part in zip(self.axes, block, strict=True)), indexing="ij")
        return self.roles.coordinates([part.ravel() for part in cells])

    def predict(self, predict: Predictor, level: float, max_std: float | None, tick: Tick) -> NumericPrediction:
        """Predict all cells, block by block; those with a standard deviation above `max_std` stay missing (NaN)."""
        parts = np.empty((4, *self.shape))
        for block in self.blocks():
            mixture = predict(self.locations(block), tick)
            values = [*mixture.moments(), mixture.quantile(0.5 - level / 2), mixture.quantile(0.5 + level / 2)]
            view = parts[(slice(None), *block)]
            view[:] = np.reshape(values, view.shape)
        if max_std is not None:
            parts[:, parts[1] > max_std] = np.nan
        return NumericPrediction(..., *parts)

    def dataset(self, prediction: ColumnPredictions, level: float) -> Any:
        """Return the maps of all columns as a Dataset: NAME, NAME_std, NAME_low and NAME_high, the first coordinate
        along the last dimension."""
        xarray, names, variables = require("xarray"), self.roles.names, {}
        interval = f"the {100 * level:g} % prediction interval of an observation"
        titles = {"": "predicted mean", "_std": "standard deviation of an observation"}
        titles |= {"_low": f"lower bound of {interval}", "_high": f"upper bound of {interval}"}
        for name, part in prediction.items():
            for (suffix, title), values in zip(titles.items(), part.interval, strict=True):
                attributes = {"long_name": f"{name}, {title}"}
                variables[f"{name}{suffix}"] = (names[::-1], values.T, attributes)
        coordinates = {}
        for column, axis in zip(self.roles.locations, self.axes, strict=True):
            values = axis.astype("datetime64[us]").astype("datetime64[ns]") if column.clock else axis + column.origin
            coordinates[column.name] = (column.name, values)
        return xarray.Dataset(variables, coordinates, {"source": f"fillin, from {self.roles.table.name}"})

    def write(self, dataset: Any, path: Any) -> None:
        """Write a dataset as NetCDF, compressed."""
        require("netCDF4")
        encoding = {name: {"zlib": True, "complevel": 1} for name in dataset.data_vars}
        try:
            dataset.to_netcdf(path, engine="netcdf4", encoding=encoding)
        except (ValueError, TypeError, RuntimeError) as error:  # a name that NetCDF refuses
            raise InputError(
                f"cannot write the map: {error}; give the columns names of letters, digits and underscores"
            ) from error


def make_grid(roles: ScatteredRoles, grid: Any) -> MapGrid:
    """Return the grid with the steps of `grid` (one number for all coordinates, or a step by name), on multiples of the
    step that cover the range of the rows with a location."""
    require("xarray")
    names = roles.names
    example = ", ".join(f"{name}=0.1" for name in names)
    steps = dict(grid) if isinstance(grid, Mapping) else dict.fromkeys(names, grid)
    for name in steps:
        if name not in names:
            raise UnknownName("coordinate, in {grid},", name, names, grid=argument("grid"))
    absent = [name for name in names if name not in steps]
    if absent:
        raise InputError(
            "{grid}: the step of {names} is not given; write {example}",
            grid=argument("grid"), names=" and ".join(absent), example=_example(example, names),
        )  # fmt: skip
    extents = []
    for column in roles.locations:
        step, text = _parse_step(column, steps[column.name], names), steps[column.name]
        values = column.values[roles.located].astype(float)
        first, last = math.floor(values.min() / step + _ROUNDING), math.ceil(values.max() / step - _ROUNDING)
        extents.append((column, text, step, first, max(first, last)))
    cells = [last - first + 1.0 for *_, first, last in extents]
    total = math.prod(cells) * len(roles.y)
    if total > MAX_CELLS:
        factor = (total / MAX_CELLS) ** (1 / len(cells))
        raise InputError(
            "{grid} gives {cells} cells{columns}, and the limit is {most:,}; choose steps about {factor:.2g} times as "
            "large",
            grid=argument("grid"), cells=" × ".join(f"{n:,.0f}" if n < 1e15 else f"{n:g}" for n in cells),
            columns=f" for {len(roles.y)} columns" if len(roles.y) > 1 else "", most=MAX_CELLS, factor=1.1 * factor,
        )  # fmt: skip
    axes = []
    for column, _, step, first, last in extents:
        axis = np.arange(first, last + 1) * step
        axes.append(axis if column.clock is not None else np.round(axis, max(0, 9 - math.floor(math.log10(step)))))
    return MapGrid(roles, axes)


def _parse_step(column: Any, step: Any, names: list[str]) -> float:
    """Return a step in the units of the column."""
    if column.clock is not None:
        if not any(letter.isalpha() for letter in str(step)):
            raise InputError(
                "{grid}: '{name}' has dates, and {step!r} is no length of time; write {example}",
                grid=argument("grid"), name=column.name, step=step,
                example=_example(", ".join(f"{n}={'1d' if n == column.name else 0.1}" for n in names), names),
            )  # fmt: skip
        return float(parse_duration(str(step), argument("grid")))
    try:
        number = float(step)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < np.inf:
        raise InputError(
            "{grid}: {step!r} is not a step of '{name}', a number of more than 0 such as 0.1",
            grid=argument("grid"), step=step, name=column.name,
        )  # fmt: skip
    return number


def _example(text: str, names: list[str]) -> Message:
    pairs = [part.split("=") for part in text.split(", ")]
    shell = " ".join(f"--grid {name}={step}" for name, step in pairs)
    steps = ", ".join(
        f"{name!r}: {step if step[0].isdigit() and not step[-1].isalpha() else repr(step)}" for name, step in pairs
    )
    return Message(shell, f"grid={{{steps}}}")
