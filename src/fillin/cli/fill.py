"""`fillin fill`: fill the missing values of a file."""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fillin.cli.options import THREADS_HELP, positive
from fillin.errors import InputError
from fillin.filling.grid.sources import GRID_FORMATS
from fillin.filling.plan import make_plan
from fillin.runtime import progress
from fillin.tabular.readers import TABLE_FORMATS

if TYPE_CHECKING:
    from fillin.warp import Bounds

EXAMPLES = """\
  fillin fill river.csv                          detects the time and the missing values; writes river.filled.csv
  fillin fill river.csv --report                 and an HTML report with hold-out scores
  fillin fill stations.csv --by station          a series for each station; stations inform each other
  fillin fill stations.csv --by station --station-at lon,lat     near ones more, by their distance
  fillin fill plant.csv --y flow --covariate rain     rain informs, but is not filled
  fillin fill log.csv --x depth --y sand --y clay     names the columns
  fillin fill river.csv --every 1d --until 2027-01-31     every day, and a forecast beyond the end
  fillin fill river.csv --at locations.csv       also at the locations of another file
  fillin fill shares.csv --bounds 0:1            intervals stay in 0 … 1; positive values: --bounds 0:
  fillin fill lab.csv --y-err sigma              errors of the observed values, as standard deviations
  fillin fill wind.csv --x angle --period 360    a periodic coordinate
  fillin fill log.csv --max-gap 6h               longer gaps stay missing; --max-std 0.5: values too uncertain
  fillin fill log.csv --draws 20                 twenty completed copies, for multiple imputation
  fillin fill noaa.csv --na -999.99              a value that means missing
  fillin fill wells.csv --x lon --x lat --y nitrate --grid 0.1    scattered points, and a map: wells.grid.nc
  fillin fill wells.csv --x lon --x lat --x depth --y nitrate --at new.csv     in three coordinates, at new locations
  fillin fill people.csv                         no column orders the rows: filled from similar rows
  fillin fill people.csv --as table --y age --y job    declares that, and the columns to fill
  fillin fill houses.csv --target price          one column from all others, where it is missing
  fillin fill wine.csv --target kind --class kind      its numbers are codes of classes: probabilities, no mean
  fillin fill sst.nc                             missing cells of a field, from all times; writes sst.filled.nc
  fillin fill sst.nc --alone                     each time from itself only
  fillin fill sst.zarr --var sst --over lat,lon --mask sea     only where sea is not 0
  fillin fill big.nc --chunks lat=500,lon=500    in blocks: larger than memory, on a dask cluster if there is one
  fillin fill image.npy                          an array with NaN; writes image.filled.npz

A file is a series if it has a column of dates or times, or one of numbers that only rise or only fall (within each
--by group). Every row, column and cell is kept as it is. For each filled column NAME there are four more: NAME_filled
(the observed value, or the predicted mean), NAME_std (its standard deviation; 0 where observed), and the interval from
NAME_low to NAME_high, which contains a new observation with probability 95 % (--level). The figure is
river.filled.png.

With two or more --x the rows are points, in any order: numbers, or times. Missing values get the same four columns from
the observed points around them. --grid also predicts a map over the range of the points: wells.grid.nc has NAME,
NAME_std, NAME_low and NAME_high on multiples of the step, and wells.filled.png draws it.

Any other file is a table: networks are trained on it (about a minute for a thousand rows) and fill every missing
value from the other cells of its row and from similar rows. Numbers and dates get the same four columns (NAME_std of
a date is in days), classes two: NAME_filled and NAME_probability, 1 where observed. Empty columns stay empty.

NetCDF and Zarr keep all that is in them and get the same four as variables. A field spans latitude and longitude (or
the dimensions --over). Slices along the others, such as time, inform each other where held-out cells show that it helps
(not with --alone). A cell that is missing in every slice is taken for land and stays missing. For a NumPy array the
output has four arrays: filled, std, low, high.
"""


_OPTIONS = {
    "roles of columns (detected where not given)": {
        "--x COLUMN": "location of each row: times or numbers (repeatable: points in several coordinates)",
        "--y COLUMN": "column to fill (repeatable)",
        "--target COLUMN": "tables: fill this column alone, from the others",
        "--class COLUMN": "tables: its numbers are codes of classes (repeatable)",
        "--number COLUMN": "tables: read it as numbers (repeatable)",
        "--by COLUMN": "column that identifies the series, or sets of points (repeatable)",
        "--covariate COLUMN": "series: informs, but is not filled (default: all numbers; repeatable)",
        "--station-at LON,LAT": "series: columns with the location of each --by station; near ones inform more",
        "--alone": "fill each column and group of series, or slice of a field, from itself only",
        "--as KIND": "series or table",
        "--na TEXT": "further text for a missing value (repeatable)",
        "--date-format FORMAT": "format of ambiguous dates: '%%d/%%m/%%Y'",
    },
    "new rows (missing values are filled anyway)": {
        "--at FILE": "table of locations, in a column named like x",
        "--every STEP": "in steps of 10min, 1h, 1d, 1w, 1mo, 1y; for numbers 0.5",
        "--until LOCATION": "location of the last new row (default: the last row)",
        "--grid [NAME=]STEP": "several --x: also a map, FILE.grid.nc: 0.1, or lon=0.1 (repeatable)",
    },
    "fields and arrays": {
        "--var NAME": "variable to fill (default: the only one with missing cells)",
        "--over DIM,DIM": "dimensions of a field: lat,lon; for arrays 0,1",
        "--mask NAME|FILE": "variable or file; cells where it is 0 stay missing",
        "--chunks DIM=N,…": "fill in blocks of this size, with dask",
        "--halo CELLS": "context cells around a block (default: as many as needed)",
        "--keep-always-missing": "cells missing in every slice are land (default)",
        "--fill-always-missing": "fill these cells too",
    },
    "properties of the values": {
        "--bounds [NAME=]LOW:HIGH": "range of the values, of column NAME or of all; below 0: --bounds=-5:5",
        "--y-err COLUMN": "column with standard deviations of the errors of y",
        "--period P": "period of x: 360, 24h for times; for fields and several --x lon=360",
        "--level SHARE": "coverage of the intervals (default: 0.95)",
        "--max-gap LENGTH": "series: leave longer gaps missing: 3h, 2d; for numbers 0.5",
        "--max-std STD": "series, points: leave values missing whose std is larger",
        "--draws M": "series: add M completed copies, drawn jointly: NAME_draw1 …",
    },
    "model": {
        "--model NAME|FOLDER": "default by dimensions: sheet, sheet-2d or radial",
        "--seed SEED": "seed of hold-out, draws, and networks of tables (default: 0)",
    },
}  # by group; all are options of `make_plan`, and each kind of data accepts some of them
_REPEATABLE = ("--x", "--y", "--grid", "--class", "--number", "--by", "--covariate", "--na", "--bounds", "--period")
_ARGUMENTS = {  # where Python calls it otherwise
    "--class": "classes", "--number": "numbers", "--as": "kind", "--keep-always-missing": "fill_always_missing",
}  # fmt: skip
_TYPES = {"--halo": int, "--level": float, "--seed": int, "--max-std": float, "--draws": int}


def add_arguments(command: argparse.ArgumentParser) -> None:
    formats = f"a series or table ({', '.join(TABLE_FORMATS)}), a field or array ({', '.join(GRID_FORMATS)})"
    command.add_argument("file", metavar="FILE", help=formats)
    names = []
    for title, options in _OPTIONS.items():
        group = command.add_argument_group(title)
        flags = group.add_mutually_exclusive_group() if "--keep-always-missing" in options else group
        for option, text in options.items():
            flag, _, metavar = option.partition(" ")
            names.append(_ARGUMENTS.get(flag, flag[2:].replace("-", "_")))
            if not metavar:
                action = "store_false" if flag.startswith("--keep") else "store_true"
                flags.add_argument(flag, dest=names[-1], action=action, default=False, help=text)
                continue
            action = "append" if flag in _REPEATABLE else "store"
            type_ = _TYPES.get(flag, str)
            group.add_argument(flag, dest=names[-1], metavar=metavar, action=action, type=type_, help=text)
    out = command.add_argument_group("output")
    out.add_argument("-o", "--out", metavar="FILE", help="output file (default: NAME.filled.csv beside NAME.csv)")
    out.add_argument("--force", action="store_true", help="replace existing files; never the input")
    out.add_argument("--no-figure", dest="figure", action="store_false", help="leave out NAME.filled.png")
    out.add_argument("--no-picture", dest="figure", action="store_false", help=argparse.SUPPRESS)  # its name in 0.1
    out.add_argument("--report", action="store_true", help="write NAME.filled.html too")
    command.add_argument("--threads", type=positive, metavar="N", help=THREADS_HELP)
    command.set_defaults(level=0.95, seed=0, plan_options=names)


def run(arguments: argparse.Namespace) -> None:
    options = {name: value for name in arguments.plan_options if (value := getattr(arguments, name)) is not None}
    for name, parse in _PARSERS.items():
        if name in options:
            options[name] = parse(options[name])
    extra = {"figure": ".png"} if arguments.figure else {}
    extra |= {"report": ".html"} if arguments.report else {}
    execute(make_plan(Path(arguments.file), options), arguments, [Path(arguments.file)], extra)


def _parse_bounds(text: str) -> "tuple[str, Bounds]":
    """Return the column, or "" for all, and its bounds.

    >>> _parse_bounds("0:"), _parse_bounds("share=0:1")
    (('', (0.0, None)), ('share', (0.0, 1.0)))
    """
    name, _, limits = text.rpartition("=")
    low, colon, high = limits.partition(":")
    try:
        bounds = float(low) if low.strip() else None, float(high) if high.strip() else None
    except ValueError:
        colon, bounds = "", (None, None)
    if not colon or bounds == (None, None) or any(limit != limit for limit in bounds):
        raise InputError(f"--bounds: {text!r} is no range; write 0: or 0:1 or :100, for one column NAME=0:1")
    return name.strip(), bounds


def _parse_chunk(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not size.strip().isdigit() or int(size) < 1:
        raise InputError(f"--chunks: {text!r} is not the size of a dimension; write lat=200,lon=200")
    return name.strip(), int(size)


def _parse_periods(texts: list[str]) -> Any:
    """Return the period of a series as it is written, or those of dimensions by name: lon=360."""
    pairs = [text.partition("=") for text in texts]
    if not any(equals for _, equals, _ in pairs):
        if len(texts) > 1:
            raise InputError(f"--period: a series has one period, got {', '.join(texts)}")
        return texts[0]
    try:
        return {name.strip(): float(value) for name, _, value in pairs}
    except ValueError:
        raise InputError(
            f"--period: {', '.join(texts)} does not name a dimension and its period; write lon=360"
        ) from None


def _parse_steps(texts: list[str]) -> Any:
    """Return the step of a map as it is written, or those of coordinates by name.

    >>> _parse_steps(["0.1"]), _parse_steps(["lon=0.1", "day=1d"])
    ('0.1', {'lon': '0.1', 'day': '1d'})
    """
    pairs = [part.partition("=") for text in texts for part in text.split(",")]
    if len(pairs) == 1 and not pairs[0][1]:
        return texts[0]
    if not all(name.strip() and step.strip() for name, _, step in pairs):
        raise InputError(
            f"--grid: {', '.join(texts)} is not one step, nor steps by name; write 0.1, or lon=0.1,lat=0.2"
        )
    return {name.strip(): step.strip() for name, _, step in pairs}


_PARSERS = {  # of options that are written in another way than in Python
    "at": Path,
    "station_at": lambda text: [name.strip() for name in text.split(",") if name.strip()],
    "over": lambda text: [dim.strip() for dim in text.split(",") if dim.strip()],
    "chunks": lambda text: dict(_parse_chunk(part) for part in text.split(",")),
    "bounds": lambda texts: dict(map(_parse_bounds, texts)),
    "period": _parse_periods,
    "grid": _parse_steps,
}


def execute(plan: Any, arguments: argparse.Namespace, sources: Sequence[Any], extra: Mapping[str, str]) -> None:
    """Run a plan and write its outputs beside the input: the filled data, and the `extra` files of these suffixes."""
    import torch

    from fillin.filling.prediction import Outputs

    with closing(plan):
        print(plan.summary)
        for note in plan.notes:
            print(f"note: {note.shell}")
        if not plan.n_missing:
            print(f"{plan.nothing_to_fill}: nothing was done")
            return
        default = sources[0].with_name(f"{sources[0].stem}.{plan.marker}{plan.suffix}")
        outputs = Outputs.choose(sources, arguments.out, default, {**plan.extra_files, **extra}, arguments.force)
        model, scored = plan.load_model(), plan.prints_scores or "report" in outputs.extra
        n_steps = plan.n_steps + (plan.n_holdout_steps if scored else 0)
        with (
            progress("fill", n_steps, delay=1.0) as tick,
            plan.parallel(arguments.threads or torch.get_num_threads(), tick),
        ):
            prediction = plan.run(model, tick)
            remarks = plan.explain_result(prediction)
            prediction = plan.write(outputs, prediction)
            scores = plan.holdout(model, prediction, tick) if scored else []
        draws = {"figure", "report"} & set(outputs.extra)
        figure: Any = plan.figure(prediction) if draws else None  # the data are safe now
        if "figure" in outputs.extra:
            from fillin.plots import save

            save(figure, outputs.extra["figure"])
        if "report" in outputs.extra:
            from fillin.filling.report import render_report

            html = render_report(plan, figure, scores, arguments.command_line)
            outputs.write(outputs.extra["report"], lambda path: path.write_text(html, encoding="utf-8"))
        for remark in remarks:
            print(remark)
        if plan.prints_scores and scores:
            print(plan.explain_holdout(scores))
    print("wrote " + " ".join(str(path) for path in outputs.paths))
