"""Filling of missing values in series, scattered points, tables, fields and images: `fillin.fill`.

The package is not called `fill`, because `fillin.fill` is the public function.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fillin.filling.diagnostics import warn_doubtful
from fillin.filling.plan import make_plan

if TYPE_CHECKING:
    from fillin.models import Process
    from fillin.warp import Bounds


def fill(
    data: Any,
    *,
    x: str | Sequence[str] | None = None,
    y: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
    at: Any = None,
    every: str | float | None = None,
    until: Any = None,
    grid: "str | float | Mapping[str, str | float] | None" = None,
    bounds: "Bounds | Mapping[str, Bounds] | None" = None,
    y_err: str | None = None,
    alone: bool = False,
    covariate: str | Sequence[str] | None = None,
    station_at: Sequence[str] | None = None,
    max_gap: str | float | None = None,
    max_std: float | None = None,
    draws: int | None = None,
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
    """Predict missing values of a series, scattered points, a table, a field or an array, with their uncertainty.

    A frame is a *series* if a column orders its rows: times, or numbers that only rise or only fall. A pretrained model
    then fills its columns, each from its own observed values and from those of the other columns and groups. Any other
    frame is a *table*: networks are trained on it, and fill each missing cell from the other cells of its row and from
    similar rows. With two or more columns `x` its rows are *points*, in any order, and a pretrained model fills each
    column from the observed points around every missing one. A *field* (NumPy, xarray) is filled by a pretrained model
    from the observed cells around each missing one, and from the same cell in other slices, such as times.

    Parameters
    ----------
    data : DataFrame, Table, ndarray, Dataset or DataArray
        A frame of pandas, polars or Arrow, an array of NumPy, or an object of xarray. NaN and null are missing.
    x : str or sequence of str, optional
        Series: the column of times or numbers that locates each row. A pandas index is a column too, unless it is
        unnamed and holds integers. By default it is detected. Points: two or more such columns, their coordinates.
    y : str or sequence of str, optional
        Columns to fill. By default all that have missing values.
    by : str or sequence of str, optional
        Series and points: columns that identify the series, or the sets of points, which are filled separately.
    at : DataFrame or array-like, optional
        Series and points: locations of rows to add.
    every : str or float, optional
        Series: step of rows to add, such as 0.5, "1h" or "1mo".
    until : str or float, optional
        Series: location of the last row to add with `every`, which may lie beyond the end. By default the last one.
    grid : float, str or dict of str to float or str, optional
        Points: step of a regular grid, on which a map is predicted too; one for all coordinates or one for each, such
        as {"lon": 0.1, "lat": 0.2} or {"day": "1d"}.
    bounds : (float, float) or dict of str to (float, float), optional
        Lower and upper bound of the values, None for no bound; one pair, or a pair for each column.
    y_err : str, optional
        Series and points: column with the standard deviations of the errors of y.
    alone : bool, default False
        Series: fill each column, and each group, from its own observed values only. Fields: fill each slice from
        itself only.
    covariate : str or sequence of str, optional
        Series: columns that inform but are not filled. By default all other columns of numbers inform.
    station_at : sequence of str, optional
        Series with `by`: the two or three columns with the location of each station, such as ("lon", "lat"). Stations
        then inform each other by their distance too, and one that is never observed is predicted from those around it.
    max_gap : str or float, optional
        Series: longest gap that is filled, such as "6h" or 0.5, from the observation before it to the one after it, or
        beyond the ends from the nearest one. Longer gaps stay missing.
    max_std : float, optional
        Series and points: largest standard deviation of a value that is filled. Others stay missing.
    draws : int, optional
        Series: number of completed copies, for multiple imputation. Copy k has the columns NAME_drawK: observed values,
        and values that are drawn jointly for all missing cells, across rows and columns.
    period : float, str or dict of str to float, optional
        Series: period of a periodic x. Fields and points: the period of each periodic dimension or coordinate, such as
        {"lon": 360}.
    level : float, default 0.95
        Coverage of the prediction intervals, between 0 and 1.
    kind : {"series", "table"}, optional
        Kind of a frame. By default it is detected.
    na : collection, default ()
        Further values that stand for missing ones.
    var : str, optional
        Fields: variable to fill. By default the only one that has missing cells.
    over : str, sequence of str or sequence of int, optional
        Fields: one to three dimensions of a field. By default latitude and longitude, or the last two. Slices along
        the other dimensions, such as time, inform each other where that helps.
    mask : array-like or str, optional
        Fields: array, variable or file that is 0 where missing cells stay missing.
    fill_always_missing : bool, default False
        Fields: fill cells that are missing in every slice, which otherwise count as land.
    chunks : dict of str to int, optional
        Fields: block size along dimensions. The result is then lazy, as it is for dask arrays.
    halo : int, optional
        Fields: number of cells that a block sees beyond its own. By default as many as it needs.
    model : str or Process, optional
        Series, points and fields: name of pretrained weights, folder of a model, or the model. By default the
        pretrained one for the number of dimensions.
    target : str, optional
        Tables: the only column to fill; networks are then trained to predict it alone.
    classes : str or sequence of str, optional
        Tables: columns whose numbers are codes of classes.
    numbers : str or sequence of str, optional
        Tables: columns whose text or categories are numbers.
    seed : int, default 0
        Tables: seed of the networks. Series: seed of the draws.

    Returns
    -------
    DataFrame, Table, Dataset, FilledArray or FilledPoints
        A frame of the same kind with, for each filled column NAME of numbers or dates, NAME_filled, NAME_std (0 where
        observed, of dates in days), NAME_low and NAME_high; for classes NAME_filled and NAME_probability. The `attrs`
        of a pandas frame describe how it was read. For a field, a Dataset with these variables. For an array, the
        arrays `filled`, `std`, `low` and `high`. With `grid` a named tuple: the `frame`, and the `map`, a Dataset with
        NAME, NAME_std, NAME_low and NAME_high over the coordinates. Data without missing values come back as they are.

    Raises
    ------
    InputError
        If an option does not fit the data, or the data cannot be read. The message names the location and a remedy.
    InputTypeError
        If `data` is of another type.

    Warns
    -----
    FillinWarning
        If another reading of the data is as likely, such as -999 as a missing value.

    Examples
    --------
    >>> import fillin, pandas as pd
    >>> model = fillin.create("filler", size="small", layers=1)
    >>> frame = pd.DataFrame({"day": [1, 2, 3, 4], "level": [1.0, None, 3.0, 4.0]})
    >>> list(fillin.fill(frame, model=model).columns)
    ['day', 'level', 'level_filled', 'level_std', 'level_low', 'level_high']
    >>> forecast = fillin.fill(frame, every=1, until=6, bounds=(0, None), model=model)
    >>> forecast["day"].tolist()
    [1, 2, 3, 4, 5, 6]
    >>> wells = pd.DataFrame({"lon": [8, 9, 8.5], "lat": [50, 52, 51], "nitrate": [3.0, 9.0, None]})
    >>> filled, grid = fillin.fill(wells, x=["lon", "lat"], y="nitrate", grid=0.5)
    >>> filled["nitrate_filled"].isna().tolist(), dict(grid.sizes)
    ([False, False, False], {'lat': 5, 'lon': 3})
    """
    plan = make_plan(data, {name: value for name, value in locals().items() if name != "data"})
    warn_doubtful(plan.notes)
    return plan.result(plan.run(plan.load_model() if plan.n_missing else None))
