"""Series that inform each other: the columns of a table, or of its groups, over common locations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from fillin.filling.prediction import NumericPrediction
from fillin.filling.series.infer_roles import NewRows, SeriesRoles
from fillin.runtime import Tick
from fillin.tabular.table import TypedColumn

if TYPE_CHECKING:
    from fillin.inference.sheets import SheetContext
    from fillin.inference.spatial import Stations
    from fillin.models.sheet import Sheet
    from fillin.predictive import GaussianMixture
    from fillin.warp import Bounds, BoundsWarp

MAX_SHEET_CELLS = 30_000_000  # of a sheet; larger ones are filled column by column
_NOWHERE = -1
_GAIN = 0.98  # of errors, from which on the most informative columns are named


@dataclass(frozen=True, eq=False)
class SeriesSheet:
    """Values y [n d] over locations x [n], NaN where missing. Column j of the sheet is a column of one group; `rows`
    are the rows of the table that its cells belong to (−1: none). Columns that only inform have no queries."""

    names: list[tuple[str, str]]  # column and group
    x: Float[ndarray, "n"]
    y: Float[ndarray, "n d"]
    error: Float[ndarray, "n d"] | None
    rows: Int[ndarray, "n d"]
    queried: Bool[ndarray, "n d"]
    bounds: "list[Bounds | None]"
    period: float = 0.0
    stations: "Stations | None" = None

    def predict(
        self, model: "Sheet", queried: Bool[ndarray, "n d"], tick: Tick = lambda done: None
    ) -> "list[GaussianMixture | None]":
        """Predict the queried cells of each column, in the order of the rows of the sheet."""
        context, queried, warps = self._context(model, queried)
        return self._unwarp(context.predict(queried, tick=tick), warps)

    def _context(
        self, model: "Sheet", queried: Bool[ndarray, "n d"]
    ) -> "tuple[SheetContext, Bool[ndarray, 'm d'], list[BoundsWarp | None]]":
        """Return the context of the columns, transformed where they have bounds, the queries, and the transforms."""
        from fillin.inference.sheets import SheetContext
        from fillin.warp import BoundsWarp

        y, error, warps = self.y.copy(), None if self.error is None else self.error.copy(), []
        for j, limits in enumerate(self.bounds):
            seen = ~np.isnan(y[:, j])
            # one transform of all stations, whose levels are compared
            like = [j] if self.stations is None else np.flatnonzero(self.stations.variable == self.stations.variable[j])
            values = self.y[:, like][~np.isnan(self.y[:, like])]
            warp = BoundsWarp.fit(values, limits) if limits is not None and len(values) else None
            if warp is not None:
                if error is not None:
                    error[seen, j] *= warp.slope(y[seen, j])
                y[seen, j] = warp.forward(y[seen, j])
            warps.append(warp)
        x = self.x
        if self.period:  # one period away is here too
            x = np.concatenate([x % self.period + shift for shift in (0, -self.period, self.period)])
            y, error = np.tile(y, (3, 1)), None if error is None else np.tile(error, (3, 1))
            queried = np.concatenate([queried, np.zeros((2 * len(queried), queried.shape[1]), dtype=bool)])
        return SheetContext(model, x, y, error, self.stations), queried, warps

    @staticmethod
    def _unwarp(
        found: "list[GaussianMixture | None]", warps: "list[BoundsWarp | None]"
    ) -> "list[GaussianMixture | None]":
        return [
            mixture if mixture is None or warp is None else mixture.transformed(warp)
            for mixture, warp in zip(found, warps, strict=True)
        ]

    def describe_sources(self) -> list[str]:
        """Return a sentence for each filled column: from which others it is predicted, and what they gain."""
        from fillin.inference.sheet_sources import find_sources

        def name(j: int) -> str:
            column, group = self.names[j]
            return f"{column} of {group}" if group else column

        lines = []
        distance = None if self.stations is None else self.stations.distances()

        def far(j: int, k: int) -> str:
            if distance is None or self.stations is None:
                return ""
            return f", {self.stations.format_distance(distance[j, k])}"

        for source in find_sources(self.x, self.y, self.queried, self.stations):
            gains = source.joint < _GAIN * source.alone  # else the others do not matter
            shares = ", ".join(f"{name(j)} ({share:.0%}{far(source.column, j)})" for j, share in source.shares.items())
            shares = shares if gains else ""
            if source.alone == np.inf:
                lines.append(
                    f"{name(source.column)}: hardly observed, predicted from the stations around it: {shares}."
                )
                continue
            lines.append(
                f"{name(source.column)}: in its gaps the error is about {source.alone:.2f} of its standard deviation "
                f"by interpolation, and {source.joint:.2f} with the other columns"
                + (f"; most informative: {shares}." if shares else ".")
            )
        return lines

    def fill(
        self, model: "Sheet", level: float, tick: Tick, draws: int = 0, seed: int = 0
    ) -> dict[str, list[NumericPrediction]]:
        """Predict the missing values of each column, with the interval of coverage `level`, and draw as many values of
        all of them jointly."""
        context, queried, warps = self._context(model, self.queried)
        mixtures = self._unwarp(context.predict(queried, tick=tick), warps)
        scores = context.draw_scores(queried, draws, seed) if draws else [None] * len(mixtures)
        parts: dict[str, list[NumericPrediction]] = {}
        for j, (mixture, score) in enumerate(zip(mixtures, scores, strict=True)):
            if mixture is not None:
                quantiles = (mixture.quantile(q) for q in (0.5 - level / 2, 0.5 + level / 2, 0.25, 0.75))
                rows = self.rows[self.queried[:, j], j]
                samples = None if score is None else mixture.draw_at(score).T
                part = NumericPrediction(rows, *mixture.moments(), *quantiles, samples)
                parts.setdefault(self.names[j][0], []).append(part)
        return parts

    def hidden(self, column: int, held_out: Bool[ndarray, "n"]) -> "SeriesSheet":
        """Return the sheet without some observed values of a column."""
        y = self.y.copy()
        y[held_out, column] = np.nan
        return replace(self, y=y)

    def select(self, rows: Int[ndarray, "m"]) -> "SeriesSheet":
        """Return the sheet restricted to some of its rows."""
        error = None if self.error is None else self.error[rows]
        return replace(
            self, x=self.x[rows], y=self.y[rows], error=error, rows=self.rows[rows], queried=self.queried[rows]
        )


def make_sheets(
    roles: SeriesRoles, new: NewRows, bounds: "dict[str, Bounds]", period: float, alone: bool
) -> list[SeriesSheet]:
    """Return the sheet of all columns and groups; with `alone`, or where it would be too large, one for each of them.

    Rows of several groups at one location are one row of the sheet, the k-th of one group beside the k-th of others.
    """
    x, new_x = roles.coordinates(roles.x.values), roles.coordinates(new.x)
    places, numbers = [], []  # of all rows of each group, and their rows in the table
    for number, group in enumerate(roles.groups):
        added = np.flatnonzero(new.group == number)
        places.append(np.concatenate([x[group.rows], new_x[added]]))
        numbers.append(np.concatenate([group.rows, roles.table.n_rows + added]))
    at, row_of = _align(places)
    columns = [*roles.y, *([] if alone else roles.informing)]
    filled = {column.name for column in roles.y}
    if alone or len(at) * len(columns) * len(roles.groups) > MAX_SHEET_CELLS:
        return [
            _make_sheet(roles, [column], [number], *_align([places[number]]), numbers, filled, bounds, period)
            for column in roles.y
            for number in range(len(roles.groups))
        ]
    every = list(range(len(roles.groups)))
    return [_make_sheet(roles, columns, every, at, row_of, numbers, filled, bounds, period)]


def _align(places: Sequence[ndarray]) -> tuple[Float[ndarray, "n"], list[Int[ndarray, "_"]]]:
    """Return the locations of all groups in order, and for each group the row of each of its points among them."""
    keys = []
    for x in places:
        order = np.argsort(x, kind="stable")
        first = np.searchsorted(x[order], x[order])
        repeat = np.empty(len(x), dtype=int)
        repeat[order] = np.arange(len(x)) - first  # 0 for the first point at its location
        keys.append(np.stack([x, repeat], 1))
    distinct, inverse = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    ends = np.cumsum([len(x) for x in places])[:-1]
    return distinct[:, 0], np.split(inverse.ravel(), ends)


def _make_sheet(
    roles: SeriesRoles,
    columns: Sequence[TypedColumn],
    groups: Sequence[int],
    at: Float[ndarray, "n"],
    row_of: list[Int[ndarray, "_"]],
    numbers: list[Int[ndarray, "_"]],
    filled: set[str],
    bounds: "dict[str, Bounds]",
    period: float,
) -> SeriesSheet:
    names, limits, shape = [], [], (len(at), len(columns) * len(groups))
    y, rows = np.full(shape, np.nan), np.full(shape, _NOWHERE)
    error = None if roles.y_err is None else np.zeros(shape)
    for column in columns:
        for number, places in zip(groups, row_of, strict=True):
            j, table_rows = len(names), numbers[number]
            names.append((column.name, roles.groups[number].name))
            limits.append(bounds.get(column.name))
            old = table_rows < roles.table.n_rows
            rows[places, j] = table_rows
            values = np.where(column.missing, np.nan, column.values)[table_rows[old]]
            y[places[old], j] = values
            if error is not None and roles.y_err is not None and column.name in filled:
                error[places[old], j] = np.nan_to_num(roles.y_err.values[table_rows[old]])
    observed = ~np.isnan(y)
    targets, stations = np.array([name in filled for name, _ in names]), None
    if roles.by_distance and roles.locations_of_stations is not None and len(groups) > 1:
        variable = np.repeat(np.arange(len(columns)), len(groups))
        stations = roles.locations_of_stations.stations(np.tile(groups, len(columns)), variable)
    targets &= observed.any(0) if stations is None else True
    queried = (rows != _NOWHERE) & ~observed & targets
    return SeriesSheet(names, at, y, error, rows, queried, limits, period, stations)
