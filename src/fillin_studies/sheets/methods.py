"""The methods that are compared: the sheet model, its parts, and common ways to fill several series; and their scores.

A new method is one more entry of METHODS: a function from a sheet, with NaN where it is hidden, to the filled sheet, or
to the predictive distributions of the missing cells of each column. Columns have any scale.
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
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.errors import InputError
from fillin.gp import GaussianProcess, GPHyperparameters, GPPosterior, GPTarget
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
from fillin_studies.fill.interpolation import make_normal, predict_linear, robust_std
from fillin_studies.fill.methods import predict_curve
from fillin_studies.imputes import baseline
from fillin_studies.sheets.data import Sheet2D, SheetCase

Mixtures = list[GaussianMixture | None]  # of the missing cells of each column, in the order of the rows; None: no cell
FilledSheet = Sheet2D | Mixtures
_ROUNDS = 20  # of IterativeImputer
_RANK_SHARE = 0.1  # of the observed cells, held out to choose the rank
_RANK_SEED = 2001  # not that of a pattern: the same numbers would choose hidden cells
_SVD_STEPS, _SVD_TOLERANCE = 100, 1e-5
_GP_ROWS = 400  # observations that hyperparameters are fitted to; the process is conditioned on all
_GP_UNITS = (2.0, 20.0, 200.0)  # steps; the search for the length scale starts at 1.5 of them
_GP_STEPS = 60
_NETWORK_STEPS, _NETWORK_STRIDE = 100, 10  # rows of the windows of a network, and between their starts


# Each column alone


def fill_each_column(predict: Callable[..., GaussianMixture]) -> Callable[[Sheet2D], Mixtures]:
    """Return a method that predicts each column from its own observations, by their numbers of rows."""

    def fill(observed: Sheet2D) -> Mixtures:
        rows, found = np.arange(len(observed), dtype=float)[:, None], []
        for y in observed.T:
            missing = np.isnan(y)
            found.append(predict(rows[~missing], y[~missing], rows[missing]) if missing.any() else None)
        return found

    return fill


def predict_gp(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"]) -> GaussianMixture:
    """Predict by an RBF kernel with a linear trend and noise. Of the fits from several length scales, the one with the
    highest marginal likelihood is kept. A long series is fitted in its middle, where neighbours are."""
    level, size = float(y.mean()), robust_std(y)
    values = torch.from_numpy((y - level) / size)[:, None]
    start = max(0, len(y) - _GP_ROWS) // 2
    part = slice(start, start + _GP_ROWS)
    fits = []
    for unit in _GP_UNITS:
        u, ut = (torch.from_numpy((rows - x.mean()) / unit) for rows in (x, xt))
        hyperparameters = GPHyperparameters.fit(u[part], values[part], _GP_STEPS)
        gram = hyperparameters.kernel(u[part], u[part])
        posterior = GPPosterior.condition(gram, hyperparameters.noise_variance, values[part])
        fits.append((float(posterior.log_likelihood.sum()), u, ut, hyperparameters))
    _, u, ut, hyperparameters = max(fits, key=lambda fit: fit[0])
    target = GPTarget(values, torch.ones(len(y), dtype=torch.bool))
    mean, std = GaussianProcess.condition(u, target, hyperparameters).predict(ut).T
    return make_normal(level + size * mean, size * std)


# Columns together


def standardise(observed: Sheet2D) -> tuple[Sheet2D, Float[ndarray, "d"], Float[ndarray, "d"]]:
    """Return the sheet in standard deviations from the mean of each column, and both."""
    mean, std = np.nanmean(observed, 0), np.nanstd(observed, 0)
    std = np.where(std > 0, std, 1)
    return (observed - mean) / std, mean, std


def in_standard_units(fill: Callable[[Sheet2D], Sheet2D]) -> Callable[[Sheet2D], Sheet2D]:
    """Return a method that fills the standardised sheet."""

    def fill_standardised(observed: Sheet2D) -> Sheet2D:
        z, mean, std = standardise(observed)
        return mean + std * fill(z)

    return fill_standardised


def impute(make: Callable[[Any, int], Any]) -> Callable[[Sheet2D], Sheet2D]:
    """Return one of scikit-learn's imputers as a method."""
    return in_standard_units(lambda z: baseline(make)(z, 0)[0])


def fill_by_svd(z: Sheet2D) -> Sheet2D:
    """Fill by an iterated truncated singular value decomposition (Troyanskaya et al. 2001) that starts from linear
    interpolation, with the rank that predicts held-out observed cells best."""
    seen = ~np.isnan(z)
    held_out = seen & (np.random.default_rng(_RANK_SEED).random(z.shape) < _RANK_SHARE)

    def error(rank: int) -> float:
        return float(np.square((complete_low_rank(z, seen & ~held_out, rank) - z)[held_out]).mean())

    return complete_low_rank(z, seen, min(range(1, z.shape[1]), key=error))


def complete_low_rank(z: Sheet2D, seen: Bool[ndarray, "n d"], rank: int) -> Sheet2D:
    """Put the approximation of that rank in the place of cells that are not seen, until it changes little."""
    rows = np.arange(len(z))
    filled = np.stack([np.interp(rows, rows[some], y[some]) for y, some in zip(z.T, seen.T, strict=True)], 1)
    for _ in range(_SVD_STEPS):
        left, size, right = np.linalg.svd(filled, full_matrices=False)
        updated = np.where(seen, z, (left[:, :rank] * size[:rank]) @ right[:rank])
        moved = np.abs(updated - filled).max()
        filled = updated
        if moved < _SVD_TOLERANCE:
            break
    return filled


def fill_by_network(z: Sheet2D, name: str, **options: Any) -> Sheet2D:
    """Train a network of PyPOTS on overlapping windows of the sheet, and average its predictions of each cell."""
    networks = import_module("pypots.imputation")  # slow to import
    n, d = z.shape
    length = min(_NETWORK_STEPS, n)
    starts = np.unique([*range(0, n - length, _NETWORK_STRIDE), n - length])
    windows = {"X": np.stack([z[start : start + length] for start in starts]).astype(np.float32)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = getattr(networks, name)(length, d, device="cpu", verbose=False, **options)
        network.fit(windows)
        predicted = np.asarray(network.predict(windows)["imputation"], dtype=float)
    total, count = np.zeros_like(z), np.zeros((n, 1))
    for start, window in zip(starts, predicted, strict=True):
        total[start : start + length] += window
        count[start : start + length] += 1
    return np.where(np.isnan(z), total / count, z)


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
    """`alone`: each column by itself; `ours`: fillin or a part of it, no baseline; `module`: an optional module that it
    needs; `weights`: the pretrained weights, where SHEET stands for the model that the study is given; `version`:
    raised when its predictions change, so that stored results are measured again."""

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
        predict_jointly, "the sheet model, all columns at once, nothing fitted", ours=True, weights=SHEET
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
        impute(lambda sklearn_impute, seed: sklearn_impute.IterativeImputer(max_iter=_ROUNDS, random_state=seed)),
        f"IterativeImputer of scikit-learn, Bayesian ridge regression on the other columns, {_ROUNDS} rounds",
        module="sklearn",
    ),
    "k-NN": SheetMethod(
        impute(lambda sklearn_impute, _: sklearn_impute.KNNImputer()), "KNNImputer of scikit-learn, 5 similar rows",
        module="sklearn",
    ),
    "SVD": SheetMethod(
        in_standard_units(fill_by_svd),
        f"iterated truncated SVD from linear interpolation; the rank predicts {_RANK_SHARE:.0%} of the observed cells "
        "best",
    ),
    "GP": SheetMethod(
        fill_each_column(predict_gp),
        f"an exact GP for each column by itself: RBF, trend and noise; marginal likelihood by Adam on up to {_GP_ROWS} "
        f"observations from {len(_GP_UNITS)} starts, conditioned on all", True,
    ),
    "SAITS": SheetMethod(
        in_standard_units(partial(
            fill_by_network, name="SAITS", n_layers=2, d_model=64, n_heads=4, d_k=16, d_v=16, d_ffn=128, dropout=0.1,
        )),
        "self-attention trained on the sheet (Du et al. 2023), by PyPOTS, 100 epochs of windows of 100 rows",
        module="pypots",
    ),
    "BRITS": SheetMethod(
        in_standard_units(partial(fill_by_network, name="BRITS", rnn_hidden_size=64)),
        "recurrent network trained on the sheet (Cao et al. 2018), by PyPOTS, 100 epochs of windows of 100 rows",
        module="pypots",
    ),
}  # fmt: skip
JOINT, ALONE, LINEAR = "fillin joint", "fillin alone", "linear"
WITH_ADDED_COLUMNS = (JOINT, "guides", "iterative")  # that are measured with a further column


def measure(case: SheetCase, method: SheetMethod, model: str) -> dict[str, Any]:
    """Measure a method on one thread. The time of loading weights or PyPOTS is not counted."""
    fill = method.fill
    if method.weights == SHEET:
        load_sheet_model(model)
        fill = partial(fill, model=model)
    if method.module:
        import_module("pypots.imputation" if method.module == "pypots" else method.module)
    with require("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rounds that end before convergence
        start = time.process_time()
        filled = fill(case.observed)
        seconds = time.process_time() - start
    return {**score_sheet(filled, case), "seconds": seconds}


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
