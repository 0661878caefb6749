"""results.json and report.md of a study, and the tables in them."""

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fillin
from fillin.io import write_text
from fillin.measure import describe_machine
from fillin_studies.base import StudyCell
from fillin_studies.run import StudyRun


class Metric(NamedTuple):
    """A measured number: its key in the results, title, digits, and whether higher is better (None: neither)."""

    key: str
    title: str
    digits: int
    higher_is_better: bool | None


def write_report(run: StudyRun, command: Sequence[str]) -> Path:
    """Draw figures and write results.json and report.md from all cells that are measured. Return report.md."""
    done = [cell for cell in [*run.cells(), *run.explored()] if cell.done]
    cells = [cell for cell in done if not cell.failed]
    report = run.study.report(cells, run.folder)
    failures = [f"{cell.variant}, seed {cell.seed}, diverged and is left out." for cell in done if cell.failed]
    results: dict[str, Any] = {
        "study": run.study.name,
        "budget": "quick" if run.quick else "full",
        "command": list(command),
        "fillin": fillin.__version__,
        "machine": describe_machine(),
        "findings": [*report.findings, *failures],
        "cells": [cell.result for cell in done],
    }
    write_text(run.folder / "results.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    study, machine = run.study, ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    lines = [f"# {capitalise(study.title)}", "", study.question, "", *(f"- {text}" for text in results["findings"]), ""]
    lines += format_table(report.columns, report.rows)
    for figure, caption in report.figures.items():
        lines += ["", f"![{caption}]({figure})", "", f"*{caption}*"]
    lines += ["", *report.more] if report.more else []
    method = report.method or _describe_training(run, cells)
    lines += ["", "## Method", "", f"    {shlex.join(command)}", "", f"{method} {machine}.", ""]
    path = run.folder / "report.md"
    write_text(path, "\n".join(lines))
    return path


def _describe_training(run: StudyRun, cells: Sequence[StudyCell]) -> str:
    scale = run.study.scale(run.quick)
    seeds = sorted({cell.seed for cell in cells})
    seconds = sum(cell.result["seconds"] for cell in cells)
    shared = {**run.study.recipe, **scale.settings}
    errors = sorted(result["standard_error"] for cell in cells if "standard_error" in (result := cell.result))
    error = f"Scores have a standard error of about {errors[len(errors) // 2]:.3f} over tasks. " if errors else ""
    certain = ", so that differences between them are more certain than that" if errors else ""
    return (
        f"{len(cells)} runs, seeds {', '.join(map(str, seeds))}, {seconds / 60:.0f} minutes of training in all; "
        f"{scale.about} {error}All models are scored on the same tasks{certain}. Each run has its recipe in `cells/`. "
        f"Shared settings: {', '.join(f'`{key}` {value}' for key, value in shared.items())}."
    )


def format_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Format a Markdown table: floats with three decimals, integers with commas, None as a dash."""

    def format_value(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "–" if value is None else str(value)
        return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"

    head = "| " + " | ".join(columns) + " |"
    rule = "|" + "---|" + "---:|" * (len(columns) - 1)
    return [head, rule, *("| " + " | ".join(map(format_value, row)) + " |" for row in rows)]


def format_sections(sections: Mapping[str, Sequence[str]]) -> list[str]:
    """Put the lines of each section under its heading, and an empty line between two sections."""
    lines = [line for heading, section in sections.items() for line in (f"## {heading}", "", *section, "")]
    return lines[:-1]


def format_row(
    metric: Metric, names: Sequence[str], values: Mapping[str, float], errors: Mapping[str, float] | None = None,
    unranked: Collection[str] = (),
) -> list[str]:  # fmt: skip
    """Format a value for each name, ± its error where there is one, the best in bold; a dash where there is none."""
    rounded = {name: round(value, metric.digits) for name, value in values.items()}
    ranked = [value for name, value in rounded.items() if name not in unranked]
    best = None if metric.higher_is_better is None or not ranked else (max if metric.higher_is_better else min)(ranked)
    cells = []
    for name in names:
        cell = f"{values[name]:.{metric.digits}f}" if name in values else "–"
        if errors and name in values:
            cell += f" ± {errors[name]:.{metric.digits}f}"
        cells.append(f"**{cell}**" if rounded.get(name) == best is not None and name not in unranked else cell)
    return cells


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def with_minus(text: str) -> str:
    """Replace hyphens by minus signs, which are as wide as a plus."""
    return text.replace("-", "−")
