"""Filling of series: rows ordered by a time or a number, each column and group from its own observed values."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, Message, argument
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
from fillin.filling.prediction import MAX_DRAWS, SUFFIXES, ColumnPredictions, NumericPrediction, name_draws
from fillin.filling.report import describe_bounds, describe_model
from fillin.filling.series.infer_roles import NewRows, SeriesRoles, infer_roles
from fillin.filling.series.station_locations import check_station_names
from fillin.runtime import Tick, require
from fillin.tabular.dates import SECOND, parse_duration
from fillin.tabular.readers import CsvFile, NativeFrame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fillin.filling.series.holdout import SeriesHoldout
    from fillin.filling.series.sheet import SeriesSheet
    from fillin.models import Process
    from fillin.predictive import GaussianMixture
    from fillin.warp import Bounds

SHEET = "sheet"  # the weights that fill several columns together
MAX_SOURCE_LINES = 24  # of the report
MAX_QUERIES_HELD = 32_768  # locations whose mixtures are in memory at a time


@dataclass(frozen=True, kw_only=True)
class SeriesOptions(FillOptions):
    """Options of series; see `fillin.fill`."""

    x: str | None = None
    y: str | Sequence[str] | None = None
    by: str | Sequence[str] | None = None
    at: Any = None
    every: str | float | None = None
    until: Any = None
    y_err: str | None = None
    period: str | float | Mapping[str | int, float] | None = None
    kind: str | None = None
    na: Collection[Any] = ()
    date_format: str | None = None
    alone: bool = False
    covariate: str | Sequence[str] | None = None
    station_at: Sequence[str] | None = None
    max_gap: str | float | None = None
    max_std: float | None = None
    draws: Any = 0  # a whole number
    model: "str | Process | None" = None


@dataclass(frozen=True, eq=False)
class Series:
    """One column of one group: observed values `y` at `x` with their standard errors, and locations `at` to fill.

    `rows` are the table rows of `at`. `period` is that of x, in its units (0: not periodic).
    """

    column: str
    group: str
    x: Float[ndarray, "n"]
    y: Float[ndarray, "n"]
    error: Float[ndarray, "n"] | None
    at: Float[ndarray, "m"]
    rows: Int[ndarray, "m"]
    bounds: "Bounds | None" = None
    period: float = 0.0

    def predictor(self, model: "Process") -> "Callable[[ndarray, Tick], GaussianMixture]":
        """Return predict(at, tick), which predicts y at any locations from the observed values."""
        from fillin.inference.context import Context

        x, y, error, period, warp = self.x[:, None], self.y, self.error, self.period, None
        if self.bounds is not None:
            from fillin.warp import BoundsWarp

            warp = BoundsWarp.fit(self.y, self.bounds)
            y, error = warp.forward(y), None if error is None else error * warp.slope(self.y)
        y, error = y[:, None], None if error is None else error[:, None]
        if period:
            x = np.concatenate([x % period + shift for shift in (-period, 0, period)])  # one period away is here too
            y, error = np.tile(y, (3, 1)), None if error is None else np.tile(error, (3, 1))
        context = Context(model, x, y, error)

        def predict(at: ndarray, tick: Tick = lambda done: None) -> "GaussianMixture":
            mixture = context.predict((at % period if period else at)[:, None], tick=tick)[:, 0]
            return mixture if warp is None else mixture.transformed(warp)

        return predict

    def gaps(self) -> Float[ndarray, "m"]:
        """Return the distance between the observations on both sides of each location to fill; beyond the first or last
        observation the distance from it."""
        if not len(self.x):
            return np.full(len(self.at), np.inf)
        x = np.sort(self.x)
        after = np.searchsorted(x, self.at)
        low, high = x[np.maximum(after - 1, 0)], x[np.minimum(after, len(x) - 1)]
        return np.where(after == 0, x[0] - self.at, np.where(after == len(x), self.at - x[-1], high - low))

    def fill(self, model: "Process", level: float, tick: Tick) -> NumericPrediction:
        """Predict the values at `at`, with the interval of coverage `level`."""
        order = np.argsort(self.at, kind="stable")  # neighbours are predicted together
        predict, parts = self.predictor(model), []
        for start in range(0, len(order), MAX_QUERIES_HELD):
            chunk = order[start : start + MAX_QUERIES_HELD]
            mixture = predict(self.at[chunk], tick)
            quantiles = (mixture.quantile(q) for q in (0.5 - level / 2, 0.5 + level / 2, 0.25, 0.75))
            parts.append(NumericPrediction(self.rows[chunk], *mixture.moments(), *quantiles))
        return NumericPrediction.concatenate(parts)


@dataclass(frozen=True, eq=False)
class SeriesPlan(TabularPlan, PretrainedPlan):
    """One series for each filled column and group, with the rows to add."""

    options_type = SeriesOptions
    unit = "series"
    n_dims = 1

    source: Source
    options: SeriesOptions
    roles: SeriesRoles
    new: NewRows
    bounds: "dict[str, Bounds]"
    period: float
    max_gap: float
    series: list[Series]

    @classmethod
    def read(cls, source: Source, options: SeriesOptions) -> "SeriesPlan":
        require("scipy")
        at, every = options.at, options.every
        if options.until is not None and every is None:
            raise InputError(
                "{until} needs {every}, the step of the new rows", until=argument("until"), every=argument("every")
            )
        if at is not None and every is not None:
            raise InputError(
                "{at} and {every} both name new rows; give one of them", at=argument("at"), every=argument("every")
            )
        adds_rows = at is not None or every is not None
        y, by = as_names(options.y), as_names(options.by)
        covariates = as_names(options.covariate)
        if options.alone and covariates:
            raise InputError(
                "{alone} fills each column by itself, and {covariate} names columns that inform; give one of them",
                alone=argument("alone"), covariate=argument("covariate"),
            )  # fmt: skip
        station_at = as_names(options.station_at)
        if station_at:
            check_station_names(station_at, by, options.alone)
        table, kind = source.tabular.table, options.kind
        roles = infer_roles(table, options.x, y, by, options.y_err, kind, adds_rows, covariates, station_at)
        new = NewRows(roles.x.values[:0], np.empty(0, dtype=int), np.empty(0))
        if adds_rows:
            from fillin.filling.series.new_rows import make_new_rows

            new = make_new_rows(roles, options)
        bounds = bounds_by_column([column.name for column in roles.y], options.bounds)
        period = 0.0 if options.period is None else _parse_period(options.period, roles)
        max_gap = (
            np.inf
            if options.max_gap is None
            else _parse_length(options.max_gap, roles, argument("max_gap"), "a length")
        )
        if options.max_std is not None and not 0 < options.max_std < np.inf:
            raise InputError(
                "{max_std} must be a positive number, in the units of the values, got {value}",
                max_std=argument("max_std"), value=options.max_std,
            )  # fmt: skip
        draws = options.draws
        if isinstance(draws, bool) or not isinstance(draws, Integral) or not 0 <= int(draws) <= MAX_DRAWS:
            raise InputError(
                "{draws} must be a whole number from 0 to {most}, got {value!r}",
                draws=argument("draws"), most=MAX_DRAWS, value=draws,
            )  # fmt: skip
        check_values(roles.table, [*roles.locations, *roles.y, *([] if roles.y_err is None else [roles.y_err])], bounds)
        return cls(source, options, roles, new, bounds, period, max_gap, _split_series(roles, new, bounds, period))

    @property
    def summary(self) -> str:
        return self.roles.summary + (f"; new rows: {len(self.new.x):,}" if len(self.new.x) else "")

    @property
    def notes(self) -> list[Note]:
        unobserved = [
            f"{column.name} of {group.name}"
            for column in self.roles.y
            for group in self.roles.groups
            if column.missing[group.rows].all()
        ]
        outcome = "predicted from the stations around" if self.roles.by_distance else "left missing"
        note = Note(f"no value of {list_names(unobserved)} is observed: {outcome}", doubtful=True)
        return [*self.source.notes, *self.roles.notes, *([note] if unobserved else [])]

    @property
    def n_missing(self) -> int:
        return sum(len(series.at) for series in self.series)

    @property
    def nothing_to_fill(self) -> str:
        return "nothing seems to be missing" if self.notes else "nothing is missing"

    @cached_property
    def sheets(self) -> "list[SeriesSheet]":
        """The series as sheets, whose columns inform each other."""
        from fillin.filling.series.sheet import make_sheets

        return make_sheets(self.roles, self.new, self.bounds, self.period, self.options.alone)

    @property
    def model_name(self) -> Any:
        from fillin import pretrained

        if self.options.model is None and SHEET in pretrained.names():
            return SHEET
        return super().model_name

    def run(self, model: "Process", progress: Tick = lambda done: None) -> ColumnPredictions:
        from fillin.models.sheet import Sheet

        parts: dict[str, list[NumericPrediction]] = {}
        options = self.options
        if options.draws and not isinstance(model, Sheet):
            raise _needs_sheet("draws")
        if options.station_at and not isinstance(model, Sheet):
            raise _needs_sheet("station_at")
        if isinstance(model, Sheet):
            for sheet in self.sheets:
                filled = sheet.fill(model, options.level, progress, options.draws, options.seed)
                for column, predictions in filled.items():
                    parts.setdefault(column, []).extend(predictions)
        else:
            for series in self.series:
                parts.setdefault(series.column, []).append(series.fill(model, self.options.level, progress))
        joined = {column: NumericPrediction.concatenate(predictions) for column, predictions in parts.items()}
        return {column: self._drop_uncertain(column, prediction) for column, prediction in joined.items()}

    def _drop_uncertain(self, column: str, prediction: NumericPrediction) -> NumericPrediction:
        """Leave out values in gaps longer than `max_gap`, or with a standard deviation above `max_std`."""
        kept = np.ones(len(prediction.rows), dtype=bool)
        if self.options.max_std is not None:
            kept &= prediction.std <= self.options.max_std
        if self.max_gap < np.inf:
            gap = np.zeros(self.roles.table.n_rows + len(self.new.x))
            for series in self.series:
                if series.column == column:
                    gap[series.rows] = series.gaps()
            kept &= gap[prediction.rows] <= self.max_gap
        return prediction if kept.all() else prediction.select(kept)

    def explain_result(self, prediction: ColumnPredictions) -> list[str]:
        left = self.n_missing - sum(len(part.rows) for part in prediction.values())
        limits = [f"gaps up to {self.options.max_gap}"] if self.max_gap < np.inf else []
        limits += [] if self.options.max_std is None else [f"standard deviations up to {self.options.max_std:g}"]
        if not limits:
            return []
        return [f"{left:,} of {self.n_missing:,} missing values stay missing: only {' and '.join(limits)} are filled"]

    @property
    def added_columns(self) -> list[str]:
        suffixes = [*SUFFIXES, *name_draws(self.options.draws)]
        return [f"{column.name}_{suffix}" for column in self.roles.y for suffix in suffixes]

    def filled_frame(self, frame: NativeFrame, prediction: ColumnPredictions) -> Any:
        from fillin.filling.frames import extend_frame

        return extend_frame(frame, self.roles, self.new, prediction, self.options.draws)

    def csv_rows(self, file: CsvFile, prediction: ColumnPredictions) -> Iterator[str]:
        from fillin.filling.frames import extended_rows

        return extended_rows(file, self.roles, self.new, prediction, self.options.draws)

    def figure(self, prediction: Mapping[str, NumericPrediction]) -> "Figure":
        from fillin.filling.series.figure import draw_series

        return draw_series(self.roles, self.new, self.series, prediction, self.options.level)

    @cached_property
    def holdout_data(self) -> "list[SeriesHoldout]":
        from fillin.filling.series.holdout import holdout_series

        return holdout_series(self.series, self.sheets)

    @property
    def _is_joint(self) -> bool:
        """Whether the model fills sheets."""
        from fillin.models.sheet import Sheet

        return isinstance(self.load_model(), Sheet)

    def _describe_sources(self) -> list[str]:
        names = [column.name for column in [*self.roles.y, *self.roles.informing]]
        groups = f", of all groups ({' and '.join(self.roles.by)})" if self.roles.by else ""
        if all(len(sheet.names) == 1 for sheet in self.sheets):  # also where one sheet would be too large
            return ["Each column and group is predicted from its own observed values only."]
        lines = [line for sheet in self.sheets for line in sheet.describe_sources()][:MAX_SOURCE_LINES]
        return [f"Values are predicted from all observed values of {list_names(names)}{groups}.", *lines]

    def assumptions(self) -> list[str]:
        roles = self.roles
        groups = f", and each group ({' and '.join(roles.by)}) from itself alone" if roles.by else ""
        sources = f"Each column is filled from itself alone{groups}."
        lines = [
            f"'{roles.x.name}' is the location of each row; distances in it matter.",
            *([roles.locations_of_stations.description] if roles.by_distance and roles.locations_of_stations else []),
            *(self._describe_sources() if self._is_joint else [sources]),
            *describe_model(self.model_name, self.options.level, "smooth, rough, seasonal, trending and noisy curves"),
        ]
        if self.period:
            unit = " s" * (roles.x.clock is not None)
            lines.append(f"'{roles.x.name}' is periodic with period {self.period:g}{unit}.")
        lines += [f"{column} lies in {describe_bounds(*limits)}." for column, limits in self.bounds.items()]
        if self.options.draws:
            lines.append(
                f"NAME_draw1 … NAME_draw{self.options.draws} are completed copies, drawn jointly across rows and "
                f"columns (seed {self.options.seed}); the moments of the draws of a cell are its mean and _std."
            )
        if roles.y_err is not None:
            lines.append(
                f"'{roles.y_err.name}' holds the standard deviations of the errors of observed values (empty or 0: "
                "unknown)."
            )
        return lines


def _needs_sheet(name: str) -> InputError:
    return InputError(
        "{option} needs a model that fills sheets, such as the default; leave out {model}",
        option=argument(name), model=argument("model"),
    )  # fmt: skip


def _split_series(roles: SeriesRoles, new: NewRows, bounds: "dict[str, Bounds]", period: float) -> list[Series]:
    """Return each column and group that has locations to fill, and observed values or stations around it."""
    x, new_x = roles.coordinates(roles.x.values), roles.coordinates(new.x)
    series = []
    for column in roles.y:
        for number, group in enumerate(roles.groups):
            missing = column.missing[group.rows]
            observed, missing = group.rows[~missing], group.rows[missing]
            added = np.flatnonzero(new.group == number)
            if not (len(observed) or roles.by_distance) or not len(missing) + len(added):
                continue
            error = None if roles.y_err is None else np.nan_to_num(roles.y_err.values[observed])
            at, rows = np.concatenate([x[missing], new_x[added]]), np.concatenate([missing, roles.table.n_rows + added])
            values, limits = column.values[observed], bounds.get(column.name)
            series.append(Series(column.name, group.name, x[observed], values, error, at, rows, limits, period))
    return series


def _parse_period(period: Any, roles: SeriesRoles) -> float:
    """Return the period in units of the x column (seconds of times)."""
    if isinstance(period, Mapping):
        raise InputError(
            "{period} of a series must be one number, the period of its x column, such as 360, got {value}",
            period=argument("period"), value=", ".join(f"{name}={length}" for name, length in period.items()),
        )  # fmt: skip
    return _parse_length(period, roles, argument("period"), "a period")


def _parse_length(length: Any, roles: SeriesRoles, name: Message, noun: str) -> float:
    """Return a length of x in the units of its column (seconds of times)."""
    if roles.x.clock is not None:
        return parse_duration(str(length), name) / SECOND
    try:
        number = float(length)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise InputError(
            "{name}: {value!r} is not {noun} of '{x}', such as 360",
            name=name, value=length, noun=noun, x=roles.x.name,
        )  # fmt: skip
    return number
