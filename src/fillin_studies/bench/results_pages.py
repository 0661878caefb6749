"""Pages of docs/results, written from the JSON files of the benchmarks.

Command: `python -m fillin_studies.bench.results_pages docs/results`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fillin_studies.bench.tables import make_tables

_CORE = """\
# Cost of the core

Made by `make results`, which runs the commands below on an otherwise idle machine; the JSON files beside this page hold
the raw figures, the machine, the budget and the seed. Times are minima over interleaved rounds of forward + backward.
Only ratios carry over to another machine. Memory is the peak beyond what was in use before. A yardstick is forward +
backward of `torch.nn.TransformerEncoder` (6 layers, width 64, 4 heads, feed-forward 128) on 16×96 tokens.

Machine: {machine}.

"""
_SPAN = """\
# Savings of a learned window

`{command}`

Made by `make results` on an otherwise idle machine; `span.json` beside this page holds the raw figures, the machine,
the budget and the seed. Forward + backward of self-attention over points, batch 1, 4 heads of 16, float32, with
gradients to q, k, v and the window, threads: {threads}. Times are minima over interleaved rounds. Points fill the unit
interval, square or cube; "5 %" is a window whose ball is 5 % of that, and less of it lies inside near an edge. The
points are sorted beforehand: every layer and step on the same set shares the order. Only ratios carry over to another
machine.

Machine: {machine}; the kernel of {lanes} lanes.

![Time and memory against the number of points](span.png)

"""


def make_core_page(folder: Path) -> str:
    """Make core.md from models.json, scores-1-thread.json, scores-2-threads.json and peers.json."""
    contents = [_load(folder, name) for name in ("models", "scores-1-thread", "scores-2-threads", "peers")]
    sections = [
        table.to_markdown().replace("\n", f"\n`{_command(content)}`\n\n", 1)
        for content in contents
        for table in make_tables(content)
    ]
    return _CORE.format(machine=_machine(contents[0])) + "\n".join(sections)


def make_span_page(folder: Path) -> str:
    """Make span.md from span.json."""
    content = _load(folder, "span")
    budget = content["budget"]
    head = _SPAN.format(
        command=_command(content), threads=budget["threads"], machine=_machine(content), lanes=budget["lanes"]
    )
    return head + "\n".join(table.to_markdown() for table in make_tables(content))


def _load(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def _machine(content: dict[str, Any]) -> str:
    machine = content["machine"]
    return f"{machine['cores']} cores of {machine['cpu']}, torch {machine['torch']}, Python {machine['python']}"


def _command(content: dict[str, Any]) -> str:
    return " ".join(content["command"])


if __name__ == "__main__":
    home = Path(sys.argv[1])
    (home / "core.md").write_text(make_core_page(home), encoding="utf-8")
    (home / "span.md").write_text(make_span_page(home), encoding="utf-8")
