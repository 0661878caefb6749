"""The page of a table: what was filled, a test on cells hidden on purpose, what was assumed."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fillin.filling.report import Told, compose
from fillin.filling.table.holdout import FEWEST, SHARE, ClassVerdict, NumberVerdict
from fillin.filling.table.plan import TablePlan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUMBERS = ("numbers", "hidden", "RMSE", "RMSE of the mean", "in 95 %")
_CLASSES = ("classes", "hidden", "right", "right: the commonest", "mean ln p")
Verdict = NumberVerdict | ClassVerdict


def page_of(plan: TablePlan, figure: "Figure", verdicts: Sequence[Verdict], command: Sequence[str]) -> str:
    line = f"{plan.summary}; filled: {', '.join(f'{c.name} ({int(c.missing.sum()):,})' for c in plan.all_fills)}"
    told = Told(plan.table.name, line, [note.shell for note in plan.notes], assumptions(plan))
    return compose(told, figure, "cells hidden on purpose", _judged(verdicts, plan.seed), command)


def assumptions(plan: TablePlan) -> list[str]:
    """In words, one line each."""
    read = ", ".join(column.name for column in plan.reads)
    goal = "to tell every column from the others" if plan.target is None else f"to tell '{plan.target.name}' alone"
    return [
        f"The order of the rows means nothing. Read were: {read or 'no columns'}.",
        f"Networks were trained on this table {goal}: they learn which rows are alike and look up what those hold. "
        "They know nothing else.",
        f"The band of numbers and dates holds {plan.level:.0%} of what would be observed; _std is the deviation of the "
        "same (of dates in days), and _probability that of the class that was filled in. What was known keeps its "
        "value, with a deviation of 0 and a probability of 1.",
        *(
            [f"Nothing lies beyond its bounds: {_limits(plan)}. What was told beyond is put on them."]
            if plan.bounds
            else []
        ),
        "Each blank is told on its own: cells of one row that were filled are not drawn together.",
        "Values are missing for reasons that other cells of their rows may tell, but the values themselves not.",
    ]


def _limits(plan: TablePlan) -> str:
    shown = lambda limit: "" if limit is None else f"{limit:g}"  # noqa: E731
    return ", ".join(f"{name} {shown(low)}:{shown(high)}" for name, (low, high) in plan.bounds.items())


def _judged(verdicts: Sequence[Verdict], seed: int) -> str:
    if not verdicts:
        return f"<p>Too little is known to hide any of it: a column needs {FEWEST} known cells.</p>"
    numbers = [
        (v.column, f"{v.cells:,}", f"{v.rmse:.3f}", f"{v.plain:.3f}", f"{v.inside:.0%}")
        for v in verdicts if isinstance(v, NumberVerdict)
    ]  # fmt: skip
    classes = [
        (v.column, f"{v.cells:,}", f"{v.right:.0%}", f"{v.plain:.0%}", f"{v.log_prob:.3f}")
        for v in verdicts if isinstance(v, ClassVerdict)
    ]  # fmt: skip
    return (
        _table(_NUMBERS, numbers) + _table(_CLASSES, classes)
        + f"<p>A share of {SHARE:.0%} of the known cells of each filled column was hidden (seed {seed}), and other "
        "networks, fewer and trained for a shorter time than those that filled, learnt the rest. RMSE is in standard "
        "deviations of the column, beside that of putting in the mean; the share inside the bands should be 95 %. Of "
        "classes, how often the likeliest was right, beside always saying the commonest, and the mean logarithm of the "
        "probability that the truth was given.</p>"
    )  # fmt: skip


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
