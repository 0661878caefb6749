"""`fillin.fill`: what has gaps in, the same filled out. Tables here, arrays and fields in `fields`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fillin.errors import InputError, argument
from fillin.filling.diagnostics import Note, list_names, warn_doubtful
from fillin.filling.series.infer_roles import SeriesRoles, infer_roles
from fillin.filling.series.new_rows import NewRows, no_new_rows, rows_by_step, rows_from_table
from fillin.filling.series.run import Asked, Series, check_values, fill_all, series_of
from fillin.runtime import require
from fillin.tabular.dates import SECOND, parse_duration
from fillin.tabular.table import TypedTable

if TYPE_CHECKING:
    from fillin.filling.bounds import Bounds
    from fillin.models import Process


@dataclass(frozen=True)
class Plan:
    """A table understood, the places that are asked for, and how to fill them."""

    roles: SeriesRoles
    new: NewRows
    asked: Asked
    series: list[Series]

    @property
    def places(self) -> int:
        """How many are to be filled."""
        return sum(len(one.at) for one in self.series)

    @property
    def notes(self) -> list[Note]:
        """What a user should know."""
        empty = [
            f"{column.name} of {group.name}"
            for column in self.roles.y
            for group in self.roles.groups
            if column.missing[group.rows].all()
        ]
        unknown = Note(f"nothing is known of {list_names(empty)}: left blank", doubtful=True)
        return self.roles.notes + ([unknown] if empty else [])


def plan(
    table: TypedTable,
    *,
    x: str | None = None,
    y: Sequence[str] = (),
    by: Sequence[str] = (),
    kind: str | None = None,
    at: TypedTable | None = None,
    every: str | float | None = None,
    until: str | float | None = None,
    bounds: "Bounds | Mapping[str, Bounds] | None" = None,
    y_err: str | None = None,
    period: str | float | None = None,
    level: float = 0.95,
) -> Plan:
    require("scipy")
    from fillin.filling.bounds import bounds_of

    if until is not None and every is None:
        raise InputError(argument("until") + " needs " + argument("every") + ": in what steps to go there")
    if at is not None and every is not None:
        raise InputError(argument("at") + " and " + argument("every") + " both say where; give one of them")
    roles = infer_roles(table, x, y, by, y_err, kind, new=at is not None or every is not None)
    new = no_new_rows(roles)
    if every is not None:
        new = rows_by_step(roles, str(every), None if until is None else str(until))
    elif at is not None:
        new = rows_from_table(roles, at)
    asked = Asked(level, bounds_of([column.name for column in roles.y], bounds), _period(period, roles))
    check_values(roles, asked)
    return Plan(roles, new, asked, series_of(roles, new))


def _period(period: str | float | None, roles: SeriesRoles) -> float:
    if period is None:
        return 0.0
    if roles.x.clock is not None:
        return parse_duration(str(period), argument("period")) / SECOND
    try:
        number = float(period)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        why = f": {period!r} is not the length of a turn of '{roles.x.name}', such as 360"
        raise InputError(argument("period") + why)
    return number


def fill(
    data: Any,
    *,
    x: str | None = None,
    y: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
    at: Any = None,
    every: str | float | None = None,
    until: Any = None,
    bounds: "Bounds | Mapping[str, Bounds] | None" = None,
    y_err: str | None = None,
    period: "str | float | Mapping[str | int, float] | None" = None,
    level: float = 0.95,
    kind: str | None = None,
    na: Collection[Any] = (),
    var: str | None = None,
    over: "str | Sequence[str | int] | None" = None,
    mask: Any = None,
    fill_always_missing: bool = False,
    chunks: "Mapping[str | int, int] | None" = None,
    halo: int | None = None,
    model: "str | Process | None" = None,
    target: str | None = None,
    classes: str | Sequence[str] | None = None,
    numbers: str | Sequence[str] | None = None,
    seed: int = 0,
) -> Any:
    """The frame (pandas, polars, Arrow) with, for each column y that has blanks, y_filled, y_std, y_low and y_high.

    x is the column of times, or of numbers that only rise or only fall (a pandas index is a column too, but one of
    whole numbers without a name is taken for names of rows); without it the frame is looked at. `by` names what tells
    several series apart. New rows are added for `at` (places, or a frame of them) or `every` step (0.5, "1h", "1mo") up
    to `until`, beyond the end too. `bounds`, (low, high) or {column: (low, high)} with None for no limit, keep bands in
    a range. `y_err` names the known errors of y (standard deviations), `period` the length of a turn where x goes round
    in a circle. The band has the share `level` of what would be observed. What was known keeps its value, and its
    deviation is 0. `na` are values that mean a blank. What may have been meant otherwise is a warning; what was seen is
    in `attrs["fillin"]` of a frame of pandas.

    Where no column orders the rows, or with kind="table", networks are trained on the frame itself, and every blank is
    filled from the other cells of its row and from rows like it: of numbers and dates (deviations in days) as above, of
    classes as y_filled and y_probability. `y` names the columns to fill, `target` one that is told from the others (of
    which blanks are left). `classes` names columns whose numbers are codes of classes, `numbers` those whose text or
    categories are numbers; `bounds` hold here too; `seed` is that of the networks.

    An array comes back as four: filled, std, low, high. A Dataset comes back with them as variables of the one that has
    gaps, or of `var`; so does a DataArray, as a Dataset. A field spans the dimensions `over` (default: latitude and
    longitude, or the last two); the others, such as time, are filled slice by slice, and what is missing in every slice
    stays so unless `fill_always_missing`. Where `mask` is 0 nothing is filled. `period` is {"lon": 360} here. `chunks`,
    {"lat": 200}, or an array of dask's give a lazy result, in blocks that see `halo` cells around them.

    >>> import fillin, pandas as pd
    >>> model = fillin.create("filler", size="small", layers=1)
    >>> frame = pd.DataFrame({"day": [1, 2, 3, 4], "level": [1.0, None, 3.0, 4.0]})
    >>> list(fillin.fill(frame, model=model).columns)
    ['day', 'level', 'level_filled', 'level_std', 'level_low', 'level_high']
    """
    from fillin.filling.detect_index import is_table
    from fillin.filling.frames import read_frame
    from fillin.filling.table.api import fill_frame, refuse_series
    from fillin.inference.weights import default_weights, load_filler

    series = {"x": x, "by": by, "at": at, "every": every, "until": until, "y_err": y_err}
    told = {"target": target, "classes": list(_names(classes)), "numbers": list(_names(numbers))}
    columns = {**series, "y": y, "kind": kind, "target": target, "classes": classes, "numbers": numbers}
    field = {"var": var, "over": over, "mask": mask, "chunks": chunks, "halo": halo}
    if _is_field(data):
        _refuse("an array or a field", {**columns, "na": na or None})
        require("scipy")
        from fillin.filling.grid.api import fill_data

        return fill_data(
            data,
            **field,
            fill_always_missing=fill_always_missing,
            period=period,
            bounds=bounds,
            level=level,
            model=model,
        )
    _refuse("a table", {**field, "fill_always_missing": fill_always_missing or None})
    if isinstance(period, Mapping):
        raise InputError("period of a table is one number, the length of a turn of x, such as 360")
    frame = read_frame(data, na=na)
    if is_table(frame.table, x, _names(y), _names(by), kind, told, at is not None or every is not None):
        refuse_series(frame.table.name, {**series, "period": period, "model": model})
        return fill_frame(data, frame, y=_names(y), kind=kind, bounds=bounds, level=level, seed=seed, **told)
    places = None if at is None else _places(at, x)
    asked = plan(
        frame.table, x=x, y=_names(y), by=_names(by), kind=kind, at=places, every=every, until=until, bounds=bounds,
        y_err=y_err, period=period, level=level,
    )  # fmt: skip
    warn_doubtful(asked.notes)
    if not asked.roles.y:
        return data
    found = (
        fill_all(asked.series, load_filler(model or default_weights(1), 1, y_err is not None), asked.asked)
        if asked.places
        else {}
    )
    filled = frame.filled(asked.roles, asked.new, found)
    if hasattr(filled, "attrs"):  # of pandas: there is room for what was seen
        filled.attrs = {**data.attrs, "fillin": [asked.roles.summary, *map(str, asked.notes)]}
    return filled


def _is_field(data: Any) -> bool:
    """Asked without importing what reads fields."""
    own = {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(data).__mro__}
    return bool(own & {"numpy.ndarray", "xarray.Dataset", "xarray.DataArray"})


def _refuse(what: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"fill: {name}= does not apply to {what}; leave it out")


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def _places(at: Any, x: str | None) -> TypedTable:
    """Places given as a frame, or as what numpy makes a list of."""
    from fillin.filling.frames import read_frame

    if hasattr(at, "columns") or hasattr(at, "schema"):
        return read_frame(at, "at").table
    pandas = require("pandas")
    return read_frame(pandas.DataFrame({x or "at": pandas.Series(at)}), "at").table
