"""Filling gaps: pretrained weights `curve` and `surface` against methods that are fitted to each series.

A cell is a data set × a kind of gap × a method, pooled over masks that are the same for every method. Nothing is
trained; every method sees a series once, and is timed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fillin_studies.base import MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport, StudyScale
from fillin_studies.fill.data import PriorSeries, find_gap_data
from fillin_studies.fill.methods import METHODS, OURS
from fillin_studies.fill.report import make_report
from fillin_studies.fill.score import BAYES, NARROW_PRIORS, OWN_PRIOR, measure, measure_gap


class FillStudy(MethodStudy):
    name = "fill"
    title = "filling gaps without fitting anything, against methods that are fitted to each series"
    question = (
        "A Gaussian process is fitted to every series anew; pretrained weights have seen many kinds of series, and "
        "this one never. Which fills gaps better, how well calibrated are the prediction intervals, and what does it "
        "cost? CRPS, RMSE and log-likelihood are in standard deviations of the series; lower is better except for the "
        "last."
    )
    repeats = 3, 20  # masks

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        super().__init__(data, repeats)
        self.data = find_gap_data(data)
        self.quick, self.full = (StudyScale({"masks": masks}) for masks in self.repeats)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        """Every data set, kind of gap and method that accepts it; then the comparisons with exact Bayes."""
        cells: dict[str, RecipeSettings] = {}
        for name, data in self.data.sets.items():
            methods = [key for key, method in METHODS.items() if data.dim_x in method.dims and not method.missing]
            for kind in data.kinds:
                for method in [*methods, BAYES] if isinstance(data, PriorSeries) else methods:
                    cells[f"{name}, {kind}, {method}"] = {"data": name, "kind": kind, "method": method}
        if not METHODS[OURS[1]].missing:
            limit = {"kind": "limit", "method": OURS[1]}
            cells |= {f"limit, {name}": {"data": name, **limit} for name in (*NARROW_PRIORS, OWN_PRIOR)}
        return cells

    def version_of(self, settings: RecipeSettings) -> str:
        method = METHODS.get(settings["method"])
        return f"{self.version}.{method.stamp if method else 1}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        if settings["kind"] == "limit":
            return measure_gap(settings["data"], settings["masks"], progress)
        data = self.data.sets[settings["data"]]
        return measure(data, settings["kind"], settings["method"], settings["masks"], progress)

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        return make_report(self.data, cells, folder)


STUDY = FillStudy
