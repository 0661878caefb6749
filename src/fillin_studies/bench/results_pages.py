"""Write the pages of docs/results from the JSON files of the benchmarks.

Command: `python -m fillin_studies.bench.results_pages docs/results`.
"""

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

from fillin_studies.bench.span_tables import Sheet, sheets

_HEAD = """\
# What the core costs

Made by `make results`, which runs the commands below on an otherwise idle machine; the JSON files beside this page hold
the raw figures, the machine, the budget and the seed. Times are minima over interleaved rounds of forward + backward.
Only ratios carry over to another machine. Memory is the peak beyond what was there before.

"""
_MODELS = """\
## Every model
`{command}`

Size "base", batch 16. ×tnp-d: time over that of tnp-d in the same rounds. Yardstick: forward + backward of a small
`torch.nn.TransformerEncoder` (6 layers, width 64, 4 heads, feed-forward 128) on 16×96 tokens, one thread.

| model | parameters | 32/64: ×tnp-d | yardsticks | MB | 256/512: ×tnp-d | yardsticks | MB |
|---|---|---|---|---|---|---|---|
"""
_SCORES = """\
## What a score costs a te-tnp ({threads})
`{command}`

Size "base", batch 2, 256 context and 512 target points, against tnp-d of the same size. *folded*: columns of q and k,
nothing pairwise; *table*: read from a table of displacements (error: of attention's output against exact evaluation);
*pairs*: evaluated on every pair, in chunks.

| score | how | time ×tnp-d | memory ×tnp-d | error of the table |
|---|---|---|---|---|
"""
_PEERS = """\
## Beside other people's released code
`{command}`

The peers were measured by running their released code, at their default sizes, in yardsticks, on one thread of another
machine; they are no claims of their authors. One yardstick weighs fixed overheads against matrix products differently
on every CPU, so a ratio near 1 says "about as fast" and no more.

| ours | options | peer | parameters, ours/theirs | yardsticks, ours/theirs | ratio |
|---|---|---|---|---|---|
"""
_SPAN = """\
# What a learned window saves

`{command}`

Made by `make results` on an otherwise idle machine; `span.json` beside this page holds the raw figures, the machine,
the budget and the seed. Forward + backward of attention of points to one another, batch 1, 4 heads of 16, float32, with
gradients to q, k, v and the window, on {threads}. Times are minima over interleaved rounds. Points fill the unit
interval, square or cube; "5 %" is a window whose ball is 5 % of that, and less of it lies inside near an edge. The
points are sorted beforehand: every layer and step on the same set shares the order. Only ratios carry over to another
machine.

Machine: {machine}; the kernel of {lanes} lanes.

![Time and memory against the number of points](span.png)

"""


def page(folder: Path) -> str:
    """core.md, from models.json, scores-1-thread.json, scores-2-threads.json and peers.json."""
    models, one, two, peers = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("models", "scores-1-thread", "scores-2-threads", "peers")
    )
    text = _HEAD + f"Machine: {_machine(models)}.\n\n"
    text += _MODELS.format(command=_command(models)) + "".join(map(_model, models["rows"]))
    for threads, found in (("one thread", one), ("two threads", two)):
        text += "\n" + _SCORES.format(command=_command(found), threads=threads) + "".join(map(_score, found["rows"]))
    return text + "\n" + _PEERS.format(command=_command(peers)) + "".join(map(_peer, peers["rows"]))


def span_page(folder: Path) -> str:
    """span.md, from span.json."""
    found = json.loads((folder / "span.json").read_text(encoding="utf-8"))
    number, lanes = found["budget"]["threads"], found["budget"]["lanes"]
    threads = f"{number} thread" + "s" * (number > 1)
    *parts, asked = sheets(found)
    head = _SPAN.format(command=_command(found), threads=threads, machine=_machine(found), lanes=lanes)
    return head + "\n".join(map(_sheet, [asked, *parts]))


def _sheet(sheet: Sheet) -> str:
    dashes = "|".join("---" if number < sheet.left else "---:" for number in range(len(sheet.columns)))
    lines = [" | ".join(row) for row in (sheet.columns, *sheet.rows)]
    lines = [f"| {line} |" for line in lines]
    return "\n".join([f"## {sheet.title}", fill(sheet.note, 120), "", lines[0], f"|{dashes}|", *lines[1:], ""])


def _machine(found: dict[str, Any]) -> str:
    cpu = found["machine"]
    return f"{cpu['cores']} cores of {cpu['cpu']}, torch {cpu['torch']}, Python {cpu['python']}"


def _command(found: dict[str, Any]) -> str:
    return " ".join(found["command"])


def _model(row: dict[str, Any]) -> str:
    cells = [f"{f['to_reference']:.2f} | {f['yardsticks']:.2f} | {f['megabytes']:.0f}" for f in row["figures"]]
    return f"| `{row['model']}` | {row['parameters']:,} | {' | '.join(cells)} |\n"


def _score(row: dict[str, Any]) -> str:
    error = "" if row["error"] is None else f"{row['error']:.0e}"
    times = f"{row['to_reference']:.2f} | {row['memory_to_reference']:.2f}"
    return f"| `{row['score']}` | {row['how']} | {times} | {error} |\n"


def _peer(row: dict[str, Any]) -> str:
    options = ", ".join(f"{k}={v}" for k, v in row["options"].items()) or "base"
    counts = f"{row['parameters'] / 1e3:.0f}k/{row['peer_parameters'] / 1e3:.0f}k"
    cost = f"{row['yardsticks']:.2f}/{row['peer_yardsticks']:.2f}"
    return f"| `{row['model']}` | {options} | {row['peer']} | {counts} | {cost} | {row['ratio']:.2f} |\n"


if __name__ == "__main__":
    home = Path(sys.argv[1])
    (home / "core.md").write_text(page(home), encoding="utf-8")
    (home / "span.md").write_text(span_page(home), encoding="utf-8")
