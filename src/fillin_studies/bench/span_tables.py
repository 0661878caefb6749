"""The figures of `fillin bench span` as sheets of text, which the screen and the page both show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fillin.evaluate.span_cost import BIAS, FUSED, HARD, HEADS, NATIVE, REFERENCE

NONE = "–"  # not measured


@dataclass(frozen=True)
class Sheet:
    """A title, what its columns mean, and cells. The first `left` columns are words, the others numbers."""

    title: str
    note: str
    columns: Sequence[str]
    rows: list[list[str]]
    left: int = 1


def sheets(content: dict[str, Any]) -> list[Sheet]:
    """Of the report that --json writes; parts that were not measured have none."""
    makers: dict[str, Callable] = {
        "rows": _table, "growth": _growth, "models": _models, "function": _function, "large": _large,
        "crossover": _crossover, "asked": _asked,
    }  # fmt: skip
    return [make(content[part]) for part, make in makers.items() if content.get(part)]


def _table(rows: list[dict]) -> Sheet:
    columns = (
        "points", "window", "inside", "ms", "hard ms", "× fused", "× bias", "× reference", "of the limit", "MB",
        "fused MB", "bias MB", "reference MB",
    )  # fmt: skip
    note = (
        "×: how many times as long others take: torch's fused attention without a window, torch with the window as a "
        "bias, the reference. inside: pairs inside the window. of the limit: (time / time of fused) / inside; 1 would "
        "be no cost but that of the pairs inside. hard: the hard cut. MB: the most beyond what was there before."
    )
    cells = []
    for row in rows:
        own, faster = row["figures"], row["faster"]
        memory = [_mb(own[name]["megabytes"]) if name in own else NONE for name in (NATIVE, FUSED, BIAS, REFERENCE)]
        cells.append([
            _points(row), _percent(row["span"]), f"{100 * row['inside']:.1f} %", _ms(own[NATIVE]), _ms(own[HARD]),
            *(_ratio(faster.get(name)) for name in (FUSED, BIAS, REFERENCE)), _ratio(row["of_limit"]), *memory,
        ])  # fmt: skip
    return Sheet("The kernel against torch", note, columns, cells)


def _growth(rows: list[dict]) -> Sheet:
    note = (
        f"ms at so many scattered points with {rows[0]['neighbours']} neighbours on average, and to sort them, once a "
        "set; time grows as N to the exponent. beyond: MB at the most points beyond inputs, output and gradients."
    )
    cells = []
    for row in rows:
        words = (f"{row['dim']}-D", f"{row['exponent']:.3f}", _mb(row["beyond"]))
        cells.append([*words, *(_ms(figure) for figure in row["figures"])])
        cells.append([f"{row['dim']}-D, sorting", "", "", *(f"{ms:,.2f}" for ms in row["sorting"])])
    columns = ("", "exponent", "beyond", *(f"{n:,}" for n in rows[0]["points"]))
    return Sheet("Growth with the number of points", note, columns, cells)


def _models(rows: list[dict]) -> Sheet:
    cells = [
        [f"te-tnp, {row['score']}" if i else row["score"], f"{row['milliseconds']:,.1f}", _ratio(row["to_reference"]),
         _mb(row["megabytes"]), _ratio(row["memory_to_reference"])]
        for i, row in enumerate(rows)
    ]  # fmt: skip
    note = "A training step without the optimiser, batch 2, 256 context and 512 target points, no window."
    return Sheet("te-tnp with an MLP score", note, ("model", "ms", "× tnp-d", "MB", "MB × tnp-d"), cells)


def _function(rows: list[dict]) -> Sheet:
    cells = []
    for row in rows:
        where = f"{row['points']:,} points, {_percent(row['span'])}"
        cells.append([f"kernel, from a table: {where}", _ms(row["table"]), _mb(row["table"]["megabytes"]), "", ""])
        less = _ratio(row["less_memory"])
        cells.append(["reference, on each pair", _ms(row["pairs"]), _mb(row["pairs"]["megabytes"]),
                      _ratio(row["faster"]), less])  # fmt: skip
    note = f"An MLP 2→32→32→4 added to q·k/√d, in 2-D. Error of the output: {rows[0]['error']:.0e}, relative."
    return Sheet("F(Δ) from a table", note, ("", "ms", "MB", "× time", "× memory"), cells)


def _large(rows: list[dict]) -> Sheet:
    note = (
        f"te-tnp (small) with a learned window of {rows[0]['neighbours']} neighbours on average. step: forward + "
        "backward on the context and a tenth as many targets; fill: a prediction at all targets."
    )
    cells = [
        [f"{row['context']:,} in {row['dim']}-D", _ms(row["step"]), _mb(row["step"]["megabytes"]),
         f"{row['targets']:,}", _ms(row["fill"]), _mb(row["fill"]["megabytes"])]
        for row in rows
    ]  # fmt: skip
    return Sheet("Many points", note, ("context", "step, ms", "MB", "targets", "fill, ms", "MB"), cells)


def _crossover(rows: list[dict]) -> Sheet:
    """How many times as long as the kernel the best of the others takes, size by size."""
    note = (
        f"Time of the fastest other back end over that of the kernel, by number of points n ({HEADS} n² pairs); f, r "
        "and s: it is fused, reference or streamed. from: pairs from which on the kernel is the fastest."
    )
    cells = []
    for row in rows:
        what = f"{_percent(row['span'])} window" if row["span"] else f"no window, {row['score']}"
        times = [_best(took) for took in row["milliseconds"]]
        cells.append([f"{row['dim']}-D, {what}", NONE if row["pairs"] is None else f"{row['pairs']:,}", *times])
    return Sheet("Where the kernel begins to pay", note, ("", "from", *(f"{n:,}" for n in rows[0]["points"])), cells)


def _best(took: dict[str, float]) -> str:
    name = min((other for other in took if other != NATIVE), key=took.__getitem__)
    return f"{_ratio(took[name] / took[NATIVE])} {name[0]}"


def _asked(rows: list[dict]) -> Sheet:
    cells = []
    for row in rows:
        sign = {True: "✓", False: "✗", None: NONE}[row["holds"]]
        bound = ("≥ " if row["at_least"] else "≤ ") + f"{row['asked']:.3g}"
        measured = NONE if row["measured"] is None else f"{row['measured']:.3g}"
        cells.append([row["what"], row["unit"], bound, measured, sign])
    note = "For two threads and the continuous cut, unless it says otherwise; where several cases answer, the worst."
    return Sheet("What was asked", note, ("against", "what", "asked", "measured", ""), cells, left=2)


def _points(row: dict) -> str:
    side = round(row["points"] ** 0.5)
    return f"{side}×{side} pixels" if row["layout"] == "grid" else f"{row['points']:,} in {row['dim']}-D"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _ms(figure: dict) -> str:
    ms = figure["milliseconds"]
    return f"{ms:,.{2 if ms < 10 else 1 if ms < 100 else 0}f}"


def _ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _mb(value: float | None) -> str:
    return NONE if value is None else f"{value:,.{1 if value < 10 else 0}f}"
