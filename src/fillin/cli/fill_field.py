"""`fillin fill` for fields and arrays."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fillin.cli.fill import bar, illustrate, speaker


def run_field(arguments: argparse.Namespace, path: Path) -> None:
    from fillin.runtime import require

    require("scipy")
    from fillin.filling.grid.files import open_field
    from fillin.filling.grid.variable import parse_chunks
    from fillin.filling.write import Outputs

    say = speaker()
    file = open_field(path, arguments.var, parse_chunks(arguments.chunks))
    try:
        if file.variable is None:
            say(f"{path.name}: nothing is missing: nothing was done")
            return
        plan = _plan(arguments, file)
        say(plan.line)
        for note in [*file.notes, *plan.notes]:
            say(f"note: {note}")
        if not plan.places:
            say("nothing is missing" + (" but that" if plan.missing else "") + ": nothing was done")
            return
        outputs = Outputs.of(path, arguments.out, arguments.picture, arguments.report, arguments.force, file.ending)
        _fill(arguments, file, plan, outputs)
    finally:
        file.close()
    say("wrote " + " ".join(str(path) for path in outputs.paths))


def _plan(arguments: argparse.Namespace, file):
    from fillin.filling.bounds import parse_bounds
    from fillin.filling.grid.api import checked_bounds
    from fillin.filling.grid.axes import parse_periods
    from fillin.filling.grid.plan import plan_field
    from fillin.filling.grid.variable import parse_chunks, parse_list

    bounds = dict(parse_bounds(text) for text in arguments.bounds)
    bounds = {"the field" if name == file.variable.name else name: limits for name, limits in bounds.items()}
    mask = None if arguments.mask is None else file.mask(arguments.mask)
    return plan_field(
        file.variable, over=parse_list(arguments.over), mask=mask,
        fill_always_missing=arguments.fill_always_missing, periods=parse_periods(arguments.period),
        chunks=parse_chunks(arguments.chunks), halo=arguments.halo, bounds=checked_bounds(bounds or None),
        level=arguments.level,
    )  # fmt: skip


def _fill(arguments: argparse.Namespace, file, plan, outputs) -> None:
    """The slow work, which may happen while the file is written, then the picture and the page."""
    import torch

    from fillin.filling.grid.holdout import field_subjects
    from fillin.filling.grid.run import fill_field
    from fillin.filling.holdout import ticks, verdicts
    from fillin.inference.weights import default_weights, load_filler
    from fillin.runtime import threads

    name = arguments.model or default_weights(len(plan.over))
    model = load_filler(name, len(plan.over))
    judged = field_subjects(plan, model) if outputs.report else []
    number = arguments.threads or torch.get_num_threads()
    own = 1 if plan.blocks else number  # blocks are done side by side, each by one thread
    with threads(own), bar("fill", plan.places + ticks(judged)) as tick, _watched(plan, number, tick):
        written = file.write(outputs.table, plan, fill_field(plan, model, tick), outputs.force)
        found = verdicts(judged, arguments.seed, tick)

    def picture():
        from fillin.filling.grid.figure import draw_field

        return draw_field(plan, written[0], written[1])

    def text(figure) -> str:
        from fillin.filling.grid.report import of_field
        from fillin.filling.report import page

        return page(of_field(plan, name), figure, found, arguments.command_line, arguments.seed)

    illustrate(outputs, picture, text)


@contextmanager
def _watched(plan, number: int, tick: Callable[[int], object]) -> Iterator[None]:
    """Blocks that dask has done are told to the bar; a cluster has a page of its own for that."""
    if plan.blocks is None:
        yield
        return
    import dask
    from dask.callbacks import Callback

    from fillin.filling.grid.run import KEY, number_of_blocks

    each = max(1, plan.places // number_of_blocks(plan))

    class Count(Callback):
        def _posttask(self, key, result, dsk, state, worker_id):
            if KEY in str(key):
                tick(each)

    with Count(), dask.config.set(num_workers=number):
        yield
