"""The methods that are compared: the sheet model, its parts, and the baselines; and their scores.

A new method is one more entry of METHODS, a function as `baselines.py` describes it.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy import ndarray

from fillin.errors import InputError
from fillin.inference.context import level_and_size
from fillin.inference.sheets import SheetContext, to_tensor
from fillin.metrics import crps
from fillin.models import load
from fillin.models.base import Points
from fillin.models.filler import Normalization
from fillin.models.guides import N_GUIDES, compute_guides
from fillin.models.sheet import Sheet, median_step
from fillin.predictive import GaussianMixture
from fillin.pretrained import locate, names
from fillin.runtime import require
from fillin_studies.fill.interpolation import make_normal, predict_linear
from fillin_studies.fill.methods import predict_curve
from fillin_studies.sheets.baselines import (
    GP_POINTS,
    IMPUTER_ROUNDS,
    NETWORK_EPOCHS,
    NETWORK_ROWS,
    RANK_SHARE,
    FilledSheet,
    Mixtures,
    fill_by_network,
    fill_by_svd,
    fill_each_column,
    impute,
    in_standard_units,
    load_pypots,
    predict_composed,
    predict_rbf,
)
from fillin_studies.sheets.data import Sheet2D, SheetCase

# The parts of fillin


def predict_guides(observed: Sheet2D) -> Mixtures:
    """Predict by the last of the closed-form guides, interpolation and regression on the other columns, and its
    error."""
    level, size = level_and_size(observed)
    missing = np.isnan(observed)
    y = to_tensor(np.where(missing, 0, (observed - level) / size))[None]
    x = torch.arange(len(observed), dtype=y.dtype)[None, :, None]
    seen = torch.from_numpy(~missing)[None]
    record = Points(x, y, seen, seen.any(-1))
    norm = Normalization.of(record)
    u = norm.location(x)
    guides = compute_guides(u, torch.where(seen, norm.value(y, x), 0), seen, median_step(u, record.valid))
    mean = norm.trend(x) + norm.scale * guides.values[..., N_GUIDES - 1]
    std = norm.scale * guides.errors[..., N_GUIDES - 1]
    means, stds = (part[0].double().numpy() for part in (mean, std))
    return [
        make_normal(level[j] + size[j] * means[rows, j], size[j] * stds[rows, j]) if rows.any() else None
        for j, rows in enumerate(missing.T)
    ]


@lru_cache
def load_sheet_model(name: str) -> Sheet:
    """Load the sheet model of that name or folder."""
    if not locate(name).exists():
        raise InputError(f"--model {name}: there are no such weights; give a run folder of a sheet model")
    model = load(name)
    if not isinstance(model, Sheet) or model.dim_x != 1:
        raise InputError(f"--model {name}: not a sheet model over one dimension; train one with: fillin train sheet")
    return model.eval()


def predict_jointly(observed: Sheet2D, model: str) -> Mixtures:
    """Predict all columns by the sheet model at once."""
    context = SheetContext(load_sheet_model(model), np.arange(len(observed), dtype=float), observed)
    return context.predict(np.isnan(observed))


def predict_alone(observed: Sheet2D, model: str) -> Mixtures:
    """Predict each column by the sheet model without the others."""
    return [predict_jointly(observed[:, [j]], model)[0] for j in range(observed.shape[1])]


@dataclass(frozen=True)
class SheetMethod:
    """`alone`: also measured on columns alone, pattern SINGLE; `ours`: fillin or a part of it, no baseline; `module`:
    an optional module that it needs; `weights`: the pretrained weights, where SHEET stands for the model that the study
    is given; `version`: raised when its predictions change, so that stored results are measured again."""

    fill: Callable[..., FilledSheet]
    about: str
    alone: bool = False
    ours: bool = False
    module: str | None = None
    weights: str | None = None
    version: int = 1

    def choose_weights(self, model: str) -> str | None:
        return model if self.weights == SHEET else self.weights

    def find_missing(self, model: str) -> str | None:
        """Return the reason why the method cannot run, if any."""
        if self.module and find_spec(self.module) is None:
            return f"{self.module} is not installed (pip install {self.module})"
        weights = self.choose_weights(model)
        if weights and weights not in names() and not locate(weights).exists():
            return f"this version ships no weights {weights!r}; give a run folder by --model"
        return None


SHEET = "sheet"
METHODS: dict[str, SheetMethod] = {
    "fillin joint": SheetMethod(
        predict_jointly, "the sheet model, all columns at once, nothing fitted", ours=True, weights=SHEET,
        version=2,
    ),
    "fillin alone": SheetMethod(
        predict_alone, "the sheet model, each column without the others", True, True, weights=SHEET
    ),
    "curve alone": SheetMethod(
        fill_each_column(predict_curve), "fillin's pretrained weights for series, each column without the others", True,
        True, weights="curve",
    ),
    "guides": SheetMethod(
        predict_guides,
        "what the sheet model starts from: interpolation and ridge regression on the other columns in closed form, "
        "with the error on observed cells as the standard deviation", ours=True,
    ),
    "linear": SheetMethod(
        fill_each_column(predict_linear), "interpolation along the column, intervals from leave-one-out errors", True
    ),
    "iterative": SheetMethod(
        impute(lambda imputers, seed: imputers.IterativeImputer(max_iter=IMPUTER_ROUNDS, random_state=seed)),
        f"IterativeImputer of scikit-learn, Bayesian ridge regression on the other columns, {IMPUTER_ROUNDS} rounds",
        module="sklearn",
    ),
    "k-NN": SheetMethod(
        impute(lambda imputers, _: imputers.KNNImputer()), "KNNImputer of scikit-learn, 5 similar rows",
        module="sklearn",
    ),
    "SVD": SheetMethod(
        in_standard_units(fill_by_svd),
        f"iterated truncated SVD from linear interpolation; the rank predicts {RANK_SHARE:.0%} of the observed cells "
        "best",
    ),
    "GP, RBF": SheetMethod(
        fill_each_column(predict_rbf),
        "exact GP of each column by itself, of scikit-learn, RBF and noise; marginal likelihood by L-BFGS from "
        f"{GP_POINTS} observations in the middle and from as many anywhere, of which the higher likelihood of all is "
        "kept; conditioned on all", module="sklearn",
    ),
    "GP, composed": SheetMethod(
        fill_each_column(predict_composed),
        "the same with trend + periodic + rational quadratic + noise, starting at the period of the periodogram",
        module="sklearn",
    ),
    "SAITS": SheetMethod(
        in_standard_units(partial(
            fill_by_network, name="SAITS", stride=12, batch=8, rate=3e-3, patience=10, n_layers=2, d_model=64,
            n_heads=4, d_k=16, d_v=16, d_ffn=128, dropout=0.1,
        )),
        "self-attention trained on the sheet (Du et al. 2023), by PyPOTS: overlapping windows of "
        f"{NETWORK_ROWS} rows, at most {NETWORK_EPOCHS} epochs, early stopping on a tenth of the observed cells",
        module="pypots",
    ),
    "BRITS": SheetMethod(
        in_standard_units(partial(
            fill_by_network, name="BRITS", stride=24, batch=16, rate=1e-2, patience=8, rnn_hidden_size=64,
        )),
        "recurrent network trained on the sheet (Cao et al. 2018), by PyPOTS, likewise", module="pypots",
    ),
}  # fmt: skip
JOINT, ALONE, LINEAR = "fillin joint", "fillin alone", "linear"
WITH_ADDED_COLUMNS = (JOINT, "guides", "iterative")  # that are measured with a further column


def measure(case: SheetCase, method: SheetMethod, model: str) -> dict[str, Any]:
    """Measure a method. The time of loading weights or PyPOTS is not counted."""
    if method.weights == SHEET:
        load_sheet_model(model)
    if method.module == "pypots":
        load_pypots()
    elif method.module:
        import_module(method.module)
    start = time.process_time()
    filled = fill(case, method, model)
    seconds = time.process_time() - start
    return {**score_sheet(filled, case), "seconds": seconds}


def fill(case: SheetCase, method: SheetMethod, model: str) -> FilledSheet:
    """Fill the hidden cells on one thread."""
    options = {"model": model} if method.weights == SHEET else {}
    with require("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rounds that end before convergence
        return method.fill(case.observed, **options)


def score_sheet(filled: FilledSheet, case: SheetCase) -> dict[str, Any]:
    """Return means over hidden cells, in standard deviations of their columns, and the RMSE of each column. Points have
    no CRPS and no coverage."""
    errors, scores, inside, columns = [], [], [], {}
    for j, (name, unit) in enumerate(zip(case.columns, case.unit, strict=True)):
        hidden = case.hidden[:, j]
        truth, prediction = case.y[hidden, j], filled[:, j] if isinstance(filled, ndarray) else filled[j]
        if not len(truth) or prediction is None:
            continue
        if isinstance(prediction, GaussianMixture):
            missing = np.isnan(case.observed[:, j])
            prediction = prediction[hidden[missing]]  # a file may have missing cells of its own
            mean, cdf = prediction.mean, prediction.cdf(truth)
            scores.append(crps(prediction, truth) / unit)
            inside.append((cdf >= 0.025) & (cdf <= 0.975))
        else:
            mean = prediction[hidden]
        errors.append((mean - truth) / unit)
        columns[name] = float(np.sqrt((errors[-1] ** 2).mean()))
    error = np.concatenate(errors)
    result: dict[str, Any] = {"rmse": float(np.sqrt((error**2).mean())), "mae": float(np.abs(error).mean())}
    if scores:
        result |= {"crps": float(np.concatenate(scores).mean()), "covered": float(np.concatenate(inside).mean())}
    return {**result, "columns": columns}
