"""Length scales of the columns of x, for a model that sees distances alone (as the ARD length scales of a GP)."""

import time
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from fillin.heads import marginal_of
from fillin.models import Process

MAX_STEPS, MAX_SECONDS = 40, 4.0
MAX_POINTS, N_FOLDS = 128, 8  # a random choice of points; each fold is predicted from the others
_RATE, _RIDGE, _MAX_POINT_LOSS = 0.25, 0.02, 20.0


def fit_length_scales(
    model: Process, x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], seed: int, tick: Callable = lambda done: None
) -> Float[ndarray, "dx"]:
    """Fit units ℓ in which the model, given x / ℓ, makes left-out points most likely:

        max over w of  Σ_folds ln p(y_fold | x·eʷ/width, the other folds) / n − λ ‖w‖²/dx,    ℓ = width e⁻ʷ

    by Adam from equal weights, which are kept where nothing better is found; with up to 16 points a fold is one point.
    """
    width = np.ptp(x, 0)
    width = np.where(width > 0, width, 1)
    folds = _draw_folds(len(x), np.random.default_rng(seed))
    if x.shape[1] < 2 or folds.shape[0] < 3 or np.ptp(y) == 0:
        return width
    inputs, values = (
        torch.from_numpy(v.astype(np.float32)) for v in ((x - x.min(0)) / width, (y - y.mean()) / y.std())
    )
    weights = torch.zeros(x.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=_RATE, betas=(0.8, 0.95))
    best_loss, best, end = np.inf, weights.detach().clone(), time.monotonic() + MAX_SECONDS
    required_grad = {p: p.requires_grad for p in model.parameters()}
    try:
        model.requires_grad_(False)
        with torch.enable_grad():
            for _ in range(MAX_STEPS):
                fit = _left_out_likelihood(model, inputs * weights.exp(), values, folds)
                loss = _RIDGE * weights.square().mean() - fit
                current = loss.item()
                if current < best_loss:
                    best_loss, best = current, weights.detach().clone()
                if not np.isfinite(current) or time.monotonic() > end:
                    break
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                tick(1)
    finally:
        for p, required in required_grad.items():
            p.requires_grad_(required)
    return width * np.exp(-best.double().numpy())


def _draw_folds(n: int, random: np.random.Generator) -> ndarray:
    """Rows [folds, rows of each], of equal size."""
    rows = random.permutation(n)[:MAX_POINTS]
    folds = len(rows) if len(rows) <= 2 * N_FOLDS else N_FOLDS
    return rows[: len(rows) // max(folds, 1) * folds].reshape(folds, -1)


def _left_out_likelihood(model: Process, x: Float[Tensor, "n dx"], y: Float[Tensor, "n"], folds: ndarray) -> Tensor:
    """Mean ln p of a point given the other folds; none costs more than 20 nats, so that outliers do not dominate."""
    rest = np.stack([np.delete(folds, fold, 0).ravel() for fold in range(len(folds))])
    prediction = model(x[rest], y[rest][..., None], x[folds])
    return marginal_of(prediction).log_prob(y[folds][..., None]).clamp_min(-_MAX_POINT_LOSS).mean()
