"""What pretrained weights are worth: `curve` and `surface` against what people fill gaps with today.

A cell is a data set × a kind of gap × a method, pooled over masks that are the same for every method. Nothing is
trained; every method sees a series once, and is timed.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fillin_studies.base import Scale, Settings, Study, Told
from fillin_studies.fill.data import Found, Prior, find
from fillin_studies.fill.limits import NARROW, OWN, gap
from fillin_studies.fill.methods import METHODS, OURS
from fillin_studies.fill.report import report
from fillin_studies.fill.score import BAYES, measure

QUICK, FULL = 3, 20  # masks


def variants(found: Found, quick: bool) -> Mapping[str, Settings]:
    """Every data set, kind of gap and method that can be asked for it; then the limits."""
    cells: dict[str, Settings] = {}
    for name, data in found.sets.items():
        able = [key for key, one in METHODS.items() if data.dim_x in one.dims and not one.missing]
        for kind in data.kinds:
            for method in [*able, BAYES] if isinstance(data, Prior) else able:
                weights = METHODS[method].settings if method in METHODS else {}
                cells[f"{name}, {kind}, {method}"] = {"data": name, "kind": kind, "method": method, **weights}
    if not METHODS[OURS[1]].missing:
        limit = {"kind": "limit", "method": OURS[1], **METHODS[OURS[1]].settings}
        cells |= {f"limit, {name}": {"data": name, **limit} for name in (*NARROW, OWN)}
    return cells


def direct(found: Found, settings: Settings, told: Told) -> dict[str, Any]:
    """The result of one cell."""
    if settings["kind"] == "limit":
        return gap(settings["data"], settings["masks"], told)
    data = found.sets[settings["data"]]
    return measure(data, settings["kind"], settings["method"], settings["masks"], told)


def configured(data: Path | None = None, masks: int | None = None) -> Study:
    """The study with the curves and fields of a folder, and another number of masks than its budgets have."""
    found = find(data)
    quick, full = masks or QUICK, masks or FULL
    return Study(
        name="fill",
        line="filling gaps without fitting anything, against what is fitted to each series",
        question="A Gaussian process is fitted to every series anew; pretrained weights have seen many kinds of "
        "series, and this one never. Which fills gaps better, how honest are the bands, and what does it cost? CRPS, "
        "RMSE and log-likelihood are in deviations of the series; lower is better but for the last.",
        recipe={},
        variants=partial(variants, found),
        quick=Scale({"masks": quick}, 1, f"quick: {quick} masks."),
        full=Scale({"masks": full}, 1, f"full: {full} masks."),
        report=partial(report, found),
        direct=partial(direct, found),
    )


STUDY = configured()
