"""`fillin fill`: a file with blanks in, the same file filled out."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fillin.cli.options import console, describe, positive

_EXAMPLES = """\
  fillin fill river.csv                          finds the time and the blanks by itself; writes river.filled.csv
  fillin fill river.csv --report                 and a page: how well it does on points hidden on purpose
  fillin fill stations.csv --by station          a series for each station
  fillin fill log.csv --x depth --y sand --y clay     says what is what
  fillin fill river.csv --every 1d --until 2027-01-31     every day, and a forecast beyond the end
  fillin fill river.csv --at wanted.csv          at the places of another file, too
  fillin fill shares.csv --bounds 0:1            no band leaves 0 … 1; counts and other positive values: --bounds 0:
  fillin fill lab.csv --y-err sigma              known errors of the values, as standard deviations
  fillin fill wind.csv --x angle --period 360    a coordinate that goes round
  fillin fill noaa.csv --na -999.99              what stands for a blank there
  fillin fill people.csv                         no column orders the rows: every blank from rows that are alike
  fillin fill people.csv --as table --y age --y job    says so, and which columns to fill
  fillin fill houses.csv --target price          one column from all the others, for the rows where it is blank
  fillin fill wine.csv --target kind --class kind      whose numbers 0, 1, 2 are codes: probabilities, not a mean
  fillin fill sst.nc                             missing cells of a field, each time on its own; writes sst.filled.nc
  fillin fill sst.zarr --var sst --over lat,lon --mask sea     says what is what; where sea is 0 nothing is filled
  fillin fill big.nc --chunks lat=500,lon=500    in blocks: larger than memory, on a dask cluster if there is one
  fillin fill image.npy                          an array with NaN; writes image.filled.npz

A file is a series if it has a column of dates or times, or one of numbers that only rise or only fall (within each
--by group). Every row, column and cell is kept as it is. For each filled column NAME there are four more: NAME_filled
(the value: the known one, or the expected one), NAME_std (its deviation; 0 where it was known), and the band from
NAME_low to NAME_high, which holds 95 % (--level) of what would be observed. A picture shows it: river.filled.png.

Any other file is a table: networks are trained on it (about a minute for a thousand rows) and fill every blank from the
other cells of its row, and from rows that are like it. Numbers and dates get the same four columns (NAME_std of a date
is in days), classes two: NAME_filled and NAME_probability, 1 where it was known. A column that is all blank stays so.

NetCDF and Zarr keep all that is in them and get the same four as variables. A field spans latitude and longitude (or
the dimensions --over); along the others, such as time, it is filled slice by slice, and a cell that is missing in every
slice is taken for land and stays missing. Of an array of NumPy the four are arrays: filled, std, low, high.
"""
_PATIENCE = 1.0  # seconds without a bar


def add(commands) -> None:
    command = describe(commands, "fill", "fill the blanks of a file, with honest error bars", _EXAMPLES)
    command.add_argument("file", metavar="FILE", help=".csv, .tsv, .txt, .parquet, .nc, .zarr, .npy or .npz")
    what = command.add_argument_group("what is what (found by itself where it is not said)")
    what.add_argument("--x", metavar="COLUMN", help="where each row belongs: times, or numbers")
    what.add_argument("--y", metavar="COLUMN", action="append", default=[], help="to be filled; may come again")
    what.add_argument("--target", metavar="COLUMN", help="of a table: fill this one alone, from the others")
    what.add_argument(
        "--class", dest="classes", metavar="COLUMN", action="append", default=[],
        help="of a table: its numbers are codes of classes; may come again",
    )  # fmt: skip
    what.add_argument(
        "--number", dest="numbers", metavar="COLUMN", action="append", default=[],
        help="of a table: to be read as numbers; may come again",
    )  # fmt: skip
    what.add_argument("--by", metavar="COLUMN", action="append", default=[], help="tells series apart; may come again")
    what.add_argument("--as", dest="kind", metavar="KIND", help="series or table")
    what.add_argument("--na", metavar="TEXT", action="append", default=[], help="stands for a blank; may come again")
    what.add_argument("--date-format", metavar="FORMAT", help="of dates that may be read in two ways: '%%d/%%m/%%Y'")
    where = command.add_argument_group("new places (blanks are filled anyway)")
    where.add_argument("--at", metavar="FILE", help="a table of places, in a column named as x is")
    where.add_argument("--every", metavar="STEP", help="in steps of 10min, 1h, 1d, 1w, 1mo, 1y; of numbers: 0.5")
    where.add_argument("--until", metavar="PLACE", help="how far steps go (default: the last place)")
    field = command.add_argument_group("fields and arrays (.nc, .zarr, .npy, .npz)")
    field.add_argument("--var", metavar="NAME", help="to be filled (default: the only one that has gaps)")
    field.add_argument("--over", metavar="DIM,DIM", help="what a field spans: lat,lon; of arrays by number: 0,1")
    field.add_argument("--mask", metavar="NAME|FILE", help="a variable: where it is 0, cells are left missing")
    always = field.add_mutually_exclusive_group()
    always.add_argument(
        "--keep-always-missing", action="store_true", help="what is missing in every slice is land (the default)"
    )
    always.add_argument("--fill-always-missing", action="store_true", help="it is not: fill it too")
    field.add_argument("--chunks", metavar="DIM=N,…", help="fill in blocks of so many cells, by dask")
    field.add_argument("--halo", type=int, metavar="CELLS", help="how far a block sees (default: as far as it needs)")
    how = command.add_argument_group("what is known of the values")
    how.add_argument(
        "--bounds",
        metavar="[NAME=]LOW:HIGH",
        action="append",
        default=[],
        help="their range, --bounds=-5:5 below 0; NAME: of one column",
    )
    how.add_argument("--y-err", metavar="COLUMN", help="standard deviations of the known values' errors")
    how.add_argument(
        "--period",
        metavar="P",
        action="append",
        default=[],
        help="x goes round: 360, 24h for times; of fields: lon=360",
    )
    how.add_argument("--level", type=float, default=0.95, metavar="SHARE", help="what the band holds (default: 0.95)")
    out = command.add_argument_group("output")
    out.add_argument("-o", "--out", metavar="FILE", help="where to (default: NAME.filled.csv beside NAME.csv)")
    out.add_argument("--force", action="store_true", help="replace files that exist; never the input")
    out.add_argument("--no-picture", dest="picture", action="store_false", help="leave out NAME.filled.png")
    out.add_argument("--report", action="store_true", help="write NAME.filled.html too")
    command.add_argument(
        "--model", metavar="NAME|FOLDER", help="what fills (default: curve, surface or radial, by the dimensions)"
    )
    seeds = "of what the report hides, and of a table's networks (default: 0)"
    command.add_argument("--seed", type=int, default=0, help=seeds)
    command.add_argument("--threads", type=positive, metavar="N", help="threads (default: as many as torch takes)")
    command.set_defaults(run=run)


TABLES = ("x", "y", "target", "classes", "numbers", "by", "kind", "na", "date_format", "at", "every", "until", "y_err")
FIELDS = ("var", "over", "mask", "keep_always_missing", "fill_always_missing", "chunks", "halo")


def run(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from fillin.errors import FillinError
    from fillin.filling.files import is_field

    path = Path(arguments.file)
    try:
        if is_field(path):
            from fillin.cli.fill_field import run_field

            refuse(arguments, TABLES, f"a field or an array ({path.suffix})")
            run_field(arguments, path)
        else:
            refuse(arguments, FIELDS, "a table")
            _run_table(arguments, path)
    except FillinError as error:
        raise FillinError(error.shell) from error  # in words of the command line


def refuse(arguments: argparse.Namespace, options: tuple[str, ...], what: str) -> None:
    """Options that mean nothing for such a file."""
    from fillin.errors import InputError, argument

    for name in options:
        if getattr(arguments, name) not in (None, False, []):
            raise InputError(argument(name) + f" does not apply to {what}; leave it out")


def _run_table(arguments: argparse.Namespace, path) -> None:
    from fillin.filling.detect_index import is_table
    from fillin.filling.files import read_table
    from fillin.filling.write import Outputs

    say = speaker()
    table = read_table(path, arguments.na, arguments.date_format)
    new = arguments.at is not None or arguments.every is not None
    told = {name: getattr(arguments, name) for name in ("target", "classes", "numbers")}
    if is_table(table.table, arguments.x, arguments.y, arguments.by, arguments.kind, told, new):
        from fillin.cli.fill_table import run_table

        return run_table(arguments, path, table, say)
    plan = _plan(arguments, table.table)
    say(plan.roles.summary + (f"; new places: {len(plan.new.x):,}" if len(plan.new.x) else ""))
    for note in [*table.notes, *(note.shell for note in plan.notes)]:
        say(f"note: {note}")
    if not plan.places:
        say(f"nothing is missing{', as it seems' if plan.notes else ''}: nothing was done")
        return
    outputs = Outputs.of(path, arguments.out, arguments.picture, arguments.report, arguments.force)
    _fill(arguments, table, plan, outputs)
    say("wrote " + " ".join(str(path) for path in outputs.paths))


def _plan(arguments: argparse.Namespace, table):
    from pathlib import Path

    from fillin.filling.api import plan
    from fillin.filling.files import read_table

    at = None if arguments.at is None else read_table(Path(arguments.at), arguments.na, arguments.date_format).table
    return plan(
        table, x=arguments.x, y=arguments.y, by=arguments.by, kind=arguments.kind, at=at, every=arguments.every,
        until=arguments.until, bounds=bounds_of(arguments), y_err=arguments.y_err, period=_one_period(arguments.period),
        level=arguments.level,
    )  # fmt: skip


def bounds_of(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """By column; "" are all others."""
    if not arguments.bounds:
        return None
    from fillin.runtime import require

    require("scipy")
    from fillin.filling.bounds import parse_bounds

    return dict(parse_bounds(text) for text in arguments.bounds)


def _one_period(texts: list[str]) -> str | None:
    from fillin.errors import InputError

    if len(texts) > 1:
        raise InputError(f"--period: x has one, got {', '.join(texts)}")
    return texts[0] if texts else None


def _fill(arguments: argparse.Namespace, table, plan, outputs) -> None:
    """The slow work, then the files."""
    import torch

    from fillin.filling.holdout import subjects, ticks, verdicts
    from fillin.filling.series.run import fill_all
    from fillin.inference.weights import default_weights, load_filler
    from fillin.runtime import threads

    name = arguments.model or default_weights(1)
    model = load_filler(name, 1, arguments.y_err is not None)
    judged = subjects(plan.series, model, plan.asked) if outputs.report else []
    total = plan.places + ticks(judged)
    with threads(arguments.threads or torch.get_num_threads()), bar("fill", total) as tick:
        filled = fill_all(plan.series, model, plan.asked, tick)
        found = verdicts(judged, arguments.seed, tick)
    table.write(outputs.table, plan.roles, plan.new, filled, outputs.force)

    def picture():
        from fillin.filling.series.figure import draw

        return draw(plan, filled)

    def text(figure) -> str:
        from fillin.filling.report import of_table, page

        return page(of_table(plan, name), figure, found, arguments.command_line, arguments.seed)

    illustrate(outputs, picture, text)


def illustrate(outputs, picture: Callable[[], Any], page: Callable[[Any], str]) -> None:
    """The picture, and the page that has it, where they are wanted; drawn last, once the result is safe."""
    if not outputs.picture and not outputs.report:
        return
    from fillin.filling.write import put
    from fillin.plots import save

    figure = picture()
    if outputs.picture:
        save(figure, outputs.picture)
    if outputs.report:
        text = page(figure)
        put(outputs.report, lambda beside: beside.write_text(text, encoding="utf-8"), outputs.force)


def speaker() -> Callable[[str], object]:
    """Prints a line as it is."""
    out = console()
    return lambda line: out.print(line, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """A bar of places that appears where the work takes long, and is gone once it is done."""
    from time import monotonic

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    progress = Progress(*columns, console=console(stderr=True), transient=True)
    shown = progress.console.is_terminal
    task, begin = progress.add_task(what, total=total), monotonic()

    def tick(done: int) -> None:
        progress.advance(task, done)
        if shown and not progress.live.is_started and monotonic() - begin > _PATIENCE:
            progress.start()

    try:
        yield tick
    finally:
        progress.stop()
