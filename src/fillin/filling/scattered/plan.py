"""Filling of scattered observations: each column and group from its own observed points, and maps of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from fillin.errors import InputError, Message, argument, option
from fillin.filling.diagnostics import Note, list_names
from fillin.filling.plan import (
    FillOptions,
    PretrainedPlan,
    Source,
    TabularPlan,
    as_names,
    bounds_by_column,
    check_values,
)
from fillin.filling.prediction import SUFFIXES, ColumnPredictions, NumericPrediction, Outputs
from fillin.filling.report import describe_bounds, describe_model
from fillin.filling.scattered.grid_map import MapGrid, make_grid
from fillin.filling.scattered.points import CONTEXT_POINTS, MAX_CONTEXT_POINTS, PointSet
from fillin.filling.scattered.roles import ScatteredRoles, infer_scattered_roles, read_new_rows, read_periods
from fillin.filling.series.infer_roles import NewRows
from fillin.runtime import Tick, require
from fillin.tabular.readers import CsvFile, NativeFrame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fillin.filling.scattered.holdout import PointHoldout
    from fillin.models import Process
    from fillin.warp import Bounds


@dataclass(frozen=True, kw_only=True)
class ScatteredOptions(FillOptions):
    """Options of scattered observations; see `fillin.fill`."""

    x: Sequence[str]
    y: str | Sequence[str] | None = None
    by: str | Sequence[str] | None = None
    at: Any = None
    grid: Any = None
    y_err: str | None = None
    period: str | float | Mapping[str | int, float] | None = None
    na: Collection[Any] = ()
    date_format: str | None = None
    max_std: float | None = None
    model: "str | Process | None" = None


class FilledPoints(NamedTuple):
    """The filled frame, and the map of its columns on a regular grid, a Dataset of xarray."""

    frame: Any
    map: Any


@dataclass(frozen=True)
class PointPrediction(NumericPrediction):
    """Prediction of the rows of a column, and of the cells of its map."""

    map: NumericPrediction | None = None


@dataclass(frozen=True, eq=False)
class ScatteredPlan(TabularPlan, PretrainedPlan):
    """A set of points for each filled column and group, with the rows to add and the grid of a map."""

    options_type = ScatteredOptions
    unit = "set of points"
    remedies: ClassVar[Mapping[str, Message | None]] = {
        "every": option("grid", 0.1), "until": option("grid", 0.1), "max_gap": option("max_std", 0.5),
        "covariate": option("x", "COLUMN"), "alone": None, "draws": None, "station_at": None,
    }  # fmt: skip

    source: Source
    options: ScatteredOptions
    roles: ScatteredRoles
    new: NewRows
    grid: MapGrid | None
    bounds: "dict[str, Bounds]"
    points: list[PointSet]

    @classmethod
    def read(cls, source: Source, options: ScatteredOptions) -> "ScatteredPlan":
        require("scipy")
        if options.grid is not None and as_names(options.by):
            raise InputError(
                "{grid} makes one map, and {by} several sets of points; map one group at a time, from its rows alone",
                grid=argument("grid"), by=argument("by"),
            )  # fmt: skip
        if options.max_std is not None and not 0 < options.max_std < np.inf:
            raise InputError(
                "{max_std} must be a positive number, in the units of the values, got {value}",
                max_std=argument("max_std"), value=options.max_std,
            )  # fmt: skip
        adds = options.at is not None or options.grid is not None
        roles = infer_scattered_roles(source.tabular.table, options, adds)
        bounds = bounds_by_column([column.name for column in roles.y], options.bounds)
        errors = [] if roles.y_err is None else [roles.y_err]
        check_values(roles.table, [*roles.locations, *roles.y, *errors], bounds)
        new = NewRows(np.empty((0, len(roles.names))), np.empty(0, dtype=int), np.empty(0))
        if options.at is not None:
            new = read_new_rows(roles, options)
        grid = None if options.grid is None else make_grid(roles, options.grid)
        periods = read_periods(roles, options.period)
        return cls(source, options, roles, new, grid, bounds, _split_points(roles, new, bounds, periods))

    @property
    def n_dims(self) -> int:
        return len(self.roles.names)

    @property
    def summary(self) -> str:
        added = f"; new rows: {len(self.new.x):,}" if len(self.new.x) else ""
        return self.roles.summary + added + ("" if self.grid is None else f"; {self.grid.summary}")

    @property
    def notes(self) -> list[Note]:
        filled = {(points.column, points.group) for points in self.points}
        left = [
            f"{column.name} of {group.name}"
            for column in self.roles.y
            for group in self.roles.groups
            if (column.name, group.name) not in filled and column.missing[group.rows].any() and self.roles.by
        ]
        note = Note(f"fewer than 2 values of {list_names(left)} are observed: left missing", doubtful=True)
        return [*self.source.notes, *self.roles.notes, *([note] if left else [])]

    @property
    def n_missing(self) -> int:
        cells = 0 if self.grid is None else self.grid.n_cells * len(self.roles.y)
        return cells + sum(len(points.at) for points in self.points)

    @property
    def extra_files(self) -> dict[str, str]:
        return {} if self.grid is None else {"map": ".grid.nc"}

    def run(self, model: "Process", progress: Tick = lambda done: None) -> ColumnPredictions:
        level, max_std, result = self.options.level, self.options.max_std, {}
        for column in self.roles.y:
            parts, cells = [], None
            for points in self.points:
                if points.column == column.name and (len(points.at) or self.grid is not None):
                    predict = points.predictor(model)
                    parts.append(points.fill(predict, level, progress))
                    if self.grid is not None:
                        cells = self.grid.predict(predict, level, max_std, progress)
            rows = NumericPrediction.concatenate(parts)
            rows = rows if max_std is None else rows.select(rows.std <= max_std)
            result[column.name] = PointPrediction(**vars(rows), map=cells)
        return result

    def explain_result(self, prediction: ColumnPredictions) -> list[str]:
        if self.options.max_std is None:
            return []
        limit = f"standard deviation{{}} above {self.options.max_std:g}"
        n_missing = sum(len(points.at) for points in self.points)
        left = n_missing - sum(len(part.rows) for part in prediction.values())
        lines = [f"{left:,} of {n_missing:,} missing values stay missing: {limit.format('s')}"] if n_missing else []
        if self.grid is not None:
            empty = sum(int(np.isnan(part.map.mean).sum()) for part in prediction.values())
            lines.append(
                f"{empty:,} of {self.n_missing - n_missing:,} cells of the map stay missing, for the same reason"
            )
        return lines

    @property
    def added_columns(self) -> list[str]:
        return [f"{column.name}_{suffix}" for column in self.roles.y for suffix in SUFFIXES]

    def filled_frame(self, frame: NativeFrame, prediction: ColumnPredictions) -> Any:
        from fillin.filling.frames import extend_frame

        return extend_frame(frame, self.roles, self.new, prediction)

    def csv_rows(self, file: CsvFile, prediction: ColumnPredictions) -> Iterator[str]:
        from fillin.filling.frames import extended_rows

        return extended_rows(file, self.roles, self.new, prediction)

    def _dataset(self, prediction: ColumnPredictions) -> Any:
        assert self.grid is not None
        return self.grid.dataset({name: part.map for name, part in prediction.items()}, self.options.level)

    def result(self, prediction: ColumnPredictions) -> Any:
        """Return the filled frame; with a grid also the map."""
        frame = super().result(prediction)
        return frame if self.grid is None else FilledPoints(frame, self._dataset(prediction))

    def write(self, outputs: Outputs, prediction: ColumnPredictions) -> ColumnPredictions:
        if self.grid is not None:
            grid, dataset = self.grid, self._dataset(prediction)
            outputs.write(outputs.extra["map"], lambda path: grid.write(dataset, path))
        return super().write(outputs, prediction)

    def figure(self, prediction: ColumnPredictions) -> "Figure":
        from fillin.filling.scattered.figure import draw_points

        return draw_points(self.roles, self.new, self.grid, prediction)

    @cached_property
    def holdout_data(self) -> "list[PointHoldout]":
        from fillin.filling.scattered.holdout import holdout_points

        return holdout_points(self.points)

    def assumptions(self) -> list[str]:
        roles, names = self.roles, self.roles.names
        groups = f", and each group ({' and '.join(roles.by)}) from itself alone" if roles.by else ""
        most = CONTEXT_POINTS.get(len(names), MAX_CONTEXT_POINTS)
        lines = [
            f"{' and '.join(names)} are the location of each row; distances in them matter. Units of distance are "
            "fitted to each column, so that its values change equally fast along each coordinate.",
            f"Each column is filled from itself alone{groups}.",
            f"A location is predicted from about {most} observed points around it, or from all where there are fewer.",
            *describe_model(self.model_name, self.options.level, "smooth, rough and noisy fields"),
        ]
        for points in self.points[: len(roles.y)]:
            clock_units = [" s" * (column.clock is not None) for column in roles.locations]
            units = (f"{u:.3g}{s} in {name}" for u, s, name in zip(points.units, clock_units, names, strict=True))
            label = f"{points.column} of {points.group}" if points.group else points.column
            lines.append(f"Equal distances for {label}: {', '.join(units)}.")
        lines += [f"{column} lies in {describe_bounds(*limits)}." for column, limits in self.bounds.items()]
        if roles.y_err is not None:
            lines.append(
                f"'{roles.y_err.name}' holds the standard deviations of the errors of observed values (empty or 0: "
                "unknown)."
            )
        return lines


def _split_points(
    roles: ScatteredRoles, new: NewRows, bounds: "dict[str, Bounds]", periods: Float[ndarray, "dx"] | None
) -> list[PointSet]:
    """Return the points of each column and group that has at least two observed values."""
    x, sets = roles.x, []
    new_x = roles.coordinates(new.locations)
    for column in roles.y:
        for number, group in enumerate(roles.groups):
            rows = group.rows[roles.located[group.rows]]
            missing = column.missing[rows]
            observed, missing, added = rows[~missing], rows[missing], np.flatnonzero(new.group == number)
            if len(observed) < 2:
                continue
            error = None if roles.y_err is None else np.nan_to_num(roles.y_err.values[observed])
            at = np.concatenate([x[missing], new_x[added]])
            sets.append(
                PointSet(
                    column.name, group.name, x[observed], column.values[observed], error, at,
                    np.concatenate([missing, roles.table.n_rows + added]), bounds.get(column.name), periods,
                )
            )  # fmt: skip
    return sets
