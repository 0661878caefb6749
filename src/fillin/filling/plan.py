"""The interface of filling: every kind of data has a `FillPlan`, which reads it, predicts its missing values and gives
it back filled.

`fillin.fill` and the command line use only this interface. A new kind of data is a package with a subclass of
`FillPlan` and its options, and one line in `KINDS`. Images are the exception: `complete` makes an `ImagePlan`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from fillin.errors import InputError, Message, UnknownName, argument, option, render
from fillin.filling.diagnostics import Note, index_option, is_table
from fillin.filling.grid.sources import GRID_FORMATS, find_source_type
from fillin.filling.prediction import ColumnPredictions, Outputs
from fillin.runtime import Tick, threads
from fillin.tabular.readers import TABLE_FORMATS, CsvFile, NativeFrame, parse_csv, read_csv, read_frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fillin.filling.holdout import HoldoutData
    from fillin.models import Process
    from fillin.tabular.table import TypedColumn, TypedTable
    from fillin.warp import Bounds


@dataclass(frozen=True, kw_only=True)
class FillOptions:
    """Options of every kind of data: bounds of the values, coverage of the interval, seed of all random choices."""

    bounds: "Bounds | Mapping[str, Bounds] | None" = None
    level: float = 0.95
    seed: int = 0

    def __post_init__(self):
        if not 0 < self.level < 1:
            raise InputError("{level} must lie between 0 and 1, got {value}", level=argument("level"), value=self.level)
        if not 0 <= self.seed < 2**32:
            raise InputError(
                "{seed} must be an integer from 0 to 4294967295, got {value}",
                seed=argument("seed"), value=self.seed,
            )  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Data to fill, as the path of a file or an object in memory, and the options given for it."""

    data: Any
    options: Mapping[str, Any]

    @property
    def path(self) -> Path | None:
        return self.data if isinstance(self.data, Path) else None

    @property
    def name(self) -> str:
        return "the data" if self.path is None else self.path.name

    @cached_property
    def tabular(self) -> CsvFile | NativeFrame:
        """The rows and columns of a file, of the bytes of a CSV file, or of a frame, read once."""
        na, date_format = self.options.get("na") or (), self.options.get("date_format")
        if isinstance(self.data, bytes):
            return parse_csv(self.data, "the table", na, date_format)
        if self.path is None:
            return read_frame(self.data, na=na)
        if self.path.suffix.lower() in TABLE_FORMATS:
            return TABLE_FORMATS[self.path.suffix.lower()].read(self.path, na, date_format)
        if self.path.is_dir() or not self.path.exists():  # the reader raises the error
            return read_csv(self.path, na, date_format)
        suffixes = ", ".join((*TABLE_FORMATS, *GRID_FORMATS))
        raise InputError(f"{self.path} has a format that fill does not read; name a file that ends in {suffixes}")

    @property
    def notes(self) -> list[Note]:
        """Notes on how tabular data were read."""
        return [Note(text) for text in getattr(self.tabular, "notes", ())]


class FillPlan(ABC):
    """Data that were read and checked, the missing values to fill, and the steps from prediction to output."""

    options_type: ClassVar[type]
    marker: ClassVar[str] = "filled"  # in the name of the output file
    prints_scores: ClassVar[bool] = False  # hold-out scores without a report
    remedies: ClassVar[Mapping[str, Message | None]] = {}  # what to pass instead of options of other kinds

    source: Source

    @classmethod
    @abstractmethod
    def read(cls, source: Source, options: Any) -> "FillPlan":
        """Read the data and check the options against them."""

    @property
    def suffix(self) -> str:
        """Suffix of the output file."""
        assert self.source.path is not None
        return self.source.path.suffix

    @property
    def extra_files(self) -> dict[str, str]:
        """Suffixes of further files that `write` makes, by name."""
        return {}

    @property
    @abstractmethod
    def summary(self) -> str:
        """One line on what was read and what is to fill."""

    @property
    @abstractmethod
    def notes(self) -> list[Note]:
        """Remarks for the user, such as another possible reading of the data."""

    @property
    def nothing_to_fill(self) -> str:
        """The reason why there is nothing to do, where `n_missing` is 0."""
        return "nothing is missing"

    @property
    @abstractmethod
    def n_missing(self) -> int:
        """Number of values to fill."""

    @property
    def n_steps(self) -> int:
        """Number of steps that `run` reports to its progress callback."""
        return self.n_missing

    @property
    def n_holdout_steps(self) -> int:
        """Number of steps that `holdout` reports to its progress callback."""
        return 0

    @abstractmethod
    def load_model(self) -> Any:
        """Return the model of the options, ready to predict."""

    @abstractmethod
    def run(self, model: Any, progress: Tick = lambda done: None) -> ColumnPredictions:
        """Predict the missing values."""

    @abstractmethod
    def result(self, prediction: ColumnPredictions) -> Any:
        """Return the data in the form in which they were given, filled."""

    @abstractmethod
    def write(self, outputs: Outputs, prediction: ColumnPredictions) -> ColumnPredictions:
        """Write the output file; return the prediction as the figure can read it."""

    @abstractmethod
    def figure(self, prediction: ColumnPredictions) -> "Figure":
        """Draw observed and filled values with their uncertainty."""

    @abstractmethod
    def holdout(self, model: Any, prediction: ColumnPredictions, progress: Tick = lambda done: None) -> list[Any]:
        """Return scores on observed values that are held out; `prediction` is that of `run`."""

    @abstractmethod
    def explain_holdout(self, scores: Sequence[Any]) -> str:
        """Return a paragraph on how the scores were made."""

    def explain_result(self, prediction: ColumnPredictions) -> list[str]:
        """Return remarks on the result, such as values that stay missing."""
        return []

    @abstractmethod
    def assumptions(self) -> list[str]:
        """Return the assumptions behind the prediction, as sentences of the report."""

    @contextmanager
    def parallel(self, n_threads: int, progress: Tick) -> Iterator[None]:
        """Run the work within the block on so many threads."""
        with threads(n_threads):
            yield

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Close files that are open."""


class TabularPlan(FillPlan):
    """A plan for rows and columns, which are written back with columns added."""

    @abstractmethod
    def filled_frame(self, frame: NativeFrame, prediction: ColumnPredictions) -> Any:
        """Return the frame with the added columns and rows."""

    @abstractmethod
    def csv_rows(self, file: CsvFile, prediction: ColumnPredictions) -> Iterator[str]:
        """Yield the rows of a CSV file with the added cells."""

    @property
    @abstractmethod
    def added_columns(self) -> list[str]:
        """Names of the added columns."""

    def result(self, prediction: ColumnPredictions) -> Any:
        """Return the filled frame; in pandas its `attrs` describe how it was read."""
        if not self.added_columns:
            return self.source.data
        filled = self.filled_frame(cast(NativeFrame, self.source.tabular), prediction)
        if hasattr(filled, "attrs"):
            filled.attrs = {**self.source.data.attrs, "fillin": [self.summary, *map(str, self.notes)]}
        return filled

    def write(self, outputs: Outputs, prediction: ColumnPredictions) -> ColumnPredictions:
        origin = self.source.tabular
        if isinstance(origin, CsvFile):
            rows = self.csv_rows(origin, prediction)
            outputs.write(outputs.data, lambda path: origin.write(path, self.added_columns, rows))
        else:
            write_frame = TABLE_FORMATS[self.suffix.lower()].write_frame
            assert write_frame is not None
            outputs.write(outputs.data, partial(write_frame, self.filled_frame(origin, prediction)))
        return prediction


class PretrainedPlan(FillPlan):
    """A plan for a pretrained process, which predicts each series or field from its own observed values."""

    unit: ClassVar[str]  # "series" or "field"
    options: Any
    n_dims: Any  # of a location

    @cached_property
    @abstractmethod
    def holdout_data(self) -> "Sequence[HoldoutData]":
        """The series or fields of which some values are held out for scores."""

    @property
    def model_name(self) -> Any:
        from fillin.inference.context import default_weights

        return self.options.model or default_weights(self.n_dims)

    def load_model(self) -> "Process":
        from fillin import pretrained
        from fillin.inference.context import load_filler

        name, errors = self.model_name, getattr(self.options, "y_err", None) is not None
        shipped = isinstance(name, str) and name in pretrained.names() and not Path(name).exists()
        return (_load_shipped_filler if shipped else load_filler)(name, self.n_dims, errors)

    @property
    def n_holdout_steps(self) -> int:
        from fillin.filling.holdout import count_predictions

        return count_predictions(self.holdout_data)

    def holdout(self, model: Any, prediction: ColumnPredictions, progress: Tick = lambda done: None) -> list[Any]:
        from fillin.filling.holdout import score_holdout

        return score_holdout(self.holdout_data, model, self.options.seed, progress)

    def explain_holdout(self, scores: Sequence[Any]) -> str:
        from fillin.filling.holdout import explain_scores

        return explain_scores(scores, self.unit, self.options.seed)


@cache
def _load_shipped_filler(name: str, n_dims: int, errors: bool) -> "Process":
    """Load weights that ship once in a process: plans do not change a model."""
    from fillin.inference.context import load_filler

    return load_filler(name, n_dims, errors)


@dataclass(frozen=True)
class Kind:
    """A kind of data: what messages call it, how it is recognised, and the class of its plan."""

    label: str
    matches: Callable[[Source], bool]
    plan: str  # module:class, imported when needed
    choice: Callable[[], Message] | None = None  # the option that chooses it for a file that looks otherwise

    @property
    def plan_type(self) -> type[FillPlan]:
        module, _, name = self.plan.partition(":")
        return getattr(import_module(f"fillin.filling.{module}"), name)

    def accepts(self, name: str) -> bool:
        return name in {field.name for field in fields(self.plan_type.options_type)}


KINDS = [  # the first that matches
    Kind("a field or array", lambda source: find_source_type(source.data) is not None, "grid.plan:GridPlan"),
    Kind(
        "scattered observations", lambda source: len(as_names(source.options.get("x"))) > 1,
        "scattered.plan:ScatteredPlan", partial(option, "x", ["COLUMN", "COLUMN"]),
    ),
    Kind(
        "a table", lambda source: is_table(source.tabular.table, source.options), "table.plan:TablePlan",
        partial(option, "kind", "table"),
    ),
    Kind("a series", lambda source: True, "series.plan:SeriesPlan", partial(index_option, "COLUMN")),
]  # fmt: skip


def make_plan(data: Any, options: Mapping[str, Any]) -> FillPlan:
    """Read a file (a Path) or an object, and plan how to fill it.

    Options that are None are not given. An option of another kind of data is an error.
    """
    names = as_names(options.get("x"))
    options = {**options, "x": (names[0] if len(names) == 1 else names) or None}
    source = Source(data, options)
    kind = next(kind for kind in KINDS if kind.matches(source))
    for name, value in options.items():
        if value is None or value is False or (isinstance(value, list | tuple) and not value) or kind.accepts(name):
            continue
        others = (other for other in reversed(KINDS) if other.choice and kind.choice and other.accepts(name))
        other, remedy = next(others, None), cast("Message | str", "")
        if name in kind.plan_type.remedies:
            instead = kind.plan_type.remedies[name]
            remedy = "" if instead is None else render(", or pass {instead}", instead=instead)
        elif other is not None and other.choice is not None:
            remedy = render(", or fill the data as {kind} with {choice}", kind=other.label, choice=other.choice())
        raise InputError(
            "{where}{option} does not apply to {kind}; leave it out{remedy}", option=argument(name), kind=kind.label,
            where="" if source.path is None else f"{source.path.name}: ", remedy=remedy,
        )  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None and kind.accepts(name)}
    return kind.plan_type.read(source, kind.plan_type.options_type(**given))


def as_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def bounds_by_column(columns: list[str], bounds: "Bounds | Mapping[str, Bounds] | None") -> "dict[str, Bounds]":
    """Return the bounds of each column: one pair for all, or a pair for each name ("": all others)."""
    named = {} if bounds is None else bounds if isinstance(bounds, Mapping) else {"": bounds}
    pairs = {}
    for name, pair in named.items():
        if name and name not in columns:
            raise UnknownName("column to fill, in bounds,", name, columns)
        try:
            low, high = (None if limit is None or np.isinf(limit) else float(limit) for limit in pair)
            if low != low or high != high:  # NaN is no bound, and no lack of one
                raise ValueError
        except (TypeError, ValueError):
            raise InputError(f"bounds must be a pair such as (0, None) or (0, 1), got {pair!r}") from None
        if low is not None and high is not None and not low < high:
            raise InputError(f"bounds: the lower must be below the upper, got {low:g}:{high:g}")
        pairs[name] = low, high
    return {name: pairs.get(name, pairs.get("", (None, None))) for name in columns if name in pairs or "" in pairs}


def check_values(table: "TypedTable", columns: "Sequence[TypedColumn]", bounds: "Mapping[str, Bounds]") -> None:
    """Refuse numbers that overflow, and observed values outside the bounds of their column."""
    from fillin.predictive import MAX_MAGNITUDE

    for column in columns:
        large = np.abs(column.values) > MAX_MAGNITUDE if column.clock is None else np.zeros(1, dtype=bool)
        if large.any():
            row = int(large.argmax())
            raise table.error_at(
                row, column.name,
                f"{column.values[row]:g} is beyond {MAX_MAGNITUDE:g}, where float64 arithmetic overflows; correct it, "
                "or give the column in other units",
            )  # fmt: skip
        if column.name in bounds:
            check_bounds(table, column, bounds[column.name])


def check_bounds(table: "TypedTable", column: "TypedColumn", bounds: "Bounds") -> None:
    """Refuse observed values outside the bounds."""
    low, high = bounds
    outside = (column.values < (-np.inf if low is None else low)) | (column.values > (np.inf if high is None else high))
    if outside.any():
        row = int(outside.argmax())
        raise table.error_at(
            row, column.name, "{value:g} lies outside {bounds} {low}:{high}; correct it, or widen the bounds",
            value=column.values[row], bounds=argument("bounds"), low="" if low is None else f"{low:g}",
            high="" if high is None else f"{high:g}",
        )  # fmt: skip
