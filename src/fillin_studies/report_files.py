"""results.json and report.md of a study."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fillin
from fillin.io import write_text
from fillin.measure import describe_machine
from fillin_studies.base import Cell, Report, Work


def write(work: Work, command: Sequence[str]) -> Path:
    """Draw, judge and write down all cells that are measured. Returns report.md."""
    done = [cell for cell in [*work.cells(), *work.explored()] if cell.done]
    cells = [cell for cell in done if not cell.failed]
    report = work.study.report(cells, work.folder)
    lost = [f"{cell.variant}, seed {cell.seed}, diverged and is left out." for cell in done if cell.failed]
    report = replace(report, findings=[*report.findings, *lost])
    results = {
        "study": work.study.name,
        "budget": "quick" if work.quick else "full",
        "command": list(command),
        "fillin": fillin.__version__,
        "machine": describe_machine(),
        "findings": list(report.findings),
        "cells": [cell.result for cell in done],
    }
    text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    write_text(work.folder / "results.json", text)
    path = work.folder / "report.md"
    write_text(path, _page(work, cells, report, command))
    return path


def _page(work: Work, cells: Sequence[Cell], report: Report, command: Sequence[str]) -> str:
    study = work.study
    about = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    lines = [f"# {study.line[0].upper()}{study.line[1:]}", "", study.question, ""]
    lines += [*(f"- {finding}" for finding in report.findings), ""]
    lines += table(report.columns, report.rows)
    for picture, caption in report.pictures.items():
        lines += ["", f"![{caption}]({picture})", "", f"*{caption}*"]
    lines += ["", *report.more] if report.more else []
    made = report.made or _trainings(work, cells)
    lines += ["", "## How it was made", "", f"    {shlex.join(command)}", "", f"{made} {about}.", ""]
    return "\n".join(lines)


def _trainings(work: Work, cells: Sequence[Cell]) -> str:
    scale = work.study.scale(work.quick)
    seeds = sorted({cell.seed for cell in cells})
    spent = sum(cell.result["seconds"] for cell in cells)
    shared = {**work.study.recipe, **scale.settings}
    errors = sorted(cell.result["standard_error"] for cell in cells)
    return (
        f"{len(cells)} runs, seeds {', '.join(map(str, seeds))}, {spent / 60:.0f} minutes of training in all; "
        f"{scale.about} Scores have a standard error of about {errors[len(errors) // 2]:.3f} over tasks; these are the "
        f"same for all models, so that differences are surer than that. Each run has its recipe in `cells/`. Shared "
        f"settings: {', '.join(f'`{key}` {value}' for key, value in shared.items())}."
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A table of Markdown; numbers with three decimals, counts with commas, nothing as a dash."""
    head = "| " + " | ".join(columns) + " |"
    rule = "|" + "---|" + "---:|" * (len(columns) - 1)
    return [head, rule, *("| " + " | ".join(map(_shown, row)) + " |" for row in rows)]


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
