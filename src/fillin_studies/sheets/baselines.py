"""Common ways to fill several series: each column by itself, or columns together, by regression, by low rank, or by
networks that are trained on the sheet.

A method is a function from a sheet, with NaN where it is missing, to the filled sheet or to the predictive
distributions of the missing cells of each column. Columns have any scale.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from io import BytesIO, TextIOWrapper
from signal import SIGINT, signal
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from fillin.predictive import GaussianMixture
from fillin_studies.fill.interpolation import MIN_STD, make_normal
from fillin_studies.fill.methods import compose_kernel, make_rbf, standardise_series
from fillin_studies.imputes import baseline
from fillin_studies.sheets.data import Sheet2D

Mixtures = list[GaussianMixture | None]  # of the missing cells of each column, in the order of the rows; None: no cell
FilledSheet = Sheet2D | Mixtures
IMPUTER_ROUNDS = 20  # of IterativeImputer
RANK_SHARE = 0.1  # of the observed cells, held out to choose the rank
_RANK_SEED = 2001  # not that of a pattern: the same numbers would choose hidden cells
_SVD_STEPS, _SVD_TOLERANCE = 100, 1e-5
GP_POINTS = 256  # that hyperparameters are fitted to at a time
_RBF_LENGTHS = 0.005, 0.1  # of the width, from which the searches start, near and far
_COMPOSED_NOISES = 0.01, 0.1  # initial noise variances
NETWORK_ROWS, NETWORK_EPOCHS = 48, 100  # rows of a window, and the most epochs
_VALIDATION_SHARE, _VALIDATION_SEED = 0.1, 2002  # of the observed cells, held out to stop the training


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


def predict_rbf(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"]) -> GaussianMixture:
    """Predict by an RBF kernel and noise."""
    return _predict_gp([make_rbf(x, length) for length in _RBF_LENGTHS], x, y, xt)


def predict_composed(x: Float[ndarray, "n 1"], y: Float[ndarray, "n"], xt: Float[ndarray, "m 1"]) -> GaussianMixture:
    """Predict by trend + periodic + rational quadratic + noise."""
    return _predict_gp([compose_kernel(x, y, noise) for noise in _COMPOSED_NOISES], x, y, xt)


def _predict_gp(kernels: Sequence[Any], x, y, xt) -> GaussianMixture:
    """Fit the first kernel to the points in the middle, where neighbours are, and the second to as many anywhere, which
    span slow changes; condition the one of higher marginal likelihood on all points. A fit to all takes ten times as
    long."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    u, v, w, mean, std = standardise_series(x, y, xt)
    start = max(0, len(v) - GP_POINTS) // 2
    parts = np.arange(start, min(len(v), start + GP_POINTS)), np.random.default_rng(0).permutation(len(v))[:GP_POINTS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a hyperparameter at its bound, or L-BFGS at its last step
        fits = [
            GaussianProcessRegressor(kernel, alpha=1e-9).fit(u[rows], v[rows]).kernel_
            for kernel, rows in zip(kernels, parts, strict=True)
        ]
        conditioned = [
            GaussianProcessRegressor(kernel, alpha=1e-9, optimizer=None).fit(u, v)  # type: ignore[arg-type]
            for kernel in fits
        ]
        best = max(conditioned, key=lambda gp: gp.log_marginal_likelihood_value_)
        predicted, predicted_std = best.predict(w, return_std=True)
    return make_normal(mean + std * predicted, std * np.maximum(predicted_std, MIN_STD))


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
    held_out = seen & (np.random.default_rng(_RANK_SEED).random(z.shape) < RANK_SHARE)

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


def load_pypots() -> tuple[Any, Any]:
    """Import PyPOTS, which is slow, without its banner and its log."""
    with redirect_stdout(TextIOWrapper(BytesIO(), encoding="utf-8")):
        modules = import_module("pypots.imputation"), import_module("pypots.optim")
    logging.getLogger("PyPOTS running log").disabled = True
    return modules


@contextmanager
def raised_interrupt() -> Iterator[None]:
    """Raise the KeyboardInterrupt that PyPOTS catches within the block: half a training is no result."""
    if current_thread() is not main_thread():
        yield
        return
    pressed = []

    def interrupt(number: int, frame: Any) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    before = signal(SIGINT, interrupt)
    try:
        yield
    finally:
        signal(SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def fill_by_network(z: Sheet2D, name: str, stride: int, batch: int, rate: float, **options: Any) -> Sheet2D:
    """Train a network of PyPOTS on overlapping windows of the sheet until it predicts held-out observed cells no
    better, and average its predictions of each cell."""
    networks, optim = load_pypots()
    n, d = z.shape
    length = min(NETWORK_ROWS, n)
    starts = np.unique([*range(0, n - length, stride), n - length])
    held_out = ~np.isnan(z) & (np.random.default_rng(_VALIDATION_SEED).random(z.shape) < _VALIDATION_SHARE)

    def cut(sheet: Sheet2D) -> Float[ndarray, "w l d"]:
        return np.stack([sheet[start : start + length] for start in starts]).astype(np.float32)

    training = cut(np.where(held_out, np.nan, z))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = getattr(networks, name)(
            length, d, device="cpu", verbose=False, epochs=NETWORK_EPOCHS, batch_size=batch,
            optimizer=optim.Adam(lr=rate), **options,
        )  # fmt: skip
        with raised_interrupt():
            network.fit({"X": training}, {"X": training, "X_ori": cut(z)})
        predicted = np.asarray(network.predict({"X": cut(z)})["imputation"], dtype=float)
    total, count = np.zeros_like(z), np.zeros((n, 1))
    for start, window in zip(starts, predicted, strict=True):
        total[start : start + length] += window
        count[start : start + length] += 1
    return np.where(np.isnan(z), total / count, z)
