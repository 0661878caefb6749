"""What the study found: ranks, a table each measure with the best in bold, and where ours is first and where not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fillin_studies.base import Cell, Report
from fillin_studies.report_files import table
from fillin_studies.tables.data import FEW, Found
from fillin_studies.tables.figures import draw
from fillin_studies.tables.findings import findings
from fillin_studies.tables.methods import METHODS, WITH_FEW
from fillin_studies.tables.ranks import MEASURES, RANKED, Measure, Results

FIVE = ("airfoil", "autompg", "concrete", "housing", "yacht")  # that others have reported ranks of


def report(found: Found, cells: Sequence[Cell], folder: Path) -> Report:
    measured = [cell.result for cell in cells]
    groups = [each for name in MEASURES if (each := Results(name, measured)).of]
    boards = {each.group: each for each in groups}
    if "regression" in boards and set(FIVE) < set(boards["regression"].of):
        boards = {"regression, five of UCI": boards["regression"].only(FIVE), **boards}
    more = [line for each in groups for line in _tables(each)]
    more += ["## Methods", "", *_methods(measured)]
    missing = [f"{name} is left out: {one.missing}." for name, one in METHODS.items() if one.missing]
    said = [*findings(boards), *found.left_out, *missing]
    return Report(said, *_ranks(boards), draw(boards, folder), more, _made(measured))


def _ranks(boards: dict[str, Results]) -> tuple[list[str], list[list[str]]]:
    """Average ranks: a row each method, a column each group and measure."""
    every = {
        f"{name}: {measure.title}": each.ranks(measure)
        for name, each in boards.items()
        for measure in RANKED[each.group]
    }
    rows = []
    for method in WITH_FEW:
        own = [ranks.get(method) for ranks in every.values()]
        best = [min(mean.value for mean in ranks.values()) for ranks in every.values()]
        if any(own):
            rows.append([method, *(_word(one, 2, one and one.value == b) for one, b in zip(own, best, strict=True))])
    return ["average rank", *every], rows


def _word(mean: Any, digits: int, best: Any) -> str:
    if mean is None:
        return "–"
    word = f"{mean.value:.{digits}f} ± {mean.error:.{digits}f}"
    return f"**{word}**" if best else word


def _tables(each: Results) -> list[str]:
    lines = []
    for measure in MEASURES[each.group]:
        lines += [f"## {each.group.capitalize()}: {measure.title}", "", *table(*by_method(each, measure)), ""]
    return lines


def by_method(
    each: Results, measure: Measure, order: Sequence[str] = tuple(WITH_FEW)
) -> tuple[list[str], list[list[str]]]:
    """A row each set, a column each method: mean ± standard error over splits, the best of a row in bold."""
    names = [name for name in order if any(name in methods for methods in each.of.values())]
    rows = []
    for data, methods in each.of.items():
        shown = {name: each.mean(data, name, measure) for name in names if name in methods}
        values = [round(mean.value, measure.digits) for mean in shown.values()]
        best = None if measure.more is None else (max if measure.more else min)(values)
        words = {k: _word(mean, measure.digits, round(mean.value, measure.digits) == best) for k, mean in shown.items()}
        rows.append([data, *(words.get(name, "–") for name in names)])
    return ["", *names], rows


def _methods(measured: Sequence[dict[str, Any]]) -> list[str]:
    used = {one["method"] for one in measured}
    few = [one["method"] for one in measured if one["group"] == "few labels"]
    lines = [f"- **{name}**: {one.about}." for name, one in METHODS.items() if name in used]
    lines += [f"- **{k}**, few labels: {one.about}." for k, one in WITH_FEW.items() if one.ours and k in few]
    return [
        *lines,
        "",
        "Log-likelihoods are per row, in nats, of values in their own units, of classes with probabilities of at least "
        "10⁻⁶. Methods that give points are given a normal around them, with the deviation of what they miss in "
        "five-fold cross-validation on the rows they learn from; ours and the Gaussian process have distributions of "
        "their own. CRPS is by a hundred quantiles. AUROC is the mean over classes, each against the rest; the "
        "calibration error is of the likeliest class, in 15 bins. Words are a column for each; blanks are left to "
        "methods that know them (the boosted trees but for scikit-learn's, the random forest, ours) and are the mean "
        "or the most common for all others. Seconds are processor time of one fit and its predictions; the "
        "cross-validation is not in them.",
        "",
        f"Few labels: {FEW} rows have one, in the proportions of the classes; the others are both given without it (to "
        "ours, that learns from them) and asked for.",
    ]


def _made(measured: Sequence[dict[str, Any]]) -> str:
    sets, splits = {one["data"] for one in measured}, max((one["split"] + 1 for one in measured), default=0)
    spent = sum(one["seconds"] for one in measured)
    return (
        f"{len(sets)} sets, up to {splits} splits each, the same for every method: the given masks, of scikit-learn's "
        "sets tenths, each held out once (of digits five that are drawn), classes in their proportions. Fitting and "
        f"predicting took {spent / 60:.0f} minutes in all, each on one thread, cross-validation apart. ± is the "
        "standard error over splits, of ranks over sets."
    )
