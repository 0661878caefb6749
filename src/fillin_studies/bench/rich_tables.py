"""The figures as tables to read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fillin.measure import Tick
from fillin_studies.bench.models import Row
from fillin_studies.bench.peers import Beside
from fillin_studies.bench.scores import ScoreRow
from fillin_studies.bench.span_tables import Sheet
from fillin_studies.bench.train import TrainRow

NONE = "–"  # not known here


@contextmanager
def progress(what: str, total: int, console: Console) -> Iterator[Tick]:
    """A bar that is gone once the work is done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def models_table(rows: Sequence[Row], threads: int) -> Table:
    labels = [figure.size for figure in rows[0].figures]
    table = Table(
        title=f"Forward + backward, batch 16, context/target points, {_on(threads)}",
        caption="×tnp-d: time over that of tnp-d. ydst: yardsticks, time over that of a small TransformerEncoder.",
    )
    table.add_column("model", no_wrap=True)
    table.add_column("parameters", justify="right")
    for label in labels:
        for column in (f"{label} ms", "×tnp-d", "ydst", "MB"):
            table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        cells = [
            (f"{f.milliseconds:,.1f}", _two(f.to_reference), _two(f.yardsticks), _mb(f.megabytes)) for f in row.figures
        ]
        table.add_row(row.model, f"{row.parameters:,}", *(cell for group in cells for cell in group))
    return table


def peers_table(rows: Sequence[Beside], threads: int) -> Table:
    caption = "In yardsticks; the peers' were measured from their released code. Ratio below 1: ours is faster."
    if threads != 1:
        caption += " The peers ran on one thread: compare with --threads 1."
    table = Table(
        title=f"Ours at the size of released peers: forward + backward, batch 16, 32/64 points, {_on(threads)}",
        caption=caption,
    )
    table.add_column("ours", no_wrap=True)
    table.add_column("options")
    table.add_column("peer", no_wrap=True)
    for column in ("params", "peer's", "ydst", "peer's", "ratio", "MB", "peer's"):
        table.add_column(column, justify="right", no_wrap=True)
    for r in rows:
        options = " ".join(f"{k}={v}" for k, v in r.options.items()) or "size=base"
        options += f", {r.samples} latents" * (r.samples > 1)
        table.add_row(
            r.model, options, r.peer, _thousands(r.parameters), _thousands(r.peer_parameters), _two(r.yardsticks),
            _two(r.peer_yardsticks), _two(r.ratio), _mb(r.megabytes), _mb(r.peer_megabytes),
        )  # fmt: skip
    return table


def scores_table(rows: Sequence[ScoreRow], threads: int) -> Table:
    table = Table(
        title=f"te-tnp by score against tnp-d: forward + backward, batch 2, 256/512 points, {_on(threads)}",
        caption="error: of attention's output, table against exact evaluation, relative norm.",
    )
    table.add_column("score", no_wrap=True)
    table.add_column("how")
    for column in ("ms", "×tnp-d", "MB", "MB ×tnp-d", "error"):
        table.add_column(column, justify="right", no_wrap=True)
    for r in rows:
        error = NONE if r.error is None else f"{r.error:.0e}"
        table.add_row(
            r.score, r.how, f"{r.milliseconds:,.1f}", _two(r.to_reference), _mb(r.megabytes),
            _two(r.memory_to_reference), error,
        )  # fmt: skip
    return table


def train_table(rows: Sequence[TrainRow], threads: int) -> Table:
    table = Table(
        title=f"A training step, batch 16, protocol tnp, {_on(threads)}",
        caption="bare: forward + backward + optimiser. loop: with data, seeds, clipping, log and checkpoint.",
    )
    table.add_column("model", no_wrap=True)
    for column in ("bare ms", "loop ms", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.model, f"{1000 * row.bare:.2f}", f"{1000 * row.loop:.2f}", _two(row.ratio))
    return table


def sheet_table(sheet: Sheet, threads: int) -> Table:
    table = Table(title=f"{sheet.title}: forward + backward, {_on(threads)}", caption=sheet.note)
    for number, column in enumerate(sheet.columns):
        words = number < sheet.left
        table.add_column(column, justify="left" if words else "right", no_wrap=not words)
    for row in sheet.rows:
        table.add_row(*row)
    return table


def _on(threads: int) -> str:
    return f"{threads} thread" + "s" * (threads > 1)


def _two(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _mb(value: float | int | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _thousands(number: int) -> str:
    return f"{number / 1e6:.2f}M" if number >= 1e6 else f"{number / 1e3:.0f}k"
