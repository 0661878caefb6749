"""Locations of the stations of a table: two or three columns that are constant for each group."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from fillin.errors import InputError, argument, option
from fillin.filling.diagnostics import Note, RowGroup
from fillin.inference.spatial import Stations
from fillin.inference.stations import MAX_STATIONS
from fillin.tabular.table import NUMBER, TypedColumn, TypedTable

_LONGITUDE = frozenset(["lon", "long", "lng", "longitude", "degrees_east"])
_LATITUDE = frozenset(["lat", "latitude", "degrees_north"])
_DEGREES = frozenset(["deg", "degree", "degrees", "°"])


@dataclass(frozen=True)
class StationLocations:
    """The location of each group: `values` of the columns `names`, of which `lon_lat` are longitude and latitude."""

    names: tuple[str, ...]
    values: Float[ndarray, "g k"]
    lon_lat: tuple[int, int] | None

    @property
    def distinct(self) -> bool:
        return len(np.unique(self.values, axis=0)) > 1

    def stations(self, groups: Sequence[int] | ndarray, variable: Int[ndarray, "d"]) -> Stations:
        """Return the stations of the columns of a sheet, from the group of each and the number of its variable."""
        values = self.values[np.asarray(groups)]
        if self.lon_lat is None:
            height = values[:, 2] if values.shape[1] == 3 else None
            return Stations(values[:, :2], variable, height)
        lon, lat = self.lon_lat
        rest = [k for k in range(values.shape[1]) if k not in self.lon_lat]
        return Stations.on_sphere(values[:, lon], values[:, lat], variable, values[:, rest[0]] if rest else None)

    @property
    def description(self) -> str:
        """A sentence of the report on what distances are."""
        names = ", ".join(f"'{name}'" for name in self.names)
        if self.lon_lat is None:
            return f"{names} locate the stations; distances are straight, in their unit."
        return f"{names} locate the stations; distances are along great circles, in km."


def find_lon_lat(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the positions of longitude and latitude among names, by words or units in them.

    >>> find_lon_lat(["lat", "lon"]), find_lon_lat(["Station Longitude", "Station Latitude"]), find_lon_lat(["x", "y"])
    ((1, 0), (0, 1), None)
    >>> find_lon_lat(["x [deg]", "y [deg]", "z"])
    (0, 1)
    """
    words = [{name.lower(), *re.split(r"[\s_\-.,;:/()\[\]]+", name.lower())} for name in names]
    whole = [name.lower() for name in names]

    def find(known: frozenset[str]) -> list[int]:
        return [
            k for k, part in enumerate(words) if part & known or any("degrees_" in w and w in whole[k] for w in known)
        ]

    lon, lat = find(_LONGITUDE), find(_LATITUDE)
    if len(lon) == 1 and len(lat) == 1 and lon != lat:
        return lon[0], lat[0]
    degrees = [k for k, part in enumerate(words) if part & _DEGREES]
    return (0, 1) if not lon and not lat and degrees[:2] == [0, 1] else None


def check_station_names(names: Sequence[str], by: Sequence[str], alone: bool) -> None:
    """Refuse locations of stations that cannot be used, before the table is read."""
    if not by:
        raise InputError(
            "{station_at} names the columns with the location of each station; name the column that identifies the "
            "station too: {by}",
            station_at=argument("station_at"), by=option("by", "COLUMN"),
        )  # fmt: skip
    if alone:
        raise InputError(
            "{alone} fills each station by itself, and with {station_at} stations inform each other; give one of them",
            alone=argument("alone"), station_at=argument("station_at"),
        )  # fmt: skip
    if len(names) not in (2, 3) or len(set(names)) < len(names):
        raise InputError(
            "{station_at} must name two or three different columns, such as lon,lat or lon,lat,elevation, got {names}",
            station_at=argument("station_at"), names=",".join(names),
        )  # fmt: skip


def read_locations(table: TypedTable, names: Sequence[str], groups: list[RowGroup]) -> StationLocations:
    """Read the location of each group, constant over its rows; empty cells do not count."""
    if len(groups) > MAX_STATIONS:
        raise InputError(
            "{table} has {count:,} stations, more than {most}; select those of one region, or leave out {option}",
            table=table.name, count=len(groups), most=MAX_STATIONS, option=argument("station_at"),
        )  # fmt: skip
    columns = [_check_column(table, table.column(name)) for name in names]
    lon_lat = find_lon_lat(names)
    values = np.empty((len(groups), len(columns)))
    for number, group in enumerate(groups):
        for k, column in enumerate(columns):
            known = group.rows[~column.missing[group.rows]]
            if not len(known):
                raise table.error_at(
                    int(group.rows[0]), column.name,
                    "the location of station '{station}' is missing in all its rows; fill it in, or remove it",
                    station=group.name,
                )  # fmt: skip
            values[number, k] = column.values[known[0]]
            other = known[column.values[known] != values[number, k]]
            if len(other):
                raise table.error_at(
                    int(other[0]), column.name,
                    "{here:g}, and {there:g} in {first}: station '{station}' has two locations; correct one, or if the "
                    "station moved, give the rows after that another name in {by}",
                    here=column.values[other[0]], there=values[number, k], first=table.row_label(int(known[0])),
                    station=group.name, by=option("by"),
                )  # fmt: skip
            limit = 360 if lon_lat is None or k == lon_lat[0] else 90
            if lon_lat is not None and k in lon_lat and not abs(values[number, k]) <= limit:
                raise table.error_at(
                    int(known[0]), column.name,
                    "{value:g} is no {noun} in degrees, which lies in −{limit} … {limit}; correct it, or if these are "
                    "coordinates on a plane, rename the columns to x and y",
                    value=values[number, k], noun="longitude" if k == lon_lat[0] else "latitude", limit=limit,
                )  # fmt: skip
    return StationLocations(tuple(names), values, lon_lat)


def note_locations(locations: StationLocations) -> list[Note]:
    """Return a note where locations say nothing."""
    if locations.distinct:
        return []
    reason = "there is only one station" if len(locations.values) == 1 else "all stations are at one location"
    return [Note(f"{reason}: distances are not used", doubtful=True)]


def _check_column(table: TypedTable, column: TypedColumn) -> TypedColumn:
    if column.kind != NUMBER:
        raise InputError(
            "{table}: column '{column}' has no numbers, and {station_at} needs coordinates such as 8.25",
            table=table.name, column=column.name, station_at=argument("station_at"),
        )  # fmt: skip
    if column.invalid is not None:
        raise table.error_at(column.invalid.row, column.name, column.invalid.message)
    return column
