"""Results of a benchmark as tables, for the terminal and for the pages of docs/results."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any

from rich.table import Table

from fillin.measure import BIAS, BLOCKS, FUSED, HARD, HEADS, NATIVE, REFERENCE

NONE = "–"  # not measured


@dataclass(frozen=True)
class BenchTable:
    """A title, a note on the columns, and cells. The first `text_columns` columns are text, the others numbers."""

    title: str
    note: str
    columns: Sequence[str]
    rows: list[list[str]]
    text_columns: int = 1

    def to_rich(self) -> Table:
        table = Table(title=self.title, caption=self.note)
        for number, column in enumerate(self.columns):
            text = number < self.text_columns
            table.add_column(column, justify="left" if text else "right", no_wrap=not text)
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        rule = "|".join("---" if number < self.text_columns else "---:" for number in range(len(self.columns)))
        head, *lines = (f"| {' | '.join(row)} |" for row in (self.columns, *self.rows))
        return "\n".join([f"## {self.title}", fill(self.note, 120), "", head, f"|{rule}|", *lines, ""])


def make_tables(content: dict[str, Any]) -> list[BenchTable]:
    """Make the tables of the content of a JSON file; a part that was not measured has none."""
    number = content["budget"]["threads"]
    threads = f"{number} thread" + "s" * (number > 1)
    whole = {"models": _models, "peers": _peers, "scores": _scores, "train": _training, "speed": _speed, "fill": _fills}
    parts = (
        ("asked", _requirements), ("rows", _windows), ("rows", _blocks), ("growth", _growth), ("models", _te_tnp),
        ("function", _function), ("large", _large), ("crossover", _crossover),
    )  # fmt: skip
    makers = (("rows", whole[content["benchmark"]]),) if content["benchmark"] in whole else parts
    tables = [table for part, make in makers if content.get(part) if (table := make(content[part])) is not None]
    if content["benchmark"] == "speed":  # its rows have their own numbers of threads
        return tables
    return [replace(table, title=f"{table.title}, {threads}") for table in tables]


def _models(rows: list[dict]) -> BenchTable:
    columns = ["model", "parameters"]
    for figure in rows[0]["figures"]:
        columns += [f"{figure['size']}: ms", "×tnp-d", "ydst", "MB"]
    cells = []
    for row in rows:
        cells.append([row["model"], f"{row['parameters']:,}"])
        for f in row["figures"]:
            cells[-1] += [f"{f['milliseconds']:,.1f}", _fixed(f["to_reference"]), _fixed(f["yardsticks"])]
            cells[-1].append(_fixed(f["megabytes"], 0))
    note = (
        'Forward + backward, size "base", batch 16, context/target points. ×tnp-d: time over that of tnp-d in the same '
        "rounds. ydst: yardsticks, time over that of a small TransformerEncoder. MB: peak memory beyond what was in "
        "use before."
    )
    return BenchTable("Every model", note, columns, cells)


def _peers(rows: list[dict]) -> BenchTable:
    columns = ("fillin", "options", "peer", "parameters", "peer's", "ydst", "peer's", "ratio", "MB", "peer's")
    cells = []
    for r in rows:
        options = " ".join(f"{k}={v}" for k, v in r["options"].items()) or "size=base"
        options += f", {r['samples']} latent samples" * (r["samples"] > 1)
        numbers = [r[key] for key in ("parameters", "peer_parameters")]
        counts = [f"{n / 1e6:.2f}M" if n >= 1e6 else f"{n / 1e3:.0f}k" for n in numbers]
        ratios = [_fixed(r[key]) for key in ("yardsticks", "peer_yardsticks", "ratio")]
        memory = [_fixed(r[key], 0) for key in ("megabytes", "peer_megabytes")]
        cells.append([r["model"], options, r["peer"], *counts, *ratios, *memory])
    note = (
        "Forward + backward, batch 16, 32/64 points, in yardsticks. A ratio below 1 means that fillin is faster. The "
        "peers were measured by running their released code at its default size on one thread of another machine; the "
        "figures are no claims of their authors. A yardstick weighs fixed overheads against matrix products "
        'differently on every CPU: a ratio near 1 means "about as fast" and no more.'
    )
    return BenchTable("Released code of the same size", note, columns, cells, text_columns=3)


def _scores(rows: list[dict]) -> BenchTable:
    columns = ("score", "how", "ms", "×tnp-d", "MB", "MB ×tnp-d", "error")
    cells = [
        [
            r["score"], r["how"], f"{r['milliseconds']:,.1f}", _fixed(r["to_reference"]), _fixed(r["megabytes"], 0),
            _fixed(r["memory_to_reference"]), NONE if r["error"] is None else f"{r['error']:.0e}",
        ]
        for r in rows
    ]  # fmt: skip
    note = (
        'Forward + backward, size "base", batch 2, 256 context and 512 target points, against tnp-d. folded: columns '
        "of q and k, nothing pairwise; table: read from a table of displacements; pairs: evaluated on every pair, in "
        "chunks. error: of attention's output, table against exact evaluation, relative norm."
    )
    return BenchTable("te-tnp by score", note, columns, cells, text_columns=2)


def _training(rows: list[dict]) -> BenchTable:
    cells = [[r["model"], f"{1000 * r['bare']:.2f}", f"{1000 * r['loop']:.2f}", _fixed(r["ratio"])] for r in rows]
    note = "bare: forward + backward + optimiser. loop: with data, seeds, clipping, log and checkpoint."
    return BenchTable("A training step, batch 16, protocol tnp", note, ("model", "bare ms", "loop ms", "ratio"), cells)


def _speed(rows: list[dict]) -> BenchTable:
    cells = []
    for row in rows:
        required = ("≥ " if row["at_least"] else "≤ ") + f"{row['required']:.3g}"
        times = ", ".join(f"{name} {_adaptive(ms)}" for name, ms in row["milliseconds"].items())
        numbers = [str(row["threads"]), required, _adaptive(row["ratio"]), "✓" if row["holds"] else "✗"]
        cells.append([row["case"], times, *numbers, _adaptive(row["gain"]), _adaptive(row["of_limit"])])
    note = (
        "ratio: of time, of te-tnp to tnp-d, of the plain path to the one that runs, or of PyTorch's fused attention "
        'without a window to the kernel with one. plain: time of te-tnp by backend="reference" over its own. of the '
        "limit: (time / time of fused) / share of pairs inside; at 1 only the pairs inside cost anything."
    )
    columns = ("case", "ms", "threads", "required", "ratio", "", "plain", "of the limit")
    return BenchTable("Speed against the plain path", note, columns, cells, text_columns=2)


def _fills(rows: list[dict]) -> BenchTable:
    cells = []
    for row in rows:
        limit = f"≤ {row['max_seconds']:g} s"
        limit += f", {row['max_megabytes']:,.0f} MB" if row["max_megabytes"] else ""
        costs = [f"{row[key]:.2f}" for key in ("seconds", "cpu_seconds")]
        cells.append([row["case"], row["size"], *costs, _mb(row["megabytes"]), limit, "✓" if row["holds"] else "✗"])
    note = (
        "The whole command, in a process of its own: the interpreter, imports, weights, reading, filling, the figure "
        "and writing. Rows × columns, or times × rows × columns of a field. CPU: processor time of all threads. MB: "
        "peak memory of the process."
    )
    columns = ("case", "size", "seconds", "CPU seconds", "MB", "required", "")
    return BenchTable("fillin fill FILE", note, columns, cells, text_columns=2)


def _windows(rows: list[dict]) -> BenchTable:
    columns = (
        "points", "window", "inside", "ms", "hard ms", "× fused", "× bias", "× reference", "of the limit", "MB",
        "fused MB", "bias MB", "reference MB",
    )  # fmt: skip
    note = (
        "Forward + backward. ×: time over that of the kernel: of PyTorch's fused attention without a window, of "
        "PyTorch with the window as a bias, of the reference. inside: share of pairs inside the window. of the limit: "
        "(time / time of fused) / inside; at 1 only the pairs inside cost anything. hard: the hard cut. MB: peak "
        "memory beyond what was in use before."
    )
    cells = []
    for row in rows:
        figures, faster = row["figures"], row["faster"]
        memory = [
            _mb(figures[name]["megabytes"]) if name in figures else NONE for name in (NATIVE, FUSED, BIAS, REFERENCE)
        ]
        cells.append([
            _name_points(row), f"{100 * row['span']:g} %",
            f"{100 * row['inside']:.1f} %", _ms(figures[NATIVE]),
            _ms(figures[HARD]), *(_adaptive(faster.get(name)) for name in (FUSED, BIAS, REFERENCE)),
            _adaptive(row["of_limit"]), *memory,
        ])  # fmt: skip
    return BenchTable("The kernel against PyTorch", note, columns, cells)


def _name_points(row: dict) -> str:
    side = round(row["points"] ** 0.5)
    return f"{side}×{side} pixels" if row["layout"] == "grid" else f"{row['points']:,} in {row['dim']}-D"


def _blocks(rows: list[dict]) -> BenchTable | None:
    """Fixed blocks beside the kernel; None where they were not measured."""
    columns = ("points", "window", "inside", "in blocks", "ms", "blocks ms", "× blocks", "MB", "blocks MB")
    note = (
        "PyTorch's fused attention within fixed independent blocks of about the volume of the window, padded to the "
        "fullest block. × blocks: their time over that of the kernel. in blocks: share of pairs that they compute; a "
        "block is not centred on its queries, and neighbours across its edge are lost."
    )
    cells = []
    for row in rows:
        native, blocks = (row["figures"].get(name) for name in (NATIVE, BLOCKS))
        if native and blocks:
            cells.append([
                _name_points(row), f"{100 * row['span']:g} %", f"{100 * row['inside']:.1f} %",
                f"{100 * row['in_blocks']:.1f} %", _ms(native), _ms(blocks), _adaptive(row["faster"][BLOCKS]),
                _mb(native["megabytes"]), _mb(blocks["megabytes"]),
            ])  # fmt: skip
    return BenchTable("The kernel against fixed blocks", note, columns, cells) if cells else None


def _growth(rows: list[dict]) -> BenchTable:
    note = (
        f"Forward + backward in ms on scattered points with {rows[0]['neighbours']} neighbours on average, and the "
        "time to sort them, once a set. Time grows as N to the exponent. beyond: MB at the most points in excess of "
        "inputs, output and gradients."
    )
    cells = []
    for row in rows:
        head = (f"{row['dim']}-D", f"{row['exponent']:.3f}", _mb(row["beyond"]))
        cells.append([*head, *(_ms(figure) for figure in row["figures"])])
        cells.append([f"{row['dim']}-D, sorting", "", "", *(f"{ms:,.2f}" for ms in row["sorting"])])
    columns = ("", "exponent", "beyond", *(f"{n:,}" for n in rows[0]["points"]))
    return BenchTable("Growth with the number of points", note, columns, cells)


def _te_tnp(rows: list[dict]) -> BenchTable:
    cells = [
        [f"te-tnp, {row['score']}" if i else row["score"], f"{row['milliseconds']:,.1f}",
         _adaptive(row["to_reference"]), _mb(row["megabytes"]), _adaptive(row["memory_to_reference"])]
        for i, row in enumerate(rows)
    ]  # fmt: skip
    note = "A training step without the optimiser, batch 2, 256 context and 512 target points, no window."
    return BenchTable("te-tnp with an MLP score", note, ("model", "ms", "× tnp-d", "MB", "MB × tnp-d"), cells)


def _function(rows: list[dict]) -> BenchTable:
    cells = []
    for row in rows:
        case = f"{row['points']:,} points, {100 * row['span']:g} %"
        cells.append([f"kernel, from a table: {case}", _ms(row["table"]), _mb(row["table"]["megabytes"]), "", ""])
        ratios = [_adaptive(row[key]) for key in ("faster", "less_memory")]
        cells.append(["reference, on each pair", _ms(row["pairs"]), _mb(row["pairs"]["megabytes"]), *ratios])
    note = f"An MLP 2→32→32→4 added to q·k/√d, in 2-D. Error of the output: {rows[0]['error']:.0e}, relative."
    return BenchTable("F(Δ) from a table", note, ("", "ms", "MB", "× time", "× memory"), cells)


def _large(rows: list[dict]) -> BenchTable:
    note = (
        f"te-tnp (small) with a learned window of {rows[0]['neighbours']} neighbours on average. step: forward + "
        "backward on the context and a tenth as many targets; fill: a prediction at all targets."
    )
    cells = [
        [f"{row['context']:,} in {row['dim']}-D", _ms(row["step"]), _mb(row["step"]["megabytes"]),
         f"{row['targets']:,}", _ms(row["fill"]), _mb(row["fill"]["megabytes"])]
        for row in rows
    ]  # fmt: skip
    return BenchTable("Many points", note, ("context", "step, ms", "MB", "targets", "fill, ms", "MB"), cells)


def _crossover(rows: list[dict]) -> BenchTable:
    note = (
        f"Time of the fastest other back end over that of the kernel, by number of points n ({HEADS} n² pairs); f, r "
        "and s: it is fused, reference or streamed. from: pairs from which on the kernel is the fastest."
    )
    cells = []
    for row in rows:
        problem = f"{100 * row['span']:g} % window" if row["span"] else f"no window, {row['score']}"
        ratios = []
        for times in row["milliseconds"]:
            name = min((other for other in times if other != NATIVE), key=times.__getitem__)
            ratios.append(f"{_adaptive(times[name] / times[NATIVE])} {name[0]}")
        cells.append([f"{row['dim']}-D, {problem}", NONE if row["pairs"] is None else f"{row['pairs']:,}", *ratios])
    columns = ("", "from", *(f"{n:,}" for n in rows[0]["points"]))
    return BenchTable("Number of pairs from which the kernel is the fastest", note, columns, cells)


def _requirements(rows: list[dict]) -> BenchTable:
    cells = []
    for row in rows:
        sign = {True: "✓", False: "✗", None: NONE}[row["holds"]]
        required = ("≥ " if row["at_least"] else "≤ ") + f"{row['asked']:.3g}"
        measured = NONE if row["measured"] is None else f"{row['measured']:.3g}"
        cells.append([row["what"], row["unit"], required, measured, sign])
    note = "For two threads and the continuous cut, unless stated; of several cases the worst counts."
    return BenchTable("Requirements", note, ("against", "quantity", "required", "measured", ""), cells, text_columns=2)


def _adaptive(value: float | None, limits: Sequence[float] = (10, 100)) -> str:
    """One decimal fewer from each limit on."""
    return NONE if value is None else f"{value:,.{sum(value < limit for limit in limits)}f}"


def _ms(figure: dict) -> str:
    return _adaptive(figure["milliseconds"])


def _mb(value: float | None) -> str:
    return _adaptive(value, (10,))


def _fixed(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"
