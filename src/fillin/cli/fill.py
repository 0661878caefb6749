"""`fillin fill`: a file with blanks in, the same file filled out."""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from fillin.cli.options import console, describe, positive
from fillin.runtime import progress

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


# Options of the command line that are options of `make_plan`; each kind of data accepts some of them.
_PLAN_OPTIONS = (
    "x", "y", "target", "classes", "numbers", "by", "kind", "na", "date_format", "at", "every", "until", "y_err", "var",
    "over", "mask", "keep_always_missing", "fill_always_missing", "chunks", "halo", "bounds", "period", "level",
    "model", "seed",
)  # fmt: skip


def run(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from fillin.errors import FillinError
    from fillin.filling.plan import make_plan

    try:
        given = {name: value for name in _PLAN_OPTIONS if (value := getattr(arguments, name)) not in ([], None)}
        plan = make_plan(Path(arguments.file), {**given, **_parse(arguments)})
        extra = {"figure": ".png"} if arguments.picture else {}
        execute(plan, arguments, [Path(arguments.file)], {**extra, **({"report": ".html"} if arguments.report else {})})
    except FillinError as error:
        raise FillinError(error.shell) from error  # with options spelled as on the command line


def _parse(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that are written in another way than in Python."""
    from pathlib import Path

    parsed: dict[str, Any] = {}
    if arguments.at is not None:
        parsed["at"] = Path(arguments.at)
    if arguments.over is not None:
        parsed["over"] = [dim.strip() for dim in arguments.over.split(",") if dim.strip()]
    if arguments.chunks is not None:
        parsed["chunks"] = dict(_parse_chunk(text) for text in arguments.chunks.split(","))
    if arguments.bounds:
        from fillin.runtime import require

        require("scipy")
        from fillin.filling.bounds import parse_bounds

        parsed["bounds"] = dict(parse_bounds(text) for text in arguments.bounds)
    if arguments.period:
        parsed["period"] = _parse_periods(arguments.period)
    return parsed


def _parse_chunk(text: str) -> tuple[str, int]:
    from fillin.errors import InputError

    name, _, size = text.partition("=")
    if not size.strip().isdigit() or int(size) < 1:
        raise InputError(f"--chunks: {text!r} is not the size of a dimension; write lat=200,lon=200")
    return name.strip(), int(size)


def _parse_periods(texts: list[str]) -> Any:
    """Return the period of a series as it is written, or those of dimensions by name: lon=360."""
    from fillin.errors import InputError

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


def execute(plan: Any, arguments: argparse.Namespace, sources: Sequence[Any], extra: Mapping[str, str]) -> None:
    """Run a plan and write its outputs beside the input: the filled data, and the `extra` files of these suffixes."""
    import torch

    from fillin.filling.outputs import Outputs

    out = console()
    say = lambda line: out.print(line, highlight=False, soft_wrap=True, markup=False)  # noqa: E731
    with closing(plan):
        say(plan.summary)
        for note in plan.notes:
            say(f"note: {note.shell}")
        if not plan.n_missing:
            say(f"{plan.nothing_to_fill}: nothing was done")
            return
        default = sources[0].with_name(f"{sources[0].stem}.{plan.marker}{plan.suffix}")
        outputs = Outputs.choose(sources, arguments.out, default, extra, arguments.force)
        model, scored = plan.load_model(), plan.prints_scores or "report" in outputs.extra
        n_steps = plan.n_steps + (plan.n_holdout_steps if scored else 0)
        with (
            progress("fill", n_steps, delay=1.0) as tick,
            plan.parallel(arguments.threads or torch.get_num_threads(), tick),
        ):
            prediction = plan.write(outputs, plan.run(model, tick))
            scores = plan.holdout(model, prediction, tick) if scored else []
        _illustrate(plan, prediction, outputs, scores, arguments.command_line)
        if plan.prints_scores and scores:
            say(plan.explain_holdout(scores))
    say("wrote " + " ".join(str(path) for path in outputs.paths))


def _illustrate(plan: Any, prediction: Any, outputs: Any, scores: list[Any], command: list[str]) -> None:
    """Draw the figure and the report that shows it, after the data are safe."""
    if "figure" not in outputs.extra and "report" not in outputs.extra:
        return
    from fillin.filling.report import render_report
    from fillin.plots import save

    figure = plan.figure(prediction)
    if "figure" in outputs.extra:
        save(figure, outputs.extra["figure"])
    if "report" in outputs.extra:
        html = render_report(plan, figure, scores, command)
        outputs.write(outputs.extra["report"], lambda path: path.write_text(html, encoding="utf-8"))
