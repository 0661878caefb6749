"""Figure of time and memory against the number of points, both axes logarithmic."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from fillin.measure import BIAS, FUSED, NATIVE, REFERENCE
from fillin.plots import AMBER, BLUE, FAINT, GREEN, INK, ORANGE, PINK, SKY, panels, save, style
from fillin_studies.bench.span import fit_exponent, least_megabytes


class CostLine(NamedTuple):
    """Costs by number of points, and the style of their line."""

    label: str
    points: list[int]
    figures: list[dict[str, Any]]
    colour: str
    dash: str = "-"
    mark: str = "o"


def draw_span(content: dict[str, Any], folder: Path) -> Path:
    """Draw span.png from the content of span.json; lines of parts that were not measured are left out."""
    lines = [*_growth_lines(content["growth"]), *_table_lines(content["rows"])]
    sizes = sorted({n for line in lines for n in line.points})
    with style():
        figure, [[left, right]] = panels(1, 2, width=10.5, height=4.6)
        for axes, quantity in ((left, "milliseconds"), (right, "megabytes")):
            for line in lines:
                _draw_line(axes, line, quantity)
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


def _draw_line(axes: Axes, line: CostLine, quantity: str) -> None:
    measured = [(n, f[quantity]) for n, f in zip(line.points, line.figures, strict=True) if f[quantity]]
    if not measured:
        return
    points, values = zip(*measured, strict=True)
    growth = f", $N^{{{fit_exponent(points, values):.2f}}}$" if len(measured) > 1 else ""
    axes.plot(
        points, values, line.dash, marker=line.mark, color=line.colour, markersize=3.5, linewidth=1.4,
        label=line.label + growth,
    )  # fmt: skip


def _growth_lines(rows: list[dict]) -> Iterator[CostLine]:
    for row, colour, mark in zip(rows, (SKY, BLUE, GREEN), ("s", "o", "^"), strict=False):
        label = f"kernel, {row['neighbours']} neighbours, {row['dim']}-D"
        yield CostLine(label, row["points"], row["figures"], colour, mark=mark)


def _table_lines(rows: list[dict]) -> Iterator[CostLine]:
    """Yield the candidates on scattered points in 2-D with a window of 5 %."""
    plane = [row for row in rows if (row["layout"], row["dim"], row["span"]) == ("scattered", 2, 0.05)]
    for name, label, colour, dash in (
        (NATIVE, "kernel, 5 % of the square", BLUE, "--"),
        (FUSED, "PyTorch, fused, no window", AMBER, "-"),
        (BIAS, "PyTorch, window as a bias", ORANGE, "-"),
        (REFERENCE, "reference", PINK, "-"),
    ):
        measured = [row for row in plane if name in row["figures"]]
        if measured:
            figures = [row["figures"][name] for row in measured]
            yield CostLine(label, [row["points"] for row in measured], figures, colour, dash)
