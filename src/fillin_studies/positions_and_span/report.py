"""What the study found: a table of ways, the tests, how far layers look, and what it costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fillin_studies.base import Cell, Report
from fillin_studies.positions_and_span.costs import BIAS, FULL, KERNEL, PARTS
from fillin_studies.positions_and_span.figures import draw
from fillin_studies.positions_and_span.findings import findings, ratio, signed
from fillin_studies.positions_and_span.results import SURE, Group, compared, grouped
from fillin_studies.report_files import table

_COLUMNS = (
    "classifier", "accuracy, %", "± over seeds", "seeds", "log-likelihood", "pairs computed, %", "σ by layer",
    "share by layer, %", "ms a step",
)  # fmt: skip
_TESTS = ("H₁: higher than", "mean, %", "its mean, %", "points", "p", "verdict")
_COSTS = (
    "what",
    "part",
    *(f"{way}, {unit}" for way in (FULL, BIAS, KERNEL) for unit in ("ms", "MB")),
    "times",
    "times a bias",
)


def report(cells: Sequence[Cell], folder: Path) -> Report:
    measured = [cell.result for cell in cells]
    found = grouped(measured)
    said = [sentence for data, groups in found.items() for sentence in findings(data, groups)]
    rows = [_row(group) for groups in found.values() for group in groups.values()]
    more: list[str] = []
    for data, groups in found.items():
        if each := compared(groups):
            more += [f"## Tests: {data}", "", *table(_TESTS, [_tested(test) for test in each]), ""]
    if costs := [row for cell in measured for row in _costs(cell)]:
        more += ["## Time and memory", "", *table(_COSTS, costs), ""]
    more += [*_about(), ""]
    return Report(said, _COLUMNS, rows, draw(found, folder), more, _made(measured))


def _row(group: Group) -> list[Any]:
    sigmas = "–" if group.sigmas is None else " ".join(f"{s:.2f}" for s in group.sigmas)
    shares = " ".join(f"{100 * share:.0f}" for share in group.shares)
    return [
        f"{group.data}, {group.title}", f"{100 * group.mean():.1f}", f"{100 * group.deviation:.1f}", len(group.cells),
        group.mean("log_likelihood"), f"{100 * group.mean('pairs'):.0f}", sigmas, shares, f"{group.mean('ms'):.0f}",
    ]  # fmt: skip


def _tested(test: Any) -> list[Any]:
    return [
        f"{test.one.title} > {test.other.title}", f"{100 * test.one.mean():.1f}", f"{100 * test.other.mean():.1f}",
        signed(test.points), test.p, test.verdict,
    ]  # fmt: skip


def _costs(cell: dict[str, Any]) -> list[list[Any]]:
    rows = []
    for kind in ("learned", "narrow"):
        for one in cell.get(kind, ()):
            name = cell["variant"] if kind == "learned" else f"{one['positions']}, {100 * one['share']:.1f} % of pairs"
            title = f"{name}, {one['side']} × {one['side']}, batch {one['batch']}"
            for part in PARTS:
                figures: list[str | None] = []
                for way in (FULL, BIAS, KERNEL):
                    cost = one["costs"].get(way, {}).get(part, {"seconds": None, "bytes": None})
                    figures += [_number(cost["seconds"], 1000), _number(cost["bytes"], 1e-6)]
                times = [ratio(one["costs"], way, part) for way in (FULL, BIAS)]
                rows.append([title, part, *figures, *(t and f"{t:.1f}" for t in times)])
    return rows


def _number(value: float | None, factor: float) -> str | None:
    return None if value is None else f"{value * factor:,.0f}"


def _about() -> list[str]:
    return [
        "## What was done",
        "",
        "The score is Transformer-XL's, [(q + u)·k + (q + v)·r(Δ)]/√d, in document 004's form: r(Δ) comes from fixed "
        "sinusoids and a linear map, or from a SIREN. A window on weights multiplies them by G(Δ); one on scores "
        "multiplies logits (the thesis), so that far pixels keep a weight of e⁰. A hard cut drops pairs where G is "
        "below 0.1; a continuous one lowers the window so that it ends there at nothing.",
        "",
        "The SIREN starts as sinusoids do, sines and cosines from very slow to a radian a pixel, and learns the "
        "difference from that start, slowly. Trained like everything else it was behind sinusoids in one row, as in "
        "the thesis: a decay of weights shrinks each frequency a little at every step, and so turns all features of "
        "what is far away.",
        "",
        f"Tests are Welch's t over seeds, one-sided as in the thesis: H₁, the first is higher, is taken to hold where "
        f"p is below {SURE}, and the opposite where it is above {1 - SURE}. Weights are those after the last step. "
        "Settings that all ways share (rate, steps) were found on the digits that are asked for; how a SIREN starts "
        "and learns, on images for testing of Fashion-MNIST.",
        "",
        "Costs are medians over rounds in which each way runs once (on 64 × 64 pixels the window as a bias in the "
        "first of seven alone), on one thread, of the same classifier with the same weights. Full attention in torch "
        "is the fused kernel where positions fold into queries and keys "
        "(sinusoids), else pairs that are stored or, where they are many, made again on the way back. Narrow "
        "windows are those of one layer of the thesis's size (64 wide, 8 heads). MB are the most "
        "beyond what was there before.",
    ]


def _made(measured: Sequence[dict[str, Any]]) -> str:
    seeds = sorted({cell["seed"] for cell in measured})
    spent = sum(cell["seconds"] for cell in measured)
    steps = sorted({cell["steps"] for cell in measured})
    return (
        f"{len(measured)} runs, seeds {', '.join(map(str, seeds))}, {' or '.join(f'{s:,}' for s in steps)} steps each, "
        f"{spent / 60:.0f} minutes of training in all. Each run has its recipe in `cells/`."
    )
