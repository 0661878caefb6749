"""Pages and figure of docs/results, made from the JSON files of the benchmarks.

Command: `python -m fillin_studies.bench.results_pages docs/results`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.ticker import FixedLocator, NullLocator

from fillin.measure import BIAS, BLOCKS, FUSED, NATIVE, REFERENCE
from fillin.plots import AMBER, BLUE, FAINT, GREEN, INK, ORANGE, PINK, SKY, panels, save, style
from fillin_studies.bench.span import fit_exponent, least_megabytes
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
_SPEED = """\
# Speed of what users wait for

`{command}`

Made by `make results`; `speed.json` beside this page holds the raw figures, the machine, the budget and the seed
({seed}). Times are minima over {rounds} interleaved rounds. Meanwhile others kept {other_load} cores busy: above 0.1,
figures for as many threads as there are cores are not reliable. The plain path is attention by `backend="reference"`,
which stores every pair, and products of matrices by the library that PyTorch chooses. Lanes are the floats in a vector
of the kernel's build: 16 with AVX-512, 8 with AVX2. PyTorch beside 8 lanes is limited to AVX2
(`ATEN_CPU_CAPABILITY=avx2`), as it is on a processor without AVX-512. Only ratios carry over to another machine.

Machine: {machine}.

"""
_FILLS = """\
# Time and memory of filling a file

`{command}`

Made by `make results`; `fills.json` beside this page holds the raw figures, the machine, the budget and the seed
({seed}). Seconds are those of the fastest of the runs, which are {rounds}. Meanwhile others kept {other_load} cores
busy: above 0.1, seconds are not reliable.

Machine: {machine}.

"""


def make_core_page(folder: Path) -> str:
    """Make core.md from models.json, scores-1-thread.json, scores-2-threads.json and peers.json."""
    contents = [_load(folder, name) for name in ("models", "scores-1-thread", "scores-2-threads", "peers")]
    sections = [
        table.to_markdown().replace("\n", f"\n`{content['command']}`\n\n", 1)
        for content in contents
        for table in make_tables(content)
    ]
    return _CORE.format_map(contents[0]) + "\n".join(sections)


def make_span_page(folder: Path) -> str:
    """Make span.md from span.json."""
    content = _load(folder, "span")
    tables = (table.to_markdown() for table in make_tables(content))
    return _SPAN.format_map(content | content["budget"]) + "\n".join(tables)


def make_speed_page(folder: Path) -> str:
    """Make speed.md from speed.json."""
    content = _load(folder, "speed")
    tables = (table.to_markdown() for table in make_tables(content))
    return _SPEED.format_map(content | _describe_rounds(content)) + "\n".join(tables)


def make_fills_page(folder: Path) -> str:
    """Make fills.md from fills.json."""
    content = _load(folder, "fills")
    tables = (table.to_markdown() for table in make_tables(content))
    return _FILLS.format_map(content | _describe_rounds(content)) + "\n".join(tables)


def _describe_rounds(content: dict[str, Any]) -> dict[str, Any]:
    """Return the number of rounds, and the cores that others kept busy, as text."""
    rounds, load = (content["budget"][key] for key in ("rounds", "other_load"))
    return {"rounds": rounds, "other_load": "an unknown number of" if load is None else f"{load:.2f}"}


def _load(folder: Path, name: str) -> dict[str, Any]:
    content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    machine = "{cores} cores of {cpu}, torch {torch}, Python {python}".format_map(content["machine"])
    return {**content, "machine": machine, "command": " ".join(content["command"])}


def draw_span(content: dict[str, Any], folder: Path) -> Path:
    """Draw time and memory against the number of points from the content of span.json; lines of parts that were not
    measured are left out."""
    lines = [
        (f"kernel, {row['neighbours']} neighbours, {row['dim']}-D", row["points"], row["figures"], colour, "-", mark)
        for row, colour, mark in zip(content["growth"], (SKY, BLUE, GREEN), ("s", "o", "^"), strict=False)
    ]
    plane = [row for row in content["rows"] if (row["layout"], row["dim"], row["span"]) == ("scattered", 2, 0.05)]
    for name, label, colour, dash in (
        (NATIVE, "kernel, 5 % of the square", BLUE, "--"),
        (FUSED, "PyTorch, fused, no window", AMBER, "-"),
        (BLOCKS, "PyTorch, fixed blocks of 5 %", INK, "--"),
        (BIAS, "PyTorch, window as a bias", ORANGE, "-"),
        (REFERENCE, "reference", PINK, "-"),
    ):
        rows = [row for row in plane if name in row["figures"]]
        lines.append((label, [r["points"] for r in rows], [r["figures"][name] for r in rows], colour, dash, "o"))
    sizes = sorted({n for _, points, *_ in lines for n in points})
    with style():
        figure, [[left, right]] = panels(1, 2, width=10.5, height=4.6)
        for axes, quantity in ((left, "milliseconds"), (right, "megabytes")):
            for label, points, figures, colour, dash, mark in lines:
                measured = [(n, cost[quantity]) for n, cost in zip(points, figures, strict=True) if cost[quantity]]
                if measured:
                    x, y = zip(*measured, strict=True)
                    growth = f", $N^{{{fit_exponent(x, y):.2f}}}$" if len(measured) > 1 else ""
                    line = {"marker": mark, "color": colour, "markersize": 3.5, "linewidth": 1.4}
                    axes.plot(x, y, dash, label=label + growth, **line)
            axes.set(xscale="log", yscale="log", xlabel="points")
            axes.xaxis.set_major_locator(FixedLocator(sizes))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(lambda n, _: f"{n / 1024:g} k" if n >= 1024 else f"{n:g}")
            axes.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
            axes.grid(True, which="major", color=FAINT, alpha=0.25, linewidth=0.5)
            axes.margins(x=0.04)
        floor = [least_megabytes(n) for n in sizes]
        right.plot(sizes, floor, color=INK, linewidth=0.8, linestyle=":", label="output and gradients alone")
        left.set(title="forward + backward, 4 heads of 16", ylabel="milliseconds")
        right.set(title="peak memory beyond what was in use before", ylabel="MB")
        for axes in (left, right):
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, handlelength=2.6)
    return save(figure, folder / "span.png")


if __name__ == "__main__":
    home = Path(sys.argv[1])
    (home / "core.md").write_text(make_core_page(home), encoding="utf-8")
    (home / "speed.md").write_text(make_speed_page(home), encoding="utf-8")
    (home / "fills.md").write_text(make_fills_page(home), encoding="utf-8")
    (home / "span.md").write_text(make_span_page(home), encoding="utf-8")
