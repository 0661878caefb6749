"""Filling of series: rows ordered by a time or a number, each column and group from its own observed values."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fillin.errors import InputError, argument
from fillin.filling.diagnostics import Note, list_names
from fillin.filling.frames import extend_frame
from fillin.filling.outputs import Outputs
from fillin.filling.plan import FillOptions, FillPlan, Source, as_names
from fillin.filling.prediction import SUFFIXES, NumericPrediction, Prediction, complete_column, format_number
from fillin.filling.report import describe_bounds, describe_model
from fillin.filling.series.infer_roles import SeriesRoles, infer_roles
from fillin.filling.series.new_rows import NewRows, no_new_rows, rows_by_step, rows_from_table
from fillin.filling.series.run import Asked, Series, check_values, fill_all, series_of
from fillin.runtime import Tick, require
from fillin.tabular.dates import SECOND, parse_duration
from fillin.tabular.readers import CsvFile, NativeFrame, read_frame
from fillin.tabular.table import TypedTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fillin.filling.holdout import InterpolationScore
    from fillin.filling.series.holdout import SeriesHoldout
    from fillin.models import Process


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
    model: "str | Process | None" = None


@dataclass(frozen=True, eq=False)
class SeriesPlan(FillPlan):
    """One series for each filled column and group, with the rows to add."""

    options_type = SeriesOptions

    source: Source
    options: SeriesOptions
    roles: SeriesRoles
    new: NewRows
    asked: Asked
    series: list[Series]

    @classmethod
    def read(cls, source: Source, options: SeriesOptions) -> "SeriesPlan":
        require("scipy")
        from fillin.filling.bounds import bounds_of

        at, every, until = options.at, options.every, options.until
        if until is not None and every is None:
            raise InputError(
                "{until} needs {every}, the step of the new rows", until=argument("until"), every=argument("every")
            )
        if at is not None and every is not None:
            raise InputError(
                "{at} and {every} both name new rows; give one of them", at=argument("at"), every=argument("every")
            )
        y, by = as_names(options.y), as_names(options.by)
        table = source.tabular.table
        roles = infer_roles(
            table, options.x, y, by, options.y_err, options.kind, new=at is not None or every is not None
        )
        new = no_new_rows(roles)
        if every is not None:
            new = rows_by_step(roles, str(every), None if until is None else str(until))
        elif at is not None:
            new = rows_from_table(roles, _read_new_rows(at, options))
        bounds = bounds_of([column.name for column in roles.y], options.bounds)
        asked = Asked(options.level, bounds, _parse_period(options.period, roles))
        check_values(roles, asked)
        return cls(source, options, roles, new, asked, series_of(roles, new))

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
        note = Note(f"no value of {list_names(unobserved)} is observed: left missing", doubtful=True)
        return [*self.source.notes, *self.roles.notes, *([note] if unobserved else [])]

    @property
    def n_missing(self) -> int:
        return sum(len(series.at) for series in self.series)

    @property
    def nothing_to_fill(self) -> str:
        return "nothing seems to be missing" if self.notes else "nothing is missing"

    @property
    def model_name(self) -> Any:
        from fillin.inference.weights import default_weights

        return self.options.model or default_weights(1)

    def load_model(self) -> "Process":
        from fillin.inference.weights import load_filler

        return load_filler(self.model_name, 1, self.options.y_err is not None)

    def run(self, model: "Process", progress: Tick = lambda done: None) -> Prediction:
        return fill_all(self.series, model, self.asked, progress)

    def result(self, prediction: Prediction) -> Any:
        """Return the frame with the new rows and columns; in pandas its `attrs` tell how the data were read."""
        data = self.source.data
        if not self.roles.y:
            return data
        assert isinstance(self.source.tabular, NativeFrame)
        filled = extend_frame(self.source.tabular, self.roles, self.new, prediction)
        if hasattr(filled, "attrs"):
            filled.attrs = {**data.attrs, "fillin": [self.summary, *map(str, self.notes)]}
        return filled

    def write(self, outputs: Outputs, prediction: Prediction) -> Prediction:
        origin = self.source.tabular
        if isinstance(origin, CsvFile):
            names = [f"{column.name}_{suffix}" for column in self.roles.y for suffix in SUFFIXES]
            outputs.write(outputs.data, lambda path: origin.write(path, names, self._csv_rows(origin, prediction)))
        else:
            table = extend_frame(origin, self.roles, self.new, prediction)
            outputs.write(outputs.data, lambda path: require("pyarrow.parquet").write_table(table, path))
        return prediction

    def _csv_rows(self, file: CsvFile, prediction: Prediction) -> Iterator[str]:
        roles, new = self.roles, self.new
        rows = roles.table.n_rows
        numbers = [complete_column(column, prediction.get(column.name), len(new.x)) for column in roles.y]
        observed = [
            [None if blank else cell.strip() for cell, blank in zip(column.cells(), column.missing, strict=True)]
            for column in roles.y
        ]
        new_records = self._new_records(file)
        for row in new.order(rows):
            cells: list[str] = []
            for column, texts, parts in zip(roles.y, observed, numbers, strict=True):
                text = texts[row] if row < rows else None
                if text is not None:
                    cells += [text, "0", text, text]
                else:
                    std = float(parts[1][row])
                    cells += [format_number(float(part[row]), std, column.decimal_comma) for part in parts]
            yield file.row(file.records[row] if row < rows else new_records[row - rows], cells)

    def _new_records(self, file: CsvFile) -> list[str]:
        """Return the text of new rows: x and group, all other cells empty."""
        roles = self.roles
        groups = {name: list(roles.table.column(name).cells()) for name in roles.by}
        records = []
        for location, number in zip(roles.format_x(self.new.x), self.new.group, strict=True):
            first = roles.groups[number].rows[0]
            cells = {roles.x.name: location, **{name: texts[first] for name, texts in groups.items()}}
            records.append(file.separator.join(file.quoted(cells.get(name, "")) for name in roles.table.columns))
        return records

    def figure(self, prediction: Mapping[str, NumericPrediction]) -> "Figure":
        from fillin.filling.series.figure import draw_series

        return draw_series(self.roles, self.new, self.series, prediction, self.options.level)

    @cached_property
    def holdout_series(self) -> "list[SeriesHoldout]":
        from fillin.filling.series.holdout import holdout_series

        return holdout_series(self.series, self.asked)

    @property
    def n_holdout_steps(self) -> int:
        from fillin.filling.holdout import count_predictions

        return count_predictions(self.holdout_series)

    def holdout(
        self, model: "Process", prediction: Prediction, progress: Tick = lambda done: None
    ) -> "list[InterpolationScore]":
        from fillin.filling.holdout import score_holdout

        return score_holdout(self.holdout_series, model, self.options.seed, progress)

    def explain_holdout(self, scores: Sequence[Any]) -> str:
        from fillin.filling.holdout import explain_scores

        return explain_scores(scores, "series", self.options.seed)

    def assumptions(self) -> list[str]:
        roles, asked = self.roles, self.asked
        groups = f", and each group ({' and '.join(roles.by)}) from itself alone" if roles.by else ""
        lines = [
            f"'{roles.x.name}' is the location of each row; distances in it matter.",
            f"Each column is filled from itself alone{groups}.",
            *describe_model(self.model_name, asked.level, "smooth, rough, seasonal, trending and noisy curves"),
        ]
        if asked.period:
            unit = " s" * (roles.x.clock is not None)
            lines.append(f"'{roles.x.name}' is periodic with period {asked.period:g}{unit}.")
        lines += [f"{column} lies in {describe_bounds(*limits)}." for column, limits in asked.bounds.items()]
        if roles.y_err is not None:
            lines.append(
                f"'{roles.y_err.name}' holds the standard deviations of the errors of observed values (empty or 0: "
                "unknown)."
            )
        return lines


def _parse_period(period: Any, roles: SeriesRoles) -> float:
    """Return the period in units of the x column (seconds of times); 0 where there is none."""
    if period is None:
        return 0.0
    if isinstance(period, Mapping):
        raise InputError(
            "{period} of a series must be one number, the period of its x column, such as 360, got {value}",
            period=argument("period"), value=", ".join(f"{name}={length}" for name, length in period.items()),
        )  # fmt: skip
    if roles.x.clock is not None:
        return parse_duration(str(period), argument("period")) / SECOND
    try:
        length = float(period)
    except ValueError:
        length = 0.0
    if not 0 < length < float("inf"):
        raise InputError(
            "{period}: {value!r} is not a period of '{x}', such as 360",
            period=argument("period"), value=period, x=roles.x.name,
        )  # fmt: skip
    return length


def _read_new_rows(at: Any, options: SeriesOptions) -> TypedTable:
    """Return the locations of new rows: a file, a frame, or what NumPy makes an array of."""
    if isinstance(at, Path):
        return Source(at, {"na": options.na, "date_format": options.date_format}).tabular.table
    if not hasattr(at, "columns") and not hasattr(at, "schema"):
        pandas = require("pandas")
        at = pandas.DataFrame({options.x or "at": pandas.Series(at)})
    return read_frame(at, "at").table
