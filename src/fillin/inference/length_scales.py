"""How much each column of x matters, for a model that sees distances alone: what a GP's length scales are to it."""

import time
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from fillin.heads import Autoregressive
from fillin.models import Process

STEPS, SECONDS = 40, 4.0  # at most
POINTS, FOLDS = 128, 8  # of them a random choice; each fold is predicted from the others
_RATE, _RIDGE, _DEAREST = 0.25, 0.02, 20.0


def column_scales(
    model: Process, x: Float[ndarray, "n dx"], y: Float[ndarray, "n"], seed: int, tick: Callable = lambda done: None
) -> Float[ndarray, "dx"]:
    """Units ℓ in which the model, seeing x / ℓ, gives the points that are left out the highest likelihood:

        max over w of  Σ_folds ln p(y_fold | x·eʷ/width, the other folds) / n − λ ‖w‖²/dx,    ℓ = width e⁻ʷ

    by Adam from equal weights; with up to 16 points a fold is one point. What it began with is what it ends with where
    nothing better is found.
    """
    width = np.ptp(x, 0)
    width = np.where(width > 0, width, 1)
    folds = _folds(len(x), np.random.default_rng(seed))
    if x.shape[1] < 2 or folds.shape[0] < 3 or np.ptp(y) == 0:
        return width
    place, value = (torch.from_numpy(v.astype(np.float32)) for v in ((x - x.min(0)) / width, (y - y.mean()) / y.std()))
    weights = torch.zeros(x.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=_RATE, betas=(0.8, 0.95))
    best, found, until = np.inf, weights.detach().clone(), time.monotonic() + SECONDS
    parameters = list(model.parameters())
    wanted = [p.requires_grad for p in parameters]
    try:
        for p in parameters:
            p.requires_grad_(False)
        with torch.enable_grad():
            for _ in range(STEPS):
                loss = _RIDGE * weights.square().mean() - _left_out(model, place * weights.exp(), value, folds)
                now = loss.item()
                if now < best:
                    best, found = now, weights.detach().clone()
                if not np.isfinite(now) or time.monotonic() > until:
                    break
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                tick(1)
    finally:
        for p, before in zip(parameters, wanted, strict=True):
            p.requires_grad_(before)
    return width * np.exp(-found.double().numpy())


def _folds(n: int, random: np.random.Generator) -> ndarray:
    """Rows [folds, rows of each], alike in size."""
    rows = random.permutation(n)[:POINTS]
    folds = len(rows) if len(rows) <= 2 * FOLDS else FOLDS
    return rows[: len(rows) // max(folds, 1) * folds].reshape(folds, -1)


def _left_out(model: Process, x: Float[Tensor, "n dx"], y: Float[Tensor, "n"], folds: ndarray) -> Tensor:
    """ln p of a point given the folds it is not in; none costs more than 20 nats, so that outliers do not decide."""
    rest = np.stack([np.delete(folds, fold, 0).ravel() for fold in range(len(folds))])
    found = model(x[rest], y[rest][..., None], x[folds])
    found = found.marginals if isinstance(found, Autoregressive) else found
    return found.log_prob(y[folds][..., None]).clamp_min(-_DEAREST).mean()
