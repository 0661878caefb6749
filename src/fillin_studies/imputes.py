"""Imputation: a fifth of the cells of a table are held out at random and predicted.

A cell is a data set × a method × a mask. Columns are numbers, the target among them, standardised by observed values.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

import fillin
from fillin.predictive import HALF_WIDTH_95
from fillin.runtime import require
from fillin_studies.base import MethodStudy, RecipeSettings, ShareDone, StudyCell, StudyReport
from fillin_studies.report import Metric, capitalise, format_table
from fillin_studies.tables import COVERED, SECONDS, UCI_FIVE, MethodResults
from fillin_studies.tables.data import find_tables
from fillin_studies.tables.methods import OURS

HELD_OUT_SHARE = 0.2
GROUP = "imputation"
RMSE = Metric("rmse", "RMSE in standard deviations", 3, False)
MAE = Metric("mae", "mean absolute error in standard deviations", 3, False)
METRICS = (RMSE, MAE, COVERED, SECONDS)
OURS_VERSION = 1  # raised when predictions of TableImputer change

Table = Float[ndarray, "n d"]
Imputed = tuple[Table, Table | None]  # every cell, and the standard deviation of imputed ones where it is predicted
Impute = Callable[[Table, int], Imputed]


def baseline(make: Callable[[Any, int], Any]) -> Impute:
    """Return one of scikit-learn's imputers, at its defaults."""

    def impute(observed: Table, seed: int) -> Imputed:
        require("sklearn.experimental.enable_iterative_imputer")
        return make(require("sklearn.impute"), seed).fit_transform(observed), None

    return impute


METHODS: dict[str, Impute] = {
    OURS: lambda observed, seed: fillin.TableImputer(random_state=seed).fit(observed).fill(observed),
    "mean": baseline(lambda sklearn_impute, _: sklearn_impute.SimpleImputer()),
    "k-NN": baseline(lambda sklearn_impute, _: sklearn_impute.KNNImputer()),
    "iterative": baseline(lambda sklearn_impute, seed: sklearn_impute.IterativeImputer(random_state=seed)),
    # each column by a random forest on the others, in turns (Stekhoven & Bühlmann 2012)
    "iterative, forests": baseline(
        lambda sklearn_impute, seed: sklearn_impute.IterativeImputer(
            require("sklearn.ensemble").RandomForestRegressor(n_jobs=1, random_state=seed), max_iter=5,
            random_state=seed,
        )
    ),
}  # fmt: skip


def draw_mask(shape: tuple[int, int], number: int) -> Bool[ndarray, "n d"]:
    """Return the cells that the n-th mask holds out."""
    return np.random.default_rng(number).random(shape) < HELD_OUT_SHARE


def score_imputation(values: Table, method: str, mask: int) -> dict[str, float]:
    """Return errors on the held-out cells and the processor time in seconds."""
    held_out = draw_mask(values.shape, mask) & ~np.isnan(values)
    observed = np.where(held_out, np.nan, values)
    mean, std = np.nanmean(observed, 0), np.nanstd(observed, 0)
    std = np.where(std > 0, std, 1.0)
    start = process_time()
    with require("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rounds that end before convergence: those are the defaults
        imputed, predicted_std = METHODS[method]((observed - mean) / std, mask)
    seconds = process_time() - start
    error = (imputed - (values - mean) / std)[held_out]
    scores = {"rmse": float(np.sqrt((error**2).mean())), "mae": float(np.abs(error).mean()), "seconds": seconds}
    if predicted_std is not None:
        scores["covered"] = float((np.abs(error) <= HALF_WIDTH_95 * predicted_std[held_out]).mean())
    return scores


class ImputationStudy(MethodStudy):
    name = "imputes"
    title = "missing cells of tables, against the imputers of scikit-learn"
    question = (
        "A fifth of the cells of a table are missing. How accurate is each method, and do the prediction intervals of "
        "fillin have their nominal coverage?"
    )
    repeats = 1, 3  # masks

    def __init__(self, data: Path | None = None, repeats: int | None = None):
        super().__init__(data, repeats)
        self.tables = find_tables(data, few_labels=False)
        self.tables.sets.pop("digits", None)

    def variants(self, quick: bool) -> Mapping[str, RecipeSettings]:
        return {
            f"{title}, {method}, mask {mask}": {"data": title, "method": method, "mask": mask}
            for mask in range(self.repeats[0 if quick else 1])
            for title in self.tables.sets
            for method in METHODS
        }

    def version_of(self, settings: RecipeSettings) -> str:
        return f"{self.version}.{OURS_VERSION if settings['method'] == OURS else 1}"

    def measure(self, settings: RecipeSettings, progress: ShareDone) -> dict[str, Any]:
        title, method, mask = settings["data"], settings["method"], settings["mask"]
        X, y, n_classes = self.tables.sets[title].rows
        values = X.select_dtypes("number").to_numpy(float)
        scores = score_imputation(values if n_classes else np.column_stack([values, y]), method, mask)
        return {"data": title, "group": GROUP, "method": method, "split": mask, **scores}

    def report(self, cells: Sequence[StudyCell], folder: Path) -> StudyReport:
        results = MethodResults(GROUP, [cell.result for cell in cells])
        more = []
        for metric in METRICS:
            methods = [OURS] if metric is COVERED else list(METHODS)
            more += [f"## {capitalise(metric.title)}", "", *format_table(*results.tabulate(metric, methods)), ""]
        masks = max((len(splits) for methods in results.sets.values() for splits in methods.values()), default=0)
        procedure = (
            f"{len(results.sets)} data sets of numbers, {HELD_OUT_SHARE:.0%} of the cells held out at random, masks: "
            f"{masks}, all methods at their defaults, on one thread; columns are standardised by observed values. "
            "± is the standard error over masks (0 where there is one), of ranks over sets. Seconds are processor time "
            "of fitting and imputing."
        )
        ranks = [[name, f"{mean.value:.2f} ± {mean.error:.2f}"] for name, mean in results.ranks(RMSE).items()]
        return StudyReport(summarise(results), ["average rank", RMSE.title], ranks, more=more, method=procedure)


def summarise(results: MethodResults) -> list[str]:
    """Summarise on which sets fillin is best, and which method is better elsewhere."""
    findings = []
    simple = ("mean", "k-NN", "iterative")
    for others in (simple, tuple(METHODS)[1:]):
        behind = []
        for data in results.sets:
            best = results.best(data, RMSE, [OURS, *others])
            if best != OURS:
                ours, other = (results.mean(data, name, RMSE).value for name in (OURS, best))
                behind.append(f"{data} ({ours:.3f}, {best} {other:.3f})")
        won, total = len(results.sets) - len(behind), len(results.sets)
        sentence = f"Of {OURS}, {', '.join(others)}, {OURS} has the lowest RMSE on {won} of {total} sets"
        findings.append(sentence + (f"; not on {', '.join(behind)}." if behind else "."))
    five = [data for data in UCI_FIVE if data in results.sets]
    if five:
        first = [data for data in five if results.best(data, RMSE, [OURS, *simple]) == OURS]
        findings.append(
            f"Of the five UCI sets that other papers report ({', '.join(five)}) it is ahead of those three on "
            f"{len(first)}."
        )
    return findings
