"""The report: one page that stands alone. The picture, a test on what was hidden on purpose, what was assumed."""

import base64
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import fillin
from fillin.filling.api import Plan
from fillin.filling.holdout import ROUNDS, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } img { max-width: 100%; }
table { border-collapse: collapse; } th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } code { background: #f3f3f3; padding: .1rem .3rem; }
"""
_COLUMNS = ("hidden", "points", "skill", "RMSE", "RMSE linear", "CRPS", "in 50 %", "in 95 %")


@dataclass(frozen=True)
class Told:
    """What a page says of a table or a field in words of its own."""

    name: str  # of the file
    line: str  # what was seen in it
    notes: list[str]
    assumed: list[str]
    each: str = "series"  # one of what is hidden in


def of_table(plan: Plan, model: str) -> Told:
    line = f"{plan.roles.summary}; new places: {len(plan.new.x):,}"
    return Told(plan.roles.table.name, line, [note.shell for note in plan.notes], assumptions(plan, model))


def page(told: Told, figure: "Figure", verdicts: list[Verdict], command: Sequence[str], seed: int) -> str:
    """The whole page as HTML."""
    return compose(told, figure, "points hidden on purpose", _table(verdicts, seed, told.each), command)


def compose(told: Told, figure: "Figure", hidden: str, judged: str, command: Sequence[str]) -> str:
    """What every page has, around what was found of `hidden` things."""
    parts = [
        f"<h1>What was filled in {escape(told.name)}</h1>",
        f"<p>{escape(told.line)}.</p>",
        *(f"<p>Note: {escape(note)}.</p>" for note in told.notes),
        f'<img alt="what was known, what was filled, and how surely" src="data:image/png;base64,{_png(figure)}">',
        f"<h2>How well it does on {hidden}</h2>",
        judged,
        "<h2>What was assumed</h2>",
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in told.assumed) + "</ul>",
        "<h2>To do it again</h2>",
        f"<p><code>{escape(shlex.join(command))}</code> with fillin {fillin.__version__}</p>",
    ]
    title = escape(f"fillin: {told.name}")
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
    return f'<!DOCTYPE html>\n<html lang="en">{head}\n<body>\n' + "\n".join(parts) + "\n</body></html>\n"


def general(model: str, level: float, learnt: str) -> list[str]:
    """What holds for tables and fields alike."""
    return [
        f"The model '{model}' has learnt from a broad mixture of {learnt}; of yours it has seen the known points and "
        "nothing else.",
        f"The band holds {level:.0%} of what would be observed there, noise of observation included; _std is the "
        "deviation of the same. What was known keeps its value, and its deviation is 0.",
        "Values are missing for reasons that have nothing to do with what they would have been.",
    ]


def assumptions(plan: Plan, model: str) -> list[str]:
    """In words, one line each."""
    roles, asked = plan.roles, plan.asked
    lines = [
        f"'{roles.x.name}' says where each row belongs; distances in it count.",
        "Each filled column is filled from itself alone"
        + (f", and each group ({' and '.join(roles.by)}) from itself alone." if roles.by else "."),
        *general(model, asked.level, "smooth, rough, seasonal, trending and noisy curves"),
    ]
    if asked.period:
        lines.append(f"It goes round: {asked.period:g}{' s' * (roles.x.clock is not None)} further is the same place.")
    lines += [f"{column} lies in {in_words(*limits)}." for column, limits in asked.bounds.items()]
    if roles.y_err is not None:
        lines.append(f"'{roles.y_err.name}' has the standard deviations of known values' errors (blank or 0: unknown).")
    return lines


def in_words(low: float | None, high: float | None) -> str:
    """A range."""
    return f"{'−∞' if low is None else f'{low:g}'} … {'∞' if high is None else f'{high:g}'}"


def _table(verdicts: list[Verdict], seed: int, each: str) -> str:
    if not verdicts:
        return "<p>Too little is known to hide any of it.</p>"
    rows = "".join(
        f"<tr><td>{escape(v.way)}</td><td>{v.points:,}</td><td>{v.skill:+.2f}</td><td>{v.rmse:.3f}</td>"
        f"<td>{v.rmse_linear:.3f}</td><td>{v.crps:.3f}</td><td>{v.inside_50:.0%}</td><td>{v.inside_95:.0%}</td></tr>"
        for v in verdicts
    )
    heads = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    return (
        f"<table><tr>{heads}</tr>{rows}</table><p>{ROUNDS} rounds a {each} hid a fifth of its known points (seed "
        f"{seed}). Errors are in standard deviations of the {each}. Skill is 1 − RMSE / RMSE of linear interpolation: "
        "0 is no better than a straight line between neighbours, 1 is perfect. CRPS is the error of the whole "
        "distribution. The last two say how many hidden points lie in bands that should hold 50 % and 95 %.</p>"
    )


def _png(figure: "Figure") -> str:
    from fillin.plots import style

    with io.BytesIO() as buffer, style():
        figure.savefig(buffer, format="png")
        return base64.b64encode(buffer.getvalue()).decode()
