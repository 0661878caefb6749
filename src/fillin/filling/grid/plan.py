"""Filling of gridded fields and arrays: each field from the observed cells around every missing one, and from other
slices where they help."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fillin.errors import InputError, Message, argument
from fillin.filling.diagnostics import Note
from fillin.filling.grid.figure import draw_grid
from fillin.filling.grid.fill import BLOCK_KEY, fill_grid
from fillin.filling.grid.holdout import FieldHoldout, holdout_fields
from fillin.filling.grid.layout import GridLayout, make_layout
from fillin.filling.grid.sources import GridSource, find_source_type
from fillin.filling.plan import FillOptions, PretrainedPlan, Source, bounds_by_column
from fillin.filling.prediction import ColumnPredictions, NumericPrediction, Outputs
from fillin.filling.report import describe_bounds, describe_model
from fillin.runtime import Tick, threads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fillin.models import Process


_MAX_LISTED = 3  # fields whose sources the report names


@dataclass(frozen=True, kw_only=True)
class GridOptions(FillOptions):
    """Options of fields and arrays; see `fillin.fill`."""

    var: str | None = None
    over: str | Sequence[str | int] | None = None
    mask: Any = None
    fill_always_missing: bool = False
    period: str | float | Mapping[str | int, float] | None = None
    chunks: Mapping[str | int, int] | None = None
    halo: int | None = None
    alone: bool = False
    model: "str | Process | None" = None


@dataclass(frozen=True, eq=False)
class GridPlan(PretrainedPlan):
    """The variable of a file or object, and its layout (None where no variable has missing cells)."""

    options_type = GridOptions
    unit = "field"

    source: Source
    options: GridOptions
    grid: GridSource
    layout: GridLayout | None

    @classmethod
    def read(cls, source: Source, options: GridOptions) -> "GridPlan":
        chunks = None if options.chunks is None else _by_dimension("chunks", options.chunks, 200)
        source_type = find_source_type(source.data)
        assert source_type is not None
        grid = source_type.open(source.data, options.var, chunks)
        if grid.variable is None:
            return cls(source, options, grid, None)
        name, over = grid.variable.name, options.over
        try:
            layout = make_layout(
                grid.variable,
                over=over if over is None else [over] if isinstance(over, str) else [str(dim) for dim in over],
                mask=None if options.mask is None else grid.read_mask(options.mask),
                fill_always_missing=options.fill_always_missing,
                periods={} if options.period is None else _by_dimension("period", options.period, 360),
                chunks=chunks,
                halo=options.halo,
                bounds=bounds_by_column([name], options.bounds).get(name),
                level=options.level,
                alone=options.alone,
            )
        except Exception:
            grid.close()
            raise
        return cls(source, options, grid, layout)

    @property
    def suffix(self) -> str:
        return self.grid.suffix

    @property
    def summary(self) -> str:
        return f"{self.source.name}: no variable has missing cells" if self.layout is None else self.layout.summary

    @property
    def notes(self) -> list[Note]:
        return [*map(Note, self.grid.notes), *([] if self.layout is None else self.layout.notes)]

    @property
    def n_missing(self) -> int:
        return 0 if self.layout is None else self.layout.n_to_fill

    @property
    def nothing_to_fill(self) -> str:
        unfillable = self.layout is not None and self.layout.n_missing
        return "no other cell is missing" if unfillable else "nothing is missing"

    @property
    def _layout(self) -> GridLayout:
        assert self.layout is not None
        return self.layout

    @property
    def n_dims(self) -> int:
        return len(self._layout.field_dims)

    def run(self, model: "Process | None", progress: Tick = lambda done: None) -> ColumnPredictions:
        """Predict the missing cells; a prediction in blocks is lazy, and computed when it is written."""
        if self.layout is None:
            return {}
        return {self.layout.variable.name: NumericPrediction(..., *fill_grid(self.layout, model, progress))}

    def result(self, prediction: ColumnPredictions) -> Any:
        return self.grid.result(next(iter(prediction.values()), None), self.options.level)

    def write(self, outputs: Outputs, prediction: ColumnPredictions) -> ColumnPredictions:
        ((name, filled),) = prediction.items()
        return {name: self.grid.write(outputs, filled, self.options.level)}

    def figure(self, prediction: ColumnPredictions) -> "Figure":
        (filled,) = prediction.values()
        return draw_grid(self._layout, filled.mean, filled.std)

    @cached_property
    def holdout_data(self) -> list[FieldHoldout]:
        return holdout_fields(self._layout)

    def assumptions(self) -> list[str]:
        layout = self._layout
        settings, slices = layout.settings, " and ".join(layout.slice_dims)
        units = ", ".join(f"{unit:.3g} in {axis.name}" for axis, unit in zip(settings.axes, settings.unit, strict=True))
        prior = "smooth, rough and noisy fields" if len(layout.field_dims) > 1 else "curves"
        lines = [
            f"{' and '.join(layout.field_dims)} are the location of each cell; equal distances are {units}, by how "
            "fast values change from cell to cell along each axis.",
            *([_describe_slices(layout, slices)] if slices else []),
            f"Cells are filled in tiles of {' × '.join(map(str, settings.tile))}, each from the {settings.n_context} "
            "observed cells nearest to its centre, or from all where there are fewer.",
            *describe_model(self.model_name, settings.level, prior),
            *(f"{axis.name} is periodic with period {axis.period:g}." for axis in settings.axes if axis.period),
        ]
        if not settings.warp.is_affine:
            low, high = (None if np.isinf(bound) else bound for bound in (settings.warp.minimum, settings.warp.maximum))
            lines.append(f"{layout.variable.name or 'Values'} lie in {describe_bounds(low, high)}.")
        if layout.blocks is not None:
            halo = " × ".join(map(str, layout.blocks.halo))
            lines.append(f"It was filled in blocks that see {halo} cells around them, and a few cells of each field.")
        return lines

    @contextmanager
    def parallel(self, n_threads: int, progress: Tick) -> Iterator[None]:
        """Run blocks side by side, each on one thread, and report those that dask has done."""
        if self._layout.blocks is None:
            with threads(n_threads):
                yield
            return
        import dask
        from dask.callbacks import Callback

        extents = zip(self._layout.variable.shape, self._layout.blocks.sizes, strict=True)
        cells_per_block = max(1, self.n_missing // math.prod(-(-n // size) for n, size in extents))

        def count(key: Any, *_: Any) -> None:
            if BLOCK_KEY in str(key):
                progress(cells_per_block)

        with threads(1), Callback(posttask=count), dask.config.set(num_workers=n_threads):
            yield

    def close(self) -> None:
        self.grid.close()


def _describe_slices(layout: GridLayout, slices: str) -> str:
    """Return how fields are predicted from each other, with the sources of a few."""
    if layout.settings.background is None:
        return f"Each {slices} is filled from itself alone."
    largest = np.argsort(-layout.cells_to_fill.ravel(), kind="stable")[:_MAX_LISTED]
    lines = [(layout.label_slice(int(k)), layout.list_sources(int(k))) for k in np.sort(largest)]
    sources = " ".join(f"{label}: {names}." for label, names in lines if names)
    return f"{layout.settings.background.describe(slices)} Slices that weigh most: {sources}"


def _by_dimension(name: str, value: Any, example: int) -> dict[str, Any]:
    """Return an option that has a value for each dimension."""
    if not isinstance(value, Mapping):
        raise InputError(
            "{option} of a field needs a dimension, got {value!r}; write {example}",
            option=argument(name), value=value,
            example=Message(f"--{name} lon={example}", f"{name}={{'lon': {example}}}"),
        )  # fmt: skip
    return {str(dim): number for dim, number in value.items()}
