"""Missing cells: a fifth of a table is hidden at random, and every cell of it is asked for.

A cell of the study is a data set × a method × a mask. Columns are numbers, the target among them, in deviations of
what is known of each, so that errors of all columns count alike.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

import fillin
from fillin.runtime import require
from fillin_studies.base import Cell, Report, Scale, Settings, Study, Told
from fillin_studies.report_files import table
from fillin_studies.tables.data import Found, find
from fillin_studies.tables.methods import OURS, digest
from fillin_studies.tables.ranks import COVERED, SECONDS, Measure, Results
from fillin_studies.tables.report import by_method

HIDDEN = 0.2  # of all cells
GROUP = "imputation"
RMSE = Measure("rmse", "RMSE in deviations", 3, False)
MAE = Measure("mae", "mean absolute error in deviations", 3, False)
MEASURES = (RMSE, MAE, COVERED, SECONDS)
FIVE = ("airfoil", "autompg", "concrete", "housing", "yacht")

Table = Float[ndarray, "n d"]
Filled = tuple[Table, Table | None]  # every cell; and the deviation of each that was missing, where it is told


def ours(known: Table, seed: int) -> Filled:
    return fillin.TableImputer(random_state=seed).fit(known).fill(known)


def rival(make: Callable[[Any, int], Any]) -> Callable[[Table, int], Filled]:
    """One of scikit-learn's imputers, at its defaults."""

    def fill(known: Table, seed: int) -> Filled:
        require("sklearn.experimental.enable_iterative_imputer")
        return make(require("sklearn.impute"), seed).fit_transform(known), None

    return fill


def forests(impute: Any, seed: int) -> Any:
    """Stekhoven & Bühlmann 2012: each column by a forest on the others, in turns."""
    forest = require("sklearn.ensemble").RandomForestRegressor(n_jobs=1, random_state=seed)
    return impute.IterativeImputer(forest, max_iter=5, random_state=seed)


METHODS: dict[str, Callable[[Table, int], Filled]] = {
    OURS: ours,
    "mean": rival(lambda impute, _: impute.SimpleImputer()),
    "k-NN": rival(lambda impute, _: impute.KNNImputer()),
    "iterative": rival(lambda impute, seed: impute.IterativeImputer(random_state=seed)),
    "iterative, forests": rival(forests),
}


def hidden(shape: tuple[int, int], mask: int) -> Bool[ndarray, "n d"]:
    """The cells that are hidden by the n-th mask."""
    return np.random.default_rng(mask).random(shape) < HIDDEN


def numbers(found: Found, name: str) -> Table:
    """All columns of numbers of a set, its target last where that is one."""
    X, y, classes = found.sets[name].rows
    columns = X.select_dtypes("number").to_numpy(float)
    return columns if classes else np.column_stack([columns, y])


def measure(values: Table, method: str, mask: int) -> dict[str, float]:
    """Errors on the hidden cells, and the seconds of processor time that they took."""
    gone = hidden(values.shape, mask) & ~np.isnan(values)
    known = np.where(gone, np.nan, values)
    mean, deviation = np.nanmean(known, 0), np.nanstd(known, 0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    start = process_time()
    with require("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that rounds ended before they settled: those are the defaults
        filled, unsure = METHODS[method]((known - mean) / deviation, mask)
    seconds = process_time() - start
    off = (filled - (values - mean) / deviation)[gone]
    told = {"rmse": float(np.sqrt((off**2).mean())), "mae": float(np.abs(off).mean()), "seconds": seconds}
    if unsure is not None:
        told["covered"] = float((np.abs(off) <= 1.96 * unsure[gone]).mean())
    return told


def variants(found: Found, masks: tuple[int, int], quick: bool) -> Mapping[str, Settings]:
    cells: dict[str, Settings] = {}
    for mask in range(masks[0] if quick else masks[1]):
        for name in found.sets:
            for method in METHODS:
                own = {"data": name, "method": method, "mask": mask}
                cells[f"{name}, {method}, mask {mask}"] = own | ({"weights": digest()} if method == OURS else {})
    return cells


def direct(found: Found, settings: Settings, told: Told) -> dict[str, Any]:
    name, method, mask = settings["data"], settings["method"], settings["mask"]
    result = measure(numbers(found, name), method, mask)
    told(1.0)
    return {"data": name, "group": GROUP, "method": method, "split": mask, **result}


def report(found: Found, cells: Sequence[Cell], folder: Path) -> Report:
    each = Results(GROUP, [cell.result for cell in cells])
    more = []
    for one in MEASURES:
        methods = [OURS] if one is COVERED else list(METHODS)
        more += [f"## {one.title[0].upper()}{one.title[1:]}", "", *table(*by_method(each, one, methods)), ""]
    masks = max((len(splits) for methods in each.of.values() for splits in methods.values()), default=0)
    made = (
        f"{len(each.of)} sets of numbers, {HIDDEN:.0%} of the cells hidden at random, masks: {masks}, all methods at "
        "their defaults, on one thread; columns are in deviations of what is known of them. ± is the standard error "
        "over masks (0 where there is one), of ranks over sets. Seconds are processor time of fitting and filling."
    )
    ranks = [[name, f"{mean.value:.2f} ± {mean.error:.2f}"] for name, mean in each.ranks(RMSE).items()]
    return Report(findings(each), ["average rank", RMSE.title], ranks, more=more, made=made)


def findings(each: Results) -> list[str]:
    """Where ours is best, and whom it is behind elsewhere."""
    said = []
    for others in (("mean", "k-NN", "iterative"), tuple(METHODS)[1:]):
        behind = []
        for data in each.of:
            best = each.best(data, RMSE, [OURS, *others])
            if best != OURS:
                own, other = (each.mean(data, name, RMSE).value for name in (OURS, best))
                behind.append(f"{data} ({own:.3f}, {best} {other:.3f})")
        won = len(each.of) - len(behind)
        words = f"Of {OURS}, {', '.join(others)}, {OURS} has the lowest RMSE on {won} of {len(each.of)} sets"
        said.append(words + (f"; not on {', '.join(behind)}." if behind else "."))
    five = [data for data in FIVE if data in each.of]
    if five:
        first = [d for d in five if each.best(d, RMSE, [OURS, "mean", "k-NN", "iterative"]) == OURS]
        said.append(
            f"Of the five of UCI that others report ({', '.join(five)}) it is ahead of those three on {len(first)}."
        )
    return said


def configured(data: Path | None = None, masks: int | None = None) -> Study:
    """The study with the sets of a folder, and another number of masks than its budgets have."""
    every = find(data)
    found = Found({k: one for k, one in every.sets.items() if not one.few and k != "digits"}, every.left_out)
    quick, full = masks or 1, masks or 3
    return Study(
        name="imputes",
        line="missing cells of tables, against the imputers of scikit-learn",
        question="A fifth of the cells of a table are missing. How near is what each method puts there, and do the "
        "intervals of ours hold what they say?",
        recipe={},
        variants=partial(variants, found, (quick, full)),
        quick=Scale({}, 1, f"quick: {quick} mask."),
        full=Scale({}, 1, f"full: {full} masks."),
        report=partial(report, found),
        direct=partial(direct, found),
    )


STUDY = configured()
