"""HTML report of a fill: the figure, hold-out scores and assumptions, in one file that needs no other."""

import base64
import io
import shlex
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

import fillin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fillin.filling.plan import FillPlan

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } img { max-width: 100%; }
table { border-collapse: collapse; } th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } code { background: #f3f3f3; padding: .1rem .3rem; }
"""


def render_report(plan: "FillPlan", figure: "Figure", scores: Sequence[Any], command: Sequence[str]) -> str:
    """Return the report as HTML."""
    from fillin.plots import style

    with io.BytesIO() as buffer, style():
        figure.savefig(buffer, format="png")
        png = base64.b64encode(buffer.getvalue()).decode()
    parts = [
        f"<h1>Missing values of {escape(plan.source.name)}, filled</h1>",
        f"<p>{escape(plan.summary)}.</p>",
        *(f"<p>Note: {escape(note.shell)}.</p>" for note in plan.notes),
        f'<img alt="observed and filled values, with their uncertainty" src="data:image/png;base64,{png}">',
        "<h2>Hold-out scores</h2>",
        *(_render_table([score.cells() for score in group]) for _, group in groupby(scores, type)),
        f"<p>{escape(plan.explain_holdout(scores))}</p>",
        "<h2>Assumptions</h2>",
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in plan.assumptions()) + "</ul>",
        "<h2>Command</h2>",
        f"<p><code>{escape(shlex.join(command))}</code> with fillin {fillin.__version__}</p>",
    ]
    head = f'<meta charset="utf-8"><title>{escape(f"fillin: {plan.source.name}")}</title><style>{_STYLE}</style>'
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _render_table(rows: list[dict[str, str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def describe_model(model: str, level: float, prior: str) -> list[str]:
    """Return assumptions of a pretrained model, for series and fields."""
    return [
        f"The model '{model}' was trained on a broad mixture of {prior}; it is conditioned on observed values only.",
        f"The prediction interval contains a new observation with probability {level:.0%}, observation noise included; "
        "_std is its standard deviation without rare, far components, which widen the interval alone. Observed values "
        "are kept, with a standard deviation of 0.",
        "Values are missing for reasons that have nothing to do with the values themselves.",
    ]


def describe_bounds(low: float | None, high: float | None) -> str:
    return f"{'−∞' if low is None else f'{low:g}'} … {'∞' if high is None else f'{high:g}'}"
