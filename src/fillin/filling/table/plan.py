"""Filling of tables: rows without an order, each missing cell from the other cells of its row and from similar rows."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fillin.errors import InputError, argument, option, render
from fillin.filling.diagnostics import (
    Note,
    check_no_units_row,
    is_row_id,
    list_names,
    make_note,
    note_codes,
    note_coordinates,
    note_formatted_numbers,
    note_missing_words,
    note_no_index,
    note_sentinels,
)  # fmt: skip
from fillin.filling.plan import FillOptions, Source, TabularPlan, as_names, bounds_by_column, check_bounds
from fillin.filling.prediction import SUFFIXES, ColumnPredictions
from fillin.filling.series.infer_roles import check_new_columns
from fillin.predictive import MAX_CLASSES
from fillin.runtime import Tick
from fillin.tabular.table import CLASS, DATE, NUMBER, TypedColumn, TypedTable, declare_kinds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fillin.estimators import TableImputer
    from fillin.filling.holdout import ClassScore, NumericScore
    from fillin.tabular.readers import CsvFile, NativeFrame
    from fillin.warp import Bounds

_MAX_NUMBER = 1e100  # squares must not overflow
_MIN_NAMES = 20  # distinct words of a column that may hold names of its rows


@dataclass(frozen=True, kw_only=True)
class TableOptions(FillOptions):
    """Options of tables; see `fillin.fill`."""

    y: str | Sequence[str] | None = None
    target: str | None = None
    classes: str | Sequence[str] | None = None
    numbers: str | Sequence[str] | None = None
    kind: str | None = None
    na: Collection[Any] = ()
    date_format: str | None = None


@dataclass(frozen=True, eq=False)
class TablePlan(TabularPlan):
    """The columns `features` that predictions are made from, and those that are filled: `filled` by networks,
    `constant` by the only value that is observed. Where there is a target, it alone is filled, and is no feature."""

    options_type = TableOptions

    table: TypedTable
    features: list[TypedColumn]
    filled: list[TypedColumn]
    constant: list[TypedColumn]
    target: TypedColumn | None
    column_notes: list[Note]
    bounds: "dict[str, Bounds]"
    options: TableOptions
    source: Source

    @classmethod
    def read(cls, source: Source, options: TableOptions) -> "TablePlan":
        return _plan_table(source, options)

    @property
    def level(self) -> float:
        return self.options.level

    @property
    def seed(self) -> int:
        return self.options.seed

    @property
    def notes(self) -> list[Note]:
        return [*self.source.notes, *self.column_notes]

    @property
    def summary(self) -> str:
        index = getattr(self.source.tabular, "index", ())  # of a pandas frame, which only names the rows
        columns = [column for column in self.table.columns.values() if column.name not in index]
        kinds = Counter(column.kind for column in columns if not column.missing.all())
        counts = [_counted(kinds[kind], kind) for kind in (NUMBER, CLASS, DATE) if kinds[kind]]
        missing = [int(column.missing.sum()) for column in columns if column.missing.any()]
        return (
            f"{self.table.name}: a table: {_counted(self.table.n_rows, 'row')}, {_counted(len(columns), 'column')} "
            f"({', '.join(counts) or 'all missing'}), {_counted(sum(missing), 'missing value')}"
            + (f" in {_counted(len(missing), 'column')}" if missing else "")
        )

    @property
    def all_filled(self) -> list[TypedColumn]:
        """The filled columns in the order of the table."""
        names = {column.name for column in (*self.filled, *self.constant)}
        return [column for name, column in self.table.columns.items() if name in names]

    @property
    def n_missing(self) -> int:
        return sum(int(column.missing.sum()) for column in self.all_filled)

    @property
    def n_steps(self) -> int:
        return 0  # training shows its own progress

    @property
    def nothing_to_fill(self) -> str:
        requested = [self.target] if self.target else self.table.columns.values()
        return "nothing can be filled" if any(column.missing.any() for column in requested) else "nothing is missing"

    def load_model(self) -> None:
        """Return None: a table is filled by networks that are trained on it."""

    def run(self, model: "TableImputer | None", progress: Tick = lambda done: None) -> ColumnPredictions:
        """Predict the missing cells, by a fitted imputer or by networks that are trained now."""
        from fillin.filling.table.impute import fill_table

        return fill_table(self, model)

    @property
    def added_columns(self) -> list[str]:
        return [f"{column.name}_{suffix}" for column in self.all_filled for suffix in added_suffixes(column)]

    def filled_frame(self, frame: "NativeFrame", prediction: ColumnPredictions) -> Any:
        from fillin.filling.frames import added_columns

        columns = (added_columns(frame.data, column, prediction[column.name]) for column in self.all_filled)
        return frame.restore(frame.data.with_columns(series for added in columns for series in added))

    def csv_rows(self, file: "CsvFile", prediction: ColumnPredictions) -> Iterator[str]:
        from fillin.filling.frames import added_cells

        comma = any(column.decimal_comma for column in self.table.columns.values())
        added = [added_cells(column, prediction[column.name], comma) for column in self.all_filled]
        for record, *parts in zip(file.records, *added, strict=True):
            yield file.row(record, [cell for part in parts for cell in part])

    def figure(self, prediction: ColumnPredictions) -> "Figure":
        from fillin.filling.table.figure import draw_table

        return draw_table(self, prediction)

    def holdout(
        self, model: Any, prediction: ColumnPredictions, progress: Tick = lambda done: None
    ) -> "list[NumericScore | ClassScore]":
        from fillin.filling.table.impute import score_table

        return score_table(self)

    def explain_holdout(self, scores: Sequence[Any]) -> str:
        from fillin.filling.table.impute import HELD_OUT_SHARE, MIN_OBSERVED

        if not scores:
            return f"Too few cells are observed to hold any out: a column needs {MIN_OBSERVED}."
        return (
            f"{HELD_OUT_SHARE:.0%} of the observed cells of each filled column were held out (seed {self.seed}), and "
            "other networks, fewer and trained for a shorter time than those that filled the table, predicted them "
            "from the rest. RMSE is in standard deviations of the column, beside that of the column mean; 95 % of the "
            "cells should lie in their intervals. For classes: the accuracy of the most probable class, beside that of "
            "the most frequent one, and the mean log probability of the true class."
        )

    def assumptions(self) -> list[str]:
        names = ", ".join(column.name for column in self.features) or "none"
        target = "every column" if self.target is None else f"'{self.target.name}' alone"
        shown = lambda limit: "" if limit is None else f"{limit:g}"  # noqa: E731
        limits = ", ".join(f"{name} {shown(low)}:{shown(high)}" for name, (low, high) in self.bounds.items())
        return [
            f"The order of the rows carries no information. Columns that are read: {names}.",
            f"Networks were trained on this table to predict {target} from the other columns: they learn which rows "
            "are similar and attend to these. No other data are used.",
            "The prediction interval of numbers and dates contains a new observation with probability "
            f"{self.level:.0%}; _std is the standard deviation of the same (of dates in days), and _probability that "
            "of the predicted class. Observed values are kept, with a standard deviation of 0 and a probability of 1.",
            *([f"Values lie within bounds: {limits}. Predictions beyond are set to the bound."] if limits else []),
            "Each missing cell is predicted separately: filled cells of one row are not a joint draw.",
            "Values are missing for reasons that may depend on other cells of their rows, but not on the values "
            "themselves.",
        ]


def _plan_table(source: Source, options: TableOptions) -> TablePlan:
    """Choose the columns to read and to fill; an error names the location of a cell that cannot be read."""
    table, index = source.tabular.table, getattr(source.tabular, "index", ())
    y, target_name = as_names(options.y), options.target
    classes, numbers = as_names(options.classes), as_names(options.numbers)
    if target_name is not None and y:
        raise InputError(
            "{target} and {y} both name what to fill; give one of them", target=argument("target"), y=argument("y")
        )
    declared = {*classes, *numbers}
    detected = options.kind is None and target_name is None and not declared
    notes = [note_no_index(table, y), *note_coordinates(table)] if detected else []
    table = declare_kinds(table, classes, numbers)
    check_no_units_row(table)
    named = [table.column(name) for name in dict.fromkeys(y)] if target_name is None else [table.column(target_name)]
    for column in table.columns.values():
        _check_values(table, column)
        notes += note_sentinels(column) if column.kind == NUMBER else []
        notes += note_missing_words(column)
    features, dropped = _select_features(table, named, declared, index, notes)
    filled, constant = [], []
    for column in named or list(table.columns.values()):
        if not column.missing.any() or column in dropped:
            continue
        if column.n_distinct == 1:
            constant.append(column)
            notes.append(Note(f"{column.name} has one observed value: filled with that, without an uncertainty"))
        else:
            filled.append(column)
        check_new_columns(table, column, added_suffixes(column))
    target = table.column(target_name) if target_name is not None else None
    features = [column for column in features if column is not target and column.n_distinct > 1]
    if target is not None and filled:
        _check_target(table, target, features)
    notes += [*note_formatted_numbers(features, declared), *note_codes(filled, declared, target)]
    limits = _column_bounds(table, options.bounds, [*filled, *constant])
    return TablePlan(table, features, filled, constant, target, notes, limits, options, source)


def _select_features(
    table: TypedTable, named: list[TypedColumn], declared: Collection[str], index: Collection[str], notes: list[Note]
) -> tuple[list[TypedColumn], list[TypedColumn]]:
    """Return the columns that serve as features, and those that do not; columns of a declared kind always do."""
    features, dropped, empty = [], [], []
    for column in table.columns.values():
        why = ""
        if column.name in index:
            why = "is the index"
            notes += [] if column.unnamed_index else [Note(f"{column.name} {why}: not used")]
        elif column.missing.all():
            empty.append(column.name)
            why = f"is missing in {f'all {table.n_rows:,} rows' if table.n_rows > 1 else 'the only row'}"
        elif column.name in declared:
            pass
        elif column.numbers_rows or is_row_id(column):
            why = "only numbers the rows" if column.numbers_rows else "only identifies the rows"
            uses = option("numbers", [column.name])
            notes.append(make_note("{name} {why}: not used ({option} uses it)", name=column.name, why=why, option=uses))
        elif column.kind == CLASS and column.n_distinct > max(_MIN_NAMES, (n_observed := (~column.missing).sum()) / 2):
            why = f"has {column.n_distinct:,} distinct words in {n_observed:,} rows"  # and predicts nothing of others
            gaps = ", and its missing values are left" if column.missing.any() else ""
            text = "{name} {why}: read as names, not used{gaps} ({classes} uses it)"
            classes = option("classes", [column.name])
            notes.append(make_note(text, bool(gaps), name=column.name, why=why, gaps=gaps, classes=classes))
        if why and column in named and column.missing.any():
            raise InputError(f"{table.name}: column '{column.name}' {why}; it cannot be filled, leave it out")
        (dropped if why else features).append(column)
    if empty:
        notes.append(Note(f"{list_names(empty)}: no value is observed, left missing", doubtful=True))
    return features, dropped


def _check_values(table: TypedTable, column: TypedColumn) -> None:
    if (cell := column.invalid) is not None:
        text = "{reason}; if the column has codes or words, pass {classes}" if cell.may_be_class else "{reason}"
        what = render(text, reason=cell.message, classes=option("classes", [column.name]))
        raise table.error_at(cell.row, column.name, what)
    if column.kind == NUMBER and (large := np.abs(column.values) > _MAX_NUMBER).any():
        row = int(large.argmax())
        message = f"{column.values[row]:g} is beyond {_MAX_NUMBER:g}, where squares overflow; rescale the column"
        raise table.error_at(row, column.name, message)


def _column_bounds(
    table: TypedTable, bounds: "Bounds | Mapping[str, Bounds] | None", filled: list[TypedColumn]
) -> "dict[str, Bounds]":
    """Return the bounds of each number column that is filled or named; observed values must lie within."""
    if bounds is None:
        return {}
    named = [name for name in bounds if name] if isinstance(bounds, Mapping) else []
    for name in named:
        if table.column(name).kind != NUMBER:
            raise InputError(
                "{table}: column '{name}' has no numbers, and {bounds} apply to numbers; leave it out",
                table=table.name, name=name, bounds=argument("bounds"),
            )  # fmt: skip
    columns = [c for c in table.columns.values() if c.kind == NUMBER and (c in filled or c.name in named)]
    limits = bounds_by_column([column.name for column in columns], bounds)
    for column in columns:
        check_bounds(table, column, limits.get(column.name, (None, None)))
    return limits


def _check_target(table: TypedTable, target: TypedColumn, features: list[TypedColumn]) -> None:
    if not features:
        raise InputError(
            "{table}: no other column can predict '{target}'; add columns, or fill all with {y}",
            table=table.name, target=target.name, y=option("y", target.name),
        )  # fmt: skip
    if target.kind == CLASS and target.n_distinct > MAX_CLASSES:
        raise InputError(
            "{table}: column '{target}' has {count:,} classes, and at most {limit} are supported; join rare ones, or "
            "fill the most frequent with {y}",
            table=table.name, target=target.name, count=target.n_distinct, limit=MAX_CLASSES,
            y=option("y", target.name),
        )  # fmt: skip


def added_suffixes(column: TypedColumn) -> tuple[str, ...]:
    """Return the suffixes of the columns that are added for a column."""
    return ("filled", "probability") if column.kind == CLASS else SUFFIXES


def _counted(count: int, word: str) -> str:
    """Format a count with its noun in singular or plural.

    >>> _counted(1, "class"), _counted(1200, "class"), _counted(0, "row")
    ('1 class', '1,200 classes', '0 rows')
    """
    return f"{count:,} {word}{'' if count == 1 else 'es' if word.endswith('s') else 's'}"
